//! Exports a model as a C library: header, sources, prepared weights in a file that is mapped,
//! Makefile and CMakeLists.txt, an example, and on request a custom operator for ONNX Runtime.
//! Input: a [`Network`] that was built ([`crate::network`] makes the plan and prepares the
//! weights); output: a folder. The library runs on the same C runtime as the network's own program
//! (`runtime/host`). docs/library.md is for its users; `text/` has the templates.

mod build_files;
mod flags;
mod gpu;
mod interface;
mod onnxruntime;
mod shared_loops;
mod sources;

pub use interface::{Extents, Name, Port, Ports};

use crate::base::error::Error;
use crate::inference::network::varying::VaryingNetwork;
use crate::inference::network::{Kernel, Network};
use crate::input::input_request::InputRequest;
use crate::predict::counts::KernelCounts;
use crate::target::target_context::TargetContext;
use build_files::Build;
use flags::Flags;
use interface::{extents, plain};
use serde_json::{Value, json};
use sources::filled;
use squall_runtime::host;
use squall_runtime::plan::{ALIGNMENT, HostPlan, Role};
use squall_runtime::varying::Symbol;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the head of a file of weights states the number of its sections, and how it goes on.
const SECTIONS_AT: usize = 32;
const HEAD_BYTES: usize = 40;
const SECTION_BYTES: usize = 32;

/// How the pool of a run of several threads is found.
const POOL: &str = "  if (io->struct_size >= sizeof *io && io->pool) {
    if (!io->pool->parallel_for) return RT_ARGUMENT;
    pool.state = io->pool->state;
    pool.parallel_for = io->pool->parallel_for;
    pool.tasks = THREADS;
    shared = &pool;
  } else if (rt_pool_of(THREADS, &pool)) {
    shared = &pool;
  }";

/// The C text of the record in which a run returns an output whose extents only it knows.
const OPEN: &str = "\
/* An output of which the run alone knows the extents. The run fills it, whatever it held: data is
 * memory of malloc, which the caller hands to free(), or NULL where the run came to no end. */
typedef struct {
  void *data;
  int64_t bytes, rank, extents[32];
} @NAME@_grown;

";

/// The C text by which the example frees outputs of which only the run knows the extents: before a
/// further run, and behind all runs.
const RELEASE: &str = "    for (size_t k = 0; k < OUTPUTS; k++)
      if (outputs[k].type == 'o' && i > 0) free(((@NAME@_grown *)output[k])->data);
";
const SHOWN: &str = "    if (outputs[i].type == 'o') {
      const @NAME@_grown *o = (const @NAME@_grown *)output[i];
      printf(\"%s: of extents\", outputs[i].name);
      for (int64_t a = 0; a < o->rank; a++) printf(\" %lld\", (long long)o->extents[a]);
      printf(\"\\n\");
      if (given && !write_tensor(i, o->data, (size_t)o->bytes)) return 1;
      free(o->data);
      continue;
    }
";

/// The C text by which a run finds its model: the one of fixed extents, or that of the extents
/// which the caller gives.
const MODEL: &str = "  return run(&((const rt_opened *)model)->model, io, workspace);\n";
const MODEL_AT: &str = "  if (!io->extents) return RT_ARGUMENT;
  rt_opened *o = (rt_opened *)(uintptr_t)model;
  rt_at *at;
  int code = rt_library_at(o, io->extents, &at);
  if (code != RT_OK) return code;
  code = run(&at->model, io, workspace);
  rt_library_leave(o, at);
  return code;
";

/// How a library is called, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryOptions {
    /// The prefix of every exported symbol.
    pub name: Name,
    /// Whether an operator of ONNX Runtime is written too.
    pub onnxruntime: bool,
    /// Whether it is built there, by its Makefile.
    pub build: bool,
}

/// A library that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportedLibrary {
    /// Its folder.
    pub folder: PathBuf,
    /// Its name.
    pub name: Name,
    /// Its description: names, types and shapes of tensors, instruction set, digests.
    pub description: Value,
    /// The tensors.
    pub ports: Ports,
    /// How many of its kernels were tuned, and how many not.
    pub counts: KernelCounts,
    /// Bytes of the file of weights.
    pub weights_bytes: u64,
    /// Bytes that a run needs.
    pub workspace_bytes: u64,
    /// Whether it was built.
    pub built: bool,
}

