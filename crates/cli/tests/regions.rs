//! Tests of whole models with loops and with lengths that only the run knows (the result of
//! `NonZero`, say), by `squall check` and exported libraries: such nodes become a region, one step
//! of the network with memory that grows.

use crate::support::Place;
use squall_testing::onnx::{
    BOOL, Build, F32, I64, TensorProto, body, branch, f32s, i64s, int, ints, node, stored, text,
    truth,
};
use std::process::Command;

/// Runs a model on floats `x` and checks that it gives these tensors.
fn gives(model: &Build, x: (&[i64], &[f32]), outputs: &[TensorProto]) {
    let p = Place::new();
    p.file("m.onnx", model.bytes());
    std::fs::create_dir(p.path().join("d")).unwrap();
    p.file("d/input_0.pb", stored("x", &f32s(x.0, x.1)));
    for (i, t) in outputs.iter().enumerate() {
        p.file(&format!("d/output_{i}.pb"), stored(&model.output_name(i), t));
    }
    p.squall(&["check", "m.onnx", "--test-data", "d"]).ok();
}

#[test]
fn operators_run_over_the_length_that_the_run_finds() {
    let model = Build::new(17)
        .input("x", &[3, 4])
        .init("zero", f32s(&[], &[0.0]))
        .init("w", f32s(&[1, 2], &[1.0, 10.0]))
        .init("one", i64s(&[1], &[1]))
        .node("Greater", &["x", "zero"], &["c"], &[])
        .node("NonZero", &["c"], &["i"], &[])
        .node("Transpose", &["i"], &["places"], &[ints("perm", &[1, 0])])
        .node("GatherND", &["x", "places"], &["found"], &[])
        .node("Unsqueeze", &["found", "one"], &["column"], &[])
        .node("MatMul", &["column", "w"], &["y"], &[])
        .node("ReduceSum", &["found"], &["sum"], &[int("keepdims", 0)])
        .node("Shape", &["found"], &["count"], &[])
        .output("y")
        .output("sum")
        .output("count");
    let x = [1.0, -1.0, 0.0, 2.0, -3.0, 4.0, -1.0, -1.0, -1.0, -1.0, 0.5, -2.0];
    let y = f32s(&[4, 2], &[1.0, 10.0, 2.0, 20.0, 4.0, 40.0, 0.5, 5.0]);
    gives(&model, (&[3, 4], &x), &[y, f32s(&[], &[7.5]), i64s(&[1], &[4])]);
    let none = [f32s(&[0, 2], &[]), f32s(&[], &[0.0]), i64s(&[1], &[0])];
    gives(&model, (&[3, 4], &[-1.0; 12]), &none);
}

