//! Storm and raindrop: explore first, then descend from several of the best points that lie
//! apart, while exploring on. Each of these arms gets a share of every batch by what it gained
//! lately; arms not tried yet are taken to be good.

use super::droplet::{Descent, beats};
use super::evolution::{Evolution, batch, default_model, evaluations, warm_up};
use super::ranker::Ranker;
use super::{Setting, Strategy};
use crate::cost_model::CostModel;
use crate::ledger::{Ledger, Point, PointMap, PointSet};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Trial};

/// Share of the budget after which descents begin.
const EXPLORE_FIRST: f64 = 0.5;
/// Nor do they begin before so many trials: until then what a model of few trials proposes is worth
/// more than the neighbours of the best (docs/performance.md).
const EXPLORE_AT_LEAST: usize = 96;
/// Exploring never gets less than this share.
const EXPLORE_LEAST: f64 = 0.5;
/// Starts at least so unlike each other are different valleys.
const APART: f32 = 0.12;
/// Valleys that are descended at once, at most.
const VALLEYS: usize = 3;
/// A start slower than this many times the best is not worth descending from.
const HOPELESS: f64 = 1.5;
/// Gain per trial (in logarithms of time) that an arm without history is taken to have.
const OPTIMISM: f64 = 0.02;
/// Weight of that, in trials.
const OPTIMISM_WEIGHT: f64 = 8.0;
/// What is left of an arm's history after so many trials of all arms.
const MEMORY: f64 = 48.0;

/// What an arm gained and what it spent, both fading.
#[derive(Clone, Copy, Default)]
struct Account {
    gain: f64,
    spent: f64,
}

impl Account {
    fn fade(&mut self, trials: usize) {
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
pub struct StormRaindrop {
    ledger: Ledger,
    ranker: Ranker,
    evolution: Evolution,
    explore: Account,
    arms: Vec<Arm>,
    next_id: u64,
    /// Points that descents started from or ended at.
    used: PointSet,
    /// Which descent proposed a point that is not yet told.
    owners: PointMap<u64>,
    told: Vec<Point>,
    /// The best time when trials were last heard of.
    best: f64,
    rng: Xoshiro256PlusPlus,
    trials: usize,
}

impl StormRaindrop {
    /// With gradient-boosted trees.
    pub fn new(setting: &Setting) -> StormRaindrop {
        StormRaindrop::with_model(setting, default_model(setting.seed))
    }

    /// With another cost model.
    pub fn with_model(setting: &Setting, model: Box<dyn CostModel>) -> StormRaindrop {
        StormRaindrop {
            ledger: Ledger::new(&setting.tunables),
            ranker: Ranker::new(model),
            // The storm's own seed: until the first descent this is the storm, trial for trial, so
            // that two runs of one seed differ by what the descents did.
            evolution: Evolution::new(setting.seed, setting.trials),
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

    /// Credits the arms with what was told since the last time, and moves the descents.
    fn hear(&mut self) {
        let told = std::mem::take(&mut self.told);
        if told.is_empty() {
            return;
        }
        self.explore.fade(told.len());
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
            arm.account.fade(told.len());
            let before = time(&self.ledger, arm.descent.centre());
            arm.descent.absorb(&self.ledger, &told);
            let after = time(&self.ledger, arm.descent.centre());
            if after < before && before.is_finite() {
                // Gains far from the best are worth little: most of the way is still to go.
                arm.account.gain += (before / after).ln() * (best / after).powi(4);
            }
        }
        self.best = best;
    }

    /// Ends descents that are through or hopeless, and begins new ones.
    fn tend(&mut self) {
        let Some(best) = self.ledger.best().map(|b| b.time) else { return };
        let (ledger, used) = (&self.ledger, &mut self.used);
        self.arms.retain(|a| {
            let time = ledger.look_up(a.descent.centre()).map_or(f64::INFINITY, |k| k.time);
            let keep =
                !a.descent.has_ended(ledger) && (!a.descent.is_flat() || time <= best * HOPELESS);
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
            if start.time > best * HOPELESS {
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
                // Exploring found something better in a valley that is being descended.
                let behind = ledger.look_up(arm.descent.centre()).is_none_or(|c| beats(start, c));
                if behind && arm.descent.centre() != &start.point {
                    arm.descent.relocate(start.point.clone());
                }
                continue;
            }
            if self.arms.len() >= VALLEYS {
                // The best of all is always descended from.
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

    /// Slots of a batch for each descent; the rest is for exploring.
    fn share(&mut self, n: usize) -> Vec<usize> {
        let Some(best) = self.ledger.best().map(|b| b.time) else {
            return vec![0; self.arms.len()];
        };
        let left = 1.0 - (self.ledger.known().len() as f64 / self.trials as f64).min(1.0);
        // What exploring finds late cannot be descended from any more.
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
            // A draw for each slot keeps small batches fair.
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

impl Strategy for StormRaindrop {
    fn name(&self) -> &'static str {
        "storm+raindrop"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        self.hear();
        self.ranker.refresh(&mut self.ledger);
        let n =
            n.min(if self.ranker.is_ready() { batch(self.trials) } else { warm_up(self.trials) });
        self.tend();
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
            points.extend(self.evolution.propose(
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
