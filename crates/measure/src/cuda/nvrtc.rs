//! CUDA C to cubins: processes that keep NVRTC loaded, as many as builders want at a time.

use crate::MeasureError;
use crate::cpu::{Build, Built, Reply, Runner, digest};
use squall_core::{KernelSource, LaunchPhase};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Compilers that stand ready; they run the laboratory's runner program.
pub(crate) struct Nvrtc {
    architecture: String,
    idle: Mutex<Vec<Runner>>,
}

impl Nvrtc {
    pub fn new(architecture: String) -> Nvrtc {
        Nvrtc { architecture, idle: Mutex::new(Vec::new()) }
    }

    /// Compiles a kernel in `folder`, where the runner program lies, and writes how it is launched
    /// beside it.
    pub fn build(&self, folder: &Path, kernel: &KernelSource, patience: Duration) -> Build {
        let name = digest(kernel);
        let write = |file: String, text: &str| {
            let path = folder.join(file);
            fs::write(&path, text).map_err(|e| MeasureError::folder(&path, &e))
        };
        write(format!("{name}.cu"), &kernel.source)?;
        let mut launches = String::new();
        for l in &kernel.launches {
            let phase = if l.phase == LaunchPhase::Prepare { "prepare" } else { "call" };
            let _ = writeln!(launches, "{phase} {} {} {} {}", l.entry, l.blocks, l.threads, l.shared);
        }
        write(format!("{name}.cubin.launch"), &launches)?;
        let waiting = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut compiler = match waiting {
            Some(c) => c,
            None => self.start(folder)?,
        };
        let reply = compiler.ask(&format!("compile {name}.cu {name}.cubin"), patience)?;
        let _ = fs::remove_file(folder.join(format!("{name}.cu")));
        let (built, cpu) = match reply {
            Reply::Answer(words, cpu) => {
                self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(compiler);
                match words.strip_prefix("failed ") {
                    None => (Built::Library(format!("{name}.cubin").into()), cpu),
                    Some(why) => match why.split_once(' ') {
                        Some(("file", why)) => return Err(MeasureError::Folder { path: folder.into(), reason: why.into() }),
                        Some((_, why)) => (Built::Refused(why.trim().into()), cpu),
                        None => (Built::Refused(why.into()), cpu),
                    },
                }
            }
            Reply::Late(cpu) => (Built::Refused(format!("NVRTC did not end within {:.0} s", patience.as_secs_f64())), cpu),
            Reply::Died(how, cpu) => (Built::Refused(format!("NVRTC crashed: {how}")), cpu),
        };
        Ok(Some((built, cpu)))
    }

    fn start(&self, folder: &Path) -> Result<Runner, MeasureError> {
        let mut runner = Runner::begin(folder, &["nvrtc", &self.architecture])?;
        match runner.hear(Duration::from_secs(60))? {
            Reply::Answer(a, _) if a == "ready" => Ok(runner),
            Reply::Answer(a, _) => Err(MeasureError::Runner(format!("NVRTC: {a}"))),
            Reply::Died(how, _) => Err(MeasureError::Runner(format!("NVRTC does not start: {how}"))),
            Reply::Late(_) => Err(MeasureError::Runner("NVRTC does not start within 60 s".into())),
        }
    }
}
