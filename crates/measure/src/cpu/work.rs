//! A portion of jobs on its way through builders and seats: by one seat in order, or by several
//! side by side, of whose outcomes the caller hears in the order of the jobs all the same.

use super::build::{Belt, Built, Shelf};
use super::pace::Slowness;
use super::seat::{Rules, Seat, TaskState};
use crate::MeasureError;
use squall_core::{CpuCost, FailStage, KernelSource, Outcome};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Jobs are looked at again once their group took this long: shared machines are slow for moments
/// of this order.
const GROUP: Duration = Duration::from_millis(1500);

/// A second look sooner than this would fall into the same moment.
const APART: Duration = Duration::from_millis(250);

/// Slower than the task's best by more than this, a job is not looked at again.
const CONTENDER: f64 = 1.5;

/// The same of jobs that were timed beside a pacemaker: their times are surer.
const PACED_CONTENDER: f64 = 1.2;

/// A job that was measured and not yet reported.
struct Look {
    job: usize,
    at: Instant,
    outcome: Outcome,
    /// Of the machine, by its pacemaker.
    slowness: Option<Slowness>,
    cost: CpuCost,
}

/// What is to be done, and where what was built stands.
pub(super) struct Work<'a, 'b> {
    pub jobs: &'a [KernelSource],
    pub digests: &'a [String],
    pub belt: &'a Belt<'b>,
    pub shelf: &'a Mutex<&'a mut Shelf>,
    pub task: &'a TaskState,
    pub rules: &'a Rules<'a>,
    pub stop: &'a AtomicBool,
}

impl Work<'_, '_> {
    /// Job `i`, once it is built; nothing after `stop` was set.
    fn one(&self, seat: &mut Seat, i: usize) -> Result<Option<Look>, MeasureError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut cost = CpuCost::default();
        let Some(built) = self.built(i, &mut cost, &|| false)? else { return Ok(None) };
        let (outcome, slowness) = self.measure(seat, i, built, &mut cost)?;
        Ok(Some(Look { job: i, at: Instant::now(), outcome, slowness, cost }))
    }

    fn measure(
        &self,
        seat: &mut Seat,
        i: usize,
        built: Built,
        cost: &mut CpuCost,
    ) -> Result<(Outcome, Option<Slowness>), MeasureError> {
        match built {
            Built::Library(file) => seat.measure(self.rules, self.task, &self.jobs[i], &file, cost),
            Built::Refused(detail) => {
                Ok((Outcome::Failed { stage: FailStage::Build, detail }, None))
            }
        }
    }

    /// What became of a job's source. The like of it may be on another seat's way to the shelf, for
    /// which this one waits unless all is `over`.
    fn built(
        &self,
        i: usize,
        cost: &mut CpuCost,
        over: &dyn Fn() -> bool,
    ) -> Result<Option<Built>, MeasureError> {
        let shelf = || self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((built, cpu)) = self.belt.take(i, self.stop)? {
            cost.build = cpu;
            shelf().put(self.digests[i].clone(), built);
        }
        loop {
            let found = shelf().get(&self.digests[i]).cloned();
            if found.is_some()
                || self.stop.load(Ordering::Relaxed)
                || over()
                || !self.digests[..i].contains(&self.digests[i])
            {
                return Ok(found);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// All jobs in order, those near the best measured again a moment later.
    pub fn twice(
        &self,
        seat: &mut Seat,
        each: &mut dyn FnMut(usize, Outcome, CpuCost),
    ) -> Result<(), MeasureError> {
        let mut group = Vec::new();
        let mut report =
            |group: &mut Vec<Look>| group.drain(..).for_each(|l| each(l.job, l.outcome, l.cost));
        let end = self.in_groups(seat, &mut group, &mut report);
        // What an error cut off was measured all the same.
        report(&mut group);
        end
    }

    fn in_groups(
        &self,
        seat: &mut Seat,
        group: &mut Vec<Look>,
        report: &mut dyn FnMut(&mut Vec<Look>),
    ) -> Result<(), MeasureError> {
        for job in 0..self.jobs.len() {
            let Some(look) = self.one(seat, job)? else { break };
            group.push(look);
            if group[0].at.elapsed() >= GROUP {
                self.look_again(seat, group)?;
                report(group);
            }
        }
        self.look_again(seat, group)
    }

    /// Measures those again that are near the task's best. One that fails now has failed.
    fn look_again(&self, seat: &mut Seat, group: &mut [Look]) -> Result<(), MeasureError> {
        for l in group {
            let Outcome::Measured(first) = &mut l.outcome else { continue };
            let near = if first.pace.is_some() { PACED_CONTENDER } else { CONTENDER };
            let far =
                first.median().0 > near * f64::from_bits(self.task.best.load(Ordering::Relaxed));
            if far || l.at.elapsed() < APART || self.stop.load(Ordering::Relaxed) {
                continue;
            }
            let Some(built) = self.built(l.job, &mut l.cost, &|| true)? else { continue };
            match self.measure(seat, l.job, built, &mut l.cost)? {
                // What the moment did to them is taken out already.
                (Outcome::Measured(second), Some(slowness)) if let Some(before) = l.slowness => {
                    self.task.join((first, before), (second, slowness));
                }
                (Outcome::Measured(second), _) if second.median().0 >= first.median().0 => {}
                (again, slowness) => (l.outcome, l.slowness) = (again, slowness),
            }
        }
        Ok(())
    }

    /// All jobs by several seats, each taking the next one when it is free.
    pub fn shared(
        &self,
        seats: &mut [Seat],
        each: &mut dyn FnMut(usize, Outcome, CpuCost),
    ) -> Result<(), MeasureError> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (send, hear) = mpsc::channel();
        std::thread::scope(|scope| {
            for seat in seats {
                let (send, next, failed) = (send.clone(), &next, &failed);
                scope.spawn(move || {
                    let over = || failed.load(Ordering::Relaxed);
                    while !over() && !self.stop.load(Ordering::Relaxed) {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= self.jobs.len() {
                            break;
                        }
                        let mut cost = CpuCost::default();
                        let done = match self.built(i, &mut cost, &over) {
                            Ok(Some(built)) => self
                                .measure(seat, i, built, &mut cost)
                                .map(|(outcome, _)| (outcome, cost)),
                            Ok(None) => break,
                            Err(e) => Err(e),
                        };
                        failed.fetch_or(done.is_err(), Ordering::Relaxed);
                        // Who listens goes last.
                        let _ = send.send((i, done));
                    }
                });
            }
            drop(send);
            let mut waiting = BTreeMap::new();
            let (mut wanted, mut error) = (0, None);
            for (i, done) in hear {
                match done {
                    Ok(done) => _ = waiting.insert(i, done),
                    Err(e) => _ = error.get_or_insert(e),
                }
                while let Some((outcome, cost)) = waiting.remove(&wanted) {
                    each(wanted, outcome, cost);
                    wanted += 1;
                }
            }
            // Behind one that `stop` or an error left out.
            waiting.into_iter().for_each(|(i, (outcome, cost))| each(i, outcome, cost));
            error.map_or(Ok(()), Err)
        })
    }
}
