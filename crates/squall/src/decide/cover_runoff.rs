//! The run-off of covers: which operators become one kernel, decided by tuned times. A model is
//! covered by greedy fusion first. Kernels that only costs choose (one with a prologue, say) get
//! trials where a cover with them could be cheaper even than all that is known: those of which
//! nothing is known count as the least that they can take. The cheapest cover of known kernels then
//! meets the one before it in whole networks, built and run in turns in fresh processes as in
//! [`super::network_runoff`], and the store keeps which of them holds the model on the device: a
//! record of the tunable `cover`, whose configuration is the line of its kernels.

use crate::base::error::Error;
use crate::base::recorder::Recorder;
use crate::decide::network_runoff::{NetworkRunOff, keep_both};
use crate::decide::tuning_context::Tuning;
use crate::inference::network::{Network, Times};
use crate::input::held_cover::{for_costs, name, recorded_as};
use crate::input::layout::times_here;
use crate::input::precision::Precision;
use crate::input::user_input::{Input, InputKind, ModelInput};
use crate::predict::choose::kernels_of;
use crate::target::roof::Roof;
use crate::task::event::Event;
use crate::tuning::phase::PhaseRequest;
use crate::tuning::report::StopReason;
use crate::tuning::session::Session;
use crate::tuning::settings::{Budget, BudgetRequest, whole_network_seconds};
use crate::tuning::shard::Work;
use crate::tuning::tune_request::InferenceRequest;
use squall_core::{Objective, RecordKind, Task, TaskId, Verdict, Workload};
use squall_graph::Assignment;
use squall_graph::assignment::Step;
use squall_graph::solvers::{ATTENTION_IN_PLACE, CoverCosting, Unknown, cheapest_cover, solver};
use squall_search::FIRST_TRIALS;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// The share of a budget that goes to kernels that only costs choose, and the most trials of each.
/// An equal share is kept for the kernels of the cover that won, which had fewer trials than the
/// kernels that they replace.
const SHARE: f64 = 0.1;
const TRIALS_EACH: u64 = 8;
/// The shortest share in seconds that is used: in less time, networks cannot be built and timed
/// well enough to tell them apart.
const LEAST_SECONDS: f64 = 45.0;
/// Of those seconds, the share that goes to trials; networks are built and run in the rest.
const SEARCHING: f64 = 0.5;
/// The most seconds for building and running networks.
const MOST_SECONDS: f64 = 90.0;
/// Rounds of trials before networks meet: the times of one round may make further kernels worth
/// trials.
const ROUNDS: u64 = 2;
/// A kernel is worth its place in a cover if its step takes at most this share of the time of the
/// steps that it replaces.
const WORTH: f64 = 0.995;

/// How a budget is divided: what goes to the tasks of a cover, and what to other covers. Of
/// seconds, those of the whole network at the end are neither's.
pub(crate) struct Shares {
    pub tasks: BudgetRequest,
    /// Nothing where nothing is to be chosen, or too little is there to choose by.
    pub covers: Option<CoverShares>,
}

/// What goes to the kernels that might take the places of others, and what to the tasks of the
/// cover that is kept.
#[derive(Clone, Copy)]
pub(crate) struct CoverShares {
    pub covers: BudgetRequest,
    pub rest: BudgetRequest,
}

impl Shares {
    /// Those of a tuning.
    pub fn of(tuning: &Tuning<'_>) -> Shares {
        let all = Shares { tasks: tuning.request.budget, covers: None };
        if tuning.whole.is_none() {
            return all;
        }
        let mut shares = Shares::with_covers(tuning).unwrap_or(all);
        // What is done with the whole network is done within the budget.
        shares.tasks.seconds = shares.tasks.seconds.map(|s| s - whole_network_seconds(s));
        shares
    }

