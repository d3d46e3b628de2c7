//! Test of `squall bench search`, which compares search strategies, on a kernel that builds
//! quickly: a second comparison takes all times from the store.

use crate::support;

use support::{Place, SMALL};

#[test]
fn strategies_are_compared_and_the_second_time_nothing_is_measured() {
    if squall_testing::is_left_to_full(
        "search::strategies_are_compared_and_the_second_time_nothing_is_measured",
    ) {
        return;
    }
    let p = Place::new();
    let args = [
        "bench",
        "search",
        SMALL,
        "--trials",
        "12,6",
        "--seeds",
        "2",
        "--strategies",
        "random,evolution,random",
        "--json",
    ];
    let ran = p.squall(&args).ok();
    let first = ran.json();
    let runs = first["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2 * 2 * 2, "{first}");
    for r in runs {
        let (made, measured) = (r["trials"].as_u64().unwrap(), r["measured"].as_u64().unwrap());
        assert!(made == r["budget"].as_u64().unwrap() && measured <= made, "{r}");
        let share = r["share"].as_f64().unwrap();
        assert!(share > 0.0 && share <= 1.0, "{r}");
    }
    // The best time known is one that some run found. Shares are of the best time that held when
    // measured again, which need not be the same run's: that one's share is 1.
    let task = &first["tasks"][0];
    assert!(runs.iter().any(|r| r["best_ns"] == task["best_known_ns"]), "{first}");
    assert!(
        runs.iter().any(|r| r["settled_ns"] == task["settled_ns"] && r["share"] == 1.0),
        "{first}"
    );
    // Both budgets of random begin with the same candidates, so the larger one finds the smaller
    // one's in the store.
    assert!(runs.iter().any(|r| r["measured"].as_u64() < r["trials"].as_u64()), "{first}");
    let scores = first["scores"].as_array().unwrap();
    let names: Vec<_> = scores
        .iter()
        .map(|s| (s["strategy"].as_str().unwrap(), s["trials"].as_u64().unwrap()))
        .collect();
    assert_eq!(names, [("random", 6), ("random", 12), ("evolution", 6), ("evolution", 12)]);
    for s in scores {
        let [worst, mean, best] =
            ["worst_seed", "geomean", "best_seed"].map(|k| s[k].as_f64().unwrap());
        assert!(worst <= mean + 1e-9 && mean <= best + 1e-9 && s["kernels"] == 1, "{s}");
    }

    // All outcomes are known now: the same command is the same comparison, without measuring.
    let second = p.squall(&args).ok().json();
    assert!(second["runs"].as_array().unwrap().iter().all(|r| r["measured"] == 0), "{second}");
    let found = |v: &serde_json::Value| {
        v["runs"].as_array().unwrap().iter().map(|r| r["curve"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(found(&first), found(&second));

    let page = std::fs::read_to_string(p.path().join("search.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("evolution") && ran.err.contains("search.html"));
}

#[test]
fn what_cannot_be_compared_is_said() {
    let p = Place::new();
    let err = p.squall(&["bench", "search", SMALL, "--strategies", "sunshine"]).fails().err;
    assert!(err.contains("sunshine") && err.contains("evolution-nomodel"), "{err}");
    p.squall(&["bench", "search", "no-such-file.ops"]).fails();
    // Without a part, `bench` wants a model.
    let none = p.squall(&["bench"]);
    assert!(none.code == Some(2) && none.err.contains("squall bench"), "{}", none.err);
}
