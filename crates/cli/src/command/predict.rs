//! `squall predict`: tuned parameters of problems, or of tasks, that nobody tuned.

use crate::failure::Failure;
use crate::option::{JsonArgs, TargetArgs, ThreadArgs};
use crate::terminal::{note, percent, say, table};
use serde_json::json;
use squall::forecast::{Answer, Row, answer, load, proposals_for, questions, write};
use squall::predict::Predictor;
use squall::{TargetContext, Channels, Error, Input};
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
{\"problem\": .., \"solver\": .., \"predictions\": [\"1,16,..\", ..]}, best first. A predictor \
that was trained with
--records takes what `squall tune` takes, and answers for this device with sketches and \
configurations."
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
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    top: u32,
    /// Add the best prediction of each to a user database of MIOpen's, text or SQLite (.db, .udb)
    #[arg(long, value_name = "FILE")]
    write_user_db: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let predictor = load(&a.predictor)?;
    if predictor.tasks().is_ok() {
        return tasks(a, &predictor);
    }
    let (name, text) = match (&a.problems, &a.line) {
        (Some(path), _) if path.as_os_str() == "-" => {
            ("stdin".to_string(), std::io::read_to_string(std::io::stdin())?)
        }
        (Some(path), _) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| Error::Read { path: path.clone(), source })?;
            (path.display().to_string(), text)
        }
        (None, line) => ("line".to_string(), line.clone().unwrap_or_default()),
    };
    let asked = questions(&name, &text)?;
    let Some(device) = &a.device else {
        return Err(Failure::usage(
            "a predictor of solvers needs --device",
            "say which GPU: --device gfx906, or gfx906_60",
        ));
    };
    let solver = Some(a.solver.as_str()).filter(|s| *s != "all");
    let answers = answer(&predictor, &asked, solver, device, a.top as usize)?;
    for x in &answers {
        if let Some(why) = &x.why {
            note(format_args!("note: {}: {why}", x.convolution.key()));
        }
    }
    if let Some(path) = &a.write_user_db {
        let best = |x: &Answer| {
            let (values, _) = x.predictions.first()?;
            Some(Row {
                convolution: x.convolution.clone(),
                solver: x.solver.clone(),
                values: values.clone(),
            })
        };
        let rows: Vec<Row> = answers.iter().filter_map(best).collect();
        write(path, &rows)?;
        note(format_args!("{}: {} rows written", path.display(), rows.len()));
    }
    if a.json.json {
        for x in &answers {
            let values: Vec<&String> = x.predictions.iter().map(|(v, _)| v).collect();
            let probabilities: Vec<f64> = x.predictions.iter().map(|(_, p)| *p).collect();
            let mut line = json!({
                "problem": x.convolution.key(), "solver": x.solver, "predictions": values, "probabilities": probabilities,
            });
            if let Some(why) = &x.why {
                line["why"] = json!(why);
            }
            say(line)?;
        }
        return Ok(0);
    }
    let mut t = table(&["problem", "probability", "solver", "values"]);
    for x in &answers {
        for (values, p) in &x.predictions {
            t.add_row([x.convolution.key(), percent(*p), x.solver.clone(), values.clone()]);
        }
    }
    say(t)?;
    Ok(0)
}

/// Answers for tasks that are tuned here.
fn tasks(a: &Args, predictor: &Predictor) -> Result<u8, Failure> {
    if a.device.is_some() || a.write_user_db.is_some() || a.solver != "all" {
        let hint = "leave out --device, --solver and --write-user-db";
        return Err(Failure::usage(
            "this predictor was trained on records: it answers for this device, with sketches of \
             Squall's",
            hint,
        ));
    }
    let input = match (&a.problems, &a.line) {
        (Some(path), _) if path.as_os_str() == "-" => {
            Input::lines(&std::io::read_to_string(std::io::stdin())?, "stdin")?
        }
        (Some(path), _) => Input::load(&path.to_string_lossy(), &[])?,
        (None, line) => Input::load(line.as_deref().unwrap_or_default(), &[])?,
    };
    // The tasks that `tune` would have.
    let input = input.with_channels(Channels::usual(a.target.target));
    let at = TargetContext::at(a.target.target, a.threads.threads.into())?;
    let model = predictor.tasks().map_err(Error::from)?;
    let mut t = table(&["task", "speed", "sketch", "configuration"]);
    for task in input.select(None)? {
        let found = proposals_for(model, task, &at.target, &at.id, a.top as usize);
        let (found, why) = match found {
            Ok(found) => (found, None),
            Err(e @ squall::predict::PredictError::Kind { .. }) => {
                (Vec::new(), Some(e.to_string()))
            }
            Err(e) => return Err(Error::from(e).into()),
        };
        if let Some(why) = &why {
            note(format_args!("note: {}: {why}", task.name));
        }
        if a.json.json {
            let all = found.iter().map(|p| {
                let (sketch, configuration) =
                    (p.candidate.tunable.to_string(), p.candidate.configuration.to_string());
                json!({"tunable": sketch, "configuration": configuration, "speed": p.speed})
            });
            let mut line = json!({"problem": task.name, "task": task.id.to_string(), "predictions": all.collect::<Vec<_>>()});
            if let Some(why) = why {
                line["why"] = json!(why);
            }
            say(line)?;
        }
        for p in &found {
            t.add_row([
                task.name.clone(),
                percent(p.speed),
                p.candidate.tunable.to_string(),
                p.candidate.configuration.to_string(),
            ]);
        }
    }
    if !a.json.json {
        say(t)?;
    }
    Ok(0)
}
