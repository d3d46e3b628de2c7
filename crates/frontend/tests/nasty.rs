//! Tests of the ONNX reader on files that are wrong, by accident or on purpose, and on mutated
//! bytes: the reader must give an error or a node's problem that names the place, and never panic.

use squall_testing::onnx as build;

use build::*;
use proptest::collection::vec;
use proptest::prelude::*;
use squall_frontend::onnx::{self, proto::*};

/// Cases enough to meet rare files; failures are not kept beside the test.
fn many_cases() -> ProptestConfig {
    ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() }
}

fn conv(w: &[i64], attributes: &[AttributeProto]) -> Build {
    Build::new(17).input("x", &[1, 4, 8, 8]).absent("w", w).node(
        "Conv",
        &["x", "w"],
        &["y"],
        attributes,
    )
}

#[test]
fn what_is_no_model_says_so() {
    let read = |bytes: &[u8]| onnx::read(bytes, "a.onnx", &[]).unwrap_err().to_string();
    assert_eq!(
        read(b""),
        "a.onnx: this is not an ONNX model: the file is empty; export the model again, or give \
         operator lines in a `.ops` file"
    );
    for garbage in
        ["conv1: conv2d n=1 c=3", "<html></html>", "{\"a\": 1}", "\u{0}\u{1}\u{2}", "PK\u{3}\u{4}"]
    {
        assert!(read(garbage.as_bytes()).contains("this is not an ONNX model"), "{garbage}");
    }
    assert!(
        read(&ModelProto { ir_version: 8, ..Default::default() }.encode())
            .contains("holds no graph")
    );
    let mut b = conv(&[4, 4, 3, 3], &[]);
    b.model.opset_import.clear();
    assert!(b.refused().contains("version of its operators"));
}

trait Encode {
    fn encode(&self) -> Vec<u8>;
}

impl Encode for ModelProto {
    fn encode(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(self)
    }
}

#[test]
fn broken_graphs_name_the_value() {
    let cyclic = Build::new(17).input("x", &[1]).node("Add", &["x", "b"], &["a"], &[]).node(
        "Relu",
        &["a"],
        &["b"],
        &[],
    );
    let e = cyclic.refused();
    assert!(
        e.contains("(Add)") && e.contains("its result `a`") && e.contains("cycle")
            || e.contains("(Relu)") && e.contains("its result `b`"),
        "{e}"
    );
    let own = Build::new(17).node("Relu", &["a"], &["a"], &[]);
    assert!(own.refused().contains("`a` depends on itself"), "{}", own.refused());
    let undefined = Build::new(17).input("x", &[1]).node("Add", &["x", "nowhere"], &["y"], &[]);
    assert!(
        undefined
            .refused()
            .starts_with("hand.onnx: node number 0 (Add): its input `nowhere` is not defined; ")
    );
    let twice = Build::new(17).input("x", &[1]).node("Relu", &["x"], &["y"], &[]).node(
        "Abs",
        &["x"],
        &["y"],
        &[],
    );
    assert!(twice.refused().contains("node number 1 (Abs): its output `y` is defined twice"));
    let input = Build::new(17).input("x", &[1]).node("Relu", &["x"], &["x"], &[]);
    assert!(input.refused().contains("its output `x` is defined twice"));
    let same = Build::new(17).input("x", &[1]).node("Split", &["x"], &["y", "y"], &[]);
    assert!(same.refused().contains("its output `y` is defined twice"));
    let output = Build::new(17).input("x", &[1]).node("Relu", &["x"], &["y"], &[]).output("z");
    assert!(output.refused().contains("output `z`: no node produces it"));
    let weights = Build::new(17).absent("w", &[1]).absent("w", &[2]);
    assert!(weights.refused().contains("initializer `w`: the name is defined twice"));
}

#[test]
fn nodes_out_of_order_are_sorted() {
    let b = Build::new(17)
        .input("x", &[2, 3])
        .node("Relu", &["b"], &["c"], &[])
        .node("Transpose", &["a"], &["b"], &[])
        .node("Abs", &["x"], &["a"], &[]);
    let ops: Vec<String> = b.read().unwrap().nodes.into_iter().map(|n| n.op).collect();
    assert_eq!(ops, ["Abs", "Transpose", "Relu"]);
    assert_eq!(b.shape("c"), [3, 2]);
}

