//! A parallel map over the machine's cores, for building the spaces (all legal values of the knobs)
//! of several sketches, or of several tasks' sketches, at once. Building the space of one takes
//! milliseconds; when a user only asks for advice on a kernel, doing so one after another would be
//! felt. Input: items and a function of one; output: the results in the order of the items.
//! `sketch/tile/mod.rs` calls this for its sketches, `squall` for a model's tasks.

use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

/// The number of cores, for which the system opens several files each time that it is asked.
static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The results of `make` for all items. A core that is done with an item takes the next.
pub fn on_all_cores<T: Sync, R: Send>(items: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = CORES.min(items.len());
    if threads < 2 {
        return items.iter().map(make).collect();
    }
    let next = AtomicUsize::new(0);
    let some = || {
        let mut made = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else { return made };
            made.push((i, make(item)));
        }
    };
    let mut all: Vec<(usize, R)> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        let made = parts.into_iter().map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic)));
        made.flatten().collect()
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::on_all_cores;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(
            on_all_cores(&items, |i| i * 2),
            items.iter().map(|i| i * 2).collect::<Vec<_>>()
        );
        assert!(on_all_cores(&[] as &[u32], |i| *i).is_empty());
    }
}
