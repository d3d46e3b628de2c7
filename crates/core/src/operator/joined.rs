//! Joins two workloads of which the second reads the first's result: the second's inputs (but for
//! the first) and stages are added behind those of the first, under names that are still free.
//! `chain.rs` and `range.rs` build their workloads by it.

use super::{checked, fresh};
use crate::TensorKind;
use crate::expr::Source;
use crate::workload::{Input, Stage, Workload};
use std::collections::HashSet;

/// An operator behind another, whose whole result it reads as its first input.
pub(super) fn behind(mut first: Workload, second: &Workload) -> Result<Workload, String> {
    let made = first.output().clone();
    let fits = second.inputs.first().is_some_and(|i| {
        (&i.shape, i.dtype, i.kind) == (&made.shape(), made.dtype, TensorKind::Data)
    });
    let is_plain = |w: &Workload| w.foreign.is_none() && w.rooms.is_empty();
    if !fits || !is_plain(&first) || !is_plain(second) {
        return Err("the second operator does not read what the first makes".into());
    }
    let names = first.inputs.iter().map(|i| &i.name).chain(first.stages.iter().map(|s| &s.name));
    let mut taken: HashSet<String> = names.cloned().collect();
    taken.extend(second.stages.iter().map(|s| s.name.clone()));
    let last = first.stages.len() - 1;
    first.stages[last].name = fresh("E", &mut taken);
    let mut both = Joined::of(first, second);
    for s in &second.stages {
        let theirs = |x: Source| match x {
            Source(0) => both.source(last),
            x => both.theirs(x, last + 1),
        };
        let body = s.body.map_sources(theirs);
        both.push(&Stage { body, ..s.clone() });
    }
    both.workload()
}

/// A workload to which another's inputs, but for the first, and stages are added.
pub(super) struct Joined {
    made: Workload,
    pub stages: Vec<Stage>,
    /// Inputs of the first, and of both.
    ours: usize,
    total: usize,
    theirs: usize,
    taken: HashSet<String>,
}

impl Joined {
    pub fn of(mut made: Workload, other: &Workload) -> Joined {
        let (ours, theirs) = (made.inputs.len(), other.inputs.len());
        let mut taken: HashSet<String> = made.inputs.iter().map(|i| i.name.clone()).collect();
        taken.extend(made.stages.iter().map(|s| s.name.clone()));
        for i in &other.inputs[1..] {
            let name = fresh(&i.name, &mut taken);
            made.inputs.push(Input { name, ..i.clone() });
        }
        let total = made.inputs.len();
        let mut stages = std::mem::take(&mut made.stages);
        let by = (total - ours) as u32;
        let moved = |s: Source| if s.0 as usize >= ours { Source(s.0 + by) } else { s };
        stages.iter_mut().for_each(|s| s.body = s.body.map_sources(moved));
        Joined { made, stages, ours, total, theirs, taken }
    }

    pub fn source(&self, stage: usize) -> Source {
        Source((self.total + stage) as u32)
    }

    /// A source of the other workload, whose first stage is the one at `first` here.
    pub fn theirs(&self, s: Source, first: usize) -> Source {
        match (s.0 as usize).checked_sub(self.theirs) {
            Some(stage) => self.source(first + stage),
            None => Source((self.ours + s.0 as usize - 1) as u32),
        }
    }

    /// A name for an axis of the other's stage.
    pub fn axis(&self, name: &str, stage: &Stage) -> String {
        let is_taken = |n: &str| stage.axes.iter().any(|a| a.name == n);
        if is_taken(name) { format!("{name}2") } else { name.into() }
    }

    pub fn push(&mut self, s: &Stage) {
        let name = fresh(&s.name, &mut self.taken);
        self.stages.push(Stage { name, ..s.clone() });
    }

    pub fn workload(self) -> Result<Workload, String> {
        checked(Workload { stages: self.stages, ..self.made })
    }
}

/// Operators and numbers for tests of several operators as one.
#[cfg(test)]
pub(super) mod examples {
    use crate::operator::{Conv, Epilogue};
    use crate::workload::{Input, Workload};

    /// A convolution of `c` to `k` channels of two images of 5 x 6, its border half of its window.
    pub fn conv(c: i64, k: i64, r: i64, groups: i64, stride: i64) -> Workload {
        let (stride, dilation, pads) = ([stride; 2], [1; 2], [r / 2; 4]);
        let c = Conv { n: 2, c, h: 5, w: 6, k, r, s: r, stride, pads, dilation, groups };
        let shape = c.output();
        Epilogue::none().attach(c.workload().unwrap(), &shape).unwrap()
    }

    /// Numbers for the inputs of a workload, from one of them on.
    pub fn numbers(w: &Workload, from: usize) -> Vec<Vec<f64>> {
        let of = |(k, i): (usize, &Input)| {
            let count: i64 = i.shape.iter().product();
            (0..count).map(|j| (((j + k as i64) * 7 % 23) - 11) as f64 / 7.0).collect()
        };
        w.inputs.iter().enumerate().skip(from).map(of).collect()
    }
}
