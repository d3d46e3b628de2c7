//! Reads T4 results, the tuning community's JSON form: a list of configurations, each with its
//! measurements or the word of its failure. Output: a [`Recording`] whose parameters are those of
//! the first result, with all values that occur.

use super::{Recording, Row, failed, fault, is_maximised, knob, listed, outcome_of, spelling};
use crate::error::{ImportError, shown};
use serde_json::Value as Json;
use squall_core::{CpuCost, FailStage, Outcome};

/// Reads the results. The space's parameters are those of the first result, with all values seen.
pub(super) fn read(name: &str, text: &str) -> Result<Recording, ImportError> {
    let bad =
        |what: String| fault(name, what, "give results in the T4 form of the tuning community");
    let file: Json = serde_json::from_str(text)
        .map_err(|e| bad(format!("this is not readable as JSON: {e}")))?;
    let results = file["results"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(first) = results.first() else { return Err(bad("`results` is empty".into())) };
    let Some(parameters) = first["configuration"].as_object() else {
        return Err(bad("the first result has no `configuration`".into()));
    };
    let names: Vec<&String> = parameters.keys().collect();
    let objective = first["objectives"].get(0).and_then(Json::as_str).unwrap_or("time").to_string();
    let maximised = is_maximised(&objective);
    // The hub's own spelling lacks an l.
    let unit = file["metadata"]["timeunit"].as_str().unwrap_or("seconds");
    // So many milliseconds, and seconds, are one of its units.
    let (milliseconds, seconds) = if unit.starts_with("mili") || unit.starts_with("milli") {
        (1.0, 1e-3)
    } else {
        (1e3, 1.0)
    };

    let (mut knobs, mut positions) = (Vec::new(), Vec::new());
    for n in &names {
        let values: Vec<Json> = results
            .iter()
            .map(|r| r["configuration"][n.as_str()].clone())
            .filter(|v| !v.is_null())
            .collect();
        let (k, at) = knob(n, &values);
        knobs.push(k);
        positions.push(at);
    }
    let mut rows = Vec::new();
    for (i, r) in results.iter().enumerate() {
        let mut point = Vec::new();
        let mut key = Vec::new();
        for (n, at) in names.iter().zip(&positions) {
            let text = spelling(&r["configuration"][n.as_str()]);
            match at.get(&text) {
                Some(&p) => point.push(p),
                None => return Err(bad(format!("result {i} lacks the parameter `{}`", shown(n)))),
            }
            key.push(text);
        }
        let spent = |what: &str| {
            r["times"][what].as_f64().filter(|t| t.is_finite() && *t > 0.0).unwrap_or(0.0) * seconds
        };
        let runs: f64 = r["times"]["runtimes"]
            .as_array()
            .map_or(0.0, |v| v.iter().filter_map(Json::as_f64).sum());
        let cost = CpuCost {
            build: spent("compilation"),
            measure: spent("validation") + runs * seconds,
            search: 0.0,
        };
        let measured = r["measurements"]
            .as_array()
            .and_then(|m| m.iter().find(|m| m["name"] == objective.as_str()));
        let outcome = outcome(r, measured.map(|m| &m["value"]), maximised, milliseconds);
        rows.push((point.into(), Row { key: key.join(","), outcome, cost }));
    }
    let (space, rows) = listed(name, knobs, rows)?;
    let text = |v: &Json| v.as_str().unwrap_or_default().to_string();
    Ok(Recording {
        kernel: text(&file["metadata"]["kernel"]),
        device: text(&file["metadata"]["device"]),
        problem: "null".into(),
        objective,
        maximised,
        conditions: Vec::new(),
        space,
        rows,
        note: None,
    })
}

/// The failure that one of T4's words stands for; nothing where it stands for none.
pub(super) fn failure(invalidity: &str, detail: &str) -> Option<Outcome> {
    let detail = if detail.is_empty() { invalidity } else { detail };
    Some(match invalidity {
        "compile" => failed(FailStage::Build, detail),
        "runtime" => failed(FailStage::Launch, detail),
        "timeout" => failed(FailStage::Timeout, detail),
        "correctness" => failed(FailStage::WrongAnswer, detail),
        "constraints" => Outcome::Infeasible(super::cleaned(detail)),
        _ => return None,
    })
}

fn outcome(result: &Json, value: Option<&Json>, maximised: bool, milliseconds: f64) -> Outcome {
    let word = value.and_then(Json::as_str);
    match failure(result["invalidity"].as_str().unwrap_or(""), word.unwrap_or("")) {
        Some(failed) => failed,
        None => match word {
            Some(w) => super::failure(w),
            None => outcome_of(
                value.and_then(Json::as_f64).map(|v| if maximised { v } else { v * milliseconds }),
                maximised,
            ),
        },
    }
}
