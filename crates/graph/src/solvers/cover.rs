//! The cheapest cover of a model as one optimisation problem: for each value whether it is stored,
//! for each group of images whether its channels lie last, and for each stored value the cheapest
//! kernel that gives it from stored inputs. Input: a [`CoverProblem`] with the time of each kernel
//! in each layout; output: a [`Cover`], the exact optimum, found by `elimination.rs`. A value may
//! be computed inside several kernels. `whole.rs` builds the problem from fusion candidates (sets
//! of nodes that may be one kernel).

use super::elimination::{Factor, least_cost};

/// The most choices that the cost table of one value may depend on: 2^16 entries.
const MOST_CHOICES: usize = 16;

/// A cost in nanoseconds above any sum of times that occurs, and small enough that sums of
/// thousands stay exact to a nanosecond.
const IMPOSSIBLE: f64 = 1e13;

/// A kernel that can give a value.
#[derive(Clone, Debug)]
pub struct Producer {
    /// The values that it reads, among those that the problem decides on.
    pub reads: Vec<usize>,
    /// The groups of images that it touches.
    pub groups: Vec<usize>,
    /// Its time for each combination of layouts: bit `i` of the index says whether the channels of
    /// `groups[i]` lie last; `None` where the kernel cannot take that combination.
    pub times: Vec<Option<f64>>,
}

/// The problem of choosing a cover.
#[derive(Clone, Debug, Default)]
pub struct CoverProblem {
    /// For each value the kernels that give it, and whether it has to be stored.
    pub values: Vec<(Vec<Producer>, bool)>,
    /// The number of groups of images.
    pub groups: usize,
}

/// A cheapest cover.
#[derive(Clone, Debug, PartialEq)]
pub struct Cover {
    /// For each value the kernel that gives it, where it is stored.
    pub producer: Vec<Option<usize>>,
    /// For each group whether its channels lie last.
    pub last: Vec<bool>,
    /// The sum of times.
    pub time: f64,
}

impl CoverProblem {
    /// The same problem with this kernel forced to give the value, whatever that costs.
    pub fn with(&self, v: usize, producer: usize) -> CoverProblem {
        let mut forced = self.clone();
        forced.values[v] = (vec![self.values[v].0[producer].clone()], true);
        forced
    }

    /// The time of a kernel in the layouts of a cover.
    pub fn time(&self, v: usize, producer: usize, last: &[bool]) -> Option<f64> {
        let p = &self.values[v].0[producer];
        let bits = p.groups.iter().enumerate();
        p.times[bits.fold(0, |b, (i, &g)| b | usize::from(last[g]) << i)]
    }

