//! Tests of weights in a file beside the model's (ONNX external data): weights that only kernels
//! read are not loaded, but mapped by the network's program, which packs them; packed weights may
//! be kept in the user's cache and are made again when a file changed.

use crate::written::{run_input, untuned};
use squall::{
    Array, Context, GuessRequest, InputRequest, NetworkRequest, RunRequest, TargetRequest,
};
use squall_core::DType;
use squall_frontend::npy;
use squall_frontend::onnx::proto::{StringStringEntryProto, TensorProto};
use squall_testing::onnx::{Build, f32s, i64s, int};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const N: i64 = 8;
const F16: i32 = 10;

/// A weight of N x N floats that lies in `file` from the byte `offset` on.
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
    let read = input.load(TargetRequest::Cpu).unwrap().graph().unwrap().read_by_kernels_alone();
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

/// Weights of 16 bits in a file beside the model are read, whatever reads them.
#[test]
fn weights_of_16_bits_beside_a_model_are_widened() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let bits = |x: f32| DType::F16.half_bits(x).unwrap().to_le_bytes();
    let bytes: Vec<u8> = numbers(1).into_iter().flat_map(bits).collect();
    // There is room for as many 32-bit floats.
    std::fs::write(f.join("a.bin"), [bytes, vec![0; 1024]].concat()).unwrap();
    let model = Build::new(18)
        .input_of("x", F16, &[1, N])
        .init("u", TensorProto { data_type: F16, ..beside("a.bin", 0) })
        .node("MatMul", &["x", "u"], &["c"], &[])
        .node("Cast", &["c"], &["y"], &[int("to", 1)])
        .output("y");
    std::fs::write(f.join("model.onnx"), model.bytes()).unwrap();
    let x: Vec<f32> = (0..N).map(|i| i as f32 - 3.0).collect();
    let bytes = x.iter().flat_map(|x| bits(*x)).collect();
    let array = Array { dtype: DType::F16, shape: vec![1, N], bytes };
    std::fs::write(f.join("x.npy"), npy::write(&array)).unwrap();
    let input = InputRequest::new(f.join("model.onnx").display().to_string());
    let n = N as usize;
    let want = |j: usize| (0..n).map(|k| x[k] * numbers(1)[n * k + j]).sum::<f32>();
    let got = run_input(f, input).outputs[0].1.f32s().unwrap();
    assert_eq!(got, (0..n).map(want).collect::<Vec<_>>());
}

/// Large weights in the model's file stay there, at any byte.
#[test]
fn large_weights_in_the_models_file_are_used_where_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    // More elements than a model holds.
    let (rows, columns) = (2050, 2048);
    let data: Vec<f32> = (0..rows * columns).map(|i| ((i * 7) % 11) as f32 - 5.0).collect();
    let mut model = Build::new(18)
        .input("x", &[1, rows])
        .init("w", f32s(&[rows, columns], &data))
        .node("MatMul", &["x", "w"], &["y"], &[])
        .output("y");
    let x: Vec<f32> = (0..rows).map(|i| (i % 5) as f32 - 2.0).collect();
    let array = Array::floats(vec![1, rows], &x);
    std::fs::write(f.join("x.npy"), npy::write(&array)).unwrap();
    let want: Vec<f32> = (0..columns as usize)
        .map(|j| (0..rows as usize).map(|k| x[k] * data[columns as usize * k + j]).sum())
        .collect();
    // Names of two lengths put them at places of which one is no multiple of 4 at least.
    for name in ["g", "gr"] {
        model.graph().name = name.into();
        std::fs::write(f.join("model.onnx"), model.bytes()).unwrap();
        let input = InputRequest::new(f.join("model.onnx").display().to_string());
        let read = input.load(TargetRequest::Cpu).unwrap().graph().unwrap().read_by_kernels_alone();
        assert!(read.contains("w"), "{read:?}");
        assert_eq!(run_keeping(f), want);
    }
    assert_eq!((run_keeping(f), kept(f).len()), (want, 2));
}

