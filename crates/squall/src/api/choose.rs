//! The verb behind `squall choose`: says which of MIOpen's solvers (its ways to compute a
//! convolution) serve a problem on an AMD GPU, in order, with expected times, and how many of them
//! are worth timing. Input: a trained chooser (`crate::find`) and problems; output: a list of
//! solvers for each problem, which can be written into MIOpen's user find database.

use super::predict::Problems;
use crate::base::error::Error;
use crate::base::files::put;
use crate::predict::find::modes::{ModeCosts, simulate};
use crate::predict::find::modes_page::page;
use crate::predict::find::{Timings, load, timings, write};
use crate::predict::forecast;
use crate::predict::forecast::{Question, questions};
use serde_json::{Value, json};
use squall_core::find::FindSolver;
use squall_core::forecast::serialised;
use squall_frontend::miopen::find::UserLine;
use squall_frontend::miopen::{Convolution, Device};
use squall_predict::find::{Asked, Choice, Chooser, FindAnswer, is_known_gpu};
use squall_predict::{Method, Predictor, Scratch};
use std::path::PathBuf;

/// Problems and the chooser to ask.
#[derive(Clone, Debug, PartialEq)]
pub struct ChooseRequest {
    /// A file that `squall train --find` wrote.
    pub chooser: PathBuf,
    /// The problems: keys of MIOpen's databases, or lines of MIOpenDriver.
    pub problems: Problems,
    /// The GPU: `gfx942_304`.
    pub device: String,
    /// The bytes of workspace that are available; unlimited if none.
    pub workspace: Option<u64>,
    /// Solvers that may not be taken.
    pub without: Vec<String>,
    /// How many of the first solvers are to be timed; if none, as many as are worth it.
    pub measure: Option<usize>,
    /// How often each problem will be run.
    pub uses: f64,
    /// A predictor of tuned parameters.
    pub predictor: Option<PathBuf>,
    /// A user find database that takes the answers.
    pub user_database: Option<PathBuf>,
    /// Whether measured times of a problem itself may answer.
    pub recall: bool,
}

/// A solver of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Its name and algorithm.
    pub solver: FindSolver,
    /// Time, range, workspace, probability.
    pub choice: Choice,
    /// The tuned parameters that the predictor foretells.
    pub parameters: Option<String>,
}

/// The solvers chosen for a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The problem.
    pub convolution: Convolution,
    /// The GPU.
    pub device: String,
    /// Where the answer is from and why.
    pub answer: FindAnswer,
    /// Best first.
    pub solutions: Vec<Solution>,
    /// How many solvers to time first.
    pub timings: Timings,
}

impl Chosen {
    /// The answer as JSON, with so many of its solutions; scripts depend on its keys.
    pub fn json(&self, top: usize) -> Value {
        let solution = |s: &Solution| {
            json!({
                "solver": s.solver.name,
                "algorithm": format!("miopenConvolution{}", s.solver.algorithm),
                "time_ms": s.choice.ms,
                "low_ms": s.choice.range.0,
                "high_ms": s.choice.range.1,
                "workspace": s.choice.workspace,
                "probability": s.choice.probability,
                "parameters": s.parameters,
            })
        };
        json!({
            "problem": self.convolution.key(),
            "device": self.device,
            "source": self.answer.source,
            "measure": self.timings.measure,
            "measure_ms": self.timings.ms,
            "solutions": self.solutions.iter().take(top).map(solution).collect::<Vec<_>>(),
            "reason": self.answer.reason,
        })
    }
}

/// Notes about choosing, beside the answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChoiceNotes {
    /// Problems that were answered.
    pub problems: usize,
    /// Lines that the user find database took, and those whose problems it had.
    pub written: Option<(usize, usize)>,
    /// Warnings for the user.
    pub notes: Vec<String>,
}

/// Reads problems one a line.
fn asked(problems: &Problems) -> Result<Vec<Question>, Error> {
    let (name, text) = match problems {
        Problems::Line(line) => ("line".to_string(), line.clone()),
        Problems::Text(name, text) => (name.clone(), text.clone()),
        Problems::File(path) => (path.display().to_string(), crate::base::files::read_text(path)?),
    };
    questions(&name, &text)
}

/// A GPU's name as find databases have it.
fn device(name: &str) -> Result<Device, Error> {
    Device::parse(name).map_err(|message| Error::Usage {
        message,
        hint: "name the GPU like gfx942_304: its architecture and its number of compute units"
            .into(),
    })
}

