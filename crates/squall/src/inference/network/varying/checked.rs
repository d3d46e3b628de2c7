//! Checks of kernels over a range against their references. Input: a task's text over extents, a
//! kernel's text, and extents; output: whether the kernel is right at all of them. What runs is
//! the text with its numbers in it, which is what the kernel computes at that extent, in a process
//! of its own beside guarded memory (`measure`).

use super::varying_text::VaryingText;
use crate::base::error::Error;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::TaskState;
use squall_core::{Bytes, CandidateText, Job, KernelSource, Measurer, Task, Workload};
use squall_measure::LocalMeasurer;
use std::sync::atomic::AtomicBool;

/// The seed of inputs.
const SEED: u64 = 59;

/// Runs kernels and their references.
pub struct Checker<'a> {
    at: &'a TargetContext,
    measurer: Option<LocalMeasurer>,
}

/// A kernel that is checked.
pub struct Checked<'a> {
    /// The name of its task, for errors.
    pub name: &'a str,
    /// The task's text.
    pub workload: &'a VaryingText,
    /// The kernel's text.
    pub text: &'a VaryingText,
    /// The kernel, of which the text is taken from `text`.
    pub source: &'a KernelSource,
    /// The scratch memory that it has.
    pub scratch: Bytes,
    /// The configuration, for errors.
    pub configuration: &'a str,
}

impl<'a> Checker<'a> {
    /// Runs on a target.
    pub fn new(at: &'a TargetContext) -> Checker<'a> {
        Checker { at, measurer: None }
    }

    /// Whether a kernel is right at all of some extents; says at which it is not, and why.
    pub fn check(&mut self, kernel: &Checked<'_>, extents: &[i64]) -> Result<(), (i64, String)> {
        for extent in extents {
            match self.is_right_at(kernel, *extent) {
                Ok(None) => {}
                Ok(Some(why)) => {
                    return Err((*extent, format!("at {extent} its kernel is wrong: {why}")));
                }
                Err(e) => return Err((*extent, format!("at {extent} it cannot be checked: {e}"))),
            }
        }
        Ok(())
    }

    fn is_right_at(&mut self, k: &Checked<'_>, extent: i64) -> Result<Option<String>, Error> {
        let nothing = |what: &str| Error::Nothing(format!("{}: {what}", k.name));
        let text = k.workload.at(extent).ok_or_else(|| nothing("an extent is too large"))?;
        let workload = Workload::parse(&text).map_err(|e| nothing(&e.to_string()))?;
        let text = k.text.at(extent).ok_or_else(|| nothing("a number is too large"))?;
        // Scratch memory is what the largest extent needs.
        let text = with_scratch(&text, &k.source.symbol, k.scratch);
        let source = KernelSource { source: text, workspace: k.scratch, ..k.source.clone() };
        let task = Task::new(k.name, workload);
        let measurer = match &mut self.measurer {
            Some(m) => m,
            None => self.measurer.insert(self.at.verifier()?),
        };
        measurer.set_timed(false);
        let kernels = TaskKernels::empty(&task, &self.at.target);
        measurer.set_task(&TaskState::new(&task, kernels).setup(SEED))?;
        let job = Job::new(CandidateText::new("range", k.configuration), source);
        let mut outcome = None;
        measurer.run(&[job], &AtomicBool::new(false), &mut |r| outcome = Some(r.outcome))?;
        let outcome = outcome.ok_or_else(|| nothing("no outcome"))?;
        Ok((!outcome.is_right()).then(|| format!("{outcome:?}")))
    }
}

/// A kernel's text that announces so much scratch memory.
fn with_scratch(text: &str, symbol: &str, bytes: Bytes) -> String {
    let head = format!("size_t {symbol}_workspace_bytes(void) {{ return ");
    match text.split_once(&head).map(|(before, rest)| (before, rest.split_once(';'))) {
        Some((before, Some((_, behind)))) => format!("{before}{head}{};{behind}", bytes.0),
        _ => text.into(),
    }
}
