//! Tries the random graphs of one model: runs them by Squall, compares each with its references,
//! finds the case at fault where a whole model fails, makes failing cases smaller, and keeps them
//! as folders. `graphs/mod.rs` calls it for one batch after another.

use super::bounds::bounds;
use super::case::Case;
use super::compare::{Arrays, difference};
use super::graph::tensor_of;
use super::peer::{Answer, Peer, folded};
use super::shrink::shrunk;
use super::subject::{Outcome, Subject, Way};
use super::tally::Tally;
use prost::Message as _;
use std::path::PathBuf;

/// The program under test, its reference, and the folder of failing cases.
pub struct Trial<'a> {
    /// Squall.
    pub subject: Subject<'a>,
    /// onnxruntime, where it is.
    pub peer: Option<Peer>,
    /// Where what differs is kept.
    pub bad: PathBuf,
    /// The number of times that each operator differed: a known difference is not made smaller
    /// again.
    pub known: std::collections::HashMap<String, usize>,
    /// The number from which graphs are counted.
    pub number: u64,
}

impl Trial<'_> {
    /// Whether there is onnxruntime.
    pub fn has_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// Tries cases as one model; `literally` also compares with their literal form. False where the
    /// campaign ended before all of them were tried.
    pub fn try_all(
        &mut self,
        cases: Vec<Case>,
        way: &Way,
        literally: bool,
        found: &mut Tally,
    ) -> bool {
        let (cases, got) = self.accepted(cases, way, found);
        found.graphs += cases.len() as u64;
        let peer = self.peers(&cases);
        let literal = literally.then(|| self.literal(&cases, way)).flatten();
        for (case, answer) in cases.iter().zip(&peer) {
            case.nodes.iter().for_each(|n| found.count(&n.op_type));
            let folded = folded(case);
            found.folded += u64::from(case.outputs.iter().any(|o| folded.contains_key(o)));
            let mut wants = vec![("constant folding", &folded)];
            if let Some(a) = answer {
                found.peer += u64::from(a.silence.is_none());
                a.silence.iter().for_each(|e| found.silent(e));
                wants.push(("onnxruntime", &a.values));
            }
            if let Some(a) = &literal {
                found.literal += 1;
                wants.push(("its literal form", a));
            }
            let none = Arrays::new();
            let sizes = answer.as_ref().map_or(&none, |a| &a.sizes);
            let different = wants.iter().find_map(|(who, want)| {
                let bounds = bounds(case, want, sizes);
                difference(case, &got, want, &bounds).map(|d| format!("against {who}: {d}"))
            });
            if let Some(d) = different {
                self.differs(case, way, &d, found);
            }
        }
        !self.subject.is_over()
    }

    /// Runs cases until Squall takes what is left of them; those and their results.
    fn accepted(
        &mut self,
        mut cases: Vec<Case>,
        way: &Way,
        found: &mut Tally,
    ) -> (Vec<Case>, Arrays) {
        while !cases.is_empty() {
            match self.subject.run(&cases, way) {
                Outcome::Gave(got) => return (cases, got),
                Outcome::Refused(said) => {
                    let Some(i) = named(&cases, &said) else {
                        return self.split(cases, way, &said, found);
                    };
                    let case = cases.remove(i);
                    found.refuse(case.seed - self.number, &case, &said);
                }
                Outcome::Died(said) => return self.split(cases, way, &said, found),
                Outcome::Over => return (Vec::new(), Arrays::new()),
            }
        }
        (cases, Arrays::new())
    }

    /// Runs halves of what failed as a whole, down to the case that is at fault.
    fn split(
        &mut self,
        mut cases: Vec<Case>,
        way: &Way,
        said: &str,
        found: &mut Tally,
    ) -> (Vec<Case>, Arrays) {
        if let [case] = &cases[..] {
            self.dies(case, way, said, found);
            return (Vec::new(), Arrays::new());
        }
        let second = cases.split_off(cases.len() / 2);
        let (mut kept, mut got) = self.accepted(cases, way, found);
        let (more, results) = self.accepted(second, way, found);
        kept.extend(more);
        got.extend(results);
        (kept, got)
    }

    fn peers(&mut self, cases: &[Case]) -> Vec<Option<Answer>> {
        match &mut self.peer {
            Some(p) => p.answer(cases, &self.subject.folder).into_iter().map(Some).collect(),
            None => cases.iter().map(|_| None).collect(),
        }
    }

    /// The values of cases that are run unfused and hardly optimised on one thread.
    fn literal(&mut self, cases: &[Case], way: &Way) -> Option<Arrays> {
        let way = Way { threads: 1, is_literal: true, ..way.clone() };
        match self.subject.run(cases, &way) {
            Outcome::Gave(got) => Some(got),
            _ => None,
        }
    }

    /// How a case alone differs from what it is compared with.
    fn alone(&mut self, case: &Case, way: &Way) -> Option<String> {
        let cases = [case.clone()];
        let answer = self.want(case, way);
        match self.subject.run(&cases, way) {
            Outcome::Gave(got) => [&answer.values, &folded(case)]
                .into_iter()
                .find_map(|want| difference(case, &got, want, &bounds(case, want, &answer.sizes))),
            _ => None,
        }
    }

    /// What a case shall give: by onnxruntime, by folding where that has no answer, else by its
    /// literal form.
    fn want(&mut self, case: &Case, way: &Way) -> Answer {
        let cases = [case.clone()];
        let mut answer = self.peers(&cases).pop().flatten().unwrap_or_default();
        for (name, array) in folded(case) {
            answer.values.entry(name).or_insert(array);
        }
        if !case.outputs.iter().any(|o| answer.values.contains_key(o)) {
            answer.values = self.literal(&cases, way).unwrap_or_default();
        }
        answer
    }

    fn differs(&mut self, case: &Case, way: &Way, how: &str, found: &mut Tally) {
        // `.. of OPERATOR: element ..` is how differences begin.
        let op = how.split(" of ").nth(1).unwrap_or(how).split(':').next().unwrap_or("");
        let seen = self.known.entry(op.into()).or_default();
        *seen += 1;
        let is_known = *seen > 2;
        if self.alone(case, way).is_some() {
            if is_known {
                return self.keep(case, case, way, how, found);
            }
            let this = std::cell::RefCell::new(self);
            let small = shrunk(case, &mut |c| this.borrow_mut().alone(c, way), &mut |c| {
                Some(this.borrow_mut().want(c, way).values)
            });
            return this.into_inner().keep(case, &small, way, how, found);
        }
        let how = format!("in its batch only, {how}");
        self.keep(case, case, way, &how, found);
    }

    fn dies(&mut self, case: &Case, way: &Way, said: &str, found: &mut Tally) {
        let this = std::cell::RefCell::new(self);
        let small = shrunk(
            case,
            &mut |c| match this.borrow_mut().subject.run(std::slice::from_ref(c), way) {
                Outcome::Died(said) => Some(said),
                _ => None,
            },
            &mut |c| Some(this.borrow_mut().want(c, way).values),
        );
        let said: String =
            said.lines().filter(|l| !l.is_empty()).take(4).collect::<Vec<_>>().join(" ");
        this.into_inner().keep(case, &small, way, &said, found);
    }

    /// Keeps a case as a model with its data and the command that shows it again.
    fn keep(&mut self, case: &Case, small: &Case, way: &Way, how: &str, found: &mut Tally) {
        let number = case.seed - self.number;
        let now = self.alone(small, way).unwrap_or_else(|| how.into());
        let text = format!("{number}: {} [{}]: {now}", small.operators(), way.words());
        println!("{text}");
        found.bad.push(text.clone());
        let place = self.bad.join(number.to_string());
        let data = place.join("test_data_set_0");
        // What cannot be kept was said at least.
        let _ = std::fs::remove_dir_all(&place);
        let _ = std::fs::create_dir_all(&data);
        let _ =
            std::fs::write(place.join("model.onnx"), small.model(&small.outputs).encode_to_vec());
        let put = |name: String, tensor: squall_frontend::onnx::proto::TensorProto| {
            let _ = std::fs::write(data.join(name), tensor.encode_to_vec());
        };
        for (i, (name, array)) in small.inputs.iter().enumerate() {
            put(format!("input_{i}.pb"), tensor_of(name, array));
        }
        let want = self.want(small, way).values;
        for (i, name) in small.outputs.iter().enumerate() {
            if let Some(array) = want.get(name) {
                put(format!("output_{i}.pb"), tensor_of(name, array));
            }
        }
        let words = way.words();
        let note = format!(
            "{text}\nfirst: {how}\nof: {}\n\nsquall check model.onnx --test-data test_data_set_0 \
             {words}\ncargo xtask campaign graphs --seed {} --case {number}\n",
            case.operators(),
            self.number / 1_000_000
        );
        let _ = std::fs::write(place.join("note"), note);
    }
}

/// The case whose node or value an error names.
fn named(cases: &[Case], said: &str) -> Option<usize> {
    cases.iter().position(|c| {
        let first = c.nodes.first().map_or("", |n| n.name.as_str());
        let prefix = first.split_once('_').map_or("", |p| p.0);
        let marks = ["`", "\"", " ", "'"];
        !prefix.is_empty() && marks.iter().any(|m| said.contains(&format!("{m}{prefix}_")))
    })
}
