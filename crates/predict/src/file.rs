//! The predictor file: one safetensors file, packed by gzip (before version 5 it was not). Its
//! metadata holds `squall`, a JSON header that describes the predictor (version, families,
//! vocabularies, sizes, curves, held-out scores, digest of the data, seed); its tensors hold the
//! remembered answers and the networks' parameters, by name. A file whose parts do not fit together
//! is refused with the reason before anything is predicted. `squall train` writes such files,
//! `squall predict` reads them.

use crate::chain::{Chain, ChainSizes};
use crate::classical;
use crate::encode::Encoder;
use crate::features::{Facts, Featurizer};
use crate::memory::{Memory, Metric};
use crate::model::Model;
use crate::nn::ParameterLayout;
use crate::options::Kind;
use crate::paper::{self, Sequence};
use crate::predictor::{Info, Predictor};
use crate::ranker::{Ranker, RankerSizes};
use crate::rows::{Row, RowModel, RowModels};
use crate::solver::{Curves, Mix, Solver};
use crate::task::{TaskFacts, TaskModel};
use crate::tensors::{
    EARLIEST, FileError, TensorReader, TensorWriter, VERSION, header, packed, read_file, unpacked,
    write_atomically,
};
use crate::train::{Epoch, Learner};
use crate::trainer::Seen;
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Family, FamilySpec};
use std::path::Path;
use std::sync::Arc;

const KEY: &str = "squall";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u32,
    info: Info,
    solvers: Vec<SolverHeader>,
    /// Solvers with a model for each device and precision.
    #[serde(default)]
    others: Vec<RowsHeader>,
    /// The model of Squall's own tasks.
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
    /// The width of the LSTMs of the paper's models.
    hidden: usize,
    curve: Vec<Epoch>,
}

/// The part of [`Facts`] that is no list of numbers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FactsHeader {
    encoder: Encoder,
    rows: Vec<(String, String)>,
    scale: Vec<(f32, f32)>,
    /// The coordinates that distances look at, and their weights.
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

fn write_network(name: &str, layout: &ParameterLayout, parameters: &[f32], out: &mut TensorWriter) {
    for (entry, m) in layout.entries() {
        out.add(format!("{name}.{entry}"), &[m.rows, m.cols], m.of(parameters));
    }
}

/// A network whose parameters were rounded when its training ended.
fn write_rounded(name: &str, layout: &ParameterLayout, parameters: &[f32], out: &mut TensorWriter) {
    for (entry, m) in layout.entries() {
        out.add_rounded(&format!("{name}.{entry}"), [m.rows, m.cols], m.of(parameters));
    }
}

fn write_facts(name: &str, facts: &Facts, out: &mut TensorWriter) -> FactsHeader {
    let Facts { encoder, rows, memory, kept, metric, scale } = facts;
    let n = memory.len();
    // Coordinates follow from the sizes, which take a tenth of the room.
    match memory.sizes.len() {
        0 => out.add(format!("{name}/memory.places"), &[memory.dimensions, n], &memory.places),
        all => out.add_small(format!("{name}/memory.sizes"), &[all / n.max(1), n], &memory.sizes),
    }
    let wide = |list: &[u16]| list.iter().map(|x| u32::from(*x)).collect::<Vec<u32>>();
    out.add_small(format!("{name}/memory.tokens"), &[memory.words, n], &wide(&memory.tokens));
    out.add_small(format!("{name}/memory.rows"), &[n], &wide(&memory.rows));
    out.add_small(format!("{name}/memory.layers"), &[n], &memory.layers);
    out.add_small(format!("{name}/memory.answers"), &[n, memory.width], &wide(&memory.answers));
    FactsHeader {
        encoder: encoder.clone(),
        rows: rows.clone(),
        scale: scale.clone(),
        kept: kept.clone(),
        metric: metric.clone(),
        words: memory.words,
    }
}

fn write_solver(s: &Solver, out: &mut TensorWriter) -> SolverHeader {
    let name = s.solver();
    let facts = write_facts(name, s.facts(), out);
    write_seen(name, &s.seen, out);
    let networks = [
        ("ranker", s.ranker.layout(), &s.ranker_members),
        ("chain", s.chain.layout(), &s.chain_members),
    ];
    for (what, layout, members) in networks {
        for (i, parameters) in members.iter().enumerate() {
            write_rounded(&format!("{name}/{what}.{i}"), layout, parameters, out);
        }
    }
    SolverHeader {
        family: s.featurizer.family.spec().clone(),
        facts,
        ranker: s.ranker.sizes(),
        chain: s.chain.sizes(),
        members: (s.ranker_members.len(), s.chain_members.len()),
        mix: s.mix,
        curves: s.curves.clone(),
    }
}

