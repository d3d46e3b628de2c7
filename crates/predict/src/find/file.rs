//! The file of a chooser of solvers: a mark, a version, and a body packed by zlib, which holds a
//! header in JSON, the measured problems (those of several GPUs once), their times, and the trees.
//! A file whose parts do not fit together is refused with the reason.

use super::bytes::{Cursor, broken, put, put_signed};
use super::candidates::{TimesFrom, WIDTH};
use super::chooser::{Chooser, ChooserInfo, Correction};
use super::forest_file;
use super::memory::Memory;
use super::models::{FORESTS, Models, PREDICTED};
use super::trees::{Bins, Forest};
use super::workspace::formulas;
use crate::tensors::{FileError, read_at_most, read_file, write_atomically};
use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};
use serde::{Deserialize, Serialize};
use squall_core::find::{ChannelOrder, FindProblem, FindSolver, FindTable, Found, ListEnd};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

const MARK: &[u8; 8] = b"SQUALLFC";
/// The version that this build writes, and the only one that it reads.
const VERSION: u32 = 2;
/// The most bytes of an unpacked body: the largest chooser has some ten megabytes.
const MOST_BYTES: u64 = 1 << 29;
/// Steps of a time's logarithm, from [`FIRST_TIME`].
const TIME_STEPS: f32 = 1800.0;
const FIRST_TIME: f32 = -14.0;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    info: ChooserInfo,
    solvers: Vec<(String, String)>,
    /// Name, problems and rows.
    gpus: Vec<(String, usize, usize)>,
    /// Distinct problems.
    problems: usize,
    native: Vec<Option<Shape>>,
    foreign: Option<Shape>,
    corrections: Vec<Vec<Correction>>,
}

/// The numbers of [`Models`], and how many trees each forest has.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    sharpness: f32,
    range: f32,
    order_parts: [[f32; 2]; 2],
    roof_share: f32,
    times_from: TimesFrom,
    trees: Vec<usize>,
    bases: Vec<f32>,
    cuts: Vec<usize>,
}

fn problem_words(p: &FindProblem) -> [i64; 4] {
    [i64::from(p.deep), p.precision.into(), p.direction.into(), p.order as i64]
}

/// Column after column, each number as what it differs from the one before.
fn write_problems(all: &[&FindProblem], out: &mut Vec<u8>) {
    let columns = 4 + squall_core::find::SIZES.len();
    for c in 0..columns {
        let mut before = 0;
        for p in all {
            let x = if c < 4 { problem_words(p)[c] } else { p.sizes[c - 4].into() };
            put_signed(out, x - before);
            before = x;
        }
    }
}

fn read_problems(n: usize, at: &mut Cursor<'_>) -> Result<Vec<FindProblem>, FileError> {
    let empty = FindProblem {
        deep: false,
        precision: 0,
        direction: 0,
        order: ChannelOrder::First,
        sizes: [1; squall_core::find::SIZES.len()],
    };
    // A problem takes a byte of each column at least.
    if n > at.0.len() {
        return Err(broken("it is cut short"));
    }
    let mut all = vec![empty; n];
    for c in 0..4 + squall_core::find::SIZES.len() {
        let mut before = 0i64;
        for p in &mut all {
            before = before.wrapping_add(at.signed()?);
            match (c, before) {
                (0, 0 | 1) => p.deep = before == 1,
                (1, 0..=3) => p.precision = before as u8,
                (2, 0..=2) => p.direction = before as u8,
                (3, 0) => p.order = ChannelOrder::First,
                (3, 1) => p.order = ChannelOrder::Last,
                (3, 2) => p.order = ChannelOrder::Mixed,
                (4.., 0..=0x7fff_ffff) => p.sizes[c - 4] = before as i32,
                _ => return Err(broken("a problem holds what none has")),
            }
        }
    }
    let zero = |p: &FindProblem| {
        p.sizes.iter().enumerate().any(|(i, &s)| s == 0 && !(12..15).contains(&i))
    };
    if all.iter().any(zero) {
        return Err(broken("a problem has a size of 0"));
    }
    Ok(all)
}

