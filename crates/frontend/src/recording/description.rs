//! Reads and writes T1 files, the tuning community's JSON description of a kernel's space:
//! parameters with values, and conditions. Output: a [`Description`], from which a space is made.
//! In a store its canonical text takes the place of a workload's: it identifies the task of the
//! records of a recording.

use super::{fault, json_of, knob, text};
use crate::error::{ImportError, shown};
use serde_json::{Value as Json, json};
use squall_core::Space;
use squall_core::space::{Knob, Names, Term, Value, parse_values};

/// A kernel that was tuned with another tool: its name, its problem, its parameters and their
/// conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The kernel's name; may be empty.
    pub kernel: String,
    /// The problem's sizes as JSON; `null` where they are unknown.
    pub problem: String,
    /// The field that is optimised.
    pub objective: String,
    /// The parameters with all their values.
    pub knobs: Vec<Knob>,
    /// The conditions of legal configurations. Where there are none, the recorded configurations
    /// are the legal ones.
    pub conditions: Vec<String>,
}

impl Description {
    /// Reads a T1 file; `name` is for messages.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Description, ImportError> {
        Description::parse(name, &text(name, bytes)?.text)
    }

    pub(super) fn parse(name: &str, text: &str) -> Result<Description, ImportError> {
        let remedy = "give a space in the T1 form of the tuning community";
        let bad = |what: String| fault(name, what, remedy);
        let file: Json = serde_json::from_str(text)
            .map_err(|e| bad(format!("this is not readable as JSON: {e}")))?;
        let space = &file["ConfigurationSpace"];
        let parameters = space["TuningParameters"]
            .as_array()
            .ok_or_else(|| bad("it has no `TuningParameters`".into()))?;
        let mut knobs = Vec::new();
        for (i, p) in parameters.iter().enumerate() {
            let label =
                p["Name"].as_str().ok_or_else(|| bad(format!("parameter {i} has no `Name`")))?;
            let values: Vec<Json> = match &p["Values"] {
                Json::Array(v) => v.clone(),
                Json::String(t) => {
                    let values = parse_values(t, &[])
                        .map_err(|e| bad(format!("the values of `{}`: {e}", shown(label))))?;
                    values
                        .into_iter()
                        .map(
                            |v| if let Value::Int(i) = v { i.into() } else { v.to_string().into() },
                        )
                        .collect()
                }
                _ => return Err(bad(format!("parameter `{}` has no `Values`", shown(label)))),
            };
            knobs.push(knob(label, &values).0);
        }
        let mut conditions = Vec::new();
        for c in space["Conditions"].as_array().map_or(&[][..], Vec::as_slice) {
            let Some(t) = c["Expression"].as_str() else {
                return Err(bad("a condition has no `Expression`".into()));
            };
            Term::parse(t, Names { knobs: &knobs, constants: &[] })
                .map_err(|e| bad(format!("the condition `{}`: {e}", shown(t))))?;
            conditions.push(t.into());
        }
        let kernel = &file["KernelSpecification"];
        Ok(Description {
            kernel: kernel["KernelName"].as_str().unwrap_or_default().into(),
            problem: kernel["ProblemSize"].to_string(),
            objective: file["General"]["Objective"].as_str().unwrap_or("time").into(),
            knobs,
            conditions,
        })
    }

    /// The space of all configurations that meet the conditions; `name` is for messages.
    pub fn space(&self, name: &str) -> Result<Space, ImportError> {
        let term = |t: &String| Term::parse(t, Names { knobs: &self.knobs, constants: &[] });
        let terms: Result<Vec<Term>, _> = self.conditions.iter().map(term).collect();
        let terms = terms.map_err(|e| fault(name, format!("a condition: {e}"), "mend the file"))?;
        Space::new(self.knobs.clone(), &terms)
            .map_err(|e| fault(name, e.to_string(), "check its values and conditions"))
    }

    /// The description as a T1 text in one canonical form: equal descriptions have equal texts.
    pub fn text(&self) -> String {
        let parameter = |k: &Knob| {
            let values: Vec<Json> = k.values.iter().map(json_of).collect();
            json!({"Name": k.name, "Values": values})
        };
        let parameters: Vec<Json> = self.knobs.iter().map(parameter).collect();
        let condition = |c: &String| json!({"Expression": c});
        let conditions: Vec<Json> = self.conditions.iter().map(condition).collect();
        let problem: Json = serde_json::from_str(&self.problem).unwrap_or(Json::Null);
        json!({
            "General": {"Objective": self.objective},
            "ConfigurationSpace": {
                "TuningParameters": parameters,
                "Conditions": conditions,
            },
            "KernelSpecification": {"KernelName": self.kernel, "ProblemSize": problem},
        })
        .to_string()
    }
}

/// Reads a T1 description as a space; `name` is for messages.
pub fn read_space(name: &str, bytes: &[u8]) -> Result<Space, ImportError> {
    Description::read(name, bytes)?.space(name)
}
