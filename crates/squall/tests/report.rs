//! Tests of tuning reports, from made-up sessions: sums over tasks, roofline bounds, JSON keys that
//! scripts rely on, and the HTML page.

use squall::report::{
    Factors, FailureClass, GraphKernel, KernelGraph, PlainRow, PlainSteps, PlainTime, Report, Roof,
    RoofLevel, StepWork, StopReason, TaskReport, UntunedNode, Winner, html, json,
};
use squall::{Inference, KernelCounts, Library, Peer, PeerTimes};
use squall_core::{CpuCost, Nanos, Objective, TaskId, Workload};

fn roof() -> Roof {
    let level = |name: &str, bytes, gbs| RoofLevel { name: name.into(), bytes, gbs };
    Roof {
        peak_gflops: 100.0,
        byte_pace: 4.0,
        pair_pace: 2.0,
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
        operations: 1_000_000,
        bytes: 10_000,
        factors: Factors::Floats,
        untuned: untuned.map(Nanos),
        baseline: "plain loops",
        best: best.map(Nanos),
        winner: best.map(|_| Winner { tunable: "tile".into(), configuration: "a=1".into() }),
        trials: 10,
        failed: 2,
        right: 0,
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
        inference: None,
    }
}

/// Two kernels, one of which reads what the other writes.
fn graph() -> KernelGraph {
    let kernel = |op: &str, from: &[usize]| GraphKernel {
        name: format!("k_{op}"),
        kind: "kernel",
        nodes: vec![(format!("/n<{op}"), op.into())],
        nanos: 50.0,
        from: from.to_vec(),
    };
    KernelGraph { kernels: vec![kernel("Conv", &[]), kernel("Gemm", &[0])] }
}

/// Whole inferences with a library beside them, and one that is absent.
fn inference() -> Inference {
    let theirs = PeerTimes {
        version: "1.2.3".into(),
        best_ns: 150,
        median_ns: 160,
        inferences: 5,
        error: Some(1e-6),
    };
    let beside = vec![
        Peer { library: Library::OnnxRuntime, times: Ok(theirs) },
        Peer { library: Library::OpenVino, times: Err("no <Python> with openvino".into()) },
    ];
    let (best, median) = (Nanos(100.0), Nanos(110.0));
    let (kernels, graph, plain) = (KernelCounts::default(), graph(), PlainSteps::default());
    Inference { best, median, inferences: 7, kernels, graph, plain, beside }
}

#[test]
fn the_headline_is_the_inference_the_bound_and_the_libraries() {
    let mut r = report(vec![task("a", 3, Some(20_000.0), Some(100_000.0)); 2], Some(roof()));
    r.inference = Some(Ok(inference()));
    let lines = r.headline();
    assert!(lines[0].contains("one inference 100.0 ns"), "{lines:?}");
    assert!(lines[1].contains("onnxruntime 1.2.3") && lines[1].contains("1.50x"), "{lines:?}");
    assert!(lines[2].contains("openvino") && lines[2].contains("no <Python>"), "{lines:?}");
    assert!(lines[3].contains("50 %"), "{lines:?}");
    assert!(!lines.concat().contains("plain loops are"), "{lines:?}");
    let v = json::report(&r);
    let i = &v["inference"];
    assert_eq!((i["best_ns"].as_f64(), i["beside"][0]["ratio"].as_f64()), (Some(100.0), Some(1.5)));
    assert!(i["beside"][1]["failed"].as_str().is_some_and(|w| w.contains("Python")), "{v}");
    assert_eq!(v["total"]["roof_share"], 0.5);
    let page = html::page(&r);
    assert!(page.contains("one inference") && page.contains("1.50x"));
    assert!(page.contains("no &lt;Python&gt;") && !page.contains("Gain over"));
    assert!(page.contains("The network as kernels") && page.contains("k_Gemm: /n&lt;Gemm"));
    r.inference = Some(Err("it has two inputs".into()));
    assert!(r.headline()[0].contains("it has two inputs"));
    assert!(html::page(&r).contains("it has two inputs"));
    assert_eq!(json::report(&r)["inference"]["failed"], "it has two inputs");
    // A user's own defaults are an alternative.
    r.tasks.iter_mut().for_each(|t| t.baseline = "knobs' defaults");
    assert!(html::page(&r).contains("Gain over"));
}

/// Two nodes of one operator, and three short ones whose work is not known.
fn plain_steps() -> PlainSteps {
    let work = StepWork { operations: 0, bytes: 100, factors: Factors::Floats };
    let works = Some(vec![work; 2]);
    let row = PlainRow {
        by: "plain",
        op: "<Top>K".into(),
        node: "/n<'x'>".into(),
        time: PlainTime { nodes: 2, best_ns: 30, share: 0.3, works },
    };
    let rest = PlainTime { nodes: 3, best_ns: 1, share: 0.01, works: None };
    PlainSteps { rows: vec![row], rest: Some(rest) }
}

