//! Moves between configurations of one space: steps along a knob, factors traded between the levels
//! of a tiled axis (Ansor's mutation of tile sizes), diagonals, crossover, and repair of an illegal
//! point. Input: a configuration; output: legal neighbours or a child. Descent walks all neighbours
//! in order; evolution draws moves at random.

use rand::{Rng, RngExt};
use squall_core::space::{Knob, Role};
use squall_core::{Configuration, Prefix, Space};
use std::collections::BTreeMap;

/// The number of mutations, out of a hundred, that draw another register tile.
const RETILED: u32 = 10;

/// Positions of a configuration's values.
pub(crate) type Indices = Vec<usize>;

/// A space with the facts about its knobs that moves need.
pub(crate) struct Shape {
    space: Space,
    /// The numbers of each knob, or nothing where its values are words.
    numbers: Vec<Option<Vec<i64>>>,
    /// Tile knobs of equal axis, two or more.
    axes: Vec<Vec<usize>>,
    /// The tile knobs of the deepest level of all: on CPUs they are the register tile, of which a
    /// reduction's tiles, whose levels are fewer, are no part.
    innermost: Vec<usize>,
    /// The groups of knobs that crossover inherits together: the tile knobs of an axis, every other
    /// knob alone.
    groups: Vec<Vec<usize>>,
}

/// The value positions of a configuration.
pub(crate) fn indices(c: &Configuration) -> Indices {
    c.indices().collect()
}

