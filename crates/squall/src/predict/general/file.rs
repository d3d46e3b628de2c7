//! The general predictor's file format. A file is a line with the format's name and version; a JSON
//! header (provenance, hints) and the first gradient-boosted trees, each preceded by its length;
//! the second trees; and a digest of all that. Reading checks the digest and that the trees rank
//! kernels of this build's code generation; a file that does not fit is refused with the reason.

use super::relative::scheme;
use crate::base::error::Error;
use serde::{Deserialize, Serialize};
use squall_compiler::{CODEGEN_VERSION, RANKED_SINCE};
use squall_core::{MachineModel, TaskShape};
use squall_search::{CostModel, Gbdt};
use std::path::Path;
use std::sync::Arc;

/// The first line of a file; the number is the format's version.
const MAGIC: &[u8] = b"squall-general 1\n";
/// The beginning of files of any version.
const ANY: &[u8] = b"squall-general ";
/// Bytes of the digest at the end.
const DIGEST: usize = 32;
/// The largest file that is read.
pub const MOST_BYTES: usize = 5 << 20;

/// The provenance of a general predictor: the build, stores and machines that it was trained with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The version of code generation whose kernels it ranks.
    pub codegen: u32,
    /// The name of the scheme of its features (`relative.rs`).
    pub features: String,
    /// How many features a candidate has.
    pub width: usize,
    /// The stores, in the order given.
    pub stores: Vec<StoreFacts>,
    /// The machines that timed the candidates.
    pub machines: Vec<MachineFacts>,
    /// Tasks of inputs that were left out on purpose.
    pub without: u64,
    /// The day of the newest record, in UTC: `2026-11-23`.
    pub records_until: String,
    /// The seed of training.
    pub seed: u64,
    /// Its scores on tasks that training held out.
    pub held: Held,
}

/// A store that was learned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreFacts {
    /// The file's name, without its folder.
    pub name: String,
    /// Tasks that taught something.
    pub tasks: u64,
    /// Measured candidates.
    pub candidates: u64,
}

/// A machine that timed candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFacts {
    /// As records name it.
    pub device: String,
    /// Its model.
    pub machine: MachineModel,
    /// Tasks that it timed.
    pub tasks: u64,
    /// Candidates that it timed.
    pub candidates: u64,
}

/// The measured candidates of tasks that were held out, in the order of trees that never saw the
/// task: the geometric mean of the best time over that of the first, and of the best of four.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Tasks.
    pub tasks: u64,
    /// By the predictor's first, and its best of four.
    pub predictor: (f64, f64),
    /// The same in the order of the cost formula.
    pub formula: (f64, f64),
}

/// One of the fastest candidates of a task, kept as a hint for similar tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Winner {
    /// The task's loops.
    pub shape: TaskShape,
    /// Bytes of the vectors that it was made for.
    pub vector_bytes: usize,
    pub tunable: String,
    pub configuration: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    provenance: Provenance,
    winners: Vec<Winner>,
}

/// A ranker of the candidates of any task on any CPU.
#[derive(Clone, Debug)]
pub struct GeneralPredictor {
    pub(super) provenance: Provenance,
    pub(super) winners: Vec<Winner>,
    pub(super) trees: Arc<Trees>,
}

/// The two views of a candidate, both logarithms of speeds. What is asked for is their sum.
#[derive(Clone, Debug)]
pub(super) struct Trees {
    /// How much faster it is than the cost formula says.
    pub correction: Gbdt,
    /// How near it comes to its task's best.
    pub rank: Gbdt,
}

impl Trees {
    /// What candidates are worth, in logarithms of speed, from their rows and the logarithms of the
    /// cycles that the formula expects of them.
    pub fn scores(&self, rows: &[&[f32]], estimates: &[f32]) -> Vec<f32> {
        let views = self.correction.predict(rows).into_iter().zip(self.rank.predict(rows));
        let score = |((correction, rank), estimate): ((f32, f32), &f32)| {
            0.5 * (correction - estimate + rank)
        };
        views.zip(estimates).map(score).collect()
    }
}