    /// Those of a model of which covers are to meet, but for the whole network's.
    fn with_covers(tuning: &Tuning<'_>) -> Option<Shares> {
        let (request, model) = (tuning.request, tuning.input.model()?);
        let ids = for_costs(&model.graph).map(|c| TaskId::of(&c.workload, Objective::Time));
        let kernels = ids.collect::<HashSet<_>>().len() as u64;
        if kernels == 0 || !request.input.is_cover_open() {
            return None;
        }
        let [mut covers, mut rest] = [BudgetRequest::default(); 2];
        let mut tasks = request.budget;
        covers.trials_per_task = tasks.trials_per_task;
        // Tasks that had so many trials each have no more.
        let is_each = tasks.trials_per_task.is_some();
        if let Some(trials) = &mut tasks.trials {
            let first = FIRST_TRIALS as u64 * model.tasks.len() as u64;
            let share = (*trials as f64 * SHARE) as u64;
            let part = share.min(TRIALS_EACH * kernels);
            let share = if is_each { 0 } else { share };
            if *trials < first + part + share || part < FIRST_TRIALS as u64 {
                return None;
            }
            *trials -= part + share;
            covers.trials = Some(part);
            rest.trials = Some(share).filter(|_| !is_each);
        }
        if let Some(seconds) = &mut tasks.seconds {
            let part = (*seconds * SHARE).min(LEAST_SECONDS + 2.0 * kernels as f64);
            if part < LEAST_SECONDS {
                return None;
            }
            let share = if is_each { 0.0 } else { *seconds * SHARE };
            *seconds -= part + share;
            covers.seconds = Some(part);
            rest.seconds = Some(share).filter(|_| !is_each);
        }
        let is_any = covers != BudgetRequest::default();
        is_any.then_some(Shares { tasks, covers: Some(CoverShares { covers, rest }) })
    }
}

/// The result of a run-off of covers.
#[derive(Default)]
pub(crate) struct CoverContest {
    /// Trials of the kernels that might take the places of others.
    pub trials: u64,
    /// The model by the kernels that hold it now, where they are others than before.
    pub taken: Option<Input>,
    /// The sentence for the user.
    pub note: Option<String>,
    /// Whether it was interrupted.
    pub is_interrupted: bool,
}

/// The largest share of its bound that a known kernel of a model reaches, and the least time that
/// one takes, in nanoseconds: no other kernel is hoped to do better, and a copy takes as long.
struct Reached {
    share: f64,
    least: f64,
    copy: f64,
}

impl Reached {
    /// The least time of a kernel with that bound.
    fn bound(&self, roof: f64) -> f64 {
        (roof / self.share).max(self.least)
    }
}

/// A run-off of covers of the model that is tuned.
pub(crate) struct CoverRunOff<'t, 'a> {
    pub tuning: &'t Tuning<'a>,
    pub wanted: &'t InferenceRequest,
    pub roof: Option<Roof>,
}

impl CoverRunOff<'_, '_> {
    /// Holds it against the kernels that the model has, within a budget of its own.
    pub fn hold(
        &self,
        session: &mut Session<'_>,
        budget: BudgetRequest,
    ) -> Result<CoverContest, Error> {
        let mut contest = CoverContest::default();
        let Some(model) = self.tuning.input.model() else { return Ok(contest) };
        for round in 0..ROUNDS {
            let left = BudgetRequest {
                trials: budget.trials.map(|n| n / ROUNDS),
                seconds: budget.seconds.map(|s| s * SEARCHING / ROUNDS as f64),
                ..budget
            };
            let (contenders, tasks) = match self.contenders(&model.graph, left) {
                Ok(found) => found,
                Err(why) => {
                    contest.note = Some(format!("no cover was found to be the cheapest: {why}"));
                    return Ok(contest);
                }
            };
            if tasks.is_empty() {
                break;
            }
            if round == 0 {
                self.tuning.say(Event::Note(format!(
                    "{} could take the place of several: a part of the budget is theirs",
                    counted(tasks.len(), "kernel")
                )));
            }
            let tried = ModelInput { tasks, ..model.clone().with_graph(contenders) };
            let tried = tried.in_precision(self.tuning.request.target)?;
            let budget = Budget::of(left, InputKind::Model);
            let work = Work::whole(tried.tasks.iter().collect(), budget);
            let asked = PhaseRequest { work, own: &[], roof: true, only_tried: true };
            let end = session.phase(&asked, &mut |e| self.tuning.say(e))?;
            contest.trials += end.trials;
            if end.stop == StopReason::Interrupted {
                contest.is_interrupted = true;
                return Ok(contest);
            }
        }
        let seconds = budget.seconds.map_or(MOST_SECONDS, |s| s * (1.0 - SEARCHING));
        let end = Instant::now() + Duration::from_secs_f64(seconds.min(MOST_SECONDS));
        match self.decide(model, end, &mut contest) {
            // Ctrl-C reaches compilers and the networks' programs, too.
            Err(_) if self.tuning.is_stopped() => contest.is_interrupted = true,
            // A model that can be tuned need not be one that can be run.
            Err(e) => self.tuning.say(Event::Trouble(format!("covers did not meet: {e}"))),
            Ok(()) => {}
        }
        Ok(contest)
    }

