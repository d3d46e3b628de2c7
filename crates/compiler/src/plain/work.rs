//! The least work of an operator's call: the arithmetic that its row counts
//! (`core/src/operators/counted.rs`), and the bytes that it must read and write. Input: an
//! `OperatorCall`; output: [`LeastWork`], or nothing where extents are not known ahead of the run.
//! `squall bench` and reports make of it the least time of a plain operator on a machine.

use super::context::of_call;
use squall_core::DType;
use squall_core::graph::infer::region::REGION;
use squall_core::graph::{CallOperand, OperatorCall, elements, is_bounded};
use squall_core::operators::operator;

/// The work that a call takes at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastWork {
    /// Operations: a product and a sum for each pair of factors. 0 where its results are no sums of
    /// products, or where their number is not known ahead of the run.
    pub operations: u64,
    /// Bytes that are read and written.
    pub bytes: u64,
    /// Whether some of its factors have 8 bits.
    pub multiplies_bytes: bool,
}

/// The least work of a call. Nothing where it is not known: regions walk through nodes of their
/// own, and extents below 0 are known to the run only.
pub fn least_work(call: &OperatorCall) -> Option<LeastWork> {
    if call.op == REGION {
        return None;
    }
    let row = operator(&call.domain, &call.op);
    let result = call.outputs.first().and_then(Option::as_ref);
    let products = row.and_then(|row| row.products).zip(result);
    let products =
        products.and_then(|(count, result)| of_call(call, |ctx| count(ctx, &result.shape)).ok());
    let operations = products.unwrap_or(0).saturating_mul(2);
    let is_byte = |o: &CallOperand| matches!(o.dtype, DType::I8 | DType::U8);
    Some(LeastWork {
        operations,
        bytes: bytes(call, row.map_or(&[][..], |row| row.picks))?,
        multiplies_bytes: operations > 0 && call.inputs.iter().flatten().any(is_byte),
    })
}

