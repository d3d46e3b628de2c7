//! Stored winners held against their runners-up once more: does what the store says still hold?

use crate::aim::Aimed;
use crate::desk::{Desk, Idle};
use crate::error::Error;
use crate::input::name_matches;
use crate::kit::Kit;
use crate::runoff::{Keep, Met, RUNNER_UP, Scribe, meet};
use crate::session::SYMBOL;
use crate::settings::Aim;
pub use squall_core::Verdict;
use squall_core::{Measurer, TaskSetup};
use squall_core::{MeasurerError as MeasureError, Rematch};
use squall_core::{Nanos, Target, Task, TaskId, Workload, median};
use squall_measure::rematch::MINIMUM_EFFECT;
use squall_records::{Name, Query, Store};
use std::sync::atomic::{AtomicBool, Ordering};

/// What became of a stored winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
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
}

impl Standing {
    /// The spelling in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::Tie => "tie",
            Standing::Overtaken => "overtaken",
            Standing::Broken => "broken",
            Standing::Gone => "gone",
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
    /// What stood in the store.
    pub stored: Option<Nanos>,
    /// What it took now.
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
    pub standing: Standing,
    /// Who held the task.
    pub winner: Contender,
    /// Who came next within reach.
    pub runner_up: Option<Contender>,
    /// The run-offs that were held; where there is no runner-up, of the winner against itself.
    pub rounds: Vec<Round>,
    /// What failed, where something did.
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
    /// Whether a winner is not what the store said, or run-offs do not agree on it.
    pub fn has_fallen(&self) -> bool {
        self.tasks.iter().any(|t| {
            matches!(t.standing, Standing::Overtaken | Standing::Broken) || t.is_contradicted()
        })
    }
}

/// Which tasks to look at, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The one of this id.
    pub task: Option<TaskId>,
    /// Those whose name matches or whose id begins so.
    pub only: Option<String>,
    /// What the winners run on.
    pub aim: Aim,
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
    store: &Store,
    choice: &Choice,
    stop: &AtomicBool,
    heard: &mut dyn FnMut(&Verified),
) -> Result<Verification, Error> {
    let warm = Aimed::at(choice.aim, choice.threads)?;
    let (device_id, tools) = (warm.id.clone(), warm.tools.clone());
    let chosen = |name: &str, id: TaskId| {
        choice.only.as_ref().is_none_or(|p| name_matches(p, name) || id.to_string().starts_with(p))
    };
    let mut known = Vec::new();
    for aimed in [warm.clone().cold(), warm] {
        let query = Query {
            task: choice.task,
            device: Some(aimed.id.clone()),
            toolchain: Some(tools.clone()),
            ..Query::default()
        };
        let held = store
            .summaries(&query)?
            .into_iter()
            .filter(|s| s.best.is_some() && chosen(&s.name, s.task));
        known.push((held.collect::<Vec<_>>(), aimed));
    }
    let count: usize = known.iter().map(|k| k.0.len()).sum();
    if count == 0 {
        return Err(Error::Nothing(format!(
            "`{}` knows no winner of a matching task on this device with this toolchain \
             ({device_id}; {tools})",
            store.path().display()
        )));
    }
    let mut tasks = Vec::new();
    for (held, aimed) in known.iter().filter(|k| !k.0.is_empty()) {
        let scribe = Scribe { store, device: &aimed.id, toolchain: &tools, seed: 0 };
        let mut lab = aimed.lab()?;
        for summary in held {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let seen = one(
                &mut lab,
                &aimed.target,
                scribe,
                (summary.task, &summary.name),
                choice.rounds,
                stop,
            )?;
            seen.iter().for_each(&mut *heard);
            tasks.extend(seen);
        }
    }
    let interrupted = tasks.len() < count && stop.load(Ordering::Relaxed);
    Ok(Verification {
        device: device_id,
        toolchain: tools,
        effect: MINIMUM_EFFECT,
        tasks,
        interrupted,
    })
}