fn write_table(t: &FindTable, numbers: &HashMap<&FindProblem, u32>, out: &mut Vec<u8>) {
    let mut order: Vec<(u32, usize)> =
        t.problems.iter().enumerate().map(|(i, p)| (numbers[p], i)).collect();
    order.sort_unstable();
    let mut before = 0;
    for &(n, _) in &order {
        put(out, u64::from(n - before));
        before = n;
    }
    for &(_, i) in &order {
        out.push(t.ends[i] as u8);
    }
    for &(_, i) in &order {
        put(out, t.rows_of(i).len() as u64);
    }
    for &(_, i) in &order {
        t.rows_of(i).iter().for_each(|r| put(out, r.solver.into()));
    }
    for &(_, i) in &order {
        let mut before = 0;
        for r in t.rows_of(i) {
            let x = ((r.ms.ln() - FIRST_TIME) * TIME_STEPS).round().max(0.0) as i64;
            put_signed(out, x - before);
            before = x;
        }
    }
    for &(_, i) in &order {
        let mut tried = None;
        for r in t.rows_of(i) {
            if r.workspace == 0 {
                out.push(0);
                continue;
            }
            let all = tried.get_or_insert_with(|| formulas(&t.problems[i]));
            match all.iter().position(|&f| f as u64 == r.workspace) {
                Some(f) => out.push(f as u8 + 1),
                None => {
                    out.push(u8::MAX);
                    put(out, r.workspace);
                }
            }
        }
    }
}

fn read_table(
    head: &(String, usize, usize),
    problems: &[FindProblem],
    solvers: usize,
    at: &mut Cursor<'_>,
) -> Result<FindTable, FileError> {
    let (device, n, rows) = head;
    if n + rows > at.0.len() {
        return Err(broken("it is cut short"));
    }
    let mut t = FindTable { device: device.clone(), starts: vec![0], ..FindTable::default() };
    let mut number = 0usize;
    for _ in 0..*n {
        number = number.saturating_add(at.number()? as usize);
        let p = problems.get(number).ok_or_else(|| broken("a problem is not there"))?;
        t.problems.push(p.clone());
    }
    for _ in 0..*n {
        t.ends.push(match at.byte()? {
            0 => ListEnd::Cut,
            1 => ListEnd::Whole,
            2 => ListEnd::BestOfAlgorithm,
            _ => return Err(broken("a list ends as none does")),
        });
    }
    let mut sum = 0u32;
    for _ in 0..*n {
        let k = at.number()?;
        sum = sum.saturating_add(k.min(1 << 20) as u32);
        t.starts.push(sum);
        if k == 0 {
            return Err(broken("a list is empty"));
        }
    }
    if sum as usize != *rows {
        return Err(broken("its lists have another length"));
    }
    for _ in 0..*rows {
        let solver = at.number()?;
        if solver >= solvers as u64 {
            return Err(broken("a solver is not there"));
        }
        t.rows.push(Found { solver: solver as u16, ms: 0.0, workspace: 0 });
    }
    for i in 0..*n {
        let mut before = 0i64;
        for r in t.starts[i]..t.starts[i + 1] {
            before = before.wrapping_add(at.signed()?);
            let ms = (before as f32 / TIME_STEPS + FIRST_TIME).exp();
            if !ms.is_finite() || ms <= 0.0 {
                return Err(broken("a time is none"));
            }
            t.rows[r as usize].ms = ms;
        }
    }
    for i in 0..*n {
        let mut tried = None;
        for r in t.starts[i]..t.starts[i + 1] {
            t.rows[r as usize].workspace = match at.byte()? {
                0 => 0,
                u8::MAX => at.number()?,
                f => {
                    let all = tried.get_or_insert_with(|| formulas(&t.problems[i]));
                    let bytes = all.get(usize::from(f) - 1);
                    *bytes.ok_or_else(|| broken("a workspace is none"))? as u64
                }
            };
        }
    }
    Ok(t)
}