/// A folder under construction: each file appears whole or not at all.
struct Folder(PathBuf);

impl Folder {
    fn make(path: &Path) -> Result<Folder, Error> {
        let fail = |source| Error::Write { path: path.into(), source };
        let path = std::path::absolute(path).map_err(fail)?;
        std::fs::create_dir_all(&path)
            .map_err(|source| Error::Write { path: path.clone(), source })?;
        crate::base::files::make_folder(&path.join("src"))?;
        crate::base::files::make_folder(&path.join("src/runtime"))?;
        Ok(Folder(path))
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        crate::base::files::put_in_folder(&self.0.join(name), bytes.as_ref())
    }

    /// Gives a file that was written whole its name.
    fn whole(&self, name: &str) -> Result<(), Error> {
        let path = self.0.join(name);
        std::fs::rename(self.0.join(format!("{name}.half")), &path)
            .map_err(|source| Error::Write { path, source })
    }
}

/// A network that is exported: of fixed extents, or over a range of them.
pub enum Exported<'a> {
    /// Of fixed extents.
    Fixed(&'a Network),
    /// Over a range; it stands at the largest extent.
    Varying(&'a VaryingNetwork),
}

impl<'a> Exported<'a> {
    fn network(&self) -> &'a Network {
        match self {
            Exported::Fixed(n) => n,
            Exported::Varying(v) => &v.network,
        }
    }
}

/// Writes a network as a library into a folder.
pub fn export_library(
    exported: &Exported<'_>,
    input: &InputRequest,
    options: &LibraryOptions,
    at: &TargetContext,
    folder: &Path,
) -> Result<ExportedLibrary, Error> {
    let network = exported.network();
    if matches!(exported, Exported::Varying(_)) && options.onnxruntime {
        return Err(Error::Usage {
            message: "an operator of ONNX Runtime has fixed extents".into(),
            hint: "leave --ort out, or give each dimension one extent".into(),
        });
    }
    let is_for_all = !options.onnxruntime && at.gpus.is_empty();
    if let Some(why) = network.stays().filter(|_| !is_for_all) {
        return Err(why);
    }
    if let Some(gpu) = at.gpus.first() {
        return gpu::export(network, input, options, at, gpu, folder);
    }
    let name = &options.name;
    let text = network.plan_text()?;
    let plan = HostPlan::parse(&text).map_err(|e| Error::Nothing(e.to_string()))?;
    let mut ports = Ports::new(&plan, network.inputs(), network.outputs(), network.bounded())?;
    let (mut kernels, mut shipped) = (network.linked_kernels(), text.clone());
    if let Exported::Varying(v) = exported {
        ports = ports.over(&v.plan.symbols, &v.shapes[0], &v.shapes[1]);
        (kernels, shipped) = (v.linked_kernels(), v.plan.to_string());
    }
    let flags = Flags::of(&at.toolchain);
    let folder = Folder::make(folder)?;
    let (weights_bytes, seal) = write_weights(network, name, &folder)?;
    let library = Library {
        name,
        ports: &ports,
        kernels: &kernels,
        flags: &flags,
        at,
        threads: at.device.cores.len(),
        onnxruntime: options.onnxruntime,
        workspace: workspace_bytes(&plan),
        counts: network.counts(),
    };
    let description = description_of(network, &library, input, (weights_bytes, seal));
    library.write(&folder, &shipped, &description)?;
    if options.build {
        build(&folder.0, &flags.compiler)?;
    }
    Ok(ExportedLibrary {
        folder: folder.0,
        name: name.clone(),
        description,
        ports: ports.clone(),
        counts: library.counts,
        weights_bytes,
        workspace_bytes: library.workspace,
        built: options.build,
    })
}

