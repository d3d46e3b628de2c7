//! ONNX nodes that hold other nodes: functions of the file are replaced by their bodies, `If` by
//! the branch that a known condition takes (or by both branches and a `Choose` between their
//! results), `Loop` and `Scan` of known trip counts by as many copies of their bodies. Loops that
//! are too long for this stay loops (`rolled.rs`). The reader calls `expand` for each such node.

use super::body::Around;
use super::inline::{self, Names};
use super::rolled::{Read, Rolled, Scanned};
use super::{Declared, Reader, composed, contrib, legacy};
use crate::error::{ImportError, shown};
use crate::onnx::proto::{GraphProto, NodeProto};
use crate::onnx::tensor::tensor;
use squall_core::graph::infer::{self, nbits::DOMAIN};
use squall_core::graph::{Constant, Tensor};
use std::collections::HashMap;

/// The most nodes of a loop's copies; a loop with more of them stays a loop.
const MOST_WRITTEN_OUT: usize = 512;
/// The most nodes of a model after its loops and functions are written out.
const MOST_NODES: usize = 1 << 17;
/// The deepest calls of functions and subgraphs that are followed.
const DEEPEST: usize = 64;

/// The result of expanding a node.
pub(super) enum Expansion {
    /// The node holds no other nodes.
    Plain,
    /// Other nodes stand in its place.
    Done,
    /// The node stays as it is, for this reason.
    Refused(String),
}

/// The state of the reader before an expansion is tried.
struct Mark {
    nodes: usize,
    values: usize,
}

/// The turns of a loop that is written out, if they are no more than `most`.
struct Turns {
    trips: i64,
    most: i64,
}

/// A `Scan` that stays a loop.
struct Scan<'a> {
    name: &'a str,
    body: &'a GraphProto,
    /// Below 0 where only the run knows how many turns it has.
    trips: i64,
    /// How many of its operands go on from turn to turn.
    states: usize,
    scanned: Vec<Scanned>,
}