    /// The model's precision.
    fn precision(&self) -> Precision {
        self.tuning.input.precision()
    }

    /// What is known of times here.
    fn known(&self) -> Result<HashMap<TaskId, f64>, Error> {
        times_here(&self.tuning.store, &self.tuning.at, self.precision())
    }

    /// The model by a cover, its images as its kernels are fastest together where they were tuned
    /// in more than one order, in the precision that is asked for.
    fn placed(
        &self,
        model: &ModelInput,
        cover: Assignment,
        known: &HashMap<TaskId, f64>,
    ) -> Result<Input, Error> {
        let made = model.clone().with_graph(cover);
        Ok(match model.precision {
            Precision::F32 => made.laid_out(known, &self.tuning.at).into(),
            _ => made.in_usual_form(self.tuning.request.target)?.into(),
        })
    }

    /// The speeds that the model's measured kernels have reached.
    fn reached(&self, base: &Assignment, known: &HashMap<TaskId, f64>) -> Reached {
        let mut reached = Reached { share: 1.0, least: 1.0, copy: 0.0 };
        // A launch takes longer than many a kernel's arithmetic, and no roof knows of it.
        let on_gpu = !self.tuning.at.gpus.is_empty();
        let Some(roof) = self.roof.as_ref().filter(|_| on_gpu) else { return reached };
        let timed = |t: &Task| {
            let w = &self.precision().rounded(&t.workload);
            known.get(&t.id).map(|time| (roof.bound_of(w, w.flop()).0 / time, *time))
        };
        let timed: Vec<(f64, f64)> = base.tasks().iter().filter_map(timed).collect();
        if !timed.is_empty() {
            reached.share = timed.iter().map(|t| t.0).fold(0.0, f64::max).clamp(0.01, 1.0);
            reached.least = timed.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
            reached.copy = reached.least;
        }
        reached
    }

    /// A cover of a GPU's with what attention shares where others have it.
    fn in_place(&self, made: Assignment) -> Result<Assignment, String> {
        solver(ATTENTION_IN_PLACE).map_or(Ok(made.clone()), |s| made.solved(s, &|_| None))
    }

    /// The cheapest cover were all kernels of which nothing is known as fast as can be, and of its
    /// kernels those that want trials, as many as a budget has: first those that save most.
    fn contenders(
        &self,
        base: &Assignment,
        budget: BudgetRequest,
    ) -> Result<(Assignment, Vec<Task>), String> {
        let known = self.known().map_err(|e| e.to_string())?;
        let reached = self.reached(base, &known);
        let bound = |w: &Workload| match &self.roof {
            Some(r) => {
                let w = &self.precision().rounded(w);
                reached.bound(r.bound_of(w, w.flop()).0)
            }
            None => 1.0,
        };
        let all = base.candidates();
        let time = |id| known.get(&id).copied();
        let unknown = Unknown::AtLeast(&bound);
        let costs = CoverCosting { time: &time, unknown, copy: reached.copy };
        let cover = cheapest_cover(all, &costs)?;
        let made = match self.tuning.at.gpus.is_empty() {
            true => Assignment::new(all.clone(), cover.choice)?,
            false => self.in_place(Assignment::new(all.clone(), cover.dense)?)?,
        };
        let saved = savings(base, &made, &known);
        let mut tasks: Vec<_> = made.tasks().to_vec();
        tasks.retain(|t| saved.contains_key(&t.id));
        tasks.sort_by(|a, b| saved[&b.id].total_cmp(&saved[&a.id]));
        let most = budget.trials.map(|n| n / FIRST_TRIALS as u64);
        // A trial takes a quarter of a second and more.
        let timely = budget.seconds.map(|s| (s * 4.0 / FIRST_TRIALS as f64) as u64);
        let most = most.unwrap_or(u64::MAX).min(timely.unwrap_or(u64::MAX));
        tasks.truncate(most.min(tasks.len() as u64) as usize);
        Ok((made, tasks))
    }

