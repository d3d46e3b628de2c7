//! The verb behind `squall predict`: proposes tuned parameters for problems that were never tuned.
//! With a predictor of MIOpen's solvers the problems are convolutions and the answers are the
//! solvers' values; with a predictor of Squall's own tasks they are models or operator lines and
//! the answers are candidates. The models are `crate::forecast`'s.

use crate::base::error::Error;
use crate::input::layout::Channels;
use crate::input::precision::Precision;
use crate::input::user_input::Input;
use crate::predict::forecast::{Answer, Row, answer, load, proposals_for, questions, write};
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use serde_json::{Value, json};
use squall_core::TaskId;
use squall_predict::task::{Proposal, TaskModel};
use squall_predict::{PredictError, Predictor};
use std::path::PathBuf;

/// The source of the problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problems {
    /// One line: a MIOpenDriver line, a database key, or an operator line.
    Line(String),
    /// A file of lines, or a model.
    File(PathBuf),
    /// The text of lines, and a name for messages.
    Text(String, String),
}

/// Problems and the predictor to ask.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictRequest {
    /// A file that training wrote. What it was trained on decides which of the two answers comes.
    pub predictor: PathBuf,
    /// The problems.
    pub problems: Problems,
    /// Of a predictor of solvers: only this solver.
    pub solver: Option<String>,
    /// Of a predictor of solvers: the device, as gfx906 or gfx906_60.
    pub device: Option<String>,
    /// Of a predictor of solvers: a user database of MIOpen's that takes the best of each.
    pub user_database: Option<PathBuf>,
    /// Of a predictor of tasks: what kernels are for.
    pub target: TargetRequest,
    /// Threads that a kernel may use on a CPU.
    pub threads: usize,
    /// How many predictions of each.
    pub top: usize,
}

/// The predictions.
pub enum Predictions {
    /// Values of solvers, and how many rows went into the user database.
    Solvers(Vec<Answer>, Option<usize>),
    /// Candidates of tasks.
    Tasks(Vec<TaskPredictions>),
}

/// The candidates that a predictor proposes for a task.
pub struct TaskPredictions {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Candidates, best first.
    pub proposals: Vec<Proposal>,
    /// Why there is none, where there is none.
    pub why: Option<String>,
}

impl Predictions {
    /// One object for each problem and solver, or for each task, best predictions first.
    pub fn json(&self) -> Vec<Value> {
        match self {
            Predictions::Solvers(answers, _) => answers.iter().map(solver_json).collect(),
            Predictions::Tasks(tasks) => tasks.iter().map(task_json).collect(),
        }
    }
}

fn solver_json(x: &Answer) -> Value {
    let values: Vec<&String> = x.predictions.iter().map(|(v, _)| v).collect();
    let probabilities: Vec<f64> = x.predictions.iter().map(|(_, p)| *p).collect();
    let mut line = json!({
        "problem": x.convolution.key(),
        "solver": x.solver,
        "predictions": values,
        "probabilities": probabilities,
    });
    if let Some(why) = &x.why {
        line["why"] = json!(why);
    }
    line
}

fn task_json(x: &TaskPredictions) -> Value {
    let proposal = |p: &Proposal| {
        let c = &p.candidate;
        let (sketch, configuration) = (c.tunable.to_string(), c.configuration.to_string());
        json!({"tunable": sketch, "configuration": configuration, "speed": p.speed})
    };
    let all: Vec<Value> = x.proposals.iter().map(proposal).collect();
    let mut line = json!({"problem": x.name, "task": x.task.to_string(), "predictions": all});
    if let Some(why) = &x.why {
        line["why"] = json!(why);
    }
    line
}

/// Predicts with whatever kind of predictor the file holds.
pub fn predict(context: &Context, request: &PredictRequest) -> Result<Predictions, Error> {
    let predictor = load(&request.predictor)?;
    match predictor.tasks() {
        Ok(model) => tasks(context, request, model),
        Err(_) => solvers(request, &predictor),
    }
}

/// Answers with the values of solvers.
fn solvers(request: &PredictRequest, predictor: &Predictor) -> Result<Predictions, Error> {
    let (name, text) = match &request.problems {
        Problems::Line(line) => ("line".to_string(), line.clone()),
        Problems::Text(name, text) => (name.clone(), text.clone()),
        Problems::File(path) => {
            let text = crate::base::files::read_text(path)?;
            (path.display().to_string(), text)
        }
    };
    let asked = questions(&name, &text)?;
    let Some(device) = &request.device else {
        return Err(Error::Usage {
            message: "a predictor of solvers needs --device".into(),
            hint: "say which GPU: --device gfx906, or gfx906_60".into(),
        });
    };
    let answers = answer(predictor, &asked, request.solver.as_deref(), device, request.top)?;
    let mut written = None;
    if let Some(path) = &request.user_database {
        let best = |x: &Answer| {
            let (values, _) = x.predictions.first()?;
            Some(Row {
                convolution: x.convolution.clone(),
                solver: x.solver.clone(),
                values: values.clone(),
            })
        };
        let rows: Vec<Row> = answers.iter().filter_map(best).collect();
        write(path, &rows)?;
        written = Some(rows.len());
    }
    Ok(Predictions::Solvers(answers, written))
}

/// Answers with candidates for tasks that are tuned here.
fn tasks(
    context: &Context,
    request: &PredictRequest,
    model: &TaskModel,
) -> Result<Predictions, Error> {
    if request.device.is_some() || request.user_database.is_some() || request.solver.is_some() {
        return Err(Error::Usage {
            message: "this predictor was trained on records: it answers for this device, with \
                      sketches of Squall's"
                .into(),
            hint: "leave out --device, --solver and --write-user-db".into(),
        });
    }
    let input = match &request.problems {
        Problems::Line(line) => Input::load(line, &[])?,
        Problems::Text(name, text) => Input::lines(text, name)?,
        Problems::File(path) => Input::load(&path.to_string_lossy(), &[])?,
    };
    // The tasks that tuning would have.
    let input =
        input.with_channels(Channels::usual(request.target, Precision::F32), request.target);
    let at = context.target(request.target, request.threads)?;
    let mut all = Vec::new();
    for task in input.select(None)? {
        let found = proposals_for(model, task, &at.target, &at.device_name(), request.top);
        let (proposals, why) = match found {
            Ok(found) => (found, None),
            Err(e @ PredictError::Kind { .. }) => (Vec::new(), Some(e.to_string())),
            Err(e) => return Err(e.into()),
        };
        all.push(TaskPredictions { task: task.id, name: task.name.clone(), proposals, why });
    }
    Ok(Predictions::Tasks(all))
}
