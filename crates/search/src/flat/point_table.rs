//! The points of one tunable's flat space, with numbers and outcomes: which points were proposed,
//! their times, their neighbours, and fresh draws. A point's number is its rank where the space is
//! small enough to be listed; in a larger space points are numbered in the order in which searches
//! meet them. All searches of this folder work on it.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::space::Value;
use squall_core::{Configuration, Space, Tunable};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// The number of a point.
pub(crate) type PointId = u32;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Fresh,
    /// Proposed or told.
    Taken,
    /// Cannot be realized.
    Unusable,
}

/// The points of one tunable.
pub(crate) struct PointTable {
    tunable: Arc<dyn Tunable>,
    space: Space,
    /// For each knob the number of values, and whether they are ordered.
    widths: Vec<usize>,
    ordered: Vec<bool>,
    /// Knobs with more than one value.
    live: Vec<usize>,
    /// Value positions of the numbered points where numbers are not ranks.
    met: Vec<u16>,
    numbers: HashMap<Box<[u16]>, PointId, BuildHasherDefault<DefaultHasher>>,
    whole: bool,
    state: Vec<State>,
    /// NaN until told, infinite if it failed.
    time: Vec<f64>,
    told: Vec<PointId>,
    best: Option<PointId>,
    /// The number of points that are not fresh any more.
    gone: usize,
}

/// Draws before the points of a nearly exhausted space are gone through in order instead.
const DRAWS: usize = 64;
/// The number of points that are gone through in a space that is not listed.
const WALKED: u128 = 1 << 16;

impl PointTable {
    pub fn new(tunable: &Arc<dyn Tunable>) -> PointTable {
        let space = tunable.space().clone();
        let size = space.table().map_or(0, |_| space.len() as usize);
        let widths: Vec<usize> = space.knobs().iter().map(|k| k.values.len()).collect();
        PointTable {
            tunable: tunable.clone(),
            ordered: space.knobs().iter().map(|k| k.is_ordered()).collect(),
            live: (0..widths.len()).filter(|&k| widths[k] > 1).collect(),
            widths,
            met: Vec::new(),
            numbers: HashMap::default(),
            whole: size > 0,
            state: vec![State::Fresh; size],
            time: vec![f64::NAN; size],
            told: Vec::new(),
            best: None,
            gone: 0,
            space,
        }
    }

    /// Knobs with more than one value.
    pub fn live(&self) -> &[usize] {
        &self.live
    }

    /// How many values a knob has.
    pub fn width(&self, knob: usize) -> usize {
        self.widths[knob]
    }

    /// Whether neighbouring values of a knob are alike.
    pub fn is_ordered(&self, knob: usize) -> bool {
        self.ordered[knob]
    }

    /// Points that have numbers.
    pub fn numbered(&self) -> usize {
        self.state.len()
    }

    /// Value positions of a point.
    pub fn point(&self, s: PointId) -> &[u16] {
        let d = self.widths.len();
        let table = if self.whole { self.space.table().unwrap_or(&[]) } else { &self.met };
        &table[s as usize * d..(s as usize + 1) * d]
    }

    /// The values of a knob that has three or more, all of them numbers above 0; such knobs are
    /// multiplied with one another.
    pub fn sizes(&self, knob: usize) -> Option<Vec<f64>> {
        let number = |v: &Value| {
            if let Value::Int(i) = v { Some(*i as f64).filter(|x| *x > 0.0) } else { None }
        };
        let all: Vec<f64> =
            self.space.knobs()[knob].values.iter().map(number).collect::<Option<_>>()?;
        (all.len() > 2).then_some(all)
    }

    /// The number of a point, if it is legal.
    pub fn id(&mut self, point: &[u16]) -> Option<PointId> {
        if self.whole {
            return self.space.rank_of(point).map(|r| r as PointId);
        }
        if let Some(&s) = self.numbers.get(point) {
            return Some(s);
        }
        self.space.rank_of(point)?;
        let s = self.state.len() as PointId;
        self.numbers.insert(point.into(), s);
        self.met.extend_from_slice(point);
        self.state.push(State::Fresh);
        self.time.push(f64::NAN);
        Some(s)
    }

    /// The legal point that differs from another in some knobs.
    pub fn moved(&mut self, from: PointId, steps: &[(usize, usize)]) -> Option<PointId> {
        let mut p: Vec<u16> = self.point(from).to_vec();
        for &(k, v) in steps {
            p[k] = v as u16;
        }
        self.id(&p)
    }

    fn number(&mut self, c: &Configuration) -> Option<PointId> {
        let p: Vec<u16> = c.indices().map(|i| i as u16).collect();
        self.id(&p)
    }

    /// The number of a configuration, if it is of this space.
    pub fn id_of(&mut self, c: &Configuration) -> Option<PointId> {
        let rank = self.space.rank(c)?;
        if self.whole { Some(rank as PointId) } else { self.number(c) }
    }

