//! The parts of a network on a GPU beside its tuned kernels: a generated CUDA kernel for each move
//! of data and each plain operator (a node without a tuned kernel), the cubins of all kernels, and
//! the host program that loads them (`runtime/host/gpu_network.c`). Input: a plan; output: kernel
//! sources and a folder of cubins with the program. `trust/on_gpu.rs` verifies the generated
//! kernels.

use super::operands::{first_of, number, source_of, target_of};
use super::plain::{PlainOperators, parameters};
use super::program::{NAME, Site, put};
use crate::base::error::Error;
use crate::inference::objects::{compile, refused};
use crate::target::target_context::TargetContext;
use squall_compiler::{moves, plain};
use squall_core::graph::OperatorCall;
use squall_core::{
    Bytes, KernelSource, Language, Launch, LaunchArgument, LaunchPhase, Target, TargetKind,
};
use squall_graph::plan::{ALIGNMENT as PLACES, BlockPlace, Plan, PlanStep, ValueSource, Work};
use squall_measure::cpu::Object;
use squall_measure::cuda::{Gpu, cubins};
use squall_runtime::host;
use std::collections::HashMap;

/// The alignment of blocks of memory on a GPU: two lines of its caches.
pub const ALIGNMENT: usize = 256;
/// Threads of a block of a plain operator: whole warps of 32.
const THREADS: u64 = 128;
/// The most thread blocks of a plain operator; where there are more instances of its loop, threads
/// take several.
const MOST_BLOCKS: u64 = 4096;
/// A fixed symbol, with which a text is made to be hashed.
const NAMELESS: &str = "squall_generated";

/// Generates the kernels of all steps that no task makes; says which node has none, and why.
pub fn generated(plan: &Plan) -> Result<PlainOperators, String> {
    let mut all = PlainOperators { on_device: true, ..PlainOperators::default() };
    let mut known: HashMap<String, usize> = HashMap::new();
    for (i, step) in plan.steps.iter().enumerate() {
        let at = |why: String| format!("node `{}` ({}): {why}", step.node, step.op);
        if matches!(step.work, Work::Kernel { .. }) {
            aligned(&step.work).map_err(at)?;
            continue;
        }
        let made = kernel(plan, step, NAMELESS).map_err(at)?;
        let key = format!("{}\n{}", operands(plan, &step.work), made.source);
        let symbol = format!("made_{}", &blake3::hash(key.as_bytes()).to_hex()[..16]);
        let index = match known.get(&symbol) {
            Some(&index) => index,
            None => {
                all.sources.push(kernel(plan, step, &symbol).map_err(at)?);
                known.insert(symbol, all.sources.len() - 1);
                all.sources.len() - 1
            }
        };
        all.of_step.insert(i, index);
    }
    Ok(all)
}

/// Refuses a kernel that is given a place between those where several elements may be fetched at
/// once, as an assignment that was written by hand may have it.
fn aligned(work: &Work) -> Result<(), String> {
    let read = work.reads().into_iter().filter_map(|s| match s {
        ValueSource::Block(p) => Some(p),
        ValueSource::Constant(_) => None,
    });
    let mut places = work.writes().into_iter().chain(read);
    match places.find(|p| p.offset % PLACES != 0) {
        None => Ok(()),
        Some(p) => Err(format!(
            "it has a value at element {} of another's memory, and kernels of a GPU count on \
             multiples of {PLACES}; leave its `site` out of the assignment",
            p.offset
        )),
    }
}

/// The types and sizes of a kernel's operands, which tell kernels of the same text apart.
fn operands(plan: &Plan, work: &Work) -> String {
    match work {
        Work::Copy { from, to, .. } | Work::Runs { from, to, .. } => {
            format!("{:?} {:?}", source_of(plan, from), target_of(plan, to))
        }
        Work::Fill { to, .. } => format!("{:?}", target_of(plan, to)),
        Work::Plain { call, .. } => call.0.as_deref().map(parameters).unwrap_or_default(),
        Work::Kernel { .. } => String::new(),
    }
}

fn kernel(plan: &Plan, step: &PlanStep, symbol: &str) -> Result<KernelSource, String> {
    let size = |to: &BlockPlace| plan.blocks[to.block].dtype.bytes();
    Ok(match &step.work {
        Work::Copy { from, from_offset, to, axes } => {
            let axis = |a: &squall_graph::plan::Stride| moves::MovedAxis {
                extent: a.extent as u64,
                to: a.to as u64,
                from: a.from as i64,
            };
            let formats = [source_of(plan, from).0, target_of(plan, to).0];
            let copy = moves::Copy {
                converts: (formats[0] != formats[1]).then_some(formats),
                size: size(to),
                from: (first_of(from) + from_offset) as u64,
                to: to.offset as u64,
                axes: axes.iter().map(axis).collect(),
            };
            copy.kernel(symbol)
        }
        Work::Runs { from, to, runs } => {
            let places = [first_of(from) as u64, to.offset as u64];
            let elements: usize = runs.iter().map(|run| run[2]).sum();
            moves::runs(size(to), places, [runs.len() as u64, elements as u64], symbol)
        }
        Work::Fill { to, elements, value } => {
            let value = number(*value, plan.blocks[to.block].dtype);
            moves::fill(&value, to.offset as u64, *elements as u64, symbol)
        }
        Work::Plain { call, .. } => {
            let call = call.0.as_ref().ok_or("its call is not known")?;
            let wanted: Vec<bool> = step.when.iter().map(|w| w.is).collect();
            operator(call, &wanted, symbol)?
        }
        Work::Kernel { .. } => return Err("a task makes its kernel".into()),
    })
}

