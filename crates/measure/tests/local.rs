//! Tests of the local measurer without faulty kernels: timing, tolerance, caching of builds, the
//! pacemaker (a kernel timed beside others), rematches, threads, and faults of the machine such as
//! an absent compiler.

use crate::support;

use squall_core::{
    Bytes, FailStage, Job, KernelSource, Measurer, MeasurerError, Outcome, TaskSetup, Verdict,
    Workload,
};
use squall_measure::LocalMeasurer;
use squall_measure::cpu::{Device, Toolchain};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::*;

#[test]
fn a_right_kernel_is_measured() {
    let mut measurer = measurer();
    let all = outcomes(&mut measurer, &[right(), repeated(50)]).unwrap();
    let (fast, slow) = (measured(&all[0].0), measured(&all[1].0));
    assert_eq!(fast.samples.len(), 7);
    assert!(fast.calls > 100 && fast.error < 1e-5, "{fast:?}");
    // 1,000 elements take at least some 20 ns; and the same work 50 times over is much slower.
    assert!(fast.median().0 > 20.0 && fast.median().0 < 1e6, "{fast:?}");
    assert!(slow.median().0 > 10.0 * fast.median().0, "{fast:?} {slow:?}");
    for (_, cost) in &all {
        assert!(
            cost.build > 0.001
                && cost.build < 20.0
                && cost.measure > 0.0
                && cost.measure < 1.0
                && cost.search == 0.0,
            "{cost:?}"
        );
    }
}

#[test]
fn much_slower_than_the_best_is_timed_briefly() {
    let mut measurer = measurer();
    let all = outcomes(&mut measurer, &[right(), repeated(100)]).unwrap();
    assert_eq!(measured(&all[1].0).samples.len(), 2);
    measurer.set_reject_factor(f64::INFINITY);
    let all = outcomes(&mut measurer, &[repeated(100)]).unwrap();
    assert_eq!(measured(&all[0].0).samples.len(), 7);
}

#[test]
fn a_trial_of_a_millisecond_kernel_costs_little() {
    let mut measurer = measurer();
    let one = measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0).median().0;
    let times = (1e6 / one) as usize;
    measurer.set_reject_factor(f64::INFINITY);
    let all = outcomes(&mut measurer, &[repeated(times)]).unwrap();
    let (m, cost) = (measured(&all[0].0), all[0].1);
    println!(
        "a kernel of {} costs {:.1} ms in the runner and {:.1} ms in the compiler",
        m.median(),
        1e3 * cost.measure,
        1e3 * cost.build
    );
    // Nine calls and the checks; a neighbour may make the calls slower, all alike.
    assert!(cost.measure < 9.0 * 2.0 * m.median().seconds() + 0.03, "{cost:?} for {}", m.median());
}

#[test]
fn next_to_nothing_is_timed_too() {
    let mut measurer = measurer();
    let tiny =
        Workload::parse("workload copy\ndata X: f32[1]\nstage Y: f32[i: 1] = X[i]\noutput Y\n")
            .unwrap();
    let source = "int one(const void *const *d, void *const *o, const void *p, void *w) { *(float \
                  *)o[0] = *(const float *)d[0]; return 0; }";
    let k = KernelSource {
        language: squall_core::Language::C,
        source: source.into(),
        symbol: "one".into(),
        prepared: squall_core::Bytes(0),
        workspace: squall_core::Bytes(0),
        openmp: false,
        full_optimisation: false,
        flags: Vec::new(),
        launches: Vec::new(),
    };
    measurer.set_task(&TaskSetup::new(tiny, k.clone(), 1)).unwrap();
    let all = outcomes(&mut measurer, &[k]).unwrap();
    let m = measured(&all[0].0);
    assert!(
        m.median().0 > 0.2 && m.median().0 < 200.0 && m.calls > 1000 && m.error == 0.0,
        "{m:?}"
    );
}

