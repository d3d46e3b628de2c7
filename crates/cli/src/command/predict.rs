//! `squall predict`: tuned parameters of problems that nobody tuned.

use crate::failure::Failure;
use crate::option::JsonArgs;
use crate::terminal::{note, percent, say, table};
use serde_json::json;
use squall::Error;
use squall::forecast::{Answer, Row, answer, load, questions, write};
use std::path::PathBuf;

/// Predict tuned parameters of problems
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("asked").required(true).args(["problems", "line"]),
    after_help = "\
Examples:
  squall predict miopen.predictor --problems keys.txt --device gfx906 --top 10 --json
  squall predict miopen.predictor './bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 128 -y 1 -x 1' --device gfx906_60
  squall predict miopen.predictor --problems keys.txt --device gfx906 --write-user-db gfx906_60.updb.txt

A problem is a key of MIOpen's databases (256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F) or a
MIOpenDriver line as logs hold it, prefix and all. With --json each line of output is
{\"problem\": .., \"solver\": .., \"predictions\": [\"1,16,..\", ..]}, best first."
)]
pub struct Args {
    /// A file that `squall train` wrote
    #[arg(value_name = "PREDICTOR")]
    predictor: PathBuf,
    /// One MIOpenDriver line, or one database key
    #[arg(value_name = "LINE")]
    line: Option<String>,
    /// Problems, one a line; `-` reads them from stdin
    #[arg(long, value_name = "FILE")]
    problems: Option<PathBuf>,
    /// A solver of the predictor's, or all that take the problem
    #[arg(long, value_name = "S", default_value = "all")]
    solver: String,
    /// The device to predict for: gfx906, or gfx906_60 with its number of compute units
    #[arg(long, value_name = "DEVICE")]
    device: String,
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
    let (name, text) = match (&a.problems, &a.line) {
        (Some(path), _) if path.as_os_str() == "-" => ("stdin".to_string(), std::io::read_to_string(std::io::stdin())?),
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.clone(), source })?;
            (path.display().to_string(), text)
        }
        (None, line) => ("line".to_string(), line.clone().unwrap_or_default()),
    };
    let asked = questions(&name, &text)?;
    let predictor = load(&a.predictor)?;
    let solver = Some(a.solver.as_str()).filter(|s| *s != "all");
    let answers = answer(&predictor, &asked, solver, &a.device, a.top as usize)?;
    for x in &answers {
        if let Some(why) = &x.why {
            note(format_args!("note: {}: {why}", x.convolution.key()));
        }
    }
    if let Some(path) = &a.write_user_db {
        let best = |x: &Answer| {
            let (values, _) = x.predictions.first()?;
            Some(Row { convolution: x.convolution.clone(), solver: x.solver.clone(), values: values.clone() })
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
