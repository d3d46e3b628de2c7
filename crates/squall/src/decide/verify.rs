//! Verification of stored winners (`squall records verify`): measures each task's winner against
//! its runner-up again, by interleaved measurements until a sequential test decides. Input: a store
//! and a choice of tasks; output: a [`Verification`] that says which winners hold, tie, are
//! overtaken or broken. Results are stored as tuning stores its run-offs.

use crate::base::error::Error;
use crate::base::recorder::Recorder;
use crate::input::held_cover::is_cover;
use crate::input::user_input::name_matches;
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::TaskState;
use crate::tuning::runoff::{Keep, Met, RUNNER_UP, meet};
use squall_core::{
    Caches, Measurer, MeasurerError, Nanos, Record, Rematch, Target, Task, TaskId, Verdict,
    Workload, median,
};
use squall_measure::rematch::MINIMUM_EFFECT;
use squall_records::{Name, Query, Store};
use std::sync::atomic::{AtomicBool, Ordering};

/// The result for a stored winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WinnerStanding {
    /// It is faster than its runner-up, or has none within reach.
    Holds,
    /// Nothing that matters separates the two; the winner stays.
    Tie,
    /// Its runner-up is faster and holds the task from now on.
    Overtaken,
    /// It does not run any more, or gives a wrong answer.
    Broken,
    /// It, or its task, cannot be made any more.
    Gone,
    /// It is a kernel of the user's own, whose source the store does not hold: not looked at.
    Own,
}

impl WinnerStanding {
    /// The spelling in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            WinnerStanding::Holds => "holds",
            WinnerStanding::Tie => "tie",
            WinnerStanding::Overtaken => "overtaken",
            WinnerStanding::Broken => "broken",
            WinnerStanding::Gone => "gone",
            WinnerStanding::Own => "own",
        }
    }
}

/// A candidate with the times that the store and this measurement say.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its tunable.
    pub tunable: String,
    /// Its configuration.
    pub configuration: String,
    /// The time in the store.
    pub stored: Option<Nanos>,
    /// The time measured now.
    pub now: Option<Nanos>,
}

/// One run-off between a winner and its runner-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Whether the stored winner is the challenger this time, and its runner-up the incumbent.
    pub turned: bool,
    /// The challenger's result against the incumbent.
    pub verdict: Verdict,
    /// The challenger's time over the incumbent's, interleaved.
    pub ratio: f64,
    /// How sure the verdict is, from 0 to 1.
    pub confidence: f64,
    /// Pairs of windows measured.
    pub pairs: usize,
}

impl Round {
    fn new(turned: bool, m: &Rematch) -> Round {
        Round {
            turned,
            verdict: m.verdict,
            ratio: m.ratio,
            confidence: m.confidence,
            pairs: m.incumbent.samples.len(),
        }
    }

    /// Whether the stored winner is the faster; none in a tie.
    fn winner_is_faster(&self) -> Option<bool> {
        match self.verdict {
            Verdict::Tie => None,
            v => Some((v == Verdict::Faster) == self.turned),
        }
    }

    /// The runner-up's time over the winner's.
    fn runner_up_over_winner(&self) -> f64 {
        if self.turned { 1.0 / self.ratio } else { self.ratio }
    }
}

/// A task that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// The verdict.
    pub standing: WinnerStanding,
    /// The candidate that held the task.
    pub winner: Contender,
    /// The next fastest within reach.
    pub runner_up: Option<Contender>,
    /// The run-offs that were held; where there is no runner-up, of the winner against itself.
    pub rounds: Vec<Round>,
    /// The failure, if there was one.
    pub detail: Option<String>,
}

impl Verified {
    /// Whether two rounds name different winners. A candidate against itself has none at all.
    pub fn is_contradicted(&self) -> bool {
        let mut faster = self.rounds.iter().filter_map(Round::winner_is_faster);
        match (faster.next(), &self.runner_up) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(first), Some(_)) => faster.any(|f| f != first),
        }
    }

    /// Rounds that accepted a challenger which is slower than its incumbent by more than the
    /// minimum effect when measured again: by the median of all other rounds, each in fresh
    /// processes.
    pub fn regretted(&self) -> usize {
        let slower = |(i, accepted): (usize, &Round)| {
            let others = self
                .rounds
                .iter()
                .enumerate()
                .filter(|(j, _)| *j != i)
                .map(|(_, r)| r.runner_up_over_winner());
            let ratio = median(others);
            ratio.is_finite()
                && (if accepted.turned { 1.0 / ratio } else { ratio }) > 1.0 + MINIMUM_EFFECT
        };
        self.rounds
            .iter()
            .enumerate()
            .filter(|(_, r)| r.verdict == Verdict::Faster)
            .filter(|r| slower(*r))
            .count()
    }
}