#[test]
fn a_library_says_the_extents_that_its_run_found() {
    let model = Build::new(17)
        .input("x", &[3, 4])
        .init("two", f32s(&[], &[2.0]))
        .node("NonZero", &["x"], &["i"], &[])
        .node("Cast", &["i"], &["f"], &[int("to", 1)])
        .node("Mul", &["f", "two"], &["y"], &[])
        .node("NonZero", &["same"], &["j"], &[])
        .node("Neg", &["x"], &["same"], &[])
        .output("y")
        .output("j");
    let p = Place::new();
    p.file("m.onnx", model.bytes());
    p.squall(&["export", "m.onnx", "--network", "net", "--out", "lib", "--build"]).ok();
    let mut x = [0.0f32; 12];
    (x[1], x[10]) = (1.0, 3.0);
    p.file("x.bin", x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    let mut example = Command::new(p.path().join("lib/example"));
    example.current_dir(p.path()).args(["--weights", "lib/net.weights", "--runs", "3", "x.bin"]);
    let out = example.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("y: of extents 2 2"), "{out:?}");
    let read = |file: &str| std::fs::read(p.path().join(file)).unwrap();
    let floats: Vec<u8> = [0.0f32, 4.0, 2.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(read("output_0.bin"), floats);
    // What is bounded has room for the most; where its extents stand says the header.
    let whole = |v: &[i64]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    assert_eq!(read("output_1.bin")[..32], whole(&[0, 2, 1, 2]));
    assert_eq!(read("output_2.bin"), whole(&[2, 2]));
}

#[test]
fn a_loop_ends_when_the_data_says_so_and_its_results_grow() {
    let inner = body(
        vec![
            node("Concat", &["a", "x"], &["longer"], &[int("axis", 0)]),
            node("ReduceSum", &["longer"], &["sum"], &[int("keepdims", 0)]),
            node("Less", &["sum", "limit"], &["goes_on"], &[]),
        ],
        &[("i", I64, &[]), ("c", BOOL, &[]), ("a", F32, &[3])],
        &["goes_on", "longer", "sum"],
    );
    let model = Build::new(17)
        .input("x", &[3])
        .init("limit", f32s(&[], &[5.0]))
        .init("true", truth())
        .node("Loop", &["", "true", "x"], &["y", "sums"], &[inner])
        .output("y")
        .output("sums");
    let x = [1.0, 2.0, -1.0];
    let y = [x, x, x].concat();
    gives(&model, (&[3], &x), &[f32s(&[9], &y), f32s(&[2], &[4.0, 6.0])]);
}

#[test]
fn thousands_of_turns_stay_a_loop() {
    let inner = body(
        vec![node("Add", &["h", "u"], &["sum"], &[]), node("Neg", &["sum"], &["o"], &[])],
        &[("h", F32, &[2]), ("u", F32, &[2])],
        &["sum", "o"],
    );
    let turns = 5000;
    let model = Build::new(17)
        .input("x", &[turns, 2])
        .init("h", f32s(&[2], &[0.0, 1.0]))
        .node("Scan", &["h", "x"], &["last", "all"], &[inner, int("num_scan_inputs", 1)])
        .output("last")
        .output("all");
    // Sums of ones and twos are exact.
    let x: Vec<f32> = (0..turns).flat_map(|_| [1.0, 2.0]).collect();
    let all: Vec<f32> = (1..=turns).flat_map(|i| [-(i as f32), -(2.0 * i as f32 + 1.0)]).collect();
    let last = f32s(&[2], &[5000.0, 10001.0]);
    gives(&model, (&[turns, 2], &x), &[last, f32s(&[turns, 2], &all)]);
}

#[test]
fn what_is_refused_names_the_value_whose_length_is_not_known() {
    let model = Build::new(17)
        .input("x", &[12])
        .node("NonZero", &["x"], &["i"], &[])
        .node("Cast", &["i"], &["f"], &[int("to", 1)])
        .node("DFT", &["f"], &["y"], &[])
        .output("y");
    let p = Place::new();
    p.file("m.onnx", model.bytes());
    let said = p.squall(&["run", "m.onnx"]).fails().err;
    assert!(said.contains("`f`") && said.contains("only the run knows"), "{said}");
}

/// `y` is the second row of `x` where its sum is positive, else `x` twice; what the other branch
/// computes would be illegal.
fn branches(first: &str) -> Build {
    let taken = [
        node("Cast", &["sum"], &["row"], &[int("to", 7)]),
        node("Gather", &["x", "row"], &["one"], &[]),
        node(first, &["one"], &["a"], &[]),
    ];
    let other = [node("Concat", &["x", "x"], &["b"], &[int("axis", 1)])];
    let both = [branch("then_branch", &taken, "a"), branch("else_branch", &other, "b")];
    Build::new(12)
        .input("x", &[2, 5])
        .init("zero", f32s(&[], &[0.0]))
        .node("ReduceSum", &["x"], &["sum"], &[int("keepdims", 0)])
        .node("Greater", &["sum", "zero"], &["c"], &[])
        .node("If", &["c"], &["y"], &both)
}

#[test]
fn the_branch_that_is_taken_gives_the_extents_and_the_rank() {
    let model = branches("Neg")
        .init("one_more", f32s(&[], &[1.0]))
        .init("rows", i64s(&[2], &[-1, 5]))
        .node("Add", &["y", "one_more"], &["z"], &[])
        .node("Reshape", &["z", "rows"], &["wide"], &[])
        .node("ReduceMax", &["wide"], &["largest"], &[ints("axes", &[0]), int("keepdims", 0)])
        .output("z")
        .output("largest");
    let x = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, -2.0, 3.0, -4.0, 3.0];
    let row = [0.0, 3.0, -2.0, 5.0, -2.0];
    gives(&model, (&[2, 5], &x), &[f32s(&[5], &row), f32s(&[5], &row)]);
    let x: Vec<f32> = x.iter().map(|v| -100.0 * v).collect();
    let twice = |k: usize| x[5 * k..5 * k + 5].repeat(2);
    let z: Vec<f32> = [twice(0), twice(1)].concat().iter().map(|v| v + 1.0).collect();
    let largest: Vec<f32> = (0..5).map(|i| z[i].max(z[10 + i])).collect();
    gives(&model, (&[2, 5], &x), &[f32s(&[2, 10], &z), f32s(&[5], &largest)]);
}