/// Whether bytes are meant to be a general predictor, of whichever version.
pub fn is_general(bytes: &[u8]) -> bool {
    bytes.starts_with(ANY)
}

impl GeneralPredictor {
    /// Where it comes from.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Its file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let header = Header { provenance: self.provenance.clone(), winners: self.winners.clone() };
        let header = serde_json::to_vec(&header)
            .map_err(|e| Error::Nothing(format!("the predictor has no text: {e}")))?;
        let mut out = MAGIC.to_vec();
        out.extend((header.len() as u64).to_le_bytes());
        out.extend(header);
        let correction = self.trees.correction.to_bytes();
        out.extend((correction.len() as u64).to_le_bytes());
        out.extend(correction);
        out.extend(self.trees.rank.to_bytes());
        let digest = blake3::hash(&out);
        out.extend(digest.as_bytes());
        Ok(out)
    }

    /// The predictor of a file's bytes; `name` is the file's, for messages.
    ///
    /// # Errors
    /// Where the bytes are none, are damaged, or were made for other kernels or features.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<GeneralPredictor, Error> {
        read(bytes).map_err(|why| Error::Input {
            place: name.into(),
            message: format!("it is no general predictor that can be used: {why}"),
            hint: "`squall train --records --general --store STORE --out FILE` writes one".into(),
        })
    }

    /// The predictor of a file; nothing where the file is of another kind.
    pub fn at(path: &Path) -> Result<Option<GeneralPredictor>, Error> {
        let mut head = [0; ANY.len()];
        let Ok(mut file) = crate::base::files::open(path) else { return Ok(None) };
        let read = std::io::Read::read_exact(&mut file, &mut head);
        (read.is_ok() && is_general(&head)).then(|| GeneralPredictor::load(path)).transpose()
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<GeneralPredictor, Error> {
        let bytes = crate::base::files::read(path)?;
        GeneralPredictor::from_bytes(&path.display().to_string(), &bytes)
    }
}

fn read(bytes: &[u8]) -> Result<GeneralPredictor, String> {
    let end = bytes.len().checked_sub(DIGEST).filter(|_| is_general(bytes));
    let Some(end) = end else { return Err("it does not begin like one".into()) };
    if bytes.len() > MOST_BYTES {
        return Err(format!("{} bytes are more than any has", bytes.len()));
    }
    let Some(rest) = bytes[..end].strip_prefix(MAGIC) else {
        return Err("it is of another version of the format".into());
    };
    if blake3::hash(&bytes[..end]).as_bytes() != &bytes[end..] {
        return Err("it is damaged: its digest is another".into());
    }
    let (header, rest) = part(rest, "header")?;
    let (correction, rank) = part(rest, "first trees")?;
    let Header { provenance, winners } =
        serde_json::from_slice(header).map_err(|e| format!("its header: {e}"))?;
    if !(RANKED_SINCE..=CODEGEN_VERSION).contains(&provenance.codegen) {
        return Err(format!(
            "it ranks the kernels of code generation {}, and this is {CODEGEN_VERSION}",
            provenance.codegen
        ));
    }
    if provenance.features != scheme() {
        return Err(format!(
            "it knows the features `{}`, and these are `{}`",
            provenance.features,
            scheme()
        ));
    }
    let trees = |bytes: &[u8]| {
        Gbdt::from_bytes(bytes, provenance.width).map_err(|e| format!("its trees: {e}"))
    };
    let trees = Arc::new(Trees { correction: trees(correction)?, rank: trees(rank)? });
    Ok(GeneralPredictor { provenance, winners, trees })
}

/// The bytes of a part whose length stands before it, and those behind it.
fn part<'b>(bytes: &'b [u8], what: &str) -> Result<(&'b [u8], &'b [u8]), String> {
    let (length, rest) =
        bytes.split_first_chunk::<8>().ok_or_else(|| format!("its {what} are missing"))?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    rest.split_at_checked(length).ok_or_else(|| format!("its {what} are longer than the file"))
}