#[test]
fn impossible_dimensions_are_refused() {
    let one =
        |dims: &[i64]| Build::new(17).input("x", dims).node("Relu", &["x"], &["y"], &[]).refused();
    assert!(
        one(&[1, -3]).contains("input `x`: shape [1, -3] has a negative dimension"),
        "{}",
        one(&[1, -3])
    );
    assert!(one(&[i64::MIN]).contains("negative"));
    assert!(one(&[i64::MAX, i64::MAX]).contains("more than 2^40 elements"));
    assert!(one(&[0, i64::MAX]).contains("more than 2^40 elements"));
    assert!(one(&[1; 1000]).contains("1000 dimensions"));
    assert!(Build::new(17).absent("w", &[-1]).refused().contains("initializer `w`"));
    let short = TensorProto {
        dims: vec![1 << 39],
        data_type: F32,
        raw_data: vec![0; 16],
        ..Default::default()
    };
    assert!(Build::new(17).init("w", short).refused().contains("raw_data has 16 bytes"));
    // Results too are checked: no evaluation of untrusted sizes.
    let huge = |to: &[i64]| {
        Build::new(17).init("s", i64s(&[to.len() as i64], to)).node(
            "ConstantOfShape",
            &["s"],
            &["y"],
            &[],
        )
    };
    assert!(huge(&[1 << 30, 1 << 30]).problem().contains("more than 2^40 elements"));
    assert!(huge(&[-1]).problem().contains("negative"));
    let large = huge(&[1 << 20, 1 << 10]).read().unwrap();
    let y = large.values.last().unwrap();
    assert!(y.constant.is_none() && y.shape == Some(vec![1 << 20, 1 << 10]));
    let mut bomb = Build::new(17).init("s", i64s(&[1], &[1 << 20]));
    for i in 0..256 {
        bomb = bomb.node("ConstantOfShape", &["s"], &[&format!("y{i}")], &[]);
    }
    let kept: usize = bomb
        .read()
        .unwrap()
        .values
        .iter()
        .filter_map(|v| v.constant.as_deref())
        .map(squall_core::graph::Constant::len)
        .sum();
    assert!((1 << 25..=(1 << 26) + 1).contains(&kept), "{kept} elements");
}

