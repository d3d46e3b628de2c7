//! The predictor file: one safetensors file. Its metadata holds `squall`, a JSON header that says
//! what the predictor is (version, families, vocabularies, sizes, curves, held-out scores, digest of
//! the data, seed); its tensors hold the remembered answers and the networks' parameters, by name.
//! Whatever does not fit together is refused with its reason before anything is predicted.

use crate::case::{Facts, Ground};
use crate::chain::{Chain, ChainSizes};
use crate::encode::Encoder;
use crate::memory::Memory;
use crate::nn::Layout;
use crate::predictor::{Info, Predictor};
use crate::ranker::{Ranker, RankerSizes};
use crate::solver::{Curves, Mix, Solver};
use crate::train::Learner;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Family, FamilyError, FamilySpec};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The version that this build writes, and the only one that it reads.
pub const VERSION: u32 = 1;
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
    #[error("it is a predictor of version {found}, this build reads version {VERSION}: train it again with this build")]
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
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SolverHeader {
    family: FamilySpec,
    encoder: Encoder,
    rows: Vec<(String, String)>,
    scale: Vec<(f32, f32)>,
    dimensions: usize,
    words: usize,
    ranker: RankerSizes,
    chain: ChainSizes,
    members: (usize, usize),
    mix: Mix,
    curves: Curves,
}

/// The bytes of numbers.
pub(crate) fn bytes_of<const N: usize, T: Copy>(values: &[T], to: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&v| to(v)).collect()
}

impl Predictor {
    /// The whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let broken = |e: &dyn std::fmt::Display| FileError::Header(e.to_string());
        let mut parts: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
        let mut headers = Vec::new();
        for s in self.solvers() {
            let name = s.solver();
            let Facts { encoder, rows, memory, scale } = s.facts();
            let n = memory.len();
            let mut part = |what: &str, kind, shape, bytes| parts.push((format!("{name}/{what}"), kind, shape, bytes));
            part("memory.places", Dtype::F32, vec![n, memory.dimensions], bytes_of(&memory.places, f32::to_le_bytes));
            part("memory.tokens", Dtype::U16, vec![n, memory.words], bytes_of(&memory.tokens, u16::to_le_bytes));
            part("memory.rows", Dtype::U16, vec![n], bytes_of(&memory.rows, u16::to_le_bytes));
            part("memory.layers", Dtype::U32, vec![n], bytes_of(&memory.layers, u32::to_le_bytes));
            part("memory.answers", Dtype::U16, vec![n, memory.width], bytes_of(&memory.answers, u16::to_le_bytes));
            for (network, layout, members) in
                [("ranker", s.ranker.layout(), &s.ranker_members), ("chain", s.chain.layout(), &s.chain_members)]
            {
                for (i, parameters) in members.iter().enumerate() {
                    for (what, m) in layout.entries() {
                        part(
                            &format!("{network}.{i}.{what}"),
                            Dtype::F32,
                            vec![m.rows, m.cols],
                            bytes_of(m.of(parameters), f32::to_le_bytes),
                        );
                    }
                }
            }
            headers.push(SolverHeader {
                family: s.ground.family.spec().clone(),
                encoder: encoder.clone(),
                rows: rows.clone(),
                scale: scale.clone(),
                dimensions: memory.dimensions,
                words: memory.words,
                ranker: s.ranker.sizes(),
                chain: s.chain.sizes(),
                members: (s.ranker_members.len(), s.chain_members.len()),
                mix: s.mix,
                curves: s.curves.clone(),
            });
        }
        let header = Header { version: VERSION, info: self.info().clone(), solvers: headers };
        let header = serde_json::to_string(&header).map_err(|e| broken(&e))?;
        let mut views = Vec::with_capacity(parts.len());
        for (name, kind, shape, bytes) in &parts {
            views.push((name.as_str(), TensorView::new(*kind, shape.clone(), bytes).map_err(|e| broken(&e))?));
        }
        safetensors::serialize(views, Some(HashMap::from([(KEY.to_owned(), header)]))).map_err(|e| broken(&e))
    }

    /// Reads what [`Predictor::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Predictor, FileError> {
        let no = |e: safetensors::SafeTensorError| FileError::NotAPredictor(format!("{e:?}"));
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(no)?;
        let text = metadata.metadata().as_ref().and_then(|m| m.get(KEY));
        let text = text.ok_or_else(|| FileError::NotAPredictor(format!("a safetensors file without `{KEY}` in its metadata")))?;
        // The version first: another version's header may hold anything.
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| FileError::Header(e.to_string()))?;
        let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0) as u32;
        if found != VERSION {
            return Err(FileError::Version { found });
        }
        let header: Header = serde_json::from_value(value).map_err(|e| FileError::Header(e.to_string()))?;
        let parts = SafeTensors::deserialize(bytes).map_err(no)?;
        let mut read = 0;
        let mut solvers = Vec::new();
        for h in header.solvers {
            solvers.push(solver(h, &parts, &mut read)?);
        }
        if read != parts.len() {
            return Err(FileError::Header(format!("it has {} parts, of which {read} are known", parts.len())));
        }
        Ok(Predictor::new(solvers, header.info))
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
pub(crate) fn part<'a>(parts: &SafeTensors<'a>, name: &str, kind: Dtype, shape: &[usize], read: &mut usize) -> Result<&'a [u8], FileError> {
    let fault = |why: String| FileError::Part { name: name.into(), why };
    let t = parts.tensor(name).map_err(|_| fault("is missing".into()))?;
    if t.dtype() != kind || t.shape() != shape {
        return Err(fault(format!("is {:?} {:?}, expected {kind:?} {shape:?}", t.dtype(), t.shape())));
    }
    *read += 1;
    Ok(t.data())
}