    /// Lets the cheapest cover of known kernels meet that of the model in whole networks.
    fn decide(
        &self,
        model: &ModelInput,
        end: Instant,
        contest: &mut CoverContest,
    ) -> Result<(), Error> {
        let Tuning { store, at, request, .. } = self.tuning;
        let (base, mut known) = (&model.graph, self.known()?);
        let held = self.placed(model, base.clone(), &known)?;
        let task = recorded_as(base.model(), &model.name, model.precision);
        let recorder = Recorder { store, place: at.place.clone(), seed: request.seed };
        let copy = self.reached(base, &known).copy;
        let mut network = None;
        for _ in 0..ROUNDS {
            let all = base.candidates();
            let time = |id| known.get(&id).copied();
            let costs = CoverCosting { time: &time, unknown: Unknown::Avoided, copy };
            let Ok(cover) = cheapest_cover(all, &costs) else { return Ok(()) };
            let made = Assignment::new(all.clone(), cover.choice);
            let Ok(graph) = made.and_then(|m| base.covered_by(&m.cover_line())) else {
                return Ok(());
            };
            let (names, both) = ([base, &graph].map(name), [base, &graph].map(kernels));
            let met = store.trials(task.id, &at.device_name(), &at.place.toolchain)?;
            if both[0] == both[1] || met.iter().any(|r| r.configuration == names[1].1) {
                return Ok(());
            }
            let other = self.placed(model, graph, &known)?;
            let challenger = self.network(&other)?;
            let network = match &network {
                Some(network) => network,
                None => network.insert(self.network(&held)?),
            };
            let meeting = self.meeting(&held, end);
            if let Some(why) = meeting.differs(network, &challenger)? {
                self.tuning.say(Event::Trouble(why));
                return Ok(());
            }
            let met = meeting.meet(network, &challenger)?;
            let Some(verdict) = met.verdict else { return Ok(()) };
            let is_taken = verdict == Verdict::Faster;
            let times = [(&names[0], &met.times[0]), (&names[1], &met.times[1])];
            keep_both(&recorder, &task, RecordKind::Rematch, times, is_taken)?;
            contest.note = Some(note(&both, met.ratio, is_taken));
            if is_taken {
                contest.taken = Some(other);
                return Ok(());
            }
            // What was slower in its place than what it stands for is left out.
            let slow = slower_in_place((&held, network), (&other, &challenger))?;
            if slow.is_empty() {
                return Ok(());
            }
            slow.iter().for_each(|id| _ = known.remove(id));
        }
        Ok(())
    }

    fn network(&self, input: &Input) -> Result<Network, Error> {
        let Tuning { store, at, .. } = self.tuning;
        let tasks: Vec<&Task> = input.tasks().iter().collect();
        let guess = &self.wanted.guess;
        let kernels = kernels_of(guess, &tasks, Some(store), at, &mut |e| self.tuning.say(e))?;
        Network::build(input, None, at, &mut |_| Ok(kernels.clone()))
    }

    fn meeting<'r>(&'r self, input: &'r Input, end: Instant) -> NetworkRunOff<'r> {
        let Tuning { store, at, stop, .. } = self.tuning;
        NetworkRunOff { input, guess: &self.wanted.guess, store, at, end, stop }
    }
}

/// The candidates of a cover.
fn kernels(graph: &Assignment) -> BTreeSet<usize> {
    steps(graph).map(|(i, _)| i).collect()
}