#[test]
fn wrong_operands_are_the_nodes_problem() {
    let cases: &[(Build, &str)] = &[
        (
            conv(&[4, 3, 3, 3], &[]),
            "1 groups of filters [4, 3, 3, 3] do not suit an input of 4 channels",
        ),
        (conv(&[4, 4, 3, 3], &[int("group", 3)]), "3 groups"),
        (conv(&[3, 2, 3, 3], &[int("group", 2)]), "2 groups"),
        (conv(&[4, 4, 3, 3], &[int("group", 0)]), "attribute `group` is 0"),
        (conv(&[4, 4, 3, 3], &[int("group", i64::MAX)]), "groups of filters"),
        (
            conv(&[4, 4, 9, 9], &[]),
            "its window of 9 is larger than the padded image of 8 along spatial axis 0",
        ),
        (conv(&[4, 4, 0, 3], &[]), "do not suit an image"),
        (conv(&[4, 4, 3], &[]), "its filters have shape [4, 4, 3], 4 dimensions are expected"),
        (
            conv(&[4, 4, 3, 3], &[ints("kernel_shape", &[5, 5])]),
            "attribute `kernel_shape` is [5, 5]",
        ),
        (conv(&[4, 4, 3, 3], &[ints("strides", &[0, 1])]), "attribute `strides` holds 0"),
        (
            conv(&[4, 4, 3, 3], &[ints("strides", &[1])]),
            "attribute `strides` has 1 elements, 2 are expected",
        ),
        (conv(&[4, 4, 3, 3], &[ints("dilations", &[i64::MAX, 1])]), "attribute `dilations` holds"),
        (conv(&[4, 4, 3, 3], &[ints("pads", &[i64::MIN; 4])]), "attribute `pads` holds"),
        (
            conv(&[4, 4, 3, 3], &[text("auto_pad", "SIDEWAYS")]),
            "attribute `auto_pad` is `SIDEWAYS`",
        ),
        (conv(&[4, 4, 3, 3], &[float("group", 1.0)]), "attribute `group` is no integer"),
        (
            Build::new(17).input("x", &[1, 4]).absent("w", &[4, 4, 3, 3]).node(
                "Conv",
                &["x", "w"],
                &["y"],
                &[],
            ),
            "at least three dimensions",
        ),
        (
            Build::new(17).input("x", &[1, 4, 8, 8]).node("Conv", &["x"], &["y"], &[]),
            "input 1 is missing",
        ),
        (
            Build::new(17).input("x", &[2, 2]).init("i", i64s(&[2, 3], &[0; 6])).node(
                "GatherElements",
                &["x", "i"],
                &["y"],
                &[],
            ),
            "indices of shape [2, 3] do not suit [2, 2]",
        ),
        (
            Build::new(17)
                .input("x", &[2, 2])
                .init("i", i64s(&[2, 3], &[0; 6]))
                .init("u", f32s(&[2, 3], &[0.0; 6]))
                .node("ScatterElements", &["x", "i", "u"], &["y"], &[]),
            "indices of shape [2, 3] do not suit [2, 2]",
        ),
        (
            Build::new(17).input("x", &[1, 4]).node("CumSum", &["x"], &["y"], &[]),
            "input 1 is missing",
        ),
        (
            Build::new(17).input("x", &[1, 4, 8, 8]).node("MaxPool", &["x"], &["y"], &[]),
            "attribute `kernel_shape` is missing",
        ),
        (
            Build::new(17).input("x", &[2]).node("Concat", &["x", "x"], &["y"], &[]),
            "attribute `axis` is missing",
        ),
        (
            Build::new(17).input("x", &[2]).node("Cast", &["x"], &["y"], &[]),
            "attribute `to` is missing",
        ),
        (
            Build::new(17).input("x", &[2]).node("Softmax", &["x"], &["y"], &[int("axis", 4)]),
            "axis 4 is outside a tensor of 1 dimensions",
        ),
        (
            Build::new(17).input("x", &[2]).node("Frobnicate", &["x"], &["y"], &[]),
            "operator `Frobnicate` is not known",
        ),
        (
            Build::new(17).input("x", &[2, 3]).input("z", &[2, 4]).node(
                "Add",
                &["x", "z"],
                &["y"],
                &[],
            ),
            "do not broadcast",
        ),
        (
            Build::new(17).input("x", &[2, 3]).input("z", &[4, 5]).node(
                "MatMul",
                &["x", "z"],
                &["y"],
                &[],
            ),
            "inner extents 3 and 4 differ",
        ),
        (
            Build::new(17).input("x", &[2]).node("Constant", &[], &["y"], &[]),
            "its value is missing",
        ),
        (Build::new(17).node("Add", &[], &["y"], &[]), "it has 0 inputs, 2 are expected"),
        (Build::new(17).node("Relu", &[], &["y"], &[]), "input 0 is missing"),
        (
            Build::new(17).input("x", &[2, 3]).input_of("s", I64, &[1]).node(
                "Reshape",
                &["x", "s"],
                &["y"],
                &[],
            ),
            "its input `s` (shape) is not known before the model runs",
        ),
        (
            Build::new(17).init("a", i64s(&[1], &[1])).init("b", i64s(&[1], &[0])).node(
                "Div",
                &["a", "b"],
                &["y"],
                &[],
            ),
            "divides by zero",
        ),
    ];
    for (b, expected) in cases {
        let problem = b.problem();
        assert!(problem.contains(expected), "expected `{expected}`, got `{problem}`");
        assert!(!b.read().unwrap().nodes.last().unwrap().folded);
    }
}

#[test]
fn unknown_operators_hide_no_later_ones() {
    let mut b = Build::new(17).input("x", &[2, 3]);
    let mut strange = node("Fancy", &["x"], &["y"], &[]);
    strange.domain = "com.example".into();
    b.graph().node.push(strange);
    let blind = b.node("Relu", &["y"], &["z"], &[]);
    let problems: Vec<_> =
        blind.read().unwrap().nodes.into_iter().map(|n| n.problem.unwrap()).collect();
    assert_eq!(
        problems,
        [
            "operator `Fancy` of domain `com.example` is not known",
            "its input `y` has no known shape"
        ]
    );
    // Where the file states the shape, the next node is as good as any.
    let mut stated = blind;
    stated.graph().value_info.push(info("y", F32, &[5, 7]));
    assert_eq!(stated.shape("z"), [5, 7]);
    assert_eq!(stated.problem(), "no problem");
    let subgraph = AttributeProto {
        name: "body".into(),
        g: Some(vec![]),
        r#type: attribute::GRAPH,
        ..Default::default()
    };
    assert_eq!(
        Build::new(17).input("x", &[2]).node("Loop", &["x"], &["y"], &[subgraph]).problem(),
        "its input `x` (trip count) is not known before the model runs"
    );
}

