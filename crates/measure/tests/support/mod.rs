//! A small workload (y = x * w + row sum) with hand-written kernels, right and wrong ones, and a
//! measurer for them, shared by the tests of this crate.
#![allow(dead_code)] // each test binary uses its part

use squall_core::{
    Bytes, CandidateText, CpuCost, FailStage, Job, KernelSource, Launch, LaunchPhase, Measurement,
    Measurer, MeasurerError, Outcome, Rematch, TaskSetup, Workload,
};
use squall_measure::LocalMeasurer;
use squall_measure::cpu::{Device, Toolchain};
use std::sync::atomic::AtomicBool;

/// 1,000 elements: 4,000 bytes are no multiple of 64, so canaries lie right behind them.
pub const N: usize = 1000;

/// y = x * w + s, with s the sum of x over the row.
pub fn workload() -> Workload {
    let text = "workload scale\n\
        data X: f32[10, 100]\n\
        weight W: f32[10, 100]\n\
        stage S: f32[i: 10] = sum(k: 100) X[i, k]\n\
        stage Y: f32[i: 10, j: 100] = X[i, j] * W[i, j] + S[i]\n\
        output Y\n";
    Workload::parse(text).unwrap()
}

pub fn reference() -> KernelSource {
    let source = "int ref(const void *const *data, void *const *outputs, const void *prepared, \
                  void *workspace) {\n\
        const float *x = data[0], *w = prepared; float *y = outputs[0]; (void)workspace;\n\
        for (int i = 0; i < 10; i++) {\n\
          double s = 0;\n\
          for (int k = 0; k < 100; k++) s += x[i * 100 + k];\n\
          for (int j = 0; j < 100; j++) y[i * 100 + j] = (float)((double)x[i * 100 + j] * w[i * \
          100 + j] + (double)(float)s);\n\
        }\n\
        return 0;\n}\n";
    KernelSource {
        source: source.to_string() + &prepare("ref"),
        full_optimisation: true,
        ..plain("", "ref")
    }
}

fn prepare(symbol: &str) -> String {
    format!(
        "__SIZE_TYPE__ {symbol}_prepared_bytes(void) {{ return {}; }}\n\
         __SIZE_TYPE__ {symbol}_workspace_bytes(void) {{ return 400; }}\n\
         int {symbol}_prepare(const void *const *weights, void *prepared) {{ \
         __builtin_memcpy(prepared, weights[0], {}); return 0; }}\n",
        4 * N,
        4 * N
    )
}

fn plain(source: &str, symbol: &str) -> KernelSource {
    KernelSource {
        language: squall_core::Language::C,
        source: source.into(),
        symbol: symbol.into(),
        prepared: Bytes(4 * N as u64),
        workspace: Bytes(400),
        openmp: false,
        full_optimisation: false,
        flags: Vec::new(),
        launches: Vec::new(),
    }
}

/// A right kernel with statements before, and others after, its work; `globals` go in front.
pub fn kernel(globals: &str, before: &str, after: &str) -> KernelSource {
    let source = format!(
        "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         #include <unistd.h>\n{globals}\n\
         int k(const void *const *data, void *const *outputs, const void *prepared, void \
         *workspace) {{\n\
           const float *x = data[0], *w = prepared; float *y = outputs[0], *scratch = workspace; \
           (void)scratch;\n\
           {before}\n\
           for (int i = 0; i < 10; i++) {{\n\
             float s = 0;\n\
             for (int q = 0; q < 100; q++) s += x[i * 100 + q];\n\
             for (int j = 0; j < 100; j++) y[i * 100 + j] = x[i * 100 + j] * w[i * 100 + j] + s;\n\
           }}\n\
           {after}\n\
           return 0;\n}}\n"
    );
    plain(&(source + &prepare("k")), "k")
}

pub fn right() -> KernelSource {
    kernel("", "", "")
}

/// A right kernel that does its work `times` over.
pub fn repeated(times: usize) -> KernelSource {
    kernel(
        "",
        &format!(
            "for (volatile int again = 0; again < {times}; again++) {{ __asm__ volatile(\"\" \
             ::: \"memory\");"
        ),
        "}",
    )
}

