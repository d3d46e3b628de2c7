//! Weights beside a model's file: those that kernels alone read stay there until the network's
//! program packs them.

use crate::written::{run_input, untuned};
use squall::{Array, Context, InputRequest, NetworkRequest, RunRequest, TargetRequest};
use squall_frontend::npy;
use squall_frontend::onnx::proto::{StringStringEntryProto, TensorProto};
use squall_testing::onnx::{Build, i64s};
use std::path::Path;

const N: i64 = 8;

/// A weight of N x N floats from a byte of a file on.
fn beside(file: &str, offset: u64) -> TensorProto {
    let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
    TensorProto {
        dims: vec![N, N],
        data_type: 1,
        data_location: 1,
        external_data: vec![
            entry("location", file.into()),
            entry("offset", offset.to_string()),
            entry("length", (4 * N * N).to_string()),
        ],
        ..Default::default()
    }
}

fn numbers(seed: i64) -> Vec<f32> {
    (0..N * N).map(|i| ((i * 7 + seed) % 11) as f32 - 5.0).collect()
}

/// A model of three products: of weights at a page, between two lines, and at a line of another
/// file; the last is read by an operator that is no kernel, too.
fn model(folder: &Path) -> Build {
    let bytes = |x: Vec<f32>| x.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    let first = [bytes(numbers(1)), vec![0; 4], bytes(numbers(2))].concat();
    std::fs::write(folder.join("a.bin"), first).unwrap();
    std::fs::write(folder.join("b.bin"), [vec![0; 64], bytes(numbers(3))].concat()).unwrap();
    Build::new(18)
        .input("x", &[1, N])
        .init("u", beside("a.bin", 0))
        .init("v", beside("a.bin", 260))
        .init("w", beside("b.bin", 64))
        .init("i", i64s(&[1], &[2]))
        .node("MatMul", &["x", "u"], &["c"], &[])
        .node("MatMul", &["c", "v"], &["d"], &[])
        .node("MatMul", &["d", "w"], &["e"], &[])
        .node("Gather", &["w", "i"], &["r"], &[])
        .node("Add", &["e", "r"], &["y"], &[])
        .output("y")
}

fn expected(x: &[f32]) -> Vec<f32> {
    let n = N as usize;
    let times = |x: Vec<f32>, w: Vec<f32>| {
        (0..n).map(|j| (0..n).map(|k| x[k] * w[n * k + j]).sum()).collect::<Vec<f32>>()
    };
    let made = times(times(times(x.to_vec(), numbers(1)), numbers(2)), numbers(3));
    made.iter().zip(&numbers(3)[2 * n..]).map(|(a, b)| a + b).collect()
}

fn written(folder: &Path) -> (InputRequest, Vec<f32>) {
    let path = folder.join("model.onnx");
    std::fs::write(&path, model(folder).bytes()).unwrap();
    let x: Vec<f32> = (0..N).map(|i| i as f32 - 3.0).collect();
    let array = Array::floats(vec![1, N], &x);
    std::fs::write(folder.join("x.npy"), npy::write(&array)).unwrap();
    (InputRequest::new(path.display().to_string()), x)
}

#[test]
fn weights_are_used_where_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let (input, x) = written(folder.path());
    let read = input.load(TargetRequest::Cpu).unwrap().graph.unwrap().read_by_kernels_alone();
    assert!(read.contains("u") && read.contains("v") && !read.contains("w"), "{read:?}");
    let ran = run_input(folder.path(), input);
    assert_eq!(ran.outputs[0].1.f32s().unwrap(), expected(&x));
}

#[test]
fn a_program_that_is_kept_has_weights_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (input, x) = written(folder.path());
    let keep = folder.path().join("kept");
    let network = NetworkRequest { keep: Some(keep.clone()), ..untuned(input) };
    let inputs = vec![squall::arrays::ArrayFile { name: None, path: folder.path().join("x.npy") }];
    let request = RunRequest { network, inputs, outputs: Vec::new() };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let ran = squall::run(&Context::with_cache(Some(cache)), &request, &mut |_| {}).unwrap();
    assert_eq!(ran.outputs[0].1.f32s().unwrap(), expected(&x));
    let constants = std::fs::read(keep.join("constants.bin")).unwrap();
    let u: Vec<u8> = numbers(1).into_iter().flat_map(f32::to_le_bytes).collect();
    assert!(constants.windows(u.len()).any(|w| w == u));
    let links = std::fs::read_dir(&keep)
        .unwrap()
        .filter(|f| f.as_ref().unwrap().file_type().unwrap().is_symlink());
    assert_eq!(links.count(), 0);
}

#[test]
fn a_file_that_is_too_short_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (input, _) = written(folder.path());
    let file = folder.path().join("a.bin");
    let cut = std::fs::read(&file).unwrap()[..500].to_vec();
    std::fs::write(&file, cut).unwrap();
    let network = untuned(input);
    let request = RunRequest { network, inputs: Vec::new(), outputs: Vec::new() };
    let e = squall::run(&Context::with_cache(None), &request, &mut |_| {}).unwrap_err();
    let e = e.to_string();
    assert!(e.contains("`v`") && e.contains("a.bin") && e.contains("which has 500"), "{e}");
}
