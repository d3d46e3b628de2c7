//! The exact solver (`solvers/whole.rs`) against the formulation of Korch (ASPLOS'24), a binary
//! linear programme, solved by HiGHS where a Python with SciPy is found. In the programme a
//! variable says of each candidate whether it runs; a running candidate must give each output of
//! the model and each value that a running candidate reads. Our least time must lie between HiGHS's
//! bound and the time that HiGHS found.

use crate::net;

use net::models;
use squall_core::graph::ValueId;
use squall_core::{Task, TaskId};
use squall_frontend::onnx;
use squall_graph::Assignment;
use squall_graph::candidate::root;
use squall_graph::candidates::Candidates;
use squall_graph::feed::Feed;
use squall_graph::solvers::{CoverCosting, Unknown, cheapest_cover};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

/// Random times of each model.
const SEEDS: u64 = 1;

/// The seconds that HiGHS has for a programme; `SQUALL_KORCH_SECONDS` may give a larger number.
const LEAST_SECONDS: &str = "2";

/// A time in nanoseconds for each candidate in the model's layout: by its work, up or down by a
/// third, so that now the larger and now the smaller kernels win.
fn times(all: &Candidates, seed: u64) -> HashMap<TaskId, f64> {
    let time = |task: &Task| {
        let w = &task.workload;
        let digest = (task.id.number() ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let share = 0.67 + 0.66 * (digest >> 40) as f64 / (1u64 << 24) as f64;
        (w.flop() as f64 / 50.0 + w.bytes().0 as f64 / 10.0 + 500.0) * share
    };
    all.list.iter().map(|c| Task::new("", c.workload.clone())).map(|t| (t.id, time(&t))).collect()
}

/// The binary programme in the form that `benches/korch.py` reads.
fn programme(all: &Candidates, times: &HashMap<TaskId, f64>) -> String {
    let m = &all.model;
    let mut given: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (i, c) in all.list.iter().enumerate() {
        given.entry(c.outputs[0]).or_default().push(i);
    }
    let mut wanted: BTreeSet<ValueId> = m.outputs.iter().map(|&v| root(m, v)).collect();
    for &n in all.refused.keys().filter(|&&n| !m.nodes[n].folded) {
        wanted.extend(m.nodes[n].inputs.iter().flatten().map(|&v| root(m, v)));
    }
    let read: BTreeSet<ValueId> =
        m.nodes.iter().flat_map(|n| n.inputs.iter().flatten().map(|&v| root(m, v))).collect();
    wanted.extend(given.keys().filter(|v| !read.contains(v)));
    let givers = |v: &ValueId| given[v].iter().map(|i| format!("[{i},1]")).collect::<Vec<_>>();
    let mut rows: Vec<String> = wanted
        .iter()
        .filter(|v| given.contains_key(v))
        .map(|v| format!("[1,[{}]]", givers(v).join(",")))
        .collect();
    for (i, c) in all.list.iter().enumerate() {
        let values = c.feeds.iter().filter_map(|f| match f {
            Feed::Value(v) => Some(root(m, *v)),
            _ => None,
        });
        let values: BTreeSet<ValueId> = values.filter(|v| given.contains_key(v)).collect();
        let row = |v: &ValueId| format!("[0,[{},[{i},-1]]]", givers(v).join(","));
        rows.extend(values.iter().map(row));
    }
    let cost = |c: &squall_graph::FusionCandidate| times[&Task::new("", c.workload.clone()).id];
    let costs: Vec<String> = all.list.iter().map(|c| cost(c).to_string()).collect();
    format!("{{\"costs\":[{}],\"rows\":[{}]}}", costs.join(","), rows.join(","))
}

#[test]
fn the_choice_is_that_of_korchs_binary_programme() {
    let named = std::env::var("SQUALL_PYTHON").ok();
    let has_scipy = |python: &String| {
        let ran = Command::new(python).args(["-c", "import scipy.optimize"]).output();
        ran.is_ok_and(|o| o.status.success())
    };
    let known = ["python3", "/usr/bin/python3"].map(String::from);
    let Some(python) = named.into_iter().chain(known).find(has_scipy) else {
        println!("skipped: no Python with SciPy was found (SQUALL_PYTHON names one)");
        return;
    };
    let (mut ours, mut programmes) = (Vec::new(), Vec::new());
    for (name, bytes) in models() {
        let graph =
            Assignment::of(Arc::new(onnx::read(&bytes, &name, &[]).unwrap()), crate::net::alone)
                .unwrap();
        let all = graph.candidates();
        for seed in 1..=SEEDS {
            let times = times(all, seed);
            let known = |id: TaskId| times.get(&id).copied();
            let costs = CoverCosting::of(&known, Unknown::Avoided);
            let before = Instant::now();
            let least = cheapest_cover(all, &costs).unwrap().time;
            ours.push((format!("{name}, {} candidates", all.list.len()), least, before.elapsed()));
            programmes.push(programme(all, &times));
        }
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("korch.json");
    std::fs::write(&file, format!("[{}]", programmes.join(",\n"))).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/korch.py");
    let seconds = std::env::var("SQUALL_KORCH_SECONDS").unwrap_or(LEAST_SECONDS.into());
    let ran = Command::new(&python).arg(script).arg(&file).arg(seconds).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8(ran.stdout).unwrap();
    let theirs: Vec<f64> = said.split_whitespace().map(|x| x.parse().unwrap()).collect();
    assert_eq!(theirs.len(), 3 * ours.len());
    let mut equal = 0;
    for ((name, least, time), other) in ours.iter().zip(theirs.chunks(3)) {
        let [found, bound, seconds] = [other[0], other[1], other[2]];
        println!(
            "{name}: {least:.0} ns in {:.0} ms; the binary programme {found:.0} ns, at least \
             {bound:.0}, in {:.0} ms",
            time.as_secs_f64() * 1e3,
            seconds * 1e3
        );
        // A solver that ran out of time may have found a worse cover, but no better one, and it
        // may not have shown that there is none as good.
        assert!(*least <= found * (1.0 + 1e-6), "{name}: {least} and {found}");
        assert!(*least >= bound * (1.0 - 1e-6), "{name}: {least}, and no less than {bound}");
        equal += usize::from(found.is_finite() && (least - found).abs() <= 1e-6 * found);
    }
    assert!(2 * equal > ours.len(), "{equal} of {} programmes were solved", ours.len());
}
