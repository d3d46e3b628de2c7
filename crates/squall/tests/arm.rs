//! Test that NEON kernels are right, under the emulator QEMU: for each workload of
//! `examples/workloads.ops`, sampled configurations are exported with a driver that compares them
//! with their references. Nothing is timed. It takes minutes and therefore runs only with
//! `SQUALL_ARM=1`, as `.ci/run` sets it.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall::export::{Chosen, DRIVER, Levels, Origin, export};
use squall::{Context, Execution, Input, Isa, TargetContext, TargetRequest};
use squall_compiler::{reference, sketches};
use squall_core::{KernelSource, Task};
use squall_testing::samples;
use std::path::Path;

/// The number of configurations of each workload, by default and with the feature `full`.
const CONFIGURATIONS: [usize; 2] = [1, 3];

/// A sampled kernel of a task, of its `n`-th sketch (counted round and round).
fn chosen(task: &Task, target: &squall_core::Target, n: usize) -> Chosen {
    let all = sketches(&task.workload, target);
    let tunable = &all[n % all.len()];
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(n as u64);
    let symbol = format!("squall_{}", task.name);
    let made =
        (0..100).find_map(|_| tunable.realize(&tunable.space().sample(&mut rng), &symbol).ok());
    let source: KernelSource = made.expect("one of a hundred samples can be made");
    let reference = reference(&task.workload, &format!("{symbol}_reference"));
    Chosen { task: task.clone(), source, reference, origin: Origin::Plain }
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
    // An emulator runs one thread: the exports share the cores.
    std::thread::scope(|s| {
        for n in 0..samples(CONFIGURATIONS[0], CONFIGURATIONS[1]) {
            let (input, at) = (&input, &at);
            s.spawn(move || check(n, input, at));
        }
    });
}

/// Exports the `n`-th kernel of each workload and has the driver check them under the emulator.
fn check(n: usize, input: &Input, at: &TargetContext) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernels = input.tasks().iter().map(|t| chosen(t, &at.target, n)).collect();
    let done = export(kernels, &Levels::default(), at, folder.path(), true);
    done.unwrap_or_else(|e| panic!("{e}"));
    let driver = at.device.command(&folder.path().join(DRIVER)).arg("--check").output();
    let driver = driver.expect("it starts");
    let said = String::from_utf8_lossy(&driver.stdout);
    let right = said.lines().filter(|l| l.contains(" right ")).count();
    assert!(driver.status.success() && right == input.tasks().len(), "{said}");
}
