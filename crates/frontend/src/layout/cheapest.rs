//! The least sum of costs over yes-or-no choices, where each cost depends on a few of them: exact, by
//! eliminating one choice after the other (bucket elimination, Dechter 1999). Networks are nearly
//! chains, so the tables on the way stay small.

/// A cost that depends on some choices.
pub struct Factor {
    /// The choices, ascending.
    pub scope: Vec<usize>,
    /// For each combination, bit `i` of whose number is the choice `scope[i]`.
    pub costs: Vec<f64>,
}

/// Choices that one table may depend on; a network that needs more is given up on.
const WIDEST: usize = 18;

impl Factor {
    fn cost(&self, chosen: &[bool]) -> f64 {
        let bits = self.scope.iter().enumerate().fold(0, |b, (i, &v)| b | usize::from(chosen[v]) << i);
        self.costs[bits]
    }
}

/// The choices of least total cost; of equals the one with fewer changes from "no". All "no" where
/// the network is no near-chain.
pub fn cheapest(choices: usize, mut factors: Vec<Factor>) -> Vec<bool> {
    let mut chosen = vec![false; choices];
    // What decides each eliminated choice, given those eliminated after it.
    let mut decided: Vec<(usize, Vec<Factor>)> = Vec::new();
    let mut open: Vec<usize> = (0..choices).collect();
    let around = |v: usize, factors: &[Factor]| -> Vec<usize> {
        let mut scope: Vec<usize> = factors.iter().filter(|f| f.scope.contains(&v)).flat_map(|f| f.scope.iter().copied()).collect();
        scope.sort_unstable();
        scope.dedup();
        scope.retain(|&u| u != v);
        scope
    };
    while let Some((at, scope)) = open.iter().enumerate().map(|(i, &v)| (i, around(v, &factors))).min_by_key(|(_, s)| s.len()) {
        let v = open.swap_remove(at);
        if scope.len() >= WIDEST {
            return vec![false; choices];
        }
        let (bucket, rest): (Vec<Factor>, Vec<Factor>) = factors.into_iter().partition(|f| f.scope.contains(&v));
        factors = rest;
        let mut point = vec![false; choices];
        let costs = (0..1usize << scope.len()).map(|bits| {
            scope.iter().enumerate().for_each(|(i, &u)| point[u] = bits >> i & 1 == 1);
            least(v, &bucket, &mut point).1
        });
        let costs = costs.collect();
        factors.push(Factor { scope, costs });
        decided.push((v, bucket));
    }
    for (v, bucket) in decided.into_iter().rev() {
        chosen[v] = least(v, &bucket, &mut chosen).0;
    }
    chosen
}

/// The better value of a choice where the others of its costs are chosen.
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
            let all = (0..1usize << n).map(|bits| (0..n).map(|i| bits >> i & 1 == 1).collect::<Vec<bool>>());
            let best = all.map(|c| total(&c)).fold(f64::INFINITY, f64::min);
            let copy = factors.iter().map(|f| Factor { scope: f.scope.clone(), costs: f.costs.clone() }).collect();
            assert_eq!(total(&cheapest(n, copy)), best);
        }
    }

    #[test]
    fn a_network_too_wide_is_left_alone() {
        let all = Factor { scope: (0..20).collect(), costs: (0..1 << 20).map(|b| -f64::from(b)).collect() };
        assert_eq!(cheapest(20, vec![all]), vec![false; 20]);
        assert_eq!(cheapest(0, Vec::new()), Vec::<bool>::new());
    }
}
