//! Options that several commands share (input, store, target, threads, arrays, JSON), each defined
//! once with clap and converted to a request of the crate `squall`. Their comments are the text of
//! `--help`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use squall::arrays::ArrayFile;
use squall::files::user_cache;
use squall::{
    Channels, Context, Error, GuessRequest, InputRequest, Isa, Library, NetworkRequest, Precision,
    RunnerRequest, Symbol, TargetRequest,
};
use std::path::PathBuf;

/// What to work on.
#[derive(Args)]
pub struct InputArgs {
    /// A model.onnx, a list.ops of operator lines, a kernel.toml, a file.workload, or in quotes one
    /// operator line, a command of MIOpenDriver or a key of MIOpen's databases
    #[arg(value_name = "INPUT")]
    pub input: String,
    /// Extent of a symbolic dimension of the model, for instance N=1, or the range that it may have
    /// at run time, for instance seq=1..512 or width=64..2048:64 for multiples of 64; may be
    /// repeated. A network over a range is run, timed and exported once for all its extents; tasks
    /// are shown and tuned at one of them
    #[arg(long = "dim", value_name = "NAME=EXTENT", value_parser = dimension)]
    pub dims: Vec<Dimension>,
    /// Where images that only a model's kernels see have their channels: `first`, as in the model,
    /// or `last` [default: last on a CPU; whole models are run as their tuned kernels are fastest
    /// together]
    #[arg(long, value_name = "ORDER", value_parser = channels())]
    pub channels: Option<Channels>,
    /// Cover a model by the kernels and layouts of this file: an assignment as `squall explain
    /// --stage assignment` prints it
    #[arg(long, value_name = "FILE", conflicts_with = "channels")]
    pub assignment: Option<PathBuf>,
    /// Cover a model by kernels and layouts in this way
    #[arg(long, value_name = "WAY", value_parser = PossibleValuesParser::new(
        squall::covers().map(|(name, about)| PossibleValue::new(name).help(about))),
        conflicts_with_all = ["channels", "assignment"])]
    pub cover: Option<String>,
    /// The format in which a model's kernels work: `f32`; `bf16`, on a GPU also `f16`, of which all
    /// tensors between kernels are; on a GPU `tf32`, to which factors of products are rounded. Sums
    /// are 32-bit floats in all of them; the model's inputs and outputs keep the types of its file.
    /// Kernels of each are kept apart; `squall check` says what a format loses [default: on a GPU
    /// the format in which the model's file computes, where that is of 16 bits; else f32]
    #[arg(long, value_name = "FORMAT", value_parser = precision())]
    pub precision: Option<Precision>,
}

impl InputArgs {
    /// What the options ask for.
    pub fn request(&self) -> InputRequest {
        InputRequest {
            source: self.input.clone(),
            dims: self.dims.iter().filter_map(Dimension::fixed).collect(),
            ranges: self.dims.iter().filter_map(Dimension::range).collect(),
            is_over_range: false,
            channels: self.channels,
            assignment: self.assignment.clone(),
            cover: self.cover.clone(),
            precision: self.precision,
        }
    }
}

fn precision() -> impl TypedValueParser<Value = Precision> {
    let named =
        |text: String| Precision::ALL.iter().find(|(_, name)| *name == text).map(|(p, _)| *p);
    PossibleValuesParser::new(Precision::ALL.iter().map(|(_, name)| *name))
        .try_map(move |text| named(text).ok_or("no such format"))
}

fn channels() -> impl TypedValueParser<Value = Channels> {
    let named =
        |text: String| Channels::ALL.iter().find(|(_, name)| *name == text).map(|(c, _)| *c);
    PossibleValuesParser::new(Channels::ALL.iter().map(|(_, name)| *name))
        .try_map(move |text| named(text).ok_or("no such order"))
}

/// A symbolic dimension of a model.
#[derive(Clone, Debug)]
pub enum Dimension {
    /// Of one extent.
    Fixed(String, i64),
    /// Of a range of them.
    Range(Symbol),
}

