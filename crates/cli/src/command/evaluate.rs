//! `squall evaluate`: what a predictor is worth on rows that were held out.

use super::train::split;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{JsonArgs, StoreArgs};
use crate::terminal::{note, say, table, three};
use serde_json::json;
use squall::core::forecast::Split;
use squall::forecast::{AT, METHODS, MODELS, RowReport, compare, evaluate, examples, load, published};
use squall::predict::PredictError;
use squall::predict::paper::PaperOptions;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Score a predictor on rows that were held out, beside the published figures
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall evaluate miopen.predictor --store miopen.squall
  squall evaluate miopen.predictor --store miopen.squall --models all --json
  squall evaluate layers.predictor --store miopen.squall --split layer
  squall evaluate --models hybrid-2,random-forest --solver ConvAsm1x1U --store miopen.squall

P@k is the share of problems whose tuned vector is among the first k predictions, with Wilson's
interval at 95 %. Without a predictor, the paper's models and the classical ones are trained, a row at
a time: minutes each. `paper` is Mahmood, Khan and Afzal at 1, 10 and 100, on databases that are not
public: other rows than these.")]
pub struct Args {
    /// A file that `squall train` wrote; without one, --models are trained on each row of their own
    #[arg(value_name = "PREDICTOR")]
    predictor: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Which of the predictor's ways answer [default: pair]; without a predictor, which models; or all
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = model_names(), required_unless_present = "predictor")]
    models: Vec<String>,
    /// Which rows were held out
    #[arg(long, value_name = "SPLIT", default_value = "random", value_parser = ["random", "layer"])]
    split: String,
    /// Only this solver
    #[arg(long, value_name = "S")]
    solver: Option<String>,
    /// Seed of the models that are trained here
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,
    /// Passes over the data of the models that are trained here, at most
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    epochs: u16,
    /// Only examples of this device
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    #[command(flatten)]
    json: JsonArgs,
}

fn model_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(METHODS.iter().map(|(n, _)| *n).chain(MODELS.iter().map(|(n, _)| *n)).chain(["all"]))
}

/// The names among `known` that are asked for.
fn asked<T>(models: &[String], known: &[(&'static str, T)], none: &'static str) -> Result<Vec<&'static str>, Failure> {
    if models.is_empty() {
        return Ok(vec![none]);
    }
    let names = || known.iter().map(|(n, _)| *n);
    if let Some(odd) = models.iter().find(|m| *m != "all" && !names().any(|n| n == m.as_str())) {
        let hint = format!("here there are {} and all", names().collect::<Vec<_>>().join(", "));
        return Err(Failure::usage(format!("`{odd}` is not among the models that this can evaluate"), hint));
    }
    Ok(names().filter(|n| models.iter().any(|m| m == "all" || m == n)).collect())
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let held = split(&a.split).unwrap_or(Split::Random);
    let (reports, seed, data) = match &a.predictor {
        Some(path) => {
            let methods = asked(&a.models, &METHODS, METHODS[0].0)?;
            let predictor = load(path)?;
            let all = examples(&a.store.store, a.solver.as_deref(), a.device.as_deref())?;
            let info = predictor.info();
            (evaluate(&predictor, &all, held, &methods, threads)?, info.options.seed, info.data.clone())
        }
        None => {
            let models = asked(&a.models, &MODELS, MODELS[0].0)?;
            let all = examples(&a.store.store, a.solver.as_deref(), a.device.as_deref())?;
            let options = PaperOptions { epochs: a.epochs.into(), seed: a.seed, threads, ..PaperOptions::default() };
            let stop = interruptible()?;
            let (began, mut last) = (Instant::now(), String::new());
            let reports = compare(&all, held, &models, options, &mut |model, row| {
                let now = format!("{model}, {row}");
                if now != last {
                    note(format_args!("{:6.0} s  {now}", began.elapsed().as_secs_f64()));
                    last = now;
                }
                !stop.load(Ordering::Relaxed)
            });
            let reports = match reports {
                Err(squall::Error::Predict(PredictError::Cancelled)) => return Ok(130),
                other => other?,
            };
            (reports, a.seed, format!("{} examples", all.len()))
        }
    };
    if a.json.json {
        let rows: Vec<_> = reports.iter().map(row).collect();
        say(json!({"predictor": a.predictor, "split": a.split, "seed": seed, "data": data, "rows": rows}))?;
        return Ok(0);
    }
    let heads: Vec<String> = AT.iter().map(|k| format!("P@{k}")).collect();
    let mut columns = vec!["solver", "device", "precision", "model", "problems"];
    columns.extend(heads.iter().map(String::as_str));
    columns.extend(["95 % at 1", "kernel at 1, 10", "NLL", "calibration", "paper"]);
    let mut t = table(&columns);
    for r in &reports {
        let mut cells = vec![r.solver.clone(), r.device.clone(), r.precision.clone(), r.method.into(), r.at[0].of.to_string()];
        cells.extend(r.at.iter().map(|s| format!("{:.1}", 100.0 * s.value())));
        let (low, high) = r.at[0].interval();
        cells.push(format!("{:.1}-{:.1}", 100.0 * low, 100.0 * high));
        cells.push(format!("{:.1} {:.1}", 100.0 * r.kernel_at[0].value(), 100.0 * r.kernel_at[1].value()));
        cells.push(three(r.negative_log_likelihood));
        cells.push(format!("{:.1}", 100.0 * r.calibration_error));
        cells.push(published(&r.solver, &r.precision).map_or(String::new(), |p| format!("{} {} {}", p.top_1, p.top_10, p.top_100)));
        t.add_row(cells);
    }
    say(t)?;
    note(format_args!("split {}, seed {seed}, data {data}", a.split));
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
