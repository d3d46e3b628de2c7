//! A view of a model with its uses: the value behind an alias, the nodes that read each value, the
//! node that makes it, and node attributes with defaults. Built once from a model; the rules of
//! fusion, solvers and rewritings all look at models through it.

use squall_core::DType;
use squall_core::TensorKind;
use squall_core::graph::infer::nbits;
use squall_core::graph::infer::{Ctx, NodeOperand};
use squall_core::graph::{Attribute, Constant, Model, Node, ValueId};
pub use squall_core::operators::decimal;

/// A model with the readers and the maker of each value.
pub struct View<'a> {
    /// The model.
    pub model: &'a Model,
    users: Vec<Vec<usize>>,
    producer: Vec<Option<usize>>,
    output: Vec<bool>,
}

impl<'a> View<'a> {
    /// Counts uses; nodes that need no execution use nothing.
    pub fn new(model: &'a Model) -> View<'a> {
        let n = model.values.len();
        let mut view = View {
            model,
            users: vec![Vec::new(); n],
            producer: vec![None; n],
            output: vec![false; n],
        };
        for (i, node) in model.nodes.iter().enumerate().filter(|(_, n)| !n.folded) {
            for &id in node.inputs.iter().flatten() {
                let root = view.root(id);
                if view.users[root].last() != Some(&i) {
                    view.users[root].push(i);
                }
            }
            for &id in &node.outputs {
                view.producer[id] = Some(i);
            }
        }
        for &id in &model.outputs {
            let root = view.root(id);
            view.output[root] = true;
        }
        view
    }

    /// The value behind a chain of aliases.
    pub fn root(&self, mut id: ValueId) -> ValueId {
        // A chain is no longer than there are values.
        for _ in 0..self.model.values.len() {
            match self.model.values[id].alias {
                Some(next) => id = next,
                None => break,
            }
        }
        id
    }

    /// The nodes that read a value.
    pub fn users(&self, root: ValueId) -> &[usize] {
        &self.users[root]
    }

    /// The node that computes a value at run time.
    pub fn producer(&self, root: ValueId) -> Option<usize> {
        self.producer[root]
    }

    /// Whether the model gives this value to its caller.
    pub fn is_output(&self, root: ValueId) -> bool {
        self.output[root]
    }

    /// Extents, where all are known and none is empty.
    pub fn shape(&self, id: ValueId) -> Option<&'a [i64]> {
        let own = |id: ValueId| self.model.values[id].shape.as_deref();
        let shape = own(id).or_else(|| own(self.root(id)))?;
        shape.iter().all(|e| *e > 0).then_some(shape)
    }

