//! The default strategy, `evolution+droplet`: explore by evolution (`evolution.rs`) first, then
//! also descend (`droplet.rs`) from several of the best points that lie apart. Exploring and each
//! descent are arms of a multi-armed bandit: each gets a share of every batch by its recent gain,
//! and an arm without history is taken to be good.

use super::droplet::{Descent, beats};
use super::evolution::{Population, batch, default_model, evaluations, warm_up};
use super::ranker::Ranker;
use super::{DEFAULT, Setting, Strategy};
use crate::cost_model::CostModel;
use crate::ledger::{Ledger, Point, PointMap, PointSet};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Trial};

/// The share of the budget after which descents begin.
const EXPLORE_FIRST: f64 = 0.5;
/// Descents do not begin before this many trials: until then the proposals of a model gain more
/// than the neighbours of the best point (docs/decisions/0027).
const EXPLORE_AT_LEAST: usize = 96;
/// Exploring never gets less than this share.
const EXPLORE_LEAST: f64 = 0.5;
/// Two starts at least this far apart belong to different descents.
const APART: f32 = 0.12;
/// The most descents at a time.
const MAX_DESCENTS: usize = 3;
/// A start may take at most this many times the best time.
const SLOWEST_START: f64 = 1.5;
/// The gain per trial (in logarithms of time) that an arm without history is taken to have.
const OPTIMISM: f64 = 0.02;
/// The weight of that, in trials.
const OPTIMISM_WEIGHT: f64 = 8.0;
/// After this many trials of all arms, the weight of an arm's history has fallen to 1/e.
const MEMORY: f64 = 48.0;

/// The gain of an arm and the trials that it spent, both with decaying weight.
#[derive(Clone, Copy, Default)]
struct Account {
    gain: f64,
    spent: f64,
}

impl Account {
    fn decay(&mut self, trials: usize) {
        let keep = (-(trials as f64) / MEMORY).exp();
        self.gain *= keep;
        self.spent *= keep;
    }

    /// Expected gain of the next trial.
    fn worth(&self) -> f64 {
        (self.gain + OPTIMISM * OPTIMISM_WEIGHT) / (self.spent + OPTIMISM_WEIGHT)
    }
}

struct Arm {
    id: u64,
    descent: Descent,
    account: Account,
}

/// The default strategy.
pub struct EvolutionDroplet {
    ledger: Ledger,
    ranker: Ranker,
    population: Population,
    explore: Account,
    arms: Vec<Arm>,
    next_id: u64,
    /// Points that descents started from or ended at.
    used: PointSet,
    /// The descent that proposed each point whose outcome is not known yet.
    owners: PointMap<u64>,
    told: Vec<Point>,
    /// The best time when outcomes were last absorbed.
    best: f64,
    rng: Xoshiro256PlusPlus,
    trials: usize,
}

impl EvolutionDroplet {
    /// The strategy with gradient-boosted trees.
    pub fn new(setting: &Setting) -> EvolutionDroplet {
        EvolutionDroplet::with_model(setting, default_model(setting.seed))
    }

    /// The strategy with another cost model.
    pub fn with_model(setting: &Setting, model: Box<dyn CostModel>) -> EvolutionDroplet {
        EvolutionDroplet {
            ledger: Ledger::new(&setting.tunables),
            ranker: Ranker::new(model),
            // The same seed as the `evolution` strategy's: until the first descent both propose the
            // same trials, so that two runs of one seed differ only by the descents.
            population: Population::new(setting.seed, setting.trials, setting.expected.clone()),
            explore: Account::default(),
            arms: Vec::new(),
            next_id: 0,
            used: PointSet::default(),
            owners: PointMap::default(),
            told: Vec::new(),
            best: f64::INFINITY,
            rng: Xoshiro256PlusPlus::seed_from_u64(setting.seed),
            trials: setting.trials.max(1),
        }
    }

    /// Credits the arms with the outcomes since the last time, and moves the descents.
    fn absorb(&mut self) {
        let told = std::mem::take(&mut self.told);
        if told.is_empty() {
            return;
        }
        self.explore.decay(told.len());
        let mut explored = f64::INFINITY;
        for p in &told {
            let owner = self.owners.remove(p);
            match owner.and_then(|id| self.arms.iter_mut().find(|a| a.id == id)) {
                Some(arm) => arm.account.spent += 1.0,
                None => {
                    self.explore.spent += 1.0;
                    explored =
                        explored.min(self.ledger.look_up(p).map_or(f64::INFINITY, |k| k.time));
                }
            }
        }
        if self.best.is_finite() && explored < self.best {
            self.explore.gain += (self.best / explored).ln();
        }
        let time = |ledger: &Ledger, p: &Point| ledger.look_up(p).map_or(f64::INFINITY, |k| k.time);
        let best = self.ledger.best().map_or(f64::INFINITY, |b| b.time);
        for arm in &mut self.arms {
            arm.account.decay(told.len());
            let before = time(&self.ledger, arm.descent.centre());
            arm.descent.absorb(&self.ledger, &told);
            let after = time(&self.ledger, arm.descent.centre());
            if after < before && before.is_finite() {
                // A gain of a descent that is far from the best time counts little.
                arm.account.gain += (before / after).ln() * (best / after).powi(4);
            }
        }
        self.best = best;
    }

