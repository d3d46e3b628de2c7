//! The allocator: decides which task of a model gets the next trials (Ansor's gradient scheduler,
//! Zheng et al., OSDI 2020). Input: the tasks' sizes and counts, and the times of their trials as
//! they come; output: a task. Every task has its first few trials, in order of its expected share
//! of the time, before any gain is estimated. Then trials go where the sum of best time x count is
//! expected to fall fastest: partly by how fast it fell lately, partly by how far it might still
//! fall. `squall/src/tuning/session.rs` asks it.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::Nanos;

/// Weight of the slope so far; the rest goes to the optimistic guess.
const BACKWARD: f64 = 0.2;
/// A task is expected to reach this share of the best rate of similar tasks.
const REACHABLE: f64 = 0.5;
/// The probability of a random choice.
const RANDOM: f64 = 0.05;
/// Trials that count as one round.
const ROUND: f64 = 16.0;
/// The slope is taken over this many rounds.
const WINDOW: f64 = 3.0;
/// After this many rounds a task is no longer expected to reach the rate of similar tasks.
const DEAD_END: f64 = 5.0;

/// Trials of each task that come before any gain is estimated: the cost formula's first few
/// answers are already close to what many more trials find.
pub const FIRST_TRIALS: usize = 4;
/// A byte that must be moved takes about as long as so many operations of a tuned kernel.
const OPERATIONS_PER_BYTE: f64 = 4.0;

/// The facts about a task that the allocator is given beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskWeight {
    /// The number of calls of the task in the model.
    pub count: u64,
    /// Arithmetic operations of one call.
    pub flop: u64,
    /// Bytes that one call must move.
    pub bytes: u64,
}

impl TaskWeight {
    /// The time that all calls of the task are expected to take, in no particular unit: by its
    /// operations or by its bytes, whichever take longer.
    pub fn expected_time(&self) -> f64 {
        let call = (self.flop as f64).max(OPERATIONS_PER_BYTE * self.bytes as f64);
        self.count.max(1) as f64 * call.max(1.0)
    }
}

struct State {
    weight: TaskWeight,
    /// Whether the task was chosen at least once.
    started: bool,
    /// Total trials and best time after each report.
    history: Vec<(usize, f64)>,
}

impl State {
    fn best(&self) -> Option<f64> {
        self.history.last().map(|h| h.1).filter(|b| b.is_finite())
    }

    fn rounds(&self) -> f64 {
        self.history.last().map_or(0.0, |h| h.0 as f64 / ROUND)
    }

    /// Operations per nanosecond of the best so far.
    fn rate(&self) -> Option<f64> {
        self.best().map(|b| self.weight.flop.max(1) as f64 / b.max(1e-9))
    }

    /// Whether two tasks have about the same size.
    fn resembles(&self, other: &State) -> bool {
        let size = |s: &State| (s.weight.flop.max(1) as f64).ln() / 1.618f64.ln();
        (size(self) - size(other)).abs() <= 1.0
    }
}

/// Divides a budget between tasks.
pub struct Allocator {
    tasks: Vec<State>,
    /// The tasks by expected time, the longest first.
    order: Vec<usize>,
    rng: Xoshiro256PlusPlus,
}

