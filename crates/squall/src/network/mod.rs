//! A model run as a whole: its kernels one after the other over one region of memory, with
//! everything that does not depend on the input made ahead. The network runs in a program of its
//! own, built from the kernels and a driver, so that no kernel can harm this process.

pub mod arena;
mod files;

use crate::error::Error;
use crate::export::{Chosen, KernelCounts, comment, compile, library, objects};
use crate::input::Input;
use crate::target_context::TargetContext;
use files::Layout;
use squall_core::graph::Weights;
use squall_core::{KernelSource, Task, TaskId};
use squall_frontend::npy::{self, Array};
use squall_frontend::read_weights;
use squall_graph::Assignment;
use squall_graph::plan::{Plan, Work};
use squall_measure::cpu::Toolchain;
use squall_runtime::host;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What chooses the kernels of tasks.
pub type MakeKernels<'a> = dyn FnMut(&[&Task]) -> Result<Vec<Chosen>, Error> + 'a;

/// The program that runs the network.
const PROGRAM: &str = "network";

/// Writes a .npy file.
pub fn write_array(path: &Path, array: &Array) -> Result<(), Error> {
    std::fs::write(path, npy::write(array))
        .map_err(|source| Error::Write { path: path.into(), source })
}

/// A step with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The node; of a kernel the first of its nodes.
    pub node: String,
    /// The task's name, or the operator of a node that only moves data.
    pub name: String,
    /// The task, of kernels.
    pub task: Option<TaskId>,
    /// The fastest of those inferences that were timed step by step.
    pub best_ns: u64,
}

/// Times of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// The fastest inference, from the input's copy to the output's.
    pub best_ns: u64,
    /// The median.
    pub median_ns: u64,
    /// How many were timed.
    pub inferences: u64,
    /// In order of execution.
    pub layers: Vec<Layer>,
}

/// A model that was built and can be run.
pub struct Network {
    /// The model's name, for messages.
    name: String,
    folder: PathBuf,
    /// Removes the folder at the end, unless the caller keeps it.
    _temporary: Option<TempDir>,
    graph: Assignment,
    plan: Plan,
    kernels: Vec<Chosen>,
    cores: Vec<usize>,
    arena_bytes: usize,
}

impl Network {
    /// Builds a model of the kernels that `make` gives for its tasks. `keep` is a folder for the
    /// program and what it reads; kernels that did not change since it was written there are not
    /// compiled again.
    pub fn build(
        input: &Input,
        keep: Option<&Path>,
        at: &TargetContext,
        make: &mut MakeKernels<'_>,
    ) -> Result<Network, Error> {
        let fault = |message: String, hint: &str| Error::Input {
            place: input.name.clone(),
            message,
            hint: hint.into(),
        };
        let (Some(graph), Some(_)) = (&input.graph, &input.path) else {
            return Err(fault("it is no model that can be run".into(), "give a model.onnx"));
        };
        if graph.inputs.len() != 1 || graph.outputs.is_empty() {
            let names: Vec<&str> = graph.inputs.iter().map(|i| i.0.as_str()).collect();
            let message = format!(
                "it has {} inputs ({}) and {} outputs",
                names.len(),
                names.join(", "),
                graph.outputs.len()
            );
            return Err(fault(message, "models of one input are run"));
        }
        let weights = weights(input)?;
        let mut plan =
            graph.plan(weights).map_err(|e| fault(e, "such models can be tuned, but not run"))?;
        let kernels = make(&input.tasks.iter().collect::<Vec<_>>())?;
        let layout = Layout::new(&plan, &kernels);
        let (folder, temporary) = folder(keep)?;
        files::write(&folder, &plan, &layout, &kernels)?;
        // They are in the file now.
        plan.constants = Vec::new();
        program(&folder, &kernels, at.device.cores.len(), &at.toolchain)?;
        let (name, graph, cores) = (input.name.clone(), graph.clone(), at.device.cores.clone());
        Ok(Network {
            name,
            folder,
            _temporary: temporary,
            graph,
            plan,
            kernels,
            cores,
            arena_bytes: layout.bytes,
        })
    }

    /// Bytes of the region that activations and scratch memory share.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Weights that the file does not hold: they are random.
    pub fn random_weights(&self) -> &[String] {
        &self.plan.random
    }

    /// Its kernels.
    pub fn kernels(&self) -> &[Chosen] {
        &self.kernels
    }

    /// How many of its kernels were tuned, and how many not.
    pub fn counts(&self) -> KernelCounts {
        KernelCounts::of(&self.kernels)
    }

