//! Reads MIOpen's find databases: which solvers were timed for each problem, how long each takes
//! and with how much workspace. Input: text, plain or packed, one problem a line, either by solver
//! (`Solver:milliseconds,workspace,algorithm`) or, in older files, by algorithm
//! (`algorithm:Solver,milliseconds,workspace,..`, the best of each only). Output: the checked
//! lines, and a [`FindTable`] from which `predict/src/find` learns.

use super::{BadRow, Convolution, DatabaseError, Device, Form, fault, unpack};
use crate::error::shown;
use squall_core::find::{
    ChannelOrder, FindProblem, FindSolver, FindTable, Found, ListEnd, PRECISIONS,
};
use std::collections::HashMap;
use std::path::Path;

const PREFIX: &str = "miopenConvolution";
/// The number of entries to which by-solver lists are cut (MIOpen issue 2171).
pub const CUT: usize = 4;
/// Solvers of one table; a hostile file could name more.
const MOST_SOLVERS: usize = 4096;

/// The contents of a find database, with counts of the rows that cannot be used.
#[derive(Debug, Default)]
pub struct FindDatabase {
    /// `gfx942_304`.
    pub device: String,
    /// Well-formed lines as they stand in the file, without line ends, in its order. No key stands
    /// twice: the last line of a key is valid.
    pub lines: Vec<String>,
    /// Rows with a time above zero.
    pub rows: u64,
    /// Rows with a time of zero, which were never timed.
    pub zero: u64,
    /// Lists that are cut to [`CUT`] entries.
    pub cut: u64,
    /// Lists of the older form, which hold the best solver of each algorithm.
    pub by_algorithm: u64,
    /// Keys whose result has not the size that follows from the rest.
    pub inconsistent: u64,
    /// Keys that stand more than once.
    pub repeated: u64,
    /// Lines of which no row was timed.
    pub untimed: u64,
    /// Solvers that are named.
    pub solvers: u64,
    /// Lines and entries that were left out.
    pub bad: Vec<BadRow>,
}

impl Convolution {
    /// The problem as predictors of solvers see it.
    ///
    /// # Errors
    /// Where the precision is none that find databases have.
    pub fn find_problem(&self) -> Result<FindProblem, String> {
        let precision = PRECISIONS
            .iter()
            .position(|p| *p == self.precision)
            .ok_or_else(|| format!("`{}` is no precision of a find database", self.precision))?;
        let layouts: Vec<&str> = self.layout.split('-').collect();
        let all = |words: [&str; 2]| layouts.iter().all(|l| words.contains(l));
        let order = if all(["NCHW", "NCDHW"]) {
            ChannelOrder::First
        } else if all(["NHWC", "NDHWC"]) {
            ChannelOrder::Last
        } else {
            ChannelOrder::Mixed
        };
        let forward = self.direction == 'F';
        let (image, result) = if forward {
            ((self.a, &self.input), (self.b, &self.output))
        } else {
            ((self.b, &self.output), (self.a, &self.input))
        };
        let mut sizes = [1; squall_core::find::SIZES.len()];
        let mut put = |at: usize, n: i64| sizes[at] = n as i32;
        put(0, image.0);
        put(4, result.0);
        put(8, self.n);
        put(21, self.groups);
        put(12, 0);
        let axes = [
            (1, image.1),
            (5, result.1),
            (9, &self.filter),
            (12, &self.padding),
            (15, &self.stride),
            (18, &self.dilation),
        ];
        for (at, values) in axes {
            let skipped = 3 - values.len().min(3);
            for (i, &v) in values.iter().take(3).enumerate() {
                put(at + skipped + i, v);
            }
        }
        Ok(FindProblem {
            deep: self.input.len() == 3,
            precision: precision as u8,
            direction: match self.direction {
                'F' => 0,
                'B' => 1,
                _ => 2,
            },
            order,
            sizes,
        })
    }

    /// The key as find databases have it: a layout other than the usual one stands three times.
    pub fn find_key(&self) -> String {
        let usual = ["NCHW", "NCDHW"].contains(&self.layout.as_str());
        if usual || self.layout.contains('-') {
            return self.key();
        }
        let l = &self.layout;
        Convolution { layout: format!("{l}-{l}-{l}"), ..self.clone() }.key()
    }
}

/// An entry of a line.
struct Entry<'a> {
    solver: &'a str,
    algorithm: &'a str,
    ms: f64,
    workspace: u64,
}

/// A solver's name: no name of a solver is longer, or has other letters.
fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "_<>-.+,".contains(c);
    !text.is_empty() && text.len() <= 128 && text.chars().all(letter)
}

