//! What similar tasks teach. The configurations that hold tasks of the same loops, of other
//! extents or with another epilogue, are good guesses: a convolution with a residual added and one
//! without want the same tiles. They are tried among a task's first trials, and again whenever a
//! relative has found something better; the strategy hears of them as of any other trial.

use crate::desk::Desk;
use crate::error::Error;
use squall_core::{Candidate, Space, TaskId, Workload, find_tunable};
use squall_records::{Name, Query, Store};

/// Tasks further apart teach nothing; in factors of two, summed over the axes.
const FAR: f64 = 8.0;
/// So many of a relative's best are guesses.
const BEST: usize = 3;
/// Guesses in a task's first batch.
pub(crate) const FIRST: usize = 4;
/// Guesses in each later batch.
pub(crate) const LATER: usize = 2;

/// A task of the store that this session does not tune, and who holds it.
pub(crate) struct Elder {
    workload: Workload,
    winner: Name,
}

/// The tuned tasks of a store, but for some.
pub(crate) fn elders(
    store: &Store,
    device: &str,
    toolchain: &str,
    except: &[TaskId],
) -> Result<Vec<Elder>, Error> {
    let query = Query {
        device: Some(device.into()),
        toolchain: Some(toolchain.into()),
        ..Query::default()
    };
    let held = store.best(&query)?.into_iter().filter(|r| !except.contains(&r.task));
    let elder = |r: squall_core::Record| {
        Some(Elder {
            workload: Workload::parse(&r.workload).ok()?,
            winner: (r.tunable, r.configuration),
        })
    };
    Ok(held.filter_map(elder).collect())
}

/// How unlike two workloads are: the factors of two between the extents of their heaviest stages'
/// loops and between the sizes of their inputs. Nothing where the loops differ.
fn distance(a: &Workload, b: &Workload) -> Option<f64> {
    if a.foreign.is_some() || b.foreign.is_some() {
        return None;
    }
    let heaviest = |w: &Workload| {
        w.stages.iter().enumerate().max_by_key(|(i, s)| (s.flop(), *i)).map(|(i, _)| i)
    };
    let (x, y) = (&a.stages[heaviest(a)?], &b.stages[heaviest(b)?]);
    let axes = || x.all_axes().zip(y.all_axes());
    let alike = x.axes.len() == y.axes.len()
        && x.all_axes().count() == y.all_axes().count()
        && axes().all(|(p, q)| p.name == q.name);
    if !alike || x.reduction.as_ref().map(|r| r.op) != y.reduction.as_ref().map(|r| r.op) {
        return None;
    }
    let ratio = |p: i64, q: i64| (p as f64 / q as f64).log2().abs();
    let size =
        |w: &Workload| w.inputs.first().map_or(1, |i| i.shape.iter().product::<i64>()).max(1);
    let epilogue = if a.inputs.len() == b.inputs.len() { 0.0 } else { 0.25 };
    Some(
        axes().map(|(p, q)| ratio(p.extent, q.extent)).sum::<f64>()
            + ratio(size(a), size(b))
            + epilogue,
    )
}

/// Up to `n` untried guesses for a task, the nearest relative's first.
pub(crate) fn guesses<'d>(
    desk: &Desk,
    others: impl Iterator<Item = &'d Desk<'d>>,
    elders: &[Elder],
    n: usize,
) -> Vec<Candidate> {
    let mut kin: Vec<(f64, Vec<&Name>)> = Vec::new();
    for o in others {
        if let Some(d) = distance(&desk.task.workload, &o.task.workload) {
            // Who holds the task speaks first: the others may only have been lucky.
            let winner = o.standings.winner().map(|w| w.0);
            let rest =
                o.standings.ranking().into_iter().map(|r| r.0).filter(|name| Some(*name) != winner);
            kin.push((d, winner.into_iter().chain(rest).take(BEST).collect()));
        }
    }
    kin.extend(
        elders
            .iter()
            .filter_map(|e| Some((distance(&desk.task.workload, &e.workload)?, vec![&e.winner]))),
    );
    kin.retain(|k| k.0 <= FAR);
    kin.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut found: Vec<Candidate> = Vec::new();
    for (tunable, configuration) in kin.into_iter().flat_map(|k| k.1) {
        if found.len() == n {
            break;
        }
        let Some(t) = find_tunable(&desk.tunables, tunable) else { continue };
        let Some(c) = Space::nearest(t.space(), configuration) else { continue };
        if !desk.tried.contains(&(t.name().to_string(), c.to_string()))
            && found.iter().all(|f| f.configuration != c || *f.tunable != *t.name())
        {
            found.push(Candidate { tunable: t.name().into(), configuration: c });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Idle, name_of, tests::target};
    use crate::kit::Kit;
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

    fn desk(task: &Task) -> Desk<'_> {
        Desk::new(task, Kit::generated(task, &target()), Box::new(Idle))
    }

    #[test]
    fn distance_counts_factors_of_two_and_knows_strangers() {
        let of = |a: &Task, b: &Task| distance(&a.workload, &b.workload);
        let a = matmul(64, 64, 64, false);
        assert_eq!(of(&a, &a), Some(0.0));
        assert_eq!(of(&a, &matmul(64, 64, 64, true)), Some(0.25));
        assert_eq!(of(&a, &matmul(64, 16, 64, false)), Some(2.0));
        assert_eq!(of(&a, &matmul(128, 64, 64, false)), Some(2.0));
        let other = "workload softmax\ndata X: f32[8, 16]\nstage M: f32[i: 8] = max(j: 16) X[i, \
                     j]\nstage Y: f32[i: 8, j: 16] = exp(X[i, j] - M[i])\noutput Y\n";
        assert_eq!(of(&a, &Task::new("s", Workload::parse(other).expect("a workload"))), None);
    }

    #[test]
    fn the_nearest_relative_speaks_first_and_nothing_is_tried_twice() {
        let (task, near, far) =
            (matmul(64, 64, 64, false), matmul(64, 64, 64, true), matmul(64, 16, 64, false));
        let (mut desk, mut near, mut far) = (desk(&task), self::desk(&near), self::desk(&far));
        let stand = |d: &mut Desk, i: u128, ns: f64| {
            let name: Name =
                (d.tunables[0].name().into(), d.tunables[0].space().nth(i).to_string());
            d.stand(name.clone(), Nanos(ns));
            name
        };
        let slow = stand(&mut near, 40, 200.0);
        let fast = stand(&mut near, 17, 100.0);
        stand(&mut far, 5, 10.0);
        let found = guesses(&desk, [&near, &far].into_iter(), &[], 8);
        assert_eq!(found[..2].iter().map(name_of).collect::<Vec<_>>(), [fast.clone(), slow]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|c| desk.tunables[0].space().rank(&c.configuration).is_some()));
        desk.tried.insert(fast);
        assert_eq!(guesses(&desk, [&near, &far].into_iter(), &[], 8), found[1..]);
        assert_eq!(guesses(&desk, [&near].into_iter(), &[], 0), []);
    }
}
