//! Verifies the kernels that are generated for a network on a GPU: moves of data and plain
//! operators. Each step runs alone on the GPU on random operands, hard ones (NaN, infinities) among
//! them, and as plain C on the host, built without the optimisations that compilers get wrong. A
//! kernel that differs is built with other flags until one build agrees; the user is told. Verdicts
//! are kept as in `mod.rs`.

use super::probe::{Probe, TRIAL};
use super::values::{RANGES, SETS, SETS_OF_MANY};
use super::{MovesBuild, Verdict, constant, keep, kept};
use crate::base::error::Error;
use crate::inference::network::files;
use crate::inference::network::files::Places;
use crate::inference::network::launch;
use crate::inference::network::launch::Ended;
use crate::inference::network::layout::FileLayout;
use crate::inference::network::operands::{source_of, target_of};
use crate::inference::network::plain::{Packing, PlainOperators, text};
use crate::inference::network::units::{MOVES, usual_arguments};
use crate::inference::network::{compiled, device, program};
use crate::target::target_context::TargetContext;
use squall_compiler::plain::PlainSource;
use squall_core::graph::{CallOperand, OperatorCall};
use squall_core::{DType, is_stopped};
use squall_graph::plan::{Plan, PlanStep, Work};
use squall_measure::TemporaryFolder;
use squall_measure::cuda::Gpu;
use squall_runtime::host;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// The flags that are tried in order for a kernel that differs from plain C. With the first, a
/// product is rounded before it is added to a sum (no fused multiply-add); with the second, the
/// assembler does not optimise.
const OTHERWISE: [&str; 2] = ["--fmad=false", "--ptxas-options=-O0"];
/// Names the way of comparing: verdicts of another are not read.
const WAY: &str = "generated kernels of a GPU against plain C, 4";
/// Bytes of operands and results that one program holds at most, unless one step has more.
const MOST_BYTES: usize = 64 << 20;
/// Bytes of operands and results that one step is compared with at most.
const MOST_BYTES_OF_ONE: usize = 2 << 30;
/// A step with more elements is tried on ordinary operands and on those with NaN alone.
const MANY: usize = 1 << 20;
/// After this time a program is ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where this many programs did not end in time, the kernels that are left run uncompared.
const MOST_LATE: usize = 4;

/// Compares a network's generated kernels with plain C and has those built otherwise that differ;
/// what the user is to know of them.
pub fn settle(
    plan: &Plan,
    plain: &mut PlainOperators,
    at: &TargetContext,
    gpu: &Gpu,
) -> Vec<String> {
    let comparison = Comparison { plan, at, gpu, late: Cell::new(0) };
    let all: Vec<usize> = (0..plain.sources.len()).collect();
    let first = match comparison.verdicts(plain, &all) {
        Ok(verdicts) => verdicts,
        Err(e) => return vec![format!("generated kernels run unchecked: {e}")],
    };
    if is_stopped() {
        return Vec::new();
    }
    let mut said = Vec::new();
    let mut differing = Vec::new();
    for (i, found) in first {
        match found {
            Found::Verdict(Verdict::Wrong(why)) => differing.push((i, why)),
            Found::Unchecked(why) => said
                .push(format!("the GPU's kernel of {} runs unchecked: {why}", of(plan, plain, i))),
            Found::Verdict(Verdict::Right | Verdict::Unknown) => {}
        }
    }
    for flag in OTHERWISE {
        if differing.is_empty() {
            break;
        }
        let mut otherwise = plain.clone();
        for (i, _) in &differing {
            otherwise.sources[*i].flags.push(flag.into());
        }
        // What cannot be run so is not known to be right.
        let those: Vec<usize> = differing.iter().map(|(i, _)| *i).collect();
        let verdicts = comparison.verdicts(&otherwise, &those).unwrap_or_default();
        differing.retain(|(i, why)| {
            let right = (*i, Found::Verdict(Verdict::Right));
            let is_right = verdicts.contains(&right);
            if is_right {
                plain.sources[*i].flags.clone_from(&otherwise.sources[*i].flags);
                said.push(format!(
                    "NVRTC makes a kernel of {} that differs from plain C: {why}; it runs as \
                     built with {flag}",
                    of(plan, plain, *i)
                ));
            }
            !is_right
        });
    }
    said.extend(differing.into_iter().map(|(i, why)| {
        format!(
            "the GPU's kernel of {} differs from plain C: {why}; `squall check MODEL --target \
             cuda` says whether the model's outputs do",
            of(plan, plain, i)
        )
    }));
    // A node may have several kernels.
    said.sort();
    said.dedup();
    said
}

/// Names the first step that a generated kernel makes.
fn of(plan: &Plan, plain: &PlainOperators, source: usize) -> String {
    let step = step(plan, plain, source);
    format!("node `{}` ({})", step.node, step.op)
}

