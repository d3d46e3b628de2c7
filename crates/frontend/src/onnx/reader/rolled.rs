//! Reads a `Loop` or `Scan` that stays a loop, because it has many turns or only the run knows how
//! many. Its body is read as a model with the carried values as inputs; extents that a turn changes
//! become open, until a turn changes none. Output: one loop node, which `regions.rs` puts into a
//! region. `control.rs` decides which loops stay.

use super::inline::{self, Names};
use super::{Declared, Reader};
use crate::error::ImportError;
use crate::onnx::proto::{GraphProto, NodeProto};
use squall_core::DType;
use squall_core::graph::infer::nbits::DOMAIN;
use squall_core::graph::infer::region::{BODY, CARRIED, LOOP, UNRANKED, is_unranked};
use squall_core::graph::{Attribute, Constant, Node, Tensor, ValueId};
use std::collections::{BTreeMap, HashMap};

/// The result of reading, or why a node is not read in this way.
pub(super) type Read<T> = Result<Result<T, String>, ImportError>;

/// A value of which a `Scan` reads a part in each turn, and the axis; from its end on where it goes
/// back.
pub(super) struct Scanned {
    pub name: String,
    pub axis: i64,
    pub back: bool,
}

/// A loop.
pub(super) struct Rolled<'a> {
    pub name: &'a str,
    pub body: &'a GraphProto,
    /// The number of turns, where there is one.
    pub turns: Option<String>,
    /// The number of turns as a number, where it is known and no condition ends them.
    pub known_turns: Option<i64>,
    /// The condition of the first turn; a `Scan` has none, nor does its body.
    pub condition: Option<String>,
    pub has_condition: bool,
    pub carried: Vec<String>,
    pub scanned: Vec<Scanned>,
    /// The names of its results; empty where nothing reads one.
    pub outputs: &'a [String],
}

/// A body that was read.
struct Body {
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    results: Vec<ValueId>,
}

type Facts = (Option<DType>, Vec<i64>);