fn entry(text: &str) -> Result<(Entry<'_>, bool), String> {
    let wrong = || {
        format!(
            "`{}` is no `Solver:milliseconds,workspace,algorithm` of a find database",
            shown(text)
        )
    };
    let (head, rest) = text.split_once(':').ok_or_else(wrong)?;
    let parts: Vec<&str> = rest.split(',').collect();
    let by_algorithm = head.starts_with(PREFIX);
    let (solver, ms, workspace, algorithm) = match (by_algorithm, parts.as_slice()) {
        (true, [solver, ms, workspace, ..]) => (*solver, *ms, *workspace, head),
        (false, [ms, workspace, algorithm, ..]) => (head, *ms, *workspace, *algorithm),
        _ => return Err(wrong()),
    };
    let algorithm = algorithm.strip_prefix(PREFIX).ok_or_else(wrong)?;
    if !is_name(solver) || !is_name(algorithm) {
        return Err(wrong());
    }
    let time = || format!("`{}` of {solver} is no time", shown(ms));
    let ms: f64 = ms.trim().parse().map_err(|_| time())?;
    if !ms.is_finite() || !(0.0..=1e9).contains(&ms) {
        return Err(time());
    }
    let workspace = workspace
        .trim()
        .parse()
        .map_err(|_| format!("`{}` of {solver} is no number of bytes", shown(workspace)))?;
    Ok((Entry { solver, algorithm, ms, workspace }, by_algorithm))
}

/// Whether a text begins as a find database: its first line of the form `KEY=..` says it.
pub fn is_find_text(text: &str) -> bool {
    let mut values = text.lines().filter_map(|l| l.split_once('='));
    let first = values.find(|(key, _)| Convolution::parse(key.trim()).is_ok());
    first.is_some_and(|(_, value)| value.contains(PREFIX))
}

/// Reads a find database, or says that a file holds something else (`None`): text, plain or packed
/// by gzip or bzip2. The device is what the file's name says unless one is given.
pub fn read(path: &Path, device: Option<&str>) -> Result<Option<FindDatabase>, DatabaseError> {
    let name = path.display().to_string();
    let unreadable = |e: std::io::Error| {
        fault(&name, format!("it cannot be read: {e}"), "check the path and that you may read it")
    };
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(fault(&name, "this is no file", "save what it gives to a file and name that"));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    if bytes.starts_with(super::sqlite::MAGIC) {
        return Ok(None);
    }
    let (form, bytes) = unpack(&name, bytes)?;
    let Some(text) = (form == Form::Text).then(|| std::str::from_utf8(&bytes).ok()).flatten()
    else {
        return Ok(None);
    };
    if !is_find_text(text) {
        return Ok(None);
    }
    let device = super::device_of(&name, path, device)?;
    Ok(Some(read_text(text, &device.name)))
}

/// Reads the text of a find database.
pub fn read_text(text: &str, device: &str) -> FindDatabase {
    let mut out = FindDatabase { device: device.into(), ..FindDatabase::default() };
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut kept: Vec<&str> = Vec::new();
    let mut solvers: HashMap<&str, ()> = HashMap::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let row = i as u64 + 1;
        match take(line, row, &mut out, &mut solvers) {
            Ok(key) => match places.entry(key) {
                std::collections::hash_map::Entry::Occupied(place) => {
                    out.repeated += 1;
                    kept[*place.get()] = line;
                }
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(kept.len());
                    kept.push(line);
                }
            },
            Err(what) => out.bad.push(BadRow { row, what }),
        }
    }
    out.lines = kept.into_iter().map(String::from).collect();
    out.solvers = solvers.len() as u64;
    out
}

/// Checks a line and counts what it holds; its key.
fn take<'a>(
    line: &'a str,
    row: u64,
    out: &mut FindDatabase,
    solvers: &mut HashMap<&'a str, ()>,
) -> Result<&'a str, String> {
    let wrong = || format!("`{}` is no `PROBLEM=Solver:..` of a find database", shown(line));
    let (key, value) = line.split_once('=').ok_or_else(wrong)?;
    let problem = Convolution::parse(key.trim())?.find_problem()?;
    let (mut entries, mut timed, mut old) = (0, 0, false);
    for part in value.split(';').filter(|p| !p.is_empty()) {
        match entry(part) {
            Ok((e, by_algorithm)) => {
                entries += 1;
                old |= by_algorithm;
                if e.ms > 0.0 {
                    timed += 1;
                    if solvers.len() < MOST_SOLVERS {
                        solvers.insert(e.solver, ());
                    }
                } else {
                    out.zero += 1;
                }
            }
            Err(what) => out.bad.push(BadRow { row, what }),
        }
    }
    if entries == 0 {
        return Err(format!("{} has no timed solver", shown(key)));
    }
    out.rows += timed;
    out.untimed += u64::from(timed == 0);
    out.by_algorithm += u64::from(old);
    out.cut += u64::from(!old && entries == CUT);
    out.inconsistent += u64::from(!problem.is_consistent());
    Ok(key.trim())
}

