//! Runs one conformance suite (`suite.rs`) over all implementations of `Measurer`: this machine's
//! CPU, its GPU or emulated ones, a recording, a mock, and some of them behind a pipe.

use squall_testing::emulator as emulated;
mod nothing;
mod suite;
use crate::support;

use nothing::Nothing;
use squall_core::{
    Bytes, Caches, CandidateText, CpuCost, FailStage, Isa, Job, KernelSource, Language, Launch,
    LaunchPhase, Measurement, Measurer, MeasurerError, MeasurerIdentity, Nanos, Outcome, TaskSetup,
    Workload,
};
use squall_measure::cpu::{Device, Toolchain};
use squall_measure::cuda::Gpu;
use squall_measure::{LocalMeasurer, MockMeasurer, PipedMeasurer, RecordedMeasurer, serve};
use std::collections::HashMap;
use std::io::{BufReader, PipeReader, PipeWriter, pipe};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use suite::{Kind, Subject, conforms, name};
use support::{cuda_kernel, kernel, measured, outcomes, reference, repeated, right, workload};

/// y = x + x.
fn doubling() -> KernelSource {
    let source = "int two(const void *const *d, void *const *o, const void *p, void *w) { for \
                  (int i = 0; i < 300; i++) ((float *)o[0])[i] = 2 * ((const float *)d[0])[i]; \
                  return 0; }";
    KernelSource {
        source: source.into(),
        symbol: "two".into(),
        prepared: Bytes(0),
        workspace: Bytes(0),
        ..right()
    }
}

fn subject(
    measurer: Box<dyn Measurer>,
    source: fn(Kind, usize) -> Option<KernelSource>,
) -> Subject {
    let doubled =
        "workload double\ndata X: f32[300]\nstage Y: f32[i: 300] = X[i] + X[i]\noutput Y\n";
    let other = TaskSetup::new(Workload::parse(doubled).unwrap(), doubling(), 5);
    let task = TaskSetup::new(workload(), reference(), 7);
    Subject { measurer, times: true, source, task, other }
}

fn c_source(kind: Kind, number: usize) -> Option<KernelSource> {
    let version = format!("int version = {number};");
    Some(match kind {
        Kind::Right => kernel("", &version, ""),
        Kind::Slow => repeated(200 + number),
        Kind::Long => repeated(60_000 + number),
        Kind::Wrong => kernel("", &version, "y[37] += 0.5f;"),
        Kind::Crashing => kernel("", &version, "abort();"),
        Kind::Unbuildable => kernel("", "int = 3;", ""),
        Kind::Other => doubling(),
    })
}

fn cuda_source(kind: Kind, number: usize) -> Option<KernelSource> {
    let version = format!("int version = {number};");
    let walk = |times: usize| {
        format!("for (int z = 0; z < {times}; z++) s += x[(z * 37 + j) % 1000]; s = s > 1e30f;")
    };
    Some(match kind {
        Kind::Right => cuda_kernel(&version, 0),
        Kind::Slow => cuda_kernel(&walk(2000 + number), 0),
        Kind::Long => cuda_kernel(&walk(5000 + number), 0),
        Kind::Wrong => cuda_kernel(&(version + " s = 1;"), 0),
        Kind::Crashing => cuda_kernel(&(version + " __trap();"), 0),
        Kind::Unbuildable => cuda_kernel("this is no CUDA", 0),
        Kind::Other => {
            let source = "extern \"C\" __global__ void two(const float *x, float *y) { \
                          y[threadIdx.x] = 2 * x[threadIdx.x]; }\n";
            KernelSource {
                language: Language::Cuda,
                source: source.into(),
                launches: vec![Launch::linear(LaunchPhase::Call, "two", 1, 300, 0)],
                ..doubling()
            }
        }
    })
}

/// What becomes of a kernel of the suite where none is run.
fn outcome(candidate: &CandidateText) -> (Outcome, CpuCost) {
    let kind = candidate.configuration.split('=').next().unwrap();
    let failed = |stage| Outcome::Failed { stage, detail: format!("it is {kind}") };
    let measured = |nanos: f64| {
        let samples = (0..7).map(|i| Nanos(nanos + f64::from(i % 3))).collect();
        Outcome::Measured(Measurement { samples, calls: 3, error: 1e-7, gpu: None, pace: None })
    };
    let outcome = match kind {
        "Right" | "Other" => measured(100.0),
        "Slow" => measured(5000.0),
        "Long" => measured(1e7),
        "Wrong" => failed(FailStage::WrongAnswer),
        "Crashing" => failed(FailStage::Launch),
        "Unbuildable" => failed(FailStage::Build),
        other => panic!("{other} is not of the suite"),
    };
    (outcome, CpuCost { build: 0.5, measure: 0.25, search: 0.0 })
}

