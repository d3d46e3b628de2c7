//! The default model of a solver: candidate rankers and chains over the same ground. The first
//! chain scores every candidate of the tuner space, all networks score those that it finds
//! likeliest, and the mean of their log-probabilities, weighed and sharpened so that validation
//! answers are likeliest, is the answer (docs/decisions/0019). Every candidate has a probability,
//! so the k best are exact.

use crate::case::{Case, Facts, Ground, Rows};
use crate::chain::{Chain, ChainRoom, ChainSizes};
use crate::checkpoint::Checkpoint;
use crate::memory::NOWHERE;
use crate::metric::Learning;
use crate::metrics::Outcome;
use crate::nn::vector::log_softmax;
use crate::ranker::{Ranker, RankerRoom, RankerSizes, mean};
use crate::rows::Kind;
use crate::train::{Epoch, Learner, Pair, Schedule, State, train};
use crate::{paper, parallel};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Candidates, Example, Family, FamilyError, Part, Problem, fnv1a};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// How often training gave each answer.
    Frequency,
    /// The nearest problems' answers, whole and value by value.
    Neighbours,
    /// The candidate ranker alone.
    Ranker,
    /// The chain alone.
    Chain,
    /// Ranker and chain: the default.
    Pair,
}

/// How to train the default model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// What is trained. Of the rest, the default model reads the sizes and the members; the paper's
    /// read the second number of epochs and the width of their LSTMs.
    pub model: Kind,
    /// Seed of everything.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
    /// Sizes of the ranker.
    pub ranker: RankerSizes,
    /// Sizes of the chain.
    pub chain: ChainSizes,
    /// Passes over the data, for the ranker and the chain, at most. 0 is as many as take about
    /// [`STEPS`] steps, from 14 to 28.
    pub epochs: (usize, usize),
    /// Networks of each kind, which differ by their seeds; their log-probabilities are averaged. 0
    /// is the model's own number: six, of Squall's own tasks eight.
    pub members: (usize, usize),
    /// Width of the paper's LSTMs.
    pub lstm: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            model: Kind::Pair,
            seed: 1,
            threads: 2,
            ranker: RankerSizes::default(),
            chain: ChainSizes::default(),
            epochs: (0, 0),
            members: (0, 0),
            lstm: paper::LSTM,
        }
    }
}

impl Options {
    /// The defaults for a model.
    pub fn of(model: Kind) -> Options {
        let mut options = Options { model, ..Options::default() };
        if matches!(model, Kind::Paper(_)) {
            options.epochs.1 = paper::EPOCHS;
        }
        options
    }
}

/// Networks of a kind that are trained: six answer a little better than three (docs/predictor.md),
/// and a shortlist half as long pays for them.
const MEMBERS: usize = 6;

/// Of these so many hold validation out: they say after how many passes to stop and how to mix. The
/// others learn validation's answers too, for as many passes as those were best after.
const HOLDERS: usize = 2;

/// How many of so many networks hold validation out: all where they are few.
fn holders(members: usize) -> usize {
    if members < 2 * HOLDERS { members } else { HOLDERS }
}

/// Steps of 64 examples after which a network hardly gains from more, between 14 passes, which
/// large data needs too, and 28.
pub const STEPS: usize = 3100;

/// How many passes over so many examples are made.
fn passes(asked: usize, examples: usize) -> usize {
    if asked > 0 { asked } else { (STEPS * 64 / examples.max(1)).clamp(14, 28) }
}

/// How the two models' log-probabilities become one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Factor on the ranker's.
    pub ranker: f32,
    /// Factor on the chain's.
    pub chain: f32,
}

/// What trained a solver's networks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Epochs of each ranker.
    pub ranker: Vec<Vec<Epoch>>,
    /// Epochs of each chain.
    pub chain: Vec<Vec<Epoch>>,
}

/// Candidates that the first chain hands on to all other networks, where there are more. Chosen on
/// validation rows: fewer lose answers, more cost time.
const SHORTLIST: usize = 256;

/// What the networks of a solver say of a case's candidates.
pub(crate) struct Opinions {
    /// The first chain's log-probabilities, where it made a shortlist.
    pub first: Vec<f32>,
    /// The shortlist, ascending; all where there is none.
    pub rows: Option<Vec<u32>>,
    /// Log-probabilities among those.
    ranker: Vec<f32>,
    chain: Vec<f32>,
}