    /// An input where the user gives none: the same numbers in every run.
    pub fn random_input(&self) -> Array {
        Array {
            shape: self.graph.inputs.first().map_or(Vec::new(), |i| i.1.clone()),
            data: self.graph.random_input(0),
        }
    }

    /// Runs it once; gives the first output.
    pub fn run(&self, x: &Array) -> Result<Array, Error> {
        Ok(self.execute(x, 0.0)?.0)
    }

    /// Runs it for so many seconds; gives the first output, and times.
    pub fn time(&self, x: &Array, seconds: f64) -> Result<(Array, Times), Error> {
        let (output, said) = self.execute(x, seconds)?;
        Ok((output, self.times(&said)?))
    }

    /// Runs the program on an input: the first output, and what was printed.
    fn execute(&self, x: &Array, seconds: f64) -> Result<(Array, String), Error> {
        fits(&self.name, &self.graph, x)?;
        let file = self.folder.join("input.bin");
        let bytes: Vec<u8> = x.data.iter().flat_map(|x| x.to_ne_bytes()).collect();
        std::fs::write(&file, bytes).map_err(|source| Error::Write { path: file, source })?;
        let said = self.launch(seconds)?;
        let file = self.folder.join("output.bin");
        let bytes = std::fs::read(&file).map_err(|source| Error::Read { path: file, source })?;
        let data =
            bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
        let shape = self.graph.outputs.first().map_or(Vec::new(), |o| o.1.clone());
        Ok((Array { shape, data }, said))
    }

    fn launch(&self, seconds: f64) -> Result<String, Error> {
        let mut command = Command::new(self.folder.join(PROGRAM));
        command.arg(seconds.to_string()).current_dir(&self.folder).stdin(Stdio::null());
        if self.cores.len() > 1 {
            // As kernels are measured: one thread a core, on the same cores.
            let places: Vec<String> = self.cores.iter().map(|c| format!("{{{c}}}")).collect();
            command
                .env("OMP_NUM_THREADS", self.cores.len().to_string())
                .env("OMP_PROC_BIND", "true")
                .env("OMP_PLACES", places.join(","));
            command
                .env("OMP_DYNAMIC", "false")
                .env_remove("OMP_THREAD_LIMIT")
                .env_remove("GOMP_CPU_AFFINITY");
        }
        let fail = |message: String| Error::Build {
            message,
            hint: "`squall check` runs a model kernel by kernel".into(),
        };
        let done = command
            .output()
            .map_err(|e| fail(format!("the network's program does not start: {e}")))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(fail(format!(
                "the network's program failed ({}): {}",
                done.status,
                said.trim()
            )));
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Reads the lines that the program prints.
    fn times(&self, said: &str) -> Result<Times, Error> {
        let mut times = None;
        let mut best = vec![0; self.plan.steps.len()];
        for line in said.lines() {
            let numbers: Vec<u64> =
                line.split(' ').skip(1).filter_map(|w| w.parse().ok()).collect();
            match (line.split(' ').next(), &numbers[..]) {
                (Some("inferences"), &[count, best, median]) => times = Some((count, best, median)),
                (Some("step"), &[i, ns]) if (i as usize) < best.len() => best[i as usize] = ns,
                _ => {}
            }
        }
        let Some((inferences, best_ns, median_ns)) = times else {
            return Err(Error::Nothing("the network's program printed no times".into()));
        };
        let layers = self.plan.steps.iter().zip(best).map(|(s, best_ns)| {
            let task = if let Work::Kernel { task, .. } = s.work { Some(task) } else { None };
            let name = self
                .kernels
                .iter()
                .find(|k| Some(k.task.id) == task)
                .map_or(s.op.clone(), |k| k.task.name.clone());
            Layer { node: s.node.clone(), name, task, best_ns }
        });
        Ok(Times { best_ns, median_ns, inferences, layers: layers.collect() })
    }
}

/// Whether a model can be run on an array: what is wrong, before anything is built.
pub fn accepts(input: &Input, x: &Array) -> Result<(), Error> {
    input.graph.as_ref().map_or(Ok(()), |graph| fits(&input.name, graph, x))
}

fn fits(model: &str, graph: &Assignment, x: &Array) -> Result<(), Error> {
    match graph.inputs.first() {
        Some((name, shape)) if shape.iter().product::<i64>() != x.data.len() as i64 => {
            Err(Error::Input {
                place: model.into(),
                message: format!(
                    "input `{name}` has shape {shape:?}, the given array {:?}",
                    x.shape
                ),
                hint: "give an array of the input's shape, or the batch with --dim".into(),
            })
        }
        _ => Ok(()),
    }
}

/// The weights of a model's file, and of files beside it; none where it has no file.
pub fn weights(input: &Input) -> Result<Weights, Error> {
    let Some(path) = &input.path else { return Ok(Weights::new()) };
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.clone(), source })?;
    let import = |source| Error::Import { place: path.display().to_string(), source };
    let read = read_weights(&bytes, &input.name, &mut |name, offset, length| {
        beside(path, name, offset, length)
    });
    read.map_err(import)
}