#[test]
fn names_are_made_and_unique() {
    let mut b = Build::new(17).input("x", &[2]).node("Relu", &["x"], &["a"], &[]).node(
        "Abs",
        &["a"],
        &["b"],
        &[],
    );
    b.graph().node[1].name = "Relu_0".into();
    let b = b.node("Abs", &["b"], &["c"], &[]).node("Abs", &["c"], &["d"], &[]);
    let mut b = b;
    b.graph().node[2].name = "same".into();
    b.graph().node[3].name = "same".into();
    let names: Vec<String> = b.read().unwrap().nodes.into_iter().map(|n| n.name).collect();
    assert_eq!(names, ["Relu_0_1", "Relu_0", "same", "same_3"]);
}

/// A model that passes through most of the reader.
fn sample() -> Build {
    Build::new(17)
        .input("x", &[1, 4, 8, 8])
        .init("w", f32s(&[4, 2, 1, 1], &[0.5; 8]))
        .init("shape", i64s(&[3], &[0, 4, -1]))
        .node(
            "Conv",
            &["x", "w"],
            &["c"],
            &[int("group", 2), ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])],
        )
        .node("Constant", &[], &["k"], &[tensor("value", i64s(&[2], &[1, 0]))])
        .node("Shape", &["c"], &["s"], &[])
        .node("Gather", &["s", "k"], &["g"], &[int("axis", 0)])
        .node("ConstantOfShape", &["g"], &["z"], &[tensor("value", f32s(&[1], &[1.0]))])
        .node("Pad", &["z", "p"], &["zp"], &[text("mode", "reflect")])
        .init("p", i64s(&[4], &[0, 0, 1, 0]))
        .node("Slice", &["z", "one", "three"], &["cut"], &[])
        .init("one", i64s(&[1], &[1]))
        .init("three", i64s(&[1], &[3]))
        .node("Reshape", &["c", "shape"], &["r"], &[])
        .node("Transpose", &["r"], &["t"], &[ints("perm", &[0, 2, 1])])
        .node("MatMul", &["r", "t"], &["m"], &[])
        .node("Softmax", &["m"], &["q"], &[int("axis", -1)])
        .node("Split", &["q"], &["q1", "q2"], &[int("axis", 1)])
        .node("ReduceMean", &["q1"], &["out"], &[ints("axes", &[1]), int("keepdims", 0)])
        .output("out")
}

#[test]
fn the_sample_is_well() {
    let model = sample().read().unwrap();
    assert!(model.nodes.iter().all(|n| n.problem.is_none()), "{:?}", model.nodes);
    assert_eq!(sample().shape("out"), [1, 4]);
    assert_eq!(sample().shape("zp"), [5, 1]);
}

proptest! {
    #![proptest_config(many_cases())]
    #[test]
    fn mutated_bytes_never_panic(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cuts in 0..8u8,
    ) {
        let mut bytes = sample().bytes();
        for (at, to) in changes {
            let i = at.index(bytes.len());
            bytes[i] = to;
        }
        if cuts == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(model) = onnx::read(&bytes, "mutated.onnx", &[]) {
            for n in &model.nodes {
                let has_shape = |o: &usize| model.values[*o].shape.is_some();
                prop_assert!(n.problem.is_some() || n.outputs.iter().all(has_shape));
            }
            for v in &model.values {
                if let (Some(c), Some(s)) = (&v.constant, &v.shape) {
                    prop_assert_eq!(c.shape(), &s[..]);
                    prop_assert_eq!(c.len() as i64, s.iter().product::<i64>());
                }
            }
        }
    }
}

/// Operators whose inference computes with what the file says.
const OPS: &[&str] = &[
    "Conv",
    "ConvTranspose",
    "MaxPool",
    "AveragePool",
    "GlobalMaxPool",
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "DepthToSpace",
    "SpaceToDepth",
    "Resize",
    "Upsample",
    "Relu",
    "Dropout",
    "PRelu",
    "Cast",
    "Add",
    "Mod",
    "Pow",
    "Div",
    "Equal",
    "Where",
    "Gemm",
    "MatMul",
    "Softmax",
    "LayerNormalization",
    "ReduceSum",
    "ReduceMax",
    "ReduceProd",
    "ArgMax",
    "CumSum",
    "TopK",
    "Constant",
    "ConstantOfShape",
    "Shape",
    "Size",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Concat",
    "Split",
    "Slice",
    "Gather",
    "GatherElements",
    "Expand",
    "Tile",
    "Pad",
    "Range",
    "Neg",
    "Abs",
];

