//! The verb behind `squall export --network NAME --watch`: keeps an exported C library up to date
//! with the store. Whenever a task of the model gets another winner, a new version of the library
//! is written beside the previous one, and the link `current` is renamed to it. An application
//! follows the link by `squall_watch.h`.

use super::export_network::{LibraryRequest, export_network};
use crate::base::error::Error;
use crate::base::files::put_in_folder;
use crate::target::target_context::Context;
use crate::task::event::{Event, Listen};
use serde_json::Value;
use squall_core::TaskId;
use squall_records::Store;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The header by which an application follows the link.
const HEADER: (&str, &str) = ("squall_watch.h", include_str!("../ship/library/squall_watch.h"));
/// The link that names the newest version.
const LINK: &str = "current";
/// The pause between two looks whether the watch shall end.
const LOOK: Duration = Duration::from_millis(100);

/// A library to keep up to date.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchRequest {
    /// The model and the folder, in which each version has a folder of its own.
    pub library: LibraryRequest,
    /// How often the store is looked at.
    pub every: Duration,
    /// The number of versions after which the watch ends; never if none.
    pub versions: Option<u64>,
}

/// A version that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// Its number, from 1.
    pub number: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// The link, which names it now.
    pub link: PathBuf,
    /// The library's description.
    pub description: Value,
}

/// The winner of each task: tunable and configuration.
type Winners = BTreeMap<TaskId, (String, String)>;

/// Writes a version now, and another whenever the store's winners of this device have changed,
/// until `stop` is set; how many were written. A version that cannot be written ends the watch if
/// it is the first one, and is said and tried again with the next change otherwise.
pub fn watch(
    context: &Context,
    request: &WatchRequest,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
    each: &mut dyn FnMut(&Version),
) -> Result<u64, Error> {
    let out = &request.library.out;
    std::fs::create_dir_all(out).map_err(|source| Error::Write { path: out.clone(), source })?;
    put_in_folder(&out.join(HEADER.0), HEADER.1.as_bytes())?;
    let (mut number, mut written) = (latest(out)?, 0);
    let (mut last, mut seen): (Option<Winners>, Option<Winners>) = (None, None);
    while !stop.load(Ordering::Relaxed) && request.versions.is_none_or(|n| written < n) {
        let winners = match winners(context, request) {
            Ok(winners) => winners,
            Err(e) if last.is_none() => return Err(e),
            // A store that another writes to, or a model that is being replaced: it passes.
            Err(e) => {
                listen(Event::Trouble(e.to_string()));
                pause(request.every, stop);
                continue;
            }
        };
        // While a task is tuned its winner changes every few trials: what two looks saw counts.
        let is_settled = last.is_none() || seen.as_ref() == Some(&winners);
        let is_new = last.as_ref() != Some(&winners);
        seen = Some(winners.clone());
        if is_new && is_settled {
            number += 1;
            match version(context, request, number, listen) {
                Ok(version) => {
                    each(&version);
                    written += 1;
                }
                Err(e) if last.is_none() => return Err(e),
                Err(e) => listen(Event::Trouble(format!("no version {number}: {e}"))),
            }
            last = Some(winners);
            continue;
        }
        pause(request.every, stop);
    }
    Ok(written)
}

/// Waits, but not beyond a stop.
fn pause(time: std::time::Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
}

/// The present winners of the model's tasks on this device.
fn winners(context: &Context, request: &WatchRequest) -> Result<Winners, Error> {
    let wanted = &request.library.network;
    let at = context.target(wanted.target, wanted.threads)?;
    let there = wanted.store.as_ref().filter(|p| p.exists());
    let Some(store) = there.map(Store::open_read_only).transpose()? else {
        return Ok(Winners::new());
    };
    let input = wanted.input.load_tuned(context, Some(&store), wanted.target, wanted.threads)?;
    let held = store.best(&at.place.records())?.into_iter();
    let ours = held.filter(|r| input.tasks().iter().any(|t| t.id == r.task));
    Ok(ours.map(|r| (r.task, (r.tunable, r.configuration))).collect())
}

/// Writes a version into a folder of its own, and renames the link to it.
fn version(
    context: &Context,
    request: &WatchRequest,
    number: u64,
    listen: &mut Listen<'_>,
) -> Result<Version, Error> {
    let out = &request.library.out;
    let name = folder_of(number);
    let folder = out.join(&name);
    let library = LibraryRequest { out: folder.clone(), ..request.library.clone() };
    let done = export_network(context, &library, listen)?;
    let (link, half) = (out.join(LINK), out.join(format!("{LINK}.half")));
    let _ = std::fs::remove_file(&half);
    std::os::unix::fs::symlink(&name, &half)
        .and_then(|()| std::fs::rename(&half, &link))
        .map_err(|source| Error::Write { path: link.clone(), source })?;
    Ok(Version { number, folder, link, description: done.description })
}

fn folder_of(number: u64) -> String {
    format!("version-{number:06}")
}

/// The number of the newest version in a folder; 0 where it has none.
fn latest(out: &Path) -> Result<u64, Error> {
    let entries =
        std::fs::read_dir(out).map_err(|source| Error::Read { path: out.into(), source })?;
    let numbers = entries.flatten().filter_map(|e| {
        e.file_name().to_string_lossy().strip_prefix("version-")?.parse::<u64>().ok()
    });
    Ok(numbers.max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_go_on_from_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(latest(folder.path()).unwrap(), 0);
        for name in [folder_of(2), folder_of(11), "version-x".into(), "other".into()] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(latest(folder.path()).unwrap(), 11);
    }
}