impl Reader<'_> {
    /// Reads a loop as one node.
    pub(super) fn rolled(
        &mut self,
        l: &Rolled<'_>,
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        let mut state: Vec<Facts> = Vec::new();
        for name in &l.carried {
            let id = self.by_name.get(name).copied();
            let facts = id.and_then(|id| Some((self.values[id].dtype, self.extents_of(id)?)));
            match facts {
                Some(f) => state.push(f),
                None => return Ok(Err(format!("the shape of `{name}` is not known"))),
            }
        }
        // An extent that a turn changes is open; then there are fewer that may change.
        for _ in 0..=state.iter().map(|s| s.1.len()).sum::<usize>() {
            let mark = self.values.len();
            let body = match self.turn(l, &state, declared)? {
                Ok(body) => body,
                Err(why) => return Ok(Err(why)),
            };
            match self.changed(l, &mut state, &body) {
                Ok(false) => return self.loop_node(l, &state, body),
                Ok(true) => {
                    self.values.truncate(mark);
                    self.by_name.retain(|_, id| *id < mark);
                    self.open.retain(|id, _| *id < mark);
                    self.varying.retain(|id| *id < mark);
                }
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Err("what it carries has another shape in each turn".into()))
    }

    /// Reads the body for carried values of these types and extents.
    fn turn(
        &mut self,
        l: &Rolled<'_>,
        state: &[Facts],
        declared: &HashMap<String, Declared>,
    ) -> Read<Body> {
        let prefix = format!("{}/turn/", l.name);
        let mut inputs = Vec::new();
        let mut names = Names::new();
        let mut varying = |r: &mut Self, name: String, facts: Facts| {
            let id = r.define(&name, "value", None)?;
            r.give(id, facts.0, facts.1);
            r.varying.insert(id);
            inputs.push(id);
            Ok::<String, ImportError>(name)
        };
        let turn = varying(self, format!("{prefix}number"), (Some(DType::I64), vec![]))?;
        let goes = varying(self, format!("{prefix}condition"), (Some(DType::Bool), vec![]))?;
        let mut inner: Vec<String> =
            if l.has_condition { vec![turn.clone(), goes] } else { Vec::new() };
        for (i, facts) in state.iter().enumerate() {
            inner.push(varying(self, format!("{prefix}carried{i}"), facts.clone())?);
        }
        let outer = std::mem::take(&mut self.nodes);
        for (k, s) in l.scanned.iter().enumerate() {
            let (place, part) = (format!("{prefix}place{k}"), format!("{prefix}part{k}"));
            let turns = l.turns.as_deref().unwrap_or_default();
            let mut nodes = Vec::new();
            let at = match s.back {
                false => turn.clone(),
                true => {
                    self.integer(&format!("{prefix}one{k}"), vec![], 1)?;
                    let (one, left) = (format!("{prefix}one{k}"), format!("{prefix}left{k}"));
                    nodes.push(inline::simple("Sub", &[turns, &one], &left));
                    nodes.push(inline::simple("Sub", &[&left, &turn], &place));
                    place
                }
            };
            let mut take = inline::simple("Gather", &[&s.name, &at], &part);
            take.attribute.push(inline::int("axis", s.axis));
            nodes.push(take);
            self.read_nodes(&nodes, declared)?;
            inner.push(part);
        }
        for (of, name) in l.body.input.iter().zip(inner) {
            names.insert(of.name.clone(), name);
        }
        let results = self.inline(l.body, &prefix, names, declared)?;
        let read = std::mem::replace(&mut self.nodes, outer);
        // What does not differ from turn to turn is known ahead of the loop.
        let weights = |n: &Node, r: &Self| n.outputs.iter().all(|o| r.values[*o].weight);
        let (folded, nodes): (Vec<Node>, Vec<Node>) = read.into_iter().partition(|n| n.folded);
        let ahead: Vec<Node> = folded.into_iter().filter(|n| weights(n, self)).collect();
        self.nodes.extend(ahead);
        let results = results.iter().map(|r| self.by_name[r]).collect();
        Ok(Ok(Body { nodes, inputs, results }))
    }

    /// Makes the extents open that a turn changes; whether there are some.
    fn changed(
        &mut self,
        l: &Rolled<'_>,
        state: &mut [Facts],
        body: &Body,
    ) -> Result<bool, String> {
        let first = usize::from(l.has_condition);
        let mut any = false;
        for ((i, facts), id) in state.iter_mut().enumerate().zip(&body.results[first..]) {
            let name = &l.carried[i];
            let extents = self.extents_of(*id).ok_or_else(|| {
                let maker = body.nodes.iter().find(|n| n.problem.is_some());
                let why = maker
                    .and_then(|n| Some(format!(" (node `{}`: {})", n.name, n.problem.as_ref()?)));
                format!(
                    "the shape of what becomes of `{name}` is not known{}",
                    why.unwrap_or_default()
                )
            })?;
            if self.values[*id].dtype != facts.0 {
                return Err(format!("the type of `{name}` changes from turn to turn"));
            }
            if extents.len() != facts.1.len() || is_unranked(&extents) {
                any |= !is_unranked(&facts.1);
                facts.1 = vec![UNRANKED];
                continue;
            }
            for (own, e) in facts.1.iter_mut().zip(extents) {
                if *own >= 0 && *own != e {
                    (*own, any) = (self.new_extent(), true);
                }
            }
        }
        Ok(any)
    }

    /// The loop's node, with its results.
    fn loop_node(&mut self, l: &Rolled<'_>, state: &[Facts], mut body: Body) -> Read<()> {
        if !l.has_condition {
            let always = self.always(&format!("{}/condition", l.name))?;
            body.results.insert(0, always);
        }
        let is_always = |r: &Self, id: ValueId| {
            let id = r.values[id].alias.unwrap_or(id);
            r.values[id].constant.as_deref().and_then(Constant::as_bool) == Some(&[true])
        };
        let ends_by_count = is_always(self, body.results[0]) || {
            let id = body.results[0];
            self.values[id].alias.unwrap_or(id) == body.inputs[1]
        };
        let starts = match l.condition.as_ref().and_then(|c| self.by_name.get(c)) {
            Some(&id) => is_always(self, id),
            None => true,
        };
        let turns = l.known_turns.filter(|n| *n == 0 || ends_by_count && starts);
        let nodes: Vec<&Node> = body.nodes.iter().collect();
        let around = self.captured(&nodes, &body.inputs, &body.results);
        let inputs: Vec<ValueId> = body.inputs.iter().chain(&around).copied().collect();
        let Some(model) = self.as_model(&nodes, &inputs, &body.results) else {
            return Ok(Err("its body stands in no order".into()));
        };
        let problem = nodes.iter().find_map(|n| Some((n, n.problem.as_ref()?)));
        if let Some((n, why)) = problem {
            return Ok(Err(format!("node `{}` ({}): {why}", n.name, n.op)));
        }
        let by_name =
            |r: &Self, name: &Option<String>| name.as_ref().and_then(|n| r.by_name.get(n).copied());
        let mut operands = vec![by_name(self, &l.turns), by_name(self, &l.condition)];
        operands.extend(l.carried.iter().map(|n| self.by_name.get(n).copied()));
        operands.extend(around.into_iter().map(Some));
        let mut outputs = Vec::new();
        let mut facts: Vec<Facts> = Vec::new();
        for (dtype, extents) in state {
            let mut kept = |e: &i64| match *e {
                UNRANKED => UNRANKED,
                e if e < 0 => self.new_extent(),
                e => e,
            };
            facts.push((*dtype, extents.iter().map(&mut kept).collect()));
        }
        for &id in &body.results[1 + state.len()..] {
            let Some(part) = self.extents_of(id) else {
                return Ok(Err(format!("the shape of `{}` is not known", self.values[id].name)));
            };
            if is_unranked(&part) {
                let name = &self.values[id].name;
                return Ok(Err(format!("the rank of `{name}` changes from turn to turn")));
            }
            let mut extents = vec![turns.unwrap_or_else(|| self.new_extent())];
            extents.extend(part.into_iter().map(|e| if e < 0 { self.new_extent() } else { e }));
            facts.push((self.values[id].dtype, extents));
        }
        for (i, (dtype, extents)) in facts.into_iter().enumerate() {
            let name = l.outputs.get(i).filter(|o| !o.is_empty()).cloned();
            let name = name.unwrap_or_else(|| format!("{}.output{i}", l.name));
            let id = self.define(&name, "output", None)?;
            self.give(id, dtype, extents);
            self.made_of.insert(id, Vec::new());
            self.varying.insert(id);
            outputs.push(id);
        }
        let attributes = BTreeMap::from([
            (BODY.to_string(), Attribute::Body(Box::new(model))),
            (CARRIED.to_string(), Attribute::Int(state.len() as i64)),
        ]);
        self.nodes.push(Node {
            name: l.name.into(),
            op: LOOP.into(),
            domain: DOMAIN.into(),
            inputs: operands,
            outputs,
            attributes,
            folded: false,
            problem: None,
        });
        Ok(Ok(()))
    }

    /// A condition that always holds.
    pub(super) fn always(&mut self, name: &str) -> Result<ValueId, ImportError> {
        let truth = Constant::Bool { shape: vec![], data: vec![true] };
        let known = Tensor { dtype: Some(DType::Bool), shape: vec![], constant: Some(truth) };
        self.define(name, "constant", Some(known))
    }

    /// Brings what a `Scan` gives along the first axis into its own order.
    pub(super) fn arranged(
        &mut self,
        stacked: &str,
        to: &str,
        axis: i64,
        back: bool,
        declared: &HashMap<String, Declared>,
    ) -> Read<()> {
        let id = self.by_name.get(stacked).copied();
        let Some(rank) = id.and_then(|id| self.extents_of(id)).map(|e| e.len()) else {
            return Ok(Err(format!("the rank of `{to}` is not known")));
        };
        let axis = match squall_core::graph::infer::axis_of(axis, rank) {
            Ok(a) => a,
            Err(e) => return Ok(Err(e)),
        };
        let (mut nodes, mut from): (Vec<NodeProto>, String) = (Vec::new(), stacked.into());
        if back {
            let operands = [("first", -1), ("last", i64::MIN), ("along", 0), ("step", -1)];
            let mut names = vec![from.clone()];
            for (what, value) in operands {
                names.push(format!("{stacked}/{what}"));
                self.integer(&format!("{stacked}/{what}"), vec![1], value)?;
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            from = format!("{stacked}/turned");
            nodes.push(inline::simple("Slice", &names, &from));
        }
        let mut order: Vec<i64> = (1..rank as i64).collect();
        order.insert(axis, 0);
        let mut turn = inline::simple("Transpose", &[&from], to);
        turn.attribute.push(inline::ints("perm", &order));
        nodes.push(turn);
        self.read_nodes(&nodes, declared).map(Ok)
    }
}