fn write_row(name: &str, row: &Row, out: &mut TensorWriter) -> RowHeader {
    let facts = write_facts(name, &row.model.featurizer().facts, out);
    let mut hidden = 0;
    match &row.model {
        RowModel::Neighbours(_) => {}
        RowModel::Paper(t) => {
            let (sequence, parameters) = t.network();
            hidden = sequence.hidden();
            write_network(&format!("{name}/sequence"), sequence.layout(), parameters, out);
        }
        RowModel::Classical(t) => {
            let (ints, floats) = t.numbers();
            out.add_list(format!("{name}/ints"), &ints);
            out.add_list(format!("{name}/floats"), &floats);
        }
    }
    let (device, precision) = (row.device.clone(), row.precision.clone());
    RowHeader { device, precision, facts, hidden, curve: row.model.curve().to_vec() }
}

fn write_rows(solver: &str, r: &RowModels, out: &mut TensorWriter) -> RowsHeader {
    write_seen(solver, &r.seen, out);
    let row = |(i, row): (usize, &Row)| write_row(&format!("{solver}/{i}"), row, out);
    let rows = r.rows.iter().enumerate().map(row).collect();
    RowsHeader { family: r.family.spec().clone(), kind: r.kind, rows }
}

impl Predictor {
    /// The bytes of the whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let mut out = TensorWriter::default();
        let mut header = Header {
            version: VERSION,
            info: self.info().clone(),
            solvers: Vec::new(),
            others: Vec::new(),
            tasks: None,
        };
        for model in self.models() {
            match model {
                Model::Pair(s) => header.solvers.push(write_solver(s, &mut out)),
                Model::Rows(r) => header.others.push(write_rows(model.solver(), r, &mut out)),
            }
        }
        if let Ok(tasks) = self.tasks() {
            for (i, parameters) in tasks.members.iter().enumerate() {
                write_network(&format!("tasks/{i}"), &tasks.layout, parameters, &mut out);
            }
            header.tasks = Some(tasks.facts().clone());
        }
        let header =
            serde_json::to_string(&header).map_err(|e| FileError::Header(e.to_string()))?;
        let whole = out.finish(KEY, header)?;
        packed(whole).map_err(|e| FileError::Header(e.to_string()))
    }

    /// Reads what [`Predictor::to_bytes`] wrote.
    ///
    /// # Errors
    /// Where the bytes are no predictor, one of another version, or do not fit together.
    pub fn from_bytes(bytes: &[u8]) -> Result<Predictor, FileError> {
        let bytes: &[u8] = &unpacked(bytes).map_err(FileError::NotAPredictor)?;
        let text = header(bytes, KEY).map_err(FileError::NotAPredictor)?.ok_or_else(|| {
            FileError::NotAPredictor(format!("a safetensors file without `{KEY}` in its metadata"))
        })?;
        let broken = |e: serde_json::Error| FileError::Header(e.to_string());
        // The version is read first, because the header of another version may hold anything.
        let value: serde_json::Value = serde_json::from_str(&text).map_err(broken)?;
        let found = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0) as u32;
        if !(EARLIEST..=VERSION).contains(&found) {
            return Err(FileError::Version { found });
        }
        let header: Header = serde_json::from_value(value).map_err(broken)?;
        let mut tensors = TensorReader::new(bytes).map_err(FileError::NotAPredictor)?;
        let mut models = Vec::new();
        for h in header.solvers {
            models.push(Model::Pair(Box::new(read_solver(h, &mut tensors)?)));
        }
        for h in header.others {
            models.push(Model::Rows(read_rows(h, &mut tensors)?));
        }
        let tasks = header.tasks.map(|facts| read_tasks(facts, &mut tensors)).transpose()?;
        let (all, read) = tensors.counts();
        if read != all {
            return Err(FileError::Header(format!(
                "it has {all} parts, of which {read} are known"
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
        Predictor::from_bytes(&read_file(path).map_err(io)?)
    }
}

/// What the hashes of a solver's problems are called; of keys alone, in earlier files.
fn seen_name(solver: &str, by_device: bool) -> String {
    format!("{solver}/{}", if by_device { "problems" } else { "keys" })
}

fn write_seen(solver: &str, seen: &Seen, out: &mut TensorWriter) {
    out.add_list(seen_name(solver, seen.by_device), &seen.hashes);
}

/// The hashes of a solver's problems, ascending.
fn read_seen(solver: &str, tensors: &mut TensorReader) -> Result<Seen, FileError> {
    let by_device = !tensors.has(&seen_name(solver, false));
    let name = seen_name(solver, by_device);
    let hashes: Vec<u64> = tensors.list(&name)?;
    if hashes.is_sorted() {
        return Ok(Seen { hashes, by_device });
    }
    Err(FileError::Part { name, why: "does not ascend".into() })
}

/// The kept coordinates of `n` problems, one of all after another, from their sizes.
fn places_of(encoder: &Encoder, kept: &[u32], names: &[&str], n: usize, sizes: &[u32]) -> Vec<f32> {
    let mut out = vec![0.0; kept.len() * n];
    for i in 0..n {
        // The names ascend.
        let size =
            |name: &str| names.binary_search(&name).map_or(0, |at| i64::from(sizes[at * n + i]));
        let place = encoder.place_of(&size);
        kept.iter().enumerate().for_each(|(k, &at)| out[k * n + i] = place[at as usize]);
    }
    out
}

/// The sizes and the kept coordinates of `n` remembered problems. Before version 5 files had the
/// latter alone.
fn read_places(
    name: &str,
    h: &FactsHeader,
    n: usize,
    tensors: &mut TensorReader,
) -> Result<(Vec<u32>, Vec<f32>), FileError> {
    let (stored, dimensions) = (format!("{name}/memory.sizes"), h.kept.len());
    if !tensors.has(&stored) {
        let places = tensors.floats(&format!("{name}/memory.places"), &[dimensions, n])?;
        return Ok((Vec::new(), places));
    }
    let (numbers, steps) = (n.saturating_mul(dimensions), n.saturating_mul(h.encoder.work()));
    if !tensors.take(numbers, steps) {
        let why = format!("{name}: {n} answers of {dimensions} coordinates, more than it can hold");
        return Err(FileError::Header(why));
    }
    let names = h.encoder.size_names();
    let sizes = tensors.small(&stored, &[names.len(), n])?;
    let places = places_of(&h.encoder, &h.kept, &names, n, &sizes);
    Ok((sizes, places))
}

/// What training learned of the data, under a name. Everything that the models rely on is checked.
fn read_facts(
    name: &str,
    h: FactsHeader,
    family: &Family,
    tensors: &mut TensorReader,
) -> Result<Facts, FileError> {
    let (width, dimensions) = (family.spec().knobs.len(), h.kept.len());
    let header = |why: String| FileError::Header(format!("{name}: {why}"));
    let full = |what: &str| format!("{name}/{what}");
    let rows_name = full("memory.rows");
    let n = tensors.len(&rows_name)?;
    let known = h.kept.is_sorted_by(|a, b| a < b)
        && h.kept.last().is_none_or(|&k| (k as usize) < h.encoder.coordinates());
    if !h.encoder.is_consistent() || h.encoder.word_count() != h.words || !known {
        return Err(header("its vocabulary and its scales do not fit together".into()));
    }
    let (sizes, places) = read_places(name, &h, n, tensors)?;
    let mut narrow = |what: &str, shape: &[usize]| {
        let all = tensors.small(&full(what), shape)?.into_iter().map(u16::try_from);
        let too_large =
            |_| FileError::Part { name: full(what), why: "has too large numbers".into() };
        all.collect::<Result<Vec<u16>, _>>().map_err(too_large)
    };
    let memory = Memory {
        dimensions,
        words: h.words,
        width,
        places,
        sizes,
        tokens: narrow("memory.tokens", &[h.words, n])?,
        rows: narrow("memory.rows", &[n])?,
        answers: narrow("memory.answers", &[n, width])?,
        layers: tensors.small(&full("memory.layers"), &[n])?,
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
    layout: &ParameterLayout,
    tensors: &mut TensorReader,
) -> Result<Vec<f32>, FileError> {
    let mut out = Vec::with_capacity(layout.len());
    for (entry, m) in layout.entries() {
        out.extend(tensors.floats(&format!("{name}.{entry}"), &[m.rows, m.cols])?);
    }
    Ok(out)
}

/// Refuses widths that no layer has.
fn check_widths(name: &str, widths: &[usize]) -> Result<(), FileError> {
    match widths.iter().find(|&&w| w == 0 || w > 1 << 14) {
        Some(w) => Err(FileError::Header(format!("{name}: a layer of width {w}"))),
        None => Ok(()),
    }
}

fn read_solver(h: SolverHeader, tensors: &mut TensorReader) -> Result<Solver, FileError> {
    let family = Arc::new(Family::new(h.family)?);
    let name = family.solver().to_owned();
    if h.members.0 == 0 || h.members.1 == 0 || h.members.0 > 64 || h.members.1 > 64 {
        return Err(FileError::Header(format!("{name}: {:?} networks", h.members)));
    }
    check_widths(
        &name,
        &[h.ranker.context, h.ranker.hidden, h.ranker.last, h.chain.context, h.chain.head],
    )?;
    let facts = read_facts(&name, h.facts, &family, tensors)?;
    let seen = read_seen(&name, tensors)?;
    let featurizer = Featurizer::new(family, facts);
    let (ranker, chain) = (Ranker::new(&featurizer, h.ranker), Chain::new(&featurizer, h.chain));
    let mut networks = |what: &str, layout: &ParameterLayout, members: usize| {
        let network = |i| read_network(&format!("{name}/{what}.{i}"), layout, tensors);
        (0..members).map(network).collect::<Result<Vec<_>, FileError>>()
    };
    let ranker_members = networks("ranker", ranker.layout(), h.members.0)?;
    let chain_members = networks("chain", chain.layout(), h.members.1)?;
    Ok(Solver {
        featurizer,
        ranker,
        ranker_members,
        chain,
        chain_members,
        mix: h.mix,
        seen,
        curves: h.curves,
    })
}

fn read_tasks(facts: TaskFacts, tensors: &mut TensorReader) -> Result<TaskModel, FileError> {
    if facts.members == 0 || facts.members > 64 || !facts.is_consistent() {
        return Err(FileError::Header("what it says of tasks does not fit together".into()));
    }
    check_widths("tasks", &[facts.width])?;
    let mut model = TaskModel::empty(facts);
    for i in 0..model.facts().members {
        model.members.push(read_network(&format!("tasks/{i}"), &model.layout, tensors)?);
    }
    Ok(model)
}

fn read_rows(h: RowsHeader, tensors: &mut TensorReader) -> Result<RowModels, FileError> {
    let family = Arc::new(Family::new(h.family)?);
    let solver = family.solver().to_owned();
    let seen = read_seen(&solver, tensors)?;
    let mut rows = Vec::new();
    for (i, row) in h.rows.into_iter().enumerate() {
        rows.push(read_row(&format!("{solver}/{i}"), row, h.kind, &family, tensors)?);
    }
    Ok(RowModels { family, kind: h.kind, rows, seen })
}

fn read_row(
    name: &str,
    row: RowHeader,
    kind: Kind,
    family: &Arc<Family>,
    tensors: &mut TensorReader,
) -> Result<Row, FileError> {
    let facts = read_facts(name, row.facts, family, tensors)?;
    let featurizer = Featurizer::new(family.clone(), facts);
    let model = match kind {
        Kind::Pair => {
            let why = format!("{name}: the default model is of all devices together");
            return Err(FileError::Header(why));
        }
        Kind::Neighbours => RowModel::Neighbours(Box::new(featurizer)),
        Kind::Paper(kind) => {
            check_widths(name, &[row.hidden])?;
            let model = Sequence::new(&featurizer, kind, row.hidden);
            let parameters = read_network(&format!("{name}/sequence"), model.layout(), tensors)?;
            let trained = paper::Trained::new(featurizer, model, parameters, row.curve);
            RowModel::Paper(Box::new(trained))
        }
        Kind::Classical(_) => {
            let ints: Vec<u32> = tensors.list(&format!("{name}/ints"))?;
            let full = format!("{name}/floats");
            let n = tensors.len(&full)?;
            let floats = tensors.floats(&full, &[n])?;
            let trained = classical::Trained::from_numbers(featurizer, &ints, &floats);
            let why = "does not hold the classifiers that it should";
            let broken = || FileError::Part { name: full.clone(), why: why.into() };
            RowModel::Classical(Box::new(trained.ok_or_else(broken)?))
        }
    };
    Ok(Row { device: row.device, precision: row.precision, model })
}
