//! The default strategy on the spaces of `examples/kernels/`, each of which was measured as a whole
//! (`cargo xtask bench examples --exhaustive`).

use squall::replay::{Course, Replay, score};
use squall::search::strategies;
use std::path::Path;
use std::sync::atomic::AtomicBool;

#[test]
fn fifty_trials_reach_95_percent_of_the_optimum_in_the_median_of_20_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/recordings");
    let courses: Vec<Course> = ["matmul", "stencil", "histogram"]
        .iter()
        .map(|n| Course::open(&folder.join(format!("{n}.json.gz"))).unwrap())
        .collect();
    let strategies = vec![&strategies()[0]];
    let replay = Replay {
        courses: &courses,
        strategies: &strategies,
        seeds: 20,
        evaluations: 50,
        seconds: None,
        threads: 2,
    };
    let runs = replay.run(&AtomicBool::new(false), &|| ());
    for (c, course) in courses.iter().enumerate() {
        // Fifty trials are a part of the space only.
        assert!(course.recording.rows.len() > 150, "{}", course.name);
        let mine: Vec<_> = runs.iter().filter(|r| r.course == c).collect();
        let s = score(course, &mine, &[50]);
        println!(
            "{}: {} configurations, median {:.4}, mean {:.4}",
            course.name,
            course.recording.rows.len(),
            s.median[0],
            s.value[0]
        );
        assert!(s.median[0] >= 0.95, "{}: {:?}", course.name, s);
    }
}
