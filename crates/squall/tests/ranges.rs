//! Tests of networks over a range of extents: a library that was exported once is run at every
//! extent, in several threads with their own workspaces, beside guarded and poisoned memory, and
//! its outputs are compared with the definitions of the operators (`Workload::evaluate`, and the
//! evaluators of constant folding).

use crate::written::untuned;
use squall::library::{LibraryOptions, Name};
use squall::{Context, InputRequest, LibraryRequest, Symbol, export_network};
use squall_graph::Assignment;
use squall_testing::onnx::{Build, f32s, float, i64s, int, ints, symbolic};
use std::path::Path;
use std::process::Command;

/// The program that runs a library.
const EVERY: &str = include_str!("ranges/every.c");

/// Numbers that look random, between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A model of an input `x` with these dimensions.
fn over(dims: &[&str]) -> Build {
    let mut build = Build::new(17);
    build.graph().input.push(symbolic("x", dims));
    build
}

fn weights(build: Build, name: &str, dims: &[i64]) -> Build {
    let count = dims.iter().product::<i64>() as usize;
    build.init(name, f32s(dims, &numbers(count, name.bytes().map(u64::from).sum())))
}

/// Attention of two heads, a normalisation and two products: an extent that is both rows and
/// columns.
fn encoder() -> Build {
    let mut b = over(&["n", "16"]);
    for w in ["wq", "wk", "wv"] {
        b = weights(b, w, &[16, 16]);
    }
    b = weights(weights(b, "w1", &[16, 40]), "w2", &[40, 16]);
    b = weights(b, "gain", &[16]);
    b = b.init("heads", i64s(&[3], &[-1, 2, 8])).init("flat", i64s(&[2], &[-1, 16]));
    b = b.init("scale", f32s(&[], &[0.35]));
    for (w, m, r, t, perm) in [
        ("wq", "q", "qr", "qt", [1, 0, 2]),
        ("wk", "k", "kr", "kt", [1, 2, 0]),
        ("wv", "v", "vr", "vt", [1, 0, 2]),
    ] {
        b = b.node("MatMul", &["x", w], &[m], &[]);
        b = b.node("Reshape", &[m, "heads"], &[r], &[]);
        b = b.node("Transpose", &[r], &[t], &[ints("perm", &perm)]);
    }
    b.node("MatMul", &["qt", "kt"], &["s"], &[])
        .node("Mul", &["s", "scale"], &["ss"], &[])
        .node("Softmax", &["ss"], &["p"], &[int("axis", -1)])
        .node("MatMul", &["p", "vt"], &["o"], &[])
        .node("Transpose", &["o"], &["ot"], &[ints("perm", &[1, 0, 2])])
        .node("Reshape", &["ot", "flat"], &["of"], &[])
        .node("Add", &["of", "x"], &["sum"], &[])
        .node(
            "LayerNormalization",
            &["sum", "gain"],
            &["norm"],
            &[int("axis", -1), float("epsilon", 1e-5)],
        )
        .node("MatMul", &["norm", "w1"], &["h"], &[])
        .node("Relu", &["h"], &["hr"], &[])
        .node("MatMul", &["hr", "w2"], &["f"], &[])
        .node("Add", &["f", "norm"], &["y"], &[])
        .output("y")
}

/// Convolutions and pools of a batch of images.
fn images() -> Build {
    let b = over(&["n", "3", "10", "9"]);
    let b = weights(weights(b, "w0", &[16, 3, 3, 3]), "w1", &[8, 16, 1, 1]);
    weights(weights(b, "b0", &[16]), "w2", &[8, 5])
        .node("Conv", &["x", "w0", "b0"], &["c"], &[ints("pads", &[1, 1, 1, 1])])
        .node("Relu", &["c"], &["cr"], &[])
        .node(
            "MaxPool",
            &["cr"],
            &["m"],
            &[ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])],
        )
        .node("Conv", &["m", "w1"], &["d"], &[])
        .node("GlobalAveragePool", &["d"], &["g"], &[])
        .node("Flatten", &["g"], &["gf"], &[])
        .node("MatMul", &["gf", "w2"], &["y"], &[])
        .output("y")
}

/// Convolutions along a time axis, the second one in steps of two: extents that are quotients.
fn frames() -> Build {
    let b = over(&["1", "4", "n"]);
    weights(weights(b, "w0", &[12, 4, 3]), "w1", &[8, 12, 3])
        .node("Conv", &["x", "w0"], &["c"], &[ints("pads", &[1, 1])])
        .node("Relu", &["c"], &["cr"], &[])
        .node("Conv", &["cr", "w1"], &["d"], &[ints("pads", &[1, 1]), ints("strides", &[2])])
        .node("Transpose", &["d"], &["t"], &[ints("perm", &[0, 2, 1])])
        .node("Softmax", &["t"], &["y"], &[int("axis", -1)])
        .output("y")
}