/// Numbers, all of them finite.
pub(crate) fn floats(bytes: &[u8], name: &str) -> Result<Vec<f32>, FileError> {
    let out: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    if out.iter().all(|x| x.is_finite()) {
        Ok(out)
    } else {
        Err(FileError::Part { name: name.into(), why: "holds numbers that are not finite".into() })
    }
}

fn shorts(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect()
}

fn solver(h: SolverHeader, parts: &SafeTensors, read: &mut usize) -> Result<Solver, FileError> {
    let family = Arc::new(Family::new(h.family)?);
    let name = family.solver().to_owned();
    let width = family.spec().knobs.len();
    let header = |why: String| FileError::Header(format!("{name}: {why}"));
    let full = |what: &str| format!("{name}/{what}");
    let rows_name = full("memory.rows");
    let missing = |_| FileError::Part { name: rows_name.clone(), why: "is missing".into() };
    let n = parts.tensor(&rows_name).map_err(missing)?.shape().iter().product();
    let mut get = |what: &str, kind, shape: &[usize]| part(parts, &full(what), kind, shape, read);
    let memory = Memory {
        dimensions: h.dimensions,
        words: h.words,
        width,
        places: floats(get("memory.places", Dtype::F32, &[n, h.dimensions])?, &full("memory.places"))?,
        tokens: shorts(get("memory.tokens", Dtype::U16, &[n, h.words])?),
        rows: shorts(get("memory.rows", Dtype::U16, &[n])?),
        layers: get("memory.layers", Dtype::U32, &[n])?.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        answers: shorts(get("memory.answers", Dtype::U16, &[n, width])?),
    };
    let legal = |(i, v): (usize, &u16)| usize::from(*v) < family.spec().knobs[i % width].values.len();
    if !memory.answers.iter().enumerate().all(legal) {
        return Err(FileError::Part { name: full("memory.answers"), why: "names values that its family lacks".into() });
    }
    if memory.rows.iter().any(|&r| usize::from(r) > h.rows.len()) {
        return Err(FileError::Part { name: rows_name, why: "names rows that the header lacks".into() });
    }
    if h.scale.len() != family.spec().features.len() {
        return Err(header(format!("{} scales for {} features", h.scale.len(), family.spec().features.len())));
    }
    if !h.encoder.is_consistent() || (h.encoder.sizes(), h.encoder.word_count()) != (h.dimensions, h.words) {
        return Err(header("its vocabulary and its scales do not fit together".into()));
    }
    if h.members.0 == 0 || h.members.1 == 0 || h.members.0 > 64 || h.members.1 > 64 {
        return Err(header(format!("{:?} networks", h.members)));
    }
    for size in [h.ranker.context, h.ranker.hidden, h.ranker.last, h.chain.context, h.chain.head] {
        if size == 0 || size > 1 << 14 {
            return Err(header(format!("a layer of width {size}")));
        }
    }
    let facts = Facts { encoder: h.encoder, rows: h.rows, memory, scale: h.scale };
    let ground = Ground::new(family, facts);
    let (ranker, chain) = (Ranker::new(&ground, h.ranker), Chain::new(&ground, h.chain));
    let mut network = |what: &str, layout: &Layout, members: usize| -> Result<Vec<Vec<f32>>, FileError> {
        let member = |i: usize, read: &mut usize| {
            let mut out = Vec::with_capacity(layout.len());
            for (entry, m) in layout.entries() {
                let full = full(&format!("{what}.{i}.{entry}"));
                out.extend(floats(part(parts, &full, Dtype::F32, &[m.rows, m.cols], read)?, &full)?);
            }
            Ok(out)
        };
        (0..members).map(|i| member(i, read)).collect()
    };
    let ranker_members = network("ranker", ranker.layout(), h.members.0)?;
    let chain_members = network("chain", chain.layout(), h.members.1)?;
    Ok(Solver { ground, ranker, ranker_members, chain, chain_members, mix: h.mix, curves: h.curves })
}