/// All tasks that were looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// The device.
    pub device: String,
    /// The toolchain.
    pub toolchain: String,
    /// Differences below this share are ties.
    pub effect: f64,
    /// Task by task.
    pub tasks: Vec<Verified>,
    /// Whether it was ended before all tasks were looked at.
    pub interrupted: bool,
}

impl Verification {
    /// Whether a winner is not what the store said or cannot be made any more, or run-offs do not
    /// agree on it.
    pub fn has_fallen(&self) -> bool {
        self.tasks.iter().any(|t| {
            let is_fallen = matches!(
                t.standing,
                WinnerStanding::Overtaken | WinnerStanding::Broken | WinnerStanding::Gone
            );
            is_fallen || t.is_contradicted()
        })
    }
}

/// Which tasks to look at, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The one of this id.
    pub task: Option<TaskId>,
    /// Tasks whose name matches or whose id begins with this text.
    pub only: Option<String>,
    /// The device that the winners run on.
    pub target: TargetRequest,
    /// Threads that a kernel may use on a CPU.
    pub threads: usize,
    /// Run-offs to hold of each pair, taking turns as incumbent. The first counts for the store;
    /// the others say how far it can be trusted.
    pub rounds: usize,
}

/// Measures each chosen task's stored winner against its runner-up, interleaved, in processes that
/// ran nothing before, with warm or cold caches as it was tuned, and keeps what came of it as
/// tuning does. Only tasks with records of this device and toolchain are looked at.
pub fn verify(
    context: &Context,
    store: &Store,
    choice: &Choice,
    stop: &AtomicBool,
    heard: &mut dyn FnMut(&Verified),
) -> Result<Verification, Error> {
    let warm = context.target(choice.target, choice.threads)?;
    if !warm.is_timed() {
        return Err(Error::Usage {
            message: "winners are compared by their times, and under qemu there are none".into(),
            hint: "`squall tune --runner qemu` holds candidates against their references".into(),
        });
    }
    let (device, toolchain) = (warm.device_name(), warm.place.toolchain.clone());
    let chosen = |name: &str, id: TaskId| {
        choice.only.as_ref().is_none_or(|p| name_matches(p, name) || id.to_string().starts_with(p))
    };
    let mut known = Vec::new();
    for at in [warm.clone().with_caches(Caches::Cold), warm] {
        let query = Query { task: choice.task, ..at.place.records() };
        let held = store
            .summaries(&query)?
            .into_iter()
            .filter(|s| s.best.is_some() && chosen(&s.name, s.task));
        known.push((held.collect::<Vec<_>>(), at));
    }
    let count: usize = known.iter().map(|k| k.0.len()).sum();
    if count == 0 {
        return Err(Error::Nothing(format!(
            "`{}` knows no winner of a matching task on this device with this toolchain \
             ({device}; {toolchain})",
            store.path().display()
        )));
    }
    let mut tasks = Vec::new();
    for (held, at) in known.iter().filter(|k| !k.0.is_empty()) {
        let recorder = Recorder { store, place: at.place.clone(), seed: 0 };
        let mut verifier =
            Verifier { measurer: at.measurer()?, recorder, rounds: choice.rounds, stop };
        for summary in held {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let seen = verifier.one(&at.target, summary.task, &summary.name)?;
            seen.iter().for_each(&mut *heard);
            tasks.extend(seen);
        }
    }
    let interrupted = tasks.len() < count && stop.load(Ordering::Relaxed);
    Ok(Verification { device, toolchain, effect: MINIMUM_EFFECT, tasks, interrupted })
}

/// The state while one task after another is verified.
struct Verifier<'a> {
    measurer: Box<dyn Measurer>,
    recorder: Recorder<'a>,
    rounds: usize,
    stop: &'a AtomicBool,
}

