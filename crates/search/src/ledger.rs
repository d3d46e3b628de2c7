//! The ledger of a search: every candidate of a task that was proposed or measured, its outcome,
//! and the features that were computed. The parts of a strategy (evolution, descents) share one
//! ledger, so that none repeats a proposal of another; it also knows which tunables vary the same
//! algorithm.

use crate::moves::Shape;
use crate::statistics::samples;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Configuration, Space, Trial, Tunable, TunableName, median};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::available_parallelism;

/// Hashing without the random keys of the process.
pub(crate) type Fixed = BuildHasherDefault<DefaultHasher>;
/// A set that is only looked up and never iterated over, so that results do not depend on its
/// order.
pub(crate) type PointSet = HashSet<Point, Fixed>;
/// As [`PointSet`].
pub(crate) type PointMap<V> = HashMap<Point, V, Fixed>;

/// A candidate by position of its tunable. The whole configuration is its identity.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Point {
    pub tunable: usize,
    pub configuration: Configuration,
}

/// The outcome of a point.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub point: Point,
    /// Empty if it failed.
    pub samples: Vec<f64>,
    /// Median of the samples, infinite if it failed.
    pub time: f64,
}

/// Features kept for points that were not tried; beyond this they are computed again.
const CACHED: usize = 6000;
/// Features of this many points take longer than starting a thread, some 50 us: a row takes 100 to
/// 500 us.
const WORTH_A_THREAD: usize = 2;
/// A tunable of at most this many configurations is gone through when sampling finds nothing new.
const WALKED: u128 = 1 << 16;

/// See the module.
pub(crate) struct Ledger {
    tunables: Vec<Arc<dyn Tunable>>,
    names: Vec<Arc<str>>,
    /// Tunables that vary one algorithm.
    algorithms: Vec<Vec<usize>>,
    shapes: Vec<Shape>,
    /// Whether no new configuration is left in it.
    exhausted: Vec<bool>,
    /// Proposed or told.
    taken: PointSet,
    known: Vec<Known>,
    index: PointMap<usize>,
    /// `None` where the point cannot be realized.
    features: PointMap<Option<Arc<[f32]>>>,
    /// The features of points that were told.
    rows: PointMap<Option<Arc<[f32]>>>,
    width: usize,
    best: Option<usize>,
}

impl Ledger {
    pub fn new(tunables: &[Arc<dyn Tunable>]) -> Ledger {
        let mut algorithms: Vec<Vec<usize>> = Vec::new();
        let of = |i: usize| TunableName::parse(tunables[i].name()).algorithm;
        for i in 0..tunables.len() {
            match algorithms.iter_mut().find(|f| of(f[0]) == of(i)) {
                Some(f) => f.push(i),
                None => algorithms.push(vec![i]),
            }
        }
        Ledger {
            algorithms,
            names: tunables.iter().map(|t| t.name().into()).collect(),
            shapes: tunables.iter().map(|t| Shape::new(t.space())).collect(),
            exhausted: vec![false; tunables.len()],
            tunables: tunables.to_vec(),
            taken: PointSet::default(),
            known: Vec::new(),
            index: PointMap::default(),
            features: PointMap::default(),
            rows: PointMap::default(),
            width: 0,
            best: None,
        }
    }

    /// How many tunables there are.
    pub fn len(&self) -> usize {
        self.tunables.len()
    }

    pub fn space(&self, tunable: usize) -> &Space {
        self.shapes[tunable].space()
    }

    /// Tunables by the algorithm that they vary.
    pub fn algorithms(&self) -> &[Vec<usize>] {
        &self.algorithms
    }

    /// What an algorithm is called: the first part of the names of its tunables.
    pub fn algorithm_name(&self, algorithm: usize) -> &str {
        TunableName::parse(&self.names[self.algorithms[algorithm][0]]).algorithm
    }

    /// The algorithm of a tunable.
    pub fn algorithm(&self, tunable: usize) -> usize {
        self.algorithms.iter().position(|f| f.contains(&tunable)).unwrap_or(0)
    }

    /// Whether nothing new is known to be left of an algorithm of which so many points were tried.
    pub fn is_used_up(&self, algorithm: usize, tried: usize) -> bool {
        let list = &self.algorithms[algorithm];
        list.iter().all(|&t| self.exhausted[t])
            || tried as u128
                >= list.iter().map(|&t| self.space(t).len()).fold(0, u128::saturating_add)
    }

    pub fn shape(&self, point: &Point) -> &Shape {
        &self.shapes[point.tunable]
    }

    /// Everything told, in the order first told.
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    pub fn look_up(&self, point: &Point) -> Option<&Known> {
        self.index.get(point).map(|&i| &self.known[i])
    }

    pub fn is_taken(&self, point: &Point) -> bool {
        self.taken.contains(point)
    }

    /// The fastest known point; the earliest of equals.
    pub fn best(&self) -> Option<&Known> {
        self.best.map(|i| &self.known[i])
    }

    /// Known points that ran, fastest first.
    pub fn ranking(&self) -> Vec<&Known> {
        let mut v: Vec<&Known> = self.known.iter().filter(|k| k.time.is_finite()).collect();
        v.sort_by(|a, b| a.time.total_cmp(&b.time));
        v
    }

