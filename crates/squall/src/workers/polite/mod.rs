//! The polite worker: tunes while a machine is idle. When a kernel is used untuned, its task is
//! left in the store as a wish; the worker tunes wishes, the most costly first, as long as no other
//! program wants the machine.
//!
//! Child processes at the lowest priority do the work (`slice.rs`). Each makes a few trials and
//! stores every trial at once. The worker can therefore end a child at any moment and loses no more
//! than the trial that was running.

mod hours;
mod slice;

pub use hours::Hours;

use crate::base::error::Error;
use crate::target::target_context::{Context, TargetContext};
use crate::target::target_request::TargetRequest;
use crate::task::event::{Event, Listen};
use slice::Slice;
use squall_core::{Caches, RecordKind, TaskId, Workload};
use squall_measure::{Others, minute_of_day};
use squall_records::{Store, Wish};
use squall_search::TaskWeight;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The pause between two looks at other programs' use of the machine, while a slice runs and while
/// none runs.
const LOOK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_millis(1000));
/// The number of looks in a row that find other programs busy before a slice is ended.
const BUSY: u32 = 2;
/// How often the store is asked for wishes while there are none.
const AGAIN: Duration = Duration::from_secs(5);
/// Operations in a second, by which seconds become the unit of [`TaskWeight::expected_time`], which
/// is about one operation.
const OPERATIONS: f64 = 1e10;

/// How a machine is used while it is idle.
#[derive(Clone, Debug)]
pub struct PoliteRequest {
    /// The program that makes the trials: `squall`.
    pub program: PathBuf,
    /// The store with the wishes, which takes the trials.
    pub store: PathBuf,
    /// The device that kernels are tuned for.
    pub target: TargetRequest,
    /// Threads of a kernel.
    pub threads: usize,
    /// What the caches hold when a call is timed.
    pub caches: Caches,
    /// Trials after which a wish is served.
    pub trials: u64,
    /// Trials of a slice.
    pub slice: u64,
    /// When work is welcome; always if none.
    pub hours: Option<Hours>,
    /// Others are busy where they keep more cores than this.
    pub busy: f64,
    /// How long others must have been idle before work begins.
    pub calm: Duration,
    /// Whether it ends where no wish is left.
    pub until_served: bool,
    /// The words of a command of the program that is run where no wish is left: a fleet's worker,
    /// which ends by itself where it has nothing to do.
    pub otherwise: Option<Vec<String>>,
    /// Variables of that command's environment: what others may not see among its words.
    pub environment: Vec<(String, String)>,
}

impl PoliteRequest {
    /// A worker of the usual manners.
    pub fn new(program: impl Into<PathBuf>, store: impl Into<PathBuf>) -> PoliteRequest {
        PoliteRequest {
            program: program.into(),
            store: store.into(),
            target: TargetRequest::Cpu,
            threads: 1,
            caches: Caches::Warm,
            trials: 192,
            slice: 32,
            hours: None,
            busy: 0.3,
            calm: Duration::from_secs(5),
            until_served: false,
            otherwise: None,
            environment: Vec::new(),
        }
    }
}

/// The result of a polite worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Politely {
    /// Slices that were begun.
    pub slices: u64,
    /// Slices that gave way to other programs.
    pub gave_way: u64,
    /// Trials.
    pub trials: u64,
    /// Wishes that have all their trials by now.
    pub served: u64,
    /// Seconds in all.
    pub seconds: f64,
}

/// Serves the store's wishes while nothing else wants the machine, until `stop` is set.
///
/// # Errors
/// Where the machine cannot measure, or the store cannot be read.
pub fn serve_wishes(
    context: &Context,
    request: &PoliteRequest,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
) -> Result<Politely, Error> {
    if !request.target.is_cpu() {
        return Err(Error::Usage {
            message: "a polite worker tunes for this machine's CPU: how busy a GPU is it does not \
                      see"
            .into(),
            hint: "leave --polite or --target out".into(),
        });
    }
    let at = context.target(request.target, request.threads)?.with_caches(request.caches);
    at.device.can_time()?;
    // A store that cannot be used shows before the first wait.
    drop(Store::open(&request.store)?);
    let mut host = Host {
        request,
        at: &at,
        others: Others::new(),
        calm: None,
        busy: 0,
        hopeless: HashSet::new(),
        done: Politely::default(),
    };
    let start = Instant::now();
    host.work(stop, listen)?;
    host.done.seconds = start.elapsed().as_secs_f64();
    host.done.served = host.open_wishes()?.1;
    Ok(host.done)
}

/// The machine, and what is known of who wants it.
struct Host<'a> {
    request: &'a PoliteRequest,
    at: &'a TargetContext,
    others: Others,
    /// Since when others are idle.
    calm: Option<Instant>,
    /// Looks in a row that found others busy.
    busy: u32,
    /// Tasks of which nothing can be tuned.
    hopeless: HashSet<TaskId>,
    done: Politely,
}