/// The description of a library, for programs that use it.
fn description_of(
    network: &Network,
    library: &Library<'_>,
    input: &InputRequest,
    weights: (u64, String),
) -> Value {
    let model = model_facts(input);
    let (ports, flags) = (library.ports, library.flags);
    let (weights_bytes, seal) = weights;
    let (ins, outs) = ports.json();
    let mut description = json!({
        "name": library.name.text(),
        "abi": 1,
        "made_by": format!("squall {}", env!("CARGO_PKG_VERSION")),
        "model": model,
        "inputs": ins,
        "outputs": outs,
        "workspace": {"bytes": library.workspace, "alignment": ALIGNMENT},
        "threads": library.threads,
        "isa": flags.machine.trim_start_matches("-march="),
        "compiler": flags.version,
        "tuned_on": library.at.device_name(),
        "kernels": kernel_facts(library.counts),
        "fallbacks": network.fallbacks(),
        "weights": {
            "file": format!("{}.weights", library.name.text()),
            "bytes": weights_bytes,
            "digest": seal,
        },
    });
    if !ports.symbols.is_empty() {
        let one = |s: &Symbol| {
            let (least, most) = (s.least, s.most);
            json!({"name": s.name, "least": least, "most": most, "multiple": s.step})
        };
        description["symbols"] = ports.symbols.iter().map(one).collect();
    }
    description
}

/// The model's file by its name and content.
fn model_facts(input: &InputRequest) -> Value {
    let file = Path::new(&input.source).file_name();
    let digest = crate::base::files::read(Path::new(&input.source))
        .map(|b| blake3::hash(&b).to_hex().to_string())
        .ok();
    json!({"file": file.map(|f| f.to_string_lossy()), "blake3": digest})
}

/// How many kernels there are, and how they were chosen.
fn kernel_facts(counts: KernelCounts) -> Value {
    json!({
        "all": counts.kernels,
        "tuned": counts.tuned,
        "guessed": counts.guessed,
        "plain": counts.plain,
    })
}

/// Has the weights prepared and written; the file's size, and the digest over the digests in its
/// head.
fn write_weights(network: &Network, name: &Name, folder: &Folder) -> Result<(u64, String), Error> {
    let file = format!("{}.weights", name.text());
    let half = folder.0.join(format!("{file}.half"));
    network.write_weights(&half).inspect_err(|_| _ = std::fs::remove_file(&half))?;
    let path = folder.0.join(&file);
    let read = |source| Error::Read { path: path.clone(), source };
    let bytes = std::fs::metadata(&half).map_err(read)?.len();
    let head = head_of(&half).map_err(read)?;
    folder.whole(&file)?;
    Ok((bytes, head))
}

fn head_of(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read as _};
    let mut head = vec![0; 4096];
    std::fs::File::open(path)?.read_exact(&mut head)?;
    let word = |at: usize| head.get(at..at + 8).map(|b| b.try_into().unwrap_or([0; 8]));
    let sections = word(SECTIONS_AT).map_or(0, |b| u64::from_ne_bytes(b) as u32 as usize);
    let seal = word(HEAD_BYTES + sections.saturating_mul(SECTION_BYTES));
    let seal = seal.ok_or(Error::from(ErrorKind::InvalidData))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(seal)))
}

/// The workspace bytes that a model of the plan needs for a run, as `model.c` lays it out.
fn workspace_bytes(plan: &HostPlan) -> u64 {
    let written =
        |r: Role| matches!(r, Role::Data | Role::Output | Role::Scratch | Role::Workspace);
    let regions = plan.regions.iter().filter(|r| written(r.role)).map(|r| r.bytes);
    let own = plan.buffers.iter().filter(|b| b.place.is_none() && written(b.role));
    let all = regions.chain(own.map(|b| b.bytes()));
    all.map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum()
}

