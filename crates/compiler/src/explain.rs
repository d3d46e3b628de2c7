//! The stages between a workload and its kernel as text, for the command `squall explain`.
//!
//! Input: a workload, a target, the name of a stage (`expression`, `sketches`, `space`, `schedule`,
//! `nest`, `source`) and, if wanted, a candidate (a sketch's name and a configuration). Output: the
//! text of that stage, for example all knobs of a space, or the printed loop nest. Sketches for
//! GPUs have no stage `schedule`, because they write their nests directly.

use crate::sketch::Derived;
use crate::{schedule, sketch};
use squall_core::{Configuration, Target, UNTUNED, Workload, canonical_tunable_name, is_untuned};
use std::fmt::Write;

/// Stages that [`explain`] knows.
pub const STAGES: &[&str] = &["expression", "sketches", "space", "schedule", "nest", "source"];

/// The text of one stage. `candidate` is a tunable's name and a configuration's text; without it
/// the first configuration of the first sketch is shown. Errors list the known names.
pub fn explain(
    w: &Workload,
    t: &Target,
    stage: &str,
    candidate: Option<(&str, &str)>,
) -> Result<String, String> {
    if !STAGES.contains(&stage) {
        return Err(format!("unknown stage `{stage}`; stages are {}", STAGES.join(", ")));
    }
    if stage == "expression" {
        return Ok(w.to_string());
    }
    if let squall_core::TargetKind::Cuda(gpu) = t.kind {
        return explain_gpu(w, t, gpu, stage, candidate);
    }
    let mut all = sketch::derive(w, t);
    if candidate.is_some_and(|c| is_untuned(c.0)) {
        all = vec![sketch::plain_sketch(w, t)];
    }
    let mut out = String::new();
    if stage == "sketches" {
        for s in &all {
            let _ = writeln!(
                out,
                "sketch {}: {} knobs, {} legal configurations of {:e}",
                s.name,
                s.space.knobs().len(),
                s.space.len(),
                s.space.raw_size()
            );
            for p in &s.prefix {
                let _ = writeln!(out, "  {p}");
            }
        }
        return Ok(out);
    }
    let chosen = match candidate {
        None => &all[0],
        Some((name, _)) => all.iter().find(|s| s.name == name).ok_or_else(|| {
            format!(
                "there is no sketch `{name}`; there are {}",
                all.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ")
            )
        })?,
    };
    let c: Configuration = match candidate {
        Some((_, text)) if !text.is_empty() => {
            chosen.space.parse(text).map_err(|e| e.to_string())?
        }
        _ => chosen.space.nth(0),
    };
    match stage {
        "space" => {
            for s in &all {
                let _ = writeln!(
                    out,
                    "sketch {}: {} legal of {:e}, {} states",
                    s.name,
                    s.space.len(),
                    s.space.raw_size(),
                    s.space.nodes()
                );
                for k in s.space.knobs() {
                    let values: Vec<String> = k.values.iter().map(|v| v.to_string()).collect();
                    let _ = writeln!(out, "  {:<10} {}", k.name, values.join(" "));
                }
            }
        }
        "schedule" => {
            let _ = writeln!(out, "# {}: {c}", chosen.name);
            out += &schedule::print(&chosen.schedule(&c));
        }
        "nest" => out += &chosen.nest(&c).map_err(|e| e.to_string())?.to_string(),
        _ => out += &chosen.realize(&c, "kernel").map_err(|e| e.to_string())?.source,
    }
    Ok(out)
}

/// The text of a stage of a GPU program, which has no schedule.
fn explain_gpu(
    w: &Workload,
    t: &Target,
    gpu: squall_core::Gpu,
    stage: &str,
    candidate: Option<(&str, &str)>,
) -> Result<String, String> {
    let facts = sketch::Facts::new(w, t);
    let all = match candidate {
        Some((UNTUNED, _)) => vec![sketch::gpu::plain(&facts, gpu)],
        _ => sketch::gpu::derive(&facts, gpu),
    };
    let names = || all.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    let chosen = match candidate {
        None => all.first(),
        Some((name, _)) => all.iter().find(|s| s.name == canonical_tunable_name(name)),
    };
    let chosen = chosen.ok_or_else(|| format!("there is no such sketch; there are {}", names()))?;
    let c = match candidate {
        Some((_, text)) if !text.is_empty() => {
            chosen.space.parse(text).map_err(|e| e.to_string())?
        }
        _ => chosen.space.nth(0),
    };
    let mut out = String::new();
    match stage {
        "sketches" | "space" => {
            for s in &all {
                let _ = writeln!(
                    out,
                    "sketch {}: {} legal of {:e}, {} states",
                    s.name,
                    s.space.len(),
                    s.space.raw_size(),
                    s.space.nodes()
                );
                for k in s.space.knobs() {
                    let values: Vec<String> = k.values.iter().map(|v| v.to_string()).collect();
                    let _ = writeln!(out, "  {:<10} {}", k.name, values.join(" "));
                }
            }
        }
        "schedule" => return Err("a GPU sketch has no schedule: it writes the whole nest".into()),
        "nest" => out += &chosen.nest(&c).map_err(|e| e.to_string())?.to_string(),
        _ => out += &chosen.realize(&c, "kernel").map_err(|e| e.to_string())?.source,
    }
    Ok(out)
}
