//! T1 files: a space described by its parameters and conditions.

use super::{fault, knob, text};
use crate::error::{ImportError, shown};
use serde_json::Value as Json;
use squall_core::Space;
use squall_core::space::{Names, Term, Value, parse_values};

/// Reads a T1 description; `name` is for messages.
pub fn read_space(name: &str, bytes: &[u8]) -> Result<Space, ImportError> {
    let remedy = "give a space in the T1 form of the tuning community";
    let bad = |what: String| fault(name, what, remedy);
    let file: Json = serde_json::from_str(&text(name, bytes)?).map_err(|e| bad(format!("this is not readable as JSON: {e}")))?;
    let space = &file["ConfigurationSpace"];
    let parameters = space["TuningParameters"].as_array().ok_or_else(|| bad("it has no `TuningParameters`".into()))?;
    let mut knobs = Vec::new();
    for (i, p) in parameters.iter().enumerate() {
        let label = p["Name"].as_str().ok_or_else(|| bad(format!("parameter {i} has no `Name`")))?;
        let values: Vec<Json> = match &p["Values"] {
            Json::Array(v) => v.clone(),
            Json::String(t) => {
                let values = parse_values(t, &[]).map_err(|e| bad(format!("the values of `{}`: {e}", shown(label))))?;
                values.into_iter().map(|v| if let Value::Int(i) = v { i.into() } else { v.to_string().into() }).collect()
            }
            _ => return Err(bad(format!("parameter `{}` has no `Values`", shown(label)))),
        };
        knobs.push(knob(label, &values).0);
    }
    let mut constraints = Vec::new();
    for c in space["Conditions"].as_array().map_or(&[][..], Vec::as_slice) {
        let Some(t) = c["Expression"].as_str() else { return Err(bad("a condition has no `Expression`".into())) };
        let term = Term::parse(t, Names { knobs: &knobs, constants: &[] });
        constraints.push(term.map_err(|e| bad(format!("the condition `{}`: {e}", shown(t))))?);
    }
    Space::new(knobs, &constraints).map_err(|e| fault(name, e.to_string(), "check its values and conditions"))
}
