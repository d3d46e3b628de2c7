//! Tests of the local measurer on a real GPU, with right kernels and with every kind of wrong ones.
//! Where there is no GPU they are skipped and print the reason.

use crate::support;

use squall_core::{FailStage, Measurer, Outcome, TaskSetup};
use squall_measure::LocalMeasurer;
use squall_measure::cpu::{Device, Toolchain};
use squall_measure::cuda::Gpu;
use std::time::{Duration, Instant};
use support::{cuda_kernel as kernel, measured, outcomes, reference, rematch, workload};

/// A measurer on the first GPU with the small task set, if there is one.
fn measurer() -> Option<LocalMeasurer> {
    let toolchain = Toolchain::detect().unwrap();
    let gpu = match Gpu::detect(0, &toolchain) {
        Ok(gpu) => gpu,
        Err(e) => {
            println!("skipped: {e}");
            return None;
        }
    };
    let device = Device::detect(1, &toolchain).unwrap();
    // One that is emulated (tests/emulator) has no caches.
    let mut measurer = LocalMeasurer::on_gpus(&[gpu], device, toolchain).unwrap();
    measurer.set_task(&TaskSetup::new(workload(), reference(), 1)).unwrap();
    measurer.set_timeout(Duration::from_secs(3));
    Some(measurer)
}

fn stage(o: &Outcome) -> FailStage {
    match o {
        Outcome::Failed { stage, .. } => *stage,
        other => panic!("{other:?} did not fail"),
    }
}

#[test]
fn faults_are_outcomes_and_the_next_kernel_runs() {
    let Some(mut measurer) = measurer() else { return };
    let right = || kernel("", 0);
    let wrong = [
        ("this is no CUDA", 0, FailStage::Build),
        ("s = 1;", 0, FailStage::WrongAnswer),
        ("y[1000 + j] = 0;", 0, FailStage::WrongAnswer),
        ("scratch[100 + j] = 0;", 0, FailStage::WrongAnswer),
        ("y[(size_t)(j + 1) << 34] = 0;", 0, FailStage::Launch),
        ("", 4 << 20, FailStage::Launch),
        ("while (clock64() != 0) {}", 0, FailStage::Timeout),
        ("__trap();", 0, FailStage::Launch),
    ];
    for (work, shared, expected) in wrong {
        let started = Instant::now();
        let all = outcomes(&mut measurer, &[kernel(work, shared), right()]).unwrap();
        println!("{work}: {:?} in {:.1} s", all[0].0, started.elapsed().as_secs_f64());
        assert_eq!(stage(&all[0].0), expected, "{work}: {:?}", all[0].0);
        // The process, and with it the context, was replaced where that was needed.
        assert!(measured(&all[1].0).error < 1e-5, "{work}");
    }
}

#[test]
fn a_slower_kernel_loses_its_rematch() {
    let Some(mut measurer) = measurer() else { return };
    let slow = kernel("for (int z = 0; z < 2000; z++) s += x[(z * 37 + j) % 1000]; s *= 0.0f;", 0);
    let all = outcomes(&mut measurer, &[kernel("", 0), slow.clone()]).unwrap();
    let times: Vec<f64> = all.iter().map(|o| measured(&o.0).median().0).collect();
    assert!(times[1] > 2.0 * times[0], "{times:?}");
    let m = rematch(&mut measurer, &slow, &kernel("", 0)).unwrap();
    assert_eq!(m.verdict, squall_core::Verdict::Faster, "{m:?}");
    let m = rematch(&mut measurer, &kernel("", 0), &slow).unwrap();
    assert_ne!(m.verdict, squall_core::Verdict::Faster, "{m:?}");
}

#[test]
fn cold_caches_cost_time() {
    let Some(mut measurer) = measurer() else { return };
    let warm = measured(&outcomes(&mut measurer, &[kernel("", 0)]).unwrap()[0].0).median().0;
    measurer.set_cache_flush(256 << 20);
    let all = outcomes(&mut measurer, &[kernel("", 0)]).unwrap();
    let cold = measured(&all[0].0);
    assert_eq!(cold.calls, 1);
    assert!(cold.median().0 > warm, "{cold:?}, warm {warm}");
}