/// Bytes that a call reads and writes at least: each operand and each result once; of the operands
/// at the places `picks` no more elements than there are results. Only the run knows how much of a
/// bounded operator's results it writes: that may be nothing.
fn bytes(call: &OperatorCall, picks: &[usize]) -> Option<u64> {
    let count = |o: &CallOperand| elements(&o.shape).ok().map(i64::unsigned_abs);
    let (mut written, mut results) = (0, 0u64);
    for o in call.outputs.iter().flatten() {
        let n = count(o)?;
        if !is_bounded(&call.domain, &call.op) {
            results += n;
            written += n * o.dtype.bytes();
        }
    }
    let (mut read, mut picked, mut widest) = (0, 0u64, 0);
    for (i, o) in call.inputs.iter().enumerate() {
        let Some(o) = o else { continue };
        let size = count(o)? * o.dtype.bytes();
        if picks.contains(&i) {
            picked += size;
            widest = widest.max(o.dtype.bytes());
        } else {
            read += size;
        }
    }
    Some(written + read + picked.min(results.saturating_mul(widest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::graph::Attribute;
    use squall_core::graph::infer::nbits::DOMAIN;
    use std::collections::BTreeMap;

    fn operand(dtype: DType, shape: &[i64]) -> Option<CallOperand> {
        Some(CallOperand { dtype, shape: shape.to_vec(), constant: None })
    }

    fn f32s(shape: &[i64]) -> Option<CallOperand> {
        operand(DType::F32, shape)
    }

    fn call(op: &str, inputs: &[Option<CallOperand>], output: Option<CallOperand>) -> OperatorCall {
        OperatorCall {
            op: op.into(),
            domain: String::new(),
            opset: 21,
            attributes: BTreeMap::new(),
            inputs: inputs.to_vec(),
            outputs: vec![output],
        }
    }

    fn operations(call: &OperatorCall) -> u64 {
        least_work(call).unwrap().operations
    }

    #[test]
    fn products_convolutions_and_recurrences_count_two_operations_a_pair_of_factors() {
        let matmul = call("MatMul", &[f32s(&[2, 3, 4]), f32s(&[4, 5])], f32s(&[2, 3, 5]));
        let work = least_work(&matmul).unwrap();
        assert_eq!(work.operations, 2 * 2 * 3 * 4 * 5);
        assert_eq!(work.bytes, 4 * (24 + 20 + 30));
        assert!(!work.multiplies_bytes);
        let mut gemm = call("Gemm", &[f32s(&[4, 3]), f32s(&[4, 5])], f32s(&[3, 5]));
        gemm.attributes.insert("transA".into(), Attribute::Int(1));
        assert_eq!(operations(&gemm), 2 * 3 * 4 * 5);
        let conv = call("Conv", &[f32s(&[1, 4, 8, 8]), f32s(&[6, 2, 3, 3])], f32s(&[1, 6, 6, 6]));
        assert_eq!(operations(&conv), 2 * 6 * 36 * 2 * 9);
        let image = f32s(&[1, 4, 5, 5]);
        let back = call("ConvTranspose", &[image, f32s(&[4, 3, 2, 2])], f32s(&[1, 3, 6, 6]));
        assert_eq!(operations(&back), 2 * 100 * 3 * 4);
        let weights = [f32s(&[7, 2, 3]), f32s(&[1, 20, 3]), f32s(&[1, 20, 5])];
        let lstm = call("LSTM", &weights, f32s(&[7, 1, 2, 5]));
        assert_eq!(operations(&lstm), 2 * 7 * 2 * (60 + 100));
        let mut einsum = call("Einsum", &[f32s(&[3, 4]), f32s(&[4, 5])], f32s(&[3, 5]));
        einsum.attributes.insert("equation".into(), Attribute::String("ij,jk->ik".into()));
        assert_eq!(operations(&einsum), 2 * 3 * 4 * 5);
        let bytes = operand(DType::U8, &[3, 4]);
        let whole = [bytes, operand(DType::I8, &[4, 5])];
        let whole = call("MatMulInteger", &whole, operand(DType::I32, &[3, 5]));
        assert!(least_work(&whole).unwrap().multiplies_bytes);
    }

    #[test]
    fn what_a_query_does_not_see_is_not_counted() {
        let (x, y) = (f32s(&[1, 2, 3, 4]), f32s(&[1, 2, 3, 4]));
        let mut attention = call("Attention", &[x.clone(), x.clone(), x], y);
        assert_eq!(operations(&attention), 2 * 2 * 3 * 3 * (4 + 4));
        attention.attributes.insert("is_causal".into(), Attribute::Int(1));
        assert_eq!(operations(&attention), 0, "how many pairs there are is not counted");
        assert_eq!(least_work(&attention).unwrap().bytes, 4 * 4 * 24);
    }

    #[test]
    fn operands_from_which_elements_are_picked_are_not_read_whole() {
        let rows = [f32s(&[1000, 8]), operand(DType::I64, &[2])];
        let gather = call("Gather", &rows, f32s(&[2, 8]));
        assert_eq!(least_work(&gather).unwrap().bytes, 16 * 4 + 2 * 8 + 16 * 4);
        // No more than there is.
        let rows = [f32s(&[1, 8]), operand(DType::I64, &[5])];
        let gather = call("Gather", &rows, f32s(&[5, 8]));
        assert_eq!(least_work(&gather).unwrap().bytes, 8 * 4 + 5 * 8 + 40 * 4);
        // The run alone knows how much is there: the condition is read at least.
        let rows = [f32s(&[100]), operand(DType::Bool, &[100])];
        let compress = call("Compress", &rows, f32s(&[100]));
        assert_eq!(least_work(&compress).unwrap().bytes, 100);
    }

    #[test]
    fn nothing_takes_nothing_and_unknown_extents_give_no_work() {
        let none = call("MatMul", &[f32s(&[0, 4]), f32s(&[4, 5])], f32s(&[0, 5]));
        let work = LeastWork { operations: 0, bytes: 80, multiplies_bytes: false };
        assert_eq!(least_work(&none), Some(work));
        let deep = call("MatMul", &[f32s(&[3, 0]), f32s(&[0, 5])], f32s(&[3, 5]));
        let work = LeastWork { operations: 0, bytes: 60, multiplies_bytes: false };
        assert_eq!(least_work(&deep), Some(work));
        let open = call("Relu", &[f32s(&[-1, 4])], f32s(&[-1, 4]));
        assert_eq!(least_work(&open), None);
        let mut region = call(REGION, &[f32s(&[4])], f32s(&[4]));
        region.domain = DOMAIN.into();
        assert_eq!(least_work(&region), None);
        // Operands and results that are not there.
        let absent = call("Relu", &[f32s(&[4]), None], None);
        assert_eq!(least_work(&absent).unwrap().bytes, 16);
    }
}
