//! The default model of a solver: candidate rankers (`ranker.rs`) and chains (`chain.rs`) over the
//! same encoded problems. The first chain scores every candidate of the tuner space, all networks
//! score those that it finds likeliest, and the mean of their log-probabilities, weighted and
//! sharpened so that validation answers are likeliest, is the answer (docs/decisions/0019). Every
//! candidate has a probability, so the k best are exact.

use crate::chain::{Chain, ChainScratch, ChainSizes};
use crate::features::{EncodedProblem, Facts, Featurizer, Selection};
use crate::metric::Learning;
use crate::metrics::Outcome;
use crate::nn::ParameterLayout;
use crate::nn::vector::log_softmax;
use crate::options::{Method, Options};
use crate::parallel;
use crate::ranker::{Ranker, RankerScratch, RankerSizes, mean};
use crate::ranking::{best, by_neighbours, outcome};
use crate::tensors::round_row;
use crate::train::{Epoch, Labelled, Learner, Problems, Schedule, State};
use crate::trainer::{Job, Progress, Seen, Trainer, TrainingData, encode_while, labelled};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Example, Family, FamilyError, Part, Problem};

/// Networks of each kind that are trained, of a solver whose space is specified and of one whose
/// space is the vectors that occurred.
const MEMBERS: usize = 6;
const MEMBERS_OF_LISTED: usize = 4;

/// The number of networks that hold validation out: they decide after how many passes to stop and
/// how to mix. The others learn the validation examples too, for as many passes as were best for
/// those.
const HOLDERS: usize = 2;

/// The number of `members` networks that hold validation out: all where they are few.
fn holders(members: usize) -> usize {
    if members < 2 * HOLDERS { members } else { HOLDERS }
}

/// Steps of 64 examples after which a network hardly gains from more, between 14 passes, which
/// large data needs too, and 28.
pub const STEPS: usize = 3100;

/// The number of passes over a number of examples; 0 asks for the default.
fn passes(asked: usize, examples: usize) -> usize {
    if asked > 0 { asked } else { (STEPS * 64 / examples.max(1)).clamp(14, 28) }
}

/// The weights by which the log-probabilities of rankers and chains become one sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// Factor on the ranker's.
    pub ranker: f32,
    /// Factor on the chain's.
    pub chain: f32,
}

/// The learning curves of a solver's networks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// Epochs of each ranker.
    pub ranker: Vec<Vec<Epoch>>,
    /// Epochs of each chain.
    pub chain: Vec<Vec<Epoch>>,
}

/// The number of candidates that the first chain hands on to all other networks, where there are
/// more. It was chosen on validation rows: fewer lose answers, more cost time.
const SHORTLIST: usize = 256;

/// The log-probabilities that the networks of a solver give a problem's candidates.
pub(crate) struct NetworkScores {
    /// The first chain's log-probabilities, where it made a shortlist.
    pub first: Vec<f32>,
    /// The places of the shortlist among the candidates, ascending; `None` where it has all.
    pub shortlist: Option<Vec<u32>>,
    /// Log-probabilities among those.
    ranker: Vec<f32>,
    chain: Vec<f32>,
}

impl NetworkScores {
    /// Log-probabilities of all candidates. All networks together divide among the shortlist what
    /// the first chain gives it; the other candidates keep what the first chain gives them.
    pub fn mixed(&self, mix: Mix) -> Vec<f32> {
        let mut sum: Vec<f32> = self
            .ranker
            .iter()
            .zip(&self.chain)
            .map(|(r, c)| mix.ranker * r + mix.chain * c)
            .collect();
        log_softmax(&mut sum);
        let Some(rows) = &self.shortlist else { return sum };
        let mut out = self.first.clone();
        let given = rows.iter().map(|&r| f64::from(out[r as usize]).exp()).sum::<f64>().ln() as f32;
        rows.iter().zip(&sum).for_each(|(&r, s)| out[r as usize] = given + s);
        out
    }
}

/// A solver's trained models.
#[derive(Debug)]
pub struct Solver {
    pub(crate) featurizer: Featurizer,
    pub(crate) ranker: Ranker,
    pub(crate) ranker_members: Vec<Vec<f32>>,
    pub(crate) chain: Chain,
    pub(crate) chain_members: Vec<Vec<f32>>,
    pub(crate) mix: Mix,
    /// The problems that were among the examples, held out or not.
    pub(crate) seen: Seen,
    /// How training went.
    pub curves: Curves,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) near: Vec<f32>,
    ranker: RankerScratch,
    chain: ChainScratch,
}

/// What networks learn from.
struct Data<'a> {
    featurizer: &'a Featurizer,
    learned: &'a [Labelled<'a>],
    held: &'a [Labelled<'a>],
    /// Both.
    all: &'a [Labelled<'a>],
}

