//! The predictor file: one safetensors file. Its metadata holds `squall`, a JSON header that says
//! what the predictor is (version, families, vocabularies, sizes, curves, held-out scores, digest
//! of the data, seed); its tensors hold the remembered answers and the networks' parameters, by
//! name. Whatever does not fit together is refused with its reason before anything is predicted.

use crate::case::{Facts, Ground};
use crate::chain::{Chain, ChainSizes};
use crate::classical;
use crate::encode::Encoder;
use crate::memory::{Memory, Metric};
use crate::nn::Layout;
use crate::paper::{self, Sequence};
use crate::predictor::{Info, Model, Predictor};
use crate::ranker::{Ranker, RankerSizes};
use crate::rows::{Kind, Row, RowModel, Rows};
use crate::solver::{Curves, Mix, Solver};
use crate::task::{TaskFacts, TaskModel};
use crate::train::{Epoch, Learner};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Family, FamilyError, FamilySpec};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The version that this build writes, and the only one that it reads.
pub const VERSION: u32 = 4;
const KEY: &str = "squall";

/// Why a predictor file cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum FileError {
    #[error("{path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("it is no predictor: {0}; `squall train --out FILE` writes one")]
    NotAPredictor(String),
    #[error("it is no checkpoint of training: {0}")]
    NotACheckpoint(String),
    #[error(
        "it is a predictor of version {found}, this build reads version {VERSION}: train it again \
         with this build"
    )]
    Version { found: u32 },
    #[error("its header does not fit: {0}")]
    Header(String),
    #[error("its part `{name}` {why}")]
    Part { name: String, why: String },
    #[error(transparent)]
    Family(#[from] FamilyError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u32,
    info: Info,
    solvers: Vec<SolverHeader>,
    /// Solvers whose models are of each device and precision apart.
    #[serde(default)]
    others: Vec<RowsHeader>,
    /// What it has of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tasks: Option<TaskFacts>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowsHeader {
    family: FamilySpec,
    kind: Kind,
    rows: Vec<RowHeader>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowHeader {
    device: String,
    precision: String,
    facts: FactsHeader,
    /// Of the paper's models: width of the LSTMs.
    hidden: usize,
    curve: Vec<Epoch>,
}

/// What of [`Facts`] is no list of numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FactsHeader {
    encoder: Encoder,
    rows: Vec<(String, String)>,
    scale: Vec<(f32, f32)>,
    /// Which coordinates distances look at, and how.
    kept: Vec<u32>,
    metric: Metric,
    words: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SolverHeader {
    family: FamilySpec,
    facts: FactsHeader,
    ranker: RankerSizes,
    chain: ChainSizes,
    members: (usize, usize),
    mix: Mix,
    curves: Curves,
}

/// The bytes of numbers.
pub(crate) fn bytes_of<const N: usize, T: Copy>(
    values: &[T],
    to: impl Fn(T) -> [u8; N],
) -> Vec<u8> {
    values.iter().flat_map(|&v| to(v)).collect()
}

/// Parts of a file: name, type, shape, bytes.
type Parts = Vec<(String, Dtype, Vec<usize>, Vec<u8>)>;

fn write(name: &str, kind: Dtype, shape: Vec<usize>, bytes: Vec<u8>, parts: &mut Parts) {
    parts.push((name.into(), kind, shape, bytes));
}

fn write_network(name: &str, layout: &Layout, parameters: &[f32], parts: &mut Parts) {
    for (entry, m) in layout.entries() {
        let bytes = bytes_of(m.of(parameters), f32::to_le_bytes);
        write(&format!("{name}.{entry}"), Dtype::F32, vec![m.rows, m.cols], bytes, parts);
    }
}

fn write_facts(name: &str, facts: &Facts, parts: &mut Parts) -> FactsHeader {
    let Facts { encoder, rows, memory, kept, metric, scale } = facts;
    let n = memory.len();
    let mut part = |what: &str, kind, shape, bytes| {
        write(&format!("{name}/{what}"), kind, shape, bytes, parts)
    };
    part(
        "memory.places",
        Dtype::F32,
        vec![memory.dimensions, n],
        bytes_of(&memory.places, f32::to_le_bytes),
    );
    part(
        "memory.tokens",
        Dtype::U16,
        vec![memory.words, n],
        bytes_of(&memory.tokens, u16::to_le_bytes),
    );
    part("memory.rows", Dtype::U16, vec![n], bytes_of(&memory.rows, u16::to_le_bytes));
    part("memory.layers", Dtype::U32, vec![n], bytes_of(&memory.layers, u32::to_le_bytes));
    part(
        "memory.answers",
        Dtype::U16,
        vec![n, memory.width],
        bytes_of(&memory.answers, u16::to_le_bytes),
    );
    FactsHeader {
        encoder: encoder.clone(),
        rows: rows.clone(),
        scale: scale.clone(),
        kept: kept.clone(),
        metric: metric.clone(),
        words: memory.words,
    }
}

impl Predictor {
    /// The whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let broken = |e: &dyn std::fmt::Display| FileError::Header(e.to_string());
        let mut parts: Parts = Vec::new();
        let mut header = Header {
            version: VERSION,
            info: self.info().clone(),
            solvers: Vec::new(),
            others: Vec::new(),
            tasks: None,
        };
        for model in self.models() {
            let name = model.solver();
            match model {
                Model::Pair(s) => {
                    let facts = write_facts(name, s.facts(), &mut parts);
                    write(
                        &format!("{name}/keys"),
                        Dtype::U64,
                        vec![s.keys.len()],
                        bytes_of(&s.keys, u64::to_le_bytes),
                        &mut parts,
                    );
                    let networks = [
                        ("ranker", s.ranker.layout(), &s.ranker_members),
                        ("chain", s.chain.layout(), &s.chain_members),
                    ];
                    for (what, layout, members) in networks {
                        for (i, parameters) in members.iter().enumerate() {
                            write_network(
                                &format!("{name}/{what}.{i}"),
                                layout,
                                parameters,
                                &mut parts,
                            );
                        }
                    }
                    header.solvers.push(SolverHeader {
                        family: s.ground.family.spec().clone(),
                        facts,
                        ranker: s.ranker.sizes(),
                        chain: s.chain.sizes(),
                        members: (s.ranker_members.len(), s.chain_members.len()),
                        mix: s.mix,
                        curves: s.curves.clone(),
                    });
                }
                Model::Rows(r) => {
                    write(
                        &format!("{name}/keys"),
                        Dtype::U64,
                        vec![r.keys.len()],
                        bytes_of(&r.keys, u64::to_le_bytes),
                        &mut parts,
                    );
                    let mut rows = Vec::new();
                    for (i, row) in r.rows.iter().enumerate() {
                        let name = format!("{name}/{i}");
                        let facts = write_facts(&name, &row.model.ground().facts, &mut parts);
                        let mut hidden = 0;
                        match &row.model {
                            RowModel::Neighbours(_) => {}
                            RowModel::Paper(t) => {
                                let (sequence, parameters) = t.network();
                                hidden = sequence.hidden();
                                write_network(
                                    &format!("{name}/sequence"),
                                    sequence.layout(),
                                    parameters,
                                    &mut parts,
                                );
                            }
                            RowModel::Classical(t) => {
                                let (ints, floats) = t.numbers();
                                write(
                                    &format!("{name}/ints"),
                                    Dtype::U32,
                                    vec![ints.len()],
                                    bytes_of(&ints, u32::to_le_bytes),
                                    &mut parts,
                                );
                                let bytes = bytes_of(&floats, f32::to_le_bytes);
                                write(
                                    &format!("{name}/floats"),
                                    Dtype::F32,
                                    vec![floats.len()],
                                    bytes,
                                    &mut parts,
                                );
                            }
                        }
                        let (device, precision) = (row.device.clone(), row.precision.clone());
                        rows.push(RowHeader {
                            device,
                            precision,
                            facts,
                            hidden,
                            curve: row.model.curve().to_vec(),
                        });
                    }
                    header.others.push(RowsHeader {
                        family: r.family.spec().clone(),
                        kind: r.kind,
                        rows,
                    });
                }
            }
        }
        if let Ok(tasks) = self.tasks() {
            for (i, parameters) in tasks.members.iter().enumerate() {
                write_network(&format!("tasks/{i}"), &tasks.layout, parameters, &mut parts);
            }
            header.tasks = Some(tasks.facts().clone());
        }
        let header = serde_json::to_string(&header).map_err(|e| broken(&e))?;
        let mut views = Vec::with_capacity(parts.len());
        for (name, kind, shape, bytes) in &parts {
            views.push((
                name.as_str(),
                TensorView::new(*kind, shape.clone(), bytes).map_err(|e| broken(&e))?,
            ));
        }
        safetensors::serialize(views, Some(HashMap::from([(KEY.to_owned(), header)])))
            .map_err(|e| broken(&e))
    }

    /// Reads what [`Predictor::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Predictor, FileError> {
        let no = |e: safetensors::SafeTensorError| FileError::NotAPredictor(format!("{e:?}"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(no)?;
        let text = metadata.metadata().as_ref().and_then(|m| m.get(KEY));
        let text = text.ok_or_else(|| {
            FileError::NotAPredictor(format!("a safetensors file without `{KEY}` in its metadata"))
        })?;
        // The version first: another version's header may hold anything.
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|e| FileError::Header(e.to_string()))?;
        let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0) as u32;
        if found != VERSION {
            return Err(FileError::Version { found });
        }
        let header: Header =
            serde_json::from_value(value).map_err(|e| FileError::Header(e.to_string()))?;
        let parts = SafeTensors::deserialize(bytes).map_err(no)?;
        let mut read = 0;
        let mut models = Vec::new();
        for h in header.solvers {
            models.push(Model::Pair(Box::new(solver(h, &parts, &mut read)?)));
        }
        for h in header.others {
            models.push(Model::Rows(rows(h, &parts, &mut read)?));
        }
        let tasks = header.tasks.map(|facts| tasks(facts, &parts, &mut read)).transpose()?;
        if read != parts.len() {
            return Err(FileError::Header(format!(
                "it has {} parts, of which {read} are known",
                parts.len()
            )));
        }
        Ok(Predictor::new(models, tasks, header.info))
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        write_atomically(path, &self.to_bytes()?)
    }

    /// Reads a predictor file.
    pub fn load(path: &Path) -> Result<Predictor, FileError> {
        let io = |error| FileError::Io { path: path.display().to_string(), error };
        Predictor::from_bytes(&std::fs::read(path).map_err(io)?)
    }
}

