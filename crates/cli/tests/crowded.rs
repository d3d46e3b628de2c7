//! Tests with more threads than cores: results must be those of one thread, whatever the number of
//! threads and their way of waiting; a message says that times mean little then.

use crate::support;

use squall_testing::samples;
use support::{Place, Ran, example};

fn floats(p: &Place, name: &str) -> Vec<f32> {
    squall::arrays::read_array(&p.path().join(name)).unwrap().f32s().unwrap()
}

#[test]
fn a_network_is_right_on_more_threads_than_cores() {
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let p = Place::new();
    p.squall(&["run", &model, "--input", &x, "--output", "1.npy"]).ok();
    let one = floats(&p, "1.npy");
    let largest = one.iter().fold(0f32, |m, v| m.max(v.abs()));
    for threads in ["3", "8", "16", "7", "4"].into_iter().take(samples(1, 5)) {
        let said =
            p.squall(&["run", &model, "--input", &x, "--threads", threads, "--output", "y.npy"]);
        assert!(!said.ok().err.contains("share"), "`run` has no times");
        let y = floats(&p, "y.npy");
        let far = one.iter().zip(&y).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(far <= 1e-5 * largest, "{threads} threads: {far} of {largest}");
        // Each inference is compared with the first.
        for policy in ["passive", "active"].into_iter().take(samples(1, 2)) {
            let words = ["bench", &model, "--input", &x, "--threads", threads, "--seconds", "0.3"];
            let ran = p.command(&words).env("OMP_WAIT_POLICY", policy).output().unwrap();
            let said = Ran::from(ran).ok().err;
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let crowds = threads.parse::<usize>().unwrap() > cores;
            assert_eq!(said.matches("threads share").count(), usize::from(crowds), "{said}");
        }
    }
}

/// Tiles of 3 along 19 columns and of 32 along 48 channels are moved back.
#[test]
fn kernels_are_tuned_for_more_threads_than_cores() {
    let p = Place::new();
    let lines = [
        "conv2d n=1 c=48 h=19 w=19 k=48 r=3 s=3 pad=1 groups=48\n",
        "matmul m=37 n=43 k=29\n",
        "conv2d n=1 c=20 h=11 w=11 k=36 r=3 s=3 pad=1 epilogue=bias,relu\n",
        "softmax rows=7 cols=33\n",
    ];
    p.file("kernels.ops", lines[..samples(2, 4)].concat());
    let trials = samples(5, 40).to_string();
    let ran =
        p.squall(&["tune", "kernels.ops", "--threads", "7", "--trials", &trials, "--json"]).ok();
    for t in ran.json()["tasks"].as_array().unwrap() {
        let failures = t["failures"].as_array().unwrap();
        // Others may keep the machine from ending in time; no answer is wrong.
        assert!(failures.iter().all(|f| f["stage"] != "wrong_answer"), "{t}");
        assert!(t["best_ns"].as_f64() > Some(0.0), "{t}");
    }
}
