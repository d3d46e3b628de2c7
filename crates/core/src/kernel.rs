//! The trait [`Tunable`], one way to make a task's kernel with knobs left open, and
//! [`KernelSource`], the source text that a configuration of its space becomes. A sketch that the
//! compiler derives from a tensor expression implements the trait, and so does a user's own kernel
//! with knobs (kernel.toml); search, measuring and records know nothing else of a kernel. A source
//! comes with its entry point and, for CUDA, its launches.

use crate::space::{Configuration, Space};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The language of a kernel's source, which decides what compiles it and how it is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// C: a function of the process, called by its symbol.
    #[default]
    C,
    /// CUDA C++: functions that launches start on a GPU.
    Cuda,
}

impl Language {
    /// Every language, with its word in plans.
    pub const ALL: [(Language, &'static str); 2] = [(Language::C, "c"), (Language::Cuda, "cuda")];

    /// Its word in plans.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(l, _)| *l == self).map_or("", |(_, word)| word)
    }

    /// The language of a plan's word.
    pub fn of_word(word: &str) -> Option<Language> {
        Self::ALL.iter().find(|(_, w)| *w == word).map(|(l, _)| *l)
    }

    /// The ending of its source files' names.
    pub fn extension(self) -> &'static str {
        match self {
            Language::C => "c",
            Language::Cuda => "cu",
        }
    }

    /// Whether its functions are launched on a GPU instead of called.
    pub fn is_launched(self) -> bool {
        self == Language::Cuda
    }
}

/// When a launch happens, and which arguments it gets where it names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchPhase {
    /// Once, ahead of all calls; the arguments are the weights, then the prepared memory.
    Prepare,
    /// At each call; the arguments are the data, the output, the prepared memory, the workspace.
    Call,
}

/// What a launch gives to one parameter of its function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchArgument {
    /// The n-th data pointer.
    Data(u32),
    /// The n-th output.
    Output(u32),
    /// The n-th output, after the bytes of some data were copied to it.
    Restored {
        /// The number of the output.
        output: u32,
        /// The number of the data input.
        data: u32,
    },
    /// A number, by the bytes that it has in memory.
    Number(Vec<u8>),
    /// The prepared memory.
    Prepared,
    /// The workspace.
    Workspace,
    /// A whole number of 32 bits that is 0 before the call; another one says that the call did not
    /// succeed.
    Status,
}

/// Device memory that a [`TensorMap`] tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mapped {
    /// The n-th data pointer.
    Data(u32),
    /// The prepared memory, from a byte on.
    Prepared(u64),
    /// The workspace, from a byte on.
    Workspace(u64),
}

/// A tensor in device memory of which TMA tiles are copied to shared memory, as CUDA's
/// `cuTensorMapEncodeTiled` takes it (compute capability 9.0): elements of 16 bits, rows of a tile
/// of 128 bytes, swizzled; zeros lie outside of it. Dimensions come innermost first, at most five.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMap {
    /// Where it lies.
    pub memory: Mapped,
    /// Elements of each dimension.
    pub extents: Vec<u64>,
    /// Bytes from one element to the next, of all dimensions but the first.
    pub strides: Vec<u64>,
    /// Elements that a TMA tile spans, and of how many it takes one.
    pub spanned: Vec<u32>,
    /// See `spanned`.
    pub steps: Vec<u32>,
}

/// One launch of a GPU function of a [`KernelSource`]. Launches follow one another in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// When it happens.
    pub phase: LaunchPhase,
    /// The `__global__` function as C++ names it: `scale`, `image::blur<32, float>`.
    pub entry: String,
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y and z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// What its parameters are given; nothing where the phase decides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<LaunchArgument>>,
    /// Passed by value behind the arguments, each as 128 bytes that the driver encodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<TensorMap>,
}

impl Launch {
    /// A launch along x, of a function whose parameters the phase decides.
    pub fn linear(
        phase: LaunchPhase,
        entry: impl Into<String>,
        blocks: u32,
        threads: u32,
        shared: u32,
    ) -> Launch {
        Launch {
            phase,
            entry: entry.into(),
            blocks: [blocks, 1, 1],
            threads: [threads, 1, 1],
            shared,
            arguments: None,
            maps: Vec::new(),
        }
    }
}

/// Source text with everything needed to build and call it. The C interface of `symbol`:
///
/// ```c
/// int    SYMBOL(const void *const *data, void *const *outputs, const void *prepared,
///               void *workspace);
/// int    SYMBOL_prepare(const void *const *weights, void *prepared);   /* where prepared > 0 */
/// size_t SYMBOL_prepared_bytes(void);
/// size_t SYMBOL_workspace_bytes(void);
/// ```
///
/// Data and weights come in the workload's order, each kind counted by itself; all pointers are
/// 64-byte aligned; 0 means success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct KernelSource {
    /// What `source` is written in.
    pub language: Language,
    /// A complete translation unit.
    pub source: String,
    /// The entry's name.
    pub symbol: String,
    /// Packed weights that `SYMBOL_prepare` fills.
    pub prepared: Bytes,
    /// Scratch memory that a call needs; its content is not kept between calls.
    pub workspace: Bytes,
    /// Whether it must be compiled and linked with OpenMP.
    pub openmp: bool,
    /// Whether the compiler's full optimisation is wanted: plain loops need it to be vectorised,
    /// generated tiles are vectorised already and only get slower to compile.
    pub full_optimisation: bool,
    /// Further arguments of the compiler, which it reads last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// How the functions of a source are launched, where its language launches them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<Launch>,
}

