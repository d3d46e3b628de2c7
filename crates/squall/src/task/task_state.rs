//! The knowledge about a task: its tunables, the candidates that were tried, and their times
//! (`Standings`, which says which candidate is the incumbent). It is filled from the store's
//! records and then by each trial. Sessions, exports, advice and verification all start from it.

use crate::task::task_kernels::{TaskKernels, symbol_of};
use squall_core::{
    Candidate, CandidateText, Job, KernelSource, Nanos, Record, RecordKind, Task, TaskSetup, Trial,
};
use squall_records::{Name, Standings};
use std::collections::{HashMap, HashSet};

/// A task with what is known of it.
pub(crate) struct TaskState<'a> {
    pub task: &'a Task,
    pub kernels: TaskKernels,
    /// The entry point of its kernels, wherever they are compiled: equal sources are compiled
    /// once.
    pub symbol: String,
    /// The times of each candidate, and which candidate is the incumbent.
    pub standings: Standings<()>,
    /// Every candidate that had a trial.
    pub tried: HashSet<Name>,
    /// Candidates whose stored time is below what the machine can reach; they count once they were
    /// measured again.
    pub doubted: Vec<Name>,
    /// The names in the store's records of candidates whose tunable, knobs or values were renamed
    /// since.
    stored: HashMap<Name, Name>,
}

/// A candidate's name in records: tunable and configuration.
pub fn name_of(c: &Candidate) -> Name {
    (c.tunable.to_string(), c.configuration.to_string())
}

/// The records that were taken over from a store, in the order in which they were made.
#[derive(Default)]
pub(crate) struct History {
    /// Trials of candidates that can still be made.
    pub trials: Vec<Trial>,
    /// Times of candidates, the baseline's among them, each with the trials known until then.
    pub times: Vec<(Name, Nanos, u64)>,
    /// How many trials are known.
    pub known: u64,
    /// The baseline's time.
    pub untuned: Option<Nanos>,
}

