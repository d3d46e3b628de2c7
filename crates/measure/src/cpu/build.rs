//! From source to library: one compiler run a kernel, several at a time, ahead of the measuring
//! but never far; what was built once in a laboratory is not built again.

use super::Toolchain;
use super::toolchain::first_error;
use crate::MeasureError;
use crate::cuda::Nvrtc;
use crate::process::pinned;
use squall_core::KernelSource;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Libraries kept for kernels that come back, as incumbents of rematches do.
const SHELF: usize = 512;

/// What became of a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Built {
    /// The library's file name in the laboratory's folder.
    Library(Arc<str>),
    /// The compiler refuses it, and why.
    Refused(String),
}

/// A build and its CPU seconds; `None` if it was cancelled.
pub(crate) type Build = Result<Option<(Built, f64)>, MeasureError>;

/// The identity of what a source compiles to, within one laboratory.
pub(crate) fn digest(k: &KernelSource) -> String {
    let mut h = blake3::Hasher::new();
    h.update(&[u8::from(k.openmp), u8::from(k.full_optimisation)]).update(k.source.as_bytes());
    for flag in &k.flags {
        h.update(b"\0").update(flag.as_bytes());
    }
    // How it is launched lies beside what it compiles to.
    for l in &k.launches {
        h.update(format!("\0{l:?}").as_bytes());
    }
    h.finalize().to_hex()[..24].to_string()
}

/// Compiles one kernel after another.
pub(crate) struct Builder<'a> {
    pub toolchain: &'a Toolchain,
    /// For CUDA C, where there is a GPU.
    pub nvrtc: Option<&'a Nvrtc>,
    pub folder: &'a Path,
    pub patience: Duration,
    pub cancel: &'a AtomicBool,
}

impl Builder<'_> {
    /// Compiles a kernel. An error means that no kernel would build.
    pub fn build(&self, kernel: &KernelSource) -> Build {
        match self.nvrtc {
            Some(nvrtc) if kernel.language.is_launched() => {
                return nvrtc.build(self.folder, kernel, self.patience);
            }
            _ => {}
        }
        let name = digest(kernel);
        let (source, library) =
            (self.folder.join(format!("{name}.c")), self.folder.join(format!("{name}.so")));
        fs::write(&source, &kernel.source).map_err(|e| MeasureError::folder(&source, &e))?;
        let mut args: Vec<&str> = vec!["-fPIC", "-shared"];
        args.extend(self.toolchain.optimisation(kernel));
        args.extend(self.toolchain.flags().iter().map(String::as_str));
        if kernel.openmp {
            args.push("-fopenmp");
        }
        args.extend(kernel.flags.iter().map(String::as_str));
        let c = self.toolchain.compile(
            self.folder,
            &args,
            &source,
            &library,
            self.patience,
            Some(self.cancel),
        )?;
        let _ = fs::remove_file(&source);
        if c.killed && self.cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if c.ok && library.is_file() {
            return Ok(Some((Built::Library(format!("{name}.so").into()), c.cpu)));
        }
        // Whose fault is it? A full disk or a compiler that went away would refuse everything.
        for system in ["No space left on device", "Read-only file system", "Disk quota exceeded"] {
            if c.said.contains(system) {
                return Err(MeasureError::Folder {
                    path: self.folder.into(),
                    reason: system.into(),
                });
            }
        }
        let check = self.toolchain.check(self.folder, Some(self.cancel))?;
        Ok(Some((Built::Refused(first_error(&c.said)), c.cpu + check)))
    }
}

/// What was built in this laboratory.
#[derive(Default)]
pub(crate) struct Shelf {
    known: HashMap<String, Built>,
    order: VecDeque<String>,
}

impl Shelf {
    pub fn get(&self, digest: &str) -> Option<&Built> {
        self.known.get(digest)
    }

    pub fn put(&mut self, digest: String, built: Built) {
        if self.known.insert(digest.clone(), built).is_none() {
            self.order.push_back(digest);
        }
    }

    /// Removes the oldest. Call it while no library is waiting to be run.
    pub fn trim(&mut self, folder: &Path) {
        while self.order.len() > SHELF {
            if let Some(Built::Library(file)) =
                self.order.pop_front().and_then(|d| self.known.remove(&d))
            {
                let _ = fs::remove_file(folder.join(&*file));
            }
        }
    }
}

/// The way from builders to the one who measures: jobs are taken in order, at most `ahead` before
/// the one being measured.
pub(crate) struct Belt<'a> {
    jobs: &'a [KernelSource],
    ahead: usize,
    idle: Option<Idle<'a>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// What the one who measures can do while it waits: nothing is measured then, so that a compiler
/// may have its cores.
pub(crate) struct Idle<'a> {
    pub builder: Builder<'a>,
    pub cores: &'a [usize],
}

struct State {
    next: usize,
    wanted: usize,
    built: Vec<Option<Build>>,
    closed: bool,
}

impl<'a> Belt<'a> {
    /// `known[i]` is set where nothing needs to be built for job `i`.
    pub fn new(
        jobs: &'a [KernelSource],
        known: Vec<bool>,
        ahead: usize,
        idle: Option<Idle<'a>>,
    ) -> Belt<'a> {
        let built = known.iter().map(|&k| k.then_some(Ok(None))).collect();
        Belt {
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

    /// The next job that nobody builds; none where the belt is closed, at its end or far enough
    /// ahead.
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
        let build = builder.build(&self.jobs[i]);
        self.lock().built[i] = Some(build);
        self.changed.notify_all();
    }

    /// A builder's life: builds until the belt is closed or nothing is left.
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

    /// Job `i`'s build, waiting for it and building others meanwhile; `None` when `stop` is set
    /// first, or when nothing needed building.
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
            state = self
                .changed
                .wait_timeout(state, Duration::from_millis(50))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until all are built or `stop` is set.
    pub fn settle(&self, stop: &AtomicBool) {
        let mut state = self.lock();
        while !stop.load(Ordering::Relaxed) && state.built.iter().any(Option::is_none) {
            state = self
                .changed
                .wait_timeout(state, Duration::from_millis(50))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Closes a belt when it goes, however it goes: builders must not wait for ever.
pub(crate) struct Closing<'a, 'b>(pub &'a Belt<'b>, pub &'a AtomicBool);

impl Drop for Closing<'_, '_> {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}
