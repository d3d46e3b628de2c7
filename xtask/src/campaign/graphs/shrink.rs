//! Makes a failing random graph smaller as long as it fails: nodes are cut, values become
//! constants, extents shrink. Input: a case and a function that says whether a case fails; output:
//! the smallest failing case that was found, which the campaign keeps as a model.

use super::case::Case;
use super::compare::Arrays;
use squall_frontend::npy::Array;
use squall_frontend::onnx::proto::TensorProto;
use std::collections::BTreeSet;

/// Runs of the program that a case may cost.
const MOST_RUNS: usize = 80;

/// The smallest case found that still fails; `fails` says in words how, and `values` knows a case's
/// values by a reference.
pub fn shrunk(
    case: &Case,
    fails: &mut dyn FnMut(&Case) -> Option<String>,
    values: &mut dyn FnMut(&Case) -> Option<Arrays>,
) -> Case {
    let mut best = case.clone();
    let mut runs = 0;
    loop {
        let known = values(&best).unwrap_or_default();
        let smaller = smaller(&best, &known).into_iter().find(|c| {
            runs += 1;
            runs <= MOST_RUNS && fails(c).is_some()
        });
        match smaller {
            Some(c) => best = c,
            None => return best,
        }
    }
}

/// All cases that are one step smaller, the smallest first.
fn smaller(case: &Case, known: &Arrays) -> Vec<Case> {
    let mut all = Vec::new();
    if case.outputs.len() > 1 {
        for o in &case.outputs {
            let mut c = case.clone();
            c.outputs = vec![o.clone()];
            all.push(c.pruned());
        }
    }
    // What a node makes is given instead.
    for node in case.nodes.iter().rev().skip(1) {
        let mut c = case.clone();
        let made: Vec<&String> = node.output.iter().filter(|o| known.contains_key(*o)).collect();
        if made.len() < node.output.len() || node.output.iter().any(|o| c.outputs.contains(o)) {
            continue;
        }
        c.nodes.retain(|n| n.name != node.name);
        c.inputs.extend(made.into_iter().map(|o| (o.clone(), known[o].clone())));
        all.push(c.pruned());
    }
    // What a node makes is asked for, and no more what is made of it.
    for node in case.nodes.iter().rev().skip(1) {
        let mut c = case.clone();
        c.outputs = node.output.clone();
        all.push(c.pruned());
    }
    all.extend(narrower(case));
    all
}

/// The same with one extent smaller wherever it stands.
fn narrower(case: &Case) -> Vec<Case> {
    let of_inputs = case.inputs.iter().flat_map(|i| i.1.shape.clone());
    let extents: BTreeSet<i64> = of_inputs.filter(|e| *e > 1).collect();
    let mut all = Vec::new();
    for &e in extents.iter().rev() {
        for to in [1, 2, e / 2, e - 1] {
            if to >= e || to < 1 {
                continue;
            }
            let mut c = case.clone();
            c.inputs.iter_mut().for_each(|i| i.1 = cut(&i.1, e, to));
            for k in c.constants.iter_mut().filter(|k| k.data_type == 1) {
                *k = cut_constant(k, e, to);
            }
            all.push(c);
        }
    }
    all
}

/// The first `to` of every axis of extent `e`.
fn cut(a: &Array, e: i64, to: i64) -> Array {
    let size = a.dtype.bytes() as usize;
    let (shape, bytes) = cut_bytes(&a.shape, &a.bytes, size, e, to);
    Array { dtype: a.dtype, shape, bytes }
}

fn cut_constant(t: &TensorProto, e: i64, to: i64) -> TensorProto {
    let (dims, raw_data) = cut_bytes(&t.dims, &t.raw_data, 4, e, to);
    TensorProto { dims, raw_data, ..t.clone() }
}

fn cut_bytes(shape: &[i64], bytes: &[u8], size: usize, e: i64, to: i64) -> (Vec<i64>, Vec<u8>) {
    let target: Vec<i64> = shape.iter().map(|x| if *x == e { to } else { *x }).collect();
    let count: i64 = target.iter().product();
    let mut kept = Vec::new();
    for n in 0..count {
        let (mut rest, mut from, mut apart) = (n, 0, 1);
        for (t, s) in target.iter().zip(shape).rev() {
            from += rest % t * apart;
            rest /= t;
            apart *= s;
        }
        kept.extend(&bytes[from as usize * size..][..size]);
    }
    (target, kept)
}
