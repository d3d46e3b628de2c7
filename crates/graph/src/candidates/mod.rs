//! The first stage of the graph compiler: fusion candidates, the sets of a model's nodes that may
//! be one kernel. Input: a model; output: [`Candidates`], all that the rules of fusion (`../rules`)
//! find at each node, and the reasons why the other nodes have no kernel. They may overlap; a
//! solver (`../solvers`) chooses among them. `text.rs` prints and parses them, `verify.rs` checks
//! them.

mod text;
mod verify;

use crate::candidate::{FusionCandidate, MakesChain};
use crate::feed::Feed;
use crate::rules::{JOINED, RULES};
use crate::view::{View, is_of_known_domain};
use squall_core::graph::{Model, Node, ValueId};
use squall_core::operator::FewBits;
use squall_core::operators::standard;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The candidates of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// The model.
    pub model: Arc<Model>,
    /// The candidates in the order of their first nodes; at one node smaller ones first.
    pub list: Vec<FusionCandidate>,
    /// For each node with which no candidate begins, the reason.
    pub refused: BTreeMap<usize, String>,
}

impl Candidates {
    /// Finds all candidates; chains of operators only where `makes_chain` says that the device has
    /// a kernel for them.
    pub fn of(model: Arc<Model>, makes_chain: MakesChain) -> Candidates {
        let view = View::new(&model);
        let (mut list, mut refused) = (Vec::new(), BTreeMap::new());
        for (i, node) in model.nodes.iter().enumerate().filter(|(_, n)| !n.folded) {
            let before = list.len();
            match found(&view, i, makes_chain) {
                Ok(made) => list.extend(made),
                Err(reason) => _ = refused.insert(i, reason),
            }
            if list.len() == before && !refused.contains_key(&i) {
                refused.insert(i, why_not(node));
            }
        }
        // A concatenation that a kernel reads in parts is never made, so that no other kernel can
        // read it.
        let of_parts = list.iter().filter(|c| c.rule == JOINED);
        let joined: BTreeSet<ValueId> =
            of_parts.flat_map(|c| model.nodes[c.nodes[0]].outputs.clone()).collect();
        let reads = |c: &FusionCandidate| {
            c.feeds.iter().flat_map(Feed::values).any(|v| joined.contains(&view.root(v)))
        };
        list.retain(|c| !reads(c));
        Candidates { model: model.clone(), list, refused }
    }

    /// For each node the candidates that begin with it, by their numbers in the list.
    pub fn by_first_node(&self) -> Vec<Vec<usize>> {
        let mut by = vec![Vec::new(); self.model.nodes.len()];
        for (i, c) in self.list.iter().enumerate() {
            if let Some(&first) = c.nodes.first() {
                by[first].push(i);
            }
        }
        by
    }
}

/// The candidates of all rules at a node; a reason only where no rule finds any.
fn found(
    view: &View<'_>,
    index: usize,
    makes_chain: MakesChain,
) -> Result<Vec<FusionCandidate>, String> {
    let node = &view.model.nodes[index];
    if !is_of_known_domain(node) {
        return Err(format!("operators of the domain `{}` are not known", node.domain));
    }
    let (mut list, mut reason) = (Vec::new(), None);
    for made in RULES.iter().filter_map(|r| (r.find)(view, index, makes_chain)) {
        match made {
            Ok(made) => list.extend(made),
            Err(why) => _ = reason.get_or_insert(why),
        }
    }
    // Kernels of few bits are made for a product alone.
    let of_few_bits = |n: &usize| view.model.nodes[*n].op == "MatMulNBits";
    list.retain(|c: &FusionCandidate| {
        !c.nodes.iter().any(of_few_bits) || FewBits::of(&c.workload).is_some()
    });
    match reason {
        Some(why) if list.is_empty() => Err(why),
        _ => Ok(list),
    }
}

/// Whether an operator moves or makes data without arithmetic.
pub fn moves_data(op: &str) -> bool {
    standard(op).is_some_and(|row| row.is_movement)
}

/// Why an operator has no kernel.
fn why_not(node: &Node) -> String {
    if let Some(problem) = &node.problem {
        return problem.clone();
    }
    match node.op.as_str() {
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => {
            "it only renames dimensions: nothing is computed".into()
        }
        op if moves_data(op) => "it moves data without computing: nothing to tune".into(),
        "If" | "Loop" | "Scan" => {
            "it is control flow, and the nodes inside are not looked at".into()
        }
        "Resize" | "Upsample" | "LSTM" | "GRU" | "RNN" | "Einsum" | "Attention" => {
            format!("kernels for {} are not made yet", node.op)
        }
        op => format!("there is no kernel for {op}"),
    }
}
