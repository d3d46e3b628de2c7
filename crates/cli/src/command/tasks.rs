//! `squall tasks`: lists what there is to tune in an input: its distinct kernels with work, data
//! and roofline bound, the operators that are not tuned with reasons, and with `--fused` the costs
//! of different covers (which operators become one kernel).

use crate::failure::Failure;
use crate::option::{InputArgs, JsonArgs, STORE, TargetArgs, ThreadArgs, context};
use crate::terminal::{note, or_dash, say, table, three};
use squall::{Context, Input, Nanos, Roof, TargetRequest, Task, Untuned};
use std::path::PathBuf;

/// List the distinct kernels of an input: work, data, roofline bound
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall tasks model.onnx
  squall tasks model.onnx --dim batch=1 --json
  squall tasks model.onnx --fused
  squall tasks kernels.ops --no-roof
  squall tasks kernel.toml --target cuda
  squall tasks 'conv2: conv2d n=1 c=64 h=56 w=56 k=64 r=3 s=3 stride=1 pad=1 epilogue=bias,relu'
  squall tasks 'conv2d c=64 h=56 k=64 r=3 pad=1 direction=backward_weights layout=nhwc'
  squall tasks 'matmul m=1 n=4096 k=4096 weight=b bits=4 block=32 level=4'
  squall tasks 'MIOpenDriver conv -n 1 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 0'
  squall tasks 64-56-56-3x3-64-56-56-1-1x1-1x1-1x1-0-NCHW-FP32-B

Operator lines: [NAME:] conv2d n= c= h= w= k= r= s= [stride= pad= dilation= groups= layout=nchw|nhwc
direction=forward|backward_data|backward_weights epilogue=], conv3d the same with d= and t=,
conv_transpose2d and conv_transpose3d the same with output_pad= and without a direction,
matmul m= n= k= [batch= weight=b|none], softmax rows= cols=, layernorm rows= cols= [eps=].
A line may also be a command of MIOpenDriver or a key of MIOpen's databases.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Show how the kernels that a model may be made of stand to each other: which make the
    /// cheapest cover, and how much longer the cheapest takes with each of the others
    #[arg(long, conflicts_with_all = ["json", "channels", "assignment", "cover"])]
    fused: bool,
    /// Times for `--fused` [default: tuned.squall, where it is there]
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE")]
    store: Option<PathBuf>,
    /// Do not measure the machine's roof: no bounds in the table
    #[arg(long)]
    no_roof: bool,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let target = a.target.request()?;
    if a.fused {
        return fused(a, target).map(|()| 0);
    }
    let input = a.input.request().load(target)?;
    if a.json.json {
        say(input.json())?;
        return Ok(0);
    }
    let runs = |t: &&Task| runs_on(&input, t, target);
    if let Some(t) = input.tasks().iter().find(|t| !runs(t) && !a.no_roof) {
        let (language, target) = if target.is_cpu() { ("CUDA", "cuda") } else { ("C", "cpu") };
        note(format_args!(
            "note: {} is a kernel in {language}: its bound is shown with `--target {target}`",
            t.name
        ));
    }
    let wanted = !a.no_roof && input.tasks().iter().any(|t| runs(&t));
    let roof = if wanted { roof_here(target, a.threads.threads as usize) } else { None };
    let mut t =
        table(&["task", "id", "kind", "count", "MFLOP", "data", "FLOP/byte", "bound", "GFLOP/s"]);
    for task in input.tasks() {
        let (flop, bytes) = (task.workload.flop(), task.workload.bytes());
        let least = |r: &squall::Roof| r.bound_of(&task.workload, flop);
        let bound = roof.as_ref().filter(|_| runs(&task)).map(least);
        t.add_row([
            task.name.clone(),
            task.id.to_string(),
            task.workload.kind.clone(),
            task.count.to_string(),
            three(flop as f64 * 1e-6),
            bytes.to_string(),
            three(flop as f64 / bytes.0.max(1) as f64),
            or_dash(bound),
            or_dash(bound.map(|b| three(b.giga_rate(flop as f64)))),
        ]);
    }
    say(t)?;
    let calls: u64 = input.tasks().iter().map(|t| t.count).sum();
    let flop: f64 = input.tasks().iter().map(|t| t.count as f64 * t.workload.flop() as f64).sum();
    let total = roof.as_ref().filter(|_| input.tasks().iter().all(|t| runs(&t))).map_or(
        String::new(),
        |r| {
            let least = |t: &Task| r.bound_of(&t.workload, t.workload.flop()).0;
            let ns: f64 = input.tasks().iter().map(|t| t.count as f64 * least(t)).sum();
            format!("; at the roof {}", Nanos(ns))
        },
    );
    say(format_args!(
        "{} tasks, {calls} calls, {} GFLOP{total}",
        input.tasks().len(),
        three(flop * 1e-9)
    ))?;
    if let Some(r) = &roof {
        let peak = three(r.peak_gflops);
        say(format_args!(
            "bound: by {peak} GFLOP/s and the bandwidth of the caches and memory ({} GB/s) that \
             can hold the data",
            three(r.memory_gbs)
        ))?;
    }
    reasons("floats in a model of bytes", &input.floats_beside_bytes())?;
    reasons("not tuned", input.untuned()).map(|()| 0)
}