impl Opinions {
    /// Log-probabilities of all candidates: the shortlist shares what the first chain gives it as
    /// all networks together say, the others keep what they have.
    pub fn mixed(&self, mix: Mix) -> Vec<f32> {
        let mut sum: Vec<f32> = self
            .ranker
            .iter()
            .zip(&self.chain)
            .map(|(r, c)| mix.ranker * r + mix.chain * c)
            .collect();
        log_softmax(&mut sum);
        let Some(rows) = &self.rows else { return sum };
        let mut out = self.first.clone();
        let given = rows.iter().map(|&r| f64::from(out[r as usize]).exp()).sum::<f64>().ln() as f32;
        rows.iter().zip(&sum).for_each(|(&r, s)| out[r as usize] = given + s);
        out
    }
}

/// A solver's trained models.
#[derive(Debug)]
pub struct Solver {
    pub(crate) ground: Ground,
    pub(crate) ranker: Ranker,
    pub(crate) ranker_members: Vec<Vec<f32>>,
    pub(crate) chain: Chain,
    pub(crate) chain_members: Vec<Vec<f32>>,
    pub(crate) mix: Mix,
    /// Hashes of all keys that were among the examples, held out or not; ascending.
    pub(crate) keys: Vec<u64>,
    /// How training went.
    pub curves: Curves,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub struct Room {
    pub(crate) near: Vec<f32>,
    ranker: RankerRoom,
    chain: ChainRoom,
}

/// What training says as it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress<'a> {
    /// The solver.
    pub solver: &'a str,
    /// `distances`, `ranker` or `chain`.
    pub network: &'static str,
    /// Which network of its kind, from 0, and how many there are.
    pub member: (usize, usize),
    /// Epochs done, and of how many.
    pub epochs: (usize, usize),
    /// The share of the running epoch that is done.
    pub within: f64,
    /// The last epoch's losses.
    pub last: Option<Epoch>,
}

/// Hashes of the examples' keys, ascending.
pub(crate) fn hashes(examples: &[&Example]) -> Vec<u64> {
    let mut keys: Vec<u64> = examples.iter().map(|e| fnv1a(e.problem.key.as_bytes())).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Makes cases of examples on all threads, sharing equal candidate sets. `remembered` is the place
/// of the first in the memory, where they are remembered.
pub(crate) fn cases(
    ground: &Ground,
    examples: &[&Example],
    threads: usize,
    remembered: Option<usize>,
) -> Result<Vec<Case>, FamilyError> {
    let numbered: Vec<(usize, &&Example)> = examples.iter().enumerate().collect();
    let made: Vec<Result<Case, FamilyError>> =
        parallel::map(threads, &numbered, |(i, e), room: &mut Vec<f32>| {
            let mut case = ground.case(
                &e.problem,
                Some(&e.values),
                remembered.map(|first| (first + *i) as u32),
                room,
            )?;
            if remembered.is_some() {
                case.legal_share = ground.legal_share(&case);
            }
            Ok(case)
        });
    let mut known: HashMap<u64, Vec<Arc<Candidates>>> = HashMap::new();
    let mut out = Vec::with_capacity(made.len());
    for case in made {
        let mut case = case?;
        let mut hasher = DefaultHasher::new();
        case.candidates.table.hash(&mut hasher);
        let alike = known.entry(hasher.finish()).or_default();
        match alike.iter().find(|c| c.table == case.candidates.table) {
            Some(c) => case.candidates = c.clone(),
            None => alike.push(case.candidates.clone()),
        }
        out.push(case);
    }
    Ok(out)
}

/// Cases whose truth is in their tuner space, with their problems.
pub(crate) fn pairs<'a>(cases: &'a [Case], examples: &[&'a Example]) -> Vec<Pair<'a>> {
    cases
        .iter()
        .zip(examples)
        .filter(|(c, _)| c.truth.is_some())
        .map(|(c, e)| (c, &e.problem))
        .collect()
}

/// What a model of a solver is made from. All examples are of the family, inside their tuner space;
/// of those, `part` says which are learned by all networks, and which say when to stop and how to
/// mix.
#[derive(Clone)]
pub struct Material<'a> {
    /// The kernels.
    pub family: Arc<Family>,
    /// Problems with what tuning found.
    pub examples: &'a [&'a Example],
    /// What an example is for.
    pub part: &'a dyn Fn(&Problem) -> Part,
    /// What is trained, and how.
    pub options: &'a Options,
}