impl Dimension {
    fn fixed(&self) -> Option<(String, i64)> {
        match self {
            Dimension::Fixed(name, n) => Some((name.clone(), *n)),
            Dimension::Range(_) => None,
        }
    }

    fn range(&self) -> Option<Symbol> {
        match self {
            Dimension::Range(s) => Some(s.clone()),
            Dimension::Fixed(..) => None,
        }
    }
}

fn dimension(text: &str) -> Result<Dimension, String> {
    let (name, extent) = text.split_once('=').ok_or("expected NAME=EXTENT, for instance N=1")?;
    let name = name.trim();
    if !name.is_empty() && extent.contains("..") {
        return Symbol::parse(name, extent).map(Dimension::Range);
    }
    let n: i64 = extent.trim().parse().map_err(|_| format!("`{extent}` is not a whole number"))?;
    if n < 0 || name.is_empty() {
        return Err("expected a name and an extent of at least 0, for instance N=1".into());
    }
    Ok(Dimension::Fixed(name.into(), n))
}

/// Where records are kept.
#[derive(Args)]
pub struct StoreArgs {
    /// The store of records: a file, or a folder in which each process writes a file of its own
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE", default_value = STORE)]
    pub store: PathBuf,
}

/// The store that is written where none is named, and read where it is there.
pub const STORE: &str = "tuned.squall";

/// Which kernels are used.
#[derive(Args)]
pub struct KernelArgs {
    /// Use the tuned kernels of this store [default: tuned.squall, where it is there]
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE")]
    store: Option<PathBuf>,
    /// Kernels that were never tuned are this predictor's first answers, where the store has no
    /// similar task; without it those of the general predictor inside squall
    #[arg(long, value_name = "PREDICTOR")]
    predictor: Option<PathBuf>,
    /// Use kernels that were tuned on this device and nothing else: where one is missing, fail and
    /// say how to mend it
    #[arg(long, conflicts_with = "predictor")]
    locked: bool,
}

impl KernelArgs {
    /// The store, if there is one.
    pub fn store(&self) -> Option<PathBuf> {
        self.store.clone().or_else(|| Some(PathBuf::from(STORE)).filter(|p| p.exists()))
    }

    /// How kernels that were never tuned are chosen.
    pub fn guess(&self) -> GuessRequest {
        let (predictor, locked) = (self.predictor.clone(), self.locked);
        GuessRequest { predictor, cache: user_cache(), locked, soon: false }
    }
}

/// This machine, with compiled files kept in the user's cache folder.
pub fn context() -> Context {
    Context::with_user_cache()
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
    target: TargetRequest,
    #[command(flatten)]
    pub isa: IsaArgs,
}

impl TargetArgs {
    /// What the options ask for.
    pub fn request(&self) -> Result<TargetRequest, Error> {
        self.target.at(self.isa.one()?)
    }

    /// The targets that the options ask for, one for each level of instructions.
    pub fn requests(&self) -> Result<Vec<TargetRequest>, Error> {
        self.isa.isa.iter().map(|l| self.target.at(l.0)).collect()
    }
}

/// What runs the kernels that are measured.
#[derive(Args)]
pub struct RunnerArgs {
    /// What runs kernels: `here`; `ssh://[user@]HOST[:PORT]`, a board that needs nothing but a
    /// shell, whose kernels are compiled here; or `qemu`, an emulator, under which kernels of
    /// another architecture (`--isa armv8-a`) are right or wrong and never have a time. SQUALL_SSH
    /// names another client than `ssh`
    #[arg(long, value_name = "RUNNER", env = "SQUALL_RUNNER", default_value = "here")]
    runner: RunnerRequest,
}

impl RunnerArgs {
    /// This machine with what runs its kernels.
    pub fn context(&self) -> Context {
        context().on(self.runner.clone())
    }
}

