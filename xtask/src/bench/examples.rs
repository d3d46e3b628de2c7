//! `cargo xtask bench examples`: how much tuning gains on the users' kernels of
//! `examples/kernels/`, and how soon.
//!
//! Each is tuned with 50 trials and then timed beside its untuned defaults and the compiler's -O3
//! of the plain loop, by one measurer. With `--exhaustive`, the space of one task of each is
//! measured as a whole and kept in `benches/recordings/`; 20 searches of 50 trials on each
//! recording say how close to its optimum they come.

use super::{Bench, circumstances, keep, output, run, text};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The examples, and the task of each whose space is measured as a whole.
const EXAMPLES: [(&str, &str); 3] =
    [("matmul", "matmul_256"), ("stencil", "stencil_small"), ("histogram", "histogram_*")];
const TRIALS: &str = "50";
const SEEDS: &str = "20";
const ROUNDS: &str = "7";

/// Tunes the examples, times them beside the plain loops, and replays searches on the recordings.
pub fn examples(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (exhaustive, only) = match arguments {
        [] => (false, None),
        ["--exhaustive"] => (true, None),
        ["--exhaustive", one] => (true, Some(*one)),
        _ => return Err("usage: cargo xtask bench examples [--exhaustive [EXAMPLE]]".into()),
    };
    if exhaustive {
        return record(root, only);
    }
    let Bench { squall, folder, store } = Bench::open(root, "examples.squall")?;
    run(Command::new("cargo").current_dir(root).args([
        "build",
        "--release",
        "--locked",
        "-p",
        "squall",
        "--example",
        "beside",
    ]))?;
    let files: Vec<_> = EXAMPLES
        .iter()
        .map(|e| root.join("examples/kernels").join(e.0).join("kernel.toml"))
        .collect();
    for f in &files {
        run(Command::new(&squall)
            .arg("tune")
            .arg(f)
            .args(["--trials", TRIALS, "--store"])
            .arg(&store)
            .current_dir(&folder))?;
    }
    let lines = output(
        Command::new(root.join("target/release/examples/beside"))
            .arg(&store)
            .arg(ROUNDS)
            .args(&files),
    )?;
    let times: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())?;
    let found = replayed(root, &squall, &folder)?;
    show(&times, &found);
    let result = json!({
        "what": "examples/kernels: tuned, at the defaults, and the plain loop by the compiler \
                 alone, in turns in one laboratory",
        "command": "cargo xtask bench examples",
        "circumstances": circumstances(root),
        "times": times,
        "replayed": found.iter().map(Replayed::entry).collect::<Vec<_>>(),
    });
    let date = text(Command::new("date").arg("+%Y-%m-%d-%H%M"));
    keep(root, &format!("{date}-examples.json"), &result)
}

/// What searches on a recording came to.
struct Replayed {
    space: String,
    /// How many it holds.
    configurations: u64,
    /// The median share of the optimum.
    median: f64,
}

impl Replayed {
    fn entry(&self) -> Value {
        json!({
            "space": self.space,
            "configurations": self.configurations,
            "median_optimum_over_best": self.median,
        })
    }
}

/// Prints the times, and how close searches on the recordings came to the optimum.
fn show(times: &[Value], found: &[Replayed]) {
    for t in times {
        let us = |key: &str| t[key].as_f64().map_or(f64::INFINITY, |ns| ns / 1e3);
        println!(
            "{}: {:.1} us at the knobs' defaults, {:.1} by -O3, {:.1} by -O3 -march=native, {:.1} \
             tuned",
            t["task"].as_str().unwrap_or("?"),
            us("defaults_ns"),
            us("o3_ns"),
            us("o3_native_ns"),
            us("tuned_ns")
        );
    }
    for Replayed { space, configurations, median } in found {
        println!(
            "{space}: {configurations} configurations; the median of {SEEDS} searches reaches \
             {:.1} % of the optimum in {TRIALS} trials",
            100.0 * median
        );
    }
}

/// Measures whole spaces, one after another.
fn record(root: &Path, only: Option<&str>) -> Result<(), String> {
    let recordings = root.join("benches/recordings");
    std::fs::create_dir_all(&recordings).map_err(|e| format!("{}: {e}", recordings.display()))?;
    for (example, task) in EXAMPLES.iter().filter(|e| only.is_none_or(|o| o == e.0)) {
        let Bench { squall, folder, store } = Bench::open(root, &format!("{example}.squall"))?;
        let file = root.join("examples/kernels").join(example).join("kernel.toml");
        let tune = ["--strategy", "exhaustive", "--trials", "100000", "--only", task, "--store"];
        run(Command::new(&squall)
            .arg("tune")
            .arg(file)
            .args(tune)
            .arg(&store)
            .current_dir(&folder))?;
        let to = recordings.join(format!("{example}.json.gz"));
        let export = ["records", "export", "--format", "kernel-tuner", "--name", task, "--store"];
        run(Command::new(&squall).args(export).arg(&store).arg("--output").arg(to))?;
    }
    Ok(())
}

/// Searches on each recording.
fn replayed(root: &Path, squall: &Path, folder: &Path) -> Result<Vec<Replayed>, String> {
    let files: Vec<_> = EXAMPLES
        .iter()
        .map(|e| root.join("benches/recordings").join(format!("{}.json.gz", e.0)))
        .collect();
    if let Some(f) = files.iter().find(|f| !f.exists()) {
        return Err(format!(
            "{} is not there: cargo xtask bench examples --exhaustive",
            f.display()
        ));
    }
    let replay = ["replay", "--seeds", SEEDS, "--evaluations", TRIALS, "--json"];
    let said = output(Command::new(squall).args(replay).args(&files).current_dir(folder))?;
    let report: Value = serde_json::from_str(said.trim()).map_err(|e| format!("{said}: {e}"))?;
    let spaces = report["spaces"].as_object().ok_or("the replay reports no spaces")?;
    let one = |(name, s): (&String, &Value)| {
        let median = s["median"].as_array().and_then(|m| m.last()).and_then(Value::as_f64);
        let configurations = s["configurations"].as_u64()?;
        Some(Replayed { space: name.clone(), configurations, median: median? })
    };
    spaces.iter().map(one).collect::<Option<_>>().ok_or_else(|| format!("no medians in {report}"))
}
