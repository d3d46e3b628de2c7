//! Makes the documents' tables of measurements on an NVIDIA H200 beside PyTorch for
//! `cargo xtask tables`: kernels at batch 1 and 16, and whole networks. Input: JSON files of
//! `benches/runs/`; output: Markdown. `report.rs` lists the tables by name.

use super::run::{RunValue, Runs};
use super::table::{Against, Table, bold, geometric_mean, ratio, three_digits};

const TMA: &str = "2026-11-22-h200-boxes.json";
const TF32: &str = "2026-11-22-h200-tf32-pieces.json";
const WINOGRAD: &str = "2026-11-22-h200-winograd.json";
const BROUGHT: &str = "2026-11-22-h200-tf32.json";

/// Microseconds of PyTorch (the lowest of its readings) and of Squall.
struct Times {
    theirs: f64,
    ours: f64,
}

impl Times {
    fn of(row: &RunValue<'_>) -> Result<Times, String> {
        Ok(Times { theirs: row.least("pytorch_us")?, ours: row.number("squall_us")? })
    }

    fn quotient(&self) -> f64 {
        self.theirs / self.ours
    }
}

/// Kernels at batch 1: ResNet-18's eleven convolutions in 32-bit floats and in tf32, then others in
/// 32-bit floats.
pub fn batch_1(runs: &Runs) -> Result<String, String> {
    let (fp32, tf32) = (runs.open(TMA)?, runs.open(TF32)?);
    let exact = fp32.part().get("fp32_batch_1")?.list("rows")?;
    let stages = tf32.part().list("runs")?;
    let last = stages.last().ok_or_else(|| format!("{TF32}: no runs"))?;
    let head = ["kernel", "PyTorch, fp32", "Squall", "ratio", "PyTorch, tf32", "Squall", "ratio"];
    let mut table = Table::new(head, &[TMA, TF32, WINOGRAD, BROUGHT]);
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for (a, b) in exact.iter().zip(last.list("rows")?) {
        let name = a.text("name")?;
        if b.text("name")? != name {
            return Err(format!("{TMA} and {TF32} have layers in different orders at {name}"));
        }
        let both = [Times::of(a)?, Times::of(&b)?];
        for (all, times) in ratios.iter_mut().zip(&both) {
            all.push(times.quotient());
        }
        let [x, y] = both.map(compared);
        table.row(row(format!("`{name}`"), x, y));
    }
    table.row(row("geometric mean".into(), mean(&ratios[0]), mean(&ratios[1])));
    for (name, times) in others(runs)? {
        table.row(row(format!("`{name}`"), compared(times), Default::default()));
    }
    Ok(table.markdown_in_two())
}

fn row(name: String, [a, b, c]: [String; 3], [d, e, f]: [String; 3]) -> [String; 7] {
    [name, a, b, c, d, e, f]
}

fn mean(ratios: &[f64]) -> [String; 3] {
    [String::new(), String::new(), bold(ratio(geometric_mean(ratios)))]
}

fn compared(times: Times) -> [String; 3] {
    [three_digits(times.theirs), three_digits(times.ours), bold(ratio(times.quotient()))]
}

/// Other operators in 32-bit floats at batch 1.
fn others(runs: &Runs) -> Result<Vec<(String, Times)>, String> {
    let (file, later) = (runs.open(WINOGRAD)?, runs.open(BROUGHT)?);
    // This product was tuned again with later code, beside PyTorch in that call.
    const AGAIN: &str = "matmul_128x768x3072";
    let mut out = Vec::new();
    for run in file.part().list("runs")? {
        if !run.text("run")?.contains("the rest") && !run.text("run")?.contains("depthwise") {
            continue;
        }
        for row in run.list("rows")? {
            let name = row.text("name")?;
            let times = if name == AGAIN {
                let again = later.part().list("runs")?;
                let found = again.iter().find(|r| r.text("run").is_ok_and(|t| t.starts_with(name)));
                Times::of(found.ok_or_else(|| format!("{BROUGHT}: no run of {name}"))?)?
            } else {
                Times::of(&row)?
            };
            out.push((name.to_string(), times));
        }
    }
    Ok(out)
}