/// Writes under another name first, so that no reader meets half a file.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let write = || {
        let mut f = std::fs::File::create(&part)?;
        std::io::Write::write_all(&mut f, bytes)?;
        f.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|error| {
        // Best effort: what failed to be written is of no use.
        let _ = std::fs::remove_file(&part);
        FileError::Io { path: path.display().to_string(), error }
    })
}

/// A part's bytes, if it has this type and shape.
pub(crate) fn part<'a>(
    parts: &SafeTensors<'a>,
    name: &str,
    kind: Dtype,
    shape: &[usize],
    read: &mut usize,
) -> Result<&'a [u8], FileError> {
    let fault = |why: String| FileError::Part { name: name.into(), why };
    let t = parts.tensor(name).map_err(|_| fault("is missing".into()))?;
    if t.dtype() != kind || t.shape() != shape {
        return Err(fault(format!(
            "is {:?} {:?}, expected {kind:?} {shape:?}",
            t.dtype(),
            t.shape()
        )));
    }
    *read += 1;
    Ok(t.data())
}

/// Numbers, all of them finite.
pub(crate) fn floats(bytes: &[u8], name: &str) -> Result<Vec<f32>, FileError> {
    let out: Vec<f32> =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    if out.iter().all(|x| x.is_finite()) {
        Ok(out)
    } else {
        Err(FileError::Part { name: name.into(), why: "holds numbers that are not finite".into() })
    }
}

