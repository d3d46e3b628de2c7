//! Tests of whole networks with features of few models: branches (`If`) that the run decides,
//! 64-bit floats, and axes of extent zero, run by `squall run`, exported libraries and an emulated
//! GPU.

use crate::support;

use squall_testing::emulator::emulator;
use squall_testing::onnx::*;
use std::process::Command;
use support::Place;

/// The bytes of a .npy file.
pub fn npy(descr: &str, shape: &[i64], data: &[u8]) -> Vec<u8> {
    let shape: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    let padded = format!("{head:<117}\n");
    [b"\x93NUMPY\x01\0".as_slice(), &(padded.len() as u16).to_le_bytes(), padded.as_bytes(), data]
        .concat()
}

fn floats(data: &[f32]) -> Vec<u8> {
    data.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn whole(data: &[i64]) -> Vec<u8> {
    data.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Two branches of a kernel, moves and a plain operator each, which demand other indices: `i` of
/// the first, `j` of the second, in which another condition decides again.
fn model() -> Vec<u8> {
    let pick = |from: &str, by: &str, to: &str| node("Gather", &[from, by], &[to], &[]);
    let joined = |a: &str, b: &str, to: &str| node("Concat", &[a, b], &[to], &[int("axis", 1)]);
    let first = [
        node("MatMul", &["h", "v"], &["m"], &[]),
        node("Relu", &["m"], &["r"], &[]),
        joined("r", "h", "k"),
        pick("k", "i", "a"),
    ];
    let nested = [
        branch("then_branch", &[pick("q", "j", "s")], "s"),
        branch("else_branch", &[node("Neg", &["q"], &["t"], &[])], "t"),
    ];
    let second = [
        joined("h", "h", "q"),
        node("ReduceSum", &["x"], &["all"], &[int("keepdims", 0)]),
        node("Greater", &["all", "zero"], &["positive"], &[]),
        node("If", &["positive"], &["b"], &nested),
    ];
    let branches = [branch("then_branch", &first, "a"), branch("else_branch", &second, "b")];
    Build::new(17)
        .input_of("c", BOOL, &[1])
        .input("x", &[2, 4])
        .input_of("i", I64, &[2])
        .input_of("j", I64, &[2])
        .init("v", f32s(&[4, 4], &[0.5; 16]))
        .init("zero", f32s(&[], &[0.0]))
        .node("Tanh", &["x"], &["h"], &[])
        .node("If", &["c"], &["y"], &branches)
        .output("y")
        .bytes()
}

/// What the model gives; nothing where the branch that is taken has an illegal index.
fn meaning(taken: bool, x: &[f32], i: &[i64], j: &[i64]) -> Option<Vec<f32>> {
    let h: Vec<f32> = x.iter().map(|v| v.tanh()).collect();
    let rows = |first: &dyn Fn(&[f32]) -> Vec<f32>| -> Vec<Vec<f32>> {
        h.chunks(4).map(|r| [first(r), r.to_vec()].concat()).collect()
    };
    let all = match taken {
        true => rows(&|r| vec![(r.iter().sum::<f32>() * 0.5).max(0.0); 4]),
        false => rows(&|r| r.to_vec()),
    };
    let pick = |places: &[i64]| -> Option<Vec<f32>> {
        let row = |p: &i64| all.get(usize::try_from(*p).ok()?).cloned();
        Some(places.iter().map(row).collect::<Option<Vec<_>>>()?.concat())
    };
    match (taken, x.iter().sum::<f32>() > 0.0) {
        (true, _) => pick(i),
        (false, true) => pick(j),
        (false, false) => Some(all.concat().iter().map(|v| -v).collect()),
    }
}

/// What a run is given.
#[derive(Debug)]
struct Case {
    /// The condition.
    taken: bool,
    /// The data.
    x: [f32; 8],
    /// The indices of each branch.
    i: [i64; 2],
    j: [i64; 2],
}

/// Both branches, each with indices that the other one does not allow; in the last two the branch
/// that is taken has an illegal one.
fn cases() -> [Case; 5] {
    let (up, down) = ([0.5f32; 8], [-0.25f32, 0.5, -1.0, 0.125, -2.0, 0.0, 1.0, -0.5]);
    let case = |taken, x, i, j| Case { taken, x, i, j };
    [
        case(true, up, [1, 0], [9, 9]),
        case(false, up, [9, 9], [1, 1]),
        case(false, down, [9, 9], [9, 9]),
        case(true, down, [9, 0], [0, 0]),
        case(false, up, [0, 0], [0, 9]),
    ]
}

/// Writes a case's inputs; the command that runs it.
fn written(p: &Place, case: &Case) -> Vec<String> {
    let Case { taken, x, i, j } = case;
    let bytes = [vec![u8::from(*taken)], floats(x), whole(i), whole(j)];
    let described: [(&str, &[i64]); 4] =
        [("|b1", &[1]), ("<f4", &[2, 4]), ("<i8", &[2]), ("<i8", &[2])];
    let mut words: Vec<String> =
        ["run", "if.onnx", "--output", "y.npy"].iter().map(|w| w.to_string()).collect();
    for ((name, (descr, shape)), data) in ["c", "x", "i", "j"].iter().zip(described).zip(&bytes) {
        p.file(&format!("{name}.npy"), npy(descr, shape, data));
        p.file(&format!("{name}.bin"), data);
        words.extend(["--input".into(), format!("{name}={name}.npy")]);
    }
    words
}

/// Whether a run gave what is meant, or said what stands in its way.
fn is_meant(p: &Place, ran: support::Ran, case: &Case) -> bool {
    let Case { taken, x, i, j } = case;
    let Some(want) = meaning(*taken, x, i, j) else {
        assert!(ran.fails().err.contains("Gather"), "{case:?}");
        return false;
    };
    ran.ok();
    let got = squall::arrays::read_array(&p.path().join("y.npy")).unwrap().f32s().unwrap();
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-6;
    assert!(got.len() == want.len() && got.iter().zip(&want).all(near), "{got:?}, not {want:?}");
    true
}

#[test]
fn one_branch_runs() {
    let p = Place::new();
    p.file("if.onnx", model());
    p.squall(&["export", "if.onnx", "--network", "net", "--out", "lib", "--build"]).ok();
    for case in cases() {
        let words = written(&p, &case);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let is_legal = is_meant(&p, p.squall(&words), &case);
        let library = Command::new("./example")
            .args(["../c.bin", "../x.bin", "../i.bin", "../j.bin"])
            .current_dir(p.path().join("lib"))
            .output()
            .unwrap();
        assert_eq!(library.status.success(), is_legal, "{case:?}");
        if is_legal {
            let got = squall::arrays::read_array(&p.path().join("y.npy")).unwrap();
            assert_eq!(std::fs::read(p.path().join("lib/output_0.bin")).unwrap(), got.bytes);
        }
    }
}

#[test]
fn the_other_branch_has_no_faults_on_an_emulated_gpu() {
    let Some(gpu) = emulator() else { return };
    let p = Place::new();
    p.file("if.onnx", model());
    // One of each kind: a first run under an emulator is slow.
    for case in cases().into_iter().step_by(2) {
        let mut words = written(&p, &case);
        words.extend(["--target".into(), "cuda".into()]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = support::Ran::from(p.command(&words).envs(gpu.clone()).output().unwrap());
        is_meant(&p, ran, &case);
    }
}

#[test]
fn constants_of_64_bits_are_not_rounded() {
    let p = Place::new();
    let data = [16_777_217.0, 1e200, 0.1];
    let model = Build::new(17)
        .input_of("x", F64, &[3])
        .init("c", f64s(&[3], &data))
        .node("Constant", &[], &["k"], &[tensor("value", f64s(&[3], &[0.1, 1e-300, 3.0]))])
        .node("Mul", &["x", "c"], &["m"], &[])
        .node("Add", &["m", "k"], &["y"], &[])
        .output("y");
    p.file("wide.onnx", model.bytes());
    let x = [1.0f64, -2.0, 3.0];
    let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    p.file("x.npy", npy("<f8", &[3], &bytes));
    p.file("x.bin", &bytes);
    p.squall(&["run", "wide.onnx", "--input", "x=x.npy", "--output", "y.npy"]).ok();
    let got = squall::arrays::read_array(&p.path().join("y.npy")).unwrap();
    let want = [16_777_217.0 + 0.1, -2e200, 3.0 * 0.1 + 3.0];
    let want: Vec<u8> = want.iter().flat_map(|v: &f64| v.to_le_bytes()).collect();
    assert_eq!(got.bytes, want);
    p.squall(&["export", "wide.onnx", "--network", "net", "--out", "lib", "--build"]).ok();
    let library =
        Command::new("./example").arg("../x.bin").current_dir(p.path().join("lib")).output();
    assert!(library.unwrap().status.success());
    assert_eq!(std::fs::read(p.path().join("lib/output_0.bin")).unwrap(), want);
}

#[test]
fn a_named_extent_may_be_zero() {
    let p = Place::new();
    let mut model = Build::new(17).input("x", &[1, 2]);
    let past = symbolic("past", &["1", "p"]);
    model.graph().input.insert(0, past);
    let model = model
        .node("Concat", &["past", "x"], &["all"], &[int("axis", 1)])
        .node("Relu", &["past"], &["none"], &[])
        .node("Mul", &["all", "all"], &["y"], &[])
        .output("y")
        .output("none");
    p.file("past.onnx", model.bytes());
    p.file("past.npy", npy("<f4", &[1, 0], &[]));
    p.file("x.npy", npy("<f4", &[1, 2], &floats(&[3.0, -2.0])));
    let given = ["--input", "past=past.npy", "--input", "x=x.npy"];
    for dims in [&["--dim", "p=0"][..], &[]] {
        let outputs = ["--output", "y=y.npy", "--output", "none=none.npy"];
        p.squall(&[&["run", "past.onnx"], dims, &given, &outputs].concat()).ok();
        let y = squall::arrays::read_array(&p.path().join("y.npy")).unwrap();
        assert_eq!((y.shape.as_slice(), y.f32s().unwrap()), (&[1, 2][..], vec![9.0, 4.0]));
        let none = squall::arrays::read_array(&p.path().join("none.npy")).unwrap();
        assert_eq!(none.shape, [1, 0]);
    }
    let less = p.squall(&["run", "past.onnx", "--dim", "p=-1"]);
    assert!(less.code == Some(2) && less.err.contains("at least 0"), "{}", less.err);
    p.squall(&["bench", "past.onnx", "--dim", "p=0", "--seconds", "0.05"]).ok();
    let export = ["export", "past.onnx", "--dim", "p=0", "--network", "net", "--out", "lib"];
    p.squall(&[&export[..], &["--build"]].concat()).ok();
    let said = Command::new("./example").current_dir(p.path().join("lib")).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