impl Shape {
    pub fn new(space: &Space) -> Shape {
        let numbers = space.knobs().iter().map(Knob::numbers).collect();
        let (mut by_axis, mut groups) = (BTreeMap::<&str, Vec<usize>>::new(), Vec::new());
        for (i, k) in space.knobs().iter().enumerate() {
            match &k.role {
                Role::Tile { axis, .. } => by_axis.entry(axis).or_default().push(i),
                _ => groups.push(vec![i]),
            }
        }
        groups.extend(by_axis.values().cloned());
        let level = |&k: &usize| match space.knobs()[k].role {
            Role::Tile { level, .. } => level,
            _ => 0,
        };
        let deepest = by_axis.values().flatten().map(level).max();
        let of_axes = by_axis.values().filter_map(|v| v.iter().copied().max_by_key(level));
        let innermost = of_axes.filter(|k| Some(level(k)) == deepest).collect();
        let axes = by_axis.into_values().filter(|v| v.len() > 1).collect();
        Shape { space: space.clone(), numbers, axes, innermost, groups }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// The longest scale less one: no step can be longer.
    pub fn reach(&self) -> usize {
        let scales = self.space.knobs().iter().filter(|k| k.is_ordered());
        scales.map(|k| k.values.len() - 1).max().unwrap_or(0)
    }

    fn ordered(&self, k: usize) -> bool {
        self.space.knobs()[k].is_ordered()
    }

    /// The legal ones among some points.
    fn legal(&self, points: Vec<Indices>) -> Vec<Configuration> {
        points.iter().filter_map(|p| self.space.configuration(p)).collect()
    }

    /// The positions of knob `k` that lie `radius` steps from `i`, as the knob says.
    fn steps(&self, k: usize, i: usize, radius: usize) -> Vec<usize> {
        self.space.knobs()[k].neighbours(i, radius)
    }

    /// Where knob `b` must stand, if its list has it, for the product of `a` and `b` to stay
    /// what it is when `a` goes to position `to`.
    fn counter(&self, at: &[usize], a: usize, to: usize, b: usize) -> Option<usize> {
        let (va, vb) = (self.numbers[a].as_ref()?, self.numbers[b].as_ref()?);
        let product = va[at[a]].checked_mul(vb[at[b]])?;
        if va[to] == 0 || product % va[to] != 0 {
            return None;
        }
        vb.binary_search(&(product / va[to])).ok()
    }

    /// Neighbours along one knob: `radius` steps either way along a scale; of values without an
    /// order, all others are at radius 1.
    pub fn along_knobs(&self, c: &Configuration, radius: usize) -> Vec<Configuration> {
        let at = indices(c);
        let mut out = Vec::new();
        for k in 0..at.len() {
            for j in self.steps(k, at[k], radius) {
                let mut p = at.clone();
                p[k] = j;
                out.push(p);
            }
        }
        self.legal(out)
    }

    /// Neighbours that keep an axis's product: one level goes `radius` steps, another takes or
    /// gives the factor.
    pub fn trades(&self, c: &Configuration, radius: usize) -> Vec<Configuration> {
        let at = indices(c);
        let mut out = Vec::new();
        for axis in &self.axes {
            for (&a, &b) in
                axis.iter().flat_map(|a| axis.iter().map(move |b| (a, b))).filter(|(a, b)| a != b)
            {
                for to in self.steps(a, at[a], radius) {
                    if let Some(other) = self.counter(&at, a, to, b).filter(|&o| o != at[b]) {
                        let mut p = at.clone();
                        (p[a], p[b]) = (to, other);
                        if !out.contains(&p) {
                            out.push(p);
                        }
                    }
                }
            }
        }
        self.legal(out)
    }

    /// Neighbours along two knobs at once: both `radius` steps, words to any other word; and the
    /// single steps that only become legal when other knobs give way.
    pub fn diagonals(&self, c: &Configuration, radius: usize) -> Vec<Configuration> {
        let at = indices(c);
        let steps: Vec<Vec<usize>> = (0..at.len()).map(|k| self.steps(k, at[k], radius)).collect();
        let mut out = Vec::new();
        for a in 0..at.len() {
            for &to in &steps[a] {
                let mut p = at.clone();
                p[a] = to;
                if !self.space.contains(&p)
                    && let Some(repaired) = self.repair(&p, a).filter(|r| *r != *c)
                {
                    out.push(repaired);
                }
                for b in a + 1..at.len() {
                    for &other in &steps[b] {
                        p[b] = other;
                        out.extend(self.space.configuration(&p));
                        p[b] = at[b];
                    }
                }
            }
        }
        out
    }

    /// The point as far again beyond `to` as `from` lies before it.
    pub fn onward(&self, from: &Configuration, to: &Configuration) -> Option<Configuration> {
        let target = from
            .indices()
            .zip(to.indices())
            .enumerate()
            .map(|(k, (a, b))| if self.ordered(k) { (2 * b).checked_sub(a) } else { Some(b) });
        self.space.configuration(&target.collect::<Option<Indices>>()?)
    }

    /// A legal configuration that keeps knob `fixed` of `wish` and has the other knobs at or near
    /// their wish, the earlier ones nearest. Gives up after a bounded search.
    pub fn repair(&self, wish: &[usize], fixed: usize) -> Option<Configuration> {
        fn go(
            p: Prefix,
            k: usize,
            wish: &[usize],
            fixed: usize,
            budget: &mut u32,
        ) -> Option<Configuration> {
            let Some(&want) = wish.get(k) else { return p.finish() };
            let mut near: Vec<usize> = p.allowed().filter(|&v| k != fixed || v == want).collect();
            near.sort_by_key(|&v| (v.abs_diff(want), v));
            near.into_iter().find_map(|v| {
                *budget = budget.checked_sub(1)?;
                let mut q = p.clone();
                if q.bind(v) { go(q, k + 1, wish, fixed, budget) } else { None }
            })
        }
        // Enough to change the few knobs before `fixed`, little enough to cost microseconds.
        go(self.space.open(), 0, wish, fixed, &mut 200)
    }

    /// Positions of the values of the innermost tile knobs.
    pub fn register_tile(&self, c: &Configuration) -> Vec<usize> {
        let all = indices(c);
        self.innermost.iter().map(|&k| all[k]).collect()
    }

    /// Another register tile, with the other knobs at or near where they are. One tile may be as
    /// good as another of which each knob's neighbours are bad or illegal (8 x 1 and 6 x 2 with 16
    /// registers), so that no step leads from one to the other.
    fn tiled_anew(&self, c: &Configuration, rng: &mut impl Rng) -> Option<Configuration> {
        let mut p = indices(c);
        for &k in &self.innermost {
            p[k] = rng.random_range(0..self.space.knobs()[k].values.len());
        }
        let kept = self.innermost[rng.random_range(0..self.innermost.len())];
        let found = self.space.configuration(&p).or_else(|| self.repair(&p, kept));
        found.filter(|found| found != c)
    }

    /// A configuration near `c`: a factor traded between levels, a step, a jump of one knob,
    /// another word, or another register tile.
    pub fn mutate(&self, c: &Configuration, rng: &mut impl Rng) -> Option<Configuration> {
        let at = indices(c);
        let draw = rng.random_range(0..100u32);
        let mut p = at.clone();
        if draw < 50 && !self.axes.is_empty() {
            let axis = &self.axes[rng.random_range(0..self.axes.len())];
            let a = axis[rng.random_range(0..axis.len())];
            let b = *axis.iter().filter(|&&b| b != a).nth(rng.random_range(0..axis.len() - 1))?;
            let options: Vec<(usize, usize)> = (0..self.space.knobs()[a].values.len())
                .filter(|&to| to != at[a])
                .filter_map(|to| Some((to, self.counter(&at, a, to, b)?)))
                .collect();
            if options.is_empty() {
                return None;
            }
            (p[a], p[b]) = options[rng.random_range(0..options.len())];
            return self.space.configuration(&p);
        }
        if draw >= 100 - RETILED && self.innermost.len() > 1 {
            return self.tiled_anew(c, rng);
        }
        let k = rng.random_range(0..at.len().max(1));
        let len = self.space.knobs().get(k)?.values.len();
        if len < 2 {
            return None;
        }
        p[k] = if draw < 80 && self.ordered(k) {
            let to = if rng.random_bool(0.5) { at[k].checked_sub(1) } else { Some(at[k] + 1) };
            to.filter(|&j| j < len)?
        } else {
            (at[k] + rng.random_range(1..len)) % len
        };
        self.space.configuration(&p).or_else(|| self.repair(&p, k).filter(|r| r != c))
    }

    /// A child of two parents: each axis, and each other knob, from one of them.
    pub fn cross(
        &self,
        a: &Configuration,
        b: &Configuration,
        rng: &mut impl Rng,
    ) -> Option<Configuration> {
        let (mut p, b) = (indices(a), indices(b));
        for group in &self.groups {
            if rng.random_bool(0.5) {
                group.iter().for_each(|&k| p[k] = b[k]);
            }
        }
        self.space.configuration(&p)
    }

    /// How unlike two configurations are, from 0 to 1.
    pub fn distance(&self, a: &Configuration, b: &Configuration) -> f32 {
        let knobs = self.numbers.len().max(1) as f32;
        let apart = a.indices().zip(b.indices()).enumerate().filter(|(_, (i, j))| i != j);
        let each = apart.map(|(k, (i, j))| match &self.space.knobs()[k] {
            x if x.is_ordered() => {
                0.5 + 0.5 * i.abs_diff(j) as f32 / (x.values.len() - 1).max(1) as f32
            }
            _ => 1.0,
        });
        each.sum::<f32>() / knobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landscape::tiling;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use squall_core::space::{Knob, Term};

    #[test]
    fn every_move_is_legal_and_trades_keep_the_product() {
        let space = tiling(&[("k", 64), ("p", 56)], 3, 512);
        let shape = Shape::new(&space);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let product = |c: &Configuration, axis: &str| {
            (0..3).map(|l| c.int(&format!("{axis}{l}")).unwrap()).product::<i64>()
        };
        let mut traded = 0;
        for _ in 0..200 {
            let c = space.sample(&mut rng);
            for r in 1..3 {
                for t in shape.trades(&c, r) {
                    traded += 1;
                    assert_ne!(t, c);
                    assert_eq!(
                        (product(&t, "k"), product(&t, "p")),
                        (product(&c, "k"), product(&c, "p")),
                        "{c} to {t}"
                    );
                }
                for n in [shape.along_knobs(&c, r), shape.diagonals(&c, r)].concat() {
                    assert!(space.contains(&indices(&n)) && n != c);
                }
            }
            if let Some(m) = shape.mutate(&c, &mut rng) {
                assert!(space.contains(&indices(&m)) && m != c);
            }
        }
        assert!(traded > 500, "{traded}");
    }

    #[test]
    fn register_tiles_are_drawn_whole() {
        // Of 6 x 2 neither 6 x 1 nor 8 x 2 lies between it and 8 x 1.
        let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
        let knobs = vec![
            Knob::ints("m3", tile("m", 3), 1..=14),
            Knob::ints("n3", tile("n", 3), 1..=8),
            Knob::ints("m1", tile("m", 1), [1, 2, 4, 8, 16]),
            Knob::ints("k1", tile("k", 1), [8, 16]),
        ];
        let sums = || Term::product(["m3", "n3"].map(Term::knob));
        let rows = Term::product(["m3", "m1"].map(Term::knob));
        let few = Term::Const(8).at_most(sums());
        let space = Space::new(knobs, &[sums().at_most(14), few, rows.at_most(128)]).unwrap();
        let shape = Shape::new(&space);
        assert_eq!(shape.innermost, [0, 1]);
        let c = space.parse("m3=8,n3=1,m1=16,k1=8").unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let drawn = (0..400).filter_map(|_| shape.mutate(&c, &mut rng));
        let tiles: Vec<_> = drawn.map(|c| (c.int("m3").unwrap(), c.int("n3").unwrap())).collect();
        for wanted in [(6, 2), (4, 3), (14, 1), (2, 6)] {
            assert!(tiles.contains(&wanted), "{wanted:?} of {tiles:?}");
        }
    }

    #[test]
    fn repair_keeps_the_fixed_knob_and_ends_legal() {
        let knobs = vec![
            Knob::ints("a", Role::Choice, [1, 2, 4, 8]),
            Knob::ints("b", Role::Choice, [1, 2, 4, 8]),
        ];
        let space =
            Space::new(knobs, &[Term::product([Term::knob("a"), Term::knob("b")]).equals(8)])
                .unwrap();
        let shape = Shape::new(&space);
        assert_eq!(shape.repair(&[1, 1], 0).unwrap().to_string(), "a=2,b=4");
        let fixed_later = shape.repair(&[1, 0], 1).unwrap().to_string();
        assert_eq!(fixed_later, "a=8,b=1");
    }
}