    /// Takes note of a trial; a later one of the same candidate replaces the earlier. Returns
    /// its point, or nothing where the candidate is none of this task's.
    pub fn tell(&mut self, trial: &Trial) -> Option<Point> {
        let tunable = self.names.iter().position(|n| *n == trial.candidate.tunable)?;
        let told: Vec<usize> = trial.candidate.configuration.indices().collect();
        let configuration = self.shapes[tunable].space().configuration(&told)?;
        if configuration != trial.candidate.configuration {
            return None; // of a space with other knobs
        }
        let point = Point { tunable, configuration };
        let samples = samples(&trial.outcome);
        let known = Known { point: point.clone(), time: median(samples.iter().copied()), samples };
        self.taken.insert(point.clone());
        match self.index.get(&point) {
            Some(&i) => self.known[i] = known,
            None => {
                self.index.insert(point.clone(), self.known.len());
                self.known.push(known);
            }
        }
        let ran = (0..self.known.len()).filter(|&i| self.known[i].time.is_finite());
        self.best = ran.min_by(|&a, &b| self.known[a].time.total_cmp(&self.known[b].time));
        Some(point)
    }

    /// Marks points as proposed and names them.
    pub fn propose(&mut self, points: &[Point]) -> Vec<Candidate> {
        let candidate = |p: &Point| {
            self.taken.insert(p.clone());
            Candidate {
                tunable: self.names[p.tunable].clone(),
                configuration: p.configuration.clone(),
            }
        };
        points.iter().map(candidate).collect()
    }

    /// What a cost model sees of a point, all of one length and finite; `None` where the point
    /// cannot be realized.
    pub fn features(&mut self, point: &Point) -> Option<Arc<[f32]>> {
        if let Some(f) = self.rows.get(point).or_else(|| self.features.get(point)) {
            return f.clone();
        }
        let row = self.tunables[point.tunable].features(&point.configuration);
        self.keep(point, row)
    }

    /// Computes the features of many points on all cores, which nothing else uses while a search
    /// thinks; [`Ledger::features`] then finds them.
    pub fn prepare(&mut self, points: &[Point]) {
        let missing: Vec<&Point> = points.iter().filter(|p| !self.has_features(p)).collect();
        let most = missing.len() / WORTH_A_THREAD;
        let threads =
            if most < 2 { 1 } else { available_parallelism().map_or(1, usize::from).min(most) };
        if threads < 2 {
            return;
        }
        let tunables = &self.tunables;
        let compute = |part: &[&Point]| -> Vec<Vec<f32>> {
            part.iter().map(|p| tunables[p.tunable].features(&p.configuration)).collect()
        };
        let rows: Vec<Vec<f32>> = std::thread::scope(|scope| {
            let parts: Vec<_> = missing
                .chunks(missing.len().div_ceil(threads))
                .map(|part| scope.spawn(move || compute(part)))
                .collect();
            parts
                .into_iter()
                .flat_map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        // In their order: the result is that of computing one after another.
        for (point, row) in missing.into_iter().zip(rows) {
            self.keep(point, row);
        }
    }

    /// Puts a row into its form and keeps it.
    fn keep(&mut self, point: &Point, mut row: Vec<f32>) -> Option<Arc<[f32]>> {
        let made = (!row.is_empty()).then(|| {
            if self.width == 0 {
                self.width = row.len();
            }
            row.resize(self.width, 0.0);
            for x in &mut row {
                *x = if x.is_nan() { 0.0 } else { x.clamp(-1e30, 1e30) };
            }
            Arc::from(row)
        });
        if self.look_up(point).is_some() {
            self.rows.insert(point.clone(), made.clone());
        } else {
            if self.features.len() >= CACHED {
                self.features.clear();
            }
            self.features.insert(point.clone(), made.clone());
        }
        made
    }

    /// What the tunable's formula expects of a point; `None` where it has none.
    pub fn prior(&mut self, point: &Point) -> Option<f32> {
        let row = self.features(point)?;
        self.tunables[point.tunable].prior(&row)
    }

    /// Whether the features of a point are at hand.
    pub fn has_features(&self, point: &Point) -> bool {
        self.rows.contains_key(point) || self.features.contains_key(point)
    }

    /// An evenly drawn point of a tunable that was not taken and can be realized.
    pub fn fresh(
        &mut self,
        tunable: usize,
        not: &PointSet,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<Point> {
        if self.exhausted[tunable] {
            return None;
        }
        let space = self.shapes[tunable].space().clone();
        for _ in 0..64 {
            let point = Point { tunable, configuration: space.sample(rng) };
            if !self.taken.contains(&point)
                && !not.contains(&point)
                && self.features(&point).is_some()
            {
                return Some(point);
            }
        }
        // Nearly used up, or hardly anything can be realized: walk on from a random place.
        let len = space.len();
        let start = rng.random_range(0..len);
        let mut left_for_later = false;
        for step in 0..len.min(WALKED) {
            let rank = if start < len - step { start + step } else { start - (len - step) };
            let point = Point { tunable, configuration: space.nth(rank) };
            if self.taken.contains(&point) {
                continue;
            }
            if not.contains(&point) {
                left_for_later = true;
            } else if self.features(&point).is_some() {
                return Some(point);
            } else if len > WALKED && step > 1000 {
                break; // every try costs a lowering
            }
        }
        if len <= WALKED && !left_for_later {
            self.exhausted[tunable] = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landscape::TestProblem;
    use rand::SeedableRng;

    #[test]
    fn features_computed_side_by_side_are_those_computed_one_by_one() {
        let tunables = TestProblem::several(1)[3].tunables();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut points = Vec::new();
        for i in 0..200 {
            let tunable = i % tunables.len();
            points
                .push(Point { tunable, configuration: tunables[tunable].space().sample(&mut rng) });
        }
        // A part is known already, and some come twice.
        points.extend_from_within(..20);
        let (mut many, mut single) = (Ledger::new(&tunables), Ledger::new(&tunables));
        let _ = (many.features(&points[3]), single.features(&points[3]));
        many.prepare(&points);
        let threads = available_parallelism().map_or(1, usize::from);
        assert!(threads < 2 || points.iter().all(|p| many.has_features(p)));
        for p in &points {
            assert_eq!(many.features(p), single.features(p));
        }
    }
}
