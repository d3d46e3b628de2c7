//! Wishes: tasks whose kernels were used without having been tuned on the device. Running,
//! exporting and asking for advice leave them in the store, with the number of uses and the seconds
//! that the kernels took; a polite worker (`polite/`) tunes the most costly ones while the machine
//! is idle.

use crate::inference::network::{Layer, LayerKind};
use crate::predict::choose::{Chosen, Origin};
use crate::target::target_context::TargetContext;
use squall_core::{Task, TaskId};
use squall_records::{Store, Wish};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// The longest wait for another process's lock on the store; after it the wishes are dropped, since
/// they are only hints.
const LOCKED: Duration = Duration::from_secs(1);

/// The wish for a task that was used on a device: how often, and the seconds that its kernel took.
pub(crate) fn wish(task: &Task, at: &TargetContext, uses: u64, seconds: f64) -> Wish {
    Wish {
        task: task.id,
        name: task.name.clone(),
        workload: task.workload.to_string(),
        device: at.device_name(),
        uses,
        seconds,
        last: crate::base::clock::now(),
    }
}

/// The wishes that a use of kernels leaves: one for each kernel that was not tuned here, with the
/// number of uses and the seconds that it took in them.
pub(crate) fn wishes_of(
    kernels: &[Chosen],
    at: &TargetContext,
    uses: u64,
    seconds: &HashMap<TaskId, f64>,
) -> Vec<Wish> {
    let is_wished = |k: &&Chosen| {
        let is_tuned = matches!(&k.origin, Origin::Tuned(r) if !r.is_untuned());
        !is_tuned && k.task.workload.foreign.is_none()
    };
    let spent = |k: &Chosen| seconds.get(&k.task.id).copied().unwrap_or(0.0);
    kernels.iter().filter(is_wished).map(|k| wish(&k.task, at, uses, spent(k))).collect()
}

/// The seconds that each task took in a number of inferences with these steps.
pub(crate) fn seconds_of(layers: &[Layer], inferences: u64) -> HashMap<TaskId, f64> {
    let mut all = HashMap::new();
    for l in layers.iter().filter(|l| l.kind == LayerKind::Kernel) {
        if let Some(task) = l.task {
            *all.entry(task).or_insert(0.0) += l.best_ns as f64 * 1e-9 * inferences as f64;
        }
    }
    all
}

/// Leaves wishes in a store that is there. One that cannot be written to, or that another process
/// holds, goes without: what was asked for was done all the same.
pub(crate) fn leave(store: Option<&Path>, wishes: &[Wish], at: &TargetContext) -> bool {
    let Some(path) = store.filter(|_| !wishes.is_empty() && !at.place.device.is_emulated()) else {
        return false;
    };
    path.exists() && Store::open_within(path, LOCKED).and_then(|s| s.add_wishes(wishes)).is_ok()
}