/// Moves of data, reductions along the axis that varies, and the row of a table whose number is its
/// extent.
fn moves() -> Build {
    weights(over(&["n", "5"]), "table", &[40, 5])
        .init("first", i64s(&[], &[0]))
        .node("Shape", &["x"], &["extents"], &[])
        .node("Gather", &["extents", "first"], &["rows"], &[int("axis", 0)])
        .node("Gather", &["table", "rows"], &["row"], &[int("axis", 0)])
        .node("Add", &["x", "row"], &["at"], &[])
        .init("one", i64s(&[1], &[1]))
        .init("end", i64s(&[1], &[i64::MAX]))
        .init("zero", i64s(&[1], &[0]))
        .init("two", f32s(&[], &[2.0]))
        .node("Mul", &["at", "two"], &["x2"], &[])
        .node("Concat", &["x", "x2"], &["both"], &[int("axis", 0)])
        .node("Slice", &["both", "one", "end", "zero"], &["s"], &[])
        .node("Transpose", &["s"], &["t"], &[ints("perm", &[1, 0])])
        .node("Softmax", &["t"], &["p"], &[int("axis", -1)])
        .node("ReduceMax", &["p"], &["m"], &[ints("axes", &[1]), int("keepdims", 1)])
        .node("Div", &["p", "m"], &["y"], &[])
        .output("y")
}

/// The output of a model at an extent by the definitions of its operators.
fn defined(model: &Path, extent: i64, x: &[f32]) -> Vec<f32> {
    let dims = vec![("n".to_string(), extent)];
    let input = InputRequest { dims, ..InputRequest::new(model.display().to_string()) };
    let input = input.load(squall::TargetRequest::Cpu).unwrap();
    let graph = input.graph().unwrap();
    let workload = |id| graph.tasks().iter().find(|t| t.id == id).unwrap().workload.clone();
    let mut kernel = |id, feeds: &[&[f32]]| {
        let wide = |f: &&[f32]| f.iter().map(|v| f64::from(*v)).collect();
        let feeds: Vec<Vec<f64>> = feeds.iter().map(wide).collect();
        Ok(workload(id).evaluate(&feeds).into_iter().map(|v| v as f32).collect())
    };
    Assignment::run(graph, &[x.to_vec()], &mut kernel).unwrap().remove(0)
}

/// Exports a model over a range once and compares it at every extent.
fn check(model: &Build, row: usize, symbol: &str, threads: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.onnx");
    std::fs::write(&path, model.bytes()).unwrap();
    let symbol = Symbol::parse("n", symbol).unwrap();
    let input = InputRequest {
        ranges: vec![symbol.clone()],
        ..InputRequest::new(path.display().to_string())
    };
    let network = squall::NetworkRequest { threads, ..untuned(input) };
    let options =
        LibraryOptions { name: "net".parse::<Name>().unwrap(), onnxruntime: false, build: false };
    let folder = dir.path().join("lib");
    let request = LibraryRequest { network, options, out: folder.clone() };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let made = export_network(&Context::with_cache(Some(cache)), &request, &mut |_| {}).unwrap();
    assert_eq!(made.description["symbols"][0]["most"], symbol.most);

    let mut words = vec![threads.max(3).to_string()];
    let mut expected = Vec::new();
    let mut extent = symbol.first();
    while extent <= symbol.last() {
        let x = numbers(row * extent as usize, extent as u64);
        let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
        std::fs::write(folder.join(format!("in_{extent}.bin")), bytes).unwrap();
        let y = defined(&path, extent, &x);
        words.push(format!("{extent}:{}:{}", x.len(), y.len()));
        expected.push((extent, y));
        extent += symbol.step;
    }
    std::fs::write(folder.join("every.c"), EVERY).unwrap();
    let run = |program: &str, words: &[String]| {
        let out = Command::new(program).args(words).current_dir(&folder).output().unwrap();
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(out.status.success(), "{program}: {said}");
        said
    };
    run("make", &["libnet.a".to_string()]);
    let compile = "-std=gnu11 -Wall -Wextra -Werror -O1 -fopenmp -o every every.c libnet.a -I. \
                   -lpthread -lm";
    run("cc", &compile.split_whitespace().map(String::from).collect::<Vec<String>>());
    let every = folder.join("every").display().to_string();
    assert_eq!(run(&every, &words), format!("{} extents\n", expected.len()));
    for (extent, want) in expected {
        let got = std::fs::read(folder.join(format!("out_{extent}.bin"))).unwrap();
        let (got, _) = got.as_chunks::<4>();
        let most = want.iter().fold(1.0f32, |m, v| m.max(v.abs()));
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            let apart = (f32::from_le_bytes(*g) - w).abs();
            assert!(apart <= 1e-4 * most, "at {extent}, element {i}: {apart} of {most}");
        }
    }
}

#[test]
fn attention_is_right_at_every_length() {
    check(&encoder(), 16, "1..24", 1);
}

#[test]
fn attention_of_several_threads_is_right_at_every_length() {
    check(&encoder(), 16, "1..40", 4);
}

#[test]
fn images_are_right_in_every_batch() {
    check(&images(), 270, "1..9", 3);
}

#[test]
fn steps_along_an_axis_are_right_at_every_length() {
    check(&frames(), 4, "2..64", 2);
}

/// Of few extents there are few plans to learn from.
#[test]
fn short_ranges_are_right() {
    check(&images(), 270, "1..3", 1);
    check(&encoder(), 16, "6..7", 1);
    check(&moves(), 5, "4..4", 1);
}

#[test]
fn multiples_alone_are_taken() {
    check(&frames(), 4, "8..96:8", 1);
}

#[test]
fn moves_are_right_at_every_length() {
    check(&moves(), 5, "1..33", 2);
}