fn ints(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

fn shorts(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

/// Ascending numbers, as many as there are.
fn longs(parts: &SafeTensors, name: &str, read: &mut usize) -> Result<Vec<u64>, FileError> {
    let fault = |why: &str| FileError::Part { name: name.into(), why: why.into() };
    let n = parts.tensor(name).map_err(|_| fault("is missing"))?.shape().iter().product();
    let bytes = part(parts, name, Dtype::U64, &[n], read)?;
    let out: Vec<u64> = bytes.as_chunks().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    if out.is_sorted() { Ok(out) } else { Err(fault("does not ascend")) }
}

/// What training learned of the data, under a name; all that the models rely on holds of it.
fn read_facts(
    name: &str,
    h: FactsHeader,
    family: &Family,
    parts: &SafeTensors,
    read: &mut usize,
) -> Result<Facts, FileError> {
    let (width, dimensions) = (family.spec().knobs.len(), h.kept.len());
    let header = |why: String| FileError::Header(format!("{name}: {why}"));
    let full = |what: &str| format!("{name}/{what}");
    let rows_name = full("memory.rows");
    let missing = |_| FileError::Part { name: rows_name.clone(), why: "is missing".into() };
    let n = parts.tensor(&rows_name).map_err(missing)?.shape().iter().product();
    let mut get = |what: &str, kind, shape: &[usize]| part(parts, &full(what), kind, shape, read);
    let memory = Memory {
        dimensions,
        words: h.words,
        width,
        places: floats(
            get("memory.places", Dtype::F32, &[dimensions, n])?,
            &full("memory.places"),
        )?,
        tokens: shorts(get("memory.tokens", Dtype::U16, &[h.words, n])?),
        rows: shorts(get("memory.rows", Dtype::U16, &[n])?),
        layers: ints(get("memory.layers", Dtype::U32, &[n])?),
        answers: shorts(get("memory.answers", Dtype::U16, &[n, width])?),
    };
    let legal =
        |(i, v): (usize, &u16)| usize::from(*v) < family.spec().knobs[i % width].values.len();
    if !memory.answers.iter().enumerate().all(legal) {
        return Err(FileError::Part {
            name: full("memory.answers"),
            why: "names values that its family lacks".into(),
        });
    }
    if memory.rows.iter().any(|&r| usize::from(r) > h.rows.len()) {
        return Err(FileError::Part {
            name: rows_name,
            why: "names rows that the header lacks".into(),
        });
    }
    if h.scale.len() != family.spec().features.len() {
        return Err(header(format!(
            "{} scales for {} features",
            h.scale.len(),
            family.spec().features.len()
        )));
    }
    let known = h.kept.is_sorted_by(|a, b| a < b)
        && h.kept.last().is_none_or(|&k| (k as usize) < h.encoder.coordinates());
    if !h.encoder.is_consistent() || h.encoder.word_count() != h.words || !known {
        return Err(header("its vocabulary and its scales do not fit together".into()));
    }
    let m = &h.metric;
    if (m.places.len(), m.words.len()) != (dimensions, h.words)
        || m.places.iter().chain(&m.words).any(|w| !(w.is_finite() && *w >= 0.0))
    {
        return Err(header("its distances do not fit its problems".into()));
    }
    Ok(Facts {
        encoder: h.encoder,
        rows: h.rows,
        memory,
        kept: h.kept,
        metric: h.metric,
        scale: h.scale,
    })
}

/// The parameters of a network, under a name.
fn read_network(
    name: &str,
    layout: &Layout,
    parts: &SafeTensors,
    read: &mut usize,
) -> Result<Vec<f32>, FileError> {
    let mut out = Vec::with_capacity(layout.len());
    for (entry, m) in layout.entries() {
        let full = format!("{name}.{entry}");
        out.extend(floats(part(parts, &full, Dtype::F32, &[m.rows, m.cols], read)?, &full)?);
    }
    Ok(out)
}

/// Widths of layers that are none.
fn check_widths(name: &str, widths: &[usize]) -> Result<(), FileError> {
    match widths.iter().find(|&&w| w == 0 || w > 1 << 14) {
        Some(w) => Err(FileError::Header(format!("{name}: a layer of width {w}"))),
        None => Ok(()),
    }
}

fn solver(h: SolverHeader, parts: &SafeTensors, read: &mut usize) -> Result<Solver, FileError> {
    let family = Arc::new(Family::new(h.family)?);
    let name = family.solver().to_owned();
    if h.members.0 == 0 || h.members.1 == 0 || h.members.0 > 64 || h.members.1 > 64 {
        return Err(FileError::Header(format!("{name}: {:?} networks", h.members)));
    }
    check_widths(
        &name,
        &[h.ranker.context, h.ranker.hidden, h.ranker.last, h.chain.context, h.chain.head],
    )?;
    let facts = read_facts(&name, h.facts, &family, parts, read)?;
    let keys = longs(parts, &format!("{name}/keys"), read)?;
    let ground = Ground::new(family, facts);
    let (ranker, chain) = (Ranker::new(&ground, h.ranker), Chain::new(&ground, h.chain));
    let mut network =
        |what: &str, layout: &Layout, members: usize| -> Result<Vec<Vec<f32>>, FileError> {
            (0..members)
                .map(|i| read_network(&format!("{name}/{what}.{i}"), layout, parts, read))
                .collect()
        };
    let ranker_members = network("ranker", ranker.layout(), h.members.0)?;
    let chain_members = network("chain", chain.layout(), h.members.1)?;
    Ok(Solver {
        ground,
        ranker,
        ranker_members,
        chain,
        chain_members,
        mix: h.mix,
        keys,
        curves: h.curves,
    })
}

fn tasks(facts: TaskFacts, parts: &SafeTensors, read: &mut usize) -> Result<TaskModel, FileError> {
    if facts.members == 0 || facts.members > 64 || !facts.is_consistent() {
        return Err(FileError::Header("what it says of tasks does not fit together".into()));
    }
    check_widths("tasks", &[facts.width])?;
    let mut model = TaskModel::empty(facts);
    for i in 0..model.facts().members {
        model.members.push(read_network(&format!("tasks/{i}"), &model.layout, parts, read)?);
    }
    Ok(model)
}

fn rows(h: RowsHeader, parts: &SafeTensors, read: &mut usize) -> Result<Rows, FileError> {
    let family = Arc::new(Family::new(h.family)?);
    let solver = family.solver().to_owned();
    let keys = longs(parts, &format!("{solver}/keys"), read)?;
    let mut all = Vec::new();
    for (i, row) in h.rows.into_iter().enumerate() {
        let name = format!("{solver}/{i}");
        let ground =
            Ground::new(family.clone(), read_facts(&name, row.facts, &family, parts, read)?);
        let model = match h.kind {
            Kind::Pair => {
                return Err(FileError::Header(format!(
                    "{name}: the default model is of all devices together"
                )));
            }
            Kind::Neighbours => RowModel::Neighbours(Box::new(ground)),
            Kind::Paper(kind) => {
                check_widths(&name, &[row.hidden])?;
                let sequence = Sequence::new(&ground, kind, row.hidden);
                let parameters =
                    read_network(&format!("{name}/sequence"), sequence.layout(), parts, read)?;
                RowModel::Paper(Box::new(paper::Trained::new(
                    ground, sequence, parameters, row.curve,
                )))
            }
            Kind::Classical(_) => {
                let list =
                    |what: &str, kind, read: &mut usize| -> Result<(String, &[u8]), FileError> {
                        let full = format!("{name}/{what}");
                        let missing =
                            |_| FileError::Part { name: full.clone(), why: "is missing".into() };
                        let n = parts.tensor(&full).map_err(missing)?.shape().iter().product();
                        let bytes = part(parts, &full, kind, &[n], read)?;
                        Ok((full, bytes))
                    };
                let numbers = ints(list("ints", Dtype::U32, read)?.1);
                let (full, bytes) = list("floats", Dtype::F32, read)?;
                let trained =
                    classical::Trained::from_numbers(ground, &numbers, &floats(bytes, &full)?);
                let broken = || FileError::Part {
                    name: full.clone(),
                    why: "does not hold the classifiers that it should".into(),
                };
                RowModel::Classical(Box::new(trained.ok_or_else(broken)?))
            }
        };
        all.push(Row { device: row.device, precision: row.precision, model });
    }
    Ok(Rows { family, kind: h.kind, rows: all, keys })
}