impl Reader<'_> {
    /// Replaces a node that holds other nodes by these.
    pub(super) fn expand(
        &mut self,
        n: &NodeProto,
        name: &str,
        declared: &HashMap<String, Declared>,
    ) -> Result<Expansion, ImportError> {
        let standard = matches!(n.domain.as_str(), "" | "ai.onnx");
        let mark = Mark { nodes: self.nodes.len(), values: self.values.len() };
        if self.depth >= DEEPEST || self.nodes.len() > MOST_NODES {
            return Ok(Expansion::Refused(
                "the nodes that it holds are too deep or too many".into(),
            ));
        }
        self.depth += 1;
        let done = match n.op_type.as_str() {
            "If" if standard => self.branch(n, name, declared),
            "Loop" if standard => self.loops(n, name, declared),
            "Scan" if standard => self.scan(n, name, declared),
            _ => match self.body(n, &format!("{name}/")) {
                None => {
                    self.depth -= 1;
                    return Ok(Expansion::Plain);
                }
                Some(Ok(nodes)) => self.read_nodes(&nodes, declared).map(Ok),
                Some(Err(why)) => Ok(Err(why)),
            },
        };
        self.depth -= 1;
        match done? {
            Ok(()) => Ok(Expansion::Done),
            Err(why) => {
                self.back_to(mark);
                Ok(Expansion::Refused(why))
            }
        }
    }

    /// Forgets what was read since.
    fn back_to(&mut self, mark: Mark) {
        self.nodes.truncate(mark.nodes);
        self.values.truncate(mark.values);
        self.by_name.retain(|_, id| *id < mark.values);
        self.open.retain(|id, _| *id < mark.values);
        self.varying.retain(|id| *id < mark.values);
    }

    /// The nodes that a call stands for: a function's of the file, or those of an operator that
    /// onnxruntime adds to the standard ones.
    fn body(&self, n: &NodeProto, prefix: &str) -> Option<Result<Vec<NodeProto>, String>> {
        if let Some(function) = self.function(n) {
            return Some(Ok(inline::body(&function, n, prefix)));
        }
        let shape = |name: &str| self.values[*self.by_name.get(name)?].shape.clone();
        let dtype = |name: &str| self.values[*self.by_name.get(name)?].dtype;
        let integers = |name: &str| self.known(name)?.as_i64().map(<[i64]>::to_vec);
        let around =
            Around { opset: self.opset, shape: &shape, dtype: &dtype, integers: &integers };
        let old = || legacy::written_out(n, prefix, &around);
        let added = || contrib::written_out(n, prefix, &around);
        let composed = || composed::written_out(n, prefix, &around).map(Ok);
        old().or_else(added).or_else(composed)
    }

    fn function(&self, n: &NodeProto) -> Option<crate::onnx::proto::FunctionProto> {
        let domain = |d: &str| if d == "ai.onnx" { String::new() } else { d.to_string() };
        let same = |f: &&crate::onnx::proto::FunctionProto| {
            f.name == n.op_type
                && domain(&f.domain) == domain(&n.domain)
                && f.overload == n.overload
        };
        self.functions.iter().find(same).cloned()
    }

    /// Reads a subgraph behind a prefix; `names` gives its inputs. The names of its results.
    pub(super) fn inline(
        &mut self,
        g: &GraphProto,
        prefix: &str,
        mut names: Names,
        declared: &HashMap<String, Declared>,
    ) -> Result<Vec<String>, ImportError> {
        let nodes = inline::nodes(g, prefix, &mut names);
        for t in &g.initializer {
            let at = || format!("initializer `{}`", shown(&t.name));
            let read = tensor(t).map_err(|e| self.fault(at(), e, super::REPAIR))?;
            let known = &names[&t.name].clone();
            self.define(known, "initializer", Some(read))?;
        }
        self.read_nodes(&nodes, declared)?;
        let became = |n: &String| names.get(n).cloned().unwrap_or_else(|| n.clone());
        let results: Vec<String> = g.output.iter().map(|o| became(&o.name)).collect();
        match results.iter().find(|r| !self.by_name.contains_key(*r)) {
            Some(r) => Err(self.fault(
                format!("output `{}`", shown(r)),
                "no node produces it",
                super::REPAIR,
            )),
            None => Ok(results),
        }
    }

    /// The elements of a named value, where they are known.
    fn known(&self, name: &str) -> Option<&Constant> {
        let id = *self.by_name.get(name)?;
        let id = self.values[id].alias.unwrap_or(id);
        self.values[id].constant.as_deref()
    }

    fn truth(&self, name: &str) -> Option<bool> {
        match self.known(name)? {
            Constant::Bool { data, .. } => data.first().copied(),
            _ => None,
        }
    }

    fn waits(name: &str, what: &str) -> String {
        format!("its input `{}` ({what}) is not known before the model runs", shown(name))
    }

    fn branch(
        &mut self,
        n: &NodeProto,
        name: &str,
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        let (yes, no) = (inline::subgraph(n, "then_branch"), inline::subgraph(n, "else_branch"));
        let (yes, no) = match (yes, no) {
            (Ok(y), Ok(n)) => (y, n),
            (Err(e), _) | (_, Err(e)) => return Ok(Err(e)),
        };
        let Some(condition) = n.input.first() else { return Ok(Err("input 0 is missing".into())) };
        if let Some(taken) = self.truth(condition) {
            let (graph, way) = if taken { (&yes, "then") } else { (&no, "else") };
            let prefix = format!("{name}/{way}/");
            let results = self.inline(graph, &prefix, Names::new(), declared)?;
            return self.hand_on(&results, &n.output, declared).map(Ok);
        }
        // What decides comes first: of each branch nothing runs before it is known.
        let flag = format!("{name}/condition");
        self.read_nodes(&[inline::simple("Squeeze", &[condition], &flag)], declared)?;
        self.undecided += 1;
        let both = self.both(&yes, &no, name, declared);
        self.undecided -= 1;
        let (a, b) = both?;
        if a.len() != b.len() || a.len() < n.output.len() {
            return Ok(Err("its branches do not give what its results need".into()));
        }
        let wanted = a.iter().zip(&b).zip(&n.output).filter(|(_, to)| !to.is_empty());
        let pairs: Vec<[&String; 2]> = wanted.map(|(pair, _)| pair.into()).collect();
        if let Err(why) = self.may_differ(condition, &pairs) {
            return Ok(Err(why));
        }
        let mut nodes = Vec::new();
        for ((x, y), to) in a.iter().zip(&b).zip(&n.output).filter(|(_, to)| !to.is_empty()) {
            let mut choose = inline::simple(infer::CHOOSE, &[&flag, x, y], to);
            choose.domain = DOMAIN.into();
            nodes.push(choose);
        }
        self.read_nodes(&nodes, declared).map(Ok)
    }

    /// Whether a `Choose` can hand on what two branches give. Where shapes differ, a small input
    /// that decides is asked for instead, so that they are known.
    fn may_differ(&self, condition: &str, pairs: &[[&String; 2]]) -> Result<(), String> {
        let by_run = self.by_name.get(condition).is_some_and(|id| self.is_decided_by_run(*id));
        for [x, y] in pairs {
            let [(a, x), (b, y)] = [x, y].map(|n| {
                let id = self.by_name[*n];
                ((self.values[id].dtype, self.extents_of(id)), id)
            });
            let is_known =
                |(dtype, extents): &(Option<_>, Option<_>)| dtype.is_some() && extents.is_some();
            if let Some(id) = [(&a, x), (&b, y)].iter().find(|s| !is_known(s.0)).map(|s| s.1) {
                let maker = self.nodes.iter().find(|n| n.outputs.contains(&id));
                let why = maker.and_then(|n| Some((n, n.problem.as_ref()?)));
                return Err(match why {
                    Some((n, why)) => format!("node `{}` ({}) of a branch: {why}", n.name, n.op),
                    None => Self::waits(condition, "condition"),
                });
            }
            if a != b && !by_run {
                return Err(Self::waits(condition, "condition"));
            }
            if a.0 != b.0 {
                return Err("its branches give different types".into());
            }
        }
        Ok(())
    }

    /// Reads both branches; the names of their results.
    fn both(
        &mut self,
        yes: &GraphProto,
        no: &GraphProto,
        name: &str,
        declared: &HashMap<String, Declared>,
    ) -> Result<(Vec<String>, Vec<String>), ImportError> {
        let a = self.inline(yes, &format!("{name}/then/"), Names::new(), declared)?;
        let b = self.inline(no, &format!("{name}/else/"), Names::new(), declared)?;
        Ok((a, b))
    }

    /// Gives values the names under which the graph around knows them.
    fn hand_on(
        &mut self,
        from: &[String],
        to: &[String],
        declared: &HashMap<String, Declared>,
    ) -> Result<(), ImportError> {
        let pairs = from.iter().zip(to).filter(|(_, to)| !to.is_empty());
        let nodes: Vec<NodeProto> = pairs.map(|(f, t)| inline::identity(f, t)).collect();
        self.read_nodes(&nodes, declared)
    }

    /// A constant under a new name.
    pub(super) fn integer(
        &mut self,
        name: &str,
        shape: Vec<i64>,
        value: i64,
    ) -> Result<(), ImportError> {
        let constant = Constant::I64 { shape: shape.clone(), data: vec![value] };
        let dtype = Some(squall_core::DType::I64);
        self.define(name, "constant", Some(Tensor { dtype, shape, constant: Some(constant) }))?;
        Ok(())
    }

    fn loops(
        &mut self,
        n: &NodeProto,
        name: &str,
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        let body = match inline::subgraph(n, "body") {
            Ok(b) => b,
            Err(e) => return Ok(Err(e)),
        };
        let given = |i: usize| n.input.get(i).filter(|s| !s.is_empty()).cloned();
        let trips = match given(0) {
            None => Some(i64::MAX),
            Some(m) => self.known(&m).and_then(Constant::as_i64).and_then(|v| v.first()).copied(),
        };
        let goes = match given(1) {
            None => Some(true),
            Some(c) => self.truth(&c),
        };
        // What a small input decides is asked for, so that shapes are known.
        for (i, what) in [(0, "trip count"), (1, "condition")] {
            let is_known = if i == 0 { trips.is_some() } else { goes.is_some() };
            if let Some(name) = given(i).filter(|_| !is_known)
                && self.by_name.get(&name).is_none_or(|id| !self.is_decided_by_run(*id))
            {
                return Ok(Err(Self::waits(&name, what)));
            }
        }
        let carried: Vec<String> = n.input.iter().skip(2).cloned().collect();
        let count = carried.len();
        if body.input.len() != count + 2 || body.output.len() < count + 1 {
            return Ok(Err("its body does not suit its inputs".into()));
        }
        let most = (MOST_WRITTEN_OUT / body.node.len().max(1)) as i64;
        if let (Some(trips @ 1..), Some(true)) = (trips, goes)
            && (trips <= most || trips == i64::MAX)
        {
            let mark = Mark { nodes: self.nodes.len(), values: self.values.len() };
            let turns = Turns { trips, most };
            let done = self.copies(n, name, &body, turns, carried.clone(), declared)?;
            if done.is_ok() {
                return Ok(Ok(()));
            }
            self.back_to(mark);
        }
        // Without a turn what is carried goes through; what turns add has no length, and its other
        // extents are those that a turn would give.
        let none = goes == Some(false) || trips.is_some_and(|t| t <= 0);
        if none && n.output.iter().skip(count).all(String::is_empty) {
            return self.copies(n, name, &body, Turns { trips: 0, most: 0 }, carried, declared);
        }
        let rolled = Rolled {
            name,
            body: &body,
            turns: given(0),
            known_turns: if none { Some(0) } else { trips.filter(|t| *t < i64::MAX) },
            condition: given(1),
            has_condition: true,
            carried,
            scanned: Vec::new(),
            outputs: &n.output,
        };
        self.rolled(&rolled, declared)
    }

    /// A loop as copies of its body, one a turn.
    fn copies(
        &mut self,
        n: &NodeProto,
        name: &str,
        body: &GraphProto,
        turns: Turns,
        mut carried: Vec<String>,
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        let Turns { trips, most } = turns;
        let (mut goes, count) = (true, carried.len());
        let mut scanned: Vec<Vec<String>> = vec![Vec::new(); body.output.len() - count - 1];
        let condition = format!("{name}/condition");
        let truth = Constant::Bool { shape: vec![], data: vec![true] };
        let dtype = Some(squall_core::DType::Bool);
        let known = Tensor { dtype, shape: vec![], constant: Some(truth) };
        self.define(&condition, "constant", Some(known))?;
        let mut i = 0;
        while goes && i < trips {
            if i == most || self.nodes.len() > MOST_NODES {
                return Ok(Err("it makes too many nodes".into()));
            }
            let prefix = format!("{name}/{i}/");
            let place = format!("{prefix}iteration");
            self.integer(&place, vec![], i)?;
            let mut names = Names::new();
            let outer = [place, condition.clone()].into_iter().chain(carried.iter().cloned());
            for (inner, outer) in body.input.iter().zip(outer) {
                names.insert(inner.name.clone(), outer);
            }
            let results = self.inline(body, &prefix, names, declared)?;
            goes = match self.truth(&results[0]) {
                Some(t) => t,
                None => return Ok(Err("whether it goes on depends on what it computes".into())),
            };
            carried = results[1..=count].to_vec();
            scanned.iter_mut().zip(&results[count + 1..]).for_each(|(s, r)| s.push(r.clone()));
            i += 1;
        }
        self.hand_on(&carried, &n.output, declared)?;
        let axes = vec![0; scanned.len()];
        let outputs = n.output.get(count..).unwrap_or_default().to_vec();
        self.stack(name, &scanned, &axes, &outputs, declared)
    }

    /// Joins what each trip of a loop gave along a new axis.
    fn stack(
        &mut self,
        name: &str,
        parts: &[Vec<String>],
        axes: &[i64],
        outputs: &[String],
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        for (k, (to, parts)) in outputs.iter().zip(parts).enumerate() {
            if to.is_empty() {
                continue;
            }
            if parts.is_empty() {
                return Ok(Err("it runs no time and says no shape".into()));
            }
            let mut nodes = Vec::new();
            let mut list = Vec::new();
            let axis = format!("{name}/axis{k}");
            self.integer(&axis, vec![1], axes[k])?;
            for (i, p) in parts.iter().enumerate() {
                let wide = format!("{name}/{i}/wide{k}");
                let mut node = match self.opset >= 13 {
                    true => inline::simple("Unsqueeze", &[p, &axis], &wide),
                    false => inline::simple("Unsqueeze", &[p], &wide),
                };
                if self.opset < 13 {
                    node.attribute.push(crate::onnx::proto::AttributeProto {
                        name: "axes".into(),
                        ints: vec![axes[k]],
                        r#type: crate::onnx::proto::attribute::INTS,
                        ..Default::default()
                    });
                }
                nodes.push(node);
                list.push(wide);
            }
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            let mut join = inline::simple("Concat", &list, to);
            join.attribute.push(inline::int("axis", axes[k]));
            nodes.push(join);
            self.read_nodes(&nodes, declared)?;
        }
        Ok(Ok(()))
    }

    fn scan(
        &mut self,
        n: &NodeProto,
        name: &str,
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        if self.opset < 9 {
            return Ok(Err("its form before opset 9 is not supported".into()));
        }
        let body = match inline::subgraph(n, "body") {
            Ok(b) => b,
            Err(e) => return Ok(Err(e)),
        };
        let attribute = |name: &str| n.attribute.iter().find(|a| a.name == name);
        let list = |name: &str, n: usize| match attribute(name) {
            Some(a) if a.ints.len() == n => a.ints.clone(),
            _ => vec![0; n],
        };
        let inputs = attribute("num_scan_inputs").and_then(|a| a.i).unwrap_or(0).max(0) as usize;
        let Some(states) = n.input.len().checked_sub(inputs).filter(|_| inputs > 0) else {
            return Ok(Err("attribute `num_scan_inputs` does not suit its inputs".into()));
        };
        if body.input.len() != n.input.len() || body.output.len() < states {
            return Ok(Err("its body does not suit its inputs".into()));
        }
        let scans = body.output.len() - states;
        let (axes, back) = (list("scan_input_axes", inputs), list("scan_input_directions", inputs));
        let (out_axes, out_back) =
            (list("scan_output_axes", scans), list("scan_output_directions", scans));
        let trips = match self.turns_of(&n.input[states..], &axes) {
            Ok(trips) => trips,
            Err(e) => return Ok(Err(e)),
        };
        // What no turn gives still has the other extents that a turn would give it.
        if trips <= 0 || trips as usize * body.node.len().max(1) > MOST_WRITTEN_OUT {
            let at = |k: usize| (out_axes[k], out_back[k] != 0);
            let scanned = n.input[states..].iter().enumerate().map(|(k, x)| Scanned {
                name: x.clone(),
                axis: axes[k],
                back: back[k] != 0,
            });
            let scanned = scanned.collect();
            let scan = Scan { name, body: &body, trips, states, scanned };
            return self.rolled_scan(n, scan, &at, declared);
        }
        let mut state: Vec<String> = n.input[..states].to_vec();
        let mut scanned: Vec<Vec<String>> = vec![Vec::new(); scans];
        for i in 0..trips {
            if self.nodes.len() > MOST_NODES {
                return Ok(Err("it makes too many nodes".into()));
            }
            let prefix = format!("{name}/{i}/");
            let mut names = Names::new();
            for (inner, outer) in body.input.iter().zip(&state) {
                names.insert(inner.name.clone(), outer.clone());
            }
            let mut nodes = Vec::new();
            for (k, x) in n.input[states..].iter().enumerate() {
                let (place, part) = (format!("{prefix}place{k}"), format!("{prefix}part{k}"));
                self.integer(&place, vec![], if back[k] == 0 { i } else { trips - 1 - i })?;
                let mut take = inline::simple("Gather", &[x, &place], &part);
                take.attribute.push(inline::int("axis", axes[k]));
                nodes.push(take);
                names.insert(body.input[states + k].name.clone(), part);
            }
            self.read_nodes(&nodes, declared)?;
            let results = self.inline(&body, &prefix, names, declared)?;
            state = results[..states].to_vec();
            scanned.iter_mut().zip(&results[states..]).for_each(|(s, r)| s.push(r.clone()));
        }
        scanned.iter_mut().zip(&out_back).filter(|(_, b)| **b != 0).for_each(|(s, _)| s.reverse());
        self.hand_on(&state, &n.output, declared)?;
        let outputs = n.output.get(states..).unwrap_or_default().to_vec();
        self.stack(name, &scanned, &out_axes, &outputs, declared)
    }

    /// How many turns a `Scan` over parts of these has; below 0 where only the run knows.
    fn turns_of(&self, scanned: &[String], axes: &[i64]) -> Result<i64, String> {
        let mut trips: Option<i64> = None;
        for (x, axis) in scanned.iter().zip(axes) {
            let shape = self.by_name.get(x).and_then(|id| self.extents_of(*id));
            let no_shape = || format!("its input `{}` has no known shape", shown(x));
            let shape = shape.ok_or_else(no_shape)?;
            let extent = shape[squall_core::graph::infer::axis_of(*axis, shape.len())?];
            if trips.is_some_and(|t| t != extent && t >= 0 && extent >= 0) {
                return Err("its inputs differ in how many turns they are for".into());
            }
            trips = trips.filter(|t| *t >= 0).or(Some(extent));
        }
        Ok(trips.unwrap_or(0))
    }

    /// A `Scan` that stays a loop.
    fn rolled_scan(
        &mut self,
        n: &NodeProto,
        scan: Scan<'_>,
        at: &dyn Fn(usize) -> (i64, bool),
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        let Scan { name, body, trips, states, scanned } = scan;
        let turns = format!("{name}/turns");
        if trips >= 0 {
            self.integer(&turns, vec![], trips)?;
        } else if let Some(first) = scanned.first() {
            let (extents, axis) = (format!("{name}/extents"), format!("{name}/axis"));
            self.integer(&axis, vec![], first.axis)?;
            let nodes = [
                inline::simple("Shape", &[&first.name], &extents),
                inline::simple("Gather", &[&extents, &axis], &turns),
            ];
            self.read_nodes(&nodes, declared)?;
        }
        let mut outputs: Vec<String> = n.output.clone();
        let mut stacked = Vec::new();
        for (k, to) in outputs.iter_mut().enumerate().skip(states).filter(|(_, to)| !to.is_empty())
        {
            if at(k - states) != (0, false) {
                let from = format!("{name}/stacked{k}");
                stacked.push((std::mem::replace(to, from.clone()), from, at(k - states)));
            }
        }
        let rolled = Rolled {
            name,
            body,
            turns: Some(turns),
            known_turns: Some(trips).filter(|t| *t >= 0),
            condition: None,
            has_condition: false,
            carried: n.input[..states].to_vec(),
            scanned,
            outputs: &outputs,
        };
        if let Err(why) = self.rolled(&rolled, declared)? {
            return Ok(Err(why));
        }
        for (to, from, (axis, back)) in stacked {
            if let Err(why) = self.arranged(&from, &to, axis, back, declared)? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }
}