#[test]
fn a_branch_within_a_loop_or_behind_a_length_runs_where_it_is_taken() {
    // Turns 0 and 2 would read the row 7 of 2.
    let odd = [node("Gather", &["x", "place"], &["b"], &[])];
    let even = [node("Add", &["a", "a"], &["d"], &[])];
    let both = [branch("then_branch", &odd, "b"), branch("else_branch", &even, "d")];
    let turn = vec![
        node("Mod", &["i", "two"], &["rest"], &[]),
        node("Cast", &["rest"], &["is_odd"], &[int("to", 9)]),
        node("Where", &["is_odd", "one", "seven"], &["place"], &[]),
        node("If", &["is_odd"], &["next"], &both),
        node("ReduceSum", &["next"], &["sum"], &[int("keepdims", 0)]),
        node("Less", &["sum", "limit"], &["goes"], &[]),
    ];
    let inputs: [(&str, i32, &[i64]); 3] = [("i", I64, &[]), ("c", BOOL, &[]), ("a", F32, &[3])];
    // The first place of what is larger than the limit; where nothing is, there is none.
    let found = [node("Gather", &["places", "zero"], &["p"], &[int("axis", 1)])];
    let none = [node("Identity", &["nowhere"], &["q"], &[])];
    let first = [branch("then_branch", &found, "p"), branch("else_branch", &none, "q")];
    let model = Build::new(13)
        .input("x", &[2, 3])
        .init("zero", i64s(&[], &[0]))
        .init("one", i64s(&[], &[1]))
        .init("two", i64s(&[], &[2]))
        .init("seven", i64s(&[], &[7]))
        .init("nowhere", i64s(&[2], &[-1, -1]))
        .init("limit", f32s(&[], &[30.0]))
        .init("true", truth())
        .node("Gather", &["x", "zero"], &["start"], &[])
        .node("Loop", &["", "true", "start"], &["y"], &[body(turn, &inputs, &["goes", "next"])])
        .node("Greater", &["x", "limit"], &["large"], &[])
        .node("NonZero", &["large"], &["places"], &[])
        .node("Size", &["places"], &["count"], &[])
        .node("Greater", &["count", "zero"], &["any"], &[])
        .node("If", &["any"], &["at"], &first)
        .output("y")
        .output("at");
    let x = [1.0, 1.0, 1.0, 9.0, 9.0, 2.0];
    let y = f32s(&[3], &[18.0, 18.0, 4.0]);
    gives(&model, (&[2, 3], &x), &[y, i64s(&[2], &[-1, -1])]);
    let x = [1.0, 1.0, 1.0, 9.0, 31.0, 2.0];
    let y = f32s(&[3], &[9.0, 31.0, 2.0]);
    gives(&model, (&[2, 3], &x), &[y, i64s(&[2], &[1, 1])]);
}

#[test]
fn axes_that_the_run_computes() {
    let model = Build::new(18)
        .input("x", &[2, 1, 12])
        .init("flat", i64s(&[1], &[-1]))
        .init("zero", i64s(&[1], &[0]))
        .node("ReduceMax", &["x"], &["most"], &[int("keepdims", 0)])
        .node("Cast", &["most"], &["whole"], &[int("to", 7)])
        .node("Reshape", &["whole", "flat"], &["axis"], &[])
        .node("ReduceSum", &["x", "axis"], &["kept"], &[])
        .node("ReduceMax", &["x", "axis"], &["joined"], &[int("keepdims", 0)])
        .node("Unsqueeze", &["joined", "axis"], &["wide"], &[])
        .node("Shape", &["wide"], &["shape"], &[])
        .node("NonZero", &["x"], &["places"], &[])
        .node("Squeeze", &["places"], &["narrow"], &[])
        .output("kept")
        .output("joined")
        .output("shape")
        .output("narrow");
    let mut x = [0.0f32; 24];
    x[13] = 2.0;
    let most = [f32s(&[2, 1], &[0.0, 2.0]), i64s(&[3], &[2, 1, 1]), i64s(&[3], &[1, 0, 1])];
    let [joined, shape, narrow] = most;
    gives(&model, (&[2, 1, 12], &x), &[f32s(&[2, 1, 1], &[0.0, 2.0]), joined, shape, narrow]);
    x[13] = 1.0;
    let shape = i64s(&[3], &[2, 1, 12]);
    let narrow = i64s(&[3], &[1, 0, 1]);
    gives(&model, (&[2, 1, 12], &x), &[f32s(&[2, 1, 12], &x), f32s(&[2, 12], &x), shape, narrow]);
}