fn forests(m: &Models) -> impl Iterator<Item = &Forest> {
    m.forests.iter().flatten().chain([&m.spread])
}

fn shape(m: &Models) -> Shape {
    Shape {
        sharpness: m.sharpness,
        range: m.range,
        order_parts: m.order_parts,
        roof_share: m.roof_share,
        times_from: m.times_from,
        trees: forests(m).map(|f| f.trees.len()).collect(),
        bases: forests(m).map(|f| f.base).collect(),
        cuts: m.bins.cuts.iter().map(Vec::len).collect(),
    }
}

fn write_models(m: &Models, out: &mut Vec<u8>) {
    m.bins.cuts.iter().flatten().for_each(|c| out.extend(c.to_le_bytes()));
    forests(m).for_each(|f| forest_file::write(f, out));
}

fn read_models(s: &Shape, at: &mut Cursor<'_>) -> Result<Models, FileError> {
    let count = PREDICTED.len() * FORESTS + 1;
    let fits = s.trees.len() == count && s.bases.len() == count && s.cuts.len() == WIDTH;
    if !fits || s.cuts.iter().any(|&c| c > 64) || s.trees.iter().any(|&t| t > 1 << 16) {
        return Err(broken("its trees are none of this version"));
    }
    let mut cuts = Vec::new();
    for &n in &s.cuts {
        let list: Vec<f32> = (0..n).map(|_| at.float()).collect::<Result<_, _>>()?;
        cuts.push(list);
    }
    let mut all = Vec::new();
    for (&n, &base) in s.trees.iter().zip(&s.bases) {
        all.push(forest_file::read(n, base, at)?);
    }
    let spread = all.pop().unwrap_or_default();
    let mut all = all.into_iter();
    let forests = PREDICTED.iter().map(|_| all.by_ref().take(FORESTS).collect()).collect();
    Ok(Models {
        bins: Bins { cuts },
        forests,
        spread,
        sharpness: s.sharpness,
        range: s.range,
        order_parts: s.order_parts,
        roof_share: s.roof_share,
        times_from: s.times_from,
    })
}

