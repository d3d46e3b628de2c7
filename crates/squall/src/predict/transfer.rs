//! Transfer between similar tasks: the winner of one task is a good guess for another with the same
//! loops and other extents, or with another epilogue (a convolution with and without a residual
//! added wants the same tiles). Input: a task and the winners of others; output: candidates to try.
//! They are among a task's first trials, and again whenever a similar task finds a better kernel;
//! the strategy is told of them as of any trial.

use crate::base::error::Error;
use crate::task::task_state::{TaskState, name_of};
use squall_compiler::{counterpart, of_operators};
use squall_core::operator::{BACK_TO_BACK, between_operators, operators};
use squall_core::{Candidate, Record, Space, TaskId, TaskShape, Tunable, Workload, find_tunable};
use squall_records::{Name, Place, Store};
use std::sync::Arc;

/// The largest distance of tasks between which winners are transferred: factors of two between
/// extents, summed over the loops.
const FAR: f64 = 8.0;
/// The number of a similar task's best candidates that are guesses.
const BEST: usize = 3;
/// Guesses in a task's first batch.
pub(crate) const FIRST: usize = 4;
/// Guesses in each later batch.
pub(crate) const LATER: usize = 2;

/// A task of the store that this session does not tune, and the candidate that holds it.
pub(crate) struct TransferSource {
    shape: TaskShape,
    winner: Name,
}

/// The tuned tasks of a store at a place, but for some.
pub(crate) fn transfer_sources(
    store: &Store,
    place: &Place,
    except: &[TaskId],
) -> Result<Vec<TransferSource>, Error> {
    let held = store.best(&place.records())?.into_iter().filter(|r| !except.contains(&r.task));
    let source = |r: Record| {
        Some(TransferSource {
            shape: TaskShape::of(&Workload::parse(&r.workload).ok()?)?,
            winner: (r.tunable, r.configuration),
        })
    };
    Ok(held.filter_map(source).collect())
}

/// Up to `n` untried guesses for a task, those of the most similar task first.
pub(crate) fn guesses<'d>(
    state: &TaskState,
    others: impl Iterator<Item = &'d TaskState<'d>>,
    sources: &[TransferSource],
    n: usize,
) -> Vec<Candidate> {
    let others: Vec<&TaskState> = others.collect();
    let mut found = Vec::new();
    let add = |candidate: Candidate, found: &mut Vec<Candidate>| {
        if found.len() < n
            && !state.tried.contains(&name_of(&candidate))
            && !found.contains(&candidate)
        {
            found.push(candidate);
        }
    };
    for candidate in of_winners(state, &others, sources) {
        add(candidate, &mut found);
    }
    let Some(shape) = TaskShape::of(&state.task.workload) else { return found };
    let mut similar: Vec<(f64, Vec<&Name>)> = Vec::new();
    for o in &others {
        if let Some(d) = TaskShape::of(&o.task.workload).and_then(|s| shape.distance(&s)) {
            // The winner comes first: the others may only have been lucky.
            let winner = o.standings.winner().map(|w| w.0);
            let rest =
                o.standings.ranking().into_iter().map(|r| r.0).filter(|name| Some(*name) != winner);
            similar.push((d, winner.into_iter().chain(rest).take(BEST).collect()));
        }
    }
    similar
        .extend(sources.iter().filter_map(|s| Some((shape.distance(&s.shape)?, vec![&s.winner]))));
    similar.retain(|k| k.0 <= FAR);
    similar.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (tunable, configuration) in similar.into_iter().flat_map(|k| k.1) {
        if found.len() == n {
            break;
        }
        let tunables = &state.kernels.tunables;
        let own = find_tunable(tunables, tunable);
        let Some(t) = own.or_else(|| find_tunable(tunables, &counterpart(tunable))) else {
            continue;
        };
        let Some(c) = Space::nearest(t.space(), configuration) else { continue };
        add(Candidate { tunable: t.name().into(), configuration: c }, &mut found);
    }
    found
}