/// To what level of instructions kernels of a CPU are held.
#[derive(Args)]
pub struct IsaArgs {
    /// Hold a CPU's kernels to a level of instructions: `x86-64-v2`, `x86-64-v3` (AVX2),
    /// `x86-64-v4` (AVX-512), `armv8-a` (NEON), or `native` for all that this machine has; records
    /// of different levels do not mix. `export` takes several, as `x86-64-v3,x86-64-v4`
    #[arg(
        long,
        value_name = "LEVEL",
        env = "SQUALL_ISA",
        value_delimiter = ',',
        default_value = NATIVE,
    )]
    isa: Vec<LevelName>,
}

/// The level of all that this machine has.
const NATIVE: &str = "native";

/// A level of instructions as users write it; none is `native`.
#[derive(Clone, Copy)]
struct LevelName(Option<Isa>);

impl std::str::FromStr for LevelName {
    type Err = String;
    fn from_str(text: &str) -> Result<LevelName, String> {
        match text {
            NATIVE => Ok(LevelName(None)),
            _ => text.parse().map(|isa| LevelName(Some(isa))).map_err(|e: String| e + ", native"),
        }
    }
}

impl IsaArgs {
    /// The one level that is asked for; none for `native`.
    pub fn one(&self) -> Result<Option<Isa>, Error> {
        match self.isa[..] {
            [level] => Ok(level.0),
            _ => Err(Error::Usage {
                message: format!("--isa names {} levels, and this is done for one", self.isa.len()),
                hint: "name one; `squall export` takes several".into(),
            }),
        }
    }
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
    pub fn request(&self, model: &InputArgs) -> Result<NetworkRequest, Error> {
        Ok(NetworkRequest {
            input: model.request(),
            store: self.kernels.store(),
            guess: self.kernels.guess(),
            target: self.target.request()?,
            threads: self.threads.threads.into(),
            keep: self.keep.clone(),
        })
    }
}

/// What a model is given.
#[derive(Args)]
pub struct ArrayArgs {
    /// What the model is given: a .npy file, or a .pb file of ONNX's TensorProto, of the input's
    /// type; with several inputs one for each, as NAME=X.npy
    #[arg(long = "input", value_name = "[NAME=]X.npy", value_parser = array_file)]
    pub inputs: Vec<ArrayFile>,
}

/// Where a model's outputs go.
#[derive(Args)]
pub struct OutputArgs {
    /// Where the output is written: a .npy file; of several outputs those that are named, as
    /// NAME=Y.npy
    #[arg(long = "output", value_name = "[NAME=]Y.npy", value_parser = array_file)]
    pub outputs: Vec<ArrayFile>,
}

/// A file, with the name of a value before it where there is one.
pub fn array_file(text: &str) -> Result<ArrayFile, String> {
    let bare = || ArrayFile { name: None, path: text.into() };
    if std::path::Path::new(text).exists() {
        return Ok(bare());
    }
    match text.rsplit_once('=') {
        Some(("", _) | (_, "")) => Err("expected NAME=FILE, or a file".into()),
        Some((name, path)) => Ok(ArrayFile { name: Some(name.into()), path: path.into() }),
        None => Ok(bare()),
    }
}

/// Which libraries run the same model.
#[derive(Args)]
pub struct BesideArgs {
    /// Put the time of this library next to ours: `onnxruntime` or `openvino`, in the Python of
    /// $SQUALL_PYTHON, else of ./.venv, ../peers-venv or the PATH; same model, threads and input,
    /// in turns; may be repeated, or several with commas
    #[arg(long, value_name = "LIBRARY", value_delimiter = ',', value_parser = libraries())]
    pub beside: Vec<Library>,
}

fn libraries() -> impl TypedValueParser<Value = Library> {
    PossibleValuesParser::new(Library::ALL.map(Library::name))
        .try_map(|text| text.parse::<Library>())
}

/// How the kernels of tasks without any trial are chosen.
pub fn guess(predictor: Option<PathBuf>) -> GuessRequest {
    GuessRequest { predictor, cache: user_cache(), locked: false, soon: false }
}

/// How output is written.
#[derive(Args)]
pub struct JsonArgs {
    /// Print JSON on stdout and everything else on stderr
    #[arg(long)]
    pub json: bool,
}
