//! `cargo xtask bench threads`: how much faster kernels tuned for two threads are than kernels
//! tuned for one. Where the machine's own peak does not scale, as on the two threads of one
//! physical core, no kernel can scale: the command then says so and stops, unless `--anyway` is
//! given. The result goes to `benches/runs/`.

use super::{Bench, WORKLOADS, circumstances, keep, output, read_output, run, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Dense workloads, which arithmetic limits.
const DENSE: [&str; 4] =
    ["resnet18_conv2_3x3", "resnet18_conv4_3x3", "resnet50_conv2_1x1", "matmul_1024"];
const TRIALS: &str = "64";
const ROUNDS: usize = 5;
/// Where the machine's own peak scales by less with two threads, they share a physical core.
const LEAST_SCALING: f64 = 1.8;

/// Measures the peak with one thread and two, then tunes, exports, and times in turns.
pub fn threads(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let anyway = match arguments {
        [] => false,
        ["--anyway"] => true,
        _ => return Err("usage: cargo xtask bench threads [--anyway]".into()),
    };
    let Bench { squall, folder, store } = Bench::open(root, "threads.squall")?;
    let mut peaks = [0f64; 2];
    for _ in 0..3 {
        for (peak, n) in peaks.iter_mut().zip(["1", "2"]) {
            let said = read_output(
                Command::new(&squall)
                    .args(["doctor", "--json", "--threads", n])
                    .current_dir(&folder),
            )?;
            let measured = said["roof"]["peak_gflops"].as_f64();
            *peak = peak.max(
                measured
                    .ok_or_else(|| format!("no peak with {n} threads: {}", said["findings"]))?,
            );
        }
    }
    let scale = peaks[1] / peaks[0];
    println!(
        "peak: {:.0} GFLOP/s with one thread, {:.0} with two: x {scale:.2}",
        peaks[0], peaks[1]
    );
    let skipped = scale < LEAST_SCALING && !anyway;
    let mut kernels = Vec::new();
    if skipped {
        println!(
            "skipped: kernels cannot scale by {LEAST_SCALING} where the machine's own peak \
             scales by {scale:.2}; --anyway measures them"
        );
    } else {
        kernels = measure(root, &squall, &folder, &store)?;
        for k in &kernels {
            let [one, two, ratio] =
                ["one_us", "two_us", "ratio"].map(|key| k[key].as_f64().unwrap_or(f64::NAN));
            println!(
                "{}: {one:.1} us with one thread, {two:.1} with two: x {ratio:.2}",
                text_of(k)
            );
        }
    }
    let result = json!({
        "what": "kernels tuned for one thread and for two, their drivers run in turns, the \
                 fastest of each",
        "command": format!("cargo xtask bench threads {}", arguments.join(" ")).trim(),
        "circumstances": circumstances(root),
        "peak_gflops": peaks,
        "peak_scales_by": scale,
        "skipped": skipped,
        "trials": TRIALS.parse::<u32>().ok(),
        "kernels": kernels,
    });
    let date = text(Command::new("date").arg("+%Y-%m-%d"));
    keep(root, &format!("{date}-threads.json"), &result)
}

fn text_of(kernel: &Value) -> &str {
    kernel["name"].as_str().unwrap_or("?")
}

fn measure(root: &Path, squall: &Path, folder: &Path, store: &Path) -> Result<Vec<Value>, String> {
    let workloads = root.join(WORKLOADS);
    // Times by the kernel's name: of one thread, of two.
    let mut times: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    let mut drivers: Vec<PathBuf> = Vec::new();
    let few = folder.join("dense.ops");
    let all =
        std::fs::read_to_string(&workloads).map_err(|e| format!("{}: {e}", workloads.display()))?;
    let dense =
        |l: &&str| DENSE.iter().any(|d| l.split_once(':').is_some_and(|(name, _)| name == *d));
    std::fs::write(&few, all.lines().filter(dense).map(|l| format!("{l}\n")).collect::<String>())
        .map_err(|e| format!("{}: {e}", few.display()))?;
    for n in ["1", "2"] {
        let out = folder.join(format!("threads-{n}"));
        run(Command::new(squall)
            .arg("tune")
            .arg(&few)
            .args(["--trials", TRIALS, "--threads", n, "--store"])
            .arg(store))?;
        run(Command::new(squall)
            .arg("export")
            .arg(&few)
            .args(["--threads", n, "--build", "--store"])
            .arg(store)
            .arg("--out")
            .arg(&out))?;
        drivers.push(out.join("driver"));
    }
    for _ in 0..ROUNDS {
        for (i, driver) in drivers.iter().enumerate() {
            // `name  right  error 1e-7  123.45 us  67.8 GFLOP/s`
            for line in output(&mut Command::new(driver))?.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let time = words
                    .iter()
                    .position(|w| *w == "us")
                    .and_then(|at| words[at - 1].parse::<f64>().ok());
                let (Some(name), Some(us), true) = (words.first(), time, words.contains(&"right"))
                else {
                    return Err(format!("{}: {line}", driver.display()));
                };
                let best = &mut times.entry(name.to_string()).or_insert([f64::INFINITY; 2])[i];
                *best = best.min(us);
            }
        }
    }
    Ok(times.iter().map(|(name, both)| entry(name, *both)).collect())
}

fn entry(name: &str, [one, two]: [f64; 2]) -> Value {
    let ratio = one / two;
    json!({ "name": name, "one_us": one, "two_us": two, "ratio": ratio })
}
