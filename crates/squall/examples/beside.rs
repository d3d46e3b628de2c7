//! Compares a user's tuned kernels (kernel.toml) with untuned ones: the store's best, the knobs'
//! defaults, and the reference as the compiler makes it with -O3, once for this machine and once
//! for any. All run in one measurer, in turns; each time is the median of the rounds. Prints a line
//! of JSON for each task.
//!
//! `cargo run --release -p squall --example beside -- STORE ROUNDS kernel.toml..`

use squall::{Input, Query, Store, toolchain_id};
use squall_core::{CandidateText, Job, Measurer, Outcome, TaskSetup, median};
use squall_measure::LocalMeasurer;
use squall_measure::cpu::{Device, Toolchain};
use std::sync::atomic::AtomicBool;

const SYMBOL: &str = "squall_kernel";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, rounds, files @ ..] = &arguments[..] else {
        return Err("usage: beside STORE ROUNDS kernel.toml..".into());
    };
    let (store, rounds): (Store, usize) = (Store::open_read_only(store)?, rounds.parse()?);
    let toolchain = Toolchain::detect()?;
    let device = Device::detect(1, &toolchain)?;
    let (id, tools) = (device.id(), toolchain_id(&toolchain));
    let mut measurer = LocalMeasurer::on_cpu(device, toolchain)?;
    measurer.set_reject_factor(f64::INFINITY);
    for file in files {
        for k in Input::load(file, &[])?.own() {
            let query = Query {
                device: Some(id.clone()),
                toolchain: Some(tools.clone()),
                ..Query::task(k.task.id)
            };
            let best = store
                .best(&query)?
                .into_iter()
                .next()
                .ok_or_else(|| format!("{} is not tuned", k.task.name))?;
            let tuned = if best.tunable == k.plain.name() { &k.plain } else { &k.tunable };
            let tuned = tuned.realize(&tuned.space().parse(&best.configuration)?, SYMBOL)?;
            let plain = k.plain.realize(&k.plain.space().nth(0), SYMBOL)?;
            let native = k.reference(SYMBOL).kernel.ok_or("its reference is no function")?;
            let mut any = native.clone();
            any.flags.extend(["-march=x86-64", "-mtune=generic"].map(String::from));
            let reference = k.reference("squall_reference");
            measurer.set_task(&TaskSetup::new(k.task.workload.clone(), reference, 0))?;
            let names = ["tuned", "plain", "native", "any"].map(|n| CandidateText::new(n, ""));
            let sources = [tuned, plain, native, any];
            let jobs: Vec<Job> =
                names.into_iter().zip(sources).map(|(n, s)| Job::new(n, s)).collect();
            let mut times: [Vec<f64>; 4] = Default::default();
            for _ in 0..rounds {
                measurer.run(&jobs, &AtomicBool::new(false), &mut |result| {
                    // A kernel that fails has no time, and its median is infinite.
                    times[result.job].push(if let Outcome::Measured(m) = result.outcome {
                        m.median().0
                    } else {
                        f64::INFINITY
                    });
                })?;
            }
            let [tuned, plain, native, any] = times.map(median);
            println!(
                "{}",
                serde_json::json!({
                    "task": k.task.name,
                    "configuration": best.configuration,
                    "tuned_ns": tuned,
                    "defaults_ns": plain,
                    "o3_native_ns": native,
                    "o3_ns": any,
                })
            );
        }
    }
    Ok(())
}
