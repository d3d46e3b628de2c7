//! Exchange of measurements with other tuners. [`import`] takes recordings (spaces that another
//! tuner measured, as Kernel Tuner's cache files or T4 results) into the store; [`recorded`] and
//! [`write()`] give the store's trials of a task out in the same formats. `api/import.rs` and
//! `squall records export` call this.
//!
//! An imported record has no tensor expression; in its place it carries the recording's T1
//! description (parameters and restrictions), so that each record can be read alone and given out
//! again as it came.

use crate::base::clock::now;
use crate::base::error::Error;
use crate::base::files;
use crate::base::files::put;
use squall_core::space::pairs;
use squall_core::task::Objective;
use squall_core::{Outcome, Record, RecordKind, TaskId, canonical_tunable_name};
use squall_frontend::recording::{self, Description, File, Format, Recording, knob_of_spellings};
use squall_records::{Query, Store, Taken};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The name of the tunable in imported records.
pub const RECORDED: &str = "recorded";
/// The toolchain in imported records: the files do not name a compiler.
const TOOLCHAIN: &str = "recorded by others";
/// Stands for a device or a kernel that a file does not name.
const UNKNOWN: &str = "unknown";

/// The result of importing one recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Where it was measured.
    pub device: String,
    /// Trials without a time.
    pub failed: u64,
    /// Trials that were new to the store.
    pub new: u64,
    /// Trials that it had.
    pub known: u64,
    /// Trials that cannot be right and were left out.
    pub refused: u64,
    /// Why, of the first few of them.
    pub reasons: Vec<String>,
    /// The parts of the file that could not be read.
    pub note: Option<String>,
}

/// Reads recordings, each with the stem of its file's name, and fits descriptions to them: these
/// say the order, all values and the conditions of the parameters of those recordings that have
/// the same ones.
pub fn read(paths: &[PathBuf]) -> Result<Vec<(String, Recording)>, Error> {
    let (mut recordings, mut descriptions) = (Vec::new(), Vec::new());
    for path in paths {
        let place = path.display().to_string();
        let bytes = files::read(path)?;
        match recording::read_any(&place, &bytes).map_err(Error::Recording)? {
            File::Recording(r) => recordings.push((place, stem(path), r)),
            File::Description(d) => descriptions.push((place, d)),
        }
    }
    for (place, t1) in &descriptions {
        if !recordings.iter().any(|(_, _, r)| r.fits(t1)) {
            return Err(Error::Input {
                place: place.clone(),
                message: "no recording here has the parameters of this T1 description".into(),
                hint: "name it together with the recording that it describes".into(),
            });
        }
    }
    let described = |(place, stem, r): (String, String, Recording)| {
        let r = match descriptions.iter().find(|(_, t1)| r.fits(t1)) {
            Some((_, t1)) => r.described(&place, t1).map_err(Error::Recording)?,
            None => r,
        };
        Ok((stem, r))
    };
    recordings.into_iter().map(described).collect()
}

fn stem(path: &Path) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let file = file.strip_suffix(".gz").unwrap_or(&file);
    file.strip_suffix(".json").unwrap_or(file).into()
}

/// Puts the trials of a recording into a store, all or none, without those that cannot be right.
/// `stem` names its kernel where the file
/// does not.
pub fn import(recording: &Recording, stem: &str, store: &Store) -> Result<Imported, Error> {
    let description = recording.description().text();
    let task = TaskId::of_text(&description, Objective::Time);
    let name = if recording.kernel.is_empty() { stem } else { &recording.kernel }.to_string();
    let device = if recording.device.is_empty() { UNKNOWN } else { &recording.device }.to_string();
    let time = now();
    let record = |(c, row): (squall_core::Configuration, &recording::Row)| {
        Ok(Record {
            kind: RecordKind::Trial,
            task,
            name: name.clone(),
            workload: description.clone(),
            device: device.clone(),
            toolchain: TOOLCHAIN.into(),
            tunable: RECORDED.into(),
            configuration: c.to_string(),
            outcome: row.outcome.clone(),
            cost: row.cost,
            seed: 0,
            time,
        })
    };
    let records = recording.space.iter().zip(&recording.rows).map(record);
    let Taken { new, known, refused, reasons } = store.append_checked(records)?;
    let failed = recording.rows.iter().filter(|r| !r.outcome.is_right()).count() as u64;
    let note = recording.note.clone();
    Ok(Imported { task, name, device, failed, new, known, refused, reasons, note })
}

