//! Tests of replays on a small made-up recording, whose scores were computed by hand.

use super::*;
use squall_search::strategies;

/// Nine configurations, one of which failed.
fn space() -> RecordedSpace {
    let mut entries = Vec::new();
    for a in 0..3 {
        for b in 0..3 {
            let time = if (a, b) == (2, 2) {
                "\"RuntimeFailedConfig\"".into()
            } else {
                format!("{}", 1 + a + 3 * b)
            };
            entries.push(format!(r#""{a},{b}": {{"time": {time}, "compile_time": 500}}"#));
        }
    }
    let text = format!(
        r#"{{"tune_params": {{"a": [0, 1, 2], "b": [0, 1, 2]}}, "cache": {{{}}}}}"#,
        entries.join(",")
    );
    RecordedSpace::new("made", recording::read("made", text.as_bytes()).unwrap())
}

fn all() -> Vec<&'static StrategyInfo> {
    strategies().iter().collect()
}

#[test]
fn every_strategy_walks_the_whole_space_and_scores_agree() {
    let spaces = [space()];
    let strategies = all();
    let replay = Replay {
        spaces: &spaces,
        strategies: &strategies,
        seeds: 3,
        evaluations: 100,
        seconds: None,
        threads: 2,
    };
    let ticks = AtomicUsize::new(0);
    let runs = replay
        .run(&AtomicBool::new(false), &|| {
            ticks.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    assert_eq!((runs.len(), ticks.into_inner()), (strategies.len() * 3, strategies.len() * 3));
    for r in &runs {
        let mut seen = r.trace.clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..9).collect::<Vec<u32>>(), "{}", strategies[r.strategy].name);
    }
    // The same again, on one thread.
    let again = Replay { threads: 1, ..replay }.run(&AtomicBool::new(false), &|| ()).unwrap();
    assert_eq!(
        runs.iter().map(|r| &r.trace).collect::<Vec<_>>(),
        again.iter().map(|r| &r.trace).collect::<Vec<_>>()
    );
}

#[test]
fn scores_are_those_of_the_protocol() {
    let c = space();
    let run =
        |trace: &[u32]| Run { strategy: 0, space: 0, seed: 0, trace: trace.to_vec(), seconds: 0.0 };
    // Ranks 0..9 are a, b in order; times 1, 4, 7, 2, 5, 8, 3, 6, failed.
    let (lucky, unlucky) = (run(&[0]), run(&[8, 3]));
    let s = score(&c, &[&lucky, &unlucky], &[1, 2, 9]);
    assert_eq!(s.value, [0.5, 0.75, 0.75]);
    let mean =
        (1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0 + 1.0 / 5.0 + 1.0 / 6.0 + 1.0 / 7.0 + 1.0 / 8.0)
            / 9.0;
    assert!((s.score[0] - (0.5 - mean) / (1.0 - mean)).abs() < 1e-12);
    // All nine drawn: chance finds the optimum too.
    assert_eq!(s.score[2], 0.0);
    assert_eq!((budgets(400), budgets(60), budgets(7)), (BUDGETS.to_vec(), vec![25, 50], vec![7]));
}

#[test]
fn seconds_are_those_of_the_recording() {
    let spaces = [space()];
    let strategies = all();
    let replay = Replay {
        spaces: &spaces,
        strategies: &strategies[..1],
        seeds: 1,
        evaluations: 100,
        seconds: Some(1.2),
        threads: 1,
    };
    let runs = replay.run(&AtomicBool::new(false), &|| ()).unwrap();
    assert_eq!(runs[0].trace.len(), 3);
    let line: serde_json::Value = serde_json::from_str(&replay.line(&runs[0])).unwrap();
    assert_eq!(line["space"], "made");
    assert_eq!(line["trace"].as_array().unwrap().len(), 3);
    assert!(replay.run(&AtomicBool::new(true), &|| ()).unwrap().is_empty());
}