/// The first step that a generated kernel makes.
fn step<'a>(plan: &'a Plan, plain: &PlainOperators, source: usize) -> &'a PlanStep {
    let steps = plain.of_step.iter().filter(|(_, s)| **s == source).map(|(step, _)| *step);
    &plan.steps[steps.min().unwrap_or(0)]
}

/// A step that is tried on operands of a set.
#[derive(Clone, Copy)]
struct Trial {
    /// The generated kernel.
    source: usize,
    /// The set of its operands.
    set: usize,
    /// Which range whole numbers are drawn from: the first that the operator does not refuse.
    range: usize,
}

/// The outcome of comparing a kernel.
#[derive(Clone, PartialEq)]
enum Found {
    /// A verdict, which is kept.
    Verdict(Verdict),
    /// The kernel was not compared, for this reason; the next run tries again.
    Unchecked(String),
}

/// How a program ended that ran trials.
enum Ran {
    /// Bytes of each output.
    Well(Vec<Vec<u8>>),
    /// The operator of a trial refused its operands.
    Refused(usize),
    /// It crashed, or did not end in time: its first line or our words.
    Failed(String),
}

/// How a program of trials is built, and where it runs.
struct Build<'a> {
    plain: &'a PlainOperators,
    layout: &'a FileLayout,
    moves: &'a MovesBuild,
    at: &'a TargetContext,
}

struct Comparison<'a> {
    plan: &'a Plan,
    at: &'a TargetContext,
    gpu: &'a Gpu,
    /// How many programs did not end in time.
    late: Cell<usize>,
}

