//! `cargo xtask bench trust`: whether rematches (two kernels measured in turns until a test
//! separates them) can be trusted on this machine. Four pairs of tuned kernels are compared twenty
//! times each, one pair of which is a true tie; the counts go to `benches/runs/`.

use super::{Bench, circumstances, keep, read_output, run, text};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Operator lines and trials. The last is tried once, so that its winner has no runner-up and is
/// compared with itself: a true tie.
const TASKS: [(&str, u32); 4] = [
    (
        "conv2d n=1 c=64 h=28 w=28 k=64 r=3 s=3 stride=1 pad=1 dilation=1 groups=1 \
         epilogue=bias,relu",
        48,
    ),
    ("matmul m=256 n=256 k=256", 48),
    ("layernorm rows=128 cols=768 eps=1e-05", 48),
    ("matmul m=97 n=211 k=130", 1),
];

const ROUNDS: usize = 20;

/// Tunes the four tasks, holds the rematches and counts how they end.
pub fn trust(root: &Path) -> Result<(), String> {
    let Bench { squall, folder, store } = Bench::open(root, "trust.squall")?;
    for (line, trials) in TASKS {
        run(Command::new(&squall)
            .args(["tune", line, "--trials", &trials.to_string(), "--store"])
            .arg(&store)
            .current_dir(&folder))?;
    }
    let verify = ["records", "verify", "--repeat", &ROUNDS.to_string(), "--json", "--store"];
    // The exit code says that a winner was overtaken; what that means is looked at below.
    let seen = read_output(Command::new(&squall).args(verify).arg(&store))?;
    let tasks = seen["tasks"].as_array().cloned().unwrap_or_default();
    let rounds = |t: &Value| t["rounds"].as_array().map_or(0, Vec::len);
    let itself = tasks.iter().filter(|t| t["runner_up"].is_null()).count();
    if tasks.len() != TASKS.len()
        || itself == 0
        || itself == tasks.len()
        || tasks.iter().any(|t| rounds(t) != ROUNDS)
    {
        return Err(format!(
            "these are not four pairs with a true tie among them, {ROUNDS} rematches each: {seen}"
        ));
    }
    let count = |verdict: &str| {
        let all = tasks.iter().filter_map(|t| t["rounds"].as_array()).flatten();
        all.filter(|r| r["verdict"] == verdict).count()
    };
    let contradicted = tasks.iter().filter(|t| t["contradicted"] == true).count();
    let regretted: u64 = tasks.iter().filter_map(|t| t["regretted"].as_u64()).sum();
    let trusted = contradicted == 0 && regretted == 0;
    let result = json!({
        "what": "four pairs of stored candidates, one of them a candidate and itself, in twenty \
                 rematches each; every look of each in fresh processes",
        "command": "cargo xtask bench trust",
        "circumstances": circumstances(root),
        "run_offs": tasks.iter().map(rounds).sum::<usize>(),
        "verdicts": { "faster": count("faster"), "tie": count("tie"), "slower": count("slower") },
        "pairs_contradicted": contradicted,
        "accepted_but_slower_when_measured_again": regretted,
        "trusted": trusted,
        "verification": seen,
    });
    println!(
        "{} rematches, {contradicted} pairs contradicted themselves, {regretted} winners were \
         slower when measured again",
        result["run_offs"]
    );
    let date = text(Command::new("date").arg("+%Y-%m-%d"));
    keep(root, &format!("{date}-trust.json"), &result)?;
    if trusted { Ok(()) } else { Err("rematches cannot be trusted on this machine".into()) }
}
