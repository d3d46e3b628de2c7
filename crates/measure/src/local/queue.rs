//! The build queue: builder threads compile a batch's kernels in order, ahead of the thread that
//! measures them, but at most a set number ahead. The measuring thread takes builds from it and,
//! where no core is spare, compiles while it waits.

use super::backend::{Backend, Host};
use crate::artifact::{Build, BuildSite};
use crate::process::pinned;
use squall_core::KernelSource;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A builder, which compiles one kernel after another.
#[derive(Clone, Copy)]
pub(super) struct Builder<'a> {
    pub backend: &'a dyn Backend,
    pub host: &'a Host,
    pub site: BuildSite<'a>,
}

impl Builder<'_> {
    /// Compiles a kernel. An error means that no kernel would build.
    pub fn build(&self, kernel: &KernelSource) -> Build {
        self.backend.build(self.host, kernel, self.site)
    }
}

/// The jobs on their way from the builders to the thread that measures. Builders take them in
/// order, at most `ahead` before the job being measured.
pub(super) struct BuildQueue<'a> {
    jobs: &'a [&'a KernelSource],
    ahead: usize,
    idle: Option<Idle<'a>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How the measuring thread builds while it waits. Nothing is measured then, so a compiler may have
/// the measured cores.
pub(super) struct Idle<'a> {
    pub builder: Builder<'a>,
    pub cores: &'a [usize],
}

struct State {
    next: usize,
    wanted: usize,
    built: Vec<Option<Build>>,
    closed: bool,
}

impl<'a> BuildQueue<'a> {
    /// `known[i]` is set where nothing needs to be built for job `i`.
    pub fn new(
        jobs: &'a [&'a KernelSource],
        known: Vec<bool>,
        ahead: usize,
        idle: Option<Idle<'a>>,
    ) -> BuildQueue<'a> {
        let built = known.iter().map(|&k| k.then_some(Ok(None))).collect();
        BuildQueue {
            jobs,
            ahead,
            idle,
            state: Mutex::new(State { next: 0, wanted: 0, built, closed: false }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements: a panicking builder leaves nothing half
        // done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job that no builder has taken. None is left where the queue is closed, at its end
    /// or far enough ahead.
    fn claim(&self, state: &mut State) -> Option<usize> {
        while state.next < state.built.len() && state.built[state.next].is_some() {
            state.next += 1;
        }
        let i = state.next;
        let free = !state.closed && i < state.built.len() && i <= state.wanted + self.ahead;
        free.then(|| {
            state.next += 1;
            i
        })
    }

    /// Builds a claimed job.
    fn make(&self, builder: &Builder, i: usize) {
        let build = builder.build(self.jobs[i]);
        self.lock().built[i] = Some(build);
        self.changed.notify_all();
    }

    /// The loop of a builder's thread: it builds until the queue is closed or nothing is left.
    pub fn work(&self, builder: &Builder) {
        let mut state = self.lock();
        loop {
            if let Some(i) = self.claim(&mut state) {
                drop(state);
                self.make(builder, i);
                state = self.lock();
            } else if state.closed || state.next >= state.built.len() {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Job `i`'s build. The caller waits for it and builds other jobs meanwhile. `None` when `stop`
    /// is set first, or when nothing needed building.
    pub fn take(&self, i: usize, stop: &AtomicBool) -> Build {
        let mut state = self.lock();
        state.wanted = state.wanted.max(i);
        self.changed.notify_all();
        loop {
            if let Some(build) = state.built[i].take() {
                state.built[i] = Some(Ok(None));
                return build;
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if let Some(idle) = &self.idle
                && let Some(other) = self.claim(&mut state)
            {
                drop(state);
                pinned(idle.cores, || self.make(&idle.builder, other))
                    .unwrap_or_else(|panic| resume_unwind(panic));
                state = self.lock();
                continue;
            }
            state = self.pause(state);
        }
    }

    /// Waits until all are built or `stop` is set.
    pub fn wait_for_all(&self, stop: &AtomicBool) {
        let mut state = self.lock();
        while !stop.load(Ordering::Relaxed) && state.built.iter().any(Option::is_none) {
            state = self.pause(state);
        }
    }

    /// Waits for a build, or a moment: whether to stop is to be looked at now and then.
    fn pause<'g>(&self, state: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        self.changed
            .wait_timeout(state, Duration::from_millis(50))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

/// Closes a queue and cancels its builds when it is dropped, also by a panic or an error: builders
/// must not wait for ever.
pub(super) struct CloseOnDrop<'a, 'b> {
    pub queue: &'a BuildQueue<'b>,
    pub cancel: &'a AtomicBool,
}

impl Drop for CloseOnDrop<'_, '_> {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
    }
}