/// Lines of a find database become a table. What [`read_text`] leaves out is left out; of problems
/// that have no timed solver nothing remains.
pub struct TableBuilder {
    table: FindTable,
    numbers: HashMap<FindSolver, u16>,
}

impl TableBuilder {
    /// A table of a GPU without problems, `gfx942_304`.
    pub fn new(device: &str) -> TableBuilder {
        let table = FindTable { device: device.into(), starts: vec![0], ..FindTable::default() };
        TableBuilder { table, numbers: HashMap::new() }
    }

    /// Adds a line; whether it had a timed solver.
    pub fn add(&mut self, line: &str) -> bool {
        let Some((key, value)) = line.split_once('=') else { return false };
        let problem = Convolution::parse(key.trim()).and_then(|c| c.find_problem());
        let Ok(problem) = problem else { return false };
        let (mut entries, mut old) = (0, false);
        let begin = self.table.rows.len();
        for (e, by_algorithm) in value.split(';').filter_map(|p| entry(p).ok()) {
            entries += 1;
            old |= by_algorithm;
            let Some(solver) = self.number(e.solver, e.algorithm).filter(|_| e.ms > 0.0) else {
                continue;
            };
            let row = Found { solver, ms: e.ms as f32, workspace: e.workspace };
            // A solver that stands twice counts by its lesser time.
            match self.table.rows[begin..].iter_mut().find(|r| r.solver == solver) {
                Some(r) if r.ms <= row.ms => {}
                Some(r) => *r = row,
                None => self.table.rows.push(row),
            }
        }
        if self.table.rows.len() == begin {
            return false;
        }
        self.table.rows[begin..].sort_by(|x, y| x.ms.total_cmp(&y.ms));
        self.table.starts.push(self.table.rows.len() as u32);
        self.table.problems.push(problem);
        self.table.ends.push(match (old, entries) {
            (true, _) => ListEnd::BestOfAlgorithm,
            (false, CUT) => ListEnd::Cut,
            _ => ListEnd::Whole,
        });
        true
    }

    fn number(&mut self, name: &str, algorithm: &str) -> Option<u16> {
        let solver = FindSolver { name: name.into(), algorithm: algorithm.into() };
        if let Some(n) = self.numbers.get(&solver) {
            return Some(*n);
        }
        let n = self.table.solvers.len();
        if n >= MOST_SOLVERS {
            return None;
        }
        self.table.solvers.push(solver.clone());
        self.numbers.insert(solver, n as u16);
        Some(n as u16)
    }

    /// The table.
    pub fn finish(self) -> FindTable {
        self.table
    }
}

/// A problem's answer as a line of a user find database.
pub struct UserLine {
    /// The problem's key.
    pub key: String,
    /// Solvers with milliseconds and bytes of workspace, fastest first.
    pub solvers: Vec<(FindSolver, f64, u64)>,
}

/// The text of a user find database with lines added. A key that is there already stays as it is:
/// its times were measured. Gives the text and how many lines were added.
pub fn merge(old: &str, lines: &[UserLine]) -> (String, usize) {
    let mut known: std::collections::HashSet<String> =
        old.lines().filter_map(|l| l.split_once('=')).map(|(k, _)| k.trim().to_string()).collect();
    let mut out = old.to_string();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    let mut added = 0;
    for line in lines {
        if line.solvers.is_empty() || !known.insert(line.key.clone()) {
            continue;
        }
        let entries: Vec<String> = line
            .solvers
            .iter()
            .map(|(s, ms, workspace)| {
                format!("{}:{},{workspace},{PREFIX}{}", s.name, milliseconds(*ms), s.algorithm)
            })
            .collect();
        out.push_str(&format!("{}={}\n", line.key, entries.join(";")));
        added += 1;
    }
    (out, added)
}