/// What the winners of both operators alone make of the sketches of a task of two of them.
fn of_winners(
    state: &TaskState,
    others: &[&TaskState],
    sources: &[TransferSource],
) -> Vec<Candidate> {
    let w = &state.task.workload;
    let Some(between) = between_operators(w).filter(|_| w.kind == BACK_TO_BACK) else {
        return Vec::new();
    };
    let tunables = &state.kernels.tunables;
    // The nearest that some sketch has as its first or its second operator's.
    let winner = |operator: &Workload, place: usize| {
        let has = |name: &Name| {
            tunables.iter().any(|t| t.name().split('+').nth(1 + place) == Some(&name.0))
        };
        let shape = TaskShape::of(operator)?;
        let own = others.iter().filter_map(|o| {
            let d = TaskShape::of(&o.task.workload).and_then(|s| shape.distance(&s))?;
            Some((d, o.standings.winner()?.0))
        });
        let stored = sources.iter().filter_map(|s| Some((shape.distance(&s.shape)?, &s.winner)));
        let near = own.chain(stored).filter(|(d, name)| *d <= FAR && has(name));
        near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| (&name.0[..], &name.1[..]))
    };
    let [first, second] = operators(w, between);
    let (Some(first), Some(second)) = (winner(&first, 0), winner(&second, 1)) else {
        return Vec::new();
    };
    let guess = |t: &Arc<dyn Tunable>| {
        let text = of_operators(t.name(), [first, second])?;
        let configuration = Space::nearest(t.space(), &text)?;
        Some(Candidate { tunable: t.name().into(), configuration })
    };
    tunables.iter().filter_map(guess).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::task_state::tests::state;
    use squall_core::operator::chain;
    use squall_core::{Nanos, Task};

    fn matmul(m: i64, n: i64, k: i64, bias: bool) -> Task {
        let (input, add) =
            if bias { (format!("weight C: f32[{n}]\n"), " + C[j]") } else { (String::new(), "") };
        let text = format!(
            "workload matmul\ndata A: f32[{m}, {k}]\nweight B: f32[{k}, {n}]\n{input}stage S: \
             f32[i: {m}, j: {n}] = sum(k: {k}) A[i, k] * B[k, j]\n\
             stage Y: f32[i: {m}, j: {n}] = max(S[i, j]{add}, 0)\noutput Y\n"
        );
        Task::new("mm", Workload::parse(&text).expect("a workload"))
    }

    #[test]
    fn the_most_similar_task_comes_first_and_nothing_is_tried_twice() {
        let (task, near, far) =
            (matmul(64, 64, 64, false), matmul(64, 64, 64, true), matmul(64, 16, 64, false));
        let (mut target, mut near, mut far) = (state(&task), state(&near), state(&far));
        let stand = |d: &mut TaskState, i: u128, ns: f64| {
            let name = crate::task::task_state::tests::name(d, i);
            d.stand(name.clone(), Nanos(ns));
            name
        };
        let slow = stand(&mut near, 40, 200.0);
        let fast = stand(&mut near, 17, 100.0);
        stand(&mut far, 5, 10.0);
        let found = guesses(&target, [&near, &far].into_iter(), &[], 8);
        assert_eq!(found[..2].iter().map(name_of).collect::<Vec<_>>(), [fast.clone(), slow]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found
                .iter()
                .all(|c| target.kernels.tunables[0].space().rank(&c.configuration).is_some())
        );
        target.tried.insert(fast);
        assert_eq!(guesses(&target, [&near, &far].into_iter(), &[], 8), found[1..]);
        assert_eq!(guesses(&target, [&near].into_iter(), &[], 0), []);
    }

    #[test]
    fn a_product_teaches_the_one_whose_largest_element_is_wanted() {
        let product = matmul(64, 64, 64, false);
        let text = product.workload.to_string().replace("output Y", "");
        let text = format!("{text}stage M: f32[i: 1] = max(a: 64, b: 64) Y[a, b]\noutput M\n");
        let largest = Task::new("largest", Workload::parse(&text).expect("a workload"));
        let (target, mut near) = (state(&largest), state(&product));
        let name = crate::task::task_state::tests::name(&near, 17);
        near.stand(name.clone(), Nanos(100.0));
        let found = guesses(&target, [&near].into_iter(), &[], 4);
        let names: Vec<Name> = found.iter().map(name_of).collect();
        assert_eq!(names, [(format!("{},range", name.0), name.1)]);
    }

    #[test]
    fn two_operators_teach_the_kernel_of_both() {
        let (first, second) = (matmul(64, 48, 32, false), matmul(64, 32, 48, true));
        let both =
            chain(BACK_TO_BACK, first.workload.clone(), &[&second.workload]).expect("a pair");
        let both = Task::new("both", both);
        let (target, mut one, mut other) = (state(&both), state(&first), state(&second));
        let names = [(&mut one, 17), (&mut other, 40)].map(|(d, i)| {
            let name = crate::task::task_state::tests::name(d, i);
            d.stand(name.clone(), Nanos(100.0));
            name
        });
        let found = guesses(&target, [&one, &other].into_iter(), &[], 4);
        assert!(!found.is_empty());
        for c in &found {
            assert!(c.tunable.ends_with(&format!("+{}+{}", names[0].0, names[1].0)), "{c:?}");
            for (knobs, name) in ["first_", "second_"].iter().zip(&names) {
                let tile = name.1.split(',').find(|pair| pair.starts_with("lanes=")).unwrap();
                assert!(c.configuration.to_string().contains(&format!("{knobs}{tile}")), "{c:?}");
            }
        }
        assert_eq!(guesses(&target, std::iter::empty(), &[], 4), []);
    }
}
