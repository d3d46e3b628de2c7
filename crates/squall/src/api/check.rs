//! The verb behind `squall check`: runs a model through its kernels and compares its outputs,
//! either with expected arrays (files, or ONNX test data) or with the model's own operators
//! computed one by one by plain loops. Input: a [`CheckRequest`]; output: [`Checked`]. The
//! comparison itself is `crate::check`.

use crate::base::error::Error;
use crate::inference::check::{Checked, Expected, Tolerance};
use crate::inference::network::Network;
use crate::inference::network_request::{NetworkRequest, signature};
use crate::inference::run::{given, network_for};
use crate::input::arrays::{ArrayFile, NamedArray, named, numbered, read_array};
use crate::input::input_request::InputRequest;
use crate::input::precision::Precision;
use crate::predict::choose::{Chosen, Origin};
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use crate::task::event::Listen;
use crate::task::task_kernels::symbol_of;
use squall_core::workload::Hard;
use squall_core::{DType, KernelSource, Task};
use squall_frontend::npy::Array;
use std::path::{Path, PathBuf};

/// A model's inputs and expected outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckData {
    /// Files of inputs, and of the outputs that are compared.
    Files {
        /// The inputs.
        inputs: Vec<ArrayFile>,
        /// The expected outputs.
        expected: Vec<ArrayFile>,
    },
    /// A folder in ONNX's own form: `input_0.pb`, .. and `output_0.pb`, .., in the order of the
    /// graph, or folders `test_data_set_0`, .. of these.
    Folder(PathBuf),
}

/// A model held against known outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckRequest {
    /// The model; nothing of it is kept.
    pub network: NetworkRequest,
    /// Its inputs and expected outputs.
    pub data: CheckData,
    /// How far elements may be off, if not as usual in the format that computes; whole numbers and
    /// booleans may not.
    pub tolerance: Option<Tolerance>,
}

/// The inputs and the expected outputs of one case.
type Case = (Vec<NamedArray>, Vec<NamedArray>);

/// The cases that a check is of.
fn cases(request: &CheckRequest) -> Result<Vec<Case>, Error> {
    let source = &request.network.input.source;
    let signature = signature(&request.network)?;
    let folder = match &request.data {
        CheckData::Files { inputs, expected } => {
            let outputs = &signature.outputs;
            let wanted = named(expected, outputs, outputs, "output", source)?;
            let wanted: Result<Vec<NamedArray>, Error> =
                wanted.into_iter().map(|(name, path)| Ok((name, read_array(&path)?))).collect();
            return Ok(vec![(given(&request.network, inputs)?, wanted?)]);
        }
        CheckData::Folder(folder) => folder,
    };
    let sets = (0..).map(|i| folder.join(format!("test_data_set_{i}")));
    let mut folders: Vec<PathBuf> = sets.take_while(|p| p.is_dir()).collect();
    if folders.is_empty() {
        folders.push(folder.clone());
    }
    let inputs: Vec<&String> = signature.inputs.iter().map(|i| &i.name).collect();
    let outputs: Vec<&String> = signature.outputs.iter().collect();
    let read = |folder: &Path, prefix: &str, names: &[&String]| {
        let files = numbered(folder, prefix);
        if files.len() != names.len() {
            return Err(Error::Input {
                place: folder.display().to_string(),
                message: format!(
                    "it holds {} files {prefix}_N.pb, and the model has {} {prefix}s",
                    files.len(),
                    names.len()
                ),
                hint: format!("name them {prefix}_0.pb, {prefix}_1.pb .. in the graph's order"),
            });
        }
        let pairs = names.iter().zip(&files);
        pairs.map(|(n, f)| Ok(((*n).clone(), read_array(f)?))).collect()
    };
    let case = |f: &PathBuf| Ok((read(f, "input", &inputs)?, read(f, "output", &outputs)?));
    folders.iter().map(case).collect()
}

/// A network, and the shapes that it was built for.
type Built = (Network, Vec<Vec<i64>>);

/// The network for a case's inputs: the last one where it serves them.
fn serving<'b>(
    context: &Context,
    request: &NetworkRequest,
    inputs: &[NamedArray],
    built: &'b mut Option<Built>,
    listen: &mut Listen<'_>,
) -> Result<&'b Network, Error> {
    let shapes: Vec<Vec<i64>> = inputs.iter().map(|(_, a)| a.shape.clone()).collect();
    // Cases of the same shapes, and of the values on which shapes depend, share a network.
    let serves = |(n, of): &Built| *of == shapes && n.bound().iter().all(|b| inputs.contains(b));
    if !built.as_ref().is_some_and(serves) {
        *built = None;
    }
    let made = match built.take() {
        Some(known) => known,
        None => (network_for(context, request, inputs, listen)?, shapes),
    };
    Ok(&built.insert(made).0)
}

/// The way to cover a model in which each of its operators has a kernel.
const UNFUSED: &str = "unfused";