/// Runs with packed weights kept in the folder `cache`; compiled files are those of all tests.
fn run_keeping(folder: &Path) -> Vec<f32> {
    let cache = folder.join("cache");
    let objects = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache/objects");
    std::fs::create_dir_all(&objects).unwrap();
    std::fs::create_dir_all(&cache).unwrap();
    let _ = std::os::unix::fs::symlink(objects, cache.join("objects"));
    // The same kernels each time.
    let guess = GuessRequest { cache: Some(cache.clone()), ..GuessRequest::default() };
    let context = Context::with_cache(Some(cache)).keeping_weights_from(1);
    let input = InputRequest::new(folder.join("model.onnx").display().to_string());
    let inputs = vec![squall::arrays::ArrayFile { name: None, path: folder.join("x.npy") }];
    let network = NetworkRequest { guess, ..untuned(input) };
    let request = RunRequest { network, inputs, outputs: Vec::new() };
    let ran = squall::run(&context, &request, &mut |_| {}).unwrap();
    ran.outputs[0].1.f32s().unwrap()
}

/// The files of packed weights.
fn kept(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder.join("cache/weights")).unwrap();
    all.map(|f| f.unwrap().path()).collect()
}

/// Changes a file in place; its times are set back, if it is said so.
fn change(file: &Path, set_back: bool, by: impl FnOnce(&mut Vec<u8>)) {
    let before = std::fs::metadata(file).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    by(&mut bytes);
    std::fs::write(file, bytes).unwrap();
    if set_back {
        let open = std::fs::File::options().write(true).open(file).unwrap();
        open.set_modified(before).unwrap();
    }
}

/// Packed weights stay from the first run on and are read by the next ones: as they are where the
/// file was not touched, after a look at all of it where it was, not at all where it is another.
#[test]
fn packed_weights_stay_in_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (_, x) = written(f);
    let want = expected(&x);
    let inode = |file: &Path| std::fs::metadata(file).unwrap().ino();
    assert_eq!(run_keeping(f), want);
    let [file] = &kept(f)[..] else { panic!("{:?}", kept(f)) };
    let first = inode(file);
    assert_eq!((run_keeping(f), inode(file)), (want.clone(), first));
    // It was touched, and is what it was.
    change(file, false, |_| ());
    assert_eq!((run_keeping(f), inode(file)), (want.clone(), first));
    // No one sees this change by the file's time, which shows that weights come from there.
    let flip = |bytes: &mut Vec<u8>| bytes[4096..].iter_mut().for_each(|b| *b ^= 0x40);
    change(file, true, flip);
    assert!(run_keeping(f) != want && inode(file) == first);
    // Others are seen, and the weights are packed anew.
    let harms: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes.truncate(bytes.len() - 1),
        |bytes| bytes.push(0),
        |bytes| bytes[60] ^= 1,
        |bytes| bytes.truncate(0),
    ];
    change(file, false, flip);
    change(file, false, |bytes| bytes[4096] ^= 1);
    assert_eq!((run_keeping(f), kept(f)), (want.clone(), vec![file.clone()]));
    for harm in harms {
        change(file, true, harm);
        assert_eq!((run_keeping(f), kept(f)), (want.clone(), vec![file.clone()]));
        assert_eq!(run_keeping(f), want);
    }
}

#[test]
fn other_weights_of_the_same_size_are_other_weights() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (_, x) = written(f);
    assert_eq!(run_keeping(f), expected(&x));
    // The first weight is halved, and the file's time is what it was.
    change(&f.join("a.bin"), true, |bytes| {
        for b in bytes[..(4 * N * N) as usize].as_chunks_mut::<4>().0 {
            *b = (f32::from_le_bytes(*b) / 2.0).to_le_bytes();
        }
    });
    let third = &numbers(3)[2 * N as usize..];
    let want: Vec<f32> = expected(&x).iter().zip(third).map(|(y, r)| (y - r) / 2.0 + r).collect();
    assert_eq!(run_keeping(f), want);
    assert_eq!(kept(f).len(), 2);
}

#[test]
fn where_no_weights_can_be_kept_they_are_packed_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let (_, x) = written(f);
    std::fs::create_dir(f.join("cache")).unwrap();
    std::fs::write(f.join("cache/weights"), b"no folder").unwrap();
    assert_eq!(run_keeping(f), expected(&x));
    assert_eq!(std::fs::read(f.join("cache/weights")).unwrap(), b"no folder");
}