impl Allocator {
    /// The allocator for some tasks.
    pub fn new(tasks: &[TaskWeight], seed: u64) -> Allocator {
        let state = |&weight: &TaskWeight| State { weight, started: false, history: Vec::new() };
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_by(|&a, &b| tasks[b].expected_time().total_cmp(&tasks[a].expected_time()));
        Allocator {
            tasks: tasks.iter().map(state).collect(),
            order,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    /// The task whose next trials are worth most, among those that are open; `None` if none is.
    pub fn next(&mut self, open: &[bool]) -> Option<usize> {
        let open: Vec<usize> =
            (0..self.tasks.len()).filter(|&t| open.get(t) == Some(&true)).collect();
        if open.is_empty() {
            return None;
        }
        let first = self.order.iter().copied().find(|t| self.is_new(*t) && open.contains(t));
        let chosen = match first {
            Some(t) => t,
            None if self.rng.random_bool(RANDOM) => open[self.rng.random_range(0..open.len())],
            // Among equals the task with the fewest trials is chosen, then the first.
            None => open.into_iter().min_by(|&a, &b| {
                let by_gain = self.expected_gain(b).total_cmp(&self.expected_gain(a));
                by_gain.then(self.tasks[a].rounds().total_cmp(&self.tasks[b].rounds()))
            })?,
        };
        self.tasks[chosen].started = true;
        Some(chosen)
    }

    /// Whether a task was neither chosen nor reported on.
    pub fn is_new(&self, task: usize) -> bool {
        self.tasks.get(task).is_some_and(|t| !t.started && t.history.is_empty())
    }

    /// Takes note of `trials` more trials of a task and of the best time of all its trials.
    pub fn report(&mut self, task: usize, trials: usize, best: Option<Nanos>) {
        let Some(t) = self.tasks.get_mut(task) else { return };
        let (before, lowest) = t.history.last().copied().unwrap_or((0, f64::INFINITY));
        let best = best.map_or(f64::INFINITY, |b| b.0).min(lowest);
        t.history.push((before + trials, best));
    }

    /// By how many nanoseconds the model is expected to get faster with one more round.
    fn expected_gain(&self, task: usize) -> f64 {
        let t = &self.tasks[task];
        let rounds = t.rounds().max(0.25);
        let rates = self
            .tasks
            .iter()
            .enumerate()
            .filter(|(i, o)| *i != task && o.resembles(t))
            .filter_map(|(_, o)| o.rate());
        let best_rate = rates.fold(0.0, f64::max);
        let Some(best) = t.best() else {
            // No kernel of it ran yet. The time at the rate of similar tasks (or of any) counts as
            // the gain, less with every round that failed.
            let any = self.tasks.iter().filter_map(State::rate).fold(f64::INFINITY, f64::min);
            let rate = if best_rate > 0.0 { best_rate } else { any };
            let reachable = if rate.is_finite() { t.weight.flop.max(1) as f64 / rate } else { 1.0 };
            return t.weight.count.max(1) as f64 * reachable / (1.0 + rounds * rounds);
        };
        let from = t
            .history
            .iter()
            .rev()
            .find(|h| t.rounds() - h.0 as f64 / ROUND >= WINDOW)
            .or(t.history.first());
        let backward = match from {
            Some(&(trials, then)) if then.is_finite() && t.rounds() > trials as f64 / ROUND => {
                (then - best) / (t.rounds() - trials as f64 / ROUND)
            }
            _ => best / rounds,
        };
        // The last round at which it became faster by a percent. The longer ago that is, the less
        // further gain is expected.
        let still =
            t.history.iter().rev().find(|h| h.1 > best * 1.01).map_or(0.0, |h| h.0 as f64 / ROUND);
        let mut forward = best / (rounds + 2.0 * (rounds - still - 1.0).max(0.0));
        // In the first rounds a task is expected to reach half the rate of similar tasks.
        if best_rate > 0.0 && rounds < DEAD_END {
            forward =
                forward.max(best - t.weight.flop.max(1) as f64 / (REACHABLE * best_rate)).min(best);
        }
        t.weight.count.max(1) as f64 * (BACKWARD * backward + (1.0 - BACKWARD) * forward)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(list: &[(u64, u64)]) -> Vec<TaskWeight> {
        list.iter().map(|&(count, flop)| TaskWeight { count, flop, bytes: 0 }).collect()
    }

    /// Runs rounds of 16 trials on tasks whose best time after t trials is given.
    fn run(
        tasks: &[(u64, u64)],
        seed: u64,
        rounds: usize,
        time: impl Fn(usize, usize) -> Option<f64>,
    ) -> Vec<usize> {
        let mut a = Allocator::new(&facts(tasks), seed);
        let mut given = vec![0; tasks.len()];
        for _ in 0..rounds {
            let t = a.next(&vec![true; tasks.len()]).unwrap();
            given[t] += 16;
            a.report(t, 16, time(t, given[t]).map(Nanos));
        }
        given.into_iter().map(|g| g / 16).collect()
    }

    #[test]
    fn each_task_gets_one_round_first() {
        let mut a = Allocator::new(&facts(&[(1, 10), (1, 10), (1, 10)]), 1);
        let order: Vec<_> = (0..3).map(|_| a.next(&[true; 3])).collect();
        assert_eq!(order, [Some(0), Some(1), Some(2)]);
        assert_eq!(a.next(&[false; 3]), None);
        for _ in 0..50 {
            assert_eq!(a.next(&[false, true, false]), Some(1));
        }
        // A resumed task needs no warm-up.
        let mut a = Allocator::new(&facts(&[(1, 10), (1, 10)]), 1);
        a.report(0, 100, Some(Nanos(5.0)));
        assert_eq!(a.next(&[true, true]), Some(1));
    }

    #[test]
    fn the_first_turns_go_by_expected_share_of_the_time() {
        let weight = |count, flop, bytes| TaskWeight { count, flop, bytes };
        // By count, by operations, by bytes; equal ones in the input's order.
        let tasks = [weight(1, 100, 1), weight(9, 100, 1), weight(1, 0, 1000), weight(1, 2000, 8)];
        let tasks = [&tasks[..], &tasks[..1]].concat();
        let mut a = Allocator::new(&tasks, 1);
        let order: Vec<_> = (0..5).map(|_| a.next(&[true; 5])).collect();
        assert_eq!(order, [2, 3, 1, 0, 4].map(Some));
        // A task that is closed is passed over.
        let mut a = Allocator::new(&tasks, 1);
        assert_eq!(a.next(&[true, true, false, true, true]), Some(3));
        assert!(!a.is_new(3) && a.is_new(2) && !a.is_new(5));
    }

    proptest! {
        #[test]
        fn no_task_has_a_second_turn_before_each_had_its_first(
            weights in proptest::collection::vec((1u64..50, 0u64..1 << 40, 0u64..1 << 30), 1..40),
            seed: u64,
            fails in 0usize..4,
        ) {
            let weights = weights.into_iter();
            let tasks: Vec<TaskWeight> =
                weights.map(|(count, flop, bytes)| TaskWeight { count, flop, bytes }).collect();
            let mut a = Allocator::new(&tasks, seed);
            let open = vec![true; tasks.len()];
            let mut seen = Vec::new();
            for _ in 0..tasks.len() {
                let t = a.next(&open).unwrap();
                // Whether its trials ran does not matter.
                let best = (t % 4 != fails).then_some(Nanos(1e3));
                a.report(t, FIRST_TRIALS, best);
                seen.push(t);
            }
            let falls = seen.is_sorted_by_key(|&t| -tasks[t].expected_time());
            prop_assert!(falls);
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..tasks.len()));
            // After that gains decide.
            prop_assert!(a.next(&open).is_some_and(|t| t < tasks.len()));
        }
    }

    #[test]
    fn heavy_tasks_get_more_by_time_and_by_count() {
        let falling = |start: f64, t: usize| Some(start * (0.3 + 0.7 / (1.0 + t as f64 / 50.0)));
        let by_time = run(&[(1, 1 << 20), (1, 1 << 30)], 3, 60, |i, t| falling([1e4, 1e6][i], t));
        assert!(by_time[1] > 6 * by_time[0], "{by_time:?}");
        let by_count = run(&[(1, 1 << 20), (10, 1 << 30)], 3, 60, |_, t| falling(1e5, t));
        assert!(by_count[1] > 2 * by_count[0], "{by_count:?}");
        assert!(by_count[0] >= 2);
    }

    #[test]
    fn a_task_that_stands_still_loses_to_one_that_falls() {
        let r = run(&[(1, 1 << 20), (1, 1 << 30)], 5, 60, |i, t| {
            Some(if i == 0 { 1e6 } else { 1e6 * 0.97f64.powf(t as f64 / 16.0) })
        });
        assert!(r[1] > r[0], "{r:?}");
    }

    #[test]
    fn a_dead_end_does_not_eat_the_budget() {
        // The second never runs; the third runs ten times slower than its like for ever.
        let r = run(&[(1, 1000), (1, 1000), (1, 1000)], 5, 120, |i, t| match i {
            0 => Some(1e5 / (1.0 + t as f64 / 400.0)),
            1 => None,
            _ => Some(1.2e5),
        });
        assert!(r[1] < 30, "{r:?}");
        assert!(r[1] >= 2, "{r:?}");
        let r = run(&[(1, 1000), (1, 1000)], 5, 100, |i, t| {
            Some([1e5 / (1.0 + t as f64 / 400.0), 3e5][i])
        });
        assert!(r[1] < 85, "{r:?}");
    }

    #[test]
    fn equal_seeds_give_equal_choices() {
        let choices = |seed| {
            let mut a = Allocator::new(&facts(&[(1, 10), (2, 1000), (3, 100_000)]), seed);
            let mut out = Vec::new();
            for i in 0..100 {
                let t = a.next(&[true; 3]).unwrap();
                out.push(t);
                a.report(t, 16, Some(Nanos(1e5 / f64::from(i + 1))));
            }
            out
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
    }
}