#[test]
fn windows_with_strides_over_a_length_that_the_run_finds() {
    let three = [ints("kernel_shape", &[3]), ints("strides", &[2])];
    let model = Build::new(13)
        .input("x", &[1, 1, 12])
        .init("zero", f32s(&[], &[0.0]))
        .init("w", f32s(&[1, 1, 3], &[1.0, 10.0, 100.0]))
        .init("one", i64s(&[3], &[1, 1, -1]))
        .node("Greater", &["x", "zero"], &["c"], &[])
        .node("Compress", &["x", "mask"], &["found"], &[])
        .node("Reshape", &["found", "one"], &["row"], &[])
        .node(
            "Conv",
            &["row", "w"],
            &["y"],
            &[text("auto_pad", "SAME_UPPER"), ints("strides", &[2])],
        )
        .node("MaxPool", &["row"], &["most"], &[three.to_vec(), vec![int("ceil_mode", 1)]].concat())
        .node(
            "AveragePool",
            &["row"],
            &["mean"],
            &[three.to_vec(), vec![ints("pads", &[1, 1])]].concat(),
        )
        .node("Reshape", &["c", "all"], &["mask"], &[])
        .init("all", i64s(&[1], &[-1]))
        .output("y")
        .output("most")
        .output("mean");
    let of = |n: usize| {
        let mut x = [-1.0; 12];
        (0..n).for_each(|i| x[2 * i] = i as f32 + 1.0);
        x
    };
    let row = |v: &[f32]| f32s(&[1, 1, v.len() as i64], v);
    let five = [row(&[210.0, 432.0, 54.0]), row(&[3.0, 5.0]), row(&[1.5, 3.0, 4.5])];
    gives(&model, (&[1, 1, 12], &of(5)), &five);
    let six = [row(&[321.0, 543.0, 65.0]), row(&[3.0, 5.0, 6.0]), row(&[1.5, 3.0, 5.0])];
    gives(&model, (&[1, 1, 12], &of(6)), &six);
}

/// The kernel's memory follows in steps: half the rows, rounded up, of 64 channels.
#[test]
fn a_convolution_of_bytes_with_strides_has_room_at_every_length() {
    const WIDE: usize = 56;
    let ones = |count: i64, kind: i32| {
        let data = vec![1u8; count as usize];
        TensorProto { data_type: kind, raw_data: data, ..Default::default() }
    };
    let byte = |zero: u8, kind: i32| TensorProto {
        data_type: kind,
        raw_data: vec![zero],
        ..Default::default()
    };
    let weights = TensorProto { dims: vec![64, 1, 3, 3], ..ones(576, 3) };
    let model = Build::new(13)
        .input("x", &[1, 1, 5, WIDE as i64])
        .init("zero", f32s(&[], &[0.0]))
        .init("one", f32s(&[], &[1.0]))
        .init("none", byte(0, 2))
        .init("no", byte(0, 3))
        .init("w", weights)
        .node("ReduceMax", &["x"], &["rows"], &[ints("axes", &[0, 1, 3]), int("keepdims", 0)])
        .node("Greater", &["rows", "zero"], &["mask"], &[])
        .node("Compress", &["x", "mask"], &["found"], &[int("axis", 2)])
        .node("Cast", &["found"], &["bytes"], &[int("to", 2)])
        .node(
            "QLinearConv",
            &["bytes", "one", "none", "w", "one", "no", "one", "none"],
            &["sums"],
            &[ints("strides", &[2, 1]), ints("pads", &[1, 1, 1, 1])],
        )
        .node("Cast", &["sums"], &["floats"], &[int("to", 1)])
        .node("ReduceMax", &["floats"], &["most"], &[int("keepdims", 0)])
        .node("ReduceMin", &["floats"], &["least"], &[int("keepdims", 0)])
        .output("most")
        .output("least");
    for (rows, most, least) in [(1, 3.0, 2.0), (3, 6.0, 4.0), (5, 9.0, 4.0)] {
        let mut x = [-1.0; 5 * WIDE];
        x[..rows * WIDE].fill(1.0);
        let want = [f32s(&[], &[most]), f32s(&[], &[least])];
        gives(&model, (&[1, 1, 5, WIDE as i64], &x), &want);
    }
}

