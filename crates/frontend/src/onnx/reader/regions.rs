//! Makes regions: nodes that read or give open extents (which only the run knows), and loops,
//! become one node each, whose body the run walks through as it finds the extents. Nodes that lie
//! between two nodes of a region belong to it. Input: the reader's nodes; output: a model whose
//! remaining nodes have known shapes. `compiler/src/plain/regions` generates the C of a region.

use super::Reader;
use squall_core::DType;
use squall_core::graph::demand::{self, Conditions, Reads};
use squall_core::graph::infer::Ctx;
use squall_core::graph::infer::nbits::DOMAIN;
use squall_core::graph::infer::region::{BODY, GROWN, REGION, UNDER, is_exact};
use squall_core::graph::{Attribute, Model, Node, Value, ValueId, is_bounded};
use squall_core::operators;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

impl Reader<'_> {
    fn root(&self, id: ValueId) -> ValueId {
        self.values[id].alias.unwrap_or(id)
    }

    /// The values that nodes read and that neither they nor anything `given` makes, with those
    /// among `results` that they do not make either.
    pub(super) fn captured(
        &self,
        nodes: &[&Node],
        given: &[ValueId],
        results: &[ValueId],
    ) -> Vec<ValueId> {
        let made: HashSet<ValueId> =
            nodes.iter().flat_map(|n| &n.outputs).chain(given).copied().collect();
        let read = nodes.iter().flat_map(|n| n.inputs.iter().flatten()).chain(results);
        let roots = read.map(|id| self.root(*id)).filter(|id| !made.contains(id));
        let mut seen = HashSet::new();
        roots.filter(|id| seen.insert(*id)).collect()
    }

    /// Nodes as a model of their own over what they read.
    pub(super) fn as_model(
        &self,
        nodes: &[&Node],
        inputs: &[ValueId],
        outputs: &[ValueId],
    ) -> Option<Model> {
        let mut values: Vec<Value> = Vec::new();
        let mut known: HashMap<ValueId, ValueId> = HashMap::new();
        let value = |id: ValueId| Value {
            shape: self.extents_of(id),
            constant: None,
            weight: false,
            alias: None,
            ..self.values[id].clone()
        };
        for &id in inputs {
            known.insert(id, values.len());
            values.push(value(id));
        }
        let mut list = Vec::new();
        for n in nodes {
            let mut node = (*n).clone();
            for i in node.inputs.iter_mut().flatten() {
                *i = *known.get(&self.root(*i))?;
            }
            for o in &mut node.outputs {
                known.insert(*o, values.len());
                values.push(value(*o));
                *o = values.len() - 1;
            }
            list.push(node);
        }
        let outputs = outputs.iter().map(|id| known.get(&self.root(*id)).copied());
        Some(Model {
            nodes: list,
            values,
            inputs: (0..inputs.len()).collect(),
            outputs: outputs.collect::<Option<_>>()?,
            opset: self.opset,
            name: String::new(),
        })
    }

    /// Whether a node belongs into a region.
    fn is_member(&self, n: &Node) -> bool {
        let mut all = n.inputs.iter().flatten().chain(&n.outputs);
        !n.folded
            && (matches!(n.attributes.get(BODY), Some(Attribute::Body(_)))
                || all.any(|id| self.open.contains_key(id)))
    }

    /// Under which conditions each node and each value is needed; what nothing needs has none.
    fn conditions(&self, outputs: &[ValueId]) -> (Vec<Conditions>, HashMap<ValueId, Conditions>) {
        let root = |id: ValueId| self.root(id);
        let steps: Vec<Reads> =
            self.nodes.iter().map(|n| Reads::of(n, &root, &|id| self.values[id].dtype)).collect();
        let always = |id: &ValueId| (self.root(*id), Conditions::new());
        let results: Vec<(ValueId, Conditions)> = outputs.iter().map(always).collect();
        let (nodes, values) = demand::traced(&steps, &results);
        (nodes.into_iter().map(Option::unwrap_or_default).collect(), values)
    }

    /// The regions, as sets of nodes.
    fn sets(&self, outputs: &[ValueId]) -> Vec<BTreeSet<usize>> {
        let members: Vec<usize> =
            (0..self.nodes.len()).filter(|i| self.is_member(&self.nodes[*i])).collect();
        if members.is_empty() {
            return Vec::new();
        }
        let mut maker: HashMap<ValueId, usize> = HashMap::new();
        for (i, n) in self.nodes.iter().enumerate().filter(|(_, n)| !n.folded) {
            n.outputs.iter().for_each(|o| _ = maker.insert(*o, i));
        }
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut behind = before.clone();
        let mut sets: Vec<BTreeSet<usize>> = members.iter().map(|m| [*m].into()).collect();
        for (i, n) in self.nodes.iter().enumerate().filter(|(_, n)| !n.folded) {
            for id in n.inputs.iter().flatten() {
                let Some(&m) = maker.get(&self.root(*id)) else { continue };
                before[i].push(m);
                behind[m].push(i);
                if self.open.contains_key(&self.root(*id)) {
                    join(&mut sets, i, m);
                }
            }
        }
        // A node of a branch comes behind what decides whether it runs.
        for (i, under) in self.conditions(outputs).0.into_iter().enumerate() {
            for m in under.iter().filter_map(|(flag, _)| maker.get(flag)) {
                before[i].push(*m);
                behind[*m].push(i);
            }
        }
        // What comes behind one node of a region and before another belongs to it, too.
        loop {
            let mut between = None;
            let mut of = vec![None; self.nodes.len()];
            for (k, s) in sets.iter().enumerate() {
                s.iter().for_each(|n| of[*n] = Some(k));
            }
            for (k, s) in sets.iter().enumerate() {
                let after = reached(k, &sets, &of, &behind);
                let ahead = reached(k, &sets, &of, &before);
                if let Some(&n) = after.intersection(&ahead).find(|n| !s.contains(n)) {
                    between = Some((*s.first().unwrap_or(&n), n, after, ahead));
                    break;
                }
            }
            let Some((first, _, after, ahead)) = between else { return sets };
            for &n in after.intersection(&ahead) {
                if !sets.iter().any(|s| s.contains(&n)) {
                    sets.push([n].into());
                }
                join(&mut sets, first, n);
            }
        }
    }

    /// Puts regions in the place of their nodes, and finishes the model.
    pub(super) fn model(
        mut self,
        inputs: Vec<ValueId>,
        outputs: Vec<ValueId>,
        name: String,
    ) -> Model {
        let mut sets = self.sets(&outputs);
        sets.retain(|s| !self.stays_bounded(s));
        let (conditions, demand) = self.conditions(&outputs);
        if sets.is_empty() {
            let (nodes, values) = (self.nodes, self.values);
            return Model { nodes, values, inputs, outputs, opset: self.opset, name };
        }
        let mut kept: Vec<Option<Node>> =
            std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        let inside: HashSet<usize> = sets.iter().flatten().copied().collect();
        let mut used: HashSet<ValueId> = outputs.iter().map(|id| self.root(*id)).collect();
        for (_, n) in
            kept.iter().flatten().enumerate().filter(|(i, n)| !inside.contains(i) && !n.folded)
        {
            used.extend(n.inputs.iter().flatten().map(|id| self.root(*id)));
        }
        let all: Vec<Vec<Node>> =
            sets.iter().map(|s| s.iter().filter_map(|i| kept[*i].take()).collect()).collect();
        // A value that one region makes may be read in another.
        for (k, nodes) in all.iter().enumerate() {
            let nodes: Vec<&Node> = nodes.iter().collect();
            let read = self.captured(&nodes, &[], &[]);
            let others = all.iter().enumerate().filter(|(j, _)| *j != k);
            let made: HashSet<ValueId> =
                others.flat_map(|(_, o)| o).flat_map(|n| n.outputs.clone()).collect();
            used.extend(read.into_iter().filter(|id| made.contains(id)));
        }
        // What decides whether a node runs, or all nodes of a region.
        let mut waits: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
        for (i, n) in kept.iter().enumerate() {
            let flags: Vec<ValueId> = conditions[i].iter().map(|c| c.0).collect();
            n.iter().flat_map(|n| &n.outputs).for_each(|o| _ = waits.insert(*o, flags.clone()));
        }
        let mut last = Vec::new();
        for (s, nodes) in sets.iter().zip(&all) {
            let nodes: Vec<&Node> = nodes.iter().collect();
            let own: HashSet<ValueId> = nodes.iter().flat_map(|n| &n.outputs).copied().collect();
            let all = s.iter().map(|i| conditions[*i].clone());
            let common = all.reduce(|a, b| a.intersection(&b).copied().collect());
            let flags = common.into_iter().flatten().map(|c| c.0).filter(|f| !own.contains(f));
            let flags: Vec<ValueId> = flags.collect();
            let node = self.region(&nodes, &used, &demand);
            node.outputs.iter().for_each(|o| _ = waits.insert(*o, flags.clone()));
            last.push((*s.last().unwrap_or(&0), node));
        }
        let inner: HashSet<ValueId> = all
            .iter()
            .flatten()
            .flat_map(|n| n.outputs.clone())
            .filter(|id| !used.contains(id))
            .collect();
        let mut nodes: Vec<Node> =
            kept.into_iter().flatten().chain(last.into_iter().map(|l| l.1)).collect();
        nodes.retain(|n| {
            !n.folded || n.inputs.iter().flatten().all(|id| !inner.contains(&self.root(*id)))
        });
        self.ordered(nodes, &waits, [&inputs, &outputs], name)
    }

    /// A bounded operator alone whose results nothing reads stays as it is: its results have the
    /// largest extents.
    fn stays_bounded(&mut self, set: &BTreeSet<usize>) -> bool {
        let Some(&at) = set.first().filter(|_| set.len() == 1) else { return false };
        let n = &self.nodes[at];
        if !is_bounded(&n.domain, &n.op)
            || n.inputs.iter().flatten().any(|i| self.open.contains_key(i))
        {
            return false;
        }
        let made = operators::infer(&Ctx::new(n, self.opset, &self.values)).unwrap_or_default();
        for (id, o) in self.nodes[at].outputs.clone().into_iter().zip(made) {
            self.give(id, o.dtype, o.shape);
        }
        true
    }

    /// The node that stands for others.
    fn region(
        &mut self,
        nodes: &[&Node],
        used: &HashSet<ValueId>,
        demand: &HashMap<ValueId, Conditions>,
    ) -> Node {
        let inputs = self.captured(nodes, &[], &[]);
        let outputs: Vec<ValueId> =
            nodes.iter().flat_map(|n| &n.outputs).copied().filter(|o| used.contains(o)).collect();
        let body = self.as_model(nodes, &inputs, &outputs);
        let problem = nodes.iter().find_map(|n| Some((n, n.problem.as_ref()?)));
        let problem = problem.map(|(n, why)| format!("node `{}` ({}): {why}", n.name, n.op));
        let problem =
            problem.or_else(|| body.is_none().then(|| "its nodes stand in no order".into()));
        for &o in &outputs {
            let is_open = !is_exact(self.extents_of(o).as_deref());
            if is_open && problem.is_none() {
                self.give(o, Some(DType::I64), vec![GROWN]);
            }
        }
        let name = nodes.first().map_or(String::new(), |n| n.name.clone());
        // Conditions that are known in the region, by the names of their booleans.
        let mut under = Vec::new();
        for (k, o) in outputs.iter().enumerate() {
            for (flag, is) in demand.get(o).into_iter().flatten() {
                let named =
                    |m: &Model| m.values.iter().position(|v| v.name == self.values[*flag].name);
                if let Some(place) = body.as_ref().and_then(named) {
                    under.extend([k as i64, place as i64, i64::from(*is)]);
                }
            }
        }
        let body = body.map(|m| (BODY.to_string(), Attribute::Body(Box::new(m))));
        let under = Some(under).filter(|u| !u.is_empty());
        let under = under.map(|u| (UNDER.to_string(), Attribute::Ints(u)));
        Node {
            name,
            op: REGION.into(),
            domain: DOMAIN.into(),
            inputs: inputs.into_iter().map(Some).collect(),
            outputs,
            attributes: BTreeMap::from_iter(body.into_iter().chain(under)),
            folded: false,
            problem,
        }
    }

    /// Nodes in an order of execution, with the values that they read and give, numbered anew.
    /// `behind` says for results what has to be known before, though their nodes do not read it.
    fn ordered(
        self,
        nodes: Vec<Node>,
        behind: &HashMap<ValueId, Vec<ValueId>>,
        [inputs, outputs]: [&[ValueId]; 2],
        name: String,
    ) -> Model {
        let mut waits: HashSet<ValueId> = nodes.iter().flat_map(|n| n.outputs.clone()).collect();
        let mut read: HashSet<ValueId> = outputs.iter().copied().collect();
        read.extend(nodes.iter().flat_map(|n| n.inputs.iter().flatten()));
        read.extend(read.clone().into_iter().filter_map(|id| self.values[id].alias));
        let mut number: HashMap<ValueId, ValueId> = HashMap::new();
        let mut values = Vec::new();
        for (id, v) in self.values.iter().enumerate() {
            let is_kept = read.contains(&id) || inputs.contains(&id);
            if is_kept && !waits.contains(&id) {
                number.insert(id, values.len());
                values.push(v.clone());
            }
        }
        let (mut rest, mut list) = (nodes, Vec::new());
        while !rest.is_empty() {
            let mut later = Vec::new();
            let before = rest.len();
            for mut n in rest {
                let alias = n.outputs.iter().filter_map(|o| self.values[*o].alias);
                let flags = n.outputs.first().and_then(|o| behind.get(o)).into_iter().flatten();
                let read = n.inputs.iter().flatten().chain(flags).copied();
                let needs: Vec<ValueId> = read.chain(alias).collect();
                if needs.iter().any(|id| waits.contains(id)) {
                    later.push(n);
                    continue;
                }
                for o in &mut n.outputs {
                    waits.remove(o);
                    number.insert(*o, values.len());
                    values.push(self.values[*o].clone());
                    *o = values.len() - 1;
                }
                for i in n.inputs.iter_mut().flatten() {
                    *i = number.get(i).copied().unwrap_or(*i);
                }
                list.push(n);
            }
            rest = later;
            if rest.len() == before {
                break;
            }
        }
        for v in &mut values {
            v.alias = v.alias.and_then(|a| number.get(&a).copied());
        }
        let renumbered =
            |ids: &[ValueId]| ids.iter().filter_map(|id| number.get(id).copied()).collect();
        let (inputs, outputs) = (renumbered(inputs), renumbered(outputs));
        Model { nodes: list, values, inputs, outputs, opset: self.opset, name }
    }
}