impl Comparison<'_> {
    /// What is found of some generated kernels: of each the kept verdict, or a new one, which is
    /// kept.
    fn verdicts(
        &self,
        plain: &PlainOperators,
        those: &[usize],
    ) -> Result<Vec<(usize, Found)>, Error> {
        let folder = TemporaryFolder::new("compare")?;
        let place = folder.path().join("verdict");
        let keys: HashMap<usize, String> = those.iter().map(|&i| (i, self.key(plain, i))).collect();
        let known = |i: &usize| {
            let verdict = kept(&keys[i], &place, &self.at.toolchain)?;
            Some((*i, Found::Verdict(verdict)))
        };
        let mut all: Vec<(usize, Found)> = those.iter().filter_map(known).collect();
        let mut groups: Vec<Vec<Trial>> = Vec::new();
        let mut bytes = MOST_BYTES;
        let is_new = |i: &&usize| all.iter().all(|(known, _)| known != *i);
        let new: Vec<usize> = those.iter().filter(is_new).copied().collect();
        for source in new {
            let (trials, own) = match self.trials(plain, source) {
                Ok(trials) => trials,
                Err(why) => {
                    all.push((source, Found::Unchecked(why)));
                    continue;
                }
            };
            bytes += own;
            if bytes > MOST_BYTES {
                groups.push(Vec::new());
                bytes = own;
            }
            groups.last_mut().into_iter().for_each(|g| g.extend(&trials));
        }
        for trials in groups {
            let mut found: Vec<(usize, Found)> = Vec::new();
            self.compare(folder.path(), plain, trials, &mut found)?;
            for (source, found) in &found {
                if let Found::Verdict(verdict) = found {
                    keep(&keys[source], &verdict.to_string(), &place, &self.at.toolchain);
                }
            }
            all.extend(found);
        }
        Ok(all)
    }

    /// The digest of all that a verdict depends on: the kernel and the plain C that it is held
    /// against.
    fn key(&self, plain: &PlainOperators, source: usize) -> String {
        let step = step(self.plan, plain, source);
        let moves = || host::MOVES.1.to_string();
        let (facts, plain_c) = match &step.work {
            Work::Plain { call, .. } => {
                let text = call.0.as_deref().and_then(plain_c);
                let facts = call.0.as_deref().map(super::facts);
                (facts.unwrap_or_default(), text.map(|t| t.text).unwrap_or_default())
            }
            // The text of a kernel of runs has their number alone.
            Work::Runs { runs, .. } => (format!("{runs:?} {:?}", self.ends(&step.work)), moves()),
            work => (format!("{:?}", self.ends(work)), moves()),
        };
        let independent = self.at.toolchain.independent_flags().join(" ");
        let kernel = &plain.sources[source];
        let gpu = format!("{} {}", self.gpu.name, self.gpu.toolchain());
        let flags: Vec<&str> = kernel.flags.iter().map(String::as_str).collect();
        let launches = format!("{:?}", kernel.launches);
        let texts = [WAY, &gpu, &kernel.source, &launches, &facts, &plain_c, &independent];
        self.at.toolchain.key(&flags, &texts)
    }

    /// The types and the elements of what a step reads and writes.
    fn ends(&self, work: &Work) -> Vec<(DType, usize)> {
        let reads = work.reads().into_iter().map(|s| source_of(self.plan, &s));
        reads.chain(work.writes().iter().map(|p| target_of(self.plan, p))).collect()
    }

    /// The trials of a kernel, and the bytes that they need. An error says why the kernel is not
    /// tried.
    fn trials(&self, plain: &PlainOperators, source: usize) -> Result<(Vec<Trial>, usize), String> {
        let work = &step(self.plan, plain, source).work;
        // Some operators have a kernel and no plain C.
        let has_plain_c = match work {
            Work::Plain { call, .. } => {
                call.0.as_deref().is_some_and(|call| plain_c(call).is_some())
            }
            _ => true,
        };
        let ends = self.ends(work);
        let elements: usize = ends.iter().map(|(_, n)| n).sum();
        let bytes: usize = ends.iter().map(|(d, n)| d.bytes() as usize * n).sum();
        let all = if elements > MANY { &SETS_OF_MANY[..] } else { &SETS };
        if bytes > MOST_BYTES_OF_ONE {
            return Err(format!("its operands and results have {} MiB", bytes >> 20));
        }
        let trials =
            all.iter().filter(|_| has_plain_c).map(|set| Trial { source, set: *set, range: 0 });
        let trials: Vec<Trial> = trials.collect();
        let bytes = bytes * trials.len();
        Ok((trials, bytes))
    }

    /// Compares the kernels of trials that fit one program. Where a program ends without a word of
    /// which trial is why, its halves are compared.
    fn compare(
        &self,
        folder: &Path,
        plain: &PlainOperators,
        mut trials: Vec<Trial>,
        found: &mut Vec<(usize, Found)>,
    ) -> Result<(), Error> {
        let all: Vec<usize> = sources(&trials);
        if self.late.get() >= MOST_LATE {
            let why = || Found::Unchecked("others took too long".into());
            found.extend(all.iter().map(|s| (*s, why())));
            return Ok(());
        }
        let mut taken: Vec<usize> = Vec::new();
        let split = |trials: &[Trial], found: &mut Vec<(usize, Found)>, why: String| {
            let own = sources(trials);
            if own.len() < 2 || is_stopped() || self.late.get() >= MOST_LATE {
                let why = match own.len() {
                    0 | 1 => why,
                    n => format!("{why}, together with {} others", n - 1),
                };
                found.extend(own.iter().map(|s| (*s, Found::Unchecked(why.clone()))));
                return Ok(());
            }
            let (a, b) = own.split_at(own.len() / 2);
            [a, b].into_iter().try_for_each(|half| {
                let half = trials.iter().filter(|t| half.contains(&t.source));
                self.compare(folder, plain, half.copied().collect(), found)
            })
        };
        while !trials.is_empty() {
            let steps = trials.iter().map(|t| (step(self.plan, plain, t.source), t.set, t.range));
            let probe = Probe::new(self.plan, steps);
            let inputs = probe.operands();
            let want = match self.by_plain_c(folder, &probe, &inputs)? {
                Ran::Well(outputs) => outputs,
                Ran::Refused(t) if probe.has_whole(t) && trials[t].range + 1 < RANGES => {
                    trials[t].range += 1;
                    continue;
                }
                Ran::Refused(t) => {
                    trials.remove(t);
                    continue;
                }
                Ran::Failed(why) => return split(&trials, found, format!("plain C: {why}")),
            };
            let got = match self.by_kernels(folder, plain, &probe, &inputs)? {
                Ran::Well(outputs) => outputs,
                Ran::Refused(t) => {
                    let source = trials[t].source;
                    found.push((source, wrong("it refuses its operands".into())));
                    trials.retain(|t| t.source != source);
                    continue;
                }
                Ran::Failed(why) => return split(&trials, found, why),
            };
            taken = sources(&trials);
            for (t, trial) in trials.iter().enumerate() {
                let is_wrong = |s: usize| found.iter().any(|(known, _)| *known == s);
                if !is_wrong(trial.source)
                    && let Some(why) = probe.difference(t, &got, &want)
                {
                    found.push((trial.source, wrong(why)));
                }
            }
            break;
        }
        for source in all {
            if found.iter().all(|(known, _)| *known != source) {
                let is_tried = taken.contains(&source);
                let verdict = if is_tried { Verdict::Right } else { Verdict::Unknown };
                found.push((source, Found::Verdict(verdict)));
            }
        }
        Ok(())
    }

    /// Runs trials by plain C.
    fn by_plain_c(&self, folder: &Path, probe: &Probe, inputs: &[Vec<u8>]) -> Result<Ran, Error> {
        let at = self.at.without_gpus();
        let independent = at.toolchain.independent_flags();
        let plain = PlainOperators::of(&probe.plan, false, &independent, Packing::Ahead)
            .map_err(Error::Nothing)?;
        let arguments = [&usual_arguments(&MOVES, &at)[..], &independent].concat();
        let moves = MovesBuild { arguments, fallback: None };
        let layout = FileLayout::new(&probe.plan, &[], &plain);
        let build = Build { plain: &plain, layout: &layout, moves: &moves, at: &at };
        self.run(&folder.join("plain"), probe, inputs, &build)
    }

    /// Runs them by the kernels on the GPU.
    fn by_kernels(
        &self,
        folder: &Path,
        known: &PlainOperators,
        probe: &Probe,
        inputs: &[Vec<u8>],
    ) -> Result<Ran, Error> {
        let mut plain = device::generated(&probe.plan).map_err(Error::Nothing)?;
        for source in &mut plain.sources {
            match known.sources.iter().find(|k| k.symbol == source.symbol) {
                Some(k) => source.clone_from(k),
                None => device::awaiting(source, self.gpu),
            }
        }
        let layout = FileLayout::parted(&probe.plan, &[], &plain, device::ALIGNMENT);
        let moves = MovesBuild::default();
        let build = Build { plain: &plain, layout: &layout, moves: &moves, at: self.at };
        self.run(&folder.join("kernels"), probe, inputs, &build)
    }

    /// Builds and runs a program of trials.
    fn run(
        &self,
        folder: &Path,
        probe: &Probe,
        inputs: &[Vec<u8>],
        build: &Build<'_>,
    ) -> Result<Ran, Error> {
        let Build { plain, layout, moves, at } = *build;
        let fail = |path: &Path, source| Error::Write { path: path.into(), source };
        std::fs::create_dir_all(folder).map_err(|e| fail(folder, e))?;
        let places = Places { list: &[], is_copied: false };
        let described = files::describe(&probe.plan, &places, layout, &[], plain)?;
        files::write(folder, &probe.plan, &places, &described)?;
        compiled(program::Site { folder, is_kept: false }, &[], plain, moves, at)?;
        for (i, bytes) in inputs.iter().enumerate() {
            let path = folder.join(format!("input_{i}.bin"));
            std::fs::write(&path, bytes).map_err(|e| fail(&path, e))?;
        }
        let program = folder.join(program::NAME);
        let mut command = at.device.command(&program);
        let ordinal = at.gpus.first().map(|g| g.ordinal.to_string());
        // Below 0 it runs without a look at each step's time.
        let once = if ordinal.is_some() { "-1" } else { "0" };
        command.arg(once).args(&ordinal).current_dir(folder);
        launch::on_cores(&mut command, &at.device);
        let ended = launch::ended_within(&mut command, PATIENCE, folder);
        match ended.map_err(|e| fail(&program, e))? {
            Ended::Well => {}
            Ended::Late => {
                // Ctrl-C ends a program, too.
                self.late.set(self.late.get() + usize::from(!is_stopped()));
                return Ok(Ran::Failed(format!("it takes more than {} s", PATIENCE.as_secs())));
            }
            Ended::Complained(said) => {
                let named = said.split_once(TRIAL).map(|(_, rest)| rest);
                let number = named.and_then(|rest| rest.split_once('`')?.0.parse().ok());
                let is_refused = said.contains("did not succeed");
                let number = number.filter(|n| is_refused && *n < probe.trials());
                let first = said.lines().map(str::trim).find(|line| !line.is_empty());
                let why = first.unwrap_or("its program ended without a word").to_string();
                return Ok(number.map_or(Ran::Failed(why), Ran::Refused));
            }
        }
        let read = |i: usize| {
            let path = folder.join(format!("output_{i}.bin"));
            std::fs::read(&path).map_err(|source| Error::Read { path, source })
        };
        let outputs = probe.plan.outputs.len() + probe.plan.bounded.len();
        (0..outputs).map(read).collect::<Result<_, _>>().map(Ran::Well)
    }
}

/// The plain C that a kernel of a call is held against. As in `probe.rs`, the operands whose
/// elements are known are constants of the plan.
fn plain_c(call: &OperatorCall) -> Option<PlainSource> {
    let is_known = |o: &Option<CallOperand>| o.as_ref().is_some_and(|o| constant(o).is_some());
    let fixed: Vec<bool> = call.inputs.iter().map(is_known).collect();
    text(call, &fixed, "probe").ok()
}

fn wrong(why: String) -> Found {
    Found::Verdict(Verdict::Wrong(why))
}

/// The kernels of trials, each once.
fn sources(trials: &[Trial]) -> Vec<usize> {
    let mut all: Vec<usize> = trials.iter().map(|t| t.source).collect();
    all.dedup();
    all
}
