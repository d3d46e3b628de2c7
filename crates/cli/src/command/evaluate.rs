//! `squall evaluate`: what a predictor is worth on rows that were held out.

use super::train::split;
use crate::failure::Failure;
use crate::option::{JsonArgs, StoreArgs};
use crate::terminal::{note, percent, say, table, three};
use serde_json::json;
use squall::core::forecast::Split;
use squall::forecast::{AT, METHODS, RowReport, evaluate, examples, load, published};
use std::path::PathBuf;

/// Score a predictor on rows that were held out, beside the published figures
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall evaluate miopen.predictor --store miopen.squall
  squall evaluate miopen.predictor --store miopen.squall --models all --json
  squall evaluate layers.predictor --store miopen.squall --split layer

P@k is the share of problems whose tuned vector is among the first k predictions, with Wilson's
interval at 95 %. `paper` is Mahmood, Khan and Afzal at 1, 10 and 100, on databases that are not
public: other rows than these.")]
pub struct Args {
    /// A file that `squall train` wrote
    #[arg(value_name = "PREDICTOR")]
    predictor: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Which of the predictor's models answer, or all
    #[arg(long, value_name = "NAME", default_value = "pair", value_parser = model_names())]
    models: String,
    /// Which rows were held out
    #[arg(long, value_name = "SPLIT", default_value = "random", value_parser = ["random", "layer"])]
    split: String,
    /// Only examples of this device
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    #[command(flatten)]
    json: JsonArgs,
}

fn model_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(METHODS.iter().map(|(n, _)| *n).chain(["all"]))
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let predictor = load(&a.predictor)?;
    let all = examples(&a.store.store, None, a.device.as_deref())?;
    let methods: Vec<&'static str> = METHODS.iter().map(|(n, _)| *n).filter(|n| a.models == "all" || a.models == *n).collect();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let reports = evaluate(&predictor, &all, split(&a.split).unwrap_or(Split::Random), &methods, threads)?;
    if a.json.json {
        let rows: Vec<_> = reports.iter().map(row).collect();
        let info = predictor.info();
        say(json!({"predictor": a.predictor, "split": a.split, "seed": info.options.seed, "data": info.data, "rows": rows}))?;
        return Ok(0);
    }
    let heads: Vec<String> = AT.iter().map(|k| format!("P@{k}")).collect();
    let mut columns = vec!["solver", "device", "precision", "model", "problems"];
    columns.extend(heads.iter().map(String::as_str));
    columns.extend(["95 % at 1", "kernel at 1, 10", "NLL", "calibration", "paper"]);
    let mut t = table(&columns);
    for r in &reports {
        let mut cells = vec![r.solver.clone(), r.device.clone(), r.precision.clone(), r.method.into(), r.at[0].of.to_string()];
        cells.extend(r.at.iter().map(|s| percent(s.value())));
        let (low, high) = r.at[0].interval();
        cells.push(format!("{:.1}-{:.1}", 100.0 * low, 100.0 * high));
        cells.push(format!("{:.1} {:.1}", 100.0 * r.kernel_at[0].value(), 100.0 * r.kernel_at[1].value()));
        cells.push(three(r.negative_log_likelihood));
        cells.push(percent(r.calibration_error));
        cells.push(published(&r.solver, &r.precision).map_or(String::new(), |p| format!("{} {} {}", p.top_1, p.top_10, p.top_100)));
        t.add_row(cells);
    }
    say(t)?;
    note(format_args!("split {}, seed {}, data {}", a.split, predictor.info().options.seed, predictor.info().data));
    Ok(0)
}

fn row(r: &RowReport) -> serde_json::Value {
    let shares = |all: &[squall::predict::metrics::Share]| -> Vec<_> {
        all.iter().zip(AT).map(|(s, k)| json!({"k": k, "share": s.value(), "interval": s.interval()})).collect()
    };
    json!({
        "solver": r.solver, "device": r.device, "precision": r.precision, "model": r.method, "problems": r.at[0].of,
        "at": shares(&r.at), "kernel_at": shares(&r.kernel_at), "nll": r.negative_log_likelihood,
        "calibration_error": r.calibration_error, "reliability": r.reliability,
        "paper": published(&r.solver, &r.precision).map(|p| [p.top_1, p.top_10, p.top_100]),
    })
}