    /// The name that the file gives a value.
    pub fn name(&self, id: ValueId) -> &'a str {
        &self.model.values[id].name
    }

    /// The data, where it is known.
    pub fn constant(&self, id: ValueId) -> Option<&'a Constant> {
        let own = |id: ValueId| self.model.values[id].constant.as_deref();
        own(id).or_else(|| own(self.root(id)))
    }

    /// The one number of a constant.
    pub fn scalar(&self, id: ValueId) -> Option<f64> {
        match self.constant(id)? {
            Constant::F32 { data, .. } => match data[..] {
                [x] => Some(decimal(x)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whole numbers that are known.
    pub fn ints(&self, id: ValueId) -> Option<&'a [i64]> {
        match self.constant(id)? {
            Constant::I64 { data, .. } => Some(data),
            _ => None,
        }
    }

    /// Whether the value is constant over calls.
    pub fn is_weight(&self, id: ValueId) -> bool {
        let one =
            |id: ValueId| self.model.values[id].weight || self.model.values[id].constant.is_some();
        one(id) || one(self.root(id))
    }

    /// Data or weight.
    pub fn kind(&self, id: ValueId) -> TensorKind {
        if self.is_weight(id) { TensorKind::Weight } else { TensorKind::Data }
    }

    /// Whether a value holds 32-bit floats.
    pub fn is_f32(&self, id: ValueId) -> bool {
        self.model.values[id].dtype == Some(DType::F32)
    }

    /// A node with the known types, shapes and elements of its operands, behind their aliases.
    pub fn ctx(&self, node: &'a Node) -> Ctx<'a> {
        let operand = |id: ValueId| {
            let v = &self.model.values[id];
            let shape = v.shape.as_deref().or(self.model.values[self.root(id)].shape.as_deref());
            NodeOperand { name: &v.name, dtype: v.dtype, shape, constant: self.constant(id) }
        };
        let inputs = node.inputs.iter().map(|id| id.map(operand)).collect();
        Ctx { node, opset: self.model.opset, inputs }
    }

    /// The shape of a node's i-th input, which must be there, of 32-bit floats.
    pub fn operand(&self, node: &Node, i: usize) -> Result<(ValueId, &'a [i64]), String> {
        let id = input(node, i).ok_or_else(|| format!("its input {i} is missing"))?;
        if !self.is_f32(id) {
            return Err(format!(
                "its input `{}` is not of 32-bit floats; kernels are made for f32 today",
                self.name(id)
            ));
        }
        let shape = self
            .shape(id)
            .ok_or_else(|| format!("the shape of `{}` is not known", self.name(id)))?;
        Ok((id, shape))
    }

    /// A node's only result and its shape.
    pub fn result(&self, node: &Node) -> Result<(ValueId, &'a [i64]), String> {
        let [id, rest @ ..] = &node.outputs[..] else { return Err("it has no output".into()) };
        if let Some(id) = rest.iter().find(|&&id| !self.users(id).is_empty() || self.is_output(id))
        {
            return Err(format!(
                "its further output `{}` is used, and kernels compute one",
                self.name(*id)
            ));
        }
        if !self.is_f32(*id) {
            return Err("its result is not of 32-bit floats; kernels are made for f32 today".into());
        }
        match self.shape(*id) {
            Some(shape) => Ok((*id, shape)),
            None => Err("the shape of its result is not known".into()),
        }
    }
}

/// Whether a node's operator is of a domain that kernels are made for.
pub fn is_of_known_domain(n: &Node) -> bool {
    matches!(n.domain.as_str(), "" | "ai.onnx" | nbits::DOMAIN)
}

/// Whether a node is this operator of the standard domain, and nothing is wrong with it.
pub fn is_standard(n: &Node, op: &str) -> bool {
    n.op == op && matches!(n.domain.as_str(), "" | "ai.onnx") && n.problem.is_none()
}

/// A node's i-th input, where it is given.
pub fn input(node: &Node, i: usize) -> Option<ValueId> {
    node.inputs.get(i).copied().flatten()
}

/// A whole number among a node's attributes.
pub fn int(node: &Node, name: &str, default: i64) -> i64 {
    node.int_or(name, default)
}

/// A number among a node's attributes, as the decimal that it was written as.
pub fn float(node: &Node, name: &str, default: f64) -> f64 {
    match node.attributes.get(name) {
        Some(Attribute::Float(x)) => decimal(*x),
        _ => default,
    }
}

/// A list of whole numbers among a node's attributes.
pub fn ints<'n>(node: &'n Node, name: &str) -> Option<&'n [i64]> {
    match node.attributes.get(name) {
        Some(Attribute::Ints(list)) => Some(list),
        _ => None,
    }
}

/// A word among a node's attributes.
pub fn word<'n>(node: &'n Node, name: &str, default: &'n str) -> &'n str {
    match node.attributes.get(name) {
        Some(Attribute::String(s)) => s,
        _ => default,
    }
}

/// An axis counted from the end where it is negative.
pub fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let rank = rank as i64;
    let at = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&at) {
        Ok(at as usize)
    } else {
        Err(format!("its axis {axis} is not one of {rank}"))
    }
}

/// Whether a node is such an operator of ONNX's own, and computed at run time.
pub fn runs(n: &Node, op: &str) -> bool {
    is_standard(n, op) && !n.folded
}