fn identity() -> MeasurerIdentity {
    MeasurerIdentity::new("a device", "a toolchain")
}

fn mock() -> MockMeasurer {
    MockMeasurer::new(identity(), |_, job| {
        if job.candidate.configuration.starts_with("Long") {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(outcome(&job.candidate))
    })
}

fn recorded() -> RecordedMeasurer {
    let all = [
        Kind::Right,
        Kind::Slow,
        Kind::Long,
        Kind::Wrong,
        Kind::Crashing,
        Kind::Unbuildable,
        Kind::Other,
    ];
    let names = all.into_iter().flat_map(|kind| (0..100).map(move |i| name(kind, i)));
    let trials: HashMap<_, _> = names.map(|n| (n.clone(), outcome(&n))).collect();
    RecordedMeasurer::new(identity(), Arc::new(trials))
}

fn on_cpu() -> LocalMeasurer {
    let toolchain = Toolchain::detect().unwrap();
    LocalMeasurer::on_cpu(Device::detect(1, &toolchain).unwrap(), toolchain).unwrap()
}

/// All GPUs of this process.
fn on_gpus() -> Result<LocalMeasurer, MeasurerError> {
    let toolchain = Toolchain::detect()?;
    let gpus = Gpu::detect_all(&toolchain)?;
    LocalMeasurer::on_gpus(&gpus, Device::detect(1, &toolchain)?, toolchain)
}

type Piped = PipedMeasurer<BufReader<PipeReader>, PipeWriter>;

/// A measurer that another thread serves over pipes, and that thread.
fn piped(mut measurer: impl Measurer + 'static) -> (Piped, JoinHandle<Result<(), MeasurerError>>) {
    let ((requests, our_output), (our_input, replies)) = (pipe().unwrap(), pipe().unwrap());
    let server =
        std::thread::spawn(move || serve(&mut measurer, BufReader::new(requests), replies));
    (PipedMeasurer::connect(BufReader::new(our_input), our_output).unwrap(), server)
}

#[test]
fn this_machines_cpu() {
    conforms(subject(Box::new(on_cpu()), c_source));
}

/// The runner, built for another architecture, does there what it does here, but for times.
#[test]
fn an_arm_processor_under_an_emulator() {
    let toolchain = match Toolchain::detect().unwrap().at(Isa::Armv8A) {
        Ok(toolchain) => toolchain,
        Err(e) => return println!("skipped: {e}"),
    };
    let device = Device::detect(1, &toolchain).unwrap();
    if let Err(e) = device.can_run() {
        return println!("skipped: {e}");
    }
    let measurer = LocalMeasurer::on_cpu(device, toolchain).unwrap();
    conforms(Subject { times: false, ..subject(Box::new(measurer), c_source) });
}

#[test]
fn cold_caches_are_another_device() {
    let mut measurer = on_cpu();
    measurer.set_task(&TaskSetup::new(workload(), reference(), 7)).unwrap();
    let warm = measurer.identity().clone();
    let device = Device::detect(1, &Toolchain::detect().unwrap()).unwrap();
    assert_eq!((&warm.device, warm.device.caches), (&device.identity(), Caches::Warm));
    measurer.set_cache_flush(1 << 20);
    assert_eq!(measurer.identity().device, warm.device.with_caches(Caches::Cold));
    assert_eq!(measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0).calls, 1);
    measurer.set_cache_flush(0);
    assert_eq!(*measurer.identity(), warm);
}

#[test]
fn this_machines_gpus() {
    match on_gpus() {
        Ok(measurer) => conforms(subject(Box::new(measurer), cuda_source)),
        Err(e) => println!("skipped: {e}"),
    }
}

#[test]
fn two_emulated_gpus() {
    let Some(environment) = emulated::emulator() else { return };
    // The environment belongs to the whole process, so that the GPUs get one of their own.
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "conformance::gpus_in_this_process", "--nocapture", "--ignored"])
        .envs(environment)
        .env("EMULATED_GPUS", "2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("conforms with 2 GPUs"), "{said}");
}

#[test]
#[ignore = "started by the test above, where GPUs are emulated"]
fn gpus_in_this_process() {
    let gpus = Gpu::detect_all(&Toolchain::detect().unwrap()).unwrap().len();
    conforms(subject(Box::new(on_gpus().unwrap()), cuda_source));
    println!("conforms with {gpus} GPUs");
}

#[test]
fn a_recording() {
    conforms(subject(Box::new(recorded()), |_, _| None));
}

