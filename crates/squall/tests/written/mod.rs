//! Helper of tests that write a model: `run` puts the model's file and the file of its one f32
//! input into a folder and runs it by untuned kernels, which are compiled once for all tests.

#![allow(dead_code)] // each test uses its part

use squall::arrays::ArrayFile;
use squall::{Array, Context, GuessRequest, InputRequest, NetworkRequest, RunRequest};
use squall::{Ran, TargetRequest};
use squall_core::DType;
use squall_frontend::npy;
use squall_testing::onnx::Build;
use std::path::Path;

pub fn run(folder: &Path, model: &Build, shape: &[i64], x: &[f32]) -> Ran {
    let (path, file) = (folder.join("model.onnx"), folder.join("x.npy"));
    std::fs::write(&path, model.bytes()).unwrap();
    let bytes = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let array = Array { dtype: DType::F32, shape: shape.to_vec(), bytes };
    std::fs::write(&file, npy::write(&array)).unwrap();
    run_input(folder, InputRequest::new(path.display().to_string()))
}

/// A model on this machine's CPU, by untuned kernels of one thread.
pub fn untuned(input: InputRequest) -> NetworkRequest {
    NetworkRequest {
        input,
        store: None,
        guess: GuessRequest::default(),
        target: TargetRequest::Cpu,
        threads: 1,
        keep: None,
    }
}

/// Runs a model whose file and input [`run`] wrote, as it is asked for.
pub fn run_input(folder: &Path, input: InputRequest) -> Ran {
    let file = folder.join("x.npy");
    let network = untuned(input);
    let inputs = vec![ArrayFile { name: None, path: file }];
    let request = RunRequest { network, inputs, outputs: Vec::new() };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    squall::run(&Context::with_cache(Some(cache)), &request, &mut |_| {}).unwrap()
}
