//! The standings of a task: which candidate holds it, from the times of all its candidates. Input:
//! records in the order in which they were made; output: the holder. The store and tuning sessions
//! use this one definition, so a report and a later export name the same winner.
//!
//! Times of different minutes do not compare well, since the machine's speed changes. Therefore
//! trials are compared with trials, and the winner of the last run-off (kernels timed in turns)
//! holds the task. Only a candidate that was in no run-off yet can take it without one, if its
//! trial was faster than the holder's by more than [`REMATCH_MARGIN`]. A run-off of whole networks
//! decides as one of kernels does, and leaves the times as they are: those of steps of a network
//! are longer than those of kernels alone.

use squall_core::{Nanos, RecordKind};
use std::collections::BTreeMap;

/// The share by which times of different minutes may differ by noise alone.
pub const REMATCH_MARGIN: f64 = 0.03;

/// A candidate's tunable and configuration.
pub type Name = (String, String);

/// The times of one candidate; `T` names the record of each.
#[derive(Clone, Debug)]
struct Standing<T> {
    trial: Option<(Nanos, T)>,
    /// The result of the last run-off: the outer option is `None` where there was none, the inner
    /// where the candidate failed in it.
    rematch: Option<Option<(Nanos, T)>>,
    /// Whether a run-off of whole networks decided about it.
    in_network: bool,
}

impl<T: Copy> Standing<T> {
    /// Its valid time: the newest run-off supersedes the trial.
    fn time(&self) -> Option<(Nanos, T)> {
        self.rematch.unwrap_or(self.trial)
    }
}

/// The candidates of one task on one device with one toolchain.
#[derive(Clone, Debug)]
pub struct Standings<T> {
    // Candidates are ordered by name, so that the winner of equal times is always the same.
    all: BTreeMap<Name, Standing<T>>,
    holder: Option<Name>,
}

impl<T> Default for Standings<T> {
    fn default() -> Standings<T> {
        Standings { all: BTreeMap::new(), holder: None }
    }
}

impl<T: Copy> Standings<T> {
    fn entry(&mut self, name: Name) -> &mut Standing<T> {
        self.all.entry(name).or_insert(Standing { trial: None, rematch: None, in_network: false })
    }

    /// Adds a record; records must be added in the order in which they were made.
    pub fn add(&mut self, kind: RecordKind, name: Name, time: Option<Nanos>, from: T) {
        match kind {
            RecordKind::Rematch => self.rematch(name, time, from),
            RecordKind::Network => self.in_network(name),
            RecordKind::Trial | RecordKind::Untuned => self.trial(name, time, from),
        }
    }

    /// Adds the time of a trial or of the baseline; `None` where it failed.
    pub fn trial(&mut self, name: Name, time: Option<Nanos>, from: T) {
        self.entry(name).trial = time.map(|t| (t, from));
    }

    /// Adds the time of one candidate of a run-off. The winner's is added last, which makes it the
    /// holder.
    pub fn rematch(&mut self, name: Name, time: Option<Nanos>, from: T) {
        self.entry(name.clone()).rematch = Some(time.map(|t| (t, from)));
        match time {
            Some(_) => self.holder = Some(name),
            None if self.holder.as_ref() == Some(&name) => self.holder = None,
            None => {}
        }
    }

    /// Adds one candidate of a run-off of whole networks. The winner is added last, which makes it
    /// the holder; one that has no time of its own never holds.
    pub fn in_network(&mut self, name: Name) {
        let standing = self.entry(name.clone());
        standing.in_network = true;
        if standing.time().is_some() {
            self.holder = Some(name);
        }
    }

    /// Whether a run-off of whole networks decided about a candidate.
    pub fn has_met_in_network(&self, name: &Name) -> bool {
        self.all.get(name).is_some_and(|s| s.in_network)
    }

    /// The valid time of a candidate: the newest run-off supersedes the trial.
    pub fn time(&self, name: &Name) -> Option<Nanos> {
        Some(self.all.get(name)?.time()?.0)
    }

    /// Whether a candidate was in a run-off.
    pub fn has_met(&self, name: &Name) -> bool {
        self.all.get(name).is_some_and(|s| s.rematch.is_some())
    }

    /// The candidates that ran, fastest first, those of equal times by name.
    pub fn ranking(&self) -> Vec<(&Name, Nanos)> {
        let mut all: Vec<(&Name, Nanos)> =
            self.all.iter().filter_map(|(n, s)| Some((n, s.time()?.0))).collect();
        all.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
        all
    }

    /// The candidate that others have to beat: the holder, or the fastest where none holds the
    /// task.
    pub fn incumbent(&self) -> Option<&Name> {
        self.holder.as_ref().or_else(|| self.ranking().first().map(|c| c.0))
    }