/// How many networks of one kind are trained, and how; their seeds follow from the schedule's.
#[derive(Clone, Copy)]
struct Ensemble {
    network: &'static str,
    members: usize,
    schedule: Schedule,
}

/// Whether a family's space is the vectors that occurred in its examples.
fn is_listed(family: &Family) -> bool {
    !family.spec().listed.is_empty()
}

/// The sizes of a family's networks: those that were asked for, or the default.
fn sizes(family: &Family, options: &Options) -> (RankerSizes, ChainSizes) {
    let (mut ranker, mut chain) = (options.ranker, options.chain);
    if is_listed(family) && ranker == RankerSizes::default() {
        ranker = RankerSizes::OF_LISTED;
    }
    if is_listed(family) && chain == ChainSizes::default() {
        chain = ChainSizes::OF_LISTED;
    }
    (ranker, chain)
}

/// A network's parameters as files keep them, row by row.
fn rounded(layout: &ParameterLayout, mut parameters: Vec<f32>) -> Vec<f32> {
    for (_, m) in layout.entries() {
        m.of_mut(&mut parameters).chunks_exact_mut(m.cols.max(1)).for_each(round_row);
    }
    parameters
}

/// Parameters and curves of trained networks, one of each a member.
type Trained = (Vec<Vec<f32>>, Vec<Vec<Epoch>>);

impl Ensemble {
    /// The networks of one kind for a family. 0 members stand for the default number.
    fn new(network: &'static str, family: &Family, members: usize, schedule: Schedule) -> Ensemble {
        let default = if is_listed(family) { MEMBERS_OF_LISTED } else { MEMBERS };
        Ensemble { network, members: if members > 0 { members } else { default }, schedule }
    }
}

impl Data<'_> {
    /// Trains the networks of one kind.
    fn train<L: Learner>(
        &self,
        learner: &L,
        ensemble: Ensemble,
        trainer: &mut Trainer,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Trained, FamilyError> {
        let holders =
            if self.held.is_empty() { ensemble.members } else { holders(ensemble.members) };
        let job = |i: usize, until: Option<usize>| {
            let seed = ensemble.schedule.seed.wrapping_mul(1000).wrapping_add(i as u64);
            let mut schedule = Schedule { seed, ..ensemble.schedule };
            let mut problems = Problems { learned: self.learned, held: self.held };
            if let Some(until) = until {
                problems = Problems { learned: self.all, held: &[] };
                schedule.until = until;
            }
            Job { network: ensemble.network, member: i, problems, schedule }
        };
        let mut ask = |jobs: &[Job], j: usize, epochs: usize, within: f64, last: Option<Epoch>| {
            go_on(&Progress {
                solver: self.featurizer.family.solver(),
                network: ensemble.network,
                member: (jobs[j].member, ensemble.members),
                epochs: (epochs, jobs[j].schedule.until),
                within,
                last,
            })
        };
        let mut run = |jobs: &[Job], trainer: &mut Trainer| {
            let mut go_on = |j, epochs, within, last| ask(jobs, j, epochs, within, last);
            trainer.train_together(learner, self.featurizer, jobs, &mut go_on)
        };
        let jobs: Vec<Job> = (0..holders).map(|i| job(i, None)).collect();
        let (mut states, on) = run(&jobs, trainer)?;
        // Networks that were ended early say nothing about the number of passes.
        if on && holders < ensemble.members {
            let best: usize = states.iter().map(|s| s.best_epoch().map_or(0, |e| e + 1)).sum();
            let until = Some((best + holders / 2) / holders);
            let jobs: Vec<Job> = (holders..ensemble.members).map(|i| job(i, until)).collect();
            states.extend(run(&jobs, trainer)?.0);
        }
        let curves = states.iter().map(|s| s.curve.clone()).collect();
        let rounded = |s: State| rounded(learner.layout(), s.best);
        let members = states.into_iter().map(rounded).collect();
        Ok((members, curves))
    }
}

