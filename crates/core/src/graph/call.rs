//! The call of one operator with operands of known types and shapes, as data: the input from which
//! the compiler generates a plain operator, C code for one node that no tuned kernel covers
//! (`compiler/src/plain`). Input: a node of a model; output: an [`OperatorCall`], or the operand
//! whose type or shape is unknown.

use super::{Attribute, Constant, Model, Node, ValueId};
use crate::DType;
use std::collections::BTreeMap;

/// The most elements that a constant operand of an [`OperatorCall`] brings along.
pub const MOST_CALL_ELEMENTS: usize = 4096;

/// Operators whose results' extents depend on their operands' elements. The shapes that inference
/// gives to results of theirs are the largest that they may have.
pub const BOUNDED: &[&str] = &["Compress", "NonMaxSuppression", "NonZero", "Unique"];

/// Whether inference gives the results of an operator the largest shapes that they may have.
pub fn is_bounded(domain: &str, op: &str) -> bool {
    matches!(domain, "" | "ai.onnx") && BOUNDED.contains(&op)
}

/// An operand or a result of an [`OperatorCall`].
#[derive(Clone, Debug, PartialEq)]
pub struct CallOperand {
    /// The type of its elements; a boolean is a byte that is 0 or 1.
    pub dtype: DType,
    /// Extents, outermost first; its elements lie in row-major order. Of a result of a
    /// [bounded](is_bounded) operator the largest extents.
    pub shape: Vec<i64>,
    /// The elements, where they are known ahead of the run and are no more than
    /// [`MOST_CALL_ELEMENTS`]. The operand is given to the function all the same.
    pub constant: Option<Constant>,
}

/// One application of an operator, as a plain operator runs it. It becomes a C function
///
/// ```c
/// int SYMBOL(const void *const *in, void *const *out, void *scratch);
/// ```
///
/// `in[i]` and `out[i]` are the elements of `inputs[i]` and `outputs[i]`, null where these are
/// none (a result behind the last one that is used). Results share no memory with operands, nor
/// with each other. A pointer to a tensor without elements must not be read. Of a
/// [bounded](is_bounded) operator `out[outputs.len()]` is one vector of int64, to which the
/// function writes the extents that its results have in this run: those of the first result, then
/// those of the next (of absent results none); each result's elements lie row-major in these
/// extents from its start on. The function allocates nothing, has no state, and gives 0, or 1
/// where an operand has an illegal element, such as an index that is out of range.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorCall {
    /// The operator.
    pub op: String,
    /// Its domain; empty for the standard ones.
    pub domain: String,
    /// The version of the standard operators.
    pub opset: i64,
    /// Named constants.
    pub attributes: BTreeMap<String, Attribute>,
    /// Operands; optional ones may be absent.
    pub inputs: Vec<Option<CallOperand>>,
    /// Results; those that the file does not name are absent.
    pub outputs: Vec<Option<CallOperand>>,
}

impl OperatorCall {
    /// The call of a node; says what is not known of its operands or results. `constant` gives the
    /// elements of a value that are known ahead of the run. Of the results behind the last one that
    /// `wanted` names none is computed.
    pub fn of_node<'a>(
        model: &'a Model,
        node: &Node,
        constant: &dyn Fn(ValueId) -> Option<&'a Constant>,
        wanted: &dyn Fn(ValueId) -> bool,
    ) -> Result<OperatorCall, String> {
        let operand = |id: ValueId, constant: Option<&Constant>| {
            let v = &model.values[id];
            let dtype = v.dtype.ok_or_else(|| format!("the type of `{}` is not known", v.name))?;
            let shape = v.shape.clone();
            let shape = shape.ok_or_else(|| format!("the shape of `{}` is not known", v.name))?;
            let constant = constant.filter(|c| c.len() <= MOST_CALL_ELEMENTS).cloned();
            Ok::<_, String>(CallOperand { dtype, shape, constant })
        };
        let inputs = node.inputs.iter().map(|i| i.map(|i| operand(i, constant(i))).transpose());
        let count = node.outputs.iter().rposition(|o| wanted(*o)).map_or(0, |last| last + 1);
        let outputs = node.outputs.iter().enumerate().map(|(i, &o)| {
            let given = (i < count).then(|| operand(o, None));
            given.transpose()
        });
        Ok(OperatorCall {
            op: node.op.clone(),
            domain: node.domain.clone(),
            opset: model.opset,
            attributes: node.attributes.clone(),
            inputs: inputs.collect::<Result<_, _>>()?,
            outputs: outputs.collect::<Result<_, _>>()?,
        })
    }

    /// How many extents a call of a [bounded](is_bounded) operator writes behind its results; 0 of
    /// any other.
    pub fn extents(&self) -> usize {
        if !is_bounded(&self.domain, &self.op) {
            return 0;
        }
        self.outputs.iter().flatten().map(|o| o.shape.len()).sum()
    }
}
