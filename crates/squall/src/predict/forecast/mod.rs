//! Predictors: models that propose configurations for a problem that was never tuned, from training
//! to answer.
//!
//! - For MIOpen's solvers: [`import`] reads its performance databases into the store, [`train`]
//!   learns from them, [`questions`] reads problems (convolutions), [`answer`] predicts the
//!   solvers' parameters, and [`write`] puts these into a user database that MIOpen reads.
//! - For Squall's own tasks: [`train_on_records`] learns from a store's records, [`proposals`]
//!   predicts the candidates to try first, and [`measure`] times these against other choices.
//!
//! The models themselves are in the crate `predict` (docs/predictor.md).

mod models;
mod tasks;
mod tried;
mod user_database;

pub use models::{MODELS, kinds};
pub use tasks::{lessons, proposals, proposals_for, train_on_records};
pub use tried::{TRIED, Tried, Trying, WAYS, mean_share, measure};
pub use user_database::{Row, write};

use crate::base::error::Error;
use squall_core::forecast::{Example, Family, FamilyError, Split, serialised};
use squall_frontend::miopen::{self, Convolution, Database, Device, driver};
use squall_predict::{
    Checkpoint, Method, Options, PredictError, Predictor, Progress, Scratch, TrainingRequest,
};
use squall_records::{Store, StoreError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A performance database that was imported.
pub struct Imported {
    /// The file.
    pub file: PathBuf,
    /// Its contents.
    pub database: Database,
    /// Examples that the store did not have.
    pub new: u64,
    /// Examples that it had.
    pub known: u64,
}

/// Reads databases and adds their examples to a store once all of them were read. The device is the
/// one in a file's name unless `device` gives another.
pub fn import(
    store: &Path,
    files: &[PathBuf],
    device: Option<&str>,
) -> Result<Vec<Imported>, Error> {
    let read = |f: &PathBuf| Ok((f.clone(), miopen::read(f, device)?));
    let databases: Vec<(PathBuf, Database)> =
        files.iter().map(read).collect::<Result<_, Error>>()?;
    let store = Store::open(store)?;
    let take = |(file, database): (PathBuf, Database)| {
        let (new, known) = store.add_examples(&database.examples)?;
        Ok(Imported { file, database, new, known })
    };
    databases.into_iter().map(take).collect()
}

/// The families of the solvers in `examples`. The space of a solver that Squall does not know is
/// inferred from its examples.
pub fn families(examples: &[Example]) -> Result<Vec<Arc<Family>>, FamilyError> {
    let mut all = miopen::families()?;
    let mut others: BTreeMap<&str, Vec<&Example>> = BTreeMap::new();
    for e in examples.iter().filter(|e| all.iter().all(|f| f.solver() != e.problem.solver)) {
        others.entry(&e.problem.solver).or_default().push(e);
    }
    for (solver, examples) in others {
        all.push(Arc::new(Family::learned(solver, &examples)?.0));
    }
    Ok(all)
}

/// A problem that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The line of the text that asks it.
    pub line: usize,
    /// The problem.
    pub convolution: Convolution,
}

/// Reads problems, one per line: a database key, a row of a text database, or a MIOpenDriver line,
/// which asks for each direction. Empty lines and lines that begin with `#` are skipped.
pub fn questions(name: &str, text: &str) -> Result<Vec<Question>, Error> {
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let found = if driver::is_driver_line(line) {
            driver::read(line)
        } else {
            Convolution::parse(line.split('=').next().unwrap_or(line).trim()).map(|c| vec![c])
        };
        let fault = |message: String| Error::Input {
            place: format!("{name}:{}", i + 1),
            message,
            hint: "a line is a database key like \
                   256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F, or a MIOpenDriver \
                   line"
                .into(),
        };
        all.extend(
            found
                .map_err(fault)?
                .into_iter()
                .map(|convolution| Question { line: i + 1, convolution }),
        );
    }
    if all.is_empty() {
        return Err(Error::Nothing(format!("{name}: there is no problem in it")));
    }
    Ok(all)
}

/// The examples of a store, of each problem the answer that was added last; an error where the
/// store has none of the kind.
pub fn examples(
    store: &Path,
    solver: Option<&str>,
    device: Option<&str>,
) -> Result<Vec<Example>, Error> {
    some(store, solver, device, Store::examples)
}

/// The same with all answers, which training learns: two tunings of a problem rarely agree, and
/// neither is known to be the better.
pub fn all_examples(
    store: &Path,
    solver: Option<&str>,
    device: Option<&str>,
) -> Result<Vec<Example>, Error> {
    some(store, solver, device, Store::all_examples)
}

/// How a store is asked for the examples of a solver and a device.
type Ask = fn(&Store, Option<&str>, Option<&str>) -> Result<Vec<Example>, StoreError>;

fn some(
    store: &Path,
    solver: Option<&str>,
    device: Option<&str>,
    ask: Ask,
) -> Result<Vec<Example>, Error> {
    let store = Store::open_read_only(store)?;
    let found = ask(&store, solver, device)?;
    if found.is_empty() {
        let known: Vec<String> =
            store.example_counts()?.into_iter().map(|(s, d, _)| format!("{s} on {d}")).collect();
        let known = if known.is_empty() {
            "it holds none: `squall import` takes them over; `train --records` learns from a \
             store's own trials"
                .into()
        } else {
            format!("it has {}", known.join(", "))
        };
        return Err(Error::Nothing(format!(
            "no example in `{}` is of that solver and device; {known}",
            store.path().display()
        )));
    }
    Ok(found)
}

