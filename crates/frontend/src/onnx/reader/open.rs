//! Shape inference where some extents are open, that is, only the run knows them. An open extent is
//! a number below 0; extents with the same number are equal.
//!
//! The extents of results are found by trials: an operator's shapes are inferred by the usual
//! functions for several numbers in the place of each open extent. An extent that is the same in
//! all trials is known, one that follows an operand's extent is that extent, and any other gets a
//! new number. Nodes with open extents then become regions (`regions.rs`).

use super::Reader;
use squall_core::DType;
use squall_core::graph::infer::region::{UNRANKED, is_unranked, trial};
use squall_core::graph::infer::{self, Ctx, NodeOperand, Output};
use squall_core::graph::{Attribute, NOT_KNOWN, Node, ValueId, is_bounded};
use squall_core::operators;
use std::collections::{HashMap, HashSet};

/// The axes that a value of a region may have (`compiler/src/plain/regions/values.c`).
const MOST_AXES: i64 = 32;

/// The most elements of an input that may decide shapes ahead of the run: of whole numbers, and of
/// floats.
const MOST_DECIDING: [i64; 2] = [16, 8];

/// Operators without their operands that they need to know: the rank of the result is known still.
type Ranked = Vec<(Option<DType>, Vec<i64>)>;

/// The numbers that stand in the place of open extents.
#[derive(Clone, Copy)]
enum Trial {
    Different(usize),
    Equal(usize),
    All(i64),
}

