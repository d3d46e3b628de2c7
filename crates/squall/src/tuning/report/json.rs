//! The report of a tuning session as JSON: the last line of `squall tune --json`, and the parts of
//! it that `squall bench --json` has, too. Scripts depend on its keys, which are therefore never
//! renamed. `mod.rs` has the facts that it prints.

use super::{Inference, PlainRow, PlainSteps, PlainTime, Report, Roof, TaskReport};
use crate::inference::peers::Peer;
use serde_json::{Value, json};
use squall_core::CpuCost;

/// The report as one value; printed without line breaks it is the last line of `tune --json`.
pub fn report(r: &Report) -> Value {
    let (best, untuned) = r.totals();
    let (trials, failed) = r.trials();
    json!({
        "input": r.input,
        "device": r.device,
        "toolchain": r.toolchain,
        "threads": r.threads,
        "roof": r.roof.as_ref().map(roof),
        "strategy": r.strategy,
        "seed": r.seed,
        "started": r.started,
        "seconds": r.seconds,
        "stop": r.stop.name(),
        "store": r.store.to_string_lossy(),
        "inference": r.inference.as_ref().map(|i| inference(i, r.roof.as_ref())),
        "total": {
            "best_ns": best.0,
            "untuned_ns": untuned.0,
            "gain": r.gain(),
            "roof_share": r.pass().and_then(|p| p.1),
            "trials": trials,
            "failed": failed,
            "untried": r.untried(),
            "cpu_seconds": cost(r.cost()),
        },
        "tasks": r.tasks.iter().map(|t| task(t, r.roof.as_ref())).collect::<Vec<_>>(),
        "untuned": r.untuned.iter().map(|u| json!({
            "node": u.node,
            "op": u.op,
            "reason": u.reason,
        })).collect::<Vec<_>>(),
    })
}

fn inference(i: &Result<Inference, String>, roof: Option<&Roof>) -> Value {
    match i {
        Ok(i) => json!({
            "best_ns": i.best.0,
            "median_ns": i.median.0,
            "inferences": i.inferences,
            "kernels": i.kernels.kernels,
            "tuned": i.kernels.tuned,
            "guessed": i.kernels.guessed,
            "plain": i.kernels.plain,
            "plain_steps": plain_steps(&i.plain, roof),
            "beside": beside(i),
        }),
        Err(why) => json!({"failed": why}),
    }
}

/// Other libraries' times next to ours.
pub fn beside(i: &Inference) -> Vec<Value> {
    let peer = |p: &Peer| match &p.times {
        Ok(t) => json!({
            "library": p.library.name(),
            "version": t.version,
            "best_ns": t.best_ns,
            "median_ns": t.median_ns,
            "inferences": t.inferences,
            "ratio": i.ratio(p),
            "error": t.error,
        }),
        Err(why) => json!({"library": p.library.name(), "failed": why}),
    };
    i.beside.iter().map(peer).collect()
}

/// The nodes that run as plain C, with bounds where the roof is known.
pub fn plain_steps(steps: &PlainSteps, roof: Option<&Roof>) -> Value {
    let row = |row: &PlainRow| {
        let mut all = plain_time(&row.time, roof);
        all["by"] = row.by.into();
        all["op"] = row.op.as_str().into();
        all["node"] = row.node.as_str().into();
        all
    };
    json!({
        "whole": plain_time(&steps.whole(), roof),
        "rows": steps.rows.iter().map(row).collect::<Vec<_>>(),
        "rest": steps.rest.as_ref().map(|time| plain_time(time, roof)),
    })
}

fn plain_time(time: &PlainTime, roof: Option<&Roof>) -> Value {
    let totals = time.totals();
    json!({
        "nodes": time.nodes,
        "best_ns": time.best_ns,
        "share": time.share,
        "operations": totals.map(|t| t.0),
        "bytes": totals.map(|t| t.1),
        "bound_ns": roof.and_then(|r| time.bound(r)).map(|b| b.0),
        "times_bound": roof.and_then(|r| time.times_bound(r)),
    })
}

/// The machine's limits.
pub fn roof(r: &Roof) -> Value {
    json!({
        "peak_gflops": r.peak_gflops,
        "memory_gbs": r.memory_gbs,
        "levels": r.levels.iter().map(|l| json!({
            "name": l.name,
            "bytes": l.bytes,
            "gbs": l.gbs,
        })).collect::<Vec<_>>(),
    })
}

fn cost(c: CpuCost) -> Value {
    json!({"build": c.build, "measure": c.measure, "search": c.search})
}

fn task(t: &TaskReport, roof: Option<&Roof>) -> Value {
    json!({
        "id": t.id.to_string(),
        "name": t.name,
        "kind": t.kind,
        "count": t.count,
        "nodes": t.nodes,
        "flop": t.flop,
        "operations": t.operations,
        "bytes": t.bytes,
        "best_ns": t.best.map(|b| b.0),
        "baseline": t.baseline,
        "untuned_ns": t.untuned.map(|u| u.0),
        "gain": t.gain(),
        "gflops": t.gflops(),
        "roof_share": roof.and_then(|r| t.share(r)),
        "limited_by": roof.map(|r| t.limit(r)),
        "throttled": t.throttled.0,
        "throttled_by": t.throttled.1,
        "trials": t.trials,
        "failed": t.failed,
        "right": t.right,
        "known": t.known,
        "predicted": t.predicted,
        "best": t.winner.as_ref().map(|w| json!({
            "tunable": w.tunable,
            "configuration": w.configuration,
        })),
        "stop": t.stop.name(),
        "curve": t.curve.iter().map(|(n, b)| json!([n, b.0])).collect::<Vec<_>>(),
        "failures": t.failures.iter().map(|f| json!({
            "stage": f.stage,
            "detail": f.detail,
            "count": f.count,
        })).collect::<Vec<_>>(),
        "cpu_seconds": cost(t.cost),
    })
}