/// Six significant digits as MIOpen prints them, never an exponent and never zero.
fn milliseconds(ms: f64) -> String {
    let ms = ms.max(1e-6);
    let digits = (5 - ms.log10().floor() as i32).clamp(0, 11) as usize;
    let text = format!("{ms:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// Refuses a text that is no find database; an empty one may become one.
pub fn recognise(name: &str, text: &str) -> Result<(), DatabaseError> {
    if text.trim().is_empty() || is_find_text(text) {
        return Ok(());
    }
    Err(fault(
        name,
        "this is no find database",
        "give a user find database of MIOpen's, or a new file",
    ))
}

/// The device of a find database's name, `gfx942130.HIP.fdb.txt.gz`.
pub fn device(name: &str) -> Result<Device, String> {
    Device::parse(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F";

    fn table(line: &str) -> FindTable {
        let mut b = TableBuilder::new("gfx942_304");
        b.add(line);
        b.finish()
    }

    #[test]
    fn both_forms_are_read_and_zero_times_refused() {
        let solver = format!(
            "{KEY}=GemmFwd1x1_0_1:0.0,0,miopenConvolutionFwdAlgoGEMM;\
             ConvBwdX<3-6>:0.5,12,miopenConvolutionFwdAlgoDirect;A:0.25,0,\
             miopenConvolutionFwdAlgoDirect;B:1,0,miopenConvolutionFwdAlgoDirect"
        );
        let t = table(&solver);
        assert_eq!(t.rows_of(0).len(), 3);
        assert_eq!(t.rows_of(0)[0].ms, 0.25);
        assert_eq!(t.rows_of(0)[1].workspace, 12);
        // The zero time counts as an entry of the list, which is cut.
        assert_eq!(t.ends, [ListEnd::Cut]);
        let d = read_text(&solver, "gfx942_304");
        assert_eq!((d.zero, d.rows, d.cut, d.lines.len()), (1, 3, 1, 1));
        let old = format!(
            "{KEY}=miopenConvolutionFwdAlgoDirect:ConvAsm1x1U,0.149931,0,\
             miopenConvolutionFwdAlgoDirect,<unused>;miopenConvolutionFwdAlgoGEMM:GemmFwd1x1_0_1,\
             0.8,7,rocBlas,<unused>"
        );
        let t = table(&old);
        assert_eq!(t.solvers[0].name, "ConvAsm1x1U");
        assert_eq!(t.solvers[1].algorithm, "FwdAlgoGEMM");
        assert_eq!(t.ends, [ListEnd::BestOfAlgorithm]);
    }

    #[test]
    fn hostile_lines_are_counted_and_left_out() {
        let good = format!("{KEY}=A:0.5,0,miopenConvolutionFwdAlgoDirect");
        let text = format!(
            "{good}\n{KEY}=A:nan,0,miopenConvolutionFwdAlgoDirect\n\
             {KEY}=A:-1,0,miopenConvolutionFwdAlgoDirect\n\
             {KEY}=A:inf,0,miopenConvolutionFwdAlgoDirect\n\
             {KEY}=A:1,-5,miopenConvolutionFwdAlgoDirect\n\
             {}=A:1,0,miopenConvolutionFwdAlgoDirect\n\
             {}=A:1,0,miopenConvolutionFwdAlgoDirect\n{KEY}=A:0.5,0,miopenConv",
            KEY.replace("256", "-256"),
            KEY.replace("256", "99999999999"),
        );
        let d = read_text(&text, "gfx942_304");
        assert_eq!(d.lines, [good]);
        assert_eq!(d.rows, 1);
        // Of five lines the entry and then the line itself is named, of two the key.
        assert_eq!(d.bad.len(), 12);
    }

    #[test]
    fn what_a_user_database_had_stays_and_what_is_added_reads_back() {
        let solver = FindSolver { name: "A".into(), algorithm: "FwdAlgoDirect".into() };
        let other = KEY.replace("256", "512");
        let old = format!("{KEY}=B:0.5,0,miopenConvolutionFwdAlgoDirect");
        let line = |key: &str| UserLine {
            key: key.into(),
            solvers: vec![(solver.clone(), 0.012_345_678, 64)],
        };
        let (text, added) = merge(&old, &[line(KEY), line(&other), line(&other)]);
        assert_eq!(added, 1);
        assert_eq!(text, format!("{old}\n{other}=A:0.0123457,64,miopenConvolutionFwdAlgoDirect\n"));
        assert_eq!(milliseconds(1234.5678), "1234.57");
        assert_eq!(milliseconds(0.0), "0.000001");
        assert_eq!(milliseconds(1e7), "10000000");
    }

    #[test]
    fn backward_keys_are_seen_forward() {
        let c = Convolution::parse("128-28-28-3x3-64-56-56-32-1x1-2x2-1x1-0-NCHW-FP32-B").unwrap();
        let p = c.find_problem().unwrap();
        assert_eq!(p.sizes[0], 64);
        assert_eq!(p.sizes[2], 56);
        assert_eq!(p.sizes[4], 128);
        assert!(p.is_consistent());
        let deep = "240-1-7-7-1x3x3-240-1-7-7-32-0x1x1-1x1x1-1x1x1-0-NCDHW-FP32-B";
        let p = Convolution::parse(deep).unwrap().find_problem().unwrap();
        assert!(p.deep && p.is_consistent());
        let last = Convolution::parse(&KEY.replace("NCHW", "NHWC")).unwrap();
        assert!(last.find_key().contains("-NHWC-NHWC-NHWC-"));
    }
}
