//! A measurer whose device is at the other end of a connection, such as a process behind pipes or a
//! machine behind a socket. It sends each call of the `Measurer` trait as a message (`wire.rs`) and
//! reads the results; the other end runs [`serve()`](crate::serve()) over any measurer.

use crate::wire::{Reply, Request, receive, send};
use squall_core::{
    CpuCost, Job, JobResult, Measurer, MeasurerError, MeasurerIdentity, Rematch, TaskSetup,
};
use std::borrow::Cow;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The pause between two looks whether a run shall stop.
const LOOK: Duration = Duration::from_millis(10);

/// Sends every message to the other end.
pub struct PipedMeasurer<R, W> {
    input: R,
    output: W,
    identity: MeasurerIdentity,
    needs_source: bool,
    /// The overhead that the other end reported last.
    overhead: CpuCost,
}

impl<R: BufRead + Send, W: Write + Send> PipedMeasurer<R, W> {
    /// Waits for the other end's greeting.
    pub fn connect(mut input: R, output: W) -> Result<PipedMeasurer<R, W>, MeasurerError> {
        match reply(&mut input)? {
            Reply::Hello { identity, needs_source, overhead } => {
                Ok(PipedMeasurer { input, output, identity, needs_source, overhead })
            }
            _ => Err(unexpected()),
        }
    }

    /// Reads the replies to a request, up to its end.
    fn replies(&mut self, each: &mut dyn FnMut(Reply)) -> Result<(), MeasurerError> {
        self.overhead = replies(&mut self.input, each)?;
        Ok(())
    }
}

impl<R: BufRead + Send, W: Write + Send> Measurer for PipedMeasurer<R, W> {
    fn identity(&self) -> &MeasurerIdentity {
        &self.identity
    }

    fn needs_source(&self) -> bool {
        self.needs_source
    }

    fn set_task(&mut self, task: &TaskSetup) -> Result<(), MeasurerError> {
        send(&mut self.output, Request::SetTask(Cow::Borrowed(task)))?;
        self.replies(&mut |_| {})
    }

    fn run(
        &mut self,
        jobs: &[Job],
        stop: &AtomicBool,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        // The other end would begin before it hears of a stop that came first.
        let jobs = if stop.load(Ordering::Relaxed) { &[] } else { jobs };
        send(&mut self.output, Request::Run(Cow::Borrowed(jobs)))?;
        let (input, output) = (&mut self.input, &mut self.output);
        let done = AtomicBool::new(false);
        self.overhead = std::thread::scope(|scope| {
            let watch = scope.spawn(|| pass_on(stop, output, &done));
            let _over = Over { done: &done, watch: watch.thread().clone() };
            replies(input, &mut |reply| {
                if let Reply::Result(result) = reply {
                    each(result);
                }
            })
        })?;
        Ok(())
    }

    fn rematch(&mut self, incumbent: &Job, challenger: &Job) -> Result<Rematch, MeasurerError> {
        let (incumbent, challenger) = (Cow::Borrowed(incumbent), Cow::Borrowed(challenger));
        send(&mut self.output, Request::Rematch { incumbent, challenger })?;
        let mut rematch = None;
        self.replies(&mut |reply| {
            if let Reply::Rematch(m) = reply {
                rematch = Some(*m);
            }
        })?;
        rematch.ok_or_else(unexpected)
    }

    fn overhead(&self) -> CpuCost {
        self.overhead
    }
}

/// Tells the other end once `stop` is set, unless the run is `done` first.
fn pass_on(stop: &AtomicBool, output: &mut impl Write, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            // Where the connection is lost, reading replies says so.
            let _ = send(output, Request::Stop);
            return;
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Ends the thread that looks for `stop`, also where a panic or an error ends the run.
struct Over<'a> {
    done: &'a AtomicBool,
    watch: Thread,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        self.watch.unpark();
    }
}

fn unexpected() -> MeasurerError {
    MeasurerError::Connection("the other end answers what was not asked for".into())
}

fn reply(input: &mut impl BufRead) -> Result<Reply, MeasurerError> {
    receive(input)?.ok_or_else(|| MeasurerError::Connection("the other end closed it".into()))
}

/// Hands the replies to a request on, and gives the overhead that its end tells.
fn replies(
    input: &mut impl BufRead,
    each: &mut dyn FnMut(Reply),
) -> Result<CpuCost, MeasurerError> {
    loop {
        match reply(input)? {
            Reply::End { error: None, overhead } => return Ok(overhead),
            Reply::End { error: Some(e), .. } => return Err(e),
            other => each(other),
        }
    }
}
