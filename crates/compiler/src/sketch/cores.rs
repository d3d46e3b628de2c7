//! A parallel map over the machine's cores, for building the spaces (all legal values of the knobs)
//! of several sketches at once. Building the space of one takes milliseconds; when a user only asks
//! for advice on a kernel, doing so one after another would be felt. Input: a list of items and a
//! function; output: the results in order. `tile/mod.rs` calls this for its sketches.

use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread::available_parallelism;

/// The number of cores, for which the system opens several files each time that it is asked.
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The results of `make` for all items, in the items' order, without those for which it gives
/// `None`.
pub fn made_on_all_cores<T: Send, R: Send>(
    items: Vec<T>,
    make: &(dyn Fn(T) -> Option<R> + Sync),
) -> Vec<R> {
    let threads = CORES.min(items.len());
    if threads < 2 {
        return items.into_iter().filter_map(make).collect();
    }
    let each = items.len().div_ceil(threads);
    let mut rest = items.into_iter();
    std::thread::scope(|scope| {
        let mut parts = Vec::new();
        while rest.len() > 0 {
            let part: Vec<T> = rest.by_ref().take(each).collect();
            parts.push(scope.spawn(move || part.into_iter().filter_map(make).collect::<Vec<R>>()));
        }
        let made = parts.into_iter().map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic)));
        made.flatten().collect()
    })
}
