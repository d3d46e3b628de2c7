//! Makes the documents' tables of measurements on CPUs for `cargo xtask tables`: kernels and
//! networks beside other libraries, threads, rematches, examples. Input: JSON files of
//! `benches/runs/`; output: Markdown. `report.rs` lists the tables by name.

use super::run::{RunValue, Runs};
use super::table::{Against, Table, bold, geometric_mean, milliseconds, minutes, percent, ratio};

/// The kernels of a run of the referee: ours, and the others' times in its own process.
const OURS: &str = "so:squall";
/// oneDNN in layouts of its own, whose conversions the referee does not time: what it costs inside
/// of a network.
const OWN_LAYOUTS: &str = "onednn_any";

/// A kernel beside the libraries, times in milliseconds.
struct Compared {
    name: String,
    ms: f64,
    of_peak: f64,
    plain: (f64, &'static str),
    any: f64,
}

fn machine(circumstances: &RunValue<'_>) -> Result<&'static str, String> {
    match circumstances.text("cpu")? {
        c if c.contains("AMD EPYC") => Ok("Zen 4"),
        c if c.contains("Rapids") => Ok("Emerald or Sapphire Rapids"),
        c if c.contains("Xeon") => Ok("Cascade Lake"),
        c => Err(format!("no name for the machine `{c}`")),
    }
}

fn library(name: &str) -> Option<&'static str> {
    Some(match name {
        "ort" => "onnxruntime",
        "ort_nolayout" => "onnxruntime, plain",
        "onednn_nchw" => "oneDNN",
        OWN_LAYOUTS => "oneDNN, its layouts",
        "openvino" => "OpenVINO",
        "openblas" => "OpenBLAS",
        _ => return None,
    })
}

fn compared(run: &RunValue<'_>) -> Result<Vec<Compared>, String> {
    let mut out = Vec::new();
    for (name, kernel) in run.get("referee")?.get("results")?.entries()? {
        let ours = kernel.get(OURS)?;
        let peak = kernel.get("peak")?.number("gflops")?;
        let (mut plain, mut any) = ((f64::MAX, ""), f64::MAX);
        for (label, other) in kernel.entries()? {
            let (Some(who), Some(_)) = (library(label), other.optional("min_ms")) else { continue };
            let ms = other.number("min_ms")?;
            if label != OWN_LAYOUTS && ms < plain.0 {
                plain = (ms, who);
            }
            any = any.min(ms);
        }
        if plain.1.is_empty() {
            return Err(format!("{name}: no library's time"));
        }
        let (ms, of_peak) = (ours.number("min_ms")?, ours.number("gflops")? / peak);
        out.push(Compared { name: name.to_string(), ms, of_peak, plain, any });
    }
    Ok(out)
}

/// How good the kernels of a budget are, in the mean and at worst.
pub fn budgets(runs: &Runs) -> Result<String, String> {
    let files = [
        "2026-11-22-1203-cpu-64.json",
        "2026-11-22-0650-cpu-300.json",
        "2026-11-22-1442-cpu-1000.json",
        "2026-11-21-2054-cpu-300.json",
        "2026-11-28-1640-cpu-300-xeon.json",
    ];
    let mut table = Table::new(
        ["machine", "trials each", "over the best library", "worst kernel", "over its own layouts"],
        &files,
    );
    for file in files {
        let run = runs.open(file)?;
        let part = run.part();
        let kernels = compared(&part)?;
        let worst = kernels.iter().min_by(|a, b| speedup(a).total_cmp(&speedup(b)));
        let worst = worst.ok_or_else(|| format!("{file}: no kernels"))?;
        let any: Vec<f64> = kernels.iter().map(|k| k.any / k.ms).collect();
        let plain: Vec<f64> = kernels.iter().map(speedup).collect();
        table.row([
            machine(&part.get("circumstances")?)?.into(),
            format!("{:.0}", part.number("trials")?),
            bold(ratio(geometric_mean(&plain))),
            format!("{} (`{}`)", ratio(speedup(worst)), worst.name),
            ratio(geometric_mean(&any)),
        ]);
    }
    Ok(table.markdown())
}

fn speedup(k: &Compared) -> f64 {
    k.plain.0 / k.ms
}

/// The 21 kernels after 1,000 trials each, one by one.
pub fn kernels(runs: &Runs) -> Result<String, String> {
    let file = "2026-11-22-1442-cpu-1000.json";
    let run = runs.open(file)?;
    let mut table =
        Table::new(["kernel", "Squall", "of the peak", "over plain", "over own layouts"], &[file]);
    for k in compared(&run.part())? {
        table.row([
            format!("`{}`", k.name),
            milliseconds(k.ms),
            percent(k.of_peak),
            format!("{} ({})", bold(ratio(speedup(&k))), k.plain.1),
            ratio(k.any / k.ms),
        ]);
    }
    Ok(table.markdown_in_two())
}

pub const ZEN_4: &str = "2026-11-22-networks-zen4.json";
pub const CASCADE_LAKE: &str = "2026-11-22-networks-channels-last.json";

/// A network beside the better of two libraries: trials and time of tuning, times, ratio.
struct Network {
    name: &'static str,
    cells: [String; 4],
    against: Against,
}

impl Network {
    fn read(row: &RunValue<'_>) -> Result<Network, String> {
        let name = match row.text("network")? {
            "resnet18" => "ResNet-18",
            "resnet50" => "ResNet-50",
            "mobilenet_v2" => "MobileNetV2",
            "squeezenet1_1" => "SqueezeNet 1.1",
            "vit_b_16" => "ViT-B/16",
            n => return Err(format!("no name for the network `{n}`")),
        };
        let libraries = [("onnxruntime", "onnxruntime_ms"), ("OpenVINO", "openvino_ms")];
        let mut best = (f64::MAX, "");
        for (library, key) in libraries {
            let ms = row.number(key)?;
            if ms < best.0 {
                best = (ms, library);
            }
        }
        let ours = row.number("squall_ms")?;
        let tuned = format!("{}, {:.0}", minutes(row.number("tune_s")?), row.number("trials")?);
        let theirs = format!("{} ({})", milliseconds(best.0), best.1);
        let cells = [tuned, theirs, milliseconds(ours), bold(ratio(best.0 / ours))];
        let against = Against { ours_ms: ours, ratio: best.0 / ours };
        Ok(Network { name, cells, against })
    }

