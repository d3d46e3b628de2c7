//! The least time that a stored measurement may claim. A store of records may hold entries that an
//! unknown writer made, and a time that no machine reaches would stay the best one for ever. Input:
//! a task's workload (its tensor expression) and the target's peak rates; output: [`least_time`]. A
//! stored time below it is doubted: it counts only once its candidate was measured again
//! (`task_state.rs`).

use crate::target::roof::Roof;
use squall_core::{DType, Nanos, Target, TargetKind, Workload};

/// The nanoseconds that every call takes at least.
const CALL: f64 = 1.0;
/// How many times fewer operations than the workload states a kernel may do: Winograd's F(6x6, 3x3)
/// does one in 5.1.
const SAVED: f64 = 6.0;
/// The same against the machine's measured roof, whose clock is that of one moment.
const SAVED_AND_CLOCK: f64 = 8.0;
/// How many times more narrow numbers than f32 a CPU's matrix unit takes at once.
const NARROW: f64 = 64.0;
/// Operations that each f32 lane of a core does in a nanosecond at most: two fused multiply-adds in
/// each cycle at 6 GHz.
const LANE: f64 = 2.0 * 2.0 * 6.0;
/// Operations of one multiprocessor in a nanosecond at most: tensor cores on 8-bit numbers at
/// 3 GHz.
const MULTIPROCESSOR: f64 = 8192.0 * 3.0;

/// The least time of a workload on a target that is believed. Where the machine's roof (its
/// measured peak and bandwidths) is known, it gives a closer limit for kernels in f32 on a CPU.
pub(crate) fn least_time(workload: &Workload, target: &Target, roof: Option<&Roof>) -> Nanos {
    // What a user says of their own kernel's operations is no evidence.
    if workload.foreign.is_some() {
        return Nanos(CALL);
    }
    let flop = workload.flop() as f64;
    let is_f32 = workload.inputs.iter().all(|i| i.dtype == DType::F32);
    let rate = match &target.kind {
        TargetKind::Cuda(gpu) => SAVED * MULTIPROCESSOR * f64::from(gpu.multiprocessors.max(1)),
        TargetKind::Cpu => {
            let lanes = target.lanes_f32() as f64 * target.threads.max(1) as f64;
            let any = SAVED * LANE * lanes * if is_f32 { 1.0 } else { NARROW };
            // GFLOP/s are operations in a nanosecond.
            match roof.filter(|r| is_f32 && r.peak_gflops > 0.0) {
                Some(r) => any.min(SAVED_AND_CLOCK * r.peak_gflops),
                None => any,
            }
        }
    };
    Nanos(CALL.max(flop / rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::task_state::tests::{target, task};

    #[test]
    fn a_roof_and_the_machine_bound_what_is_believed() {
        let task = task();
        let flop = task.workload.flop() as f64;
        let any = least_time(&task.workload, &target(), None);
        assert!(any.0 > 1.0 && any.0 < flop / (LANE * 8.0), "{any}");
        let roof = Roof {
            peak_gflops: 10.0,
            byte_pace: 4.0,
            pair_pace: 2.0,
            memory_gbs: 1.0,
            levels: Vec::new(),
        };
        assert_eq!(least_time(&task.workload, &target(), Some(&roof)).0, flop / 80.0);
        let small = Workload::parse(
            "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0)\noutput Y\n",
        )
        .expect("a workload");
        assert_eq!(least_time(&small, &target(), None), Nanos(CALL));
    }
}