impl<'a> Material<'a> {
    /// The examples that are for something.
    pub(crate) fn of(&self, part: Part) -> Vec<&'a Example> {
        self.examples.iter().filter(|e| (self.part)(&e.problem) == part).copied().collect()
    }
}

/// What networks learn from.
struct Data<'a> {
    ground: &'a Ground,
    learned: &'a [Pair<'a>],
    held: &'a [Pair<'a>],
    /// Both.
    all: &'a [Pair<'a>],
}

/// How many networks of one kind, and how each is trained; their seeds follow from the schedule's.
#[derive(Clone, Copy)]
struct Plan {
    network: &'static str,
    members: usize,
    schedule: Schedule,
}

/// Who keeps the state of training after every epoch.
pub(crate) struct Keeper<'a> {
    /// What was done before, and is done now.
    pub checkpoint: &'a mut Checkpoint,
    /// Told after every epoch.
    pub keep: &'a mut dyn FnMut(&Checkpoint),
    /// The number of the first network of a kind.
    pub first: usize,
}

impl Keeper<'_> {
    /// Trains a network from where the checkpoint has it. `go_on` may end it, and then it is not
    /// kept as finished.
    pub fn train<L: Learner>(
        &mut self,
        (learner, network, member): (&L, &str, usize),
        ground: &Ground,
        (learned, held): (&[Pair], &[Pair]),
        schedule: &Schedule,
        go_on: &mut dyn FnMut(&State, f64) -> bool,
    ) -> Result<State, FamilyError> {
        let solver = ground.family.solver();
        let member = self.first + member;
        let (mut state, finished) = match self.checkpoint.state(solver, network, member) {
            Some((state, finished)) if state.parameters.len() == learner.layout().len() => {
                (state.clone(), finished)
            }
            _ => (State::new(learner.layout(), schedule), false),
        };
        if finished {
            return Ok(state);
        }
        let mut went_on = true;
        train(learner, ground, learned, held, schedule, &mut state, &mut |s, within| {
            if within == 0.0 {
                self.checkpoint.keep(solver, network, member, s, false);
                (self.keep)(self.checkpoint);
            }
            went_on = go_on(s, within);
            went_on
        })?;
        if went_on {
            self.checkpoint.keep(solver, network, member, &state, true);
        }
        Ok(state)
    }
}

/// Asked as training goes: which network of how many, its schedule and state, the share of the
/// epoch that is done.
type Ask<'a> = dyn FnMut((usize, usize), &Schedule, &State, f64) -> bool + 'a;

/// Parameters and curves of trained networks, one of each a member.
type Trained = (Vec<Vec<f32>>, Vec<Vec<Epoch>>);

impl Data<'_> {
    fn train<L: Learner>(
        &self,
        learner: &L,
        plan: Plan,
        keeper: &mut Keeper,
        go_on: &mut Ask,
    ) -> Result<Trained, FamilyError> {
        let (mut members, mut curves) = (Vec::new(), Vec::new());
        let holders = if self.held.is_empty() { plan.members } else { holders(plan.members) };
        let mut best = 0;
        for i in 0..plan.members {
            let seed = plan.schedule.seed.wrapping_mul(1000).wrapping_add(i as u64);
            let (network, mut schedule) = (plan.network, Schedule { seed, ..plan.schedule });
            let mut of = (self.learned, self.held);
            if i >= holders {
                of = (self.all, &[]);
                schedule.until = (best + holders / 2) / holders;
            }
            let mut on = true;
            let mut ask = |s: &State, within: f64| {
                on = go_on((i, plan.members), &schedule, s, within);
                on
            };
            let state =
                keeper.train((learner, network, i), self.ground, of, &schedule, &mut ask)?;
            if i < holders {
                best += state.best_epoch().map_or(0, |e| e + 1);
            }
            members.push(state.best);
            curves.push(state.curve);
            if !on {
                break; // and nobody counts passes of a network that was ended
            }
        }
        Ok((members, curves))
    }
}