/// The values that the templates of a library are filled in with.
struct Library<'a> {
    name: &'a Name,
    ports: &'a Ports,
    kernels: &'a [Kernel<'a>],
    flags: &'a Flags,
    at: &'a TargetContext,
    threads: usize,
    onnxruntime: bool,
    workspace: u64,
    counts: KernelCounts,
}

impl Library<'_> {
    /// Writes all files but the weights.
    fn write(&self, folder: &Folder, plan: &str, facts: &Value) -> Result<(), Error> {
        let name = self.name.text();
        for (file, text) in host::exported(&host::EXPORTED) {
            folder.put(&format!("src/runtime/{file}"), text)?;
        }
        for k in self.kernels {
            folder.put(&format!("src/{}.c", k.symbol(self.name)), k.text(self.name))?;
        }
        let part = |of: &str| format!("#include \"names.h\"\n#include \"runtime/{of}.c\"\n");
        let mut names = sources::names(self.name, &host::EXPORTED);
        names += &sources::renamed(self.name, "rt_cpu_needs");
        folder.put("src/names.h", names)?;
        folder.put("src/needs.c", part("needs"))?;
        if self.threads > 1 {
            folder.put("src/pool.c", part("pool"))?;
        }
        folder.put("src/kernels.h", sources::kernels(self.name, self.kernels))?;
        let plan = sources::constant("What is run, in which order.", "plan_text", plan);
        folder.put("src/plan.h", plan)?;
        folder.put("src/describe.h", sources::description(facts))?;
        folder.put("src/open.c", self.place(include_str!("text/open.c"), &[]))?;
        folder.put("src/run.c", self.run())?;
        folder.put(&format!("{name}.h"), self.header())?;
        folder.put("example.c", self.example())?;
        if self.onnxruntime {
            let source = onnxruntime::source(self.name, self.ports, self.threads);
            folder.put("src/ort.c", source)?;
            let model = onnxruntime::model(self.name, self.ports);
            folder.put(&format!("{name}_ort.onnx"), model)?;
        }
        let build = Build {
            name: self.name,
            kernels: self.kernels,
            flags: self.flags,
            toolchain: &self.at.toolchain,
            threads: self.threads,
            onnxruntime: self.onnxruntime,
        };
        folder.put("Makefile", build.makefile())?;
        folder.put("CMakeLists.txt", build.cmake())?;
        folder.put("README.md", self.readme(facts))
    }

    fn place(&self, template: &str, more: &[(&str, &str)]) -> String {
        let common = [
            ("NAME", self.name.text()),
            ("UPPER", &self.name.upper()),
            ("THREADS", &self.threads.to_string()),
            ("WORKSPACE", &self.workspace.to_string()),
            ("MACHINE", &self.flags.machine),
        ];
        filled(&filled(template, more), &common)
    }

    fn run(&self) -> String {
        let several = self.threads > 1;
        let pool = if several { POOL } else { "  (void)pool;" };
        let (ins, outs) = self.ports.arguments();
        let clear = |p: &Port| {
            let field = &p.field;
            format!("  if (io->{field}) memset(io->{field}, 0, sizeof *io->{field});\n")
        };
        let clear: String = self.ports.grown().map(clear).collect();
        let model = if self.ports.symbols.is_empty() { MODEL } else { MODEL_AT };
        let places = [
            ("INPUTS", &*ins),
            ("OUTPUTS", &*outs),
            ("POOL", pool),
            ("CLEAR", clear.as_str()),
            ("MODEL", model),
        ];
        self.place(include_str!("text/run.c"), &places)
    }

    fn header(&self) -> String {
        let default = match self.threads {
            1 => "a run is of one thread, and needs none",
            _ => "threads of OpenMP, where it was built with it",
        };
        let fields = self.ports.fields();
        let is_grown = self.ports.grown().next().is_some();
        let open = if is_grown { OPEN } else { "" };
        let extents = self.extents_field();
        let first = match self.ports.symbols.is_empty() {
            true => "",
            false => ",\n * but for the memory that the first run at an extent adds to the model",
        };
        let places = [
            ("FIELDS", &*fields),
            ("DEFAULT_POOL", default),
            ("OPEN", open),
            ("EXTENTS", &*extents),
            ("FIRST", first),
        ];
        self.place(include_str!("text/header.h"), &places)
    }

    /// The field of a run's struct that has the extents of symbols.
    fn extents_field(&self) -> String {
        let one = |s: &Symbol| format!("{}: {s}", plain(&s.name));
        let all: Vec<String> = self.ports.symbols.iter().map(one).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!("  const int64_t *extents; /* {} */\n", all.join(", ")),
        }
    }

    fn example(&self) -> String {
        let (mut tensors, io) =
            (sources::example_tensors(self.ports), self.ports.filled("input", "output"));
        let is_grown = self.ports.grown().next().is_some();
        let [release, shown] = if is_grown { [RELEASE, SHOWN] } else { ["", ""] };
        let symbols = &self.ports.symbols;
        let extents = if symbols.is_empty() { "" } else { "extents, " };
        if !symbols.is_empty() {
            let most: Vec<String> = symbols.iter().map(|s| s.last().to_string()).collect();
            tensors += &format!(
                "\n\n/* The extents of the run: the largest. Tensors are of these. */\nstatic \
                 const int64_t extents[] = {{{}}};",
                most.join(", ")
            );
        }
        let places = [
            ("TENSORS", &*tensors),
            ("IO", &*io),
            ("RELEASE", release),
            ("SHOWN", shown),
            ("EXTENTS", extents),
        ];
        self.place(include_str!("text/example.c"), &places)
    }

    fn readme(&self, facts: &Value) -> String {
        let model = facts["model"]["file"].as_str().unwrap_or("a model");
        let threads_text = match self.threads {
            1 => {
                "A run uses the thread that calls it; run several at a time with a workspace each."
            }
            _ => {
                "The struct of a run takes a pool of the caller's; without one OpenMP's threads \
                 are used (`make OPENMP=` leaves OpenMP out)."
            }
        };
        let ort = self.onnxruntime;
        let ort_file = "| `@NAME@_ort.onnx` | a model of one node, for ONNX Runtime |\n";
        let ort_text = "- **ONNX Runtime:** `options.register_custom_ops_library(\
                        \"./lib@NAME@_ort.so\")`, then load\n  `@NAME@_ort.onnx`; \
                        `@NAME@.weights` must lie beside the library. ONNX Runtime 1.17 or later.";
        self.place(
            include_str!("text/README.md"),
            &[
                ("MODEL", &plain(model)),
                ("VERSION", env!("CARGO_PKG_VERSION")),
                ("COUNTS", &self.counts.to_string()),
                ("OPENMP_LINK", if self.threads > 1 { " -fopenmp" } else { "" }),
                ("TENSOR_TABLE", &self.ports.table()),
                ("THREADS_TEXT", threads_text),
                ("ORT_FILE", if ort { ort_file } else { "" }),
                ("ORT_TEXT", if ort { ort_text } else { "" }),
            ],
        )
    }
}

/// Builds a library by its Makefile.
fn build(folder: &Path, compiler: &str) -> Result<(), Error> {
    let fail = |message: String| Error::Build {
        message,
        hint: format!(
            "the sources are in `{}`; `make` there shows everything, and cmake builds them too",
            folder.display()
        ),
    };
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("make");
    command.args([format!("-j{jobs}"), format!("CC={compiler}")]);
    match command.current_dir(folder).stdin(Stdio::null()).output() {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => {
            let said = String::from_utf8_lossy(&o.stderr);
            let line = said.lines().find(|l| l.contains("rror")).unwrap_or("it says nothing");
            Err(fail(format!("the library cannot be built: {line}")))
        }
        Err(e) => Err(fail(format!("`make` cannot be run: {e}"))),
    }
}

/// One line on a tensor, for a terminal.
pub fn line(p: &Port) -> String {
    format!("{}: {} {}", p.name, interface::spelling(p.element).1, extents(&p.shape, " x "))
}
