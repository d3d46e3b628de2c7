//! Kernels of NEON under an emulator: three configurations of each workload of
//! `examples/workloads.ops`, which a measurer holds against their references. Nothing is timed. It
//! takes minutes, so it runs where `SQUALL_ARM=1` asks for it, as `.ci/run` does.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall::{Context, Execution, Input, Isa, Outcome, TargetContext, TargetRequest, TaskKernels};
use squall_core::{CandidateText, Job, KernelSource, Task};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Configurations of each workload.
const CONFIGURATIONS: usize = 3;

/// A sampled kernel of a task; the `n`-th of another sketch than the one before, where there are
/// several.
fn sampled(kernels: &TaskKernels, task: &Task, n: usize) -> Job {
    let tunable = &kernels.tunables[n % kernels.tunables.len()];
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(n as u64);
    let symbol = format!("squall_{}_{n}", task.name);
    let made = (0..100).find_map(|_| {
        let configuration = tunable.space().sample(&mut rng);
        let source: KernelSource = tunable.realize(&configuration, &symbol).ok()?;
        Some(Job::new(CandidateText::new(tunable.name(), configuration.to_string()), source))
    });
    made.expect("one of a hundred samples can be made")
}

#[test]
fn kernels_of_every_workload_are_right_under_an_emulator() {
    if std::env::var_os("SQUALL_ARM").is_none() {
        println!("skipped: SQUALL_ARM is not set");
        return;
    }
    let at = match Context::new().target(TargetRequest::CpuAt(Isa::Armv8A), 1) {
        Ok(at) if at.device.execution != Execution::Here => at,
        Ok(_) => return println!("skipped: this is a machine of that level"),
        Err(e) => return println!("skipped: {e}"),
    };
    if let Err(e) = at.device.can_run() {
        return println!("skipped: {e}");
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workloads.ops");
    let input = Input::load(&list.display().to_string(), &[]).expect("a list");
    // An emulator runs one thread: measurers share the cores, the longest tasks first.
    let mut tasks: Vec<&Task> = input.tasks.iter().collect();
    tasks.sort_by_key(|t| std::cmp::Reverse(t.workload.flop()));
    let (next, right) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    right.fetch_add(check(task, &at), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(right.into_inner(), tasks.len() * CONFIGURATIONS);
}

/// Holds kernels of a task against its reference; how many are right.
fn check(task: &Task, at: &TargetContext) -> usize {
    let kernels = TaskKernels::generated(task, &at.target);
    let jobs: Vec<Job> = (0..CONFIGURATIONS).map(|n| sampled(&kernels, task, n)).collect();
    let mut measurer = at.verifier().expect("a measurer");
    measurer.set_task(&kernels.setup(task, 1)).expect("a task");
    let mut right = 0;
    let done = measurer.run(&jobs, &AtomicBool::new(false), &mut |result| {
        let name = &jobs[result.job].candidate;
        match &result.outcome {
            Outcome::Right { .. } => right += 1,
            other => panic!("{}: {name}: {other:?}", task.name),
        }
    });
    done.expect("measured");
    right
}