#[test]
fn infinities_and_nan_of_the_reference_must_be_met() {
    let mut measurer = measurer();
    let w =
        Workload::parse("workload log\ndata X: f32[64]\nstage Y: f32[i: 64] = X[i]\noutput Y\n")
            .unwrap();
    let make = |body: &str| {
        let source = format!(
            "#include <math.h>\nint f(const void *const *d, void *const *o, const void *p, void \
             *w) {{ const float *x = d[0]; float *y = o[0];\n\
             for (int i = 0; i < 64; i++) y[i] = i % 4 == 0 ? INFINITY : i % 4 == 1 ? -INFINITY : \
             x[i] < 0 ? NAN : x[i];\n{body} return 0; }}"
        );
        KernelSource {
            source,
            symbol: "f".into(),
            prepared: squall_core::Bytes(0),
            workspace: squall_core::Bytes(0),
            ..right()
        }
    };
    measurer.set_task(&TaskSetup::new(w, make(""), 1)).unwrap();
    let all = outcomes(
        &mut measurer,
        &[
            make(""),
            make("y[0] = -INFINITY;"),
            make("y[1] = 1e38f;"),
            make("for (int i = 2; i < 64; i++) if (x[i] < 0) y[i] = 0;"),
        ],
    )
    .unwrap();
    measured(&all[0].0);
    for (o, _) in &all[1..] {
        assert!(matches!(o, Outcome::Failed { detail, .. } if detail.contains("output[")), "{o:?}");
    }
    // Nothing written where the reference is NaN: the poison must not pass for it.
    let lazy = {
        let mut k = make("");
        k.source =
            k.source.replace("y[i] = i % 4 == 0", "if (i % 4 < 2 || x[i] >= 0) y[i] = i % 4 == 0");
        k
    };
    let all = outcomes(&mut measurer, &[lazy]).unwrap();
    assert!(
        matches!(&all[0].0, Outcome::Failed { detail, .. } if detail.contains("never written")),
        "{:?}",
        all[0].0
    );
}

#[test]
fn equal_sources_are_built_once() {
    let mut measurer = measurer();
    let all = outcomes(&mut measurer, &[right(), right(), right()]).unwrap();
    assert!(all[0].1.build > 0.0 && all[1].1.build == 0.0 && all[2].1.build == 0.0);
    all.iter().for_each(|(o, _)| drop(measured(o).clone()));
    assert_eq!(outcomes(&mut measurer, &[right()]).unwrap()[0].1.build, 0.0);
}

#[test]
fn many_jobs_come_back_in_order() {
    let mut measurer = measurer();
    let jobs: Vec<KernelSource> = (0..40)
        .map(|i| {
            kernel(&format!("int version = {i};"), if i % 7 == 3 { "return 2;" } else { "" }, "")
        })
        .collect();
    let all = outcomes(&mut measurer, &jobs).unwrap();
    assert_eq!(all.len(), 40);
    for (i, (o, _)) in all.iter().enumerate() {
        assert_eq!(matches!(o, Outcome::Failed { .. }), i % 7 == 3, "{i}: {o:?}");
    }
    assert!(outcomes(&mut measurer, &[]).unwrap().is_empty());
}

#[test]
fn the_best_is_looked_at_again_where_builds_and_measuring_take_turns() {
    let toolchain = Toolchain::detect().unwrap();
    let mut device = Device::detect(1, &toolchain).unwrap();
    device.spare.clear();
    let mut measurer = LocalMeasurer::on_cpu(device, toolchain).unwrap();
    measurer.set_task(&TaskSetup::new(workload(), reference(), 7)).unwrap();
    // Right as long as it is loaded for the first time.
    let once = kernel(
        "#include <stdio.h>\nstatic int again;\n__attribute__((constructor)) static void \
         look(void) {\n\
         FILE *f = fopen(\"looked\", \"r\");\n again = f != 0;\n if (!f) f = \
         fopen(\"looked\", \"w\");\n fclose(f);\n}",
        "if (again) return 3;",
        "",
    );
    let one = measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0).median().0;
    let slow = (0..12).map(|i| repeated((3e7 / one) as usize + i));
    let all =
        outcomes(&mut measurer, &std::iter::once(once).chain(slow).collect::<Vec<_>>()).unwrap();
    assert!(
        matches!(&all[0].0, Outcome::Failed { detail, .. } if detail.contains('3')),
        "{:?}",
        all[0].0
    );
    assert!(all[1..].iter().all(|(o, _)| !measured(o).samples.is_empty()));
}

