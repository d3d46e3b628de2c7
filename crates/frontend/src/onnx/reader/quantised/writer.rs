//! Writes the nodes that replace those of a quantised model, and keeps the facts about its values:
//! constants, types, and each quantised value's companion (floats that hold its integers without
//! their zero point). The functions in `calls.rs` work on it.

use super::super::inline::{self, identity, int, simple};
use crate::onnx::proto::{AttributeProto, NodeProto, TensorProto};
use crate::onnx::stored::Stored;
use crate::onnx::tensor::tensor;
use squall_core::DType;
use squall_core::graph::{Constant, elements};
use std::collections::{HashMap, HashSet};

/// A quantised value's companion.
#[derive(Clone)]
pub(super) struct Companion {
    /// The value of floats that holds the integers without their zero point.
    pub whole: String,
    /// The zero point.
    pub zero: Zero,
}

/// A zero point: what the file says, or a value that is computed.
#[derive(Clone, PartialEq)]
pub(super) enum Zero {
    Known(i64),
    Computed(String),
}

/// Floats that a blocked operator makes of a matrix of integers.
#[derive(Clone)]
pub(super) struct Blocked {
    /// The inputs of that operator: integers, scales, and zero points where there are some.
    pub inputs: Vec<String>,
    /// Where the blocks lie along rows or along columns of the integers.
    pub axis: usize,
    /// Elements of a block.
    pub block: i64,
    /// Whether the floats are the transposed matrix.
    pub is_transposed: bool,
}

/// Writes nodes.
#[derive(Default)]
pub(super) struct Writer<'g> {
    pub constants: HashMap<&'g str, &'g TensorProto>,
    pub nodes: Vec<NodeProto>,
    /// The numbers of the types of values, as far as the file says them.
    pub types: HashMap<String, i32>,
    /// How many dimensions values have, as far as the file says.
    pub ranks: HashMap<String, usize>,
    /// Bytes of `DynamicQuantizeLinear` that an operator reads as whole numbers of floats.
    pub multiplied: HashSet<String>,
    /// What the nodes that are written are called after.
    pub stem: String,
    /// Floats of weights in blocks.
    blocked: HashMap<String, Blocked>,
    companions: HashMap<String, Companion>,
    /// Values of floats that are equal to integers of 32 bits.
    equals: HashMap<String, String>,
    made: usize,
}

impl<'g> Writer<'g> {
    /// Notes a constant of the file.
    pub fn keep(&mut self, name: &'g str, t: &'g TensorProto) {
        self.constants.insert(name, t);
        self.types.insert(name.into(), t.data_type);
    }

    /// A name that no other value has.
    pub fn fresh(&mut self) -> String {
        self.made += 1;
        format!("squall/float/{}", self.made)
    }

    /// A node of one result; its name.
    pub fn op(&mut self, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let name = self.fresh();
        let mut node = simple(op, inputs, &name);
        node.attribute = attributes;
        node.name = self.name(op);
        self.nodes.push(node);
        name
    }

    /// The name of a node that stands for a part of the file's.
    pub fn name(&self, op: &str) -> String {
        if self.stem.is_empty() { String::new() } else { format!("{}/{op}", self.stem) }
    }

    /// Gives a value the name that the file has for it.
    pub fn hand_on(&mut self, from: &str, to: &str) {
        self.nodes.push(identity(from, to));
    }

    fn constant(&mut self, value: TensorProto) -> String {
        self.op("Constant", &[], vec![inline::value(value)])
    }

    /// A number.
    pub fn scalar(&mut self, x: f32) -> String {
        self.constant(TensorProto { data_type: 1, float_data: vec![x], ..Default::default() })
    }

