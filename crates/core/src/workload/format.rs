//! Reads and prints the text of a workload (the tensor expression that a kernel computes;
//! `workload.rs` has an example). The text is canonical: equal workloads print equally, since a
//! task's id is a hash of it. Indices and expressions are read by `core/src/text.rs`.

use super::{Axis, Foreign, Input, Reducer, Reduction, Stage, TensorKind, Workload, WorkloadError};
use crate::expr::{Expr, Names, PrintExpr, Source, Var};
use crate::text::{Cursor, Scope, TextError};
use std::fmt;

impl Workload {
    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Workload, WorkloadError> {
        let mut c = Cursor::new(text)?;
        c.expect_word("workload")?;
        let mut w = Workload { kind: c.name()?, ..Workload::default() };
        if c.accept_word("foreign") {
            let Some(digest) = c.accept_quoted() else {
                return c.error("expected a digest in quotes").map_err(Into::into);
            };
            c.expect_word("tolerance")?;
            let tolerance = c.number()?;
            c.expect_word("flop")?;
            w.foreign =
                Some(Foreign { digest, tolerance, flop: c.number()? as u64, ranges: Vec::new() });
        }
        let mut sources = std::collections::HashMap::new();
        loop {
            let next = Source(sources.len() as u32);
            let kind = match c.peek_name() {
                Some("data") => TensorKind::Data,
                Some("weight") => TensorKind::Weight,
                Some("stage") => {
                    c.name()?;
                    let s = parse_stage(&mut c, &sources)?;
                    sources.insert(s.name.clone(), next);
                    w.stages.push(s);
                    continue;
                }
                Some("output") => break,
                _ => {
                    return c
                        .error("expected `data`, `weight`, `stage` or `output`")
                        .map_err(Into::into);
                }
            };
            if !w.stages.is_empty() {
                return c.error("inputs stand before stages").map_err(Into::into);
            }
            c.name()?;
            let name = c.name()?;
            c.expect(":")?;
            let dtype = c.dtype()?;
            let shape = parse_extents(&mut c)?;
            if w.foreign.is_none() && c.accept_word("of") {
                w.rooms.insert(name.clone(), parse_extents(&mut c)?);
            }
            let mut range = None;
            if w.foreign.is_some() && c.accept_word("in") {
                c.expect("[")?;
                let low = c.number()?;
                c.expect(",")?;
                range = Some((low, c.number()?));
                c.expect("]")?;
            }
            if let Some(f) = &mut w.foreign {
                f.ranges.push(range);
            }
            sources.insert(name.clone(), next);
            w.inputs.push(Input { name, dtype, shape, kind });
        }
        c.expect_word("output")?;
        let out = c.name()?;
        if w.stages.last().is_none_or(|s| s.name != out) {
            return c.error("the output is the last stage").map_err(Into::into);
        }
        if w.foreign.is_none() && c.accept_word("of") {
            w.rooms.insert(out, parse_extents(&mut c)?);
        }
        if !c.at_end() {
            return c.error("expected the end").map_err(Into::into);
        }
        w.check()?;
        Ok(w)
    }
}

fn parse_extents(c: &mut Cursor) -> Result<Vec<i64>, TextError> {
    let mut list = Vec::new();
    c.expect("[")?;
    while !c.accept("]") {
        if !list.is_empty() {
            c.expect(",")?;
        }
        list.push(c.extent()?);
    }
    Ok(list)
}

fn parse_stage(
    c: &mut Cursor,
    sources: &std::collections::HashMap<String, Source>,
) -> Result<Stage, TextError> {
    let name = c.name()?;
    c.expect(":")?;
    let dtype = c.dtype()?;
    let axes = parse_axes(c, "[", "]")?;
    c.expect("=")?;
    let reduction = match c.peek_name().and_then(|n| Reducer::ALL.iter().find(|(_, m)| *m == n)) {
        // `max(x: 4) ..` reduces, `max(a, b)` is a function: the colon after a name decides.
        Some(&(op, _)) if c.reduction_ahead() => {
            c.name()?;
            Some(Reduction { op, axes: parse_axes(c, "(", ")")? })
        }
        _ => None,
    };
    let mut stage = Stage { name, dtype, axes, reduction, body: Expr::Const(0.0) };
    let vars = stage.all_axes().enumerate().map(|(i, a)| (a.name.clone(), Var(i as u32))).collect();
    stage.body = c.expr(&Scope { vars, sources: sources.clone() })?;
    Ok(stage)
}

fn parse_axes(c: &mut Cursor, open: &str, close: &str) -> Result<Vec<Axis>, TextError> {
    c.expect(open)?;
    let mut axes = Vec::new();
    while !c.accept(close) {
        if !axes.is_empty() {
            c.expect(",")?;
        }
        let name = c.name()?;
        c.expect(":")?;
        axes.push(Axis { name, extent: c.extent()? });
    }
    Ok(axes)
}

struct StageNames<'a>(&'a Workload, &'a Stage);

impl Names for StageNames<'_> {
    fn var(&self, v: Var) -> &str {
        self.1.all_axes().nth(v.0 as usize).map_or("?", |a| &a.name)
    }
    fn source(&self, s: Source) -> &str {
        self.0.source(s)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workload {}", self.kind)?;
        if let Some(n) = &self.foreign {
            writeln!(f, "foreign \"{}\" tolerance {:?} flop {}", n.digest, n.tolerance, n.flop)?;
        }
        for (k, i) in self.inputs.iter().enumerate() {
            let kind = if i.kind == TensorKind::Data { "data" } else { "weight" };
            write!(f, "{kind} {}: {}[{}]", i.name, i.dtype.name(), listed(&i.shape))?;
            if let Some(room) = self.rooms.get(&i.name) {
                write!(f, " of [{}]", listed(room))?;
            }
            if let Some((low, high)) =
                self.foreign.as_ref().and_then(|f| f.ranges.get(k).copied().flatten())
            {
                write!(f, " in [{low:?}, {high:?}]")?;
            }
            writeln!(f)?;
        }
        let axes = |a: &[Axis]| {
            a.iter().map(|a| format!("{}: {}", a.name, a.extent)).collect::<Vec<_>>().join(", ")
        };
        for s in &self.stages {
            write!(f, "stage {}: {}[{}] = ", s.name, s.dtype.name(), axes(&s.axes))?;
            if let Some(r) = &s.reduction {
                write!(f, "{}({}) ", r.op.name(), axes(&r.axes))?;
            }
            writeln!(f, "{}", PrintExpr(&s.body, &StageNames(self, s)))?;
        }
        write!(f, "output {}", self.output().name)?;
        if let Some(room) = self.rooms.get(&self.output().name) {
            write!(f, " of [{}]", listed(room))?;
        }
        writeln!(f)
    }
}

fn listed(extents: &[i64]) -> String {
    extents.iter().map(i64::to_string).collect::<Vec<String>>().join(", ")
}