/// The kernels of a cover of which nothing is known and which another cover does not have, by their
/// tasks, each with the time of what it makes superfluous there, in nanoseconds.
fn savings(
    base: &Assignment,
    made: &Assignment,
    known: &HashMap<TaskId, f64>,
) -> BTreeMap<TaskId, f64> {
    let list = &base.candidates().list;
    let of_base: Vec<(usize, f64)> =
        steps(base).map(|(i, task)| (i, known.get(&task).copied().unwrap_or(0.0))).collect();
    let theirs: HashSet<TaskId> = base.tasks().iter().map(|t| t.id).collect();
    let mut saved = BTreeMap::new();
    for (i, task) in steps(made) {
        if known.contains_key(&task) || theirs.contains(&task) {
            continue;
        }
        let is_inside = |k: usize| list[k].nodes.iter().all(|n| list[i].nodes.contains(n));
        let inside = of_base.iter().filter(|(k, _)| is_inside(*k)).map(|(_, t)| *t);
        let (sum, most) = inside.fold((0.0, 0.0f64), |(s, m), t| (s + t, m.max(t)));
        *saved.entry(task).or_insert(0.0) += sum - most;
    }
    saved
}

/// The kernels of an assignment: the candidate of each step, and its task.
fn steps(graph: &Assignment) -> impl Iterator<Item = (usize, TaskId)> + '_ {
    graph.choice().steps.iter().enumerate().filter_map(|(at, s)| match *s {
        Step::Kernel(i) => Some((i, graph.task_of_step(at)?)),
        Step::Node(_) => None,
    })
}

/// The tasks of a challenger that take, all their steps together, no less time between their
/// neighbours than the steps that they stand for.
fn slower_in_place(
    held: (&Input, &Network),
    challenger: (&Input, &Network),
) -> Result<BTreeSet<TaskId>, Error> {
    type Timed = Vec<(Vec<usize>, TaskId, f64)>;
    let timed = |(input, network): (&Input, &Network)| -> Result<Timed, Error> {
        let Some(made) = input.model() else { return Ok(Vec::new()) };
        let graph = &made.graph;
        let inputs = network.random_inputs(&[]);
        let times: Times = network.time(&inputs, 0.5)?.1;
        let model = graph.model();
        let of = |(i, task): (usize, TaskId)| {
            let nodes = graph.candidates().list[i].nodes.clone();
            let first = &model.nodes[*nodes.first()?].name;
            let run = made.remade.get(&task).copied().unwrap_or(task);
            let layer = times.layers.iter().find(|l| l.task == Some(run) && l.node == *first)?;
            Some((nodes, task, layer.in_place_ns as f64))
        };
        Ok(steps(graph).filter_map(of).collect())
    };
    let (before, after) = (timed(held)?, timed(challenger)?);
    let mut sums: BTreeMap<TaskId, (f64, f64)> = BTreeMap::new();
    for (nodes, task, time) in &after {
        let inside = before.iter().filter(|(n, ..)| n.iter().all(|x| nodes.contains(x)));
        let inside: Vec<f64> = inside.map(|b| b.2).collect();
        // What stands for one kernel alone is the same kernel.
        if inside.len() > 1 {
            let sum = sums.entry(*task).or_default();
            *sum = (sum.0 + inside.iter().sum::<f64>(), sum.1 + time);
        }
    }
    let is_slow = |(_, (old, new)): &(&TaskId, &(f64, f64))| *new > WORTH * old;
    Ok(sums.iter().filter(is_slow).map(|(id, _)| *id).collect())
}

/// The sentence for the user about two covers that met.
fn note([old, new]: &[BTreeSet<usize>; 2], ratio: f64, is_taken: bool) -> String {
    let other = counted(new.difference(old).count(), "kernel");
    let instead = old.difference(new).count();
    match is_taken {
        true => format!(
            "the whole network is {:.2}x as fast with {other} in the place of {instead}: they are \
             taken",
            1.0 / ratio
        ),
        false => format!(
            "{other} in the place of {instead} were tried in the whole network, which is {:.2}x as \
             fast with them: they are not taken",
            1.0 / ratio
        ),
    }
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
