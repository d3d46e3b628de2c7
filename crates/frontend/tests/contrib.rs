//! Tests of operators that onnxruntime adds to ONNX (`frontend/src/onnx/reader/contrib.rs`): the
//! reader turns them into standard ones, or refuses them with the reason. Their numbers are held
//! against onnxruntime's by `scripts/onnx/contrib_operators.py`.

use squall_testing::onnx as build;

use build::*;
use squall_frontend::onnx::proto::AttributeProto;

const I32: i32 = 6;

/// One node of onnxruntime's, of inputs `a`, `b`, .. of these shapes; a shape of -1 is not given.
fn call(op: &str, inputs: &[&[i64]], outputs: &[&str], attributes: &[AttributeProto]) -> Build {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let given = |i: usize| inputs[i] != [-1];
    let named: Vec<&str> =
        (0..inputs.len()).map(|i| if given(i) { names[i] } else { "" }).collect();
    let mut b = Build::new(17);
    for i in (0..inputs.len()).filter(|i| given(*i)) {
        b = b.input(names[i], inputs[i]);
    }
    let mut b = b.node(op, &named, outputs, attributes);
    b.graph().node[0].domain = "com.microsoft".into();
    b
}

fn ops(b: &Build) -> Vec<String> {
    b.read().unwrap().nodes.iter().map(|n| n.op.clone()).collect()
}

#[test]
fn products_and_convolutions_keep_what_was_fused_into_them() {
    let attributes = [int("transA", 1), float("alpha", 0.5)];
    let b = call("FusedMatMul", &[&[2, 4, 3], &[2, 4, 5]], &["y"], &attributes);
    assert_eq!(b.shape("y"), [2, 3, 5]);
    assert!(ops(&b).ends_with(&["MatMul", "Constant", "Mul", "Identity"].map(String::from)));
    let attributes = [int("transBatchA", 1)];
    let b = call("FusedMatMul", &[&[4, 2, 7, 3], &[2, 7, 3, 5]], &["y"], &attributes);
    assert_eq!(b.shape("y"), [2, 7, 4, 5]);
    let b = call("FusedMatMul", &[&[4, 2, 3], &[2, 3, 5]], &["y"], &[int("transA", 1)]);
    assert!(b.problem() != "no problem");

    let images: [&[i64]; 4] = [&[1, 4, 9, 9], &[6, 4, 3, 3], &[6], &[1, 6, 7, 7]];
    let b = call("FusedConv", &images, &["y"], &[text("activation", "Relu")]);
    assert_eq!(b.shape("y"), [1, 6, 7, 7]);
    assert_eq!(ops(&b), ["Conv", "Add", "Relu", "Identity"]);
    let b = call("FusedConv", &images[..3], &["y"], &[text("activation", "Mystery")]);
    assert!(b.problem().contains("activation"), "{}", b.problem());
    let clip = [text("activation", "Clip"), floats("activation_params", &[0.0, 6.0])];
    assert_eq!(call("FusedConv", &images[..2], &["y"], &clip).shape("y"), [1, 6, 7, 7]);
    let gemm: [&[i64]; 3] = [&[4, 6], &[6, 3], &[3]];
    let leaky = [text("activation", "LeakyRelu"), float("activation_alpha", 0.3)];
    assert_eq!(call("FusedGemm", &gemm, &["y"], &leaky).shape("y"), [4, 3]);
}

#[test]
fn normalisations_give_their_sum_too() {
    let inputs: [&[i64]; 5] = [&[2, 5, 8], &[2, 5, 8], &[8], &[8], &[8]];
    let b = call("SkipLayerNormalization", &inputs, &["y", "", "", "sum"], &[]);
    assert_eq!((b.shape("y"), b.shape("sum")), (vec![2, 5, 8], vec![2, 5, 8]));
    let b = call("SkipLayerNormalization", &inputs, &["y", "mean"], &[]);
    assert!(b.problem().contains("output 1"), "{}", b.problem());
    let rms = call("SkipSimplifiedLayerNormalization", &inputs[..3], &["y"], &[]);
    assert!(ops(&rms).contains(&"RMSNormalization".to_string()));
    for op in ["Gelu", "FastGelu", "QuickGelu"] {
        assert_eq!(call(op, &[&[3, 4]], &["y"], &[]).shape("y"), [3, 4], "{op}");
    }
    assert_eq!(call("BiasGelu", &[&[3, 4], &[4]], &["y"], &[]).shape("y"), [3, 4]);
}

