//! Tests of products with weights of few bits (`MatMulNBits`): on CPUs they are marked as kernels
//! of their own, which nothing is fused with, and only where a workload can be built for their
//! types and sizes.

use crate::net;

use net::Net;
use squall_core::DType;
use squall_core::graph::Attribute;
use squall_core::graph::infer::nbits::DOMAIN;
use squall_core::operator::{FewBits, FewBitsZero};
use squall_graph::Assignment;
use squall_graph::bytes::in_bytes;
use std::sync::Arc;

/// A model: three rows of 64 elements times `n` columns of 4 bits in blocks of 32, with a bias of
/// the given type if any, then two elementwise nodes.
fn product(n: i64, bias: Option<DType>) -> Net {
    let mut net = Net::new();
    let x = net.input(&[3, 64]);
    let tiles = (n + 15) / 16;
    let codes = net.weight(&[tiles, 8, 64]);
    let scales = net.weight(&[tiles, 2, 16]);
    net.0.values[codes].dtype = Some(DType::U8);
    let int = |name, v| (name, Attribute::Int(v));
    let attributes = [
        int("K", 64),
        int("N", n),
        int("bits", 4),
        int("block_size", 32),
        int("accuracy_level", 4),
    ];
    let y = net.node("MatMulNBits", &[x, codes, scales], &[3, n], &attributes);
    net.0.nodes[0].domain = DOMAIN.into();
    if let Some(dtype) = bias {
        let bias = net.weight(&[n]);
        net.0.values[bias].dtype = Some(dtype);
        net.0.nodes[0].inputs.extend([None, Some(bias)]);
    }
    let y = net.node("Relu", &[y], &[3, n], &[]);
    let y = net.node("Sigmoid", &[y], &[3, n], &[]);
    net.0.outputs.push(y);
    net
}

/// The products that are tasks where kernels of a CPU are chosen.
fn products(net: &Net) -> Vec<FewBits> {
    let model = in_bytes(&net.0).unwrap_or_else(|| net.0.clone());
    let made = Assignment::of(Arc::new(model), crate::net::alone).unwrap();
    made.tasks().iter().filter_map(|t| FewBits::of(&t.workload)).collect()
}

#[test]
fn a_product_is_a_task_by_itself() {
    let zero = FewBitsZero::Same(8);
    let p = FewBits { m: 3, k: 64, n: 48, bits: 4, block: 32, whole: true, zero, bias: false };
    let net = product(48, None);
    assert_eq!(products(&net), [p]);
    let model = in_bytes(&net.0).unwrap();
    let tasks = Assignment::of(Arc::new(model), crate::net::alone).unwrap().tasks().to_vec();
    let names: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names[0], "matmul_3x48x64_b4x32_int8");
    // The steps behind it are a kernel together, and part of none with it.
    assert_eq!(tasks.len(), 2, "{names:?}");
    assert_eq!(products(&product(48, Some(DType::F32))), [FewBits { bias: true, ..p }]);
}

#[test]
fn other_products_and_other_devices_stay_plain() {
    // Without the marks that are made for CPUs.
    let plain = Assignment::of(Arc::new(product(48, None).0), crate::net::alone).unwrap();
    assert!(plain.tasks().iter().all(|t| FewBits::of(&t.workload).is_none()));
    // Columns that fill no tile, and a bias whose numbers a kernel would misread.
    assert_eq!(products(&product(50, None)), []);
    for dtype in [DType::U8, DType::F64, DType::I64] {
        assert_eq!(products(&product(48, Some(dtype))), []);
    }
}
