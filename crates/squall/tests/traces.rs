//! Test that a search is reproducible: with the same seed and the same outcomes each strategy must
//! try the same candidates as when this test was written. Outcomes come from a made-up recording.

use squall::replay::{RecordedSpace, Replay};
use squall_frontend::recording::read;
use squall_search::{StrategyInfo, strategies};
use std::sync::atomic::AtomicBool;

/// 120 configurations of three knobs with one valley and a second, shallower one; every seventeenth
/// of them failed.
fn space() -> RecordedSpace {
    let mut entries = Vec::new();
    for i in 0..120_i64 {
        let (a, b, c) = (i / 20, i / 4 % 5, i % 4);
        let deep = (a - 4).pow(2) * 3 + (b - 1).pow(2) * 5 + (c - 2).pow(2) * 7;
        let shallow = 9 + (a - 1).pow(2) * 4 + (b - 3).pow(2) * 6 + c * 5;
        let time = if i % 17 == 5 {
            "\"RuntimeFailedConfig\"".into()
        } else {
            format!("{}.5", 10 + deep.min(shallow))
        };
        entries.push(format!(r#""{a},{b},{c}": {{"time": {time}, "compile_time": 500}}"#));
    }
    let text = format!(
        r#"{{"tune_params": {{"a": [0,1,2,3,4,5], "b": [0,1,2,3,4], "c": [0,1,2,3]}},
            "cache": {{{}}}}}"#,
        entries.join(",")
    );
    RecordedSpace::new("made", read("made", text.as_bytes()).unwrap())
}

/// Strategy, seed, ranks of the configurations in the order tried.
const TRACES: &[(&str, u64, [u32; 40])] = &[
    (
        "evolution+droplet",
        0,
        [
            38, 101, 4, 91, 76, 42, 7, 69, 90, 89, 110, 114, 108, 70, 10, 86, 66, 106, 85, 82, 98,
            26, 84, 46, 63, 87, 74, 107, 102, 62, 65, 2, 51, 117, 94, 105, 21, 67, 83, 103,
        ],
    ),
    (
        "evolution+droplet",
        1,
        [
            97, 11, 20, 107, 108, 54, 43, 16, 59, 12, 13, 72, 4, 15, 52, 112, 48, 53, 32, 33, 36,
            34, 28, 92, 35, 45, 29, 24, 69, 77, 49, 70, 66, 67, 62, 86, 106, 6, 82, 87,
        ],
    ),
    (
        "droplet",
        0,
        [
            43, 13, 4, 46, 85, 89, 105, 81, 65, 84, 86, 87, 90, 82, 106, 66, 102, 107, 110, 70, 62,
            67, 83, 91, 94, 92, 44, 54, 98, 26, 38, 6, 1, 28, 76, 60, 25, 17, 47, 7,
        ],
    ),
    (
        "droplet",
        1,
        [
            12, 47, 22, 77, 108, 32, 52, 33, 28, 36, 8, 13, 56, 37, 53, 16, 48, 29, 34, 72, 24, 26,
            64, 74, 20, 92, 35, 80, 23, 95, 112, 101, 50, 107, 42, 38, 85, 30, 60, 19,
        ],
    ),
];

#[test]
fn strategies_try_what_they_always_tried() {
    let spaces = [space()];
    let strategies: Vec<&'static StrategyInfo> = strategies()
        .iter()
        .filter(|s| ["evolution+droplet", "droplet"].contains(&s.name))
        .collect();
    let replay = Replay {
        spaces: &spaces,
        strategies: &strategies,
        seeds: 2,
        evaluations: 40,
        seconds: None,
        threads: 1,
    };
    let runs = replay.run(&AtomicBool::new(false), &|| ()).unwrap();
    let tried: Vec<(&str, u64, &[u32])> =
        runs.iter().map(|r| (strategies[r.strategy].name, r.seed, r.trace.as_slice())).collect();
    let expected: Vec<(&str, u64, &[u32])> =
        TRACES.iter().map(|(name, seed, trace)| (*name, *seed, trace.as_slice())).collect();
    assert_eq!(tried, expected);
}
