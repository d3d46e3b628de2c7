//! Makes the documents' tables of the predictors' quality: P@1/P@10/P@100 in per cent, by split and
//! model, and the shares of tuned speed on Squall's own tasks. Input: a run file of
//! `benches/runs/`; output: Markdown. `report.rs` lists the tables.

use super::run::{RunValue, Runs};
use super::table::{Table, bold, geometric_mean, ratio};

const FILE: &str = "2026-11-23-predictor.json";

/// P@1, P@10 and P@100.
type Hits = [f64; 3];

fn hits(row: &RunValue<'_>, key: &str) -> Result<Hits, String> {
    row.numbers(key)?.try_into().map_err(|_| format!("{FILE}: {key} wants three numbers"))
}

fn written(h: &Hits) -> String {
    h.map(|v| format!("{v:.1}")).join("/")
}

/// The means of all rows.
fn mean(rows: &[Hits]) -> Hits {
    [0, 1, 2].map(|i| rows.iter().map(|r| r[i]).sum::<f64>() / rows.len().max(1) as f64)
}

fn name(row: &RunValue<'_>) -> Result<String, String> {
    Ok(format!("{} {}", row.text("solver")?, row.text("precision")?))
}

/// Problems left out at random, learned from one GPU and from two.
pub fn random_split(runs: &Runs) -> Result<String, String> {
    let run = runs.open(FILE)?;
    let head =
        ["kernel", "problems", "the paper", "neighbours", "from gfx900", "from gfx900, gfx906"];
    let mut table = Table::new(head, &[FILE]);
    let keys = ["paper", "neighbours", "default", "with_gfx906_learned"];
    let mut columns: [Vec<Hits>; 4] = Default::default();
    for row in run.part().list("random_split")? {
        let mut cells = Vec::new();
        for (key, column) in keys.iter().zip(&mut columns) {
            let h = hits(&row, key)?;
            column.push(h);
            cells.push(written(&h));
        }
        let [a, b, c, d]: [String; 4] = cells.try_into().map_err(|_| "four columns")?;
        table.row([name(&row)?, format!("{:.0}", row.number("problems")?), a, b, bold(c), bold(d)]);
    }
    let [a, b, c, d] = columns.map(|c| written(&mean(&c)));
    table.row(["mean".into(), String::new(), a, b, bold(c), bold(d)]);
    Ok(table.markdown())
}

/// Layers, devices and keys that the training data lacked: P@10.
pub fn unseen(runs: &Runs) -> Result<String, String> {
    let run = runs.open(FILE)?;
    let head = [
        "kernel",
        "new layers: neighbours",
        "predictor",
        "another GPU: neighbours",
        "predictor",
        "newest keys: neighbours",
        "predictor",
    ];
    let mut table = Table::new(head, &[FILE]);
    let keys = ["layer_split", "gfx906", "newest_keys"];
    let part = run.part();
    let mut gains: [Vec<f64>; 3] = Default::default();
    for row in part.list("newest_keys")? {
        let name = name(&row)?;
        let mut cells = vec![name.clone()];
        for (key, gain) in keys.iter().zip(&mut gains) {
            let mut found = [String::new(), String::new()];
            for other in part.list(key)? {
                if self::name(&other)? == name {
                    let (theirs, ours) =
                        (hits(&other, "neighbours")?[1], hits(&other, "default")?[1]);
                    gain.push(ours / theirs);
                    found = [format!("{theirs:.1}"), bold(format!("{ours:.1}"))];
                }
            }
            cells.extend(found);
        }
        table.row(cells.try_into().map_err(|_| "seven columns".to_string())?);
    }
    let [a, b, c] = gains.map(|g| bold(format!("x {}", ratio(geometric_mean(&g)))));
    let blank = String::new;
    table.row(["geometric mean of the ratios".into(), blank(), a, blank(), b, blank(), c]);
    Ok(table.markdown())
}

/// All models on the two smallest rows.
pub fn models(runs: &Runs) -> Result<String, String> {
    let run = runs.open(FILE)?;
    let mut table = Table::new(["model", "FP32 (116 problems)", "FP16 (74 problems)"], &[FILE]);
    for row in run.part().list("models_wrw3x3")? {
        let (single, half) = (hits(&row, "fp32")?, hits(&row, "fp16")?);
        table.row([row.text("model")?.into(), written(&single), written(&half)]);
    }
    Ok(table.markdown_in_two())
}

/// Squall's own tasks: shares of the speed that 300 trials tuned.
pub fn own_tasks(runs: &Runs) -> Result<String, String> {
    let run = runs.open(FILE)?;
    let head =
        ["convolution", "predictor", "nearest task's best", "random", "predictor, then 100 trials"];
    let mut table = Table::new(head, &[FILE]);
    let part = run.part();
    let keys = ["predictor", "nearest_task", "random"];
    for row in part.list("own_tasks")? {
        let [a, b, c] = own_task(&row, &keys)?;
        table.row([format!("`{}`", row.text("shape")?), a, b, c, figure(row.number("seeded")?)]);
    }
    let mean = part.get("own_tasks_geometric_mean")?;
    let [a, b, c] = own_task(&mean, &keys)?;
    table.row(["geometric mean".into(), bold(a), b, c, bold(figure(mean.number("seeded")?))]);
    Ok(table.markdown())
}

fn own_task(row: &RunValue<'_>, keys: &[&str; 3]) -> Result<[String; 3], String> {
    let mut cells: [String; 3] = Default::default();
    for (key, cell) in keys.iter().zip(&mut cells) {
        *cell = hits(row, key)?.map(figure).join("/");
    }
    Ok(cells)
}

fn figure(share: f64) -> String {
    format!("{share:.0}")
}