    /// The configuration of a point.
    pub fn configuration(&self, s: PointId) -> Option<Configuration> {
        if self.whole {
            return Some(self.space.nth(u128::from(s)));
        }
        let at: Vec<usize> = self.point(s).iter().map(|&i| i as usize).collect();
        self.space.configuration(&at)
    }

    /// An evenly drawn point, fresh or not.
    pub fn any(&mut self, rng: &mut Xoshiro256PlusPlus) -> PointId {
        if self.whole {
            return rng.random_range(0..self.state.len() as PointId);
        }
        let c = self.space.sample(rng);
        self.number(&c).unwrap_or(0)
    }

    /// Whether a point was not proposed yet. It may turn out that it cannot be realized.
    pub fn is_fresh(&self, s: PointId) -> bool {
        self.state[s as usize] == State::Fresh
    }

    /// An evenly drawn fresh point; `None` where none is left.
    pub fn fresh(&mut self, rng: &mut Xoshiro256PlusPlus) -> Option<PointId> {
        if self.whole && self.gone == self.state.len() {
            return None;
        }
        for _ in 0..DRAWS {
            let s = self.any(rng);
            if self.is_fresh(s) {
                return Some(s);
            }
        }
        if self.whole {
            let left: Vec<PointId> =
                (0..self.state.len() as PointId).filter(|&s| self.is_fresh(s)).collect();
            return (!left.is_empty()).then(|| left[rng.random_range(0..left.len())]);
        }
        let len = self.space.len();
        let start = rng.random_range(0..len);
        for step in 0..len.min(WALKED) {
            let rank = if start < len - step { start + step } else { start - (len - step) };
            let c = self.space.nth(rank);
            if let Some(s) = self.number(&c).filter(|&s| self.is_fresh(s)) {
                return Some(s);
            }
        }
        None
    }

    /// Marks a fresh point as proposed and gives its configuration; `None` where it cannot be
    /// realized, which is noted too.
    pub fn take(&mut self, s: PointId) -> Option<Configuration> {
        self.gone += 1;
        let c = self.configuration(s)?;
        let usable = !self.tunable.features(&c).is_empty();
        self.state[s as usize] = if usable { State::Taken } else { State::Unusable };
        usable.then_some(c)
    }

    /// Takes note of a time, infinite for a failure.
    pub fn tell(&mut self, s: PointId, time: f64) {
        let i = s as usize;
        if self.state[i] == State::Fresh {
            self.gone += 1;
        }
        self.state[i] = State::Taken;
        let again = !self.time[i].is_nan();
        if !again {
            self.told.push(s);
        }
        self.time[i] = time;
        if again {
            let ran = self.told.iter().copied().filter(|&s| self.time[s as usize].is_finite());
            self.best =
                ran.min_by(|&a, &b| self.time[a as usize].total_cmp(&self.time[b as usize]));
        } else if time.is_finite() && self.best.is_none_or(|b| time < self.time[b as usize]) {
            self.best = Some(s);
        }
    }

    /// The time of a point: NaN until told, infinite if it failed.
    pub fn time(&self, s: PointId) -> f64 {
        self.time[s as usize]
    }

    /// The time of a point, infinite where it failed or cannot be realized; `None` where it is not
    /// known.
    pub fn known_time(&self, s: PointId) -> Option<f64> {
        match self.state[s as usize] {
            State::Unusable => Some(f64::INFINITY),
            _ => Some(self.time(s)).filter(|t| !t.is_nan()),
        }
    }

    /// The legal point nearest to some levels, chosen knob by knob.
    pub fn nearest(&mut self, levels: &[f64]) -> Option<PointId> {
        let mut prefix = self.space.open();
        for (k, &wanted) in levels.iter().enumerate() {
            let off = |v: usize| (self.level(k, v as u16) - wanted).abs();
            let v = prefix.allowed().min_by(|&a, &b| off(a).total_cmp(&off(b)))?;
            prefix.bind(v);
        }
        let c = prefix.finish()?;
        self.id_of(&c)
    }

    /// The point with this rank, if it is numbered so.
    pub fn at_rank(&mut self, rank: u128) -> Option<PointId> {
        if rank >= self.space.len() {
            return None;
        }
        if self.whole {
            return Some(rank as PointId);
        }
        let c = self.space.nth(rank);
        self.number(&c)
    }

    /// Points told, in order.
    pub fn told(&self) -> &[PointId] {
        &self.told
    }

    /// The fastest point; the earliest of equals.
    pub fn best(&self) -> Option<PointId> {
        self.best
    }

    /// The position of a value in its list, scaled to 0 to 1.
    pub fn level(&self, knob: usize, value: u16) -> f64 {
        f64::from(value) / (self.widths[knob].max(2) - 1) as f64
    }

    /// How far apart two points are: positions as [`PointTable::level`], summed over knobs.
    pub fn distance(&self, a: PointId, b: PointId) -> f64 {
        let (a, b) = (self.point(a), self.point(b));
        let along = |&k: &usize| match self.ordered[k] {
            true => (self.level(k, a[k]) - self.level(k, b[k])).abs(),
            false => f64::from(u8::from(a[k] != b[k])),
        };
        self.live.iter().map(along).sum()
    }
}