#[test]
fn others_are_timed_beside_a_pacemaker() {
    let mut measurer = measurer();
    let all = outcomes(
        &mut measurer,
        &[right(), repeated(3), right(), kernel("", "abort();", ""), repeated(2)],
    )
    .unwrap();
    let paces: Vec<Option<f64>> = [0, 1, 2, 4].map(|i| measured(&all[i].0).pace).to_vec();
    let sane = |p: f64| (1.0..20.0).contains(&p);
    // The first has none, but where a second look at it was the faster one.
    assert!(
        paces[0].is_none_or(sane) && paces[1..].iter().all(|p| p.is_some_and(sane)),
        "{paces:?}"
    );
    // It is for its own task, and does not outlive it in the process.
    let text = workload().to_string().replace("X[i, j] * W[i, j] + S[i]", "X[i, j] * W[i, j]");
    let other =
        KernelSource { source: reference().source.replace("(double)(float)s", "0"), ..reference() };
    let text = Workload::parse(&text).unwrap();
    measurer.set_task(&TaskSetup::new(text, other.clone(), 7)).unwrap();
    let all = outcomes(&mut measurer, std::slice::from_ref(&other)).unwrap();
    assert!(measured(&all[0].0).pace.is_none());
}

#[test]
fn stop_ends_between_jobs() {
    let mut measurer = measurer();
    // Some hundred milliseconds each, more than a group of jobs that are looked at twice.
    let one = measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0).median().0;
    let jobs: Vec<Job> = (0..30).map(|i| job(repeated((1e7 / one) as usize + i))).collect();
    let stop = AtomicBool::new(false);
    let mut seen = 0;
    measurer
        .run(&jobs, &stop, &mut |r| {
            measured(&r.outcome);
            assert_eq!(r.job, seen);
            seen += 1;
            if r.job == 2 {
                stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
    // What was measured when stop was set is reported, and no more is measured.
    assert!((3..30).contains(&seen), "{seen}");
    measurer.run(&jobs, &stop, &mut |_| panic!("stopped before the start")).unwrap();
    stop.store(false, Ordering::Relaxed);
    measurer.run(&jobs[..5], &stop, &mut |r| drop(measured(&r.outcome).clone())).unwrap();
}

#[test]
fn tasks_can_be_returned_to() {
    let mut measurer = measurer();
    let other = Workload::parse(
        "workload double\ndata X: f32[300]\nstage Y: f32[i: 300] = X[i] + X[i]\noutput Y\n",
    )
    .unwrap();
    let source = "int two(const void *const *d, void *const *o, const void *p, void *w) { for \
                  (int i = 0; i < 300; i++) ((float *)o[0])[i] = 2 * ((const float *)d[0])[i]; \
                  return 0; }";
    let k = KernelSource {
        source: source.into(),
        symbol: "two".into(),
        prepared: squall_core::Bytes(0),
        workspace: squall_core::Bytes(0),
        ..right()
    };
    for _ in 0..3 {
        measurer.set_task(&TaskSetup::new(other.clone(), k.clone(), 5)).unwrap();
        measured(&outcomes(&mut measurer, std::slice::from_ref(&k)).unwrap()[0].0);
        measurer.set_task(&TaskSetup::new(workload(), reference(), 7)).unwrap();
        measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0);
        // Also from a fresh process: the reference comes from the file.
        // The kernel crashes only the first time, as an earlier kernel's damage would show.
        let flag = measurer.folder().join("crashed");
        let _ = fs::remove_file(&flag);
        let once = format!(
            "if (access(\"{0}\", F_OK) != 0) {{ fclose(fopen(\"{0}\", \"w\")); abort(); }}",
            flag.display()
        );
        measured(&outcome(&mut measurer, kernel("", &once, "")));
        assert!(flag.exists());
    }
}

#[test]
fn a_rematch_prefers_half_the_work_and_ties_with_itself() {
    let mut measurer = measurer();
    let (two, four) = (repeated(200), repeated(400));
    measured(&outcomes(&mut measurer, std::slice::from_ref(&two)).unwrap()[0].0);
    let m = rematch(&mut measurer, &four, &two).unwrap();
    assert_eq!(m.verdict, Verdict::Faster, "{m:?}");
    assert!(
        m.incumbent.samples.len() >= 12
            && m.incumbent.samples.len() == m.challenger.samples.len()
            && m.cost.measure > 0.0
    );
    assert!((m.incumbent.median().0 / m.challenger.median().0 - 2.0).abs() < 0.5, "{m:?}");
    assert_eq!(rematch(&mut measurer, &two, &four).unwrap().verdict, Verdict::Slower);
    let m = rematch(&mut measurer, &two, &two).unwrap();
    assert_eq!(m.verdict, Verdict::Tie, "{m:?}");
    let bad = kernel("", "return 4;", "");
    let error = rematch(&mut measurer, &two, &bad).unwrap_err();
    assert!(
        matches!(
            &error,
            MeasurerError::Contender { challenger: true, detail } if detail == "returned 4"
        ),
        "{error}"
    );
    let error = rematch(&mut measurer, &bad, &two).unwrap_err();
    assert!(matches!(error, MeasurerError::Contender { challenger: false, .. }), "{error}");
    let error = rematch(&mut measurer, &two, &kernel("", "abort();", "")).unwrap_err();
    assert!(matches!(error, MeasurerError::Contender { challenger: true, .. }), "{error}");
    assert_eq!(rematch(&mut measurer, &four, &two).unwrap().verdict, Verdict::Faster);
}

#[test]
fn kernels_of_two_threads() {
    let toolchain = Toolchain::detect().unwrap();
    let Ok(device) = Device::detect(2, &toolchain) else {
        println!("skipped: this machine has one core, or no OpenMP");
        return;
    };
    let mut measurer = LocalMeasurer::on_cpu(device, toolchain).unwrap();
    measurer.set_task(&TaskSetup::new(workload(), reference(), 7)).unwrap();
    let mut k = kernel(
        "#include <omp.h>",
        "int seen = 0;\n#pragma omp parallel reduction(+ : seen)\nseen += 1;\nif (seen != 2) \
         return 7;",
        "",
    );
    k.openmp = true;
    let mut crash = k.clone();
    crash.source = crash.source.replace(
        "seen += 1;",
        "{ seen += 1; if (omp_get_thread_num() == 1) *(volatile int *)8 = 1; }",
    );
    let all = outcomes(&mut measurer, &[k.clone(), crash, k, right()]).unwrap();
    measured(&all[0].0);
    assert!(
        matches!(&all[1].0, Outcome::Failed { detail, .. } if detail.contains("SIGSEGV")),
        "{:?}",
        all[1].0
    );
    measured(&all[2].0);
    measured(&all[3].0);
}

#[test]
fn the_folder_goes_with_the_measurer() {
    let parent = tempfile::tempdir().unwrap();
    let toolchain = Toolchain::detect().unwrap();
    let mut measurer =
        LocalMeasurer::on_cpu_in(parent.path(), Device::detect(1, &toolchain).unwrap(), toolchain)
            .unwrap();
    measurer.set_task(&TaskSetup::new(workload(), reference(), 7)).unwrap();
    measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0);
    let folder = measurer.folder().to_path_buf();
    assert!(folder.starts_with(parent.path()) && folder.exists());
    let left: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        !left.iter().any(|n| n.ends_with(".c") && n != "runner.c"),
        "sources are removed once built: {left:?}"
    );
    drop(measurer);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn a_reference_that_fails_is_an_error_that_says_so() {
    let toolchain = Toolchain::detect().unwrap();
    let mut measurer =
        LocalMeasurer::on_cpu(Device::detect(1, &toolchain).unwrap(), toolchain).unwrap();
    let none = outcomes(&mut measurer, &[right()]).unwrap_err();
    assert!(none.to_string().contains("no task was set"), "{none}");
    for (bad, words) in [
        ("int = 1;", "does not compile"),
        ("abort();", "SIGABRT"),
        ("return 3;", "returned 3"),
        ("y[1000] = 0;", "the output"),
    ] {
        let error =
            measurer.set_task(&TaskSetup::new(workload(), kernel("", bad, ""), 7)).unwrap_err();
        assert!(
            matches!(error, MeasurerError::Reference(_)) && error.to_string().contains(words),
            "{error}"
        );
        assert!(outcomes(&mut measurer, &[right()]).is_err());
    }
    let whole =
        Workload::parse("workload h\ndata X: i64[4]\nstage Y: f32[i: 4] = X[i]\noutput Y\n")
            .unwrap();
    assert!(
        measurer
            .set_task(&TaskSetup::new(whole, reference(), 7))
            .unwrap_err()
            .to_string()
            .contains("i64")
    );
    measurer.set_task(&TaskSetup::new(workload(), reference(), 7)).unwrap();
    measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0);
}

