//! The counts of a campaign of graphs so far: graphs that ran, were compared, differed or were
//! refused, by operator. They are kept in a file, so that the same command goes on where it ended,
//! and printed at the end.

use super::case::{Case, Refused};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// The counts of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Graphs that were run.
    pub graphs: u64,
    /// Graphs that onnxruntime, or onnx's evaluator, answered.
    pub peer: u64,
    /// Graphs that constant folding answered in part.
    pub folded: u64,
    /// Graphs that were compared with their literal form.
    pub literal: u64,
    /// The differences, in words.
    pub bad: Vec<String>,
    /// Operators that the reader refused.
    pub refused: Refused,
    /// The messages with which Squall refused graphs, each with how often and one of the graphs.
    said: BTreeMap<String, (u64, u64)>,
    /// Why the peer gave no answer, with how often.
    unanswered: BTreeMap<String, u64>,
    /// The number of times that each operator was run.
    operators: BTreeMap<String, u64>,
    /// Batches that are done.
    done: BTreeSet<u64>,
}

impl Tally {
    /// The tally that was written before; an empty one where there is none.
    pub fn read(folder: &Path) -> Tally {
        let mut t = Tally::default();
        let text = std::fs::read_to_string(folder.join("tally")).unwrap_or_default();
        for line in text.lines() {
            let Some((word, rest)) = line.split_once(' ') else { continue };
            let number = |s: &str| s.parse::<u64>().unwrap_or(0);
            let pair = rest.split_once(' ').map(|(n, s)| (number(n), s.to_string()));
            match (word, pair) {
                ("graphs", _) => t.graphs = number(rest),
                ("peer", _) => t.peer = number(rest),
                ("folded", _) => t.folded = number(rest),
                ("literal", _) => t.literal = number(rest),
                ("bad", _) => t.bad.push(rest.into()),
                ("done", _) => t.done.extend(rest.split(' ').filter_map(|n| n.parse::<u64>().ok())),
                ("said", Some((n, s))) => {
                    let Some((first, s)) = s.split_once(' ') else { continue };
                    t.said.insert(s.into(), (n, number(first)));
                }
                ("unanswered", Some((n, s))) => _ = t.unanswered.insert(s, n),
                ("operator", Some((n, s))) => _ = t.operators.insert(s, n),
                _ => {}
            }
        }
        t
    }

    /// Writes it for the next run.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let done: Vec<String> = self.done.iter().map(u64::to_string).collect();
        let mut text = format!(
            "graphs {}\npeer {}\nfolded {}\nliteral {}\ndone {}\n",
            self.graphs,
            self.peer,
            self.folded,
            self.literal,
            done.join(" ")
        );
        self.bad.iter().for_each(|b| text += &format!("bad {}\n", b.replace('\n', " ")));
        self.said.iter().for_each(|(s, (n, i))| text += &format!("said {n} {i} {s}\n"));
        let lists = [("unanswered", &self.unanswered), ("operator", &self.operators)];
        for (word, list) in lists {
            list.iter().for_each(|(s, n)| text += &format!("{word} {n} {s}\n"));
        }
        std::fs::write(folder.join("tally"), text).map_err(|e| e.to_string())
    }

    /// Whether a batch is done.
    pub fn has(&self, batch: u64) -> bool {
        self.done.contains(&batch)
    }

    /// How many batches are done.
    pub fn batches(&self) -> u64 {
        self.done.len() as u64
    }

    /// Marks a batch.
    pub fn finish(&mut self, batch: u64) {
        self.done.insert(batch);
    }

    /// How many graphs differ or end badly.
    pub fn bad(&self) -> usize {
        self.bad.len()
    }

    /// Counts an operator that was run.
    pub fn count(&mut self, op: &str) {
        *self.operators.entry(op.into()).or_default() += 1;
    }

    /// Counts a case that Squall does not run, by the reason without the names in it.
    pub fn refuse(&mut self, number: u64, case: &Case, said: &str) {
        let line = said.lines().find(|l| l.contains("error")).unwrap_or(said);
        let at = |n: &&squall_frontend::onnx::proto::NodeProto| line.contains(&n.name);
        let op = case.nodes.iter().find(at).map_or("", |n| n.op_type.as_str());
        let reason = line.rsplit('`').next().unwrap_or(line).trim_matches([':', ' ']);
        let reason: String = format!("{op}: {reason}").chars().take(140).collect();
        self.said.entry(reason).or_insert((0, number)).0 += 1;
    }

    /// Counts a case for which the peer has no answer.
    pub fn silent(&mut self, why: &str) {
        let first: String = why.lines().next().unwrap_or("").chars().take(110).collect();
        let digits = |c: char| !c.is_ascii_digit();
        *self.unanswered.entry(first.chars().filter(|c| digits(*c)).collect()).or_default() += 1;
    }

    /// Adds what another found bad, once: its batch may be tried again.
    pub fn keep(&mut self, o: &Tally) {
        let number = |b: &str| b.split(':').next().unwrap_or("").to_string();
        for b in &o.bad {
            if !self.bad.iter().any(|known| number(known) == number(b)) {
                self.bad.push(b.clone());
            }
        }
    }

    /// Adds what another saw.
    pub fn add(&mut self, o: &Tally) {
        self.graphs += o.graphs;
        self.peer += o.peer;
        self.folded += o.folded;
        self.literal += o.literal;
        self.keep(o);
        self.done.extend(&o.done);
        for (op, (n, why)) in &o.refused {
            self.refused.entry(op.clone()).or_insert((0, why.clone())).0 += n;
        }
        let of = |to: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>| {
            from.iter().for_each(|(s, n)| *to.entry(s.clone()).or_default() += n);
        };
        for (s, (n, i)) in &o.said {
            self.said.entry(s.clone()).or_insert((0, *i)).0 += n;
        }
        of(&mut self.unanswered, &o.unanswered);
        of(&mut self.operators, &o.operators);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.operators.iter().min_by_key(|o| o.1);
        writeln!(
            f,
            "{} graphs of {} operators, each at least {} times; compared with onnxruntime {}, with \
             constant folding {}, with their literal form {}; {} differ",
            self.graphs,
            self.operators.len(),
            least.map_or(0, |o| *o.1),
            self.peer,
            self.folded,
            self.literal,
            self.bad.len()
        )?;
        for (op, (n, why)) in &self.refused {
            let why: String = why.lines().next().unwrap_or("").chars().take(120).collect();
            writeln!(f, "  not made: {n} x {op}: {why}")?;
        }
        let mut said: Vec<_> = self.said.iter().collect();
        said.sort_by_key(|(_, n)| std::cmp::Reverse(n.0));
        said.iter()
            .take(60)
            .try_for_each(|(s, (n, i))| writeln!(f, "  not run: {n} x {s} (as graph {i})"))?;
        let mut silent: Vec<_> = self.unanswered.iter().collect();
        silent.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        silent.iter().take(40).try_for_each(|(s, n)| writeln!(f, "  unanswered: {n} x {s}"))?;
        self.bad.iter().try_for_each(|b| writeln!(f, "  {b}"))
    }
}
