//! From CUDA C to cubins: processes that keep NVRTC loaded, one for each build that runs at a
//! time.

use crate::artifact::{Build, BuildSite, Built, digest};
use crate::cpu::{Reply, Runner};
use squall_core::{KernelSource, LaunchArgument, LaunchPhase, Mapped, MeasurerError, TensorMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where CUDA's headers usually lie, for users' kernels that include them.
const INCLUDES: [&str; 1] = ["/usr/local/cuda/include"];

/// How a kernel is launched, as `gpu.h` reads it; `names` of its functions in the cubin, where they
/// are not those of the source.
fn launches(kernel: &KernelSource, names: &[&str]) -> String {
    let mut text = String::new();
    for (i, l) in kernel.launches.iter().enumerate() {
        let phase = if l.phase == LaunchPhase::Prepare { "prepare" } else { "call" };
        let ([a, b, c], [x, y, z]) = (l.blocks, l.threads);
        let entry = names.get(i).copied().unwrap_or(&l.entry);
        let count = l.arguments.as_ref().map_or(-1, |a| a.len() as i64);
        let _ = write!(
            text,
            "{phase} {entry} {a} {b} {c} {x} {y} {z} {} {count} {}",
            l.shared,
            l.maps.len()
        );
        for a in l.arguments.iter().flatten() {
            let _ = match a {
                LaunchArgument::Data(n) => write!(text, " d{n}"),
                LaunchArgument::Output(n) => write!(text, " o{n}"),
                LaunchArgument::Restored { output, data } => write!(text, " r{output},{data}"),
                LaunchArgument::Number(bytes) => {
                    write!(
                        text,
                        " x{}",
                        bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()
                    )
                }
            };
        }
        l.maps.iter().for_each(|m| text += &map(m));
        text.push('\n');
    }
    text
}

/// A tensor map as `gpu.h` reads it.
fn map(m: &TensorMap) -> String {
    let (kind, at) = match m.memory {
        Mapped::Data(n) => ('d', u64::from(n)),
        Mapped::Prepared(byte) => ('p', byte),
        Mapped::Workspace(byte) => ('w', byte),
    };
    let numbers = m
        .extents
        .iter()
        .chain(&m.strides)
        .copied()
        .chain(m.spanned.iter().chain(&m.steps).map(|x| u64::from(*x)));
    let list: String = numbers.map(|x| format!(" {x}")).collect();
    format!(" {kind}{at} {}{list}", m.extents.len())
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

    /// Compiles a kernel in the folder where the runner program lies, and writes how it is launched
    /// beside it. NVRTC cannot be cancelled.
    pub fn build(&self, kernel: &KernelSource, site: BuildSite) -> Build {
        let (name, folder) = (digest(kernel), site.folder);
        let write = |file: String, text: &str| {
            let path = folder.join(file);
            fs::write(&path, text).map_err(|e| MeasurerError::folder(&path, &e))
        };
        write(format!("{name}.cu"), &kernel.source)?;
        // Functions that are made by rule have C names; those of users' kernels have what C++ makes
        // of their names, which NVRTC tells.
        let named = kernel.launches.iter().any(|l| l.arguments.is_some());
        let mut command = format!("compile {name}.cu {name}.cubin");
        if named {
            let options = kernel.flags.iter().map(|f| format!("option {f}\n"));
            let include = INCLUDES
                .into_iter()
                .filter(|p| Path::new(p).is_dir())
                .map(|p| format!("option -I{p}\n"));
            let names = kernel.launches.iter().map(|l| format!("name {}\n", l.entry));
            write(
                format!("{name}.options"),
                &options.chain(include).chain(names).collect::<String>(),
            )?;
            let _ = write!(command, " {name}.options");
        }
        let waiting = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut compiler = match waiting {
            Some(c) => c,
            None => self.start(folder)?,
        };
        let reply = compiler.ask(&command, site.timeout)?;
        let _ = fs::remove_file(folder.join(format!("{name}.cu")));
        let _ = fs::remove_file(folder.join(format!("{name}.options")));
        let (built, cpu) = match reply {
            Reply::Answer(words, cpu) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(compiler);
                match words.strip_prefix("failed ") {
                    None => {
                        let names: Vec<&str> = words.split(' ').skip(2).collect();
                        write(format!("{name}.cubin.launch"), &launches(kernel, &names))?;
                        (Built::Library(format!("{name}.cubin").into()), cpu)
                    }
                    Some(why) => match why.split_once(' ') {
                        Some(("file", why)) => {
                            return Err(MeasurerError::Folder {
                                path: folder.into(),
                                reason: why.into(),
                            });
                        }
                        Some((_, why)) => (Built::Refused(why.trim().into()), cpu),
                        None => (Built::Refused(why.into()), cpu),
                    },
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
        let mut runner = Runner::begin(folder, &["nvrtc", &self.architecture])?;
        match runner.hear(Duration::from_secs(60))? {
            Reply::Answer(a, _) if a == "ready" => Ok(runner),
            Reply::Answer(a, _) => Err(MeasurerError::Runner(format!("NVRTC: {a}"))),
            Reply::Died(how, _) => {
                Err(MeasurerError::Runner(format!("NVRTC does not start: {how}")))
            }
            Reply::Late(_) => Err(MeasurerError::Runner("NVRTC does not start within 60 s".into())),
        }
    }
}
