//! Prints the intermediate stages of a model as text (`squall explain --stage
//! model|candidates|assignment|plan`), and reads an assignment that a user wrote (`--assignment
//! FILE`: which operators become which kernel). The stages themselves are the crate `graph`'s.

use crate::base::error::Error;
use crate::input::user_input::Input;
use crate::input::weights::weights;
use squall_core::tasks::Untuned;
use squall_graph::Assignment;
use squall_graph::bytes::stayed;
use std::path::Path;

/// The stages that [`Input::graph_stage`] prints.
pub const GRAPH_STAGES: &[&str] = &["model", "candidates", "assignment", "plan"];

impl Input {
    /// The operators of a quantised model that compute in floats nevertheless, with the reason.
    pub fn floats_beside_bytes(&self) -> Vec<Untuned> {
        self.graph().map(|g| stayed(g.model())).unwrap_or_default()
    }

    /// A stage of a model as text.
    pub fn graph_stage(&self, stage: &str) -> Result<String, Error> {
        let Some(model) = self.model() else {
            return Err(Error::Input {
                place: self.name().into(),
                message: format!("it is no model: it has no stage `{stage}`"),
                hint: format!("of a model.onnx there are {}", GRAPH_STAGES.join(", ")),
            });
        };
        let graph = &model.graph;
        Ok(match stage {
            "model" => {
                let why = |u: Untuned| format!("# floats: {:?} {}: {}\n", u.node, u.op, u.reason);
                let floats: String = self.floats_beside_bytes().into_iter().map(why).collect();
                graph.model().to_string() + &floats
            }
            "candidates" => graph.candidates().to_string(),
            "assignment" => graph.to_string(),
            _ => {
                let plan = graph.plan(weights(model)?).map_err(|message| Error::Input {
                    place: model.name.clone(),
                    message,
                    hint: "such models can be tuned, but not run".into(),
                })?;
                plan.to_string()
            }
        })
    }

    /// The same model, covered as a file says: the text of an assignment.
    pub fn with_assignment_file(self, path: &Path) -> Result<Input, Error> {
        let text = crate::base::files::read_text(path)?;
        self.with_assignment(&text, &path.display().to_string())
    }

    /// The same model, covered as the text of an assignment says; `place` says in errors where that
    /// stands.
    pub fn with_assignment(self, text: &str, place: &str) -> Result<Input, Error> {
        let fault = |message: String, hint: &str| Error::Input {
            place: place.into(),
            message,
            hint: hint.into(),
        };
        let Input::Model(model) = self else {
            return Err(fault("there is no model to cover".into(), "give a model.onnx"));
        };
        let made = Assignment::parse(text, model.graph.candidates());
        let hint = "`squall explain MODEL --stage assignment` prints one, `--stage candidates` \
                    what it may be made of";
        let made = made.map_err(|e| fault(e.to_string(), hint))?;
        Ok(model.with_graph(made).into())
    }
}