    /// Ends descents that are finished or far behind the best, and begins new ones.
    fn update_descents(&mut self) {
        let Some(best) = self.ledger.best().map(|b| b.time) else { return };
        let (ledger, used) = (&self.ledger, &mut self.used);
        self.arms.retain(|a| {
            let time = ledger.look_up(a.descent.centre()).map_or(f64::INFINITY, |k| k.time);
            let keep = !a.descent.has_ended(ledger)
                && (!a.descent.is_flat() || time <= best * SLOWEST_START);
            if !keep {
                used.insert(a.descent.centre().clone());
            }
            keep
        });
        if ledger.known().len()
            < EXPLORE_AT_LEAST.max((self.trials as f64 * EXPLORE_FIRST) as usize)
        {
            return;
        }
        let ranking: Vec<_> = ledger.ranking().into_iter().take(64).cloned().collect();
        for (rank, start) in ranking.iter().enumerate() {
            if start.time > best * SLOWEST_START {
                break;
            }
            if used.contains(&start.point) {
                continue;
            }
            let near = |p: &Point| {
                p.tunable == start.point.tunable
                    && ledger.shape(p).distance(&p.configuration, &start.point.configuration)
                        < APART
            };
            if let Some(arm) = self.arms.iter_mut().find(|a| near(a.descent.centre())) {
                // Exploring found a better point near a descent: the descent goes on from there.
                let behind = ledger.look_up(arm.descent.centre()).is_none_or(|c| beats(start, c));
                if behind && arm.descent.centre() != &start.point {
                    arm.descent.relocate(start.point.clone());
                }
                continue;
            }
            if self.arms.len() >= MAX_DESCENTS {
                // Only the best point of all replaces a running descent.
                if rank > 0 {
                    break;
                }
                let slowest =
                    |a: &Arm| ledger.look_up(a.descent.centre()).map_or(f64::INFINITY, |k| k.time);
                let worst = (0..self.arms.len())
                    .max_by(|&i, &j| slowest(&self.arms[i]).total_cmp(&slowest(&self.arms[j])));
                if let Some(i) = worst {
                    self.arms.remove(i);
                }
            }
            used.insert(start.point.clone());
            self.arms.push(Arm {
                id: self.next_id,
                descent: Descent::new(start.point.clone(), self.rng.random()),
                account: Account::default(),
            });
            self.next_id += 1;
        }
    }

    /// The number of points of a batch for each descent; the rest is for exploring.
    fn share(&mut self, n: usize) -> Vec<usize> {
        let Some(best) = self.ledger.best().map(|b| b.time) else {
            return vec![0; self.arms.len()];
        };
        let left = 1.0 - (self.ledger.known().len() as f64 / self.trials as f64).min(1.0);
        // Exploring is worth less towards the end, when no trials are left to descend from what it
        // finds.
        let explore = self.explore.worth() * (0.3 + left);
        let worth = |a: &Arm| {
            let time = self.ledger.look_up(a.descent.centre()).map_or(f64::INFINITY, |k| k.time);
            a.account.worth() * (best / time).powi(4)
        };
        let worths: Vec<f64> = self.arms.iter().map(worth).collect();
        let total = explore + worths.iter().sum::<f64>();
        let scale = (1.0 - EXPLORE_LEAST) / (1.0 - EXPLORE_LEAST).max(1.0 - explore / total);
        let mut slots = vec![0; worths.len()];
        for _ in 0..n {
            // A draw for each point keeps small batches fair.
            let mut x = self.rng.random::<f64>() * total;
            for (s, w) in slots.iter_mut().zip(&worths) {
                x -= w * scale;
                if x < 0.0 {
                    *s += 1;
                    break;
                }
            }
        }
        slots
    }
}

impl Strategy for EvolutionDroplet {
    fn name(&self) -> &'static str {
        DEFAULT
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        self.absorb();
        self.ranker.refresh(&mut self.ledger);
        let n =
            n.min(if self.ranker.is_ready() { batch(self.trials) } else { warm_up(self.trials) });
        self.update_descents();
        let slots = self.share(n);
        let mut points: Vec<Point> = Vec::new();
        let mut not = PointSet::default();
        for (arm, slots) in self.arms.iter_mut().zip(slots) {
            let got = arm.descent.propose(&mut self.ledger, Some(&self.ranker), slots, &not);
            for p in &got {
                self.owners.insert(p.clone(), arm.id);
                not.insert(p.clone());
            }
            points.extend(got);
        }
        let rest = n - points.len();
        if rest > 0 {
            let budget = evaluations(rest);
            points.extend(self.population.propose(
                &mut self.ledger,
                &self.ranker,
                rest,
                budget,
                &not,
            ));
        }
        self.ledger.propose(&points)
    }

    fn tell(&mut self, trials: &[Trial]) {
        for t in trials {
            self.told.extend(self.ledger.tell(t));
        }
    }
}