/// Makes the sets of two nodes one, where both have one.
fn join(sets: &mut Vec<BTreeSet<usize>>, a: usize, b: usize) {
    let of = |n: usize, sets: &[BTreeSet<usize>]| sets.iter().position(|s| s.contains(&n));
    let (Some(i), Some(k)) = (of(a, sets), of(b, sets)) else { return };
    if i != k {
        let moved = sets.swap_remove(i.max(k));
        sets[i.min(k)].extend(moved);
    }
}

/// All nodes that are reached from those of a set; who reaches one node of another set reaches all
/// of that. `of` says of which set a node is.
fn reached(
    from: usize,
    sets: &[BTreeSet<usize>],
    of: &[Option<usize>],
    next: &[Vec<usize>],
) -> BTreeSet<usize> {
    let mut open: Vec<usize> = sets[from].iter().flat_map(|n| next[*n].clone()).collect();
    let mut seen = BTreeSet::new();
    let mut whole = vec![false; sets.len()];
    while let Some(n) = open.pop() {
        if seen.insert(n) {
            open.extend(&next[n]);
            if let Some(k) =
                of[n].filter(|k| *k != from && !std::mem::replace(&mut whole[*k], true))
            {
                open.extend(&sets[k]);
            }
        }
    }
    seen
}
