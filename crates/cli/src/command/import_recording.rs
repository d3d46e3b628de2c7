//! Recordings for `squall import`: what others measured becomes trials of the store.

use crate::failure::Failure;
use crate::terminal::{say, table};
use serde_json::{Value, json};
use squall::exchange::{Imported, import};
use squall::frontend::recording::{Description, File, Recording, read_any};
use squall::{Error, Store};
use std::path::{Path, PathBuf};

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
        let bytes =
            std::fs::read(path).map_err(|source| Error::Read { path: path.into(), source })?;
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

/// Reads recordings, each with the stem of its file's name, and fits descriptions to them.
pub fn read(paths: &[PathBuf]) -> Result<Vec<(String, Recording)>, Failure> {
    let mut files = Files::default();
    paths.iter().try_for_each(|f| files.read(f))?;
    for (place, t1) in &files.descriptions {
        if !files.recordings.iter().any(|(_, _, r)| r.fits(t1)) {
            let hint = "name it together with the recording that it describes";
            return Err(Failure::new(
                format!("{place}: no recording here has the parameters of this T1 description"),
                Some(hint.into()),
            ));
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
    Ok(described)
}

/// Takes recordings over.
pub fn take(recordings: &[(String, Recording)], store: &Path) -> Result<Vec<Imported>, Failure> {
    if recordings.is_empty() {
        return Ok(Vec::new());
    }
    let store = Store::open(store)?;
    recordings.iter().map(|(stem, r)| Ok(import(r, stem, &store)?)).collect()
}

/// What was taken over, as JSON.
pub fn json(done: &[Imported]) -> Value {
    let one = |i: &Imported| json!({"task": i.task.to_string(), "name": i.name, "device": i.device, "failed": i.failed, "new": i.new, "known": i.known});
    done.iter().map(one).collect()
}

/// Says what was taken over.
pub fn show(done: &[Imported]) -> Result<(), Failure> {
    let mut t = table(&["task", "id", "trials", "failed", "new", "device"]);
    for i in done {
        t.add_row([
            i.name.clone(),
            i.task.to_string(),
            (i.new + i.known).to_string(),
            i.failed.to_string(),
            i.new.to_string(),
            i.device.clone(),
        ]);
    }
    say(t)
}
