//! The text of an assignment: steps in order of execution, and the layouts of values that do not
//! lie as in the model. A kernel is named by the rule that found it and the nodes that it covers.
//!
//! ```text
//! assignment "net"
//! layout "y" nhwc
//! kernel anchored "conv" "relu"
//! node "reshape"
//! ```

use super::{Assignment, Choice, Step};
use crate::candidates::Candidates;
use crate::feed::Names;
use crate::layout::Layout;
use squall_core::graph::words::{Words, at_end, lines, quote};
use squall_core::text::TextError;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.model();
        writeln!(f, "assignment {}", quote(&m.name))?;
        for (&v, layout) in &self.choice().layouts {
            writeln!(f, "layout {} {}", quote(&m.values[v].name), layout.name())?;
        }
        for step in &self.choice().steps {
            match *step {
                Step::Kernel(i) => {
                    let c = &self.candidates().list[i];
                    let nodes: Vec<String> =
                        c.nodes.iter().map(|&n| quote(&m.nodes[n].name)).collect();
                    writeln!(f, "kernel {} {}", c.rule, nodes.join(" "))?;
                }
                Step::Node(n) => writeln!(f, "node {}", quote(&m.nodes[n].name))?,
            }
        }
        Ok(())
    }
}

/// Candidates by their rules and nodes.
type Known<'a> = HashMap<(&'a str, Vec<usize>), usize>;

impl Assignment {
    /// Reads the text of an assignment of these candidates, and checks that it is a legal cover.
    pub fn parse(text: &str, candidates: &Arc<Candidates>) -> Result<Assignment, TextError> {
        let names = Names::new(&candidates.model);
        let key = |c: &'_ crate::candidate::FusionCandidate| {
            let mut nodes = c.nodes.clone();
            nodes.sort_unstable();
            nodes
        };
        let list = candidates.list.iter().enumerate().rev();
        let known: Known<'_> = list.map(|(i, c)| ((c.rule.as_str(), key(c)), i)).collect();
        let (mut choice, mut begun) = (Choice::default(), false);
        for mut w in lines(text) {
            if begun {
                step(&mut w, &names, &known, &mut choice)?;
            } else {
                w.expect("assignment")?;
                let start = w.clone();
                if w.quoted()? != candidates.model.name {
                    let model = &candidates.model.name;
                    return start.error(format!("this is of another model than `{model}`"));
                }
                begun = true;
            }
            w.end()?;
        }
        if !begun {
            return at_end(text, "expected `assignment`");
        }
        match Assignment::new(candidates.clone(), choice) {
            Ok(made) => Ok(made),
            Err(e) => at_end(text, e),
        }
    }
}

fn step(
    w: &mut Words<'_>,
    names: &Names<'_>,
    known: &Known<'_>,
    choice: &mut Choice,
) -> Result<(), TextError> {
    let start = w.clone();
    match w.bare()? {
        "layout" => {
            let v = names.value(w)?;
            let at = w.clone();
            let Some(layout) = Layout::from_name(w.bare()?) else {
                return at.error("this layout is not known");
            };
            if choice.layouts.insert(v, layout).is_some() {
                return start.error("this value has its layout already");
            }
        }
        "node" => choice.steps.push(Step::Node(names.node(w)?)),
        "kernel" => {
            let rule = w.bare()?;
            let mut nodes = Vec::new();
            while !w.is_done() {
                nodes.push(names.node(w)?);
            }
            nodes.sort_unstable();
            match known.get(&(rule, nodes)) {
                Some(&i) => choice.steps.push(Step::Kernel(i)),
                None => return start.error("no candidate of this rule covers just these nodes"),
            }
        }
        other => return start.error(format!("`{other}` is nothing that an assignment has")),
    }
    Ok(())
}