/// Bytes of a file in a model's folder, if it is there: nothing outside that folder is read.
fn beside(model: &Path, name: &str, offset: u64, length: u64) -> Option<Vec<u8>> {
    if Path::new(name).components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return None;
    }
    let mut file = std::fs::File::open(model.parent()?.join(name)).ok()?;
    // A damaged file may state any length: no more is asked for than there is.
    if file.metadata().ok()?.len() < offset.checked_add(length)? {
        return None;
    }
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn folder(keep: Option<&Path>) -> Result<(PathBuf, Option<TempDir>), Error> {
    if let Some(path) = keep {
        let path = std::path::absolute(path)
            .map_err(|source| Error::Write { path: path.into(), source })?;
        std::fs::create_dir_all(&path)
            .map_err(|source| Error::Write { path: path.clone(), source })?;
        return Ok((path, None));
    }
    let made = tempfile::Builder::new().prefix("squall-network-").tempdir();
    let made = made.map_err(|source| Error::Write { path: std::env::temp_dir(), source })?;
    Ok((made.path().into(), Some(made)))
}

/// Compiles and links the program.
fn program(
    folder: &Path,
    kernels: &[Chosen],
    threads: usize,
    toolchain: &Toolchain,
) -> Result<(), Error> {
    let put = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|source| Error::Write { path: path.into(), source })
    };
    // A source says how it was compiled: where the same text lies beside an object, that is it.
    let made_with =
        format!("{} {}", toolchain.id(), toolchain.flags().join(" ")).replace("*/", "* /");
    let made_with = format!("/* {made_with} */\n");
    let mut changed: Vec<&KernelSource> = Vec::new();
    for k in kernels {
        let path = folder.join(format!("{}.c", k.source.symbol));
        let text = made_with.clone() + &comment(k) + &k.source.source;
        if path.with_extension("o").is_file()
            && std::fs::read_to_string(&path).is_ok_and(|t| t == text)
        {
            continue;
        }
        // An object of older text must not stay, should compiling fail now.
        let _ = std::fs::remove_file(path.with_extension("o"));
        put(&path, &text)?;
        changed.push(&k.source);
    }
    objects(folder, &changed, toolchain)?;
    put(&folder.join("network.c"), host::NETWORK.1)?;
    put(&folder.join("kernels.c"), &files::linked(kernels, threads))?;
    library(folder)?;
    let objects: Vec<String> = kernels.iter().map(|k| format!("{}.o", k.source.symbol)).collect();
    let mut link = vec!["-O3"];
    link.extend(toolchain.flags().iter().map(String::as_str));
    link.extend((threads > 1 && toolchain.openmp()).then_some("-fopenmp"));
    link.extend(["-o", PROGRAM, "network.c"]);
    link.extend(objects.iter().map(String::as_str));
    link.extend(["-lm", "-ldl"]);
    compile(folder, toolchain, &link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_models_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("in/m.onnx");
        std::fs::create_dir(folder.path().join("in")).unwrap();
        std::fs::write(folder.path().join("in/w.data"), b"abcd").unwrap();
        std::fs::write(folder.path().join("secret"), b"abcd").unwrap();
        assert_eq!(beside(&model, "w.data", 1, 2).as_deref(), Some(&b"bc"[..]));
        assert_eq!(beside(&model, "./w.data", 0, 4).as_deref(), Some(&b"abcd"[..]));
        assert_eq!(beside(&model, "w.data", 1, 4), None);
        assert_eq!(beside(&model, "w.data", 1, u64::MAX), None);
        assert_eq!(beside(&model, "absent", 0, 0), None);
        assert_eq!(beside(&model, "../secret", 0, 1), None);
        assert_eq!(beside(&model, &folder.path().join("secret").to_string_lossy(), 0, 1), None);
    }
}