    /// The cheapest kernel for a value, and its time, where `chosen` says which values are stored
    /// and which groups have their channels last.
    fn cheapest(&self, v: usize, chosen: &[bool]) -> Option<(usize, f64)> {
        let list = self.values[v].0.iter().enumerate().filter_map(|(i, p)| {
            let there = p.reads.iter().all(|&u| chosen[u]);
            let bits = p.groups.iter().enumerate();
            let bits =
                bits.fold(0, |b, (i, &g)| b | usize::from(chosen[self.values.len() + g]) << i);
            there.then(|| p.times[bits]).flatten().map(|t| (i, t))
        });
        list.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The least sum of times over all covers and layouts; the reason where the graph is too wide
    /// for a proof, or nothing covers it.
    pub fn solve(&self) -> Result<Cover, String> {
        let n = self.values.len();
        let mut factors = Vec::new();
        for (v, (producers, required)) in self.values.iter().enumerate() {
            let mut scope: Vec<usize> = producers.iter().flat_map(|p| p.reads.clone()).collect();
            scope.extend(producers.iter().flat_map(|p| p.groups.iter().map(|g| n + g)));
            scope.push(v);
            scope.sort_unstable();
            scope.dedup();
            if scope.len() > MOST_CHOICES {
                return Err(format!("a value's kernels depend on {} choices", scope.len()));
            }
            let mut chosen = vec![false; n + self.groups];
            let costs = (0..1usize << scope.len()).map(|bits| {
                scope.iter().enumerate().for_each(|(i, &c)| chosen[c] = bits >> i & 1 == 1);
                match (chosen[v], required) {
                    (false, true) => IMPOSSIBLE,
                    (false, false) => 0.0,
                    (true, _) => self.cheapest(v, &chosen).map_or(IMPOSSIBLE, |c| c.1),
                }
            });
            let costs = costs.collect();
            factors.push(Factor { scope, costs });
        }
        let Some((chosen, time)) = least_cost(n + self.groups, factors) else {
            return Err("its values depend on too many others at once".into());
        };
        if time >= IMPOSSIBLE {
            return Err("no kernels cover it".into());
        }
        let given =
            |v: usize| if chosen[v] { self.cheapest(v, &chosen).map(|c| c.0) } else { None };
        Ok(Cover { producer: (0..n).map(given).collect(), last: chosen[n..].to_vec(), time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of numbers that a test can repeat.
    struct Draw(u64);

    impl Draw {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % n
        }
    }

    /// A graph of up to 12 values: each has a kernel of its own, and larger ones that read what
    /// comes before its operands.
    fn problem(draw: &mut Draw) -> CoverProblem {
        let n = 1 + draw.below(12);
        let groups = draw.below(3);
        let mut values: Vec<(Vec<Producer>, bool)> = Vec::new();
        for v in 0..n {
            let mut list = Vec::new();
            for i in 0..1 + draw.below(3) {
                let mut reads: Vec<usize> =
                    (0..draw.below(4).min(v)).map(|_| v - 1 - draw.below(v.min(4))).collect();
                reads.sort_unstable();
                reads.dedup();
                let touched: Vec<usize> = (0..groups).filter(|_| draw.below(2) == 0).collect();
                // The first kernel can always be; others not in all layouts.
                let mut time =
                    |_| (i == 0 || draw.below(8) > 0).then(|| (1 + draw.below(40)) as f64);
                let times = (0..1usize << touched.len()).map(&mut time).collect();
                list.push(Producer { reads, groups: touched, times });
            }
            values.push((list, v + 1 == n || draw.below(6) == 0));
        }
        CoverProblem { values, groups }
    }

    /// The least sum over all that can be chosen.
    fn brute_force(p: &CoverProblem) -> f64 {
        let (n, all) = (p.values.len(), p.values.len() + p.groups);
        let sum = |bits: usize| {
            let chosen: Vec<bool> = (0..all).map(|i| bits >> i & 1 == 1).collect();
            let time = |v: usize| match (chosen[v], p.values[v].1) {
                (false, true) => None,
                (false, false) => Some(0.0),
                (true, _) => p.cheapest(v, &chosen).map(|c| c.1),
            };
            (0..n).map(time).sum::<Option<f64>>()
        };
        (0..1usize << all).filter_map(sum).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_cover_of_ten_thousand_random_graphs_is_cheaper() {
        let mut draw = Draw(26);
        let mut fused = 0;
        for _ in 0..10_000 {
            let p = problem(&mut draw);
            let best = brute_force(&p);
            let cover = p.solve().unwrap();
            assert_eq!(cover.time, best, "{p:?}");
            // The choice is a cover, and its time is the one that it states.
            let stored = |v: &usize| cover.producer[*v].is_some();
            let mut time = 0.0;
            for (v, (list, required)) in p.values.iter().enumerate() {
                let Some(i) = cover.producer[v] else {
                    assert!(!required);
                    fused += 1;
                    continue;
                };
                assert!(list[i].reads.iter().all(stored));
                let bits = list[i].groups.iter().enumerate();
                let bits = bits.fold(0, |b, (i, &g)| b | usize::from(cover.last[g]) << i);
                time += list[i].times[bits].unwrap();
            }
            assert_eq!(time, best);
        }
        assert!(fused > 10_000, "{fused} values were left out: too few to say much");
    }

    #[test]
    fn what_cannot_be_covered_or_proved_is_said() {
        let alone = |times| Producer { reads: vec![], groups: vec![], times };
        let p = CoverProblem { values: vec![(vec![alone(vec![None])], true)], groups: 0 };
        assert_eq!(p.solve().unwrap_err(), "no kernels cover it");
        let wide = Producer { reads: (0..20).collect(), groups: vec![], times: vec![Some(1.0)] };
        let mut values = vec![(vec![alone(vec![Some(1.0)])], false); 20];
        values.push((vec![wide], true));
        let why = CoverProblem { values, groups: 0 }.solve().unwrap_err();
        assert_eq!(why, "a value's kernels depend on 21 choices");
    }
}
