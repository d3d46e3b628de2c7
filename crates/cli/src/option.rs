//! Options that several commands share, each defined once.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use squall::{Channels, GuessRequest, InputRequest, NetworkRequest, TargetRequest};
use std::path::PathBuf;

/// What to work on.
#[derive(Args)]
pub struct InputArgs {
    /// A model.onnx, a list.ops of operator lines, a kernel.toml, a file.workload, or one operator
    /// line in quotes
    #[arg(value_name = "INPUT")]
    pub input: String,
    /// Extent of a symbolic dimension of the model, for instance N=1; may be repeated
    #[arg(long = "dim", value_name = "NAME=EXTENT", value_parser = dimension)]
    pub dims: Vec<(String, i64)>,
    /// Where images that only a model's kernels see have their channels: `first`, as in the model,
    /// or `last` [default: last on a CPU; whole models are run as their tuned kernels are fastest
    /// together]
    #[arg(long, value_name = "ORDER", value_parser = channels())]
    pub channels: Option<Channels>,
    /// Cover a model by the kernels and layouts of this file: an assignment as `squall explain
    /// --stage assignment` prints it
    #[arg(long, value_name = "FILE", conflicts_with = "channels")]
    pub assignment: Option<PathBuf>,
}

impl InputArgs {
    /// What the options ask for.
    pub fn request(&self) -> InputRequest {
        InputRequest {
            source: self.input.clone(),
            dims: self.dims.clone(),
            channels: self.channels,
            assignment: self.assignment.clone(),
        }
    }
}

fn channels() -> impl TypedValueParser<Value = Channels> {
    let named =
        |text: String| Channels::ALL.iter().find(|(_, name)| *name == text).map(|(c, _)| *c);
    PossibleValuesParser::new(Channels::ALL.iter().map(|(_, name)| *name))
        .try_map(move |text| named(text).ok_or("no such order"))
}

fn dimension(text: &str) -> Result<(String, i64), String> {
    let (name, extent) = text.split_once('=').ok_or("expected NAME=EXTENT, for instance N=1")?;
    let n: i64 = extent.trim().parse().map_err(|_| format!("`{extent}` is not a whole number"))?;
    if n < 1 || name.trim().is_empty() {
        return Err("expected a name and an extent of at least 1, for instance N=1".into());
    }
    Ok((name.trim().into(), n))
}

/// Where records are kept.
#[derive(Args)]
pub struct StoreArgs {
    /// The store of records
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE", default_value = STORE)]
    pub store: PathBuf,
}

/// The store that is written where none is named, and read where it is there.
const STORE: &str = "tuned.squall";

/// Which kernels are used.
#[derive(Args)]
pub struct KernelArgs {
    /// Use the tuned kernels of this store [default: tuned.squall, where it is there]
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE")]
    store: Option<PathBuf>,
    /// Kernels that were never tuned are this predictor's first answers, where the store has no
    /// similar task; without it the cost formula's
    #[arg(long, value_name = "PREDICTOR")]
    predictor: Option<PathBuf>,
}

impl KernelArgs {
    /// The store, if there is one.
    pub fn store(&self) -> Option<PathBuf> {
        self.store.clone().or_else(|| Some(PathBuf::from(STORE)).filter(|p| p.exists()))
    }

    /// How kernels that were never tuned are chosen.
    pub fn guess(&self) -> GuessRequest {
        GuessRequest { predictor: self.predictor.clone(), cache: cache_folder() }
    }
}

/// Squall's folder among those of the user that may be removed at any time.
fn cache_folder() -> Option<PathBuf> {
    // A relative path counts as none: so says the specification of the variable.
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(folder.join("squall"))
}

/// How many threads a kernel may use.
#[derive(Args)]
pub struct ThreadArgs {
    /// Threads that a kernel may use; records of different numbers do not mix
    #[arg(
        long,
        value_name = "T",
        env = "SQUALL_THREADS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    pub threads: u16,
}

/// What kernels are tuned for.
#[derive(Args)]
pub struct TargetArgs {
    /// What kernels are for: `cpu`, a CUDA device as `cuda` or `cuda:N`, or all of one model as
    /// `cuda:all`
    #[arg(long, value_name = "TARGET", env = "SQUALL_TARGET", default_value = "cpu")]
    pub target: TargetRequest,
}

/// How a model is run as a whole.
#[derive(Args)]
pub struct NetworkArgs {
    #[command(flatten)]
    pub kernels: KernelArgs,
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// Keep the program that runs the network here; what did not change is not compiled again
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

impl NetworkArgs {
    /// What the options ask for.
    pub fn request(&self, model: &InputArgs) -> NetworkRequest {
        NetworkRequest {
            input: model.request(),
            store: self.kernels.store(),
            guess: self.kernels.guess(),
            target: self.target.target,
            threads: self.threads.threads.into(),
            keep: self.keep.clone(),
        }
    }
}

/// How output is written.
#[derive(Args)]
pub struct JsonArgs {
    /// Print JSON on stdout and everything else on stderr
    #[arg(long)]
    pub json: bool,
}
