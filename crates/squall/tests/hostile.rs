//! Tests of degenerate and malformed search spaces and recordings (one configuration, only
//! failures, times that are no numbers, a million values), and of how fast large real ones open.

use squall::replay::{RecordedSpace, Replay, budgets, score};
use squall_core::space::{Knob, Names, Role, Term};
use squall_core::{Outcome, Space};
use squall_frontend::recording::{read, read_space};
use squall_search::{StrategyInfo, strategies};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn all() -> Vec<&'static StrategyInfo> {
    strategies().iter().collect()
}

fn cache(values: &str, entries: &str) -> Vec<u8> {
    format!(r#"{{"tune_params": {{"a": [{values}], "b": [7]}}, "cache": {{{entries}}}}}"#)
        .into_bytes()
}

#[test]
fn a_space_of_one_ends_every_search_after_one_trial() {
    let spaces =
        [RecordedSpace::new("one", read("one", &cache("4", r#""4,7": {"time": 2.5}"#)).unwrap())];
    let strategies = all();
    let replay = Replay {
        spaces: &spaces,
        strategies: &strategies,
        seeds: 2,
        evaluations: 50,
        seconds: None,
        threads: 1,
    };
    let runs = replay.run(&AtomicBool::new(false), &|| ()).unwrap();
    assert_eq!(runs.len(), 2 * strategies.len());
    for r in &runs {
        assert_eq!(r.trace, [0], "{}", strategies[r.strategy].name);
    }
    // Chance finds it too: nothing can be better than that.
    let s = score(&spaces[0], &runs.iter().take(2).collect::<Vec<_>>(), &budgets(50));
    assert_eq!((s.value, s.score, s.median), (vec![1.0, 1.0], vec![0.0, 0.0], vec![1.0, 1.0]));
}

#[test]
fn a_space_where_all_fails_is_searched_to_its_end_and_scored_zero() {
    let entries =
        [1, 2, 3].map(|a| format!(r#""{a},7": {{"time": "RuntimeFailedConfig"}}"#)).join(",");
    let r = read("none", &cache("1, 2, 3", &entries)).unwrap();
    assert!(
        r.optimum().is_none() && r.rows.iter().all(|r| matches!(r.outcome, Outcome::Failed { .. }))
    );
    let spaces = [RecordedSpace::new("none", r)];
    let strategies = all();
    let replay = Replay {
        spaces: &spaces,
        strategies: &strategies,
        seeds: 1,
        evaluations: 50,
        seconds: None,
        threads: 1,
    };
    for r in replay.run(&AtomicBool::new(false), &|| ()).unwrap() {
        assert_eq!(r.trace.len(), 3, "{}", strategies[r.strategy].name);
        assert_eq!(score(&spaces[0], &[&r], &[50]).score, [0.0]);
    }
    // From the command line there is nothing to look for.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("none.json");
    std::fs::write(&file, cache("1, 2, 3", &entries)).unwrap();
    let e = RecordedSpace::open(&file).err().unwrap();
    assert!(e.to_string().contains("nothing in it ran"), "{e}");
}

#[test]
fn times_that_are_no_numbers_are_failures() {
    let entries = r#""1,7": {"time": NaN}, "2,7": {"time": -Infinity}, "3,7": {"time": -1},
        "4,7": {"time": 0}, "5,7": {"time": 1e999}, "6,7": {"time": 3}"#;
    match read("odd", &cache("1, 2, 3, 4, 5, 6", entries)) {
        Ok(r) => {
            let ran: Vec<bool> = r.rows.iter().map(|r| r.outcome.time().is_some()).collect();
            assert_eq!(ran, [false, false, false, false, false, true]);
        }
        // A number that no double holds may also be no JSON.
        Err(e) => assert!(e.to_string().contains("number out of range"), "{e}"),
    }
}

#[test]
fn a_million_values_end_in_a_message() {
    let t1 = r#"{"ConfigurationSpace":
        {"TuningParameters": [{"Name": "a", "Values": "range(0, 1000000)"}]}}"#;
    let e = read_space("t1.json", t1.as_bytes()).unwrap_err().to_string();
    assert!(e.starts_with("t1.json: ") && (e.contains("65535") || e.contains("values")), "{e}");
    let values = (0..1_000_000).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let e = read("cache.json", &cache(&values, r#""4,7": {"time": 2.5}"#)).unwrap_err().to_string();
    assert_eq!(e, "cache.json: knob `a` has 1000000 values; 65535 are the most; mend the file");
}

/// 10^12 raw combinations, 10^6 legal ones: four knobs of a thousand values, two of them tied to
/// the others.
#[test]
fn a_huge_product_is_counted_exactly_and_soon() {
    let knobs: Vec<Knob> =
        (0..4).map(|k| Knob::ints(format!("k{k}"), Role::Choice, 0..1000)).collect();
    let names = Names { knobs: &knobs, constants: &[] };
    let parse = |t: &str| Term::parse(t, names).unwrap();
    let constraints = ["k2 == (k0 + k1) % 1000", "k3 == (3 * k2 + 7) % 1000"].map(parse);
    let began = Instant::now();
    let s = Space::new(knobs.clone(), &constraints).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    println!("{} legal of {:e} in {seconds:.2} s", s.len(), s.raw_size());
    assert_eq!((s.raw_size(), s.len()), (1e12, 1_000_000));
    // Two seconds are asked of optimised code on a machine that does nothing else.
    let allowed = if cfg!(debug_assertions) { 20.0 } else { 2.0 };
    assert!(seconds < allowed, "{seconds} s");
}

/// Every measured space opens at once, from its constraints where they are known.
#[test]
fn real_spaces_open_at_once() {
    let Some(folder) = squall_testing::shared("replay/t1") else { return };
    for file in ["convolution", "convolution_bo", "dedispersion", "pnpoly"] {
        let bytes = std::fs::read(folder.join(format!("{file}.json"))).unwrap();
        let began = Instant::now();
        let s = read_space(file, &bytes).unwrap();
        let seconds = began.elapsed().as_secs_f64();
        println!("{file}: {} configurations in {:.1} ms", s.len(), 1e3 * seconds);
        let allowed = if cfg!(debug_assertions) { 2.0 } else { 0.2 };
        assert!(seconds < allowed, "{file}: {seconds} s");
    }
}
