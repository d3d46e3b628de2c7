//! Prints and parses the text of candidates, with the names of the model, which the parser is
//! given:
//!
//! ```text
//! candidates "net"
//! kernel "conv2d_3x8x8_k4_3x3_relu" anchored
//!   nodes "conv" "relu"
//!   reads "x"
//!   reads "w"
//!   gives "y"
//!   layout "y" nhwc
//!   | workload conv2d
//!   | ...
//! refused "reshape" "it only renames dimensions: nothing is computed"
//! ```
//!
//! A kernel is followed by the rule that found it, its nodes, the values that it reads and gives,
//! the further layouts that it can take, and its workload.

use super::Candidates;
use crate::candidate::FusionCandidate;
use crate::feed::{Feed, Names};
use crate::layout::Layout;
use crate::rules::named;
use squall_core::Workload;
use squall_core::graph::Model;
use squall_core::graph::words::{Words, at_end, lines, quote};
use squall_core::text::TextError;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = &self.model;
        writeln!(f, "candidates {}", quote(&m.name))?;
        for c in &self.list {
            writeln!(f, "kernel {} {}", quote(&c.name), c.rule)?;
            let nodes: Vec<String> = c.nodes.iter().map(|&n| quote(&m.nodes[n].name)).collect();
            writeln!(f, "  nodes {}", nodes.join(" "))?;
            for feed in &c.feeds {
                writeln!(f, "  reads {}", feed.text(m))?;
            }
            for &v in &c.outputs {
                writeln!(f, "  gives {}", quote(&m.values[v].name))?;
            }
            for (v, layout) in &c.layouts {
                writeln!(f, "  layout {} {}", quote(&m.values[*v].name), layout.name())?;
            }
            for line in c.workload.to_string().lines() {
                writeln!(f, "  | {line}")?;
            }
        }
        for (&node, reason) in &self.refused {
            writeln!(f, "refused {} {}", quote(&m.nodes[node].name), quote(reason))?;
        }
        Ok(())
    }
}

/// A candidate while it is parsed, with the lines of its workload so far and the number of their
/// first.
struct Open {
    candidate: FusionCandidate,
    workload: String,
    from: usize,
}

impl Candidates {
    /// Parses the text of a model's candidates, and verifies them.
    pub fn parse(text: &str, model: &Arc<Model>) -> Result<Candidates, TextError> {
        let names = Names::new(model);
        let mut all =
            Candidates { model: model.clone(), list: Vec::new(), refused: BTreeMap::new() };
        let mut open: Option<Open> = None;
        let mut begun = false;
        for mut w in lines(text) {
            if !begun {
                begin(&mut w, model)?;
                begun = true;
                continue;
            }
            let start = w.clone();
            match w.bare()? {
                "kernel" => {
                    close(&mut open, &mut all)?;
                    open = Some(new(&mut w)?);
                }
                "refused" => {
                    close(&mut open, &mut all)?;
                    let node = names.node(&mut w)?;
                    all.refused.insert(node, w.quoted()?);
                }
                word => match &mut open {
                    Some(open) => part(word, &mut w, &start, &names, open)?,
                    None => return start.error("expected `kernel` or `refused`"),
                },
            }
            w.end()?;
        }
        close(&mut open, &mut all)?;
        if !begun {
            return at_end(text, "expected `candidates`");
        }
        match all.verify() {
            Ok(()) => Ok(all),
            Err(e) => at_end(text, e),
        }
    }
}

/// The first line, which names the model.
fn begin(w: &mut Words<'_>, model: &Model) -> Result<(), TextError> {
    w.expect("candidates")?;
    let start = w.clone();
    if w.quoted()? != model.name {
        return start.error(format!("these are candidates of another model than `{}`", model.name));
    }
    w.end()
}

fn new(w: &mut Words<'_>) -> Result<Open, TextError> {
    let (name, rule) = (w.quoted()?, named(w.bare()?).to_string());
    let workload = Workload::default();
    let (nodes, feeds, outputs, layouts) = Default::default();
    let candidate = FusionCandidate { rule, name, nodes, feeds, outputs, workload, layouts };
    Ok(Open { candidate, workload: String::new(), from: 0 })
}

/// One line of a candidate.
fn part(
    word: &str,
    w: &mut Words<'_>,
    start: &Words<'_>,
    names: &Names<'_>,
    open: &mut Open,
) -> Result<(), TextError> {
    let c = &mut open.candidate;
    match word {
        "nodes" => {
            while !w.is_done() {
                c.nodes.push(names.node(w)?);
            }
        }
        "reads" => c.feeds.push(Feed::parse(w, names)?),
        "gives" => c.outputs.push(names.value(w)?),
        "layout" => {
            let v = names.value(w)?;
            let at = w.clone();
            match Layout::from_name(w.bare()?) {
                Some(l) => c.layouts.push((v, l)),
                None => return at.error("this layout is not known"),
            }
        }
        "|" => {
            if open.workload.is_empty() {
                open.from = start.number();
            }
            open.workload += w.take_rest();
            open.workload.push('\n');
        }
        _ => return start.error(format!("`{word}` is nothing that a candidate has")),
    }
    Ok(())
}

/// Takes an open candidate into the list.
fn close(open: &mut Option<Open>, all: &mut Candidates) -> Result<(), TextError> {
    let Some(mut o) = open.take() else { return Ok(()) };
    let shifted = |e: TextError| TextError { line: e.line + o.from.saturating_sub(1), ..e };
    let workload = Workload::parse(&o.workload);
    o.candidate.workload = workload.map_err(|e| match e {
        squall_core::workload::WorkloadError::Text(e) => shifted(e),
        e => TextError { line: o.from, column: 1, message: e.to_string() },
    })?;
    all.list.push(o.candidate);
    Ok(())
}
