//! The conditions under which each step of a list has to run: a step whose results only one branch
//! of an `If` needs runs where the run takes that branch. Input: steps in an order of execution,
//! each with the values that it reads and gives, and the results of the whole; output: for each
//! step a list of booleans with the value that each must have.
//!
//! The analysis goes from the results backwards. A `Choose` (the node that stands for an `If`)
//! needs its condition and one of its operands, depending on the condition; where every reader of a
//! value is needed under a condition, the step that makes the value is, too. A step that runs
//! therefore never reads the result of one that did not. `graph/src/demand.rs` uses this for
//! networks, `compiler/src/plain/regions` for loops.

use super::infer::{is_choice, region};
use super::{Attribute, Model, Node, ValueId};
use crate::DType;
use std::collections::{BTreeSet, HashMap};

/// Booleans with the value that each must have, by their roots.
pub type Conditions = BTreeSet<(ValueId, bool)>;

/// The values that a step reads and gives.
#[derive(Clone, Debug, Default)]
pub struct Reads {
    /// Each value that is read, with the conditions under which the step needs it once it runs.
    pub needs: Vec<(ValueId, Conditions)>,
    /// The values that the step gives.
    pub gives: Vec<ValueId>,
}

impl Reads {
    /// The values that a node of a model reads and gives; `root` gives the value whose memory
    /// another one is.
    pub fn of(node: &Node, root: &dyn Fn(ValueId) -> ValueId, dtypes: &Types<'_>) -> Reads {
        let gives = node.outputs.clone();
        let always = |v: &ValueId| (root(*v), Conditions::new());
        let plain: Vec<(ValueId, Conditions)> = node.inputs.iter().flatten().map(always).collect();
        if let (true, [Some(flag), Some(yes), Some(no)]) = (is_choice(node), &node.inputs[..]) {
            let flag = root(*flag);
            if dtypes(flag) == Some(DType::Bool) {
                let under = |v: &ValueId, is| (root(*v), Conditions::from([(flag, is)]));
                let needs = vec![(flag, Conditions::new()), under(yes, true), under(no, false)];
                return Reads { needs, gives };
            }
        }
        let body = region::body(node).filter(|_| node.op == region::REGION);
        let Some(body) = body else { return Reads { needs: plain, gives } };
        // Conditions that come into a region are known ahead of it; those that it computes are not.
        let inner = traced(&steps(body), &results(node, body)).1;
        let outer = |id: ValueId| {
            let at = body.inputs.iter().position(|i| *i == id)?;
            node.inputs.get(at).copied().flatten().map(root)
        };
        let mut needs = plain;
        for ((_, under), id) in needs.iter_mut().zip(&body.inputs) {
            let known = inner.get(id).into_iter().flatten();
            *under = known.filter_map(|(flag, is)| Some((outer(*flag)?, *is))).collect();
        }
        Reads { needs, gives }
    }
}

/// The types of values.
pub type Types<'a> = dyn Fn(ValueId) -> Option<DType> + 'a;

/// For each step of a list in an order of execution the conditions under which it has to run, of
/// which there are none where it always has to; nothing for a step that nothing needs. Each
/// condition is known before its step. `results` are what the whole gives.
pub fn conditions(steps: &[Reads], results: &[ValueId]) -> Vec<Option<Conditions>> {
    let always = results.iter().map(|v| (*v, Conditions::new())).collect::<Vec<_>>();
    traced(steps, &always).0
}

/// The conditions of the nodes in the body of a region or of a loop.
pub fn of_body(node: &Node, body: &Model) -> Vec<Option<Conditions>> {
    traced(&steps(body), &results(node, body)).0
}

/// The results of a body, with the conditions under which what stands around it needs each.
pub fn results(node: &Node, body: &Model) -> Vec<(ValueId, Conditions)> {
    let mut all: Vec<(ValueId, Conditions)> =
        body.outputs.iter().map(|v| (*v, Conditions::new())).collect();
    if let Some(Attribute::Ints(list)) = node.attributes.get(region::UNDER) {
        for [place, flag, is] in list.as_chunks::<3>().0 {
            let result = usize::try_from(*place).ok().and_then(|k| all.get_mut(k));
            if let (Some((_, under)), Ok(flag)) = (result, ValueId::try_from(*flag)) {
                under.insert((flag, *is != 0));
            }
        }
    }
    // A value that is given twice is needed where one of both is.
    let both = |v: ValueId| {
        let same = all.iter().filter(|r| r.0 == v).map(|r| r.1.clone());
        same.reduce(|a, b| a.intersection(&b).copied().collect()).unwrap_or_default()
    };
    all.iter().map(|(v, _)| (*v, both(*v))).collect()
}

fn steps(model: &Model) -> Vec<Reads> {
    let root = |v: ValueId| model.values[v].alias.unwrap_or(v);
    model.nodes.iter().map(|n| Reads::of(n, &root, &|v| model.values[v].dtype)).collect()
}

/// The values that are needed so far, with the conditions under which each is.
#[derive(Default)]
struct Demand(HashMap<ValueId, Conditions>);

impl Demand {
    /// Notes that a value is needed under conditions, too.
    fn note(&mut self, v: ValueId, under: Conditions) {
        let both = match self.0.get(&v) {
            Some(known) => known.intersection(&under).copied().collect(),
            None => under,
        };
        self.0.insert(v, both);
    }
}

/// The same for results that are needed under conditions, and the values that are needed, with the
/// conditions under which each is.
pub fn traced(
    steps: &[Reads],
    results: &[(ValueId, Conditions)],
) -> (Vec<Option<Conditions>>, HashMap<ValueId, Conditions>) {
    let mut all = vec![None; steps.len()];
    let mut made: HashMap<ValueId, usize> = HashMap::new();
    for (i, step) in steps.iter().enumerate() {
        made.extend(step.gives.iter().map(|v| (*v, i)));
    }
    let mut demand = Demand::default();
    results.iter().for_each(|(v, under)| demand.note(*v, under.clone()));
    for (i, step) in steps.iter().enumerate().rev() {
        let known = step.gives.iter().filter_map(|v| demand.0.get(v));
        let own = known.cloned().reduce(|a, b| a.intersection(&b).copied().collect());
        let Some(mut own) = own else { continue };
        own.retain(|(flag, _)| made.get(flag).is_none_or(|at| *at < i));
        for (v, more) in &step.needs {
            demand.note(*v, own.union(more).copied().collect());
        }
        all[i] = Some(own);
    }
    (all, demand.0)
}
