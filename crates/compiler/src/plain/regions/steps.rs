//! Numbers that depend on one open extent (an extent that only the run knows) in steps, such as the
//! number of windows with a stride that fit into it: `rise * (n / len) + at[n % len]` for an extent
//! `n`. The table is found by asking the operator's shape inference for many extents. `fit.rs`
//! treats such a number as an extent of its own.

use super::super::context::of_call;
use super::fit::number;
use squall_core::graph::OperatorCall;
use squall_core::graph::infer::{Window, spread, window};

/// The longest step that is looked for.
const MOST_STEPS: i64 = 64;

/// `rise * (n / len) + at[n % len]` for an extent `n` of at least `least`, `len` that of `at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// The number of the extent among the open ones.
    pub of: usize,
    pub rise: i64,
    pub at: Vec<i64>,
    pub least: i64,
}

impl Steps {
    pub fn value(&self, n: i64) -> i64 {
        let len = self.at.len() as i64;
        self.rise * (n / len) + self.at[(n % len) as usize]
    }

    /// The steps by which `f` depends on the extent `of`, if it does so in steps.
    fn find(of: usize, f: &dyn Fn(i64) -> Option<i64>) -> Option<Steps> {
        // Multiples of all lengths of steps that are looked for first.
        let first = 256;
        let seen: Vec<i64> = (first..first + 3 * MOST_STEPS).map(f).collect::<Option<_>>()?;
        let rises = |len: usize| {
            let rise = seen[len] - seen[0];
            seen.iter().zip(&seen[len..]).all(|(a, b)| b - a == rise).then_some((len, rise))
        };
        let (len, rise) = (1..=MOST_STEPS as usize).find_map(rises)?;
        let place = |r: usize| {
            let n = first + (r as i64 - first).rem_euclid(len as i64);
            seen[(n - first) as usize] - rise * (n / len as i64)
        };
        let mut steps = Steps { of, rise, at: (0..len).map(place).collect(), least: 0 };
        let last = (0..first).rev().find(|n| f(*n) != Some(steps.value(*n)));
        steps.least = last.map_or(0, |n| n + 1);
        (steps.least <= first / 2).then_some(steps)
    }
}

/// The call in which open extents have numbers.
type Trial<'a> = &'a dyn Fn(&dyn Fn(usize) -> i64) -> Result<OperatorCall, String>;

/// The extents of a call's results and windows that depend on open extents in steps; `call` makes
/// the call with given numbers for open extents, `symbols` is how many open extents there are.
pub(super) fn steps(
    symbols: usize,
    call: Trial<'_>,
    is_known: &dyn Fn(&[i64]) -> bool,
    trials: usize,
) -> Vec<Steps> {
    let of = |numbers: &dyn Fn(usize) -> i64| call(numbers).ok().map(|c| all(&c));
    let tried: Option<Vec<Vec<i64>>> = (0..trials).map(|k| of(&|s| number(k, s))).collect();
    let Some(tried) = tried.filter(|t| t.iter().all(|n| n.len() == t[0].len())) else {
        return Vec::new();
    };
    let mut found: Vec<Steps> = Vec::new();
    for i in 0..tried[0].len() {
        let seen: Vec<i64> = tried.iter().map(|n| n[i]).collect();
        if is_known(&seen) {
            continue;
        }
        for s in 0..symbols {
            let f = |n: i64| of(&|other| if other == s { n } else { number(0, other) });
            let one = |n: i64| f(n).and_then(|all| all.get(i).copied());
            let agrees = |steps: &Steps| (0..trials).all(|k| steps.value(number(k, s)) == seen[k]);
            if let Some(steps) = Steps::find(s, &one).filter(agrees) {
                let same = |f: &&mut Steps| (f.of, f.rise, &f.at) == (s, steps.rise, &steps.at);
                match found.iter_mut().find(same) {
                    Some(f) => f.least = f.least.max(steps.least),
                    None => found.push(steps),
                }
                break;
            }
        }
    }
    found
}

/// The extents of a call's results, and of its windows.
fn all(call: &OperatorCall) -> Vec<i64> {
    let mut list: Vec<i64> = call.outputs.iter().flatten().flat_map(|o| o.shape.clone()).collect();
    let (w, image) = match windows(call) {
        Some(w) => w,
        None => return list,
    };
    for (i, e) in image.iter().enumerate() {
        list.extend([w.out[i], w.before[i], w.after[i], e + w.after[i]]);
    }
    list
}

fn windows(call: &OperatorCall) -> Option<(Window, Vec<i64>)> {
    let standard = matches!(call.domain.as_str(), "" | "ai.onnx");
    let operand = |i: usize| Some(call.inputs.get(i)?.as_ref()?.shape.clone());
    let image = operand(0)?.get(2..)?.to_vec();
    of_call(call, |ctx| match call.op.as_str() {
        "AveragePool" | "Conv" | "ConvInteger" | "LpPool" | "MaxPool" if standard => {
            window(ctx).ok()
        }
        "DeformConv" if standard => spread(ctx, &image, operand(1)?.get(2..)?).ok(),
        "QLinearConv" if standard => spread(ctx, &image, operand(3)?.get(2..)?).ok(),
        _ => None,
    })
    .map(|w| (w, image.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_in_steps_from_the_length_that_they_move_over() {
        let of = |f: &dyn Fn(i64) -> Option<i64>| Steps::find(0, f);
        // Three of a stride of two, padded by one.
        let windows = of(&|n| (n >= 1).then(|| (n + 2 - 3) / 2 + 1)).unwrap();
        assert_eq!((windows.rise, windows.at.len(), windows.least), (1, 2, 1));
        assert!((1..99).all(|n| windows.value(n) == (n - 1) / 2 + 1));
        // The padding of equal results: it is another one for each rest.
        let same = of(&|n| Some(((n + 2) / 3 * 3 + 2 - n) / 2)).unwrap();
        assert_eq!((same.rise, same.at.len()), (0, 3));
        assert_eq!(of(&|n| Some(n * n)), None);
    }
}
