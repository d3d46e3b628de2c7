//! A map over a slice on several threads, whose results come in the slice's order, so that the
//! number of threads never changes a predictor. Training and evaluation in this crate encode and
//! score problems by it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Applies `f` to every element, each on a thread of its own: for a few that take long.
pub fn each<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|s| {
        let f = &f;
        let all: Vec<_> = items.iter().map(|x| s.spawn(move || f(x))).collect();
        // A panic of one is passed on, not swallowed.
        all.into_iter().map(|t| t.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    })
}

/// Applies `f` to every element; each thread has a scratch of its own.
pub fn map<T: Sync, R: Send, Scratch: Default>(
    threads: usize,
    items: &[T],
    f: impl Fn(&T, &mut Scratch) -> R + Sync,
) -> Vec<R> {
    const PART: usize = 8;
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Vec<R>)>> = Mutex::new(Vec::new());
    let work = || {
        let mut scratch = Scratch::default();
        loop {
            let first = next.fetch_add(PART, Ordering::Relaxed);
            if first >= items.len() {
                break;
            }
            let part = items[first..(first + PART).min(items.len())]
                .iter()
                .map(|x| f(x, &mut scratch))
                .collect();
            if let Ok(mut done) = done.lock() {
                done.push((first, part));
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads.max(1) {
            s.spawn(work);
        }
        work();
    });
    let mut parts = done.into_inner().unwrap_or_default();
    parts.sort_unstable_by_key(|(first, _)| *first);
    parts.into_iter().flat_map(|(_, part)| part).collect()
}