/// Batch 16: 32-bit floats without tf32, and bf16 where it was measured.
pub fn batch_16(runs: &Runs) -> Result<String, String> {
    let file = "2026-11-22-h200-batch16.json";
    let (fp32, bf16) = (runs.open(file)?, runs.open(TMA)?);
    let head = ["layer", "PyTorch, fp32", "Squall", "ratio", "PyTorch, bf16", "Squall", "ratio"];
    let mut table = Table::new(head, &[file, TMA]);
    let halves = bf16.part().get("b16")?.list("rows")?;
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for single in fp32.part().list("rows")? {
        let name = single.text("name")?;
        let half = halves.iter().find(|h| h.text("name").is_ok_and(|n| n == name));
        let mut cells: [[String; 3]; 2] = Default::default();
        for (i, measured) in [Some(&single), half].into_iter().enumerate() {
            if let Some(measured) = measured {
                let times = Times::of(measured)?;
                ratios[i].push(times.quotient());
                cells[i] = compared(times);
            }
        }
        let [a, b] = cells;
        table.row(row(format!("`{}`", name.trim_start_matches("b16_")), a, b));
    }
    table.row(row("geometric mean".into(), mean(&ratios[0]), mean(&ratios[1])));
    Ok(table.markdown_in_two())
}

pub const DAY_1: &str = "2026-11-23-h200-networks.json";
pub const DAY_2: &str = "2026-11-24-h200-networks.json";
/// The rows of whole networks: file, run in it, seconds of tuning, network, its name, format.
const NETWORKS: &[(&str, &str, u32, &str, &str, &str)] = &[
    (DAY_1, "tuned.json", 110, "resnet18", "ResNet-18", "fp32"),
    (DAY_2, "small.json", 75, "mobilenet_v2", "MobileNetV2", "fp32"),
    (DAY_1, "tuned.json", 110, "squeezenet1_1", "SqueezeNet 1.1", "fp32"),
    (DAY_1, "tuned2.json", 110, "resnet50", "ResNet-50", "fp32"),
    (DAY_1, "tuned2.json", 110, "densenet121", "DenseNet-121", "fp32"),
    (DAY_2, "vit.json", 105, "vit_b_16", "ViT-B/16", "fp32"),
    (DAY_2, "batch16.json", 100, "resnet50", "ResNet-50, batch 16", "fp32"),
    (DAY_2, "bf16.json", 70, "resnet50", "ResNet-50", "bf16"),
    (DAY_2, "vit.json", 105, "vit_b_16", "ViT-B/16", "bf16"),
];

/// Whole networks: device time of a replayed graph, PyTorch's the least of its captured layouts and
/// of what torch.compile made, in the same call.
pub fn networks(runs: &Runs) -> Result<String, String> {
    let head = ["network", "tuned", "Squall", "PyTorch", "ratio"];
    let mut table = Table::new(head, &[DAY_1, DAY_2]);
    for &(file, run, seconds, network, name, format) in NETWORKS {
        let [ours, theirs] = microseconds(runs, file, run, network, format)?;
        let [squall, pytorch] = [ours, theirs].map(three_digits);
        let quotient = bold(ratio(theirs / ours));
        table.row([format!("{name}, {format}"), format!("{seconds} s"), squall, pytorch, quotient]);
    }
    Ok(table.markdown_in_two())
}

/// Our time and PyTorch's of a row.
fn microseconds(
    runs: &Runs,
    file: &str,
    run: &str,
    network: &str,
    format: &str,
) -> Result<[f64; 2], String> {
    let file = runs.open(file)?;
    let measured = file.part().get("runs")?.get(run)?.get("run")?.get("networks")?;
    let measured = measured.get(network)?;
    let ours = if format == "fp32" { "squall_f32" } else { "squall_bf16" };
    let ours = measured.get(ours)?.number("device_us")?;
    let is_theirs =
        |k: &str| k.starts_with(&format!("torch_{format}_")) && k.ends_with("_graph_us");
    let all = measured.entries()?;
    let all = all.iter().filter(|(k, _)| is_theirs(k)).map(|(_, v)| v.as_number());
    let all = all.collect::<Result<Vec<f64>, String>>()?;
    let theirs = all.into_iter().reduce(f64::min);
    Ok([ours, theirs.ok_or_else(|| format!("{run}: {network}: no time of PyTorch"))?])
}

/// The networks of one image in 32-bit floats, each beside PyTorch.
pub fn against(runs: &Runs) -> Result<Vec<(&'static str, Against)>, String> {
    let is_one = |n: &&(_, _, _, _, &str, &str)| n.5 == "fp32" && !n.4.contains("batch");
    let of = |&(file, run, _, network, name, format): &'static (_, _, u32, _, &'static str, _)| {
        let [ours, theirs] = microseconds(runs, file, run, network, format)?;
        Ok((name, Against { ours_ms: ours / 1e3, ratio: theirs / ours }))
    };
    NETWORKS.iter().filter(is_one).map(of).collect()
}
