//! `squall import`: what others measured, taken into the store. Files are told apart by what is in
//! them, here and nowhere else.

use crate::failure::Failure;
use crate::option::{JsonArgs, StoreArgs};
use crate::terminal::{say, table};
use serde_json::json;
use squall::exchange::{Imported, import};
use squall::frontend::recording::{Description, File, Recording, read_any};
use squall::{Error, Store};
use std::path::{Path, PathBuf};

/// Take over what others measured
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall import convolution-A100.json.gz --store tuned.squall
  squall import results_T4.json convolution_T1.json       results with the description of their space
  squall records list --store tuned.squall

FILE is a Kernel Tuner cache file (an interrupted one too), T4 results, or a T1 description; plain or
gzipped. A description says the order, all values and the conditions of the parameters of those
recordings beside it that have the same parameters. Every configuration becomes a trial, failed ones
too; what the store has already is not added again. `squall records export` is the way back.")]
pub struct Args {
    /// Files of measured configurations, and descriptions of their spaces
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// The files of a command, by kind.
#[derive(Default)]
struct Files {
    /// With the stem of each file's name.
    recordings: Vec<(String, String, Recording)>,
    descriptions: Vec<(String, Description)>,
}

impl Files {
    fn read(&mut self, path: &Path) -> Result<(), Failure> {
        let place = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.into(), source })?;
        match read_any(&place, &bytes).map_err(Error::Recording)? {
            File::Recording(r) => self.recordings.push((place, stem(path), r)),
            File::Description(d) => self.descriptions.push((place, d)),
        }
        Ok(())
    }
}

fn stem(path: &Path) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let file = file.strip_suffix(".gz").unwrap_or(&file);
    file.strip_suffix(".json").unwrap_or(file).into()
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    // All files are read before the first trial is stored.
    let mut files = Files::default();
    a.files.iter().try_for_each(|f| files.read(f))?;
    for (place, t1) in &files.descriptions {
        if !files.recordings.iter().any(|(_, _, r)| r.fits(t1)) {
            let hint = "name it together with the recording that it describes";
            return Err(Failure::new(format!("{place}: no recording here has the parameters of this T1 description"), Some(hint.into())));
        }
    }
    let mut described = Vec::new();
    for (place, stem, r) in files.recordings {
        let t1 = files.descriptions.iter().find(|(_, t1)| r.fits(t1));
        let r = match t1 {
            Some((_, t1)) => r.described(&place, t1).map_err(Error::Recording)?,
            None => r,
        };
        described.push((stem, r));
    }
    let store = Store::open(&a.store.store)?;
    let done: Vec<Imported> = described.iter().map(|(stem, r)| import(r, stem, &store)).collect::<Result<_, _>>()?;
    if a.json.json {
        let one = |i: &Imported| json!({"task": i.task.to_string(), "name": i.name, "device": i.device, "failed": i.failed, "new": i.new, "known": i.known});
        say(json!({"imported": done.iter().map(one).collect::<Vec<_>>()}))?;
        return Ok(0);
    }
    let mut t = table(&["task", "id", "trials", "failed", "new", "device"]);
    for i in &done {
        t.add_row([
            i.name.clone(),
            i.task.to_string(),
            (i.new + i.known).to_string(),
            i.failed.to_string(),
            i.new.to_string(),
            i.device.clone(),
        ]);
    }
    say(t)?;
    Ok(0)
}