#[test]
fn what_runs_as_plain_c_is_named_with_its_share_and_its_bound() {
    let mut r = report(vec![task("a", 3, Some(20_000.0), Some(100_000.0))], Some(roof()));
    r.inference = Some(Ok(inference()));
    assert!(!html::page(&r).contains("plain C"), "nothing does");
    r.inference = Some(Ok(Inference { plain: plain_steps(), ..inference() }));
    let page = html::page(&r);
    let table = page.split("What runs as plain C").nth(1).unwrap().split("</section>").next();
    let table = table.unwrap();
    assert!(table.contains("these 5 nodes: 31.0 %"), "{table}");
    // Twice 100 bytes at 200 a nanosecond.
    assert!(table.contains("&lt;Top&gt;K") && table.contains("/n&lt;&#39;x&#39;&gt;"), "{table}");
    assert!(table.contains("<td>30.0 %</td><td>1.0 ns</td><td>30x</td>"), "{table}");
    assert!(table.contains("others") && table.contains("<td>\u{2013}</td>"), "{table}");
    for tag in ["tr", "td", "table", "p"] {
        let open = table.matches(&format!("<{tag}>")).count();
        let open = open + table.matches(&format!("<{tag} ")).count();
        assert_eq!(open, table.matches(&format!("</{tag}>")).count(), "{tag}: {table}");
    }
    let steps = &json::report(&r)["inference"]["plain_steps"];
    let row = &steps["rows"][0];
    assert_eq!((row["op"].as_str(), row["by"].as_str()), (Some("<Top>K"), Some("plain")));
    assert_eq!((row["nodes"].as_u64(), row["bytes"].as_u64()), (Some(2), Some(200)));
    assert_eq!((row["bound_ns"].as_f64(), row["times_bound"].as_f64()), (Some(1.0), Some(30.0)));
    assert!(steps["rest"]["bound_ns"].is_null() && steps["rest"]["bytes"].is_null(), "{steps}");
    assert_eq!(steps["whole"]["nodes"], 5);
    assert_eq!(steps["whole"]["best_ns"], 31);
    r.roof = None;
    assert!(html::page(&r).contains("<td>30.0 %</td><td>\u{2013}</td><td>\u{2013}</td>"));
    let steps = &json::report(&r)["inference"]["plain_steps"];
    assert!(steps["rows"][0]["bound_ns"].is_null() && steps["rows"][0]["bytes"] == 200);
}

#[test]
fn table_page_plot_and_json_count_the_operations_of_the_algorithm_that_runs() {
    let mut t = task("winograd", 1, Some(6_000.0), Some(100_000.0));
    t.operations = 500_000;
    assert_eq!(t.share(&roof()), Some(5_000.0 / 6_000.0));
    assert_eq!(t.gflops(), Some(500_000.0 / 6_000.0));
    let r = report(vec![t], Some(roof()));
    let v = json::report(&r);
    assert_eq!(v["tasks"][0]["roof_share"], 5_000.0 / 6_000.0);
    assert_eq!(v["tasks"][0]["operations"], 500_000);
    let page = html::page(&r);
    assert!(page.contains("83 %") && !page.contains("167 %"), "counted by the expression");
    assert!(page.contains("83.3 GFLOP/s, 83 % of its bound, 50 operations a byte"), "{page}");
    // The curve ends at the rate that the table shows.
    assert!(page.contains("trial 7: 83.3"));
}

#[test]
fn labels_of_plots_are_not_cut() {
    let long = "conv2d_512x28x28_k1024_3x3_s2_bias_add_relu_of_a_very_long_block_name".repeat(3);
    let page = html::page(&report(
        vec![task(&long, 2, Some(20_000.0), Some(5e5)), task("b", 1, Some(5.0), Some(5.0))],
        Some(roof()),
    ));
    assert!(!page.contains('\u{2026}') && !page.contains("text-overflow"));
    // Every label is inside of its plot, by an estimate of its width.
    for svg in page.split("<svg ").skip(1).map(|s| s.split("</svg>").next().unwrap()) {
        let number = |text: &str, name: &str| -> f64 {
            let value = text.split(&format!(" {name}='")).nth(1).unwrap().split('\'').next();
            value.unwrap().parse().unwrap()
        };
        let width: f64 = svg.split(' ').nth(2).unwrap().parse().unwrap();
        for text in svg.split("<text").skip(1).filter(|t| t.contains(" x='")) {
            let shown = text.split('>').nth(1).unwrap().split('<').next().unwrap();
            let (x, wide) = (number(text, "x"), 6.0 * shown.chars().count() as f64);
            let (from, to) = match text {
                t if t.contains("'end'") => (x - wide, x),
                t if t.contains("'middle'") => (x - wide / 2.0, x + wide / 2.0),
                _ => (x, x + wide),
            };
            assert!(from >= 0.0 && to <= width, "`{shown}` from {from} to {to} of {width}");
        }
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
fn tasks_of_bytes_have_a_peak_of_their_own() {
    let mut t = task("a", 1, Some(5_000.0), Some(50_000.0));
    let of = |t: &TaskReport| html::page(&report(vec![t.clone()], Some(roof())));
    assert!(of(&t).contains("peak 100 GFLOP/s") && !of(&t).contains("peak of bytes"));
    assert_eq!(t.share(&roof()), Some(2.0));
    t.factors = Factors::Bytes;
    assert!(of(&t).contains("peak of bytes 400 GFLOP/s"));
    assert_eq!(t.share(&roof()), Some(0.5));
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