#[test]
fn loops_without_a_turn_and_loops_of_changing_ranks() {
    let step = vec![node("Add", &["h", "u"], &["sum"], &[]), node("Neg", &["sum"], &["o"], &[])];
    let step = body(step, &[("h", F32, &[2]), ("u", F32, &[2])], &["sum", "o"]);
    let wider = vec![
        node("Unsqueeze", &["a", "one"], &["b"], &[]),
        node("Cast", &["i"], &["f"], &[int("to", 1)]),
        node("Less", &["f", "turns"], &["goes"], &[]),
    ];
    let inputs: [(&str, i32, &[i64]); 3] = [("i", I64, &[]), ("c", BOOL, &[]), ("a", F32, &[2])];
    let model = Build::new(13)
        .input("x", &[2])
        .init("none", f32s(&[2, 0], &[]))
        .init("one", i64s(&[1], &[0]))
        .init("true", truth())
        .node("ReduceMax", &["x"], &["turns"], &[int("keepdims", 0)])
        .node(
            "Scan",
            &["x", "none"],
            &["last", "all"],
            &[step, int("num_scan_inputs", 1), ints("scan_input_axes", &[1])],
        )
        .node("Loop", &["", "true", "x"], &["y"], &[body(wider, &inputs, &["goes", "b"])])
        .output("last")
        .output("all")
        .output("y");
    let x = [0.5, 2.0];
    let all = f32s(&[0, 2], &[]);
    gives(&model, (&[2], &x), &[f32s(&[2], &x), all, f32s(&[1, 1, 1, 2], &x)]);
}

#[test]
fn floats_of_16_bits_in_regions_and_loops() {
    for (format, third) in [(10, 0.333_251_95_f32), (16, 0.333_984_38)] {
        let turn = vec![
            node("Concat", &["a", "h"], &["longer"], &[int("axis", 0)]),
            node("ReduceSum", &["longer"], &["sum"], &[int("keepdims", 0)]),
            node("Less", &["sum", "most"], &["goes"], &[]),
        ];
        let inputs: [(&str, i32, &[i64]); 3] =
            [("i", I64, &[]), ("c", BOOL, &[]), ("a", format, &[2])];
        let to = |k| [int("to", k)];
        let model = Build::new(13)
            .input("x", &[2])
            .init("true", truth())
            .init("six", f32s(&[], &[6.0]))
            .init("third", f32s(&[1], &[1.0 / 3.0]))
            .node("Cast", &["x"], &["h"], &to(format.into()))
            .node("Cast", &["six"], &["most"], &to(format.into()))
            .node("Loop", &["", "true", "h"], &["y"], &[body(turn, &inputs, &["goes", "longer"])])
            .node("Mul", &["y", "y"], &["square"], &[])
            .node("Cast", &["square"], &["wide"], &to(1))
            .node("NonZero", &["x"], &["places"], &[])
            .node("Cast", &["places"], &["f"], &to(1))
            .node("Add", &["f", "third"], &["g"], &[])
            .node("Cast", &["g"], &["narrow"], &to(format.into()))
            .node("Cast", &["narrow"], &["rounded"], &to(1))
            .output("wide")
            .output("rounded");
        let wide = f32s(&[6], &[1.0, 2.25, 1.0, 2.25, 1.0, 2.25]);
        let one = if format == 10 { 1.333_007_8 } else { 1.335_937_5 };
        let rounded = f32s(&[1, 2], &[third, one]);
        gives(&model, (&[2], &[1.0, 1.5]), &[wide, rounded]);
    }
}