/// The trials that `query` chooses as a recording. Others' forms hold one space: the trials must be
/// of one task, device, toolchain and tunable.
pub fn recorded(store: &Store, query: &Query, tunable: Option<&str>) -> Result<Recording, Error> {
    let mut records = store.query(&Query { kind: Some(RecordKind::Trial), ..query.clone() })?;
    if let Some(tunable) = tunable {
        retain_tunable(&mut records, tunable);
    }
    let Some(first) = records.first() else {
        return Err(Error::Nothing(
            "no trial is chosen; `squall records list` shows what there is".into(),
        ));
    };
    let group = |r: &Record| (r.task, r.device.clone(), r.toolchain.clone(), r.tunable.clone());
    if let Some(other) = records.iter().find(|r| group(r) != group(first)) {
        let show = |r: &Record| {
            format!("{} ({}), {}, {}, {}", r.task, r.name, r.device, r.toolchain, r.tunable)
        };
        return Err(Error::Input {
            place: store.path().display().to_string(),
            message: format!(
                "these forms hold one space, but several are chosen: {}; {}",
                show(first),
                show(other)
            ),
            hint: "choose one with --task, --device, --toolchain and --tunable".into(),
        });
    }
    let place = store.path().display().to_string();
    let pairs: Vec<Vec<Pair>> = records.iter().map(|r| pairs(&r.configuration).collect()).collect();
    let mut description = match Description::read(&place, first.workload.as_bytes()) {
        Ok(d) => d,
        Err(_) => seen(&pairs, &first.name),
    };
    if description.kernel.is_empty() {
        description.kernel = first.name.clone();
    }
    let mut trials = Vec::with_capacity(records.len());
    for (r, pairs) in records.iter().zip(&pairs) {
        let value = |k: &squall_core::space::Knob| {
            pairs.iter().find(|p| p.0 == k.name).map(|p| p.1.to_string())
        };
        let Some(values) = description
            .knobs
            .iter()
            .map(value)
            .collect::<Option<Vec<String>>>()
            .filter(|v| v.len() == pairs.len())
        else {
            return Err(Error::Input {
                place,
                message: format!("`{}` has other knobs than the other trials", r.configuration),
                hint: "were they made by different versions? choose some with --limit".into(),
            });
        };
        trials.push((values, r.outcome.clone(), r.cost));
    }
    Recording::new(&place, description, &first.device, trials).map_err(Error::Recording)
}

/// Keeps the records that have the name of a tunable. Where none has exactly that name, those are
/// kept whose tunable had it before or has it now; records with both names often have other knobs,
/// so exact ones are not mixed with them.
fn retain_tunable(records: &mut Vec<Record>, tunable: &str) {
    let now = canonical_tunable_name(tunable);
    let is_exact = records.iter().any(|r| r.tunable == tunable);
    records.retain(|r| match is_exact {
        true => r.tunable == tunable,
        false => canonical_tunable_name(&r.tunable) == now,
    });
}

/// A knob and a value of a configuration's text.
type Pair<'a> = (&'a str, Cow<'a, str>);

/// The space that trials show: all values that occur.
fn seen(trials: &[Vec<Pair>], name: &str) -> Description {
    let knobs = trials.first().into_iter().flatten().map(|(knob, _)| {
        let mut values: Vec<String> = Vec::new();
        for v in trials.iter().flatten().filter(|p| p.0 == *knob).map(|p| &p.1) {
            if !values.iter().any(|o| o == v) {
                values.push(v.to_string());
            }
        }
        knob_of_spellings(knob, &values)
    });
    let knobs = knobs.collect();
    Description {
        kernel: name.into(),
        problem: "null".into(),
        objective: "time".into(),
        knobs,
        conditions: Vec::new(),
    }
}

/// A recording in a form that others read.
pub fn text(recording: &Recording, format: Format) -> String {
    recording::write(recording, format)
}

/// Writes a recording to a file, packed where its name ends in `.gz`.
pub fn write(recording: &Recording, format: Format, path: &Path) -> Result<(), Error> {
    let fail = |source| Error::Write { path: path.into(), source };
    let mut bytes = recording::write(recording, format).into_bytes();
    if path.extension().is_some_and(|e| e == "gz") {
        bytes = recording::gzip(&bytes).map_err(fail)?;
    }
    put(path, &bytes)
}

/// Trials of a recording that ran.
pub fn ran(recording: &Recording) -> usize {
    recording.rows.iter().filter(|r| matches!(r.outcome, Outcome::Measured(_))).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::CpuCost;

    fn record(tunable: &str) -> Record {
        Record {
            kind: RecordKind::Trial,
            task: TaskId::of_text("a task", Objective::Time),
            name: "a task".into(),
            workload: String::new(),
            device: "a device".into(),
            toolchain: "none".into(),
            tunable: tunable.into(),
            configuration: "a=1".into(),
            outcome: Outcome::Infeasible("it has no kernel".into()),
            cost: CpuCost::default(),
            seed: 0,
            time: 0.0,
        }
    }

    #[test]
    fn trials_are_chosen_by_any_name_of_their_tunable() {
        for (stored, name, kept) in [
            (&["gpu_group", "gpu_tile"][..], "gpu_warpgroup", &["gpu_group"][..]),
            (&["gpu_warpgroup", "gpu_tile"], "gpu_group", &["gpu_warpgroup"]),
            (&["gpu_warpgroup", "gpu_group"], "gpu_group", &["gpu_group"]),
            (&["gpu_warpgroup", "gpu_group"], "gpu_warpgroup", &["gpu_warpgroup"]),
            (&["gpu_tile"], "gpu_group", &[]),
        ] {
            let mut records: Vec<Record> = stored.iter().map(|t| record(t)).collect();
            retain_tunable(&mut records, name);
            let names: Vec<&str> = records.iter().map(|r| r.tunable.as_str()).collect();
            assert_eq!(names, kept, "{name} among {stored:?}");
        }
    }
}