/// Elements of 16 bits are copied; `change` alters the bits on their way.
fn copy_of_bits(change: &str) -> KernelSource {
    let source = format!(
        "int copy(const void *const *data, void *const *outputs, const void *prepared, void \
         *workspace) {{\n\
         const unsigned short *x = data[0]; unsigned short *y = outputs[0]; (void)prepared; \
         (void)workspace;\n\
         for (int i = 0; i < 1000; i++) y[i] = (unsigned short)({change});\n  return 0;\n}}\n\
         __SIZE_TYPE__ copy_workspace_bytes(void) {{ return 0; }}\n"
    );
    KernelSource {
        source,
        symbol: "copy".into(),
        prepared: Bytes(0),
        workspace: Bytes(0),
        ..reference()
    }
}

#[test]
fn elements_of_16_bits_may_differ_in_their_last_place() {
    let toolchain = Toolchain::detect().unwrap();
    let mut measurer =
        LocalMeasurer::on_cpu(Device::detect(1, &toolchain).unwrap(), toolchain).unwrap();
    for format in ["f16", "bf16"] {
        let text = format!(
            "workload h\ndata X: {format}[1000]\nstage Y: {format}[i: 1000] = X[i]\noutput Y\n"
        );
        let copied = Workload::parse(&text).unwrap();
        measurer.set_task(&TaskSetup::new(copied, copy_of_bits("x[i]"), 7)).unwrap();
        let got = outcomes(
            &mut measurer,
            &[copy_of_bits("x[i]"), copy_of_bits("x[i] ^ 1"), copy_of_bits("x[i] ^ 4")],
        )
        .unwrap();
        measured(&got[0].0);
        measured(&got[1].0);
        assert!(
            matches!(&got[2].0, Outcome::Failed { stage: FailStage::WrongAnswer, .. }),
            "{format}: {:?}",
            got[2].0
        );
    }
}