impl Host<'_> {
    fn work(&mut self, stop: &AtomicBool, listen: &mut Listen<'_>) -> Result<(), Error> {
        let mut asked: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            let is_due = asked.is_none_or(|at| at.elapsed() >= AGAIN);
            if self.is_welcome() && is_due {
                match self.next()? {
                    Some(slice) => {
                        let is_command = slice.task().is_none();
                        let ended = self.run(slice, stop, listen)?;
                        // A command that ended by itself has nothing to do, or cannot do it.
                        if is_command && ended.is_some() {
                            if self.request.until_served {
                                return Ok(());
                            }
                            asked = Some(Instant::now());
                        }
                        continue;
                    }
                    None if self.request.until_served => return Ok(()),
                    None => asked = Some(Instant::now()),
                }
            }
            std::thread::sleep(LOOK.1);
            self.look(None);
        }
        Ok(())
    }

    /// Looks at what others do.
    fn look(&mut self, ours: Option<&Slice>) {
        let is_busy = self.others.look(ours.map(Slice::process)) > self.request.busy;
        self.busy = if is_busy { self.busy + 1 } else { 0 };
        if is_busy {
            self.calm = None;
        } else {
            self.calm.get_or_insert_with(Instant::now);
        }
    }

    fn is_in_hours(&self) -> bool {
        self.request.hours.is_none_or(|h| h.holds(minute_of_day()))
    }

    /// Whether work may begin.
    fn is_welcome(&self) -> bool {
        self.is_in_hours() && self.calm.is_some_and(|c| c.elapsed() >= self.request.calm)
    }

    /// The wishes of this device that lack trials, each with their number, the most worth serving
    /// first; and how many are served.
    fn open_wishes(&self) -> Result<(Vec<(Wish, u64)>, u64), Error> {
        let store = Store::open_read_only(&self.request.store)?;
        let (mut open, mut served) = (Vec::new(), 0);
        for wish in store.wishes(Some(&self.at.device_name()))? {
            let (device, toolchain) = (self.at.device_name(), &self.at.place.toolchain);
            let known = store.trials(wish.task, &device, toolchain)?;
            let known = known.iter().filter(|r| r.kind == RecordKind::Trial).count() as u64;
            if known >= self.request.trials {
                served += 1;
            } else if !self.hopeless.contains(&wish.task)
                && let Ok(workload) = Workload::parse(&wish.workload)
            {
                open.push((worth(&wish, &workload, known, self.request.slice), wish, known));
            }
        }
        open.sort_by(|a, b| b.0.total_cmp(&a.0));
        Ok((open.into_iter().map(|(_, wish, known)| (wish, known)).collect(), served))
    }

    /// The next slice, if there is work.
    fn next(&mut self) -> Result<Option<Slice>, Error> {
        let open = self.open_wishes()?.0;
        match (open.into_iter().next(), &self.request.otherwise) {
            (Some((wish, known)), _) => {
                let trials = self.request.slice.min(self.request.trials - known);
                Slice::of_wish(self.request, &wish, trials.max(1)).map(Some)
            }
            (None, Some(words)) => Slice::of_command(self.request, words).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Lets a slice run to its end, unless others want the machine; whether it succeeded, where it
    /// ended by itself.
    fn run(
        &mut self,
        mut slice: Slice,
        stop: &AtomicBool,
        listen: &mut Listen<'_>,
    ) -> Result<Option<bool>, Error> {
        self.done.slices += 1;
        listen(Event::Note(format!("others are idle: {}", slice.what())));
        self.others.restart(Some(slice.process()));
        let ended = loop {
            std::thread::sleep(LOOK.0);
            if let Some(is_fine) = slice.ended()? {
                break Some(is_fine);
            }
            self.look(Some(&slice));
            let is_over = self.busy >= BUSY || !self.is_in_hours();
            if is_over || stop.load(Ordering::Relaxed) {
                self.done.gave_way += u64::from(is_over);
                break None;
            }
        };
        let task = slice.task();
        let made = slice.end(stop, &mut |slice| {
            self.look(Some(slice));
            self.is_welcome()
        });
        self.done.trials += made;
        self.others.restart(None);
        match (ended, task) {
            (None, _) if !stop.load(Ordering::Relaxed) => {
                listen(Event::Note("others want the machine: the slice gave way".into()));
            }
            (Some(false), Some(task)) => {
                self.hopeless.insert(task);
                listen(Event::Trouble(format!(
                    "{task} cannot be tuned here; `squall tune` says why"
                )));
            }
            // All that there is of its space was tried: what is known of it is all there will be.
            (Some(true), Some(task)) if made == 0 => {
                self.hopeless.insert(task);
            }
            (Some(false), None) => listen(Event::Trouble(
                "the fleet's worker failed; `squall worker` without --polite says why".into(),
            )),
            _ => {}
        }
        Ok(ended)
    }
}

/// What serving a wish is worth: the time that it takes, and less the more is known of it.
fn worth(wish: &Wish, workload: &Workload, known: u64, slice: u64) -> f64 {
    let (flop, bytes) = (workload.flop(), workload.bytes().0);
    let weight = TaskWeight { count: wish.uses.max(1), flop, bytes };
    let seconds = wish.seconds.max(weight.expected_time() / OPERATIONS);
    seconds / (1.0 + known as f64 / slice.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::Objective;

    #[test]
    fn what_takes_most_time_and_is_known_least_is_worth_most() {
        let text = "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0)\noutput Y\n";
        let workload = Workload::parse(text).unwrap();
        let wish = |uses, seconds| Wish {
            task: TaskId::of_text("t", Objective::Time),
            name: "t".into(),
            workload: text.into(),
            device: "cpu".into(),
            uses,
            seconds,
            last: 0.0,
        };
        let of = |uses, seconds, known| worth(&wish(uses, seconds), &workload, known, 32);
        assert!(of(1, 2.0, 0) > of(1, 1.0, 0) && of(9, 0.0, 0) > of(1, 0.0, 0));
        assert!(of(1, 2.0, 64) < of(1, 1.0, 0));
        assert!(of(0, 0.0, 0) > 0.0);
    }
}
