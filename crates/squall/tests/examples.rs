//! Test of the default search strategy's quality: on the spaces of `examples/kernels/`, every
//! configuration of which was measured (`cargo xtask bench examples --exhaustive`), fifty trials
//! must reach 95 % of the optimum in the median of 20 seeds.

use squall::replay::{RecordedSpace, Replay, score};
use squall_search::strategies;
use std::path::Path;
use std::sync::atomic::AtomicBool;

#[test]
fn fifty_trials_reach_95_percent_of_the_optimum_in_the_median_of_20_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/recordings");
    let spaces: Vec<RecordedSpace> = ["matmul", "stencil", "histogram"]
        .iter()
        .map(|n| RecordedSpace::open(&folder.join(format!("{n}.json.gz"))).unwrap())
        .collect();
    let strategies = vec![&strategies()[0]];
    let replay = Replay {
        spaces: &spaces,
        strategies: &strategies,
        seeds: 20,
        evaluations: 50,
        seconds: None,
        threads: 2,
    };
    let runs = replay.run(&AtomicBool::new(false), &|| ()).unwrap();
    for (c, space) in spaces.iter().enumerate() {
        // Fifty trials are a part of the space only.
        assert!(space.recording.rows.len() > 150, "{}", space.name);
        let mine: Vec<_> = runs.iter().filter(|r| r.space == c).collect();
        let s = score(space, &mine, &[50]);
        println!(
            "{}: {} configurations, median {:.4}, mean {:.4}",
            space.name,
            space.recording.rows.len(),
            s.median[0],
            s.value[0]
        );
        assert!(s.median[0] >= 0.95, "{}: {:?}", space.name, s);
    }
}
