//! How alike two tasks are, as a distance between the loops of their heaviest stages, counted in
//! factors of two of the extents. Example: a matrix product of 64x64x64 is 2.0 away from one of
//! 128x64x64; a product and a softmax have no distance. Transfer (`squall/src/predict/transfer.rs`)
//! tries the configurations of the nearest tuned tasks first, and the predictors of tasks name the
//! nearest task that they learned from by the same measure.

use crate::forecast::Problem;
use crate::workload::{Stage, Workload};
use serde::{Deserialize, Serialize};

/// The distance that an epilogue with another number of inputs adds.
const OTHER_EPILOGUE: f64 = 0.25;

/// The part of a task that is compared: the loops of its heaviest stage, with their extents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskShape {
    /// The loops' names and how they are reduced: `i j k sum`.
    pub loops: String,
    /// The loops' extents, in their order.
    extents: Vec<i64>,
    /// Elements of the first input.
    input: i64,
    /// The number of inputs.
    inputs: i64,
}

impl TaskShape {
    /// The shape of a workload; nothing for a user kernel, of which no loops are known.
    pub fn of(w: &Workload) -> Option<TaskShape> {
        let stage = heaviest_stage(w)?;
        let input = w.inputs.first().map_or(1, |i| i.shape.iter().product());
        Some(TaskShape {
            loops: loops(stage),
            extents: stage.all_axes().map(|a| a.extent).collect(),
            input,
            inputs: w.inputs.len() as i64,
        })
    }

    /// The shape of a task as predictors describe it: its word `loops`, and as numbers the extents
    /// under the loops' names, `input` and `inputs`.
    pub fn of_problem(p: &Problem) -> Option<TaskShape> {
        let loops = &p.words.iter().find(|(name, _)| name == "loops")?.1;
        let names = loops.rsplit_once(' ').map_or("", |(names, _)| names);
        let number = |name: &str| p.number(name).unwrap_or(1);
        Some(TaskShape {
            loops: loops.clone(),
            extents: names.split_whitespace().map(number).collect(),
            input: number("input"),
            inputs: number("inputs"),
        })
    }

    /// How unlike two tasks are: the factors of two between the extents of their loops and between
    /// the sizes of their first inputs. Nothing where the loops differ.
    pub fn distance(&self, other: &TaskShape) -> Option<f64> {
        if self.loops != other.loops || self.extents.len() != other.extents.len() {
            return None;
        }
        let ratio = |a: i64, b: i64| (a.max(1) as f64 / b.max(1) as f64).log2().abs();
        let extents = self.extents.iter().zip(&other.extents).map(|(&a, &b)| ratio(a, b));
        let epilogue = if self.inputs == other.inputs { 0.0 } else { OTHER_EPILOGUE };
        Some(extents.sum::<f64>() + ratio(self.input, other.input) + epilogue)
    }
}

/// The stage with the most operations, the last of several; nothing for a user kernel.
pub fn heaviest_stage(w: &Workload) -> Option<&Stage> {
    if w.foreign.is_some() {
        return None;
    }
    w.stages.iter().enumerate().max_by_key(|(i, s)| (s.flop(), *i)).map(|(_, s)| s)
}

/// The names of a stage's loops and how they are reduced.
pub fn loops(stage: &Stage) -> String {
    let names: Vec<&str> = stage.all_axes().map(|a| a.name.as_str()).collect();
    let reducer = stage.reduction.as_ref().map_or("none", |r| r.op.name());
    format!("{} {reducer}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matmul(m: i64, n: i64, k: i64, bias: bool) -> Workload {
        let (input, add) =
            if bias { (format!("weight C: f32[{n}]\n"), " + C[j]") } else { (String::new(), "") };
        let text = format!(
            "workload matmul\ndata A: f32[{m}, {k}]\nweight B: f32[{k}, {n}]\n{input}stage S: \
             f32[i: {m}, j: {n}] = sum(k: {k}) A[i, k] * B[k, j]\n\
             stage Y: f32[i: {m}, j: {n}] = max(S[i, j]{add}, 0)\noutput Y\n"
        );
        Workload::parse(&text).expect("a workload")
    }

    #[test]
    fn distance_counts_factors_of_two_and_none_joins_other_loops() {
        let of = |a: &Workload, b: &Workload| TaskShape::of(a)?.distance(&TaskShape::of(b)?);
        let a = matmul(64, 64, 64, false);
        assert_eq!(of(&a, &a), Some(0.0));
        assert_eq!(of(&a, &matmul(64, 64, 64, true)), Some(0.25));
        assert_eq!(of(&a, &matmul(64, 16, 64, false)), Some(2.0));
        assert_eq!(of(&a, &matmul(128, 64, 64, false)), Some(2.0));
        let other = "workload softmax\ndata X: f32[8, 16]\nstage M: f32[i: 8] = max(j: 16) X[i, \
                     j]\nstage Y: f32[i: 8, j: 16] = exp(X[i, j] - M[i])\noutput Y\n";
        assert_eq!(of(&a, &Workload::parse(other).expect("a workload")), None);
    }
}