/// A plain operator as a kernel, with a launch for each of its phases. Where threads of a warp
/// exchange values, blocks are whole warps, as [`THREADS`] is. It reads whether booleans
/// are as wanted, and does nothing where one is not.
fn operator(call: &OperatorCall, wanted: &[bool], symbol: &str) -> Result<KernelSource, String> {
    let made = plain::device_source(call, symbol).map_err(|e| e.to_string())?.only_where(wanted);
    let count = |list: &[Option<squall_core::graph::CallOperand>]| list.iter().flatten().count();
    let results = count(&call.outputs) + usize::from(call.extents() > 0);
    let data = (0..(wanted.len() + count(&call.inputs)) as u32).map(LaunchArgument::Data);
    let outputs = (0..results as u32).map(LaunchArgument::Output);
    let rest = [LaunchArgument::Workspace, LaunchArgument::Status];
    let arguments: Vec<LaunchArgument> = data.chain(outputs).chain(rest).collect();
    let launch = |p: &plain::Phase| {
        let threads = if p.in_warps { THREADS } else { p.width.min(THREADS) };
        let blocks = p.width.div_ceil(THREADS).clamp(1, MOST_BLOCKS);
        let step = p.step.map(|step| LaunchArgument::Number(step.to_ne_bytes().to_vec()));
        let arguments = Some(arguments.iter().cloned().chain(step).collect());
        let launch = Launch::linear(
            LaunchPhase::Call,
            p.entry.as_str(),
            blocks as u32,
            threads.max(1) as u32,
            0,
        );
        Launch { arguments, ..launch }
    };
    Ok(KernelSource {
        language: Language::Cuda,
        launches: made.phases.iter().map(launch).collect(),
        source: made.text,
        symbol: symbol.into(),
        prepared: Bytes(0),
        workspace: Bytes(made.scratch_bytes),
        openmp: false,
        full_optimisation: true,
        flags: vec!["-default-device".into()],
    })
}

/// The device function that kernels begin with which may be set up while others run.
const AWAITS: &str = "static __device__ __forceinline__ void await_launches() {\n  asm \
    volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n}\n";

/// A kernel whose functions wait for the launches before theirs to end, so that they may be set up
/// while those run; where launches do not overlap, that waits for nothing.
pub fn awaiting(kernel: &mut KernelSource, gpu: &Gpu) {
    const HEAD: &str = "extern \"C\" __global__ ";
    let Target { kind: TargetKind::Cuda(limits), .. } = &gpu.target else { return };
    if limits.capability < 90 {
        return;
    }
    let mut text = String::from(AWAITS);
    let mut rest = kernel.source.as_str();
    while let Some(at) = rest.find(HEAD) {
        let Some(open) = rest[at..].find('{') else { break };
        let (head, body) = rest.split_at(at + open + 1);
        text = text + head + "\n  await_launches();";
        rest = body;
    }
    text += rest;
    kernel.source = text;
}

/// Builds the program and all cubins in a folder; one that is kept gets the sources, too.
pub fn build(
    site: Site<'_>,
    kernels: &[&KernelSource],
    at: &TargetContext,
    gpu: &Gpu,
) -> Result<(), Error> {
    let Site { folder, is_kept } = site;
    if is_kept {
        for k in kernels {
            put(&folder.join(format!("{}.cu", k.symbol)), &k.source)?;
        }
    }
    cubins(gpu, &at.toolchain, kernels, folder, at.device.allowed_cores())?;
    let text = host::whole(host::GPU_NETWORK.1);
    let object = format!("{NAME}.o");
    let link = ["-o", NAME, object.as_str(), "-lm", "-ldl"];
    let key = at.toolchain.key(&link, &[text.as_str()]);
    at.toolchain.kept_program(&key, &folder.join(NAME), || -> Result<(), Error> {
        let mut args = vec!["-c", "-O2"];
        args.extend(at.toolchain.flags().iter().map(String::as_str));
        match at.toolchain.compiled_text(&text, &args, &folder.join(&object))? {
            Object::Refused(said, _) => Err(refused(folder, &at.toolchain, &said)),
            _ => compile(folder, &at.toolchain, &link),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::{Objective, TaskId};

    #[test]
    fn kernels_are_given_places_that_several_elements_are_fetched_from() {
        let work = |read: usize, written: usize| Work::Kernel {
            task: TaskId::of_text("", Objective::Time),
            inputs: vec![
                ValueSource::Constant(3),
                ValueSource::Block(BlockPlace { block: 0, offset: read }),
            ],
            output: BlockPlace { block: 1, offset: written },
        };
        assert_eq!(aligned(&work(64, 16)), Ok(()));
        for (read, written, place) in [(8, 0, 8), (0, 33, 33)] {
            let why = aligned(&work(read, written)).unwrap_err();
            assert!(why.contains(&format!("at element {place} of")), "{why}");
        }
    }
}
