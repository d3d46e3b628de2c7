//! Operators one behind the other as one workload: each reads the result of the operator before as
//! its first input, and no other stage of it. No result between them has to be stored (after the
//! fused tiles of Halide's `compute_at`, PLDI 2013). Input: the operators' workloads; output: the
//! joined workload. `graph/src/rules/chain.rs` offers each chain to the sketches of the device,
//! which say whether they can make it one kernel.

use super::back_to_back::between_operators;
use super::joined::behind;
use crate::workload::Workload;

/// The kind of a workload of two operators, the second of which reads the first's result.
pub const BACK_TO_BACK: &str = "back_to_back";
/// The kind of a depthwise convolution with the pointwise ones beside it, of two or three
/// operators: see [`Separable`](super::Separable).
pub const SEPARABLE: &str = "separable_conv2d";
/// The kinds that texts of operators one behind the other may have. There are two for the same
/// operators, because CPUs' and GPUs' kernels of them were stored under one each: a device's sketch
/// takes its own, and where both are taken the first is meant.
pub const CHAINS: [&str; 2] = [SEPARABLE, BACK_TO_BACK];

/// The workload of operators one behind the other. Not possible where they do not fit, or where one
/// of them is no operator that reduces or lies in larger boxes.
pub fn chain(kind: &str, first: Workload, others: &[&Workload]) -> Result<Workload, String> {
    let reduces = |w: &Workload| {
        !CHAINS.contains(&w.kind.as_str()) && w.stages.iter().any(|s| s.reduction.is_some())
    };
    if others.is_empty() || !reduces(&first) || !others.iter().all(|w| reduces(w)) {
        return Err("they are not several operators that reduce".into());
    }
    if kind == BACK_TO_BACK && others.len() > 1 {
        return Err(format!("a workload of the kind `{BACK_TO_BACK}` is of two operators"));
    }
    let seam = first.stages.len() - 1;
    let made = others.iter().try_fold(first, |made, next| behind(made, next));
    let made = Workload { kind: kind.into(), ..made? };
    // Where two operators meet is found in the stages alone, so that a text needs no mark of it.
    match kind == BACK_TO_BACK && between_operators(&made) != Some(seam) {
        true => Err("the place where they meet is not found in their stages".into()),
        false => Ok(made),
    }
}