#[test]
fn a_mock() {
    conforms(subject(Box::new(mock()), c_source));
    conforms(subject(Box::new(mock().without_sources()), |_, _| None));
}

#[test]
fn a_mock_behind_a_pipe() {
    let (measurer, server) = piped(mock());
    conforms(subject(Box::new(measurer), c_source));
    server.join().unwrap().unwrap();
}

#[test]
fn this_machines_cpu_behind_a_pipe() {
    let (measurer, server) = piped(on_cpu());
    let ours = on_cpu();
    assert_eq!(measurer.identity(), ours.identity());
    assert!(measurer.overhead().total() > 0.0);
    conforms(subject(Box::new(measurer), c_source));
    server.join().unwrap().unwrap();
}

#[test]
fn what_another_measurer_takes() {
    let (mut measurer, server) = piped(Nothing(identity()));
    let s = subject(Box::new(Nothing(identity())), |_, _| None);
    measurer.set_task(&s.task).unwrap();
    let job = Job::new(name(Kind::Right, 0), right());
    let mut results = Vec::new();
    let jobs = [job.clone(), job.clone()];
    measurer.run(&jobs, &AtomicBool::new(false), &mut |r| results.push(r)).unwrap();
    assert!(matches!(&results[1].outcome, Outcome::Infeasible(why) if why == "nothing runs here"));
    let error = measurer.rematch(&job, &job).unwrap_err();
    assert!(matches!(error, MeasurerError::Contender { challenger: true, .. }), "{error}");
    drop(measurer);
    server.join().unwrap().unwrap();
}

#[test]
fn measuring_that_fails_is_told_over_a_pipe() {
    let broken = MeasurerError::NoCompiler { tried: vec!["gcc".into()] };
    let (failing, refused) = (broken.clone(), MeasurerError::Reference("wrong".into()));
    let refusing = refused.clone();
    let mut left = 3;
    let mock = MockMeasurer::new(identity(), move |_, job| {
        left -= 1;
        if left < 0 { Err(failing.clone()) } else { Ok(outcome(&job.candidate)) }
    })
    .with_tasks(move |task| if task.seed == 0 { Err(refusing.clone()) } else { Ok(()) });
    let (mut measurer, server) = piped(mock);
    let s = subject(Box::new(Nothing(identity())), c_source);
    assert_eq!(measurer.set_task(&TaskSetup { seed: 0, ..s.task.clone() }).unwrap_err(), refused);
    measurer.set_task(&s.task).unwrap();
    let jobs: Vec<Job> = (0..5).map(|i| Job::new(name(Kind::Right, i), right())).collect();
    let mut seen = 0;
    let error = measurer.run(&jobs, &AtomicBool::new(false), &mut |r| {
        assert_eq!(r.job, seen);
        seen += 1;
    });
    // What was measured before it is valid.
    assert_eq!((error.unwrap_err(), seen), (broken, 3));
    drop(measurer);
    server.join().unwrap().unwrap();
}

#[test]
fn a_connection_that_ends_is_an_error() {
    let (requests, our_output) = pipe().unwrap();
    let (our_input, replies) = pipe().unwrap();
    let server = std::thread::spawn(move || {
        // It greets, and goes away as soon as something is asked.
        let mut input = BufReader::new(requests);
        let mut first = String::new();
        serve(&mut mock(), std::io::empty(), replies).unwrap();
        std::io::BufRead::read_line(&mut input, &mut first).unwrap();
    });
    let mut measurer = PipedMeasurer::connect(BufReader::new(our_input), our_output).unwrap();
    let s = subject(Box::new(Nothing(identity())), c_source);
    let error = measurer.set_task(&s.task).unwrap_err();
    assert!(matches!(error, MeasurerError::Connection(_)), "{error}");
    server.join().unwrap();
    let error = measurer.run(&[], &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(matches!(error, MeasurerError::Connection(_)), "{error}");
}

#[test]
fn another_versions_greeting_is_refused() {
    let greeting = "{\"version\":7,\"message\":{\"hello\":{\"news\":true}}}\n";
    let error = PipedMeasurer::connect(greeting.as_bytes(), Vec::new()).err().unwrap();
    assert_eq!(error, MeasurerError::Version { theirs: 7, ours: 1 });
    let error = PipedMeasurer::connect(&b""[..], Vec::new()).err().unwrap();
    assert!(error.to_string().contains("closed"), "{error}");
    let error = PipedMeasurer::connect(&b"\xff\n"[..], Vec::new()).err().unwrap();
    assert!(matches!(error, MeasurerError::Connection(_)), "{error}");
}