/// A compiler that works until a file appears.
fn moody_compiler(folder: &std::path::Path, then: &str) -> (Toolchain, std::path::PathBuf) {
    let (script, flag) = (folder.join("cc.sh"), folder.join("flag"));
    fs::write(
        &script,
        format!("if [ -e '{}' ]; then {then}; fi\nexec cc \"$@\"\n", flag.display()),
    )
    .unwrap();
    (Toolchain::named(&format!("sh {}", script.display())).unwrap(), flag)
}

#[test]
fn a_compiler_that_breaks_is_an_error_not_a_thousand_failures() {
    let folder = tempfile::tempdir().unwrap();
    let (toolchain, flag) =
        moody_compiler(folder.path(), "echo 'cc1: error: the licence has expired' >&2; exit 1");
    let mut measurer = measurer_of(1, toolchain);
    measured(&outcomes(&mut measurer, &[right()]).unwrap()[0].0);
    fs::write(&flag, "").unwrap();
    let error = outcomes(&mut measurer, &[repeated(2), repeated(3)]).unwrap_err();
    assert!(
        matches!(
            &error,
            MeasurerError::BrokenCompiler { detail, .. } if detail.contains("licence has expired")
        ),
        "{error}"
    );
    fs::remove_file(&flag).unwrap();
    measured(&outcomes(&mut measurer, &[repeated(2)]).unwrap()[0].0);
}