    /// The extents of a constant.
    pub fn dims(&self, name: &str) -> Option<&'g [i64]> {
        self.constants.get(name).map(|t| t.dims.as_slice())
    }

    /// Whether a value is in the file.
    pub fn is_constant(&self, name: &str) -> bool {
        self.constants.contains_key(name)
    }

    /// The type of a value's elements.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.stored(name).map(|s| s.dtype)
    }

    /// The type of a value's elements as the file holds them.
    pub fn stored(&self, name: &str) -> Option<Stored> {
        Stored::of(*self.types.get(name)?)
    }

    /// Says of which type a value is.
    pub fn set_type_like(&mut self, name: &str, like: &str) {
        if let Some(number) = self.types.get(like).copied() {
            self.types.insert(name.into(), number);
        }
    }

    /// The number of a constant's elements.
    pub fn count(&self, name: &str) -> Option<i64> {
        elements(self.dims(name)?).ok()
    }

    /// The elements of a constant of floats.
    pub fn floats(&self, name: &str) -> Option<Vec<f32>> {
        match tensor(self.constants.get(name)?).ok()?.constant? {
            Constant::F32 { data, .. } => Some(data),
            _ => None,
        }
    }

    /// How many dimensions a value has, where the file says it.
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.ranks.get(name).copied()
    }

    /// Weights in blocks of which a value has the floats.
    pub fn blocked(&self, name: &str) -> Option<Blocked> {
        self.blocked.get(name).cloned()
    }

    pub fn set_blocked(&mut self, name: &str, blocked: Blocked) {
        self.blocked.insert(name.into(), blocked);
    }

    fn integers(&self, name: &str) -> Option<Vec<i64>> {
        match tensor(self.constants.get(name)?).ok()?.constant? {
            Constant::I64 { data, .. } => Some(data),
            _ => None,
        }
    }

    /// Whether a constant is one number.
    pub fn is_scalar(&self, name: &str) -> bool {
        self.dims(name).is_some_and(|d| matches!(d, [] | [1]))
    }

    /// A zero point that is one number of 8 or 16 bits; 0 where none is given.
    pub fn zero(&self, name: Option<&str>) -> Option<i64> {
        let Some(name) = name else { return Some(0) };
        if !matches!(self.dtype(name)?, DType::U8 | DType::I8 | DType::U16 | DType::I16) {
            return None;
        }
        match self.integers(name)?[..] {
            [zero] => Some(zero),
            _ => None,
        }
    }

    /// A vector along an axis of a tensor of `rank` dimensions; none where it has no such axis.
    pub fn along(&mut self, vector: &str, axis: usize, rank: usize) -> Option<String> {
        let mut to = vec![1; rank];
        *to.get_mut(axis)? = -1;
        let shape = TensorProto {
            dims: vec![rank as i64],
            data_type: 7,
            int64_data: to,
            ..Default::default()
        };
        let shape = self.constant(shape);
        Some(self.op("Reshape", &[vector, &shape], vec![]))
    }

    /// The companion of a quantised value with this zero point.
    pub fn companion(&self, name: &str, zero: &Zero) -> Option<String> {
        self.companions.get(name).filter(|c| c.zero == *zero).map(|c| c.whole.clone())
    }

    /// Whether a value has a companion; its own.
    pub fn companion_of(&self, name: &str) -> Option<Companion> {
        self.companions.get(name).cloned()
    }

    pub fn set_companion(&mut self, name: &str, companion: Companion) {
        self.companions.insert(name.into(), companion);
    }

    /// A value of floats that equals one of integers.
    pub fn equal(&self, name: &str) -> Option<String> {
        self.equals.get(name).cloned()
    }

    pub fn set_equal(&mut self, name: &str, floats: &str) {
        self.equals.insert(name.into(), floats.into());
    }

    /// The integers of a value without their zero point, as floats: its companion, or a conversion.
    /// The zero point is the constant of this name; `axis` is that of one with several numbers.
    pub fn whole(&mut self, name: &str, zero: Option<&str>, axis: usize) -> Option<String> {
        if let Some(known) = self.zero(zero)
            && let Some(whole) = self.companion(name, &Zero::Known(known))
        {
            return Some(whole);
        }
        if let Some(zero) = zero
            && let Some(whole) = self.companion(name, &Zero::Computed(zero.into()))
        {
            return Some(whole);
        }
        let floats = self.op("Cast", &[name], vec![int("to", 1)]);
        let Some(zero) = zero else { return Some(floats) };
        if self.integers(zero).is_some_and(|z| z.iter().all(|v| *v == 0)) {
            return Some(floats);
        }
        let mut offset = self.op("Cast", &[zero], vec![int("to", 1)]);
        if !self.is_scalar(zero) {
            let (rank, count) = (self.dims(name)?.len(), self.dims(zero)?.len());
            if count != 1 {
                return None;
            }
            offset = self.along(&offset, axis, rank)?;
        }
        Some(self.op("Sub", &[&floats, &offset], vec![]))
    }

    /// Quantises floats into the value `to`. Rounding stays an operator of its own: within a kernel
    /// a sum that differs in its last place could fall on the other side of a step, and no
    /// comparison with a reference would tell that from a fault.
    pub fn quantise(
        &mut self,
        floats: &str,
        scale: &str,
        zero: Option<&str>,
        to: &str,
    ) -> Option<()> {
        let name = self.name("QuantizeLinear");
        self.quantise_as(&name, floats, scale, zero, to)
    }

    /// The same as a node of this name.
    pub fn quantise_as(
        &mut self,
        node_name: &str,
        floats: &str,
        scale: &str,
        zero: Option<&str>,
        to: &str,
    ) -> Option<()> {
        let known = self.zero(zero)?;
        let inputs: Vec<&str> = [floats, scale].into_iter().chain(zero).collect();
        let mut node = simple("QuantizeLinear", &inputs, to);
        node.name = node_name.into();
        // Integers of less than a byte are kept in bytes: the node says where they end.
        if let Some(packed) = zero.and_then(|z| self.stored(z)).filter(|s| s.is_packed()) {
            node.attribute.push(int("bits", packed.bits as i64));
        }
        self.nodes.push(node);
        match zero {
            Some(zero) => self.set_type_like(to, zero),
            None => _ = self.types.insert(to.into(), 2),
        }
        let one = self.scalar(1.0);
        let inputs: Vec<&str> = [to, one.as_str()].into_iter().chain(zero).collect();
        let whole = self.op("DequantizeLinear", &inputs, vec![]);
        self.set_companion(to, Companion { whole, zero: Zero::Known(known) });
        Some(())
    }

    /// The same of floats that are divided by the scale already.
    pub fn quantise_steps(&mut self, steps: &str, zero: Option<&str>, to: &str) -> Option<()> {
        let one = self.scalar(1.0);
        self.quantise(steps, &one, zero, to)
    }
}
