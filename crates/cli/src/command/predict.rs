//! `squall predict`: prints the tuned parameters that a trained predictor expects for problems (of
//! MIOpen's solvers) or tasks (of Squall) that were never tuned (`squall::predict`).

use crate::failure::Failure;
use crate::option::{JsonArgs, TargetArgs, ThreadArgs};
use crate::terminal::{note, percent, say, table};
use squall::forecast::Answer;
use squall::{Context, PredictRequest, Predictions, Problems, TaskPredictions};
use std::path::PathBuf;

/// Predict tuned parameters of problems
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("asked").required(true).args(["problems", "line"]),
    after_help = "\
Examples:
  squall predict miopen.predictor --problems keys.txt --device gfx906 --top 10 --json
  squall predict miopen.predictor './bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 128 -y \
  1 -x 1' --device gfx906_60
  squall predict miopen.predictor --problems keys.txt --device gfx906 --write-user-db \
  gfx906_60.updb.txt
  squall predict convolutions.predictor 'conv2d c=96 h=28 k=96 r=3 pad=1' --top 10
  squall predict convolutions.predictor --problems model.onnx --top 3 --json

A problem is a key of MIOpen's databases (256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F) or a
MIOpenDriver line as logs hold it, prefix and all. With --json each line of output is
{\"problem\": .., \"solver\": .., \"predictions\": [\"1,16,..\", ..]}, best first. A predictor that
was trained with --records takes what `squall tune` takes, and answers for this device with sketches
and configurations."
)]
pub struct Args {
    /// A file that `squall train` wrote
    #[arg(value_name = "PREDICTOR")]
    predictor: PathBuf,
    /// One MIOpenDriver line, one database key, or one operator line
    #[arg(value_name = "LINE")]
    line: Option<String>,
    /// Problems, one a line, or a model; `-` reads lines from stdin
    #[arg(long, value_name = "FILE")]
    problems: Option<PathBuf>,
    /// A solver of the predictor's, or all that take the problem
    #[arg(long, value_name = "S", default_value = "all")]
    solver: String,
    /// The device to predict for, where it is not this one: gfx906, or gfx906_60 with its number of
    /// compute units
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// How many predictions of each
    #[arg(
        long,
        value_name = "K",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    top: u32,
    /// Add the best prediction of each to a user database of MIOpen's, text or SQLite (.db, .udb)
    #[arg(long, value_name = "FILE")]
    write_user_db: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let problems = match (&a.problems, &a.line) {
        (Some(path), _) if path.as_os_str() == "-" => {
            Problems::Text("stdin".into(), std::io::read_to_string(std::io::stdin())?)
        }
        (Some(path), _) => Problems::File(path.clone()),
        (None, line) => Problems::Line(line.clone().unwrap_or_default()),
    };
    let request = PredictRequest {
        predictor: a.predictor.clone(),
        problems,
        solver: Some(a.solver.clone()).filter(|s| s != "all"),
        device: a.device.clone(),
        user_database: a.write_user_db.clone(),
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        top: a.top as usize,
    };
    let predictions = squall::predict(&Context::new(), &request)?;
    say_why(&predictions);
    if let (Predictions::Solvers(_, Some(rows)), Some(path)) = (&predictions, &a.write_user_db) {
        note(format_args!("{}: {rows} rows written", path.display()));
    }
    if a.json.json {
        return predictions.json().iter().try_for_each(say).map(|()| 0);
    }
    match &predictions {
        Predictions::Solvers(answers, _) => solvers(answers)?,
        Predictions::Tasks(all) => tasks(all)?,
    }
    Ok(0)
}

/// Says of what there is no prediction, and why.
fn say_why(predictions: &Predictions) {
    match predictions {
        Predictions::Solvers(answers, _) => {
            for (x, why) in answers.iter().filter_map(|x| Some((x, x.why.as_ref()?))) {
                note(format_args!("note: {}: {why}", x.convolution.key()));
            }
        }
        Predictions::Tasks(all) => {
            for (x, why) in all.iter().filter_map(|x| Some((x, x.why.as_ref()?))) {
                note(format_args!("note: {}: {why}", x.name));
            }
        }
    }
}

/// Shows the values of solvers.
fn solvers(answers: &[Answer]) -> Result<(), Failure> {
    let mut t = table(&["problem", "probability", "solver", "values"]);
    for x in answers {
        for (values, p) in &x.predictions {
            t.add_row([x.convolution.key(), percent(*p), x.solver.clone(), values.clone()]);
        }
    }
    say(t)
}

/// Shows candidates of tasks.
fn tasks(all: &[TaskPredictions]) -> Result<(), Failure> {
    let mut t = table(&["task", "speed", "sketch", "configuration"]);
    for x in all {
        for p in &x.proposals {
            let c = &p.candidate;
            let (sketch, configuration) = (c.tunable.to_string(), c.configuration.to_string());
            t.add_row([x.name.clone(), percent(p.speed), sketch, configuration]);
        }
    }
    say(t)
}