/// Learns distances and everything else that is no network; `None` where `go_on` returned false.
fn learn_featurizer(
    m: &TrainingData,
    training: &[&Example],
    validation: &[&Example],
    go_on: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Option<Featurizer>, FamilyError> {
    let mut on = true;
    let mut ask = |epochs: (usize, usize), within: f64| {
        on = go_on(&Progress {
            solver: m.family.solver(),
            network: "distances",
            member: (0, 1),
            epochs,
            within,
            last: None,
        });
        on
    };
    let (seed, threads) = (m.options.seed, m.options.threads);
    let learning = Learning { seed, threads, go_on: &mut ask };
    let featurizer = Featurizer::learn(m.family.clone(), training, validation, Some(learning))?;
    // With distances that were learned half-way, networks would not be those of this training.
    Ok(on.then_some(featurizer))
}

/// The examples that are learned and those that are held out, encoded; `None` where `go_on`
/// returned false.
fn encode_both(
    m: &TrainingData,
    featurizer: &Featurizer,
    training: &[&Example],
    validation: &[&Example],
    go_on: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Option<[Vec<EncodedProblem>; 2]>, FamilyError> {
    let mut encode = |examples: &[&Example], first: usize| {
        encode_while(featurizer, examples, m.options.threads, Some(first), &mut |within| {
            go_on(&Progress {
                solver: m.family.solver(),
                network: "examples",
                member: (0, 1),
                epochs: (0, 1),
                within,
                last: None,
            })
        })
    };
    let Some(training_encoded) = encode(training, 0)? else { return Ok(None) };
    let validation_encoded = encode(validation, training.len())?;
    Ok(validation_encoded.map(|v| [training_encoded, v]))
}

impl Solver {
    /// Trains a solver's models; `None` where `go_on` returned false before there were networks.
    pub(crate) fn train(
        m: &TrainingData,
        trainer: &mut Trainer,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Solver>, FamilyError> {
        let options = m.options;
        let (training, validation) = (m.of(Part::Train), m.of(Part::Validation));
        let Some(featurizer) = learn_featurizer(m, &training, &validation, go_on)? else {
            return Ok(None);
        };
        let Some([encoded_training, encoded_validation]) =
            encode_both(m, &featurizer, &training, &validation, go_on)?
        else {
            return Ok(None);
        };
        let mut all = labelled(&encoded_training, &training);
        let learned = all.len();
        all.extend(labelled(&encoded_validation, &validation));
        let (learned, held) = all.split_at(learned);
        let data = Data { featurizer: &featurizer, learned, held, all: &all };
        let schedule = |epochs: usize, batch, decay| {
            let epochs = passes(epochs, learned.len());
            Schedule {
                epochs,
                until: epochs,
                batch,
                rate: 2e-3,
                decay,
                memory: 0.995,
                patience: 5,
                seed: options.seed,
                threads: options.threads,
            }
        };
        let (ranker, chain) = sizes(&m.family, options);
        let ranker = Ranker::new(&featurizer, ranker);
        let ensemble = Ensemble::new(
            "ranker",
            &m.family,
            options.members.0,
            schedule(options.epochs.0, 64, 0.1),
        );
        let (ranker_members, ranker_curves) = data.train(&ranker, ensemble, trainer, go_on)?;
        let chain = Chain::new(&featurizer, chain);
        let ensemble = Ensemble::new(
            "chain",
            &m.family,
            options.members.1,
            schedule(options.epochs.1, 128, 0.01),
        );
        let (chain_members, chain_curves) = data.train(&chain, ensemble, trainer, go_on)?;
        let curves = Curves { ranker: ranker_curves, chain: chain_curves };
        let mix = Mix { ranker: 0.5, chain: 0.5 };
        let seen = Seen::of(m.examples);
        let mut out =
            Solver { ranker, ranker_members, chain, chain_members, mix, seen, curves, featurizer };
        out.fit_mix(held, options.threads)?;
        Ok(Some(out))
    }

    /// What training learned of the data.
    pub(crate) fn facts(&self) -> &Facts {
        &self.featurizer.facts
    }

    /// Chooses from a grid the mix that makes validation answers likeliest, for the networks that
    /// did not learn them. The parts stay equal where there are no such answers.
    fn fit_mix(&mut self, held: &[Labelled], threads: usize) -> Result<(), FamilyError> {
        const GRID: [f32; 6] = [0.2, 0.35, 0.5, 0.65, 0.8, 1.0];
        let step = held.len() / 400 + 1;
        let some: Vec<Labelled> = held.iter().step_by(step).copied().collect();
        let lists = parallel::map(threads, &some, |(encoded, problem), scratch: &mut Scratch| {
            let scores = self.network_scores(encoded, problem, SHORTLIST, holders, scratch)?;
            let truth = encoded.truth.unwrap_or(0) as usize;
            let mixes = GRID.into_iter().flat_map(|ranker| GRID.map(|chain| Mix { ranker, chain }));
            Ok(mixes.map(|mix| f64::from(scores.mixed(mix)[truth])).collect())
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

    /// The name of the solver.
    pub fn solver(&self) -> &str {
        self.featurizer.family.solver()
    }

    /// The family that it was trained with.
    pub fn family(&self) -> &Family {
        &self.featurizer.family
    }

    /// The mix that was fitted.
    pub fn mix(&self) -> Mix {
        self.mix
    }

    fn log_probabilities(
        &self,
        method: Method,
        encoded: &EncodedProblem,
        problem: &Problem,
        scratch: &mut Scratch,
    ) -> Result<Vec<f32>, FamilyError> {
        let g = &self.featurizer;
        Ok(match method {
            Method::Frequency => g.by_frequency(encoded),
            Method::Neighbours => by_neighbours(g, encoded, &mut scratch.near),
            Method::Ranker => {
                let (all, instance) =
                    (Selection::all(&encoded.candidates), g.family.instance(problem)?);
                let (members, scratch) = (&self.ranker_members, &mut scratch.ranker);
                self.ranker.score(members, g, encoded, &instance, all, scratch)
            }
            Method::Chain => self.chain.score(&self.chain_members, g, encoded, &mut scratch.chain),
            Method::Pair => {
                let all = |members| members;
                self.network_scores(encoded, problem, SHORTLIST, all, scratch)?.mixed(self.mix)
            }
        })
    }

    /// Scores a problem's candidates: the first chain scores all of them, and `some` of the
    /// networks of each kind score the `shortlist` ones that it finds likeliest.
    pub(crate) fn network_scores(
        &self,
        encoded: &EncodedProblem,
        problem: &Problem,
        shortlist: usize,
        some: fn(usize) -> usize,
        scratch: &mut Scratch,
    ) -> Result<NetworkScores, FamilyError> {
        let (g, c) = (&self.featurizer, &encoded.candidates);
        let [rankers, chains] =
            [&self.ranker_members, &self.chain_members].map(|all| &all[..some(all.len())]);
        let instance = g.family.instance(problem)?;
        if c.len() <= shortlist {
            let all = Selection::all(c);
            let ranker =
                self.ranker.score(rankers, g, encoded, &instance, all, &mut scratch.ranker);
            let chain = self.chain.score(chains, g, encoded, &mut scratch.chain);
            return Ok(NetworkScores { first: Vec::new(), shortlist: None, ranker, chain });
        }
        let mut choices = self.chain.choices(g, encoded, &mut scratch.chain);
        let first = self.chain.walk(&chains[0], encoded, &choices, &mut scratch.chain);
        let mut rows: Vec<u32> = (0..c.len() as u32).collect();
        let better =
            |a: &u32, b: &u32| first[*b as usize].total_cmp(&first[*a as usize]).then(a.cmp(b));
        rows.select_nth_unstable_by(shortlist - 1, better);
        rows.truncate(shortlist);
        rows.sort_unstable();
        let table: Vec<u16> = rows.iter().flat_map(|&r| c.row(r as usize)).copied().collect();
        let some = Selection { places: Some(&rows), table: &table };
        let ranker = self.ranker.score(rankers, g, encoded, &instance, some, &mut scratch.ranker);
        choices.iter_mut().for_each(|c| c.retain(&rows));
        let short = |all: &[f32]| {
            let mut some: Vec<f32> = rows.iter().map(|&r| all[r as usize]).collect();
            log_softmax(&mut some);
            some
        };
        let mut lists = vec![short(&first)];
        for p in &chains[1..] {
            lists.push(short(&self.chain.walk(p, encoded, &choices, &mut scratch.chain)));
        }
        Ok(NetworkScores { first, shortlist: Some(rows), ranker, chain: mean(lists) })
    }

    /// The k most probable configurations of a problem's tuner space, best first, with their
    /// probabilities; fewer where the space is smaller, none where nothing is legal.
    pub fn predict(
        &self,
        problem: &Problem,
        k: usize,
        method: Method,
        scratch: &mut Scratch,
    ) -> Result<Vec<(Vec<i64>, f64)>, FamilyError> {
        let encoded = self.featurizer.encode(problem, None, None, &mut scratch.near)?;
        let scores = self.log_probabilities(method, &encoded, problem, scratch)?;
        Ok(best(&self.featurizer.family, &encoded, &scores, k))
    }

    /// What predictions for examples with known answers are worth.
    pub fn evaluate(
        &self,
        examples: &[&Example],
        method: Method,
        threads: usize,
    ) -> Result<Vec<Outcome>, FamilyError> {
        let outcomes = parallel::map(threads, examples, |e, scratch: &mut Scratch| {
            let values = Some(&e.values[..]);
            let encoded = self.featurizer.encode(&e.problem, values, None, &mut scratch.near)?;
            let scores = self.log_probabilities(method, &encoded, &e.problem, scratch)?;
            outcome(&self.featurizer, &encoded, &e.problem, &scores)
        });
        outcomes.into_iter().collect()
    }
}
