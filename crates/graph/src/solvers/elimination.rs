//! The least sum of costs over yes-or-no choices, where each cost depends on a few of them: exact,
//! by eliminating one choice after the other (bucket elimination, Dechter 1999). Input: the number
//! of choices and a list of [`Factor`]s, cost tables; output: the best choices, or `None` where a
//! table would grow too large. Networks are nearly chains, so the tables stay small. `layouts.rs`
//! and `cover.rs` use it.

use std::collections::BTreeSet;

/// A cost that depends on some choices.
pub struct Factor {
    /// The choices that the cost depends on, ascending.
    pub scope: Vec<usize>,
    /// The cost of each combination: bit `i` of the index is the choice `scope[i]`.
    pub costs: Vec<f64>,
}

/// The most entries of all tables together; a problem that needs more is given up.
const MOST_ENTRIES: usize = 1 << 22;

impl Factor {
    /// The cost for given choices.
    fn cost(&self, chosen: &[bool]) -> f64 {
        let bits =
            self.scope.iter().enumerate().fold(0, |b, (i, &v)| b | usize::from(chosen[v]) << i);
        self.costs[bits]
    }
}

/// The choices of least total cost; "no" where both are equal as they are decided. All "no" where
/// the problem needs too large tables.
pub fn cheapest(choices: usize, factors: Vec<Factor>) -> Vec<bool> {
    least_cost(choices, factors).map_or_else(|| vec![false; choices], |(chosen, _)| chosen)
}

/// The choices of least total cost, and that cost; "no" where both are equal as they are decided.
/// `None` where the problem needs too large tables.
pub fn least_cost(choices: usize, factors: Vec<Factor>) -> Option<(Vec<bool>, f64)> {
    let mut around: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); choices];
    let mut with: Vec<Vec<usize>> = vec![Vec::new(); choices];
    for (i, f) in factors.iter().enumerate() {
        for &v in &f.scope {
            with[v].push(i);
            around[v].extend(f.scope.iter().copied().filter(|&u| u != v));
        }
    }
    let mut factors: Vec<Option<Factor>> = factors.into_iter().map(Some).collect();
    let mut open: BTreeSet<(usize, usize)> =
        around.iter().enumerate().map(|(v, a)| (a.len(), v)).collect();
    // The cost tables that decide each eliminated choice, given the choices eliminated after it.
    let mut decided: Vec<(usize, Vec<Factor>)> = Vec::new();
    let mut chosen = vec![false; choices];
    let mut entries = 0usize;
    while let Some((_, v)) = open.pop_first() {
        let scope: Vec<usize> = std::mem::take(&mut around[v]).into_iter().collect();
        entries =
            entries.saturating_add(1usize.checked_shl(scope.len() as u32).unwrap_or(usize::MAX));
        if entries > MOST_ENTRIES {
            return None;
        }
        let bucket: Vec<Factor> = with[v].iter().filter_map(|&i| factors[i].take()).collect();
        let costs = (0..1usize << scope.len()).map(|bits| {
            scope.iter().enumerate().for_each(|(i, &u)| chosen[u] = bits >> i & 1 == 1);
            least(v, &bucket, &mut chosen).1
        });
        let costs = costs.collect();
        for &u in &scope {
            open.remove(&(around[u].len(), u));
            around[u].remove(&v);
            around[u].extend(scope.iter().copied().filter(|&w| w != u));
            open.insert((around[u].len(), u));
            with[u].push(factors.len());
        }
        factors.push(Some(Factor { scope, costs }));
        decided.push((v, bucket));
    }
    // The remaining tables depend on no choice any more.
    let rest = factors.into_iter().flatten().map(|f| f.cost(&chosen)).sum();
    for (v, bucket) in decided.into_iter().rev() {
        chosen[v] = least(v, &bucket, &mut chosen).0;
    }
    Some((chosen, rest))
}

/// The better value of a choice, given the other choices that its costs depend on.
fn least(v: usize, bucket: &[Factor], chosen: &mut [bool]) -> (bool, f64) {
    let mut cost = |yes: bool| {
        chosen[v] = yes;
        bucket.iter().map(|f| f.cost(chosen)).sum::<f64>()
    };
    let (no, yes) = (cost(false), cost(true));
    (yes < no, no.min(yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Costs of chains with branches, drawn at random, against trying all.
    #[test]
    fn nothing_is_cheaper() {
        let mut state = 7u64;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..200 {
            let n = 1 + next(9);
            let factors: Vec<Factor> = (0..next(14))
                .map(|_| {
                    let mut scope: Vec<usize> = (0..1 + next(3)).map(|_| next(n)).collect();
                    scope.sort_unstable();
                    scope.dedup();
                    let costs = (0..1 << scope.len()).map(|_| next(50) as f64).collect();
                    Factor { scope, costs }
                })
                .collect();
            let total = |chosen: &[bool]| factors.iter().map(|f| f.cost(chosen)).sum::<f64>();
            let all = (0..1usize << n)
                .map(|bits| (0..n).map(|i| bits >> i & 1 == 1).collect::<Vec<bool>>());
            let best = all.map(|c| total(&c)).fold(f64::INFINITY, f64::min);
            let copy = factors
                .iter()
                .map(|f| Factor { scope: f.scope.clone(), costs: f.costs.clone() })
                .collect();
            assert_eq!(total(&cheapest(n, copy)), best);
        }
    }

    /// A chain whose ends want different things: it changes once, where that is cheapest.
    #[test]
    fn long_chains_take_no_time() {
        let n = 20_000;
        let end = |v: usize, wish: bool| Factor {
            scope: vec![v],
            costs: if wish { vec![9.0, 0.0] } else { vec![0.0, 9.0] },
        };
        let link = |v: usize| Factor {
            scope: vec![v, v + 1],
            costs: if v == 777 { vec![0.0, 1.0, 1.0, 0.0] } else { vec![0.0, 2.0, 2.0, 0.0] },
        };
        let factors = (0..n - 1).map(link).chain([end(0, false), end(n - 1, true)]).collect();
        let got = cheapest(n, factors);
        assert!((0..n).all(|v| got[v] == (v > 777)));
    }

    #[test]
    fn a_network_too_wide_is_left_alone() {
        // Each with each: the tables of a clique of 30.
        let pairs = (0..30).flat_map(|a| {
            (a + 1..30).map(move |b| Factor { scope: vec![a, b], costs: vec![1.0, 0.0, 0.0, 1.0] })
        });
        assert_eq!(cheapest(30, pairs.collect()), vec![false; 30]);
        assert_eq!(cheapest(0, Vec::new()), Vec::<bool>::new());
    }
}
