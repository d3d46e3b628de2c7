//! Compiles CUDA C to cubins with NVRTC, in processes that keep NVRTC loaded: one for each build
//! that runs at a time, reused afterwards. Input: a kernel source; output: a cubin file, with the
//! mangled names of its functions where the source is a user's.

use crate::artifact::{Build, BuildSite, Built, digest};
use crate::cpu::{Reply, Runner, ready, unexpected};
use squall_core::{KernelSource, MeasurerError};
use squall_runtime::protocol::{self, Failure, Place, Request, Start};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The usual folder of CUDA's headers, for users' kernels that include them.
const INCLUDES: [&str; 1] = ["/usr/local/cuda/include"];

/// The file that holds the names of a cubin's functions, where they are not those of the source.
pub(crate) fn names_file(cubin: &str) -> String {
    format!("{cubin}.names")
}

/// Whether a kernel's functions have mangled C++ names in the cubin. Users' kernels have; generated
/// kernels have C names.
pub(crate) fn has_lowered_names(kernel: &KernelSource) -> bool {
    kernel.launches.iter().any(|l| l.arguments.is_some())
}

/// The functions that a kernel launches: one that is launched several times stands here once.
fn entries(kernel: &KernelSource) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for l in &kernel.launches {
        if !all.contains(&l.entry.as_str()) {
            all.push(&l.entry);
        }
    }
    all
}

/// The names in the cubin of the functions of all launches, by those of [`entries`].
fn of_launches<'a>(kernel: &'a KernelSource, names: &'a [String]) -> Vec<&'a str> {
    let entries = entries(kernel);
    let name = |entry: &'a String| {
        let at = entries.iter().position(|e| e == entry);
        at.and_then(|at| names.get(at)).unwrap_or(entry).as_str()
    };
    kernel.launches.iter().map(|l| name(&l.entry)).collect()
}

/// Compiler processes that stand ready; they run the runner program in the measurer's folder.
pub(crate) struct Nvrtc {
    architecture: String,
    idle: Mutex<Vec<Runner>>,
}

impl Nvrtc {
    pub fn new(architecture: String) -> Nvrtc {
        Nvrtc { architecture, idle: Mutex::new(Vec::new()) }
    }

    /// Compiles a kernel in the folder where the runner program lies, and writes the names of its
    /// functions beside it where they need that. NVRTC cannot be cancelled.
    pub fn build(&self, kernel: &KernelSource, site: BuildSite) -> Build {
        let (name, folder) = (digest(kernel), site.folder);
        let write = |file: String, text: &str| {
            let path = folder.join(file);
            fs::write(&path, text).map_err(|e| MeasurerError::folder(&path, &e))
        };
        write(format!("{name}.cu"), &kernel.source)?;
        let named = has_lowered_names(kernel);
        if named {
            let options = kernel.flags.iter().map(|f| format!("option {f}\n"));
            let include = INCLUDES
                .into_iter()
                .filter(|p| Path::new(p).is_dir())
                .map(|p| format!("option -I{p}\n"));
            let names = entries(kernel).into_iter().map(|e| format!("name {e}\n"));
            write(
                format!("{name}.options"),
                &options.chain(include).chain(names).collect::<String>(),
            )?;
        }
        let waiting = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut compiler = match waiting {
            Some(c) => c,
            None => self.start(folder)?,
        };
        let (from, to, with) =
            (format!("{name}.cu"), format!("{name}.cubin"), format!("{name}.options"));
        let with = named.then_some(with.as_str());
        let reply = compiler.ask(&Request::Compile { from: &from, to: &to, with }, site.timeout)?;
        let _ = fs::remove_file(folder.join(format!("{name}.cu")));
        let _ = fs::remove_file(folder.join(format!("{name}.options")));
        let (built, cpu) = match reply {
            Reply::Answer(reply, cpu) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(compiler);
                match reply {
                    protocol::Reply::Built(names) => {
                        if named {
                            write(names_file(&to), &of_launches(kernel, &names).join("\n"))?;
                        }
                        (Built::Library(to.into()), cpu)
                    }
                    protocol::Reply::Failed(Failure { place: Place::File, message, .. }) => {
                        return Err(MeasurerError::Folder { path: folder.into(), reason: message });
                    }
                    protocol::Reply::Failed(f) => (Built::Refused(f.message), cpu),
                    other => return Err(unexpected(&other)),
                }
            }
            Reply::Late(cpu) => {
                let limit = site.timeout.as_secs_f64();
                (Built::Refused(format!("NVRTC did not end within {limit:.0} s")), cpu)
            }
            Reply::Died(how, cpu) => (Built::Refused(format!("NVRTC crashed: {how}")), cpu),
        };
        Ok(Some((built, cpu)))
    }

    fn start(&self, folder: &Path) -> Result<Runner, MeasurerError> {
        let mut runner = Runner::begin(folder, &Start::Compiler(self.architecture.clone()))?;
        match runner.hear(Duration::from_secs(60))? {
            Reply::Answer(protocol::Reply::Failed(f), _) => {
                Err(MeasurerError::Runner(format!("NVRTC: {}", f.message)))
            }
            Reply::Answer(reply, _) => ready(reply).map(|()| runner),
            Reply::Died(how, _) => {
                Err(MeasurerError::Runner(format!("NVRTC does not start: {how}")))
            }
            Reply::Late(_) => Err(MeasurerError::Runner("NVRTC does not start within 60 s".into())),
        }
    }
}
