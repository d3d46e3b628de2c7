//! Measures a batch of jobs (kernels with their candidates): builds come from the queue
//! (`queue.rs`), and one worker measures them in order, or several workers (one a GPU) side by
//! side. Results are reported in the order of the jobs either way. Kernels that come close to the
//! task's best are measured twice, some time apart, because a shared machine may have been slow for
//! a moment.

use super::pace::Slowness;
use super::queue::BuildQueue;
use super::task::LocalTask;
use super::worker::{RunOptions, Worker};
use crate::artifact::{ArtifactCache, Built};
use squall_core::{CpuCost, FailStage, JobResult, KernelSource, MeasurerError, Outcome};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// The duration of a group of jobs, after which its good jobs are measured again. Slow moments of
/// shared machines last about this long.
const GROUP: Duration = Duration::from_millis(1500);

/// The least time between two measurements of a kernel, so that both do not fall into one slow
/// moment.
const APART: Duration = Duration::from_millis(250);

/// A job that is slower than the task's best by more than this factor is not measured again.
const CONTENDER: f64 = 1.5;

/// The same for jobs that were timed beside a pacemaker: their times are surer.
const PACED_CONTENDER: f64 = 1.2;

/// A job that was measured and not yet reported.
struct Pending {
    job: usize,
    at: Instant,
    outcome: Outcome,
    /// The machine's, by the pacemaker.
    slowness: Option<Slowness>,
    cost: CpuCost,
}

/// The jobs of a batch, and where their artifacts come from.
pub(super) struct Batch<'a, 'b> {
    pub jobs: &'a [&'a KernelSource],
    pub digests: &'a [String],
    pub queue: &'a BuildQueue<'b>,
    pub cache: &'a Mutex<&'a mut ArtifactCache>,
    pub task: &'a LocalTask,
    pub options: &'a RunOptions<'a>,
    pub stop: &'a AtomicBool,
}

impl Batch<'_, '_> {
    /// Measures job `i` once it is built; nothing after `stop` was set.
    fn measure_job(&self, worker: &mut Worker, i: usize) -> Result<Option<Pending>, MeasurerError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut cost = CpuCost::default();
        let Some(built) = self.built(i, &mut cost, &|| false)? else { return Ok(None) };
        let (outcome, slowness) = self.measure(worker, i, built, &mut cost)?;
        Ok(Some(Pending { job: i, at: Instant::now(), outcome, slowness, cost }))
    }

    fn measure(
        &self,
        worker: &mut Worker,
        i: usize,
        built: Built,
        cost: &mut CpuCost,
    ) -> Result<(Outcome, Option<Slowness>), MeasurerError> {
        match built {
            Built::Library(file) => {
                let plan = self.task.plan(self.options.folder, &file, self.jobs[i])?;
                worker.measure(self.options, self.task, &Arc::new(plan), cost)
            }
            Built::Refused(detail) => {
                Ok((Outcome::Failed { stage: FailStage::Build, detail }, None))
            }
        }
    }

    /// What became of a job's source. An equal source may be on its way into the cache by another
    /// worker; this one waits for it unless all is `over`.
    fn built(
        &self,
        i: usize,
        cost: &mut CpuCost,
        over: &dyn Fn() -> bool,
    ) -> Result<Option<Built>, MeasurerError> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((built, cpu)) = self.queue.take(i, self.stop)? {
            cost.build = cpu;
            cache().put(self.digests[i].clone(), built);
        }
        loop {
            let found = cache().get(&self.digests[i]).cloned();
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

    /// Measures all jobs in order, and those near the best again a moment later.
    pub fn measure_in_order(
        &self,
        worker: &mut Worker,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        let mut group = Vec::new();
        let mut report = |group: &mut Vec<Pending>| {
            group.drain(..).for_each(|p| each(JobResult::new(p.job, p.outcome, p.cost)));
        };
        let end = self.measure_groups(worker, &mut group, &mut report);
        // What an error cut off was measured all the same.
        report(&mut group);
        end
    }

    fn measure_groups(
        &self,
        worker: &mut Worker,
        group: &mut Vec<Pending>,
        report: &mut dyn FnMut(&mut Vec<Pending>),
    ) -> Result<(), MeasurerError> {
        for job in 0..self.jobs.len() {
            let Some(pending) = self.measure_job(worker, job)? else { break };
            group.push(pending);
            if group[0].at.elapsed() >= GROUP {
                self.measure_again(worker, group)?;
                report(group);
            }
        }
        self.measure_again(worker, group)
    }

    /// Measures those again that are near the task's best. A kernel that fails now has failed.
    fn measure_again(
        &self,
        worker: &mut Worker,
        group: &mut [Pending],
    ) -> Result<(), MeasurerError> {
        for p in group {
            let Outcome::Measured(first) = &mut p.outcome else { continue };
            let near = if first.pace.is_some() { PACED_CONTENDER } else { CONTENDER };
            let far =
                first.median().0 > near * f64::from_bits(self.task.best.load(Ordering::Relaxed));
            if far || p.at.elapsed() < APART || self.stop.load(Ordering::Relaxed) {
                continue;
            }
            let Some(built) = self.built(p.job, &mut p.cost, &|| true)? else { continue };
            match self.measure(worker, p.job, built, &mut p.cost)? {
                // The pacemaker has taken the moment's slowness out of both, so both count.
                (Outcome::Measured(second), Some(slowness)) if let Some(before) = p.slowness => {
                    self.task.join(first, before, second, slowness);
                }
                (Outcome::Measured(second), _) if second.median().0 >= first.median().0 => {}
                (again, slowness) => (p.outcome, p.slowness) = (again, slowness),
            }
        }
        Ok(())
    }

    /// Measures all jobs with several workers, each of which takes the next job when it is free.
    pub fn measure_in_parallel(
        &self,
        workers: &mut [Worker],
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (send, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for worker in workers {
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
                                .measure(worker, i, built, &mut cost)
                                .map(|(outcome, _)| JobResult::new(i, outcome, cost)),
                            Ok(None) => break,
                            Err(e) => Err(e),
                        };
                        failed.fetch_or(done.is_err(), Ordering::Relaxed);
                        // The receiver lives until all senders are gone.
                        let _ = send.send(done);
                    }
                });
            }
            drop(send);
            let mut waiting = BTreeMap::new();
            let (mut wanted, mut error) = (0, None);
            for done in results {
                match done {
                    Ok(result) => _ = waiting.insert(result.job, result),
                    Err(e) => _ = error.get_or_insert(e),
                }
                while let Some(result) = waiting.remove(&wanted) {
                    each(result);
                    wanted += 1;
                }
            }
            // Those behind one that `stop` or an error left out.
            waiting.into_values().for_each(each);
            error.map_or(Ok(()), Err)
        })
    }
}