impl Solver {
    /// Trains a solver's models; `None` where `go_on` said no before there were networks.
    pub(crate) fn train(
        m: &Material,
        keeper: &mut Keeper,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Solver>, FamilyError> {
        let options = m.options;
        let (training, validation) = (m.of(Part::Train), m.of(Part::Validation));
        let solver = m.family.solver().to_owned();
        let mut on = true;
        let mut ask = |epochs: (usize, usize), within: f64| {
            on = go_on(&Progress {
                solver: &solver,
                network: "distances",
                member: (0, 1),
                epochs,
                within,
                last: None,
            });
            on
        };
        let learning = Learning { seed: options.seed, threads: options.threads, go_on: &mut ask };
        let ground = Ground::learn(m.family.clone(), &training, &validation, Some(learning))?;
        if !on {
            return Ok(None); // networks that learned by half-learned distances would be another training's
        }
        let make = |examples: &[&Example], remembered| -> Result<Vec<Case>, FamilyError> {
            cases(&ground, examples, options.threads, remembered)
        };
        let (training_cases, validation_cases) =
            (make(&training, Some(0))?, make(&validation, Some(training.len()))?);
        let mut all = pairs(&training_cases, &training);
        let learned = all.len();
        all.extend(pairs(&validation_cases, &validation));
        let (learned, held) = all.split_at(learned);
        let mut run = |network: &'static str,
                       member: (usize, usize),
                       schedule: &Schedule,
                       state: &State,
                       within: f64| {
            let epochs = (state.curve.len(), schedule.until);
            go_on(&Progress {
                solver: &solver,
                network,
                member,
                epochs,
                within,
                last: state.curve.last().copied(),
            })
        };
        let data = Data { ground: &ground, learned, held, all: &all };
        let ranker = Ranker::new(&ground, options.ranker);
        let chain = Chain::new(&ground, options.chain);
        let plan = |network, members: usize, epochs, batch, decay| {
            let (seed, threads, epochs) =
                (options.seed, options.threads, passes(epochs, learned.len()));
            let schedule = Schedule {
                epochs,
                until: epochs,
                batch,
                rate: 2e-3,
                decay,
                memory: 0.995,
                patience: 5,
                seed,
                threads,
            };
            Plan { network, members: if members > 0 { members } else { MEMBERS }, schedule }
        };
        let ranking = plan("ranker", options.members.0, options.epochs.0, 64, 0.1);
        let (ranker_members, ranker_curves) =
            data.train(&ranker, ranking, keeper, &mut |m, p, s, w| run("ranker", m, p, s, w))?;
        let chaining = plan("chain", options.members.1, options.epochs.1, 128, 0.01);
        let (chain_members, chain_curves) =
            data.train(&chain, chaining, keeper, &mut |m, p, s, w| run("chain", m, p, s, w))?;
        let curves = Curves { ranker: ranker_curves, chain: chain_curves };
        let mix = Mix { ranker: 0.5, chain: 0.5 };
        let keys = hashes(m.examples);
        let mut out =
            Solver { ranker, ranker_members, chain, chain_members, mix, keys, curves, ground };
        out.fit_mix(held, options.threads)?;
        Ok(Some(out))
    }

    /// What training learned of the data.
    pub(crate) fn facts(&self) -> &Facts {
        &self.ground.facts
    }

    /// Chooses the mix that makes validation answers likeliest, from a grid, for the networks that
    /// did not learn them; equal parts where there is nothing to choose by.
    fn fit_mix(&mut self, held: &[Pair], threads: usize) -> Result<(), FamilyError> {
        const GRID: [f32; 6] = [0.2, 0.35, 0.5, 0.65, 0.8, 1.0];
        let step = held.len() / 400 + 1;
        let some: Vec<Pair> = held.iter().step_by(step).copied().collect();
        let lists = parallel::map(threads, &some, |(case, problem), room: &mut Room| {
            let opinions = self.opinions(case, problem, SHORTLIST, holders, room)?;
            let truth = case.truth.unwrap_or(0) as usize;
            let mixes = GRID.into_iter().flat_map(|ranker| GRID.map(|chain| Mix { ranker, chain }));
            Ok(mixes.map(|mix| f64::from(opinions.mixed(mix)[truth])).collect())
        });
        let lists: Vec<Vec<f64>> = lists.into_iter().collect::<Result<_, FamilyError>>()?;
        if lists.is_empty() {
            return Ok(());
        }
        let total = |i: usize| lists.iter().map(|l| l[i]).sum::<f64>();
        let best = (0..GRID.len() * GRID.len())
            .max_by(|&i, &j| total(i).total_cmp(&total(j)))
            .unwrap_or(0);
        self.mix = Mix { ranker: GRID[best / GRID.len()], chain: GRID[best % GRID.len()] };
        Ok(())
    }

    /// Whose kernels it knows.
    pub fn solver(&self) -> &str {
        self.ground.family.solver()
    }

    /// The family that it was trained with.
    pub fn family(&self) -> &Family {
        &self.ground.family
    }

    /// The mix that was fitted.
    pub fn mix(&self) -> Mix {
        self.mix
    }

    fn log_probabilities(
        &self,
        method: Method,
        case: &Case,
        problem: &Problem,
        room: &mut Room,
    ) -> Result<Vec<f32>, FamilyError> {
        let g = &self.ground;
        Ok(match method {
            Method::Frequency => g.by_frequency(case),
            Method::Neighbours => by_neighbours(g, case, &mut room.near),
            Method::Ranker => {
                let all = (Rows::All, &case.candidates.table[..]);
                self.ranker.score(
                    &self.ranker_members,
                    g,
                    (case, &g.family.instance(problem)?),
                    all,
                    &mut room.ranker,
                )
            }
            Method::Chain => self.chain.score(&self.chain_members, g, case, &mut room.chain),
            Method::Pair => self.opinions(case, problem, SHORTLIST, |n| n, room)?.mixed(self.mix),
        })
    }

    /// What the networks say of a case: the first chain of all candidates, `some` of so many
    /// networks of each kind of those that it finds likeliest, `shortlist` of them.
    pub(crate) fn opinions(
        &self,
        case: &Case,
        problem: &Problem,
        shortlist: usize,
        some: fn(usize) -> usize,
        room: &mut Room,
    ) -> Result<Opinions, FamilyError> {
        let (g, c) = (&self.ground, &case.candidates);
        let [rankers, chains] =
            [&self.ranker_members, &self.chain_members].map(|all| &all[..some(all.len())]);
        let instance = g.family.instance(problem)?;
        if c.len() <= shortlist {
            let all = (Rows::All, &c.table[..]);
            let ranker = self.ranker.score(rankers, g, (case, &instance), all, &mut room.ranker);
            let chain = self.chain.score(chains, g, case, &mut room.chain);
            return Ok(Opinions { first: Vec::new(), rows: None, ranker, chain });
        }
        let mut choices = self.chain.choices(g, case, &mut room.chain);
        let first = self.chain.walk(&chains[0], case, &choices, &mut room.chain);
        let mut rows: Vec<u32> = (0..c.len() as u32).collect();
        let better =
            |a: &u32, b: &u32| first[*b as usize].total_cmp(&first[*a as usize]).then(a.cmp(b));
        rows.select_nth_unstable_by(shortlist - 1, better);
        rows.truncate(shortlist);
        rows.sort_unstable();
        let table: Vec<u16> = rows.iter().flat_map(|&r| c.row(r as usize)).copied().collect();
        let ranker = self.ranker.score(
            rankers,
            g,
            (case, &instance),
            (Rows::Some(&rows), &table),
            &mut room.ranker,
        );
        choices.iter_mut().for_each(|c| c.only(&rows));
        let short = |all: &[f32]| {
            let mut some: Vec<f32> = rows.iter().map(|&r| all[r as usize]).collect();
            log_softmax(&mut some);
            some
        };
        let mut said = vec![short(&first)];
        said.extend(
            chains[1..].iter().map(|p| short(&self.chain.walk(p, case, &choices, &mut room.chain))),
        );
        Ok(Opinions { first, rows: Some(rows), ranker, chain: mean(said) })
    }

    /// The k most probable configurations of a problem's tuner space, best first, with their
    /// probabilities; fewer where the space is smaller, none where nothing is legal.
    pub fn predict(
        &self,
        problem: &Problem,
        k: usize,
        method: Method,
        room: &mut Room,
    ) -> Result<Vec<(Vec<i64>, f64)>, FamilyError> {
        let case = self.ground.case(problem, None, None, &mut room.near)?;
        let scores = self.log_probabilities(method, &case, problem, room)?;
        Ok(best(&self.ground.family, &case, &scores, k))
    }

    /// What predictions for examples with known answers are worth.
    pub fn evaluate(
        &self,
        examples: &[&Example],
        method: Method,
        threads: usize,
    ) -> Result<Vec<Outcome>, FamilyError> {
        let outcomes = parallel::map(threads, examples, |e, room: &mut Room| {
            let case = self.ground.case(&e.problem, Some(&e.values), None, &mut room.near)?;
            let scores = self.log_probabilities(method, &case, &e.problem, room)?;
            outcome(&self.ground, &case, &e.problem, &scores)
        });
        outcomes.into_iter().collect()
    }
}

/// The k most probable candidates, best first, with their probabilities; of equals the first.
pub(crate) fn best(family: &Family, case: &Case, scores: &[f32], k: usize) -> Vec<(Vec<i64>, f64)> {
    // A beam search gives up candidates.
    let mut order: Vec<u32> =
        (0..scores.len() as u32).filter(|&i| scores[i as usize] > f32::NEG_INFINITY).collect();
    let better =
        |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    if k < order.len() && k > 0 {
        order.select_nth_unstable_by(k - 1, better);
    }
    order.truncate(k);
    order.sort_unstable_by(better);
    let answer = |&i: &u32| {
        (family.values(case.candidates.row(i as usize)), f64::from(scores[i as usize]).exp())
    };
    order.iter().map(answer).collect()
}

/// The rank of the truth, and of the first candidate that is the truth's kernel.
pub(crate) fn outcome(
    ground: &Ground,
    case: &Case,
    problem: &Problem,
    scores: &[f32],
) -> Result<Outcome, FamilyError> {
    let confidence = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let confidence = f64::from(confidence).exp();
    let Some(truth) = case.truth.map(|t| t as usize) else {
        return Ok(Outcome {
            rank: None,
            kernel_rank: None,
            log_likelihood: f64::NEG_INFINITY,
            confidence,
        });
    };
    if scores[truth] == f32::NEG_INFINITY {
        // A beam search lost it.
        return Ok(Outcome {
            rank: None,
            kernel_rank: None,
            log_likelihood: f64::NEG_INFINITY,
            confidence,
        });
    }
    let before = |i: usize| {
        scores
            .iter()
            .enumerate()
            .filter(|(j, s)| **s > scores[i] || **s == scores[i] && *j < i)
            .count()
    };
    let rank = before(truth);
    let instance = ground.family.instance(problem)?;
    let mut kernel_rank = rank;
    if !ground.family.spec().kernel.is_empty() {
        let kernel = instance.kernel(case.candidates.row(truth));
        for i in 0..scores.len() {
            if scores[i] > scores[truth] && instance.kernel(case.candidates.row(i)) == kernel {
                kernel_rank = kernel_rank.min(before(i));
            }
        }
    }
    Ok(Outcome {
        rank: Some(rank),
        kernel_rank: Some(kernel_rank),
        log_likelihood: f64::from(scores[truth]),
        confidence,
    })
}

/// The neighbours' answers, by distances that nobody learned: shares of whole answers, a little of
/// the product of shares of values, and a trace of even chances.
pub(crate) fn by_neighbours(ground: &Ground, case: &Case, room: &mut Vec<f32>) -> Vec<f32> {
    let votes = ground.plain_votes(case, room);
    // A row that training never showed has neighbours in the others only.
    let (neighbours, v) = if votes[0].0.is_empty() { &votes[1] } else { &votes[0] };
    let width = ground.offsets.len();
    let table = &case.candidates.table;
    let marginal: Vec<f32> = v.values.iter().map(|s| (s + 0.01).ln()).collect();
    let mut out: Vec<f32> = table
        .chunks_exact(width)
        .map(|row| {
            0.1 * row
                .iter()
                .zip(&ground.offsets)
                .map(|(&v, o)| marginal[o + v as usize])
                .sum::<f32>()
                .exp()
                + 1e-9
        })
        .collect();
    for (n, w) in neighbours.iter().zip(&v.weights) {
        if n.candidate != NOWHERE {
            out[n.candidate as usize] += 0.5 * w.0 + 0.5 * w.1;
        }
    }
    let total: f32 = out.iter().sum();
    out.iter().map(|x| (x / total).ln()).collect()
}