/// One task; none where the store says nothing of it after all.
fn one(
    lab: &mut dyn Measurer,
    target: &Target,
    scribe: Scribe,
    (id, name): (TaskId, &str),
    rounds: usize,
    stop: &AtomicBool,
) -> Result<Option<Verified>, Error> {
    let records = scribe.store.trials(id, scribe.device, scribe.toolchain)?;
    let Some(text) = records.first().map(|r| r.workload.clone()) else { return Ok(None) };
    let Ok(workload) = Workload::parse(&text) else { return Ok(None) };
    let task = Task::new(name, workload);
    let mut desk = Desk::new(&task, Kit::generated(&task, target), Box::new(Idle));
    desk.learn(records);
    let Some(winner) = desk.standings.winner().map(|w| w.0.clone()) else { return Ok(None) };
    let contender = |desk: &Desk, n: &Name| Contender {
        tunable: n.0.clone(),
        configuration: n.1.clone(),
        stored: desk.standings.time(n),
        now: None,
    };
    let mut seen = Verified {
        task: id,
        name: name.into(),
        standing: Standing::Gone,
        winner: contender(&desk, &winner),
        runner_up: None,
        rounds: Vec::new(),
        detail: None,
    };
    let Some(source) = desk.source(&winner, SYMBOL) else {
        seen.detail = Some(match task.workload.foreign {
            Some(_) => "a kernel of your own: `squall tune` its kernel.toml, where its rivals \
                        meet it again"
                .into(),
            None => "no sketch proposes it any more".into(),
        });
        return Ok(Some(seen));
    };
    match lab.set_task(&TaskSetup::new(task.workload.clone(), desk.reference.clone(), scribe.seed))
    {
        Err(MeasureError::Reference(why)) => {
            seen.detail = Some(why);
            return Ok(Some(seen));
        }
        done => done?,
    }
    let limit = desk.standings.time(&winner).map_or(f64::INFINITY, |t| t.0 * (1.0 + RUNNER_UP));
    // Another name for the same code would only measure the machine.
    let distinct = |n: &Name| desk.source(n, SYMBOL).is_some_and(|s| s.source != source.source);
    let near = desk.standings.ranking().into_iter().filter(|(n, t)| **n != winner && t.0 <= limit);
    let runner_up = near.map(|c| c.0).find(|n| distinct(n)).cloned();
    seen.runner_up = runner_up.as_ref().map(|n| contender(&desk, n));
    // Where nobody comes close, the winner meets itself: measured in the same way as the others.
    let rival = runner_up.as_ref().unwrap_or(&winner);
    for round in 0..rounds {
        if round > 0 && stop.load(Ordering::Relaxed) {
            break;
        }
        let turned = round % 2 == 1;
        let (a, b) = if turned { (rival, &winner) } else { (&winner, rival) };
        let keep = if round == 0 { Keep::All } else { Keep::Failures };
        match meet(lab, &mut desk, scribe, (a, b), keep)? {
            Met::Measured(m) => {
                seen.rounds.push(Round::new(turned, &m));
                if round == 0 {
                    seen.standing = match m.verdict {
                        _ if runner_up.is_none() => Standing::Holds,
                        Verdict::Slower => Standing::Holds,
                        Verdict::Tie => Standing::Tie,
                        Verdict::Faster => Standing::Overtaken,
                    };
                    seen.winner.now = Some(m.incumbent.median());
                    if let Some(r) = &mut seen.runner_up {
                        r.now = Some(m.challenger.median());
                    }
                }
            }
            Met::Failed { rival, detail } => {
                let winner = rival == turned || runner_up.is_none();
                // Who fails is out, whatever earlier rounds said.
                seen.standing = if winner { Standing::Broken } else { Standing::Holds };
                seen.detail = Some(format!(
                    "the {} failed: {detail}",
                    if winner { "winner" } else { "runner-up" }
                ));
                break;
            }
            Met::Gone => break,
        }
    }
    Ok(Some(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(runner_up: bool, rounds: &[(bool, Verdict, f64)]) -> Verified {
        let who = || Contender {
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
            standing: Standing::Holds,
            winner: who(),
            runner_up: runner_up.then(who),
            rounds: rounds.iter().map(round).collect(),
            detail: None,
        }
    }

    #[test]
    fn rounds_agree_whoever_is_the_incumbent() {
        use Verdict::{Faster, Slower, Tie};
        let v = verified(true, &[(false, Slower, 1.1), (true, Faster, 0.9), (false, Tie, 1.02)]);
        assert_eq!((v.is_contradicted(), v.regretted()), (false, 0));
        let v = verified(true, &[(false, Slower, 1.1), (true, Slower, 1.1)]);
        assert!(v.is_contradicted());
        // A tie contradicts nobody, but the times of ties can show that an acceptance was wrong.
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