/// Constants are evaluated only where the reader has an evaluator, which `Unique` and `Compress`
/// have not: what reads their results goes on all the same.
#[test]
fn lengths_that_constants_decide_are_found_by_the_run() {
    let mask = TensorProto {
        dims: vec![4],
        data_type: BOOL,
        raw_data: vec![1, 0, 0, 1],
        ..Default::default()
    };
    let model = Build::new(17)
        .input("x", &[1])
        .init("list", f32s(&[4], &[3.0, 1.0, 3.0, 2.0]))
        .init("mask", mask)
        .node("Unique", &["list"], &["few"], &[])
        .node("Add", &["few", "x"], &["y"], &[])
        .node("Compress", &["list", "mask"], &["ends"], &[int("axis", 0)])
        .node("Mul", &["ends", "x"], &["z"], &[])
        .output("y")
        .output("z");
    let y = f32s(&[3], &[1.5, 2.5, 3.5]);
    gives(&model, (&[1], &[0.5]), &[y, f32s(&[2], &[1.5, 1.0])]);
}

#[test]
fn a_result_of_a_region_may_have_no_reader_left() {
    // The loop makes no turn, so that what says how many it may make is read by nothing.
    let carried: [(&str, i32, &[i64]); 3] = [("i", I64, &[]), ("c", BOOL, &[]), ("a", F32, &[3])];
    let step = vec![node("Neg", &["a"], &["b"], &[]), node("Identity", &["c"], &["on"], &[])];
    let model = Build::new(21)
        .input("x", &[3])
        .init("at", i64s(&[], &[1]))
        .init("never", TensorProto { data_type: BOOL, raw_data: vec![0], ..truth() })
        .node("NonZero", &["x"], &["places"], &[])
        .node("Shape", &["places"], &["lengths"], &[])
        .node("Gather", &["lengths", "at"], &["turns"], &[])
        .node("Loop", &["turns", "never", "x"], &["y"], &[body(step, &carried, &["on", "b"])])
        .output("places")
        .output("y");
    let x = [0.0, 2.0, -1.0];
    gives(&model, (&[3], &x), &[i64s(&[1, 2], &[1, 2]), f32s(&[3], &x)]);
}

#[test]
fn the_run_finds_the_extents_of_a_value_without_elements() {
    let model = Build::new(21)
        .input("x", &[2])
        .init("zero", f32s(&[], &[0.0]))
        .init("empty", f32s(&[0, 2, 3], &[]))
        .node("Greater", &["x", "zero"], &["c"], &[])
        .node("Compress", &["empty", "c"], &["y"], &[int("axis", 1)])
        .output("y");
    gives(&model, (&[2], &[1.0, -1.0]), &[f32s(&[0, 1, 3], &[])]);
}

#[test]
fn coordinates_of_a_fractional_width_are_those_of_static_models() {
    let by = |m: &str| [text("mode", "linear"), text("coordinate_transformation_mode", m)];
    let (pixel, corners) = (by("pytorch_half_pixel"), by("align_corners"));
    // Half of three pixels is one, and four fifths of them are two whose last is at 2 / 1.4.
    let model = Build::new(18)
        .input("x", &[1, 1, 2, 3])
        .init("zero", f32s(&[], &[0.0]))
        .init("others", i64s(&[3], &[0, 1, 3]))
        .init("half", f32s(&[4], &[1.0, 1.0, 1.0, 0.5]))
        .init("most", f32s(&[4], &[1.0, 1.0, 1.0, 0.8]))
        .node("ReduceMax", &["x", "others"], &["rows"], &[int("keepdims", 0)])
        .node("Greater", &["rows", "zero"], &["c"], &[])
        .node("Compress", &["x", "c"], &["kept"], &[int("axis", 2)])
        .node("Resize", &["x", "", "half"], &["one"], &pixel)
        .node("Resize", &["kept", "", "half"], &["kept_one"], &pixel)
        .node("Resize", &["x", "", "most"], &["two"], &corners)
        .node("Resize", &["kept", "", "most"], &["kept_two"], &corners)
        .output("one")
        .output("kept_one")
        .output("two")
        .output("kept_two");
    let x = [-1.0, -2.0, -4.0, 7.0, 14.0, 28.0];
    let (last, kept) = (-2.0 - 6.0 / 7.0, 20.0);
    let wanted = [
        f32s(&[1, 1, 2, 1], &[-1.0, 7.0]),
        f32s(&[1, 1, 1, 1], &[7.0]),
        f32s(&[1, 1, 2, 2], &[-1.0, last, 7.0, kept]),
        f32s(&[1, 1, 1, 2], &[7.0, kept]),
    ];
    gives(&model, (&[1, 1, 2, 3], &x), &wanted);
}
