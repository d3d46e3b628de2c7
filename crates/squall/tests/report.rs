//! Reports of made-up sessions: sums, bounds, the page.

use squall::report::{
    FailureClass, Report, Roof, RoofLevel, StopReason, TaskReport, UntunedNode, Winner, html, json,
};
use squall_core::{CpuCost, Nanos, Objective, TaskId, Workload};

fn roof() -> Roof {
    let level = |name: &str, bytes, gbs| RoofLevel { name: name.into(), bytes, gbs };
    Roof {
        peak_gflops: 100.0,
        memory_gbs: 10.0,
        levels: vec![level("L1", 32 << 10, 200.0), level("L2", 1 << 20, 50.0)],
    }
}

fn task(name: &str, count: u64, best: Option<f64>, untuned: Option<f64>) -> TaskReport {
    let w = Workload::parse(
        "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0)\noutput Y\n",
    )
    .unwrap();
    TaskReport {
        id: TaskId::of(&w, Objective::Time),
        name: name.into(),
        kind: "relu".into(),
        count,
        nodes: vec!["n".into()],
        flop: 1_000_000,
        bytes: 10_000,
        untuned: untuned.map(Nanos),
        baseline: "plain loops",
        best: best.map(Nanos),
        winner: best.map(|_| Winner { tunable: "tile".into(), configuration: "a=1".into() }),
        trials: 10,
        failed: 2,
        throttled: (0, Vec::new()),
        predicted: 0,
        known: 3,
        stop: StopReason::Trials,
        curve: best.map(|b| vec![(1, Nanos(b * 2.0)), (7, Nanos(b))]).unwrap_or_default(),
        failures: vec![FailureClass {
            stage: "build".into(),
            detail: "<error> & \"more\"".into(),
            count: 2,
        }],
        cost: CpuCost { build: 1.0, measure: 0.5, search: 0.25 },
    }
}

fn report(tasks: Vec<TaskReport>, roof: Option<Roof>) -> Report {
    Report {
        input: "<script>alert('x')</script>".into(),
        device: "cpu".into(),
        toolchain: "gcc".into(),
        threads: 1,
        roof,
        strategy: "random".into(),
        seed: 1,
        started: 951_782_400.0,
        seconds: 3.0,
        stop: StopReason::Trials,
        store: "a.squall".into(),
        tasks,
        untuned: vec![UntunedNode {
            node: "r\u{1}<".into(),
            op: "Resize".into(),
            reason: "no".into(),
        }],
    }
}

#[test]
fn sums_weigh_by_count_and_leave_out_what_has_no_time() {
    let r = report(
        vec![
            task("a", 3, Some(10.0), Some(100.0)),
            task("b", 1, Some(70.0), Some(100.0)),
            task("c", 9, None, Some(5.0)),
            task("d", 9, Some(1.0), None),
        ],
        None,
    );
    assert_eq!(r.totals(), (Nanos(100.0), Nanos(400.0)));
    assert_eq!(r.gain(), Some(4.0));
    assert_eq!(r.trials(), (40, 8));
    assert_eq!(r.cost(), CpuCost { build: 4.0, measure: 2.0, search: 1.0 });
    assert_eq!(report(vec![], None).gain(), None);
}

#[test]
fn bounds_follow_the_level_that_holds_the_data() {
    let r = roof();
    assert_eq!(r.bound(1_000_000, 10), Nanos(10_000.0));
    assert_eq!(r.bound(0, 20_000), Nanos(100.0));
    // 32 KiB at 200, what fits up to 1 MiB at 50, the rest at 10 bytes a nanosecond.
    let (l1, l2) = (32_768.0 / 200.0, (1_048_576.0 - 32_768.0) / 50.0);
    assert_eq!(r.bound(0, 500_000), Nanos(l1 + (500_000.0 - 32_768.0) / 50.0));
    assert_eq!(r.bound(0, 10_000_000), Nanos(l1 + l2 + (10_000_000.0 - 1_048_576.0) / 10.0));
    assert_eq!(task("a", 1, Some(40_000.0), None).share(&r), Some(0.25));
}

#[test]
fn json_has_the_keys_that_scripts_use() {
    let v = json::report(&report(
        vec![task("a", 3, Some(10.0), Some(100.0)), task("c", 1, None, None)],
        Some(roof()),
    ));
    let t = &v["tasks"][0];
    assert_eq!(
        (t["name"].as_str(), t["count"].as_u64(), t["best_ns"].as_f64(), t["untuned_ns"].as_f64()),
        (Some("a"), Some(3), Some(10.0), Some(100.0))
    );
    assert_eq!(
        (t["flop"].as_u64(), t["trials"].as_u64(), t["failed"].as_u64()),
        (Some(1_000_000), Some(10), Some(2))
    );
    assert_eq!(t["cpu_seconds"], serde_json::json!({"build": 1.0, "measure": 0.5, "search": 0.25}));
    assert!(v["tasks"][1]["best_ns"].is_null() && v["tasks"][1]["best"].is_null());
    assert!(!v.to_string().contains('\n'), "it is one line");
}

#[test]
fn the_page_stands_alone_whatever_names_hold() {
    let hostile = "conv' onload='x' <b>&\u{202e}".to_string() + &"long".repeat(100);
    for tasks in [
        vec![],
        vec![task(&hostile, 1, None, None)],
        vec![task(&hostile, 2, Some(1e-3), Some(1e12)), task("b", 1, Some(5.0), Some(5.0))],
    ] {
        for roof in [None, Some(roof())] {
            let page = html::page(&report(tasks.clone(), roof));
            assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
            for foreign in
                ["<script", "<b>&", "src=", "href=", "url(", "@import", "NaN", "inf", "onload='x'"]
            {
                assert!(!page.contains(foreign), "the page contains {foreign}");
            }
            for tag in ["section", "table", "svg", "tr", "td", "title", "figure", "details"] {
                let open = page.matches(&format!("<{tag}>")).count()
                    + page.matches(&format!("<{tag} ")).count();
                assert_eq!(
                    open,
                    page.matches(&format!("</{tag}>")).count(),
                    "<{tag}> is not balanced"
                );
            }
        }
    }
}

#[test]
fn dates_are_right() {
    assert_eq!(html::utc(951_782_400.0), "2000-02-29 00:00:00 UTC");
    assert_eq!(html::utc(1_709_251_199.0), "2024-02-29 23:59:59 UTC");
    assert_eq!(html::utc(0.0), "1970-01-01 00:00:00 UTC");
    assert_eq!(html::duration(3725.0), "1 h 02 min");
}