/// The pause between two checkpoints, as a multiple of the time that the last one took to write:
/// writing takes at most a twentieth of the training time.
const SHARE_OF_SAVING: u32 = 20;

/// Trains a predictor on examples and writes its file `out`, whole or not at all. The rows that
/// `split` holds out are not learned from but scored. After some epochs the state of training is
/// saved in a file beside `out` ([`checkpoint`]), from which an interrupted training resumes.
/// `progress` is called often; training ends when it returns false.
pub fn train(
    examples: &[Example],
    split: Option<Split>,
    options: &Options,
    out: &Path,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Predictor, Error> {
    let families = families(examples).map_err(PredictError::from)?;
    let kept = checkpoint(out);
    let broken = |e| Error::Predictor { path: kept.clone(), source: Box::new(e) };
    let mut state = if kept.exists() {
        Checkpoint::load(&kept).map_err(broken)?
    } else {
        Checkpoint::default()
    };
    let failed = RefCell::new(None);
    let (mut saved, mut wait) = (Instant::now(), Duration::ZERO);
    let mut keep = |c: &Checkpoint| {
        if saved.elapsed() < wait {
            return;
        }
        let begun = Instant::now();
        if let Err(e) = c.save(&kept) {
            failed.borrow_mut().get_or_insert(e);
        }
        saved = Instant::now();
        wait = begun.elapsed() * SHARE_OF_SAVING;
    };
    // Training ends with the first checkpoint that cannot be written, as where the disk is full;
    // the predictor could not be written either.
    let mut go_on = |p: &Progress| progress(p) && failed.borrow().is_none();
    let request = TrainingRequest { families: &families, examples, split, options };
    let trained = Predictor::resume(request, &mut state, &mut keep, &mut go_on);
    if trained.is_err()
        && !state.is_empty()
        && failed.borrow().is_none()
        && let Err(e) = state.save(&kept)
    {
        failed.borrow_mut().get_or_insert(e);
    }
    if let Some(source) = failed.into_inner() {
        return Err(broken(source));
    }
    let predictor = trained?;
    predictor.save(out).map_err(|e| Error::Predictor { path: out.into(), source: Box::new(e) })?;
    // The finished training needs no checkpoint. Where it cannot be removed, the next training
    // reports it.
    let _ = std::fs::remove_file(&kept);
    Ok(predictor)
}

/// The file in which the training of a predictor file keeps its state.
pub fn checkpoint(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".checkpoint");
    name.into()
}

/// Reads a predictor file.
pub fn load(path: &Path) -> Result<Predictor, Error> {
    Predictor::load(path).map_err(|e| Error::Predictor { path: path.into(), source: Box::new(e) })
}

/// A predictor's answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The problem.
    pub convolution: Convolution,
    /// The solver of these values.
    pub solver: String,
    /// Serialised values with their probabilities, best first.
    pub predictions: Vec<(String, f64)>,
    /// Why there is no prediction, where there is none.
    pub why: Option<String>,
}

/// Predicts the best `top` values for each question: of one solver, or of each that can take the
/// problem.
pub fn answer(
    predictor: &Predictor,
    questions: &[Question],
    solver: Option<&str>,
    device: &str,
    top: usize,
) -> Result<Vec<Answer>, Error> {
    let hint = "a device is named like gfx906 or gfx906_60";
    let fault = |message| Error::Input { place: "device".into(), message, hint: hint.into() };
    let device = Device::parse(device).map_err(fault)?;
    let solvers = match solver {
        Some(s) => vec![predictor.model(s)?],
        None => predictor.models().iter().collect(),
    };
    let mut scratch = Scratch::default();
    let mut answers = Vec::new();
    for q in questions {
        let mut taken = false;
        for s in &solvers {
            let problem = q.convolution.problem(s.solver(), &device);
            let found = s.predict(&problem, top, Method::Pair, &mut scratch);
            let why = match &found {
                Ok(p) if p.is_empty() => Some(format!(
                    "{} cannot compute this problem: nothing is legal for it",
                    s.solver()
                )),
                Ok(_) => None,
                Err(e) => Some(e.to_string()),
            };
            // Where all solvers are asked, those that do not support the problem are left out.
            if why.is_some() && solver.is_none() {
                continue;
            }
            taken = true;
            let predictions =
                found.unwrap_or_default().into_iter().map(|(v, p)| (serialised(&v), p)).collect();
            answers.push(Answer {
                convolution: q.convolution.clone(),
                solver: s.solver().into(),
                predictions,
                why,
            });
        }
        if !taken {
            let why = Some("no solver of this predictor takes this problem".into());
            answers.push(Answer {
                convolution: q.convolution.clone(),
                solver: "all".into(),
                predictions: Vec::new(),
                why,
            });
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_keys_rows_and_driver_lines() {
        let key = "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F";
        let text = format!("# mine\n{key}\n\n{key}=A:1,2\n./MIOpenDriver conv -F 3 -H 8 -W 8\n");
        let all = questions("f", &text).unwrap();
        assert_eq!(all.iter().map(|q| q.line).collect::<Vec<_>>(), [2, 4, 5, 5]);
        assert_eq!(all[1].convolution.key(), key);
        let e = questions("f", &format!("{key}\n{key}x\n")).unwrap_err().to_string();
        assert!(e.starts_with("f:2: "), "{e}");
        assert!(questions("f", "# nothing\n").is_err());
    }
}
