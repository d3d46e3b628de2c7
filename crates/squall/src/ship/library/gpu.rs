//! Exports a network as a C library for an NVIDIA GPU. As `mod.rs` does for CPUs, but with cubins
//! in place of C kernels, and an interface of device pointers and the caller's stream; the run
//! itself is `runtime/host/gpu_library.c`. Input: a built network; output: a folder of sources,
//! weights and build files from `text/gpu/`.

use super::interface::{Ports, plain};
use super::sources::{constant, description, example_tensors, filled, names};
use super::{
    ExportedLibrary, Folder, LibraryOptions, kernel_facts, model_facts, workspace_bytes,
    write_weights,
};
use crate::base::error::Error;
use crate::inference::network::{Kernel, Network};
use crate::input::input_request::InputRequest;
use crate::target::target_context::TargetContext;
use serde_json::{Value, json};
use squall_measure::cuda::{Gpu, cubin_file};
use squall_runtime::host;
use squall_runtime::plan::HostPlan;
use std::fmt::Write as _;
use std::path::Path;

/// Workspaces are multiples of this.
const ALIGNMENT: u64 = 256;

/// Writes a network that was built for a GPU as a library into a folder.
pub fn export(
    network: &Network,
    input: &InputRequest,
    options: &LibraryOptions,
    at: &TargetContext,
    gpu: &Gpu,
    folder: &Path,
) -> Result<ExportedLibrary, Error> {
    if options.onnxruntime {
        return Err(Error::Usage {
            message: "operators of ONNX Runtime are made of CPU libraries only".into(),
            hint: "leave --ort out, or say `--target cpu`".into(),
        });
    }
    let name = &options.name;
    let text = network.plan_text()?;
    let plan = HostPlan::parse(&text).map_err(|e| Error::Nothing(e.to_string()))?;
    let ports = Ports::new(&plan, network.inputs(), network.outputs(), &[])?;
    let folder = Folder::make(folder)?;
    let (weights_bytes, seal) = write_weights(network, name, &folder)?;
    // Behind the arena each step says whether it succeeded.
    let statuses = 4 * (plan.steps.len() as u64 + 1);
    let workspace = workspace_bytes(&plan).next_multiple_of(ALIGNMENT) + statuses;
    let counts = network.counts();
    let (ins, outs) = ports.json();
    let facts = json!({
        "name": name.text(),
        "abi": 1,
        "made_by": format!("squall {}", env!("CARGO_PKG_VERSION")),
        "model": model_facts(input),
        "inputs": ins,
        "outputs": outs,
        "workspace": {"bytes": workspace, "alignment": ALIGNMENT},
        "architecture": gpu.architecture(),
        "compiler": gpu.toolchain(),
        "tuned_on": at.device_name(),
        "precision": network.precision().name(),
        "kernels": kernel_facts(counts),
        "weights": {
            "file": format!("{}.weights", name.text()),
            "bytes": weights_bytes,
            "digest": seal,
        },
    });
    let library = Library { options, ports: &ports, at, gpu, workspace, facts: &facts };
    library.write(network, &text, &folder)?;
    if options.build {
        super::build(&folder.0, &at.toolchain.command())?;
    }
    Ok(ExportedLibrary {
        folder: folder.0,
        name: name.clone(),
        description: facts,
        ports,
        counts,
        weights_bytes,
        workspace_bytes: workspace,
        built: options.build,
    })
}

/// The values that the templates of a library are filled in with.
struct Library<'a> {
    options: &'a LibraryOptions,
    ports: &'a Ports,
    at: &'a TargetContext,
    gpu: &'a Gpu,
    workspace: u64,
    facts: &'a Value,
}

impl Library<'_> {
    /// Writes all files but the weights.
    fn write(&self, network: &Network, plan: &str, folder: &Folder) -> Result<(), Error> {
        let name = self.options.name.text();
        for (file, text) in host::exported(&host::EXPORTED_GPU) {
            folder.put(&format!("src/runtime/{file}"), text)?;
        }
        let kernels = network.linked_kernels();
        for k in &kernels {
            let symbol = &k.source.symbol;
            folder.put(&format!("src/{symbol}.cu"), k.head.clone() + &k.source.source)?;
            folder.put(&format!("src/{symbol}.cubin"), network.file(&cubin_file(k.source))?)?;
        }
        let files: Vec<String> =
            kernels.iter().map(|k| format!("src/{}.cubin", k.source.symbol)).collect();
        folder.put("src/names.h", names(&self.options.name, &host::EXPORTED_GPU))?;
        let [table, contents] = images(name, &kernels);
        folder.put("src/cubins.h", table)?;
        folder.put("src/cubins.S", contents)?;
        folder.put("src/plan.h", constant("What is run, in which order.", "plan_text", plan))?;
        folder.put("src/describe.h", description(self.facts))?;
        let (ins, outs) = self.ports.arguments();
        let places = [("INPUTS", &*ins), ("OUTPUTS", &*outs)];
        folder.put("src/library.c", self.place(include_str!("text/gpu/library.c"), &places))?;
        let fields = self.ports.fields();
        let header = self.place(include_str!("text/gpu/header.h"), &[("FIELDS", &fields)]);
        folder.put(&format!("{name}.h"), header)?;
        let tensors = example_tensors(self.ports);
        let io = self.ports.filled("input", "output");
        let places = [("TENSORS", &*tensors), ("IO", &*io)];
        folder.put("example.c", self.place(include_str!("text/gpu/example.c"), &places))?;
        let places = [("CUBINS", &*files.join(" ")), ("CC", &self.at.toolchain.command())];
        folder.put("Makefile", self.place(include_str!("text/gpu/Makefile"), &places))?;
        let model = plain(self.facts["model"]["file"].as_str().unwrap_or("a model"));
        let counts = network.counts().to_string();
        let places = [
            ("MODEL", &*model),
            ("VERSION", env!("CARGO_PKG_VERSION")),
            ("COUNTS", &counts),
            ("TENSOR_TABLE", &self.ports.table()),
        ];
        folder.put("README.md", self.place(include_str!("text/gpu/README.md"), &places))
    }

    fn place(&self, template: &str, more: &[(&str, &str)]) -> String {
        let name = &self.options.name;
        let common = [
            ("NAME", name.text()),
            ("UPPER", &name.upper()),
            ("ARCHITECTURE", &self.gpu.architecture()),
            ("WORKSPACE", &self.workspace.to_string()),
        ];
        filled(&filled(template, more), &common)
    }
}

/// The table of cubins, and the assembly that holds them.
fn images(name: &str, kernels: &[Kernel<'_>]) -> [String; 2] {
    let mut table = String::from("/* The cubins of the kernels. Made by Squall. */\n");
    let mut rows = String::new();
    let mut contents = String::from(
        "/* The cubins of the kernels, as they are. Made by Squall. */\n    .section .rodata\n",
    );
    for (i, k) in kernels.iter().enumerate() {
        let (own, symbol) = (format!("{name}_cubin_{i}"), &k.source.symbol);
        let _ = writeln!(table, "extern const unsigned char {own}[];");
        let _ = writeln!(rows, "    {{\"{symbol}\", {own}}},");
        let _ = write!(
            contents,
            "    .balign 64\n    .globl {own}\n    .hidden {own}\n{own}:\n    .incbin \
             \"{symbol}.cubin\"\n"
        );
    }
    let _ = write!(table, "\nstatic const rt_gpu_image cubins[] = {{\n{rows}}};\n");
    contents += "    .section .note.GNU-stack,\"\",%progbits\n";
    [table, contents]
}
