//! Many searches on one task at once, presented as one strategy: the candidates that they ask for
//! are measured together, and a candidate that several ask for is measured once. The searches
//! compute in a thread of their own, in two parties: while the candidates of one party are
//! measured, the other computes.

use super::Run;
use squall::trials::{BATCH, cpu_time, name_of};
use squall_core::{Candidate, Nanos, Outcome, Trial};
use squall_records::Name;
use squall_search::Strategy;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender};

/// No more candidates than these of a run are measured again.
pub(super) const LEADERS: usize = 8 * super::FINALISTS;

/// A run on its way.
pub(super) struct Entrant {
    pub search: Box<dyn Strategy>,
    pub run: Run,
    /// Its best candidates, the best first.
    pub leaders: Vec<(Nanos, Candidate)>,
}

impl Entrant {
    /// The next candidates; none at its end.
    fn ask(&mut self) -> Vec<Candidate> {
        let clock = cpu_time();
        let asked = self.search.ask((self.run.budget - self.run.made).min(BATCH));
        self.run.search_seconds += cpu_time() - clock;
        asked
    }

    fn tell(&mut self, told: &Told) {
        self.run.measured += told.measured;
        for t in &told.trials {
            self.run.made += 1;
            let Some(time) = t.outcome.time() else { continue };
            if self.run.steps.last().is_none_or(|s| time.0 < s.1.0) {
                self.run.steps.push((self.run.made, time));
            }
            let place = self.leaders.partition_point(|l| l.0.0 <= time.0);
            self.leaders.insert(place, (time, t.candidate.clone()));
            self.leaders.truncate(LEADERS);
        }
        let clock = cpu_time();
        self.search.tell(&told.trials);
        self.run.search_seconds += cpu_time() - clock;
    }
}

/// What a party asks for, run by run.
pub(super) type Asked = Vec<Vec<Candidate>>;

/// What a run is told.
#[derive(Default)]
pub(super) struct Told {
    pub trials: Vec<Trial>,
    /// Those of them that were measured for this run.
    pub measured: usize,
}

/// Lets the runs of two parties ask in turn, until neither has anything left to ask for; whether
/// they ended so, and not because no more is told.
pub(super) fn think(
    entrants: &mut [Entrant],
    asked: &Sender<Asked>,
    told: &Receiver<Vec<Told>>,
) -> bool {
    let ask = |party: &mut [Entrant]| -> Asked { party.iter_mut().map(Entrant::ask).collect() };
    let (mut here, mut there) = entrants.split_at_mut(entrants.len().div_ceil(2));
    let mut waiting = ask(here);
    let mut is_waiting = waiting.iter().any(|a| !a.is_empty());
    if is_waiting && asked.send(waiting).is_err() {
        return false;
    }
    loop {
        waiting = ask(there);
        let is_next = waiting.iter().any(|a| !a.is_empty());
        if is_next && asked.send(waiting).is_err() {
            return false;
        }
        if is_waiting {
            let Ok(told) = told.recv() else { return false };
            for (entrant, told) in here.iter_mut().zip(&told) {
                entrant.tell(told);
            }
        }
        // A run that has nothing left to ask for asks for nothing again.
        if !is_waiting && !is_next {
            return true;
        }
        (is_waiting, here, there) = (is_next, there, here);
    }
}

/// The runs as one strategy: what it asks for is what no run knows yet.
pub(super) struct Race {
    pub asked: Receiver<Asked>,
    pub told: Sender<Vec<Told>>,
    /// Outcomes that runs share, if they do.
    pub known: Option<HashMap<Name, Outcome>>,
    /// The best time of all.
    pub best: Option<Nanos>,
    /// Trials of all runs.
    pub made: usize,
    waiting: Asked,
    /// The run of each candidate that is being measured.
    owners: HashMap<Name, VecDeque<usize>>,
}

impl Race {
    /// A race of runs whose thoughts come through a channel.
    pub fn new(
        asked: Receiver<Asked>,
        told: Sender<Vec<Told>>,
        known: Option<HashMap<Name, Outcome>>,
        best: Option<Nanos>,
    ) -> Race {
        let (waiting, owners) = (Vec::new(), HashMap::new());
        Race { asked, told, known, best, made: 0, waiting, owners }
    }

    /// What must be measured of what is waiting.
    fn unknown(&mut self) -> Vec<Candidate> {
        let mut coming: HashSet<Name> = HashSet::new();
        let mut out = Vec::new();
        for (owner, list) in self.waiting.iter().enumerate() {
            for c in list {
                let name = name_of(c);
                let shared = self.known.as_ref();
                if shared.is_some_and(|k| k.contains_key(&name) || !coming.insert(name.clone())) {
                    continue;
                }
                self.owners.entry(name).or_default().push_back(owner);
                out.push(c.clone());
            }
        }
        out
    }

    /// Tells the waiting party the outcomes; nothing where one is missing, since the race was ended
    /// early.
    fn answer(&mut self, mut fresh: HashMap<Name, VecDeque<Outcome>>, measured: &[usize]) {
        let mut told = Vec::new();
        for (list, measured) in self.waiting.iter().zip(measured) {
            let mut trials = Vec::new();
            for candidate in list {
                let name = name_of(candidate);
                let outcome = match &self.known {
                    Some(known) => known.get(&name).cloned(),
                    None => fresh.get_mut(&name).and_then(VecDeque::pop_front),
                };
                let Some(outcome) = outcome else { return };
                let candidate = candidate.clone();
                trials.push(Trial { candidate, outcome, cost: Default::default() });
            }
            told.push(Told { trials, measured: *measured });
        }
        for time in told.iter().flat_map(|t| &t.trials).filter_map(|t| t.outcome.time()) {
            if self.best.is_none_or(|b| time.0 < b.0) {
                self.best = Some(time);
            }
        }
        self.made += told.iter().map(|t| t.trials.len()).sum::<usize>();
        self.waiting.clear();
        // Where the thread of the runs has ended, its result says so.
        let _ = self.told.send(told);
    }
}

impl Strategy for Race {
    fn name(&self) -> &'static str {
        "race"
    }

    fn ask(&mut self, _: usize) -> Vec<Candidate> {
        while let Ok(asked) = self.asked.recv() {
            self.waiting = asked;
            let unknown = self.unknown();
            if !unknown.is_empty() {
                return unknown;
            }
            let none = vec![0; self.waiting.len()];
            self.answer(HashMap::new(), &none);
        }
        Vec::new()
    }

    fn tell(&mut self, trials: &[Trial]) {
        let mut measured = vec![0; self.waiting.len()];
        let mut fresh: HashMap<Name, VecDeque<Outcome>> = HashMap::new();
        for t in trials {
            let name = name_of(&t.candidate);
            let owner = self.owners.get_mut(&name).and_then(VecDeque::pop_front);
            if let (Some(owner), false) = (owner, matches!(t.outcome, Outcome::Infeasible(_))) {
                measured[owner] += 1;
            }
            match &mut self.known {
                Some(known) => drop(known.insert(name, t.outcome.clone())),
                None => fresh.entry(name).or_default().push_back(t.outcome.clone()),
            }
        }
        self.answer(fresh, &measured);
    }
}