/// Answers for each problem; `take` gets them in their order.
pub fn choose(
    request: &ChooseRequest,
    take: &mut dyn FnMut(&Chosen) -> Result<(), Error>,
) -> Result<ChoiceNotes, Error> {
    let gpu = device(&request.device)?;
    let questions = asked(&request.problems)?;
    let chooser = load(&request.chooser)?;
    let predictor = request.predictor.as_deref().map(forecast::load).transpose()?;
    let mut out = ChoiceNotes::default();
    check(&chooser, request, &gpu, &mut out.notes)?;
    let mut lines = Vec::new();
    let mut scratch = Scratch::default();
    let (mut empty, mut odd) = (0, 0);
    for q in questions {
        let problem = q.convolution.find_problem().map_err(|message| Error::Input {
            place: format!("line {}", q.line),
            message,
            hint: "find databases hold FP32, FP16, BF16 and INT8".into(),
        })?;
        odd += usize::from(!problem.is_consistent());
        let answer = chooser.choose(&Asked {
            problem: &problem,
            device: &gpu.name,
            workspace: request.workspace,
            without: &request.without,
            recall: request.recall,
        });
        empty += usize::from(answer.choices.is_empty());
        let timings = timings(&answer.choices, request.measure, request.uses);
        let solution = |c: &Choice| {
            let solver = chooser.solver(c.solver).clone();
            let parameters = predictor
                .as_ref()
                .and_then(|p| parameters(p, &q.convolution, &solver.name, &gpu, &mut scratch));
            Solution { solver, choice: c.clone(), parameters }
        };
        let mut solution = solution;
        let solutions: Vec<Solution> = answer.choices.iter().map(&mut solution).collect();
        if request.user_database.is_some() {
            lines.push(line(&q.convolution, &solutions));
        }
        let device = gpu.name.clone();
        take(&Chosen { convolution: q.convolution, device, answer, solutions, timings })?;
        out.problems += 1;
    }
    if empty > 0 {
        out.notes.push(format!("for {empty} problems no solver is known that fits"));
    }
    if odd > 0 {
        out.notes.push(format!(
            "{odd} problems have another size of the result than follows from the rest of the key"
        ));
    }
    if let Some(path) = &request.user_database {
        let asked = lines.len();
        let added = write(path, &lines)?;
        out.written = Some((added, asked - added));
    }
    Ok(out)
}

/// Says what is not known, and refuses what cannot be meant.
fn check(
    chooser: &Chooser,
    request: &ChooseRequest,
    gpu: &Device,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let named = |s: &String| chooser.memory.solvers.iter().any(|x| x.name == *s);
    if let Some(odd) = request.without.iter().find(|s| !named(s)) {
        let start: String = odd.chars().take(8).collect();
        let like: Vec<&str> = chooser
            .memory
            .solvers
            .iter()
            .map(|s| s.name.as_str())
            .filter(|n| n.starts_with(&start))
            .take(6)
            .collect();
        return Err(Error::Usage {
            message: format!("the chooser knows no solver `{odd}`"),
            hint: match like.as_slice() {
                [] => "names are as in MIOpen's find databases, for instance ConvAsm1x1U".into(),
                some => format!("there are {}", some.join(", ")),
            },
        });
    }
    if !is_known_gpu(&gpu.name) {
        notes.push(format!(
            "{} is no GPU whose facts are known: those of the nearest name stand for it",
            gpu.name
        ));
    }
    if chooser.memory.gpu(&gpu.name).is_none() {
        let known: Vec<&str> = chooser.info.learned.iter().map(|(name, _)| name.as_str()).collect();
        notes.push(format!(
            "nothing was measured on {}: answers are brought over from {}",
            gpu.name,
            known.join(", ")
        ));
    }
    Ok(())
}

/// The tuned parameters that a predictor foretells for a solver, where it knows that.
fn parameters(
    predictor: &Predictor,
    convolution: &Convolution,
    solver: &str,
    gpu: &Device,
    scratch: &mut Scratch,
) -> Option<String> {
    let model = predictor.model(solver).ok()?;
    let found = model.predict(&convolution.problem(solver, gpu), 1, Method::Pair, scratch);
    found.ok()?.first().map(|(values, _)| serialised(values))
}

/// The line of a user find database: MIOpen takes the fastest of a line, so times rise with the
/// order.
fn line(convolution: &Convolution, solutions: &[Solution]) -> UserLine {
    let mut least = 0.0f64;
    // Solvers that no neighbour lists may not apply.
    let likely = solutions.iter().filter(|s| s.choice.probability > 0.0);
    let solvers = likely.take(squall_frontend::miopen::find::CUT).map(|s| {
        least = s.choice.ms.max(least * 1.0001);
        (s.solver.clone(), least, s.choice.workspace)
    });
    UserLine { key: convolution.find_key(), solvers: solvers.collect() }
}

/// Find modes to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct ModesRequest {
    /// A file that `squall train --find` wrote.
    pub chooser: PathBuf,
    /// The workload.
    pub problems: Problems,
    /// The GPU.
    pub device: String,
    /// The store whose measured times are the truth.
    pub store: PathBuf,
    /// A page with the table and the plot.
    pub page: Option<PathBuf>,
}

/// The costs of finding and running under MIOpen's find modes and under Squall's.
pub fn find_modes(request: &ModesRequest) -> Result<ModeCosts, Error> {
    let gpu = device(&request.device)?;
    let questions = asked(&request.problems)?;
    let chooser = load(&request.chooser)?;
    let costs = simulate(&chooser, &request.store, &questions, &gpu.name)?;
    if let Some(path) = &request.page {
        put(path, page(&costs, &gpu.name).as_bytes())?;
    }
    Ok(costs)
}