/// A kernel as it is written down. Before languages had names, launches told CUDA from C.
#[derive(Deserialize)]
struct Written {
    language: Option<Language>,
    source: String,
    symbol: String,
    prepared: Bytes,
    workspace: Bytes,
    openmp: bool,
    full_optimisation: bool,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    launches: Vec<Launch>,
}

impl From<Written> for KernelSource {
    fn from(w: Written) -> KernelSource {
        let told = if w.launches.is_empty() { Language::C } else { Language::Cuda };
        KernelSource {
            language: w.language.unwrap_or(told),
            source: w.source,
            symbol: w.symbol,
            prepared: w.prepared,
            workspace: w.workspace,
            openmp: w.openmp,
            full_optimisation: w.full_optimisation,
            flags: w.flags,
            launches: w.launches,
        }
    }
}

/// Says whether results are right where no comparison can. It is given the bytes of all outputs,
/// one after another.
#[derive(Clone)]
pub struct Judge(Arc<Look>);

type Look = dyn Fn(&[u8]) -> Result<(), String> + Send + Sync;

impl Judge {
    /// A judge that says of wrong outputs why they are wrong.
    pub fn new(look: impl Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static) -> Judge {
        Judge(Arc::new(look))
    }

    /// Looks at outputs.
    ///
    /// # Errors
    /// They are wrong, for this reason.
    pub fn look(&self, outputs: &[u8]) -> Result<(), String> {
        (self.0)(outputs)
    }
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Judge")
    }
}

impl PartialEq for Judge {
    fn eq(&self, other: &Judge) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What the kernels of a task are checked against, and on which inputs.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// Computes the right results; nothing where they are known.
    pub kernel: Option<KernelSource>,
    /// The right results where no kernel computes them: the bytes of all outputs, one after
    /// another.
    pub outputs: Arc<[u8]>,
    /// The bytes of each input that is given; the others, and those behind the list's end, are
    /// random.
    pub inputs: Vec<Option<Arc<[u8]>>>,
    /// What says whether results are right, in place of a comparison; it stays in its process.
    pub judge: Option<Judge>,
}

impl From<KernelSource> for Reference {
    fn from(kernel: KernelSource) -> Reference {
        Reference { kernel: Some(kernel), ..Reference::default() }
    }
}

/// Why a legal configuration has no kernel after all, found before anything was built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RealizeError(pub String);

/// One way to make a task's kernel, with knobs open.
pub trait Tunable: Send + Sync {
    /// Unique and stable among the task's tunables; part of a record's identity.
    fn name(&self) -> &str;

    /// The legal configurations.
    fn space(&self) -> &Space;

    /// The kernel of a configuration of [`Tunable::space`], with entry point `symbol`.
    fn realize(
        &self,
        configuration: &Configuration,
        symbol: &str,
    ) -> Result<KernelSource, RealizeError>;

    /// What a cost model sees: the same length for all tunables of a target. An empty vector
    /// where the configuration cannot be realized.
    fn features(&self, configuration: &Configuration) -> Vec<f32>;

    /// The share of the expression's operations that its algorithm makes at least, where that is
    /// another than the expression's, as Winograd's is, which multiplies less. `None` where the
    /// expression's are counted.
    fn share_of_operations(&self, configuration: &Configuration) -> Option<f64> {
        let _ = configuration;
        None
    }

    /// Whether nothing is known of it but its knobs: features that say no more than the
    /// configuration does. Such spaces are searched in another way.
    fn is_flat(&self) -> bool {
        false
    }

    /// What a formula expects of a kernel with these features, in logarithms of time: an order
    /// to begin with before anything is measured. `None` where there is no formula.
    fn prior(&self, features: &[f32]) -> Option<f32> {
        let _ = features;
        None
    }
}

/// A configuration of one of a task's tunables, proposed or tried.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The tunable's name.
    pub tunable: Arc<str>,
    /// The values of its knobs.
    pub configuration: Configuration,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tunable, self.configuration)
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_written_before_languages_had_names_are_read() {
        let old = r#"{"source": "x", "symbol": "k", "prepared": 0, "workspace": 64,
            "openmp": false, "full_optimisation": true}"#;
        let c: KernelSource = serde_json::from_str(old).unwrap();
        assert_eq!((c.language, c.workspace), (Language::C, Bytes(64)));
        let launch = Launch::linear(LaunchPhase::Call, "k", 1, 32, 0);
        let launched = KernelSource { launches: vec![launch], ..c.clone() };
        let mut value = serde_json::to_value(&launched).unwrap();
        value.as_object_mut().unwrap().remove("language");
        let cuda: KernelSource = serde_json::from_value(value).unwrap();
        assert_eq!(cuda, KernelSource { language: Language::Cuda, ..launched });
        let again: KernelSource =
            serde_json::from_str(&serde_json::to_string(&cuda).unwrap()).unwrap();
        assert_eq!(again, cuda);
    }
}