impl Verifier<'_> {
    /// One task; none where the store says nothing of it after all.
    fn one(&mut self, target: &Target, id: TaskId, name: &str) -> Result<Option<Verified>, Error> {
        let place = &self.recorder.place;
        let records =
            self.recorder.store.trials(id, &place.device.to_string(), &place.toolchain)?;
        let Some(text) = records.first().map(|r| r.workload.clone()) else { return Ok(None) };
        let stored = fastest(&records);
        // Whole networks met there, which the next tuning of the model does again.
        if is_cover(&text) {
            return Ok(None);
        }
        let Ok(workload) = Workload::parse(&text) else {
            let why = "its workload cannot be read by this version".to_string();
            return Ok(stored.map(|winner| gone(id, name, winner, why)));
        };
        let task = Task::new(name, workload);
        if task.workload.foreign.is_some() {
            let why = "a kernel of your own: `squall tune` its kernel.toml, where its rivals meet \
                       it again";
            let own =
                |w| Verified { standing: WinnerStanding::Own, ..gone(id, name, w, why.into()) };
            return Ok(stored.map(own));
        }
        let mut state = TaskState::new(&task, TaskKernels::generated(&task, target));
        state.learn(records);
        let Some(winner) = state.standings.winner().map(|w| w.0.clone()) else {
            let why = "none of its stored candidates can be made, or their times cannot be: tune \
                       it again"
                .to_string();
            return Ok(stored.map(|winner| gone(id, name, winner, why)));
        };
        let mut seen = Verified {
            task: id,
            name: name.into(),
            standing: WinnerStanding::Gone,
            winner: contender(&state, &winner),
            runner_up: None,
            rounds: Vec::new(),
            detail: None,
        };
        let Some(source) = state.source(&winner) else {
            seen.detail = Some("no sketch proposes it any more".into());
            return Ok(Some(seen));
        };
        match self.measurer.set_task(&state.setup(self.recorder.seed)) {
            Err(MeasurerError::Reference(why)) => {
                seen.detail = Some(why);
                return Ok(Some(seen));
            }
            done => done?,
        }
        let limit =
            state.standings.time(&winner).map_or(f64::INFINITY, |t| t.0 * (1.0 + RUNNER_UP));
        // Another name for the same code would only measure the machine.
        let distinct = |n: &Name| state.source(n).is_some_and(|s| s.source != source.source);
        // What a whole network decided, kernels alone do not turn over.
        let in_network = |n: &Name| state.standings.has_met_in_network(n);
        let is_rival = |n: &Name| *n != winner && !(in_network(n) && in_network(&winner));
        let near =
            state.standings.ranking().into_iter().filter(|(n, t)| is_rival(n) && t.0 <= limit);
        let runner_up = near.map(|c| c.0).find(|n| distinct(n)).cloned();
        seen.runner_up = runner_up.as_ref().map(|n| contender(&state, n));
        // Where no candidate comes close, the winner meets itself: measured as the others are.
        let rival = runner_up.as_ref().unwrap_or(&winner);
        self.hold_rounds(&mut state, &winner, rival, &mut seen)?;
        Ok(Some(seen))
    }

    /// The run-offs of a winner and its rival, of which the first counts for the store.
    fn hold_rounds(
        &mut self,
        state: &mut TaskState,
        winner: &Name,
        rival: &Name,
        seen: &mut Verified,
    ) -> Result<(), Error> {
        let alone = winner == rival;
        for round in 0..self.rounds {
            if round > 0 && self.stop.load(Ordering::Relaxed) {
                break;
            }
            let turned = round % 2 == 1;
            let (first, second) = if turned { (rival, winner) } else { (winner, rival) };
            let keep = if round == 0 { Keep::All } else { Keep::Failures };
            match meet(&mut *self.measurer, state, &self.recorder, first, second, keep)? {
                Met::Measured(m) => {
                    seen.rounds.push(Round::new(turned, &m));
                    if round == 0 {
                        seen.standing = match m.verdict {
                            _ if alone => WinnerStanding::Holds,
                            Verdict::Slower => WinnerStanding::Holds,
                            Verdict::Tie => WinnerStanding::Tie,
                            Verdict::Faster => WinnerStanding::Overtaken,
                        };
                        seen.winner.now = Some(m.incumbent.median());
                        if let Some(r) = &mut seen.runner_up {
                            r.now = Some(m.challenger.median());
                        }
                    }
                }
                Met::Failed { rival, detail, .. } => {
                    let winner = rival == turned || alone;
                    // A kernel that fails is out, whatever earlier rounds said.
                    seen.standing =
                        if winner { WinnerStanding::Broken } else { WinnerStanding::Holds };
                    seen.detail = Some(format!(
                        "the {} failed: {detail}",
                        if winner { "winner" } else { "runner-up" }
                    ));
                    break;
                }
                Met::Gone => break,
            }
        }
        Ok(())
    }
}