#[test]
fn attention_is_written_out() {
    let inputs: [&[i64]; 3] = [&[2, 5, 8], &[8, 24], &[24]];
    let heads = [int("num_heads", 2)];
    let b = call("Attention", &inputs, &["y"], &heads);
    assert_eq!(b.shape("y"), [2, 5, 8]);
    assert!(ops(&b).contains(&"Softmax".to_string()));
    for mask in [&[2][..], &[2, 5], &[2, 5, 5]] {
        let mut b = call("Attention", &inputs, &["y"], &heads).input_of("mask", I32, mask);
        b.graph().node[0].input.push("mask".into());
        assert_eq!(b.shape("y"), [2, 5, 8], "{mask:?}");
    }
    let queries: [&[i64]; 3] = [&[2, 3, 8], &[2, 5, 8], &[2, 5, 8]];
    assert_eq!(call("MultiHeadAttention", &queries, &["y"], &heads).shape("y"), [2, 3, 8]);
}

#[test]
fn rotary_embeddings_have_a_row_of_their_caches_for_each_step() {
    let caches: [&[i64]; 2] = [&[9, 4], &[9, 4]];
    let made = |x: &[i64], ids: &[i64], attributes: &[AttributeProto]| {
        let mut b = call("RotaryEmbedding", &[x], &["y"], attributes).input_of("ids", 7, ids);
        b = b.input("cos", caches[0]).input("sin", caches[1]);
        b.graph().node[0].input.extend(["ids", "cos", "sin"].map(String::from));
        b
    };
    // Heads side by side, counted by the attribute or by the caches, and in a dimension; all
    // places, and the first one.
    let eight = [int("num_heads", 2)];
    let forms: [(&[i64], &[i64], &[AttributeProto]); 4] = [
        (&[2, 5, 16], &[2, 5], &eight),
        (&[2, 5, 16], &[1], &[]),
        (&[2, 3, 5, 8], &[2, 5], &[]),
        (&[1, 3, 5, 8], &[1], &[]),
    ];
    for (x, ids, attributes) in forms {
        let b = made(x, ids, attributes);
        assert_eq!(b.shape("y"), x);
        let model = b.read().unwrap();
        assert_eq!(model.nodes.iter().find_map(|n| n.problem.clone()), None);
        let node = model.nodes.iter().find(|n| n.op == "RotaryEmbedding").unwrap();
        assert_eq!(node.inputs.len(), 3);
        for cache in &node.inputs[1..] {
            let shape = model.values[cache.unwrap()].shape.clone().unwrap();
            assert_eq!(shape, [x[0], 5, 4]);
        }
    }
    let packed = made(&[2, 5, 16], &[2, 5], &[int("is_packed_batching", 1)]);
    assert!(packed.problem().contains("is_packed_batching"), "{}", packed.problem());
    let few = made(&[2, 5, 16], &[2, 4], &[]);
    assert!(few.problem().contains("position ids"), "{}", few.problem());
}

#[test]
fn uses_that_make_no_sense_are_refused_with_the_reason() {
    let inputs: [&[i64]; 3] = [&[2, 5, 8], &[8, 24], &[24]];
    let says = |attributes: &[AttributeProto], word: &str| {
        let said = call("Attention", &inputs, &["y"], attributes).problem();
        assert!(said.contains(word), "{said}");
    };
    says(&[], "num_heads");
    says(&[int("num_heads", i64::MAX)], "num_heads");
    says(&[int("num_heads", 5)], "5 heads");
    says(&[int("num_heads", 2), int("do_rotary", 1)], "do_rotary");
    says(&[int("num_heads", 2), ints("qkv_hidden_sizes", &[8, 8, 4])], "differ");
    let flat = call("Attention", &[&[2, 5], &[8, 24]], &["y"], &[int("num_heads", 2)]);
    assert!(flat.problem().contains("three axes"), "{}", flat.problem());
    let past: [&[i64]; 5] = [&[2, 5, 8], &[8, 24], &[24], &[-1], &[2, 2, 2, 4, 4]];
    let past = call("Attention", &past, &["y"], &[int("num_heads", 2)]);
    assert!(past.problem().contains("input 4"), "{}", past.problem());
    let unknown = call("NoSuchOperator", &[&[2]], &["y"], &[]);
    assert!(unknown.problem().contains("com.microsoft"), "{}", unknown.problem());
}