#[test]
fn a_full_disk_is_an_error_that_names_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (toolchain, flag) = moody_compiler(
        folder.path(),
        "echo 'as: error writing k.o: No space left on device' >&2; exit 1",
    );
    let mut measurer = measurer_of(1, toolchain);
    fs::write(&flag, "").unwrap();
    let error = outcomes(&mut measurer, &[right()]).unwrap_err().to_string();
    assert!(
        error.contains(&measurer.folder().display().to_string())
            && error.contains("No space left")
            && error.contains("TMPDIR"),
        "{error}"
    );
}

#[test]
fn a_folder_that_vanishes_is_an_error_that_names_it() {
    let mut measurer = measurer();
    fs::remove_dir_all(measurer.folder()).unwrap();
    let error = outcomes(&mut measurer, &[right()]).unwrap_err().to_string();
    assert!(error.contains(&measurer.folder().display().to_string()), "{error}");
}

#[test]
fn no_compiler_and_broken_ones_from_the_environment() {
    // The environment belongs to the whole process, so each case gets one of its own.
    let me = std::env::current_exe().unwrap();
    for (cc, words) in [
        ("/bin/false", "/bin/false"),
        ("/no/such/cc", "no C compiler: tried /no/such/cc"),
        ("gcc-of-tomorrow", "install one"),
    ] {
        let out = std::process::Command::new(&me)
            .args(["--exact", "local::detect_in_this_process", "--nocapture", "--ignored"])
            .env("CC", cc)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(said.contains(words), "{cc}: {said}");
    }
    let out = std::process::Command::new(&me)
        .args(["--exact", "local::detect_in_this_process", "--nocapture", "--ignored"])
        .env_remove("CC")
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("tried gcc, cc, clang"), "{said}");
}

#[test]
#[ignore = "started by the test above, in an environment without a compiler"]
fn detect_in_this_process() {
    match Toolchain::detect() {
        Ok(t) => println!("found {}", t.id()),
        Err(e) => println!("{e}"),
    }
}

#[test]
fn the_runner_does_not_outlive_a_killed_parent() {
    let me = std::env::current_exe().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(&me)
        .args(["--exact", "local::hang_in_this_process", "--nocapture", "--ignored"])
        .env("TMPDIR", parent.path())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let pid_file = parent.path().join("runner-pid");
    let pid = loop {
        match fs::read_to_string(&pid_file).ok().and_then(|s| s.trim().parse::<u32>().ok()) {
            Some(pid) => break pid,
            None => assert!(Instant::now() < deadline, "the kernel never started"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let alive =
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "));
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive() {
        assert!(Instant::now() < deadline, "the runner lives on");
        std::thread::sleep(Duration::from_millis(50));
    }
    // And the next measurer there removes what was left.
    let toolchain = Toolchain::detect().unwrap();
    let measurer =
        LocalMeasurer::on_cpu_in(parent.path(), Device::detect(1, &toolchain).unwrap(), toolchain)
            .unwrap();
    let folders = fs::read_dir(parent.path())
        .unwrap()
        .filter(|e| {
            e.as_ref().unwrap().file_name().to_string_lossy().starts_with("squall-measure-")
        })
        .count();
    assert_eq!(folders, 1);
    drop(measurer);
}

#[test]
#[ignore = "started by the test above, which kills it"]
fn hang_in_this_process() {
    let mut measurer = measurer();
    let path = std::env::temp_dir().join("runner-pid");
    let hang = format!(
        "FILE *f = fopen(\"{}\", \"w\"); fprintf(f, \"%d\\n\", (int)getpid()); fclose(f); for \
         (volatile int a = 1; a;);",
        path.display()
    );
    let _ = outcomes(&mut measurer, &[kernel("", &hang, "")]);
}
