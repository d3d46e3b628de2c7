//! The CPU sketches of an operator that is followed by the search for the largest element of its
//! result, as a dynamic quantisation needs (`core/src/operator/range.rs` builds the workload).
//! Output: the operator's own sketches, their names with `,range` at the end, in which each element
//! is compared where it would be stored, so that the result itself is never stored (primitive
//! `ReduceAtStore`).

use super::{Facts, Primitives, Sketch, derive_wanted};
use crate::nest::{Nest, Scope, lower, remapped};
use crate::schedule::{Primitive, apply};
use squall_core::Configuration;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::operator::{is_read_alone, operators};
use squall_core::workload::{Axis, Reducer, Stage};
use squall_core::{TensorKind, Workload};

/// The end of these sketches' names.
const MARK: &str = ",range";

/// The name of the buffer with the largest elements so far, one for each place of the innermost
/// dimension.
const PARTIAL: &str = "largest";

/// The name of the sketch with the same knobs that finds the largest element, or, where `name` is
/// such a one, that does not: what is fast for one is a good guess for the other.
pub fn counterpart(name: &str) -> String {
    name.strip_suffix(MARK).map_or_else(|| named(name), Into::into)
}

fn named(name: &str) -> String {
    format!("{name}{MARK}")
}

/// The sketches, one for each sketch of the operator. There are none for several threads, which
/// would compare at the same place.
pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    if f.target.threads > 1 {
        return Vec::new();
    }
    let Some((made, range)) = apart(f.workload) else { return Vec::new() };
    let wanted = |name: &str| (f.wanted)(&named(name));
    let list = derive_wanted(&Facts { workload: &made, wanted: &wanted, ..*f });
    list.into_iter().filter_map(|s| ranged(s, &range)).collect()
}

/// A sketch of the operator with the range behind it.
fn ranged(s: Sketch, range: &Workload) -> Option<Sketch> {
    let (base, result) = followed(&s.base, range)?;
    let last = Primitive::ReduceAtStore { buffer: result, partial: PARTIAL.into() };
    // A sketch that accumulates in the result itself, or copies it once more, has no place where
    // final elements are stored; the primitive says so of any configuration.
    let mut all = (s.primitives)(&s.space.nth(0));
    all.push(last.clone());
    apply(&mut base.clone(), &all).ok()?;
    let of_operator = s.primitives;
    let primitives: Primitives = Box::new(move |c: &Configuration| {
        let mut list = of_operator(c);
        list.push(last.clone());
        list
    });
    Some(Sketch { name: named(&s.name), base, primitives, ..s })
}

/// The operator and its range, each as a workload: the latter reads the former's result as its
/// first input.
fn apart(w: &Workload) -> Option<(Workload, Workload)> {
    let inputs = w.inputs.len();
    let at = w.stages.iter().rposition(|s| s.reduction.is_some())?;
    let stage = &w.stages[at];
    let Expr::Load { source, .. } = &stage.body else { return None };
    let is_max = stage.reduction.as_ref().is_some_and(|r| r.op == Reducer::Max);
    let result = at.checked_sub(1)?;
    let whole = w.stages[at..].iter().all(|s| s.axes.iter().all(|a| a.extent == 1));
    let sums = w.stages[..at].iter().any(|s| s.reduction.is_some());
    let is_made = *source == w.stage_source(result) && is_read_alone(w, result);
    if !is_max || !whole || !sums || !is_made || !w.rooms.is_empty() {
        return None;
    }
    // What is read behind the result is read there alone, and comes last among the inputs.
    let reads = |stages: &[Stage], s: Source| {
        stages.iter().any(|t| t.body.loads().iter().any(|l| l.0 == s))
    };
    let behind: Vec<usize> =
        (0..inputs).filter(|&i| reads(&w.stages[at..], Source(i as u32))).collect();
    let first = inputs - behind.len();
    let are_last = behind.iter().enumerate().all(|(i, &b)| {
        let own = !reads(&w.stages[..at], Source(b as u32));
        own && b == first + i && w.inputs[b].kind == TensorKind::Data
    });
    if !are_last {
        return None;
    }
    let [made, range] = operators(w, result);
    let [made, range] = [made, range].map(|part| Workload { kind: w.kind.clone(), ..part });
    let is_whole = made.inputs.len() == first;
    (is_whole && made.check().is_ok() && range.check().is_ok()).then_some((made, range))
}

/// The range of a tensor of this shape, in whose dimensions a sketch has brought the result.
fn over(range: &Workload, shape: &[i64]) -> Workload {
    let mut made = range.clone();
    made.inputs[0].shape = shape.to_vec();
    let first = &mut made.stages[0];
    let ones = first.axes.len();
    let index = (0..shape.len()).map(|d| Affine::var(Var((ones + d) as u32))).collect();
    first.body = Expr::load(Source(0), index);
    if let Some(r) = &mut first.reduction {
        let axes = shape.iter().enumerate().map(|(d, &extent)| Axis::new(format!("d{d}"), extent));
        r.axes = axes.collect();
    }
    made
}

/// A nest with a range of its result behind it: one nest, in which the result is scratch memory;
/// and the result's name.
fn followed(n: &Nest, range: &Workload) -> Option<(Nest, String)> {
    let mut made = n.clone();
    let result = made.buffers.iter().position(|b| b.scope == Scope::Output)?;
    let name = made.buffers[result].name.clone();
    let range = over(range, &made.buffers[result].shape);
    range.check().ok()?;
    let tail = lower(&range);
    made.buffers[result].scope = Scope::Workspace;
    let mut data = made.buffers.iter().filter(|b| matches!(b.scope, Scope::Data(_))).count();
    let mut sources = vec![Source(result as u32)];
    for b in &tail.buffers[1..] {
        let mut b = b.clone();
        if let Scope::Data(i) = &mut b.scope {
            *i = data;
            data += 1;
        }
        sources.push(made.new_buffer(b));
    }
    let vars: Vec<Var> = tail.vars.iter().map(|v| made.new_var(v)).collect();
    let body = remapped(&tail.body, &sources[..], &vars);
    made.body.extend(body);
    Some((made, name))
}