const ATTRIBUTES: &[&str] = &[
    "axis",
    "axes",
    "kernel_shape",
    "strides",
    "dilations",
    "pads",
    "group",
    "ceil_mode",
    "output_padding",
    "output_shape",
    "blocksize",
    "perm",
    "split",
    "num_outputs",
    "starts",
    "ends",
    "to",
    "k",
    "keepdims",
    "start",
    "end",
    "allowzero",
    "value_ints",
    "shape",
    "num_groups",
    "noop_with_empty_axes",
    "fmod",
];

fn number() -> impl Strategy<Value = i64> {
    let large = prop::sample::select(vec![
        i64::MIN,
        i64::MIN + 1,
        i64::MAX,
        1 << 20,
        1 << 32,
        1 << 40,
        (1 << 40) + 1,
        -(1 << 40),
        1 << 62,
    ]);
    prop_oneof![6 => -3..6i64, 1 => large]
}

fn extent() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..5i64, 1 => prop::sample::select(vec![1 << 20, 1 << 39, 1 << 40])]
}

/// An operand: absent, an input of a shape, or a constant of integers or floats.
fn operand() -> impl Strategy<Value = (u8, Vec<i64>)> {
    (0..4u8).prop_flat_map(|kind| match kind {
        0 | 1 => (Just(kind), vec(extent(), 0..6)).boxed(),
        _ => (Just(kind), vec(number(), 0..6)).boxed(),
    })
}

proptest! {
    #![proptest_config(many_cases())]
    #[test]
    fn no_operands_or_attributes_make_inference_panic(
        op in prop::sample::select(OPS),
        operands in vec(operand(), 0..5),
        attributes in vec(
            (prop::sample::select(ATTRIBUTES), vec(number(), 0..5), any::<bool>()),
            0..5,
        ),
        auto_pad in 0..6usize,
        outputs in 1..4usize,
        opset in prop::sample::select(vec![1i64, 6, 7, 9, 10, 11, 13, 18, 22]),
    ) {
        let mut b = Build::new(opset);
        let names = ["a", "b", "c", "d", "e"];
        let mut inputs = Vec::new();
        for (name, (kind, numbers)) in names.iter().zip(&operands) {
            b = match kind {
                0 => b.input(name, numbers),
                1 => b.absent(name, numbers),
                2 if numbers.len() == 1 => b.init(name, i64s(&[], numbers)),
                2 => b.init(name, i64s(&[numbers.len() as i64], numbers)),
                _ => {
                    let floats: Vec<f32> = numbers.iter().map(|n| *n as f32).collect();
                    b.init(name, f32s(&[floats.len() as i64], &floats))
                }
            };
            inputs.push(*name);
        }
        let attribute = |(n, v, scalar): &(&str, Vec<i64>, bool)| match v[..] {
            [v] if *scalar => int(n, v),
            _ => ints(n, v),
        };
        let mut given: Vec<AttributeProto> = attributes.iter().map(attribute).collect();
        if let Some(mode) = ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"].get(auto_pad) {
            given.push(text("auto_pad", mode));
        }
        let results = ["x", "y", "z"];
        b = b.node(op, &inputs, &results[..outputs], &given);
        if let Ok(model) = b.read() {
            // A node of which nothing is read may have none in the model.
            let Some(n) = model.nodes.first().filter(|n| !n.outputs.is_empty()) else {
                return Ok(());
            };
            let shape = &model.values[n.outputs[0]].shape;
            let is_shaped = shape.as_ref().is_some_and(|s| s.iter().all(|d| *d >= 0));
            prop_assert!(n.problem.is_some() || is_shaped);
            for v in &model.values {
                if let (Some(c), Some(s)) = (&v.constant, &v.shape) {
                    prop_assert_eq!(c.shape(), &s[..]);
                    prop_assert_eq!(c.len() as i64, s.iter().product::<i64>());
                }
            }
        }
    }
}
