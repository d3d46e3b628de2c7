//! Makes plans from the types of `core`: a workload's tensors become buffers, and a kernel source
//! with its launches becomes a plan's kernel. The measurer and exports make their one-kernel plans
//! here.

use super::{Argument, Buffer, Element, HostPlan, Kernel, Launch, Parameter, Role, Step, Work};
use squall_core::{
    DType, KernelSource, LaunchArgument, LaunchPhase, Stage, TensorKind, Workload, workload::Input,
};

/// The letter of an element type in plans (`host/element.h`); none for a type that runners do not
/// know.
pub fn letter(d: DType) -> Option<char> {
    match d {
        DType::F32 => Some('f'),
        DType::F64 => Some('d'),
        DType::I8 => Some('b'),
        DType::U8 => Some('u'),
        DType::I16 => Some('s'),
        DType::U16 => Some('S'),
        DType::I32 => Some('i'),
        DType::U32 => Some('I'),
        DType::I64 => Some('l'),
        DType::U64 => Some('L'),
        DType::Bool => Some('o'),
        DType::F16 => Some('h'),
        DType::Bf16 => Some('B'),
        _ => None,
    }
}

impl HostPlan {
    /// The tensors of a workload, as a session makes them: inputs in order, then outputs. Elements
    /// of several numbers are these to a kernel's caller; bytes take all values.
    pub fn of_workload(w: &Workload) -> HostPlan {
        let element = |d: DType| {
            let bytes = match d {
                DType::U8x4 => DType::U8,
                DType::I8x4 => DType::I8,
                DType::Bf16x2 => DType::Bf16,
                DType::I16x2 => DType::I16,
                d => d,
            };
            letter(bytes).and_then(Element::new).unwrap_or(Element::F32)
        };
        let range = |n: usize| match (&w.foreign, w.inputs[n].dtype) {
            (Some(f), _) => f.ranges.get(n).copied().flatten(),
            (None, DType::U8 | DType::U8x4) => Some((0.0, 255.0)),
            (None, DType::I8 | DType::I8x4) => Some((-128.0, 127.0)),
            (None, _) => None,
        };
        let hard = w.hard_inputs();
        let input = |(n, i): (usize, &Input)| {
            let role = if i.kind == TensorKind::Data { Role::Data } else { Role::Weight };
            let count = w.input_span(n) * i.dtype.packed();
            Buffer { range: range(n), hard: hard[n], ..Buffer::own(role, element(i.dtype), count) }
        };
        let count = |o: &Stage| if w.has_gaps() { w.output_span() } else { o.elements() };
        let output = |o: &Stage| Buffer {
            gaps: w.has_gaps(),
            ..Buffer::own(Role::Output, element(o.dtype), count(o))
        };
        let inputs = w.inputs.iter().enumerate().map(input);
        let buffers = inputs.chain(w.outputs().iter().map(output)).collect();
        HostPlan { buffers, ..HostPlan::default() }
    }

    /// A plan of tensors with one kernel that takes them all, and its call. `names` are those of
    /// the functions in the cubin, where they are not the source's.
    pub fn with_kernel(
        &self,
        k: &KernelSource,
        library: Option<&str>,
        names: &[String],
    ) -> HostPlan {
        let mut plan = self.clone();
        let buffers: Vec<u32> = (0..plan.buffers.len() as u32).collect();
        let mut own = |role, bytes: u64| {
            let number = plan.buffers.len() as u32;
            plan.buffers.push(Buffer::own(role, Element::U8, bytes));
            (bytes > 0).then_some(number)
        };
        let prepared = own(Role::Prepared, k.prepared.0);
        let workspace = own(Role::Workspace, k.workspace.0);
        let work = Work::Call { kernel: 0, buffers, prepared, workspace };
        let mut kernel = Kernel::of_source(k, library, &self.buffers);
        if library.is_none() {
            // Linked in, its launcher launches it.
            kernel.launches.clear();
        }
        for (launch, name) in kernel.launches.iter_mut().zip(names) {
            launch.entry.clone_from(name);
        }
        plan.kernels.push(kernel);
        plan.steps.push(Step { name: k.symbol.clone(), when: Vec::new(), work });
        plan
    }
}

impl Kernel {
    /// The kernel of a source, which takes and gives certain tensors.
    pub fn of_source(k: &KernelSource, library: Option<&str>, tensors: &[Buffer]) -> Kernel {
        let parameter = |b: &Buffer| Parameter { role: b.role, element: b.element, count: b.count };
        let parameters: Vec<Parameter> = tensors.iter().map(parameter).collect();
        let launches = k.launches.iter().map(|l| Launch::of_source(l, &parameters)).collect();
        Kernel {
            language: k.language,
            symbol: k.symbol.clone(),
            library: library.map(Into::into),
            prepared: k.prepared.0,
            workspace: k.workspace.0,
            numbers: Vec::new(),
            parameters,
            launches,
        }
    }
}

impl Launch {
    /// A launch with all of its arguments, which the phase decides where none are named: weights
    /// and prepared memory, or data, the output, prepared memory and workspace.
    fn of_source(l: &squall_core::Launch, parameters: &[Parameter]) -> Launch {
        let of = |role| 0..parameters.iter().filter(|p| p.role == role).count() as u32;
        let mut arguments: Vec<Argument> = match (&l.arguments, l.phase) {
            (Some(named), _) => named.iter().map(argument).collect(),
            (None, LaunchPhase::Prepare) => of(Role::Weight).map(Argument::Weight).collect(),
            (None, LaunchPhase::Call) => of(Role::Data).map(Argument::Data).collect(),
        };
        if l.arguments.is_none() {
            if l.phase == LaunchPhase::Call {
                arguments.push(Argument::Output(0));
            }
            arguments.push(Argument::Prepared);
            if l.phase == LaunchPhase::Call {
                arguments.push(Argument::Workspace);
            }
        }
        arguments.extend((0..l.maps.len() as u32).map(Argument::Map));
        Launch {
            phase: l.phase,
            entry: l.entry.clone(),
            blocks: l.blocks,
            threads: l.threads,
            shared: l.shared,
            arguments,
            maps: l.maps.clone(),
        }
    }
}

fn argument(a: &LaunchArgument) -> Argument {
    match a {
        LaunchArgument::Data(n) => Argument::Data(*n),
        LaunchArgument::Output(n) => Argument::Output(*n),
        LaunchArgument::Restored { output, data } => {
            Argument::Restored { output: *output, data: *data }
        }
        LaunchArgument::Number(bytes) => Argument::Number(bytes.clone()),
        LaunchArgument::Prepared => Argument::Prepared,
        LaunchArgument::Workspace => Argument::Workspace,
        LaunchArgument::Status => Argument::Status,
    }
}