    /// The networks of a file, but for second readings of the same kernels, which say no time of
    /// tuning.
    fn all(runs: &Runs, file: &'static str) -> Result<Vec<Network>, String> {
        let run = runs.open(file)?;
        let rows = run.part().list("rows")?;
        rows.iter().filter(|r| r.optional("tune_s").is_some()).map(Network::read).collect()
    }
}

/// The networks on the Zen 4 and on the Cascade Lake, each beside the better library.
pub fn against(runs: &Runs) -> Result<[Vec<(&'static str, Against)>; 2], String> {
    let of = |file| {
        let all = Network::all(runs, file)?;
        Ok::<_, String>(all.into_iter().map(|n| (n.name, n.against)).collect())
    };
    Ok([of(ZEN_4)?, of(CASCADE_LAKE)?])
}

/// Whole networks on both CPUs, one row for each network.
pub fn networks(runs: &Runs) -> Result<String, String> {
    let head = [
        "network",
        "Zen 4: tuned in, trials",
        "better library",
        "Squall",
        "ratio",
        "Cascade Lake: tuned in, trials",
        "better library",
        "Squall",
        "ratio",
    ];
    let mut table = Table::new(head, &[ZEN_4, CASCADE_LAKE]);
    let others = Network::all(runs, CASCADE_LAKE)?;
    for n in Network::all(runs, ZEN_4)? {
        let other = others.iter().find(|o| o.name == n.name).map(|o| o.cells.clone());
        let [a, b, c, d] = n.cells;
        let [e, f, g, h] = other.unwrap_or_default();
        table.row([n.name.into(), a, b, c, d, e, f, g, h]);
    }
    Ok(table.markdown())
}

/// What tuning gains on the kernels of `examples/kernels/`.
pub fn examples(runs: &Runs) -> Result<String, String> {
    let file = "2026-11-21-1537-examples.json";
    let run = runs.open(file)?;
    let head =
        ["kernel", "knobs' defaults", "plain loop, -O3", "-O3 -march=native", "tuned", "gain"];
    let mut table = Table::new(head, &[file]);
    for k in run.part().list("times")? {
        let ns = |key| k.number(key);
        let tuned = ns("tuned_ns")?;
        let others = [ns("defaults_ns")?, ns("o3_ns")?, ns("o3_native_ns")?];
        let gains: Vec<String> = others.iter().map(|t| format!("{:.1}", t / tuned)).collect();
        let [defaults, o3, native] = others.map(|t| milliseconds(t / 1e6));
        let tuned = bold(milliseconds(tuned / 1e6));
        table.row([k.text("task")?.into(), defaults, o3, native, tuned, gains.join(", ")]);
    }
    Ok(table.markdown())
}