/// Says which kernels make the cheapest cover of a model, and what the others would cost.
fn fused(a: &Args, target: TargetRequest) -> Result<(), Failure> {
    let store = a.store.clone().or_else(|| Some(PathBuf::from(STORE)).filter(|p| p.exists()));
    let threads = a.threads.threads as usize;
    let report = a.input.request().cover_report(&context(), store.as_deref(), target, threads)?;
    let mut t = table(&["kernel", "nodes", "first of them", "time", "behind"]);
    t.align_left(2);
    for k in &report.kernels {
        let mark = if k.estimated { " estimated" } else { "" };
        t.add_row([
            k.name.clone(),
            k.nodes.len().to_string(),
            k.nodes.first().cloned().unwrap_or_default(),
            format!("{}{mark}", Nanos(k.time)),
            k.behind.map_or("chosen".into(), |b| format!("+{}", Nanos(b))),
        ]);
    }
    say(t)?;
    let chosen = report.kernels.iter().filter(|k| k.behind.is_none());
    let (kernels, estimated) =
        chosen.fold((0, 0), |(n, e), k| (n + 1, e + usize::from(k.estimated)));
    say(format_args!(
        "{kernels} kernels, {} together by the least sum over all covers and layouts; {estimated} \
         of their times are estimates",
        Nanos(report.time)
    ))
}

/// Says of which nodes something holds, and why.
fn reasons(what: &str, untuned: &[Untuned]) -> Result<(), Failure> {
    if untuned.is_empty() {
        return Ok(());
    }
    say(format_args!("\n{what}:"))?;
    let mut t = table(&["operator", "nodes", "first of them", "reason"]);
    for c in [2, 3] {
        t.align_left(c);
    }
    // A network of equal blocks has the same reasons hundreds of times; `--json` lists each
    // node.
    let mut alike: Vec<(&Untuned, usize)> = Vec::new();
    for u in untuned {
        match alike.iter_mut().find(|(a, _)| a.op == u.op && a.reason == u.reason) {
            Some((_, n)) => *n += 1,
            None => alike.push((u, 1)),
        }
    }
    for (u, n) in alike {
        t.add_row([&u.op, &n.to_string(), &u.node, &u.reason]);
    }
    say(t)
}

/// Whether a task's kernels run on such a target: a user's own are written for one.
fn runs_on(input: &Input, task: &Task, target: TargetRequest) -> bool {
    let own = input.own().iter().find(|k| k.task.id == task.id);
    own.is_none_or(|k| k.is_cuda() != target.is_cpu())
}

/// The target's roof, or a note on why there is none: the list is of use without it.
fn roof_here(target: TargetRequest, threads: usize) -> Option<Roof> {
    match Context::new().target(target, threads).and_then(|a| a.roof()) {
        Ok(r) => Some(r),
        Err(e) => {
            note(format_args!("no roof: {e}"));
            None
        }
    }
}