/// The same in CUDA, by one block a row; `work` comes first, with row `i` and column `j` at hand.
pub fn cuda_kernel(work: &str, shared: u32) -> KernelSource {
    let source = format!(
        "extern \"C\" __global__ void k_prepare(const float *w, float *p) {{ p[blockIdx.x * 100 + \
         threadIdx.x] = w[blockIdx.x * 100 + threadIdx.x]; }}\n\
         extern \"C\" __global__ void k(const float *x, float *y, const float *p, float *scratch) \
         {{\n\
           const int i = blockIdx.x, j = threadIdx.x; float s = 0;\n\
           {work}\n\
           for (int q = 0; q < 100; q++) s += x[i * 100 + q];\n\
           y[i * 100 + j] = x[i * 100 + j] * p[i * 100 + j] + s;\n\
         }}\n"
    );
    let launch = |phase, entry: &str, shared| Launch::linear(phase, entry, 10, 100, shared);
    KernelSource {
        language: squall_core::Language::Cuda,
        source,
        symbol: "k".into(),
        prepared: Bytes(4 * N as u64),
        workspace: Bytes(400),
        openmp: false,
        full_optimisation: true,
        flags: Vec::new(),
        launches: vec![
            launch(LaunchPhase::Prepare, "k_prepare", 0),
            launch(LaunchPhase::Call, "k", shared),
        ],
    }
}

pub fn measurer() -> LocalMeasurer {
    measurer_of(1, Toolchain::detect().unwrap())
}

pub fn measurer_of(threads: usize, toolchain: Toolchain) -> LocalMeasurer {
    let mut measurer =
        LocalMeasurer::on_cpu(Device::detect(threads, &toolchain).unwrap(), toolchain).unwrap();
    measurer.set_task(&TaskSetup::new(workload(), reference(), 7)).unwrap();
    measurer
}

/// A job of a kernel whose name does not matter.
pub fn job(source: KernelSource) -> Job {
    Job::new(CandidateText::new("test", ""), source)
}

/// The second kernel against the first.
pub fn rematch(
    measurer: &mut LocalMeasurer,
    incumbent: &KernelSource,
    challenger: &KernelSource,
) -> Result<Rematch, MeasurerError> {
    measurer.rematch(&job(incumbent.clone()), &job(challenger.clone()))
}

/// Outcomes of all jobs, which must all be reported, in order.
pub fn outcomes(
    measurer: &mut LocalMeasurer,
    jobs: &[KernelSource],
) -> Result<Vec<(Outcome, CpuCost)>, MeasurerError> {
    let mut all = Vec::new();
    let jobs: Vec<Job> = jobs.iter().cloned().map(job).collect();
    measurer.run(&jobs, &AtomicBool::new(false), &mut |r| {
        assert_eq!(r.job, all.len());
        all.push((r.outcome, r.cost));
    })?;
    Ok(all)
}

/// The outcome of one kernel; afterwards the measurer must measure a right one.
pub fn outcome(measurer: &mut LocalMeasurer, job: KernelSource) -> Outcome {
    let all = outcomes(measurer, &[job, right()]).unwrap();
    assert_eq!(all.len(), 2);
    measured(&all[1].0);
    all[0].0.clone()
}

pub fn measured(o: &Outcome) -> &Measurement {
    match o {
        Outcome::Measured(m) => m,
        other => panic!("not measured: {other:?}"),
    }
}

/// Asserts that a kernel fails at a stage, with certain words in the detail: alone, and beside a
/// pacemaker that writes right results before and after it.
pub fn fails(measurer: &mut LocalMeasurer, job: KernelSource, stage: FailStage, words: &[&str]) {
    let all = outcomes(measurer, &[job.clone(), right(), job, right()]).unwrap();
    for (o, _) in [&all[0], &all[2]] {
        match o {
            Outcome::Failed { stage: s, detail } => {
                assert_eq!(*s, stage, "{detail}");
                for w in words {
                    assert!(detail.contains(w), "`{detail}` lacks `{w}`");
                }
            }
            other => panic!("{other:?} where {stage:?} was expected"),
        }
    }
    assert!(measured(&all[1].0).samples.len() > 1 && measured(&all[3].0).samples.len() > 1);
}