/// The record with the least time, as a contender: what the store says without being believed.
fn fastest(records: &[Record]) -> Option<Contender> {
    let timed = records.iter().filter_map(|r| Some((r.outcome.time()?, r)));
    let (time, r) = timed.min_by(|a, b| a.0.0.total_cmp(&b.0.0))?;
    let (tunable, configuration) = (r.tunable.clone(), r.configuration.clone());
    Some(Contender { tunable, configuration, stored: Some(time), now: None })
}

/// A task whose winner cannot be made.
fn gone(task: TaskId, name: &str, winner: Contender, why: String) -> Verified {
    Verified {
        task,
        name: name.into(),
        standing: WinnerStanding::Gone,
        winner,
        runner_up: None,
        rounds: Vec::new(),
        detail: Some(why),
    }
}

/// A candidate with what the store says of it.
fn contender(state: &TaskState, name: &Name) -> Contender {
    Contender {
        tunable: name.0.clone(),
        configuration: name.1.clone(),
        stored: state.standings.time(name),
        now: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(runner_up: bool, rounds: &[(bool, Verdict, f64)]) -> Verified {
        let contender = || Contender {
            tunable: "tile".into(),
            configuration: "k=1".into(),
            stored: None,
            now: None,
        };
        let round = |r: &(bool, Verdict, f64)| Round {
            turned: r.0,
            verdict: r.1,
            ratio: r.2,
            confidence: 1.0,
            pairs: 12,
        };
        Verified {
            task: "00000000000000aa".parse().expect("an id"),
            name: "a".into(),
            standing: WinnerStanding::Holds,
            winner: contender(),
            runner_up: runner_up.then(contender),
            rounds: rounds.iter().map(round).collect(),
            detail: None,
        }
    }

    #[test]
    fn rounds_agree_whichever_is_the_incumbent() {
        use Verdict::{Faster, Slower, Tie};
        let v = verified(true, &[(false, Slower, 1.1), (true, Faster, 0.9), (false, Tie, 1.02)]);
        assert_eq!((v.is_contradicted(), v.regretted()), (false, 0));
        let v = verified(true, &[(false, Slower, 1.1), (true, Slower, 1.1)]);
        assert!(v.is_contradicted());
        // A tie contradicts no round, but the times of ties can show that an acceptance was wrong.
        let v = verified(true, &[(false, Faster, 0.9), (true, Tie, 0.9), (false, Tie, 1.005)]);
        assert_eq!((v.is_contradicted(), v.regretted()), (false, 1));
        // One noisy round of several does not.
        let v = verified(
            true,
            &[(false, Faster, 0.9), (false, Tie, 1.02), (false, Tie, 0.99), (true, Tie, 1.0)],
        );
        assert_eq!((v.is_contradicted(), v.regretted()), (false, 0));
        assert_eq!(verified(true, &[(false, Faster, 0.9)]).regretted(), 0);
        let v = verified(true, &[(true, Faster, 0.9), (true, Tie, 1.02)]);
        assert_eq!((v.is_contradicted(), v.regretted()), (false, 1));
    }

    #[test]
    fn nothing_is_faster_than_itself() {
        assert!(
            !verified(false, &[(false, Verdict::Tie, 1.0), (true, Verdict::Tie, 1.0)])
                .is_contradicted()
        );
        assert!(
            verified(false, &[(false, Verdict::Tie, 1.0), (true, Verdict::Slower, 1.1)])
                .is_contradicted()
        );
    }
}