/// A model as its operators are written: one by one, by plain loops in double precision and plain
/// operators, on one thread of this machine.
fn literal(
    context: &Context,
    request: &NetworkRequest,
    inputs: &[NamedArray],
) -> Result<Network, Error> {
    let input = InputRequest {
        channels: None,
        assignment: None,
        cover: Some(UNFUSED.into()),
        precision: Some(Precision::F32),
        ..request.input.clone()
    };
    let model = input.load_given(TargetRequest::Cpu, inputs)?;
    let at = context.target(TargetRequest::Cpu, 1)?;
    let loops = |task: &Task| {
        let source = squall_compiler::reference(&task.workload, &symbol_of(task));
        let openmp = source.openmp && at.toolchain.openmp();
        let reference = KernelSource { openmp, ..source };
        Chosen { task: task.clone(), source: reference.clone(), reference, origin: Origin::Plain }
    };
    Network::build(&model, None, &at, &mut |tasks| Ok(tasks.iter().map(|t| loops(t)).collect()))
}

/// Floats of which some are hard values; nothing where no input is of floats of 32 bits.
fn hardened(inputs: &[NamedArray], hard: Hard) -> Option<Vec<NamedArray>> {
    const NAN: [f32; 4] = [f32::NAN, 0.0, -0.0, 0.0];
    const ALL: [f32; 6] = [f32::INFINITY, 1e15, -f32::INFINITY, 1e-40, -1e-42, -0.0];
    let values = match hard {
        Hard::Nan => &NAN[..],
        Hard::All => &ALL,
    };
    let is_open = |a: &Array| a.dtype == DType::F32 && a.elements() > 0;
    inputs.iter().any(|(_, a)| is_open(a)).then(|| {
        let mut inputs = inputs.to_vec();
        for (_, array) in inputs.iter_mut().filter(|(_, a)| is_open(a)) {
            let count = array.elements();
            // The last element is where vectors have their rests.
            for (i, value) in values.iter().enumerate() {
                let at = count - 1 - i * count / values.len();
                array.bytes[4 * at..][..4].copy_from_slice(&value.to_ne_bytes());
            }
        }
        inputs
    })
}

/// Runs a model on known inputs and compares what it gives with what is known, or, where nothing
/// is, with what its operators give by plain loops: there on random inputs and on hard ones, too.
/// Where another format than f32 is asked for, it is run in f32 instead, for what the format loses.
pub fn check(
    context: &Context,
    request: &CheckRequest,
    listen: &mut Listen<'_>,
) -> Result<Checked, Error> {
    let wanted = &request.network;
    let in_f32 = Some(Precision::F32);
    let is_other = wanted.input.precision.is_some() && wanted.input.precision != in_f32;
    let precise = is_other.then(|| NetworkRequest {
        input: InputRequest { precision: in_f32, ..wanted.input.clone() },
        ..wanted.clone()
    });
    let mut checked = Checked::default();
    let (mut built, mut in_f32) = (None, None);
    for (mut inputs, expected) in cases(request)? {
        let network = serving(context, wanted, &inputs, &mut built, listen)?;
        let random = if expected.is_empty() { network.random_inputs(&inputs) } else { Vec::new() };
        inputs.extend(random.iter().cloned());
        let (outputs, layers) = network.run(&inputs)?;
        checked.kernels = network.counts();
        checked.precision = network.precision();
        checked.fallbacks = network.fallbacks().to_vec();
        // A model that computes in 16 bits is as exact as these are, in whichever it runs.
        let own =
            Precision::ALL.iter().find(|(p, _)| p.half().is_some() && p.half() == network.half());
        let usual = own.map_or(0.0, |(p, _)| p.tolerance()).max(network.precision().tolerance());
        let tolerance = request.tolerance.unwrap_or(Tolerance::Scaled(usual));
        checked.tolerance = Some(tolerance);
        if let Some(precise) = &precise {
            checked.add(&outputs, &layers, &Expected::new(&expected, tolerance));
            let in_f32 = serving(context, precise, &inputs, &mut in_f32, listen)?;
            checked.loss.get_or_insert_default().add(&outputs, &in_f32.run(&inputs)?.0);
            continue;
        }
        if !expected.is_empty() {
            checked.add(&outputs, &layers, &Expected::new(&expected, tolerance));
            continue;
        }
        let loops = literal(context, wanted, &inputs)?;
        checked.is_literal = true;
        let want = loops.run(&inputs)?.0;
        checked.add(&outputs, &layers, &Expected::computed(&want, tolerance));
        let spreads = network.spreads_hard_values();
        for hard in [Hard::Nan, Hard::All] {
            let Some(random) = hardened(&random, hard) else { break };
            let given = inputs.iter().filter(|(n, _)| random.iter().all(|(r, _)| r != n));
            let inputs: Vec<NamedArray> = given.chain(&random).cloned().collect();
            let (outputs, layers) = network.run(&inputs)?;
            let want = loops.run(&inputs)?.0;
            checked.add(&outputs, &layers, &Expected::of_hard_inputs(&want, tolerance, spreads));
        }
    }
    Ok(checked)
}