impl<'a> TaskState<'a> {
    /// A task of which nothing is known.
    pub fn new(task: &'a Task, kernels: TaskKernels) -> TaskState<'a> {
        let (tried, stored, doubted) = (HashSet::new(), HashMap::new(), Vec::new());
        let (symbol, standings) = (symbol_of(task), Standings::default());
        TaskState { task, kernels, symbol, standings, tried, doubted, stored }
    }

    /// Takes the store's records of the task over.
    pub fn learn(&mut self, mut records: Vec<Record>) -> History {
        // A merged store has them in another order; what is newest counts, and what is equally
        // new in the order of the store's own summaries.
        records.sort_by(|a, b| {
            a.time.total_cmp(&b.time).then_with(|| a.identity().cmp(&b.identity()))
        });
        let mut history = History::default();
        for r in records {
            let candidate = self.kernels.candidate(&r.tunable, &r.configuration);
            // An older spelling of a candidate is the same candidate.
            let name = match &candidate {
                Some(c) => name_of(c),
                None => (r.tunable.clone(), r.configuration.clone()),
            };
            if (&name.0, &name.1) != (&r.tunable, &r.configuration) {
                self.stored.insert(name.clone(), (r.tunable.clone(), r.configuration.clone()));
            }
            let stored = r.outcome.time();
            let is_made = self.kernels.makes(&r.tunable, &r.configuration);
            let is_doubted = stored.is_some_and(|t| t.0.is_nan() || t.0 < self.kernels.least.0);
            if is_made && is_doubted && !self.doubted.contains(&name) {
                self.doubted.push(name.clone());
            }
            // What cannot be made holds nothing, and neither does a time that cannot be.
            let time = stored.filter(|_| is_made && !is_doubted);
            if r.kind == RecordKind::Untuned {
                history.untuned = time.or(history.untuned);
            }
            if r.kind == RecordKind::Trial {
                history.known += 1;
                self.tried.insert(name.clone());
            }
            if time.is_some() || (r.kind == RecordKind::Rematch && stored.is_none()) {
                self.standings.add(r.kind, name.clone(), time, ());
            }
            if let (Some(time), RecordKind::Trial | RecordKind::Untuned) = (time, r.kind) {
                history.times.push((name, time, history.known));
            }
            // What an older sketch proposed and none proposes now is of no use to search.
            if r.kind == RecordKind::Trial
                && !is_doubted
                && let Some(candidate) = candidate
            {
                history.trials.push(Trial { candidate, outcome: r.outcome, cost: r.cost });
            }
        }
        history
    }

    /// The candidates whose stored times cannot be and that were not measured again since.
    pub fn doubts(&self) -> impl Iterator<Item = &Name> {
        self.doubted.iter().filter(|n| !self.standings.has_met(n))
    }

    /// A candidate ran in this time.
    pub fn stand(&mut self, name: Name, time: Nanos) {
        self.standings.trial(name, Some(time), ());
    }

    /// How records of a candidate spell it: as the store's earlier ones do, so that all readers
    /// see one candidate.
    pub fn stored_name<'n>(&'n self, name: &'n Name) -> &'n Name {
        self.stored.get(name).unwrap_or(name)
    }

    /// The kernel of a candidate.
    pub fn source(&self, name: &Name) -> Option<KernelSource> {
        let tunables = self.kernels.tunables.iter().chain([&self.kernels.plain]);
        let tunable = tunables.into_iter().find(|t| t.name() == name.0)?;
        tunable.realize(&tunable.space().parse(&name.1).ok()?, &self.symbol).ok()
    }

    /// Operations of a call of a candidate: those of the algorithm that runs.
    pub fn operations(&self, name: &Name) -> u64 {
        let counted = || {
            let tunable = self.kernels.tunables.iter().find(|t| t.name() == name.0)?;
            tunable.share_of_operations(&tunable.space().parse(&name.1).ok()?)
        };
        let flop = self.task.workload.flop();
        counted().map_or(flop, |share| (flop as f64 * share) as u64)
    }

    /// A candidate as a job, if it can still be made.
    pub fn job(&self, name: &Name) -> Option<Job> {
        let text = CandidateText::new(name.0.clone(), name.1.clone());
        Some(Job::new(text, self.source(name)?))
    }

    /// The facts of the task that a measurer needs, with inputs from `seed`.
    pub fn setup(&self, seed: u64) -> TaskSetup {
        self.kernels.setup(self.task, seed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::base::recorder::Recorder;
    use crate::tuning::runoff::run_off;
    use squall_core::{
        Bytes, CpuCost, DeviceIdentity, FailStage, Measurement, Measurer, MeasurerIdentity,
        Outcome, Target, Workload,
    };
    use squall_measure::MockMeasurer;
    use squall_records::{Place, Query, Store};
    use std::sync::atomic::AtomicBool;

    /// A small product of matrices.
    pub fn task() -> Task {
        let text = "workload matmul\ndata A: f32[16, 16]\nweight B: f32[16, 16]\nstage Y: f32[i: \
                    16, j: 16] = sum(k: 16) A[i, k] * B[k, j]\noutput Y\n";
        Task::new("mm", Workload::parse(text).expect("a workload"))
    }

    /// A machine of no particular make.
    pub fn target() -> Target {
        Target::cpu(32, 16, &[Bytes(32 << 10), Bytes(1 << 20)])
    }

    /// A task of rules, of which nothing is known.
    pub fn state(task: &Task) -> TaskState<'_> {
        TaskState::new(task, TaskKernels::generated(task, &target()))
    }

    pub fn measured(ns: f64) -> Outcome {
        Outcome::Measured(Measurement {
            samples: vec![Nanos(ns)],
            calls: 1,
            error: 0.0,
            gpu: None,
            pace: None,
        })
    }

    /// The i-th configuration of the first sketch.
    pub fn name(s: &TaskState, i: u128) -> Name {
        let tunable = &s.kernels.tunables[0];
        (tunable.name().into(), tunable.space().nth(i).to_string())
    }

    fn record(s: &TaskState, kind: RecordKind, name: &Name, outcome: Outcome) -> Record {
        Record {
            kind,
            task: s.task.id,
            name: "mm".into(),
            workload: s.task.workload.to_string(),
            device: "cpu".into(),
            toolchain: "gcc".into(),
            tunable: name.0.clone(),
            configuration: name.1.clone(),
            outcome,
            cost: CpuCost::default(),
            seed: 0,
            time: 0.0,
        }
    }

    /// Records of a task: trials, a failure, a sketch that is gone, and a run-off that the first
    /// candidate won.
    pub fn history(s: &TaskState) -> (Vec<Name>, Vec<Record>) {
        let names: Vec<Name> = (0..4).map(|i| name(s, i)).collect();
        let plain: Name = ("untuned".into(), String::new());
        let failed = Outcome::Failed { stage: FailStage::Build, detail: "no".into() };
        let records = [
            record(s, RecordKind::Untuned, &plain, measured(900.0)),
            record(s, RecordKind::Trial, &names[0], measured(100.0)),
            record(s, RecordKind::Trial, &names[1], measured(95.0)),
            record(s, RecordKind::Trial, &names[2], failed),
            record(s, RecordKind::Trial, &("gone".into(), "x=1".into()), measured(98.0)),
            record(s, RecordKind::Rematch, &names[1], measured(104.0)),
            record(s, RecordKind::Rematch, &names[0], measured(99.0)),
        ];
        let dated = |(i, r): (usize, Record)| Record { time: i as f64, ..r };
        (names, records.into_iter().enumerate().map(dated).collect())
    }

    #[test]
    fn history_is_taken_over() {
        let task = task();
        let mut s = state(&task);
        let (names, records) = history(&s);
        let history = s.learn(records);
        assert_eq!((history.known, history.untuned), (4, Some(Nanos(900.0))));
        assert_eq!((history.trials.len(), history.times.len()), (3, 3));
        assert_eq!(s.standings.winner().map(|w| (w.0, w.1)), Some((&names[0], Nanos(99.0))));
        assert_eq!(s.tried.len(), 4);
        assert!(names.iter().all(|n| s.stored_name(n) == n));
    }

    #[test]
    fn what_cannot_be_made_or_cannot_be_true_holds_no_task() {
        let task = task();
        let mut s = state(&task);
        let (names, mut records) = history(&s);
        // Faster than the winner by far: an illegal configuration, a time that no machine reaches,
        // and the same said by a run-off.
        let illegal: Name = (names[0].0.clone(), "nonsense=7".into());
        for (kind, name, ns) in [
            (RecordKind::Trial, &illegal, 50.0),
            (RecordKind::Trial, &names[3], 0.5),
            (RecordKind::Rematch, &names[1], 0.001),
            (RecordKind::Rematch, &illegal, 40.0),
        ] {
            let time = 100.0 + records.len() as f64;
            records.push(Record { time, ..record(&s, kind, name, measured(ns)) });
        }
        let history = s.learn(records.clone());
        assert_eq!(s.standings.winner().map(|w| (w.0, w.1)), Some((&names[0], Nanos(99.0))));
        // The second candidate has a run-off that is believed: it needs no other.
        assert_eq!(s.doubts().collect::<Vec<_>>(), [&names[3]]);
        assert!(history.times.iter().all(|t| t.1.0 >= 95.0), "{:?}", history.times);
        // Tasks that are not searched keep what the store says, but no false time.
        let mut idle = TaskState::new(&task, TaskKernels::empty(&task, &target()));
        idle.learn(records);
        assert!(idle.standings.winner().is_some_and(|w| w.1.0 >= 40.0));
    }

    #[test]
    fn a_candidate_under_a_former_name_is_one_candidate_for_every_reader() {
        let text = "workload conv2d\ndata X: f32[1, 64, 28, 28]\nweight W: f32[64, 64, 3, 3]\n\
                    stage P: f32[n: 1, c: 64, h: 30, w: 30] = select(0 <= h - 1 < 28 and 0 <= w - \
                    1 < 28, X[n, c, h - 1, w - 1], 0)\n\
                    stage Y: f32[n: 1, k: 64, p: 28, q: 28] = sum(c: 64, r: 3, s: 3) P[n, c, p + \
                    r, q + s] * W[k, c, r, s]\noutput Y\n";
        let task = Task::new("conv", Workload::parse(text).expect("a workload"));
        let on = Target { threads: 2, ..target() };
        let mut s = TaskState::new(&task, TaskKernels::generated(&task, &on));
        let all = &s.kernels.tunables;
        let t = all.iter().find(|t| t.name() == "winograd").expect("a sketch");
        let today = |word: &str| {
            let with = |c: &squall_core::Configuration| c.to_string().contains(word);
            (t.name().to_string(), t.space().iter().find(with).expect("one").to_string())
        };
        let (phases, blocks) = (today("parallel_over=phases"), today("parallel_over=blocks"));
        let former = |n: &Name| {
            let text = n.1.replace("parallel_over=phases", "deal=0");
            (n.0.clone(), text.replace("parallel_over=blocks", "deal=1"))
        };
        let (folder, stop) = (tempfile::tempdir().expect("a folder"), AtomicBool::new(false));
        let store = Store::open(folder.path().join("s.squall")).expect("a store");
        for (n, ns) in [(&phases, 90.0), (&blocks, 100.0)] {
            let r = record(&s, RecordKind::Trial, &former(n), measured(ns));
            store.append(&r).expect("appended");
        }
        let place = Place { device: DeviceIdentity::parse("cpu"), toolchain: "gcc".into() };
        s.learn(store.trials(task.id, "cpu", "gcc").expect("records"));
        assert_eq!(s.stored_name(&phases), &former(&phases));
        // The trial at 90 was lucky: `blocks` is twice as fast side by side.
        let times = |_: &TaskSetup, job: &Job| {
            let is_slow = job.candidate.configuration.contains("phases");
            let sample = Nanos(if is_slow { 200.0 } else { 100.0 });
            let Outcome::Measured(one) = measured(0.0) else { unreachable!("it is measured") };
            let all = Measurement { samples: vec![sample; 24], ..one };
            Ok((Outcome::Measured(all), CpuCost::default()))
        };
        let mut measurer = MockMeasurer::new(MeasurerIdentity::new("cpu", "gcc"), times);
        measurer.set_task(&s.setup(0)).expect("a task");
        let recorder = Recorder { store: &store, place, seed: 0 };
        run_off(&mut measurer, &mut s, &recorder, &stop, &mut |_, _| ()).expect("it is measured");
        let winner = s.standings.winner().map(|w| w.0.clone()).expect("a winner");
        assert_eq!(winner, blocks);
        let best = store.best(&Query::task(task.id)).expect("the best");
        assert_eq!(best[0].configuration, former(&blocks).1);
    }
}
