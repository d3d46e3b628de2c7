//! Runs Squall as a user does on a model of one or several random graphs, with a choice of threads,
//! level of instructions and named extents ([`Way`]). Output: the arrays of each case, or the error
//! or signal with which the program ended.

use super::case::{Case, merged};
use super::compare::Arrays;
use super::peer::{read_arrays, written};
use crate::campaign::sandbox::wait;
use prost::Message as _;
use squall_frontend::onnx::proto::ModelProto;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The options with which Squall is run.
#[derive(Clone, Debug)]
pub struct Way {
    /// Threads.
    pub threads: usize,
    /// The level of instructions.
    pub isa: &'static str,
    /// Whether extents of inputs are names in the model, which `--dim` binds.
    pub is_symbolic: bool,
    /// Whether nothing is fused and the compiler does little: every value is asked for, and all is
    /// compiled with -O1.
    pub is_literal: bool,
}

impl Way {
    /// The options as the user writes them.
    pub fn words(&self) -> String {
        format!("--threads {} --isa {}", self.threads, self.isa)
    }
}

/// The result of a run.
pub enum Outcome {
    /// Its results.
    Gave(Arrays),
    /// It failed with a message.
    Refused(String),
    /// It died, hung or panicked.
    Died(String),
    /// The campaign ended before it did.
    Over,
}

/// Where Squall is and where it works.
pub struct Subject<'a> {
    /// The program.
    pub binary: &'a Path,
    /// Where compiled kernels are kept.
    pub cache: PathBuf,
    /// A folder of its own.
    pub folder: PathBuf,
    /// The most threads that the program takes here; older ones take no more than there are cores.
    pub most: std::cell::Cell<usize>,
    /// When the campaign ends: nothing runs on beyond it.
    pub end: Option<Instant>,
    /// The core that it runs on, where several models are run at once: each would pin its kernels
    /// to the same one.
    pub core: Option<usize>,
}

/// The cores that this process may run on.
pub fn cores() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    let range = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    list.unwrap_or("").split(',').filter_map(range).flatten().collect()
}

/// Seconds that a model may take; kernels of a whole batch are compiled in it.
const PATIENCE: u64 = 240;

impl Subject<'_> {
    /// Whether the campaign has ended.
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|e| Instant::now() >= e)
    }

    /// Runs cases as one model.
    pub fn run(&self, cases: &[Case], way: &Way) -> Outcome {
        let way = Way { threads: way.threads.min(self.most.get()), ..way.clone() };
        let outcome = self.try_run(cases, &way);
        let outcome =
            outcome.unwrap_or_else(|e| Outcome::Refused(format!("error: it is not run: {e}")));
        match outcome {
            Outcome::Refused(said) if way.threads > 1 && said.contains("threads cannot be") => {
                self.most.set(way.threads - 1);
                self.run(cases, &way)
            }
            other => other,
        }
    }

    fn try_run(&self, cases: &[Case], way: &Way) -> std::io::Result<Outcome> {
        if self.is_over() {
            return Ok(Outcome::Over);
        }
        let mut cases = cases.to_vec();
        if way.is_literal {
            cases.iter_mut().for_each(|c| c.outputs = c.made());
        }
        let place = self.folder.join("subject");
        // Results of the run before are not taken for this one's.
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join("out"))?;
        std::fs::create_dir_all(&self.cache)?;
        let mut model = merged(&cases);
        let mut command = match self.core {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &core.to_string()]).arg(self.binary);
                command
            }
            None => Command::new(self.binary),
        };
        let extents = if way.is_symbolic { symbols(&mut model) } else { BTreeSet::new() };
        std::fs::write(place.join("model.onnx"), model.encode_to_vec())?;
        command.args(["run", "model.onnx"]).args(way.words().split(' '));
        for (name, array) in cases.iter().flat_map(|c| &c.inputs) {
            std::fs::write(place.join(format!("{name}.npy")), written(array))?;
            command.args(["--input", &format!("{name}={name}.npy")]);
        }
        for e in extents {
            command.args(["--dim", &format!("e{e}={e}")]);
        }
        let names: Vec<String> = cases.iter().flat_map(|c| c.outputs.clone()).collect();
        for name in &names {
            command.args(["--output", &format!("{name}=out/{name}.npy")]);
        }
        if way.is_literal {
            command.env("CC", literal_compiler(&self.cache)?);
        } else {
            command.env_remove("CC");
        }
        let cache = self.cache.join(if way.is_literal { "literal" } else { "kernels" });
        command.env("XDG_CACHE_HOME", cache).env_remove("SQUALL_STORE").current_dir(&place);
        command.stdin(Stdio::null()).stdout(File::create(place.join("said"))?);
        command.stderr(File::create(place.join("complained"))?).process_group(0);
        let mut child = command.spawn()?;
        let left = self.end.map_or(Duration::MAX, |e| e.saturating_duration_since(Instant::now()));
        let status = wait(&mut child, left.min(Duration::from_secs(PATIENCE)));
        if status.is_none() && self.is_over() {
            return Ok(Outcome::Over);
        }
        let said = std::fs::read(place.join("complained")).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        let Some(status) = status else { return Ok(Outcome::Died("it hangs".into())) };
        if status.success() {
            return Ok(match read_arrays(&place.join("out"), &names) {
                Ok(all) => Outcome::Gave(all),
                Err(e) => Outcome::Died(format!("an output cannot be read: {e}")),
            });
        }
        let is_dead = status.signal().is_some() || said.contains("panicked at");
        // A network's own program that died is said by an error.
        let is_dead = is_dead || said.contains("signal") || !said.contains("error");
        Ok(if is_dead { Outcome::Died(said) } else { Outcome::Refused(said) })
    }
}

/// Gives the first extents of a model's inputs names, and says which they have.
fn symbols(model: &mut ModelProto) -> BTreeSet<i64> {
    let inputs = model.graph.iter_mut().flat_map(|g| g.input.iter_mut());
    let types = inputs.filter_map(|i| i.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut());
    let mut all = BTreeSet::new();
    for first in types.filter_map(|s| s.dim.first_mut()) {
        if let Some(e) = first.dim_value.take() {
            first.dim_param = Some(format!("e{e}"));
            all.insert(e);
        }
    }
    all
}

/// A compiler that optimises little, whatever it is asked for.
fn literal_compiler(folder: &Path) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("literal-cc");
    if !path.exists() {
        std::fs::create_dir_all(folder)?;
        let text = "#!/bin/sh\n# The flags that come last count.\nexec cc \"$@\" -O1 \
                    -fno-tree-vectorize -ffp-contract=off\n";
        let beside = folder.join(format!("literal-cc-{:?}", std::thread::current().id()));
        std::fs::write(&beside, text)?;
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755))?;
        std::fs::rename(&beside, &path)?;
    }
    Ok(path)
}
