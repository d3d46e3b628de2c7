//! Prints and parses the text of an assignment: the layouts of values that do not lie as in the
//! model, the sites of values that lie in the memory of others, and the steps in order of
//! execution. A kernel is named by the rule that found it and the nodes that it covers.
//!
//! ```text
//! assignment "net"
//! layout "y" nhwc
//! site "x" in "y" at 64 1 128 28*3584 28*128
//! kernel anchored "conv" "relu"
//! node "reshape"
//! ```
//!
//! A site is the offset of the first element after `at`, then `extent*stride` for each dimension
//! (`1` for an extent of 1). Users write covers by hand in this text (`--assignment FILE`).

use super::{Assignment, Choice, Step};
use crate::candidates::Candidates;
use crate::feed::Names;
use crate::layout::Layout;
use crate::rules::named;
use crate::site::{Factor, Site};
use squall_core::graph::MOST_ELEMENTS;
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
        for (&v, site) in &self.choice().sites {
            let (name, host) = (quote(&m.values[v].name), quote(&m.values[site.host].name));
            write!(f, "site {name} in {host} at {}", site.offset)?;
            for dim in &site.dims {
                let list: Vec<String> =
                    dim.iter().map(|f| format!("{}*{}", f.extent, f.stride)).collect();
                let list = if list.is_empty() { "1".into() } else { list.join("+") };
                write!(f, " {list}")?;
            }
            writeln!(f)?;
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

/// A host, an offset, and of each dimension its factors.
fn site(w: &mut Words<'_>, names: &Names<'_>) -> Result<Site, TextError> {
    w.expect("in")?;
    let host = names.value(w)?;
    w.expect("at")?;
    let offset = w.value("how many elements lie before")?;
    let mut dims = Vec::new();
    while !w.is_done() {
        let at = w.clone();
        let word = w.bare()?;
        let factor = |text: &str| {
            let (extent, stride) = text.split_once('*')?;
            let (extent, stride): (i64, i64) = (extent.parse().ok()?, stride.parse().ok()?);
            let reach = extent.checked_mul(stride)?;
            (1 < extent && 0 < stride && reach <= MOST_ELEMENTS)
                .then_some(Factor { extent, stride })
        };
        let dim = match word {
            "1" => Some(Vec::new()),
            _ => word.split('+').map(factor).collect(),
        };
        match dim {
            Some(dim) => dims.push(dim),
            None => return at.error("expected factors such as `28*3584+2*64`, or 1"),
        }
    }
    let all = dims.iter().flatten().try_fold(1i64, |n, f| n.checked_mul(f.extent));
    if all.is_none_or(|n| n > MOST_ELEMENTS) || !(0..=MOST_ELEMENTS).contains(&offset) {
        return w.error("it is larger than any memory");
    }
    Ok(Site { host, offset, dims })
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
        "site" => {
            let v = names.value(w)?;
            if choice.sites.insert(v, site(w, names)?).is_some() {
                return start.error("this value has its site already");
            }
        }
        "node" => choice.steps.push(Step::Node(names.node(w)?)),
        "kernel" => {
            let rule = named(w.bare()?);
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