impl Reader<'_> {
    /// A new open extent.
    pub(super) fn new_extent(&mut self) -> i64 {
        self.extents -= 1;
        self.extents
    }

    /// Extents of a value as far as they are known; those of values with open ones are below 0.
    pub(super) fn extents_of(&self, id: ValueId) -> Option<Vec<i64>> {
        self.open.get(&id).cloned().or_else(|| self.values[id].shape.clone())
    }

    /// Gives a value its extents.
    pub(super) fn give(&mut self, id: ValueId, dtype: Option<DType>, extents: Vec<i64>) {
        let is_exact = extents.iter().all(|e| *e >= 0);
        self.values[id].dtype = dtype;
        self.values[id].shape = is_exact.then(|| extents.clone());
        match is_exact {
            true => _ = self.open.remove(&id),
            false => _ = self.open.insert(id, extents),
        }
    }

    /// Whether a node's shapes are to be found by trials.
    fn is_open(&self, node: &Node) -> bool {
        if infer::is_choice(node) && self.differs(node) {
            return true;
        }
        let mut operands = node.inputs.iter().flatten();
        let is_known = |id: &ValueId| self.values[*id].constant.is_some();
        // What is known and evaluated has a shape; of the rest the run finds it, also of constants.
        let is_evaluated =
            || operators::is_folded(&node.op) && node.inputs.iter().flatten().all(is_known);
        is_bounded(&node.domain, &node.op) && !is_evaluated()
            || operands.any(|id| self.open.contains_key(id))
    }

    /// Infers the shapes of a node, where only the run knows some.
    pub(super) fn found_by_run(&mut self, node: &mut Node) -> bool {
        self.note(node);
        let is_open = self.is_open(node);
        if is_open {
            self.infer_open(node);
        }
        is_open
    }

    /// Infers the shapes of a node with open extents.
    fn infer_open(&mut self, node: &mut Node) {
        match self.results(node) {
            Ok(results) => {
                for (&id, (dtype, extents)) in node.outputs.clone().iter().zip(results) {
                    self.give(id, dtype, extents);
                }
            }
            Err(why) => {
                let of = node.inputs.iter().flatten().find(|id| self.open.contains_key(*id));
                let of = of.map_or(String::new(), |id| {
                    format!(" (only the run knows the length of `{}`)", self.values[*id].name)
                });
                node.problem = Some(why + &of);
            }
        }
    }

    /// A node whose operand is not known ahead of the run: whether it is the run that decides, and
    /// the rank of its results is known. Small inputs decide ahead.
    pub(super) fn infer_decided_by_run(&mut self, node: &Node, problem: &str) -> bool {
        if !problem.contains(NOT_KNOWN) {
            return false;
        }
        let named = |id: &ValueId| problem.contains(&format!("`{}` (", self.values[*id].name));
        let mut waited: Vec<ValueId> =
            node.inputs.iter().flatten().copied().filter(named).collect();
        if waited.is_empty() {
            waited = node.inputs.iter().skip(1).flatten().copied().collect();
        }
        if !waited.iter().any(|id| self.is_decided_by_run(*id)) {
            return false;
        }
        let Some(results) = self.ranked(node) else { return false };
        for (&id, (dtype, extents)) in node.outputs.iter().zip(results) {
            self.give(id, dtype, extents);
        }
        true
    }

    /// Whether a value comes from what no small input of the model decides.
    pub(super) fn is_decided_by_run(&self, id: ValueId) -> bool {
        let (mut open, mut seen) = (vec![id], HashSet::new());
        while let Some(id) = open.pop() {
            if !seen.insert(id) || self.values[id].weight {
                continue;
            }
            if self.open.contains_key(&id) || self.varying.contains(&id) {
                return true;
            }
            match self.made_of.get(&id) {
                Some(operands) => open.extend(operands),
                None => {
                    let v = &self.values[id];
                    let whole = v.dtype.is_some_and(|d| d.is_integer() || d == DType::Bool);
                    let most = MOST_DECIDING[usize::from(!whole)];
                    let count = v.shape.as_ref().map(|s| s.iter().product::<i64>());
                    if count.is_none_or(|n| n > most) {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Notes what a node's results are computed from.
    fn note(&mut self, node: &Node) {
        // Known extents do not depend on elements.
        let of_shape = matches!(node.op.as_str(), "Shape" | "Size");
        let counts = |id: &ValueId| !of_shape || self.open.contains_key(id);
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().filter(counts).collect();
        for &o in &node.outputs {
            self.made_of.insert(o, operands.clone());
        }
    }

    /// What a `Choose` may hand on, where one of both is there.
    fn operands(&self, node: &Node) -> Option<[(Option<DType>, Vec<i64>); 2]> {
        let [_, Some(yes), Some(no)] = node.inputs[..] else { return None };
        let facts = |id: ValueId| Some((self.values[id].dtype, self.extents_of(id)?));
        Some([facts(yes)?, facts(no)?])
    }

    fn differs(&self, node: &Node) -> bool {
        self.operands(node).is_some_and(|[yes, no]| yes.1 != no.1)
    }

    /// The result of a `Choose` whose operands have not the same extents: those that they have in
    /// common are known.
    fn chosen(&mut self, node: &Node) -> Result<Ranked, String> {
        let [yes, no] = self.operands(node).ok_or("the shapes of its branches are not known")?;
        if yes.0 != no.0 {
            return Err("its branches give different types".into());
        }
        Ok(vec![(yes.0, self.either(&yes.1, &no.1))])
    }

    /// The extents of a value that has one of two shapes.
    pub(super) fn either(&mut self, a: &[i64], b: &[i64]) -> Vec<i64> {
        if a.len() != b.len() || is_unranked(a) || is_unranked(b) {
            return vec![UNRANKED];
        }
        let mut one = |(a, b): (&i64, &i64)| if a == b { *a } else { self.new_extent() };
        a.iter().zip(b).map(&mut one).collect()
    }

    /// The results of a node that reads a value of which only the run knows the rank.
    fn of_any_rank(&mut self, node: &Node, of: ValueId) -> Result<Ranked, String> {
        let operand = |i: usize| node.inputs.get(i).copied().flatten();
        let dtype = operand(0).and_then(|id| self.values[id].dtype);
        let refused = format!("only the run knows the rank of `{}`", self.values[of].name);
        let standard = matches!(node.domain.as_str(), "" | "ai.onnx");
        let first = operand(0) == Some(of);
        match node.op.as_str() {
            "Shape" if standard => return Ok(vec![(Some(DType::I64), vec![self.new_extent()])]),
            "Size" if standard => return Ok(vec![(Some(DType::I64), Vec::new())]),
            "Reshape" if standard && first && self.opset >= 5 => {
                let list = operand(1).and_then(|id| self.values[id].constant.as_ref()?.as_i64());
                if let Some(list) = list.map(<[i64]>::to_vec) {
                    let extent = |e: &i64| if *e > 0 { *e } else { self.new_extent() };
                    return Ok(vec![(dtype, list.iter().map(extent).collect())]);
                }
                return self.ranked(node).ok_or(refused);
            }
            "Flatten" if standard => {
                return Ok(vec![(dtype, vec![self.new_extent(), self.new_extent()])]);
            }
            "Squeeze" | "Unsqueeze" if standard && first => {
                return Ok(vec![(dtype, vec![UNRANKED])]);
            }
            op if standard && op.starts_with("Reduce") && node.inputs.len() == 1 => {
                let keeps = node.int_or("keepdims", 1) != 0;
                let all = !node.attributes.contains_key("axes")
                    && node.int_or("noop_with_empty_axes", 0) != 1;
                return match all {
                    true => Ok(vec![(dtype, if keeps { vec![UNRANKED] } else { Vec::new() })]),
                    false => Err(refused),
                };
            }
            op if standard && operators::is_elementwise(op) => {}
            _ => return Err(refused),
        }
        // The type of the result is that for a vector.
        let shapes: Vec<Option<Vec<i64>>> = node
            .inputs
            .iter()
            .map(|i| i.and_then(|id| self.extents_of(id)))
            .map(|e| {
                e.map(|e| if is_unranked(&e) { vec![1] } else { e.iter().map(|_| 1).collect() })
            })
            .collect();
        let inputs = node.inputs.iter().zip(&shapes).map(|(id, shape)| {
            let v = &self.values[(*id)?];
            let (name, dtype, shape) = (v.name.as_str(), v.dtype, shape.as_deref());
            Some(NodeOperand { name, dtype, shape, constant: None })
        });
        let ctx = Ctx { node, opset: self.opset, inputs: inputs.collect() };
        let made = operators::infer(&ctx)?;
        Ok(made.into_iter().map(|o| (o.dtype, vec![UNRANKED])).collect())
    }

    fn results(&mut self, node: &Node) -> Result<Ranked, String> {
        if infer::is_choice(node) {
            return self.chosen(node);
        }
        let is_any = |id: &ValueId| self.open.get(id).is_some_and(|e| is_unranked(e));
        if let Some(of) = node.inputs.iter().flatten().copied().find(|id| is_any(id)) {
            return self.of_any_rank(node, of);
        }
        if let Some(any) = self.squeezed(node) {
            return Ok(any);
        }
        let mut numbers: HashMap<i64, usize> = HashMap::new();
        for id in node.inputs.iter().flatten() {
            for &e in self.open.get(id).into_iter().flatten().filter(|e| **e < 0) {
                let next = numbers.len();
                numbers.entry(e).or_insert(next);
            }
        }
        let first = self.tried(node, &numbers, Trial::Different(0));
        if let Ok(first) = first {
            let second = self.tried(node, &numbers, Trial::Different(1));
            let none = self.tried(node, &numbers, Trial::All(0)).ok();
            if let Ok(second) = second {
                return Ok(self.compared(node, &numbers, [&first, &second], none.as_ref()));
            }
        }
        // Extents that must be equal, or one.
        for all in [[Trial::Equal(0), Trial::Equal(1)], [Trial::All(1), Trial::All(1)]] {
            if let [Ok(a), Ok(b)] = all.map(|t| self.tried(node, &numbers, t)) {
                let none = HashMap::new();
                let mut results = self.compared(node, &none, [&a, &b], None);
                if matches!(all[0], Trial::All(_)) {
                    // An extent of 1 may be any in the run, where nothing else says what it is.
                    let fresh = |r: &mut Self, e: &mut i64| {
                        if *e == 1 {
                            *e = r.new_extent();
                        }
                    };
                    results.iter_mut().flat_map(|r| &mut r.1).for_each(|e| fresh(self, e));
                }
                return Ok(results);
            }
        }
        let why = self.tried(node, &numbers, Trial::Different(0)).err().unwrap_or_default();
        match self.ranked(node).filter(|_| why.contains(NOT_KNOWN)) {
            Some(ranked) => Ok(ranked),
            None => Err(why),
        }
    }

    /// The result of a `Squeeze` of all axes of one element: the run says which those are.
    fn squeezed(&self, node: &Node) -> Option<Ranked> {
        let all = node.inputs.len() < 2 && !node.attributes.contains_key("axes");
        let x = node.inputs.first().copied().flatten()?;
        let is_one = node.op == "Squeeze" && node.domain.is_empty() && all;
        is_one.then(|| vec![(self.values[x].dtype, vec![UNRANKED])])
    }

    fn tried(
        &self,
        node: &Node,
        numbers: &HashMap<i64, usize>,
        by: Trial,
    ) -> Result<Vec<Output>, String> {
        let number = |e: i64| match (e, by) {
            (e, _) if e >= 0 => e,
            (e, Trial::Different(k)) => trial(k, numbers.get(&e).copied().unwrap_or(0)),
            (_, Trial::Equal(k)) => trial(k, 0),
            (_, Trial::All(n)) => n,
        };
        let shapes: Vec<Option<Vec<i64>>> = node
            .inputs
            .iter()
            .map(|i| Some(self.extents_of((*i)?)?.into_iter().map(number).collect()))
            .collect();
        let operand = |(id, shape): (&Option<ValueId>, &'_ Option<Vec<i64>>)| {
            let v = &self.values[(*id)?];
            Some((v, shape.clone()))
        };
        let all: Vec<_> = node.inputs.iter().zip(&shapes).map(operand).collect();
        let inputs = all
            .iter()
            .map(|o| {
                o.as_ref().map(|(v, shape)| NodeOperand {
                    name: &v.name,
                    dtype: v.dtype,
                    shape: shape.as_deref(),
                    constant: v.constant.as_deref(),
                })
            })
            .collect();
        operators::infer(&Ctx { node, opset: self.opset, inputs })
    }

    /// What two trials, and one where nothing is there, have in common.
    fn compared(
        &mut self,
        node: &Node,
        numbers: &HashMap<i64, usize>,
        [a, b]: [&[Output]; 2],
        none: Option<&Vec<Output>>,
    ) -> Ranked {
        let mut results = Vec::new();
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            let mut extents = Vec::new();
            for (k, (&p, &q)) in x.shape.iter().zip(&y.shape).enumerate() {
                let left = none.and_then(|n| n.get(i)?.shape.get(k).copied());
                let same = numbers
                    .iter()
                    .find(|(_, n)| (trial(0, **n), trial(1, **n)) == (p, q))
                    .map(|(e, _)| *e);
                let found = by_elements(node, i, x.shape.len()).contains(&k);
                extents.push(match same {
                    _ if found => self.new_extent(),
                    Some(e) => e,
                    None if p == q && left.is_none_or(|n| n == p) => p,
                    None => self.new_extent(),
                });
            }
            results.push((x.dtype, extents));
        }
        results
    }

    /// The ranks of the results of an operator whose operands must be known for more.
    fn ranked(&mut self, node: &Node) -> Option<Ranked> {
        let operand = |i: usize| node.inputs.get(i).copied().flatten();
        let of = |r: &Self, i: usize| operand(i).and_then(|id| r.extents_of(id));
        let dtype = |r: &Self, i: usize| operand(i).and_then(|id| r.values[id].dtype);
        let length = |r: &Self, i: usize| match of(r, i)?[..] {
            [n] if (0..=MOST_AXES).contains(&n) => Some(n as usize),
            _ => None,
        };
        // A list whose length the run knows says of how many axes a result is.
        let is_open = |r: &Self, i: usize| of(r, i).is_some_and(|e| e.len() == 1 && e[0] < 0);
        let any = |to: Option<DType>| Some(vec![(to, vec![UNRANKED])]);
        if !matches!(node.domain.as_str(), "" | "ai.onnx") {
            return None;
        }
        let x = of(self, 0);
        let rank = x.as_ref().map(Vec::len);
        let mut to = dtype(self, 0);
        let rank = match node.op.as_str() {
            "Range" => 1,
            "Expand" | "Reshape" | "Squeeze" | "Unsqueeze" if is_open(self, 1) => return any(to),
            "Expand" => length(self, 1)?.max(rank?),
            "Reshape" => length(self, 1)?,
            "ConstantOfShape" => {
                to = match node.attributes.get("value") {
                    Some(Attribute::Tensor(t)) => t.dtype,
                    _ => Some(DType::F32),
                };
                if is_open(self, 0) {
                    return any(to);
                }
                length(self, 0)?
            }
            "Tile" | "Pad" | "Resize" | "Upsample" | "Slice" => rank?,
            "Squeeze" => rank?.checked_sub(length(self, 1)?)?,
            "Unsqueeze" => rank? + length(self, 1)?,
            op if op.starts_with("Reduce") => {
                match length(self, 1) {
                    _ if node.int_or("keepdims", 1) != 0 => rank?,
                    // No axes are all axes, or none.
                    Some(0) if node.int_or("noop_with_empty_axes", 0) != 0 => rank?,
                    Some(0) => 0,
                    Some(n) => rank?.checked_sub(n)?,
                    None if is_open(self, 1) => return any(to),
                    None => return None,
                }
            }
            _ => return self.along_axis(node, &x?),
        };
        let mut extents: Vec<i64> = (0..rank).map(|_| self.new_extent()).collect();
        if let ("Slice", Some(x)) = (node.op.as_str(), x) {
            let axes = operand(3).and_then(|id| self.values[id].constant.as_ref()?.as_i64());
            let axes: Option<Vec<usize>> = match (axes, operand(3)) {
                (Some(list), _) => list.iter().map(|a| infer::axis_of(*a, rank).ok()).collect(),
                (None, None) => length(self, 1).map(|n| (0..n).collect()),
                (None, Some(_)) => None,
            };
            if let Some(axes) = axes {
                let kept = |(i, e): (usize, &i64)| if axes.contains(&i) { extents[i] } else { *e };
                extents = x.iter().enumerate().map(kept).collect();
            }
        }
        Some(vec![(to, extents)])
    }

    /// The same where the extent along one axis alone is not known.
    fn along_axis(&mut self, node: &Node, x: &[i64]) -> Option<Ranked> {
        let dtype = |i: usize| self.values[node.inputs.get(i).copied().flatten()?].dtype;
        let (to, values) = (dtype(0), dtype(2));
        let usual = if node.op == "Split" { 0 } else { -1 };
        let axis = node.int_or("axis", usual);
        let rank = x.len() + usize::from(node.op == "OneHot");
        let axis = infer::axis_of(axis, rank).ok()?;
        let mut extents = x.to_vec();
        match node.op.as_str() {
            "OneHot" => {
                extents.insert(axis, self.new_extent());
                Some(vec![(values, extents)])
            }
            "Split" => {
                let mut parts = Vec::new();
                for _ in &node.outputs {
                    extents[axis] = self.new_extent();
                    parts.push((to, extents.clone()));
                }
                Some(parts)
            }
            "TopK" => {
                extents[axis] = self.new_extent();
                Some(vec![(to, extents.clone()), (Some(DType::I64), extents)])
            }
            _ => None,
        }
    }
}

/// The axes of a bounded operator's result whose extents its operands' elements decide.
fn by_elements(node: &Node, result: usize, rank: usize) -> Vec<usize> {
    if !is_bounded(&node.domain, &node.op) {
        return Vec::new();
    }
    let axis = match node.attributes.get("axis") {
        Some(Attribute::Int(a)) => infer::axis_of(*a, rank).unwrap_or(0),
        _ => 0,
    };
    match (node.op.as_str(), result) {
        ("NonZero", _) => vec![1],
        ("NonMaxSuppression", _) => vec![0],
        ("Compress" | "Unique", 0) => vec![axis],
        ("Unique", 1 | 3) => vec![0],
        _ => Vec::new(),
    }
}