impl Chooser {
    /// The bytes of the whole file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FileError> {
        let mut all: Vec<&FindProblem> =
            self.memory.gpus.iter().flat_map(|g| &g.table.problems).collect();
        all.sort_unstable();
        all.dedup();
        let numbers: HashMap<&FindProblem, u32> = all.iter().copied().zip(0..).collect();
        let header = Header {
            info: self.info.clone(),
            solvers: self
                .memory
                .solvers
                .iter()
                .map(|s| (s.name.clone(), s.algorithm.clone()))
                .collect(),
            gpus: self
                .memory
                .gpus
                .iter()
                .map(|g| (g.table.device.clone(), g.table.problems.len(), g.table.rows.len()))
                .collect(),
            problems: all.len(),
            native: self.native.iter().map(|m| m.as_ref().map(shape)).collect(),
            foreign: self.foreign.as_ref().map(shape),
            corrections: self.renumbered(&numbers),
        };
        let header = serde_json::to_vec(&header).map_err(|e| broken(e.to_string()))?;
        let mut body = Vec::new();
        put(&mut body, header.len() as u64);
        body.extend(header);
        write_problems(&all, &mut body);
        for g in &self.memory.gpus {
            write_table(&g.table, &numbers, &mut body);
        }
        let models = self.native.iter().flatten().chain(&self.foreign);
        models.for_each(|m| write_models(m, &mut body));
        let mut out = MARK.to_vec();
        out.extend(VERSION.to_le_bytes());
        ZlibEncoder::new(&body[..], Compression::new(7))
            .read_to_end(&mut out)
            .map_err(|e| broken(e.to_string()))?;
        Ok(out)
    }

    /// Corrections by the places that problems have in the file.
    fn renumbered(&self, numbers: &HashMap<&FindProblem, u32>) -> Vec<Vec<Correction>> {
        let of = |(g, list): (usize, &Vec<Correction>)| {
            let problems = &self.memory.gpus[g].table.problems;
            let mut order: Vec<u32> = problems.iter().map(|p| numbers[p]).collect();
            order.sort_unstable();
            let place =
                |i: u32| order.partition_point(|&n| n < numbers[&problems[i as usize]]) as u32;
            list.iter().map(|c| Correction { problem: place(c.problem), ..c.clone() }).collect()
        };
        self.corrections.iter().enumerate().map(of).collect()
    }

    /// Reads what [`Chooser::to_bytes`] wrote.
    ///
    /// # Errors
    /// Where the bytes are no chooser, one of another version, or do not fit together.
    pub fn from_bytes(bytes: &[u8]) -> Result<Chooser, FileError> {
        let Some(rest) = bytes.strip_prefix(MARK) else {
            return Err(FileError::NotAPredictor("a chooser of solvers begins otherwise".into()));
        };
        let mut at = Cursor(rest);
        let v = at.bytes(4)?;
        let found = u32::from_le_bytes([v[0], v[1], v[2], v[3]]);
        if found != VERSION {
            return Err(broken(format!(
                "it is a chooser of version {found}, this build reads version {VERSION}: train it \
                 again with this build"
            )));
        }
        let body = read_at_most(ZlibDecoder::new(at.0), MOST_BYTES)
            .map_err(|e| broken(format!("it is damaged or cut short ({e})")))?
            .ok_or_else(|| broken(format!("it unpacks to more than {} MiB", MOST_BYTES >> 20)))?;
        let mut at = Cursor(&body);
        let length = at.number()? as usize;
        let header: Header =
            serde_json::from_slice(at.bytes(length)?).map_err(|e| broken(e.to_string()))?;
        let problems = read_problems(header.problems, &mut at)?;
        let mut tables = Vec::new();
        for head in &header.gpus {
            tables.push(read_table(head, &problems, header.solvers.len(), &mut at)?);
        }
        let mut models = |s: &Option<Shape>| -> Result<Option<Models>, FileError> {
            s.as_ref().map(|s| read_models(s, &mut at)).transpose()
        };
        let native: Vec<_> = header.native.iter().map(&mut models).collect::<Result<_, _>>()?;
        let foreign = models(&header.foreign)?;
        if native.len() != tables.len() {
            return Err(broken("its trees are of other GPUs"));
        }
        if !at.0.is_empty() {
            return Err(broken("more stands behind its end"));
        }
        let known = |(list, t): (&Vec<Correction>, &FindTable)| {
            list.iter().all(|c| {
                (c.problem as usize) < t.problems.len()
                    && usize::from(c.solver) < header.solvers.len()
                    && c.order.is_finite()
                    && c.time.is_finite()
            })
        };
        if header.corrections.len() != tables.len()
            || !header.corrections.iter().zip(&tables).all(known)
        {
            return Err(broken("its corrections do not fit"));
        }
        let solver = |(name, algorithm)| FindSolver { name, algorithm };
        let solvers = header.solvers.into_iter().map(solver).collect();
        Ok(Chooser {
            memory: Memory::numbered(solvers, tables),
            native,
            foreign,
            corrections: header.corrections,
            info: header.info,
        })
    }

    /// Whether a file begins as a chooser does.
    pub fn is_chooser(bytes: &[u8]) -> bool {
        bytes.starts_with(MARK)
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        write_atomically(path, &self.to_bytes()?)
    }

    /// Reads a chooser's file.
    pub fn load(path: &Path) -> Result<Chooser, FileError> {
        let io = |error| FileError::Io { path: path.display().to_string(), error };
        Chooser::from_bytes(&read_file(path).map_err(io)?)
    }
}