    /// The candidates without a run-off whose trial was clearly faster than that of `name`, fastest
    /// first.
    pub fn usurpers(&self, name: &Name) -> Vec<&Name> {
        let Some(limit) = self.all.get(name).and_then(|s| Some(s.trial.or(s.time())?.0)) else {
            return Vec::new();
        };
        let is_fresh = |s: &Standing<T>| s.rematch.is_none() && !s.in_network;
        let fresh = self.all.iter().filter(|(n, s)| is_fresh(s) && *n != name);
        let faster = fresh.filter_map(|(n, s)| Some((n, s.trial?.0.0)));
        let mut faster: Vec<(&Name, f64)> =
            faster.filter(|c| c.1 * (1.0 + REMATCH_MARGIN) < limit.0).collect();
        faster.sort_by(|a, b| a.1.total_cmp(&b.1));
        faster.into_iter().map(|c| c.0).collect()
    }

    /// The candidate that holds the task, with its time and the record that the time comes from.
    pub fn winner(&self) -> Option<(&Name, Nanos, T)> {
        let incumbent = self.incumbent()?;
        let name = self.usurpers(incumbent).first().copied().unwrap_or(incumbent);
        let (time, from) = self.all.get(name)?.time()?;
        Some((name, time, from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        ("tile".into(), text.into())
    }

    fn standings(trials: &[(&str, f64)], rematches: &[(&str, Option<f64>)]) -> Standings<()> {
        let mut s = Standings::default();
        trials.iter().for_each(|t| s.trial(name(t.0), Some(Nanos(t.1)), ()));
        rematches.iter().for_each(|r| s.rematch(name(r.0), r.1.map(Nanos), ()));
        s
    }

    fn winner(s: &Standings<()>) -> (String, f64) {
        s.winner().map(|w| (w.0.1.clone(), w.1.0)).expect("a candidate holds it")
    }

    #[test]
    fn equal_times_go_to_the_smaller_name_whatever_the_order() {
        assert_eq!(winner(&standings(&[("b", 10.0), ("a", 10.0)], &[])).0, "a");
        assert_eq!(winner(&standings(&[("a", 10.0), ("b", 10.0)], &[])).0, "a");
        assert!(Standings::<()>::default().winner().is_none());
    }

    #[test]
    fn a_slow_minute_takes_no_task() {
        // The run-off was held while the machine was slower; `b` lost it, `c` was not in it.
        let mut s = standings(
            &[("a", 100.0), ("b", 101.0), ("c", 102.0)],
            &[("b", Some(119.0)), ("a", Some(118.0))],
        );
        assert_eq!(winner(&s), ("a".into(), 118.0));
        // An older run-off's loser is not better for the faster minute that it was held in.
        s.rematch(name("c"), Some(Nanos(131.0)), ());
        s.rematch(name("a"), Some(Nanos(130.0)), ());
        assert_eq!(winner(&s), ("a".into(), 130.0));
        // A clearly faster trial takes it until they have met.
        s.trial(name("d"), Some(Nanos(90.0)), ());
        assert_eq!(winner(&s), ("d".into(), 90.0));
        assert_eq!(s.usurpers(&name("a")), [&name("d")]);
    }

    #[test]
    fn a_whole_network_decides_and_leaves_the_times() {
        let mut s = standings(&[("a", 100.0), ("b", 108.0), ("c", 140.0)], &[]);
        s.in_network(name("a"));
        s.in_network(name("b"));
        assert_eq!(winner(&s), ("b".into(), 108.0), "the loser's faster trial takes nothing back");
        assert!(s.has_met_in_network(&name("a")) && !s.has_met_in_network(&name("c")));
        // What was not there then, and is clearly faster, comes first until the two have met.
        s.trial(name("d"), Some(Nanos(90.0)), ());
        assert_eq!(winner(&s), ("d".into(), 90.0));
        // A candidate of which nothing else is known holds nothing.
        s.in_network(name("e"));
        assert_eq!(winner(&s), ("d".into(), 90.0));
    }

    #[test]
    fn who_fails_in_a_run_off_is_out_and_the_holder_stays() {
        let s = standings(
            &[("a", 100.0), ("b", 101.0), ("c", 90.0)],
            &[("b", Some(101.0)), ("a", Some(99.0)), ("c", None)],
        );
        assert_eq!(winner(&s), ("a".into(), 99.0));
        let s = standings(
            &[("a", 100.0), ("b", 101.0)],
            &[("b", Some(101.0)), ("a", Some(99.0)), ("a", None)],
        );
        assert_eq!(winner(&s), ("b".into(), 101.0));
    }
}
