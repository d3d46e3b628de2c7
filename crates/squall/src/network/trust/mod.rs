//! Whether the compiler makes right programs of plain operators. Each text is built twice: as
//! networks run it, and by an independent build without what goes wrong in compilers; in a program
//! of its own (`judge.c`) both run on the same random operands, hard ones too. Where they differ,
//! the network runs the independent build, and that is said. Verdicts are kept as objects are,
//! under the digest of all that made them.

use super::plain::PlainOperators;
use super::program;
use crate::error::Error;
use crate::export::{compile, objects};
use crate::target_context::TargetContext;
use squall_core::graph::infer::region::REGION;
use squall_core::graph::{Attribute, CallOperand, OperatorCall};
use squall_core::{DType, KernelSource};
use squall_measure::cpu::{Object, Toolchain};
use squall_measure::{TemporaryFolder, end_with_us};
use squall_runtime::plan::letter;
use std::fmt::Write as _;
use std::path::Path;

const JUDGE: &str = include_str!("judge.c");
const CASES: &str = include_str!("cases.h");
/// The judge's program.
const NAME: &str = "judge";

/// What both builds of a text say of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// What the usual build does instead of what the independent one does.
    Wrong(String),
    /// The independent build came to no end on any operands, or the operator is a region.
    Unknown,
}

impl Verdict {
    /// The verdict that a line tells.
    fn parse(line: &str) -> Option<Verdict> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "right" => Some(Verdict::Right),
            "wrong" => Some(Verdict::Wrong(rest.trim().into())),
            "unknown" => Some(Verdict::Unknown),
            _ => None,
        }
    }
}

/// Judges a network's plain operators and gives those that are built wrong the independent build's
/// flags; what the user is to know of them.
pub fn settle(plain: &mut PlainOperators, at: &TargetContext) -> Vec<String> {
    let verdicts = match verdicts(plain, at) {
        Ok(verdicts) => verdicts,
        Err(e) => return vec![format!("plain operators run unchecked: {e}")],
    };
    let mut said = Vec::new();
    for ((source, (node, call)), verdict) in
        plain.sources.iter_mut().zip(&plain.calls).zip(verdicts)
    {
        let Verdict::Wrong(why) = verdict else { continue };
        source.flags = at.toolchain.independent_flags();
        source.openmp = false;
        said.push(format!(
            "`{}` makes a wrong program of the plain operator of node `{node}` ({}): {why}; it \
             runs as built with {}",
            at.toolchain.command(),
            call.op,
            source.flags.join(" ")
        ));
    }
    said
}

/// The verdict of each operator: the kept one, or a new one, which is kept.
fn verdicts(plain: &PlainOperators, at: &TargetContext) -> Result<Vec<Verdict>, Error> {
    if plain.sources.is_empty() {
        return Ok(Vec::new());
    }
    let folder = TemporaryFolder::new("judge")?;
    let place = folder.path().join("verdict");
    let both = || plain.sources.iter().zip(&plain.calls);
    let keys: Vec<String> = both().map(|(s, (_, call))| key(s, call, &at.toolchain)).collect();
    let mut verdicts: Vec<Option<Verdict>> =
        keys.iter().map(|key| kept(key, &place, &at.toolchain)).collect();
    // The memory of a region grows as it runs, which the judge's guards do not know.
    let is_judged = |i: &usize| plain.calls[*i].1.op != REGION;
    let open: Vec<usize> =
        (0..keys.len()).filter(|i| verdicts[*i].is_none()).filter(is_judged).collect();
    if !open.is_empty() {
        let cases = open.iter().map(|i| (&plain.sources[*i], &plain.calls[*i].1)).collect();
        let lines = judged(folder.path(), &Cases(cases), at)?;
        for (i, line) in open.iter().zip(lines) {
            let verdict = line.as_deref().and_then(Verdict::parse);
            if let (Some(line), Some(_)) = (&line, &verdict) {
                let keep = || std::fs::write(&place, line);
                // What cannot be kept is judged again.
                let _ = at.toolchain.kept_program(&keys[*i], &place, keep);
            }
            verdicts[*i] = verdict;
        }
    }
    Ok(verdicts.into_iter().map(|v| v.unwrap_or(Verdict::Unknown)).collect())
}

/// The digest of all that a verdict depends on.
fn key(source: &KernelSource, call: &OperatorCall, toolchain: &Toolchain) -> String {
    let args = toolchain.object_arguments(source);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (independent, facts) = (toolchain.independent_flags().join(" "), facts(call));
    toolchain.key(&args, &[&source.source, JUDGE, CASES, &independent, &facts])
}

/// The verdict that is kept under a key.
fn kept(key: &str, place: &Path, toolchain: &Toolchain) -> Option<Verdict> {
    toolchain.kept_program(key, place, || Err(())).ok()?;
    let line = std::fs::read_to_string(place).ok()?;
    Verdict::parse(&line)
}

/// Operators that are judged by one program.
struct Cases<'a>(Vec<(&'a KernelSource, &'a OperatorCall)>);

/// Builds the judge with both builds of all operators, and runs it: a line for each.
fn judged(
    folder: &Path,
    cases: &Cases<'_>,
    at: &TargetContext,
) -> Result<Vec<Option<String>>, Error> {
    let others: Vec<KernelSource> =
        cases.0.iter().map(|(source, _)| independent(source, &at.toolchain)).collect();
    let usual = cases.0.iter().map(|(source, _)| *source);
    let all: Vec<&KernelSource> = usual.chain(&others).collect();
    objects(folder, &all, &at.toolchain)?;
    let (table, constants) = cases.table();
    let head = "#include \"cases.h\"\n";
    for (name, text, level) in
        [(NAME, JUDGE.replace(head, CASES), "-O1"), ("cases", format!("{CASES}{table}"), "-O0")]
    {
        let mut args = vec!["-c", level];
        args.extend(at.toolchain.flags().iter().map(String::as_str));
        let to = folder.join(format!("{name}.o"));
        if let Object::Refused(said, _) = at.toolchain.compiled_text(&text, &args, &to)? {
            return Err(crate::export::refused(folder, &at.toolchain, &said));
        }
    }
    let openmp = all.iter().any(|s| s.openmp).then(|| "-fopenmp".to_string());
    let mut link: Vec<String> = openmp.into_iter().collect();
    link.extend(["-o", NAME, "judge.o", "cases.o"].map(String::from));
    link.extend(all.iter().map(|s| format!("{}.o", s.symbol)));
    link.push("-lm".into());
    compile(folder, &at.toolchain, &link.iter().map(String::as_str).collect::<Vec<_>>())?;
    let fail = |path: &Path, source| Error::Write { path: path.into(), source };
    let file = folder.join("constants.bin");
    std::fs::write(&file, &constants).map_err(|e| fail(&file, e))?;
    let program = folder.join(NAME);
    let mut command = at.device.command(&program);
    command.arg(&file).arg(constants.len().to_string()).current_dir(folder);
    program::on_cores(&mut command, &at.device);
    let done = program::output(end_with_us(&mut command)).map_err(|e| fail(&program, e))?;
    let mut lines = vec![None; cases.0.len()];
    for line in String::from_utf8_lossy(&done.stdout).lines() {
        if let Some((number, rest)) = line.split_once(' ')
            && let Some(place) = number.parse().ok().and_then(|n: usize| lines.get_mut(n))
        {
            *place = Some(rest.to_string());
        }
    }
    Ok(lines)
}

/// The independent build of a text, under a name of its own.
fn independent(source: &KernelSource, toolchain: &Toolchain) -> KernelSource {
    let symbol = format!("judged_{}", source.symbol);
    KernelSource {
        source: source.source.replace(&source.symbol, &symbol),
        symbol,
        flags: toolchain.independent_flags(),
        openmp: false,
        ..source.clone()
    }
}

impl Cases<'_> {
    /// The table of the cases as C, and the bytes of the constants that it names.
    fn table(&self) -> (String, Vec<u8>) {
        let (mut declared, mut text, mut bytes) = (String::new(), String::new(), Vec::new());
        let mut rows = String::new();
        for (k, (source, call)) in self.0.iter().enumerate() {
            let usual = &source.symbol;
            let _ = writeln!(declared, "extern check_function {usual}, judged_{usual};");
            let _ = writeln!(text, "static const check_operand in_{k}[] = {{");
            for (i, o) in call.inputs.iter().enumerate() {
                let Some(o) = o else { continue };
                let constant = constant(o).map_or(-1, |data| {
                    let at = bytes.len() as i64;
                    bytes.extend(data);
                    at
                });
                let (low, high) = legal(call, i).unwrap_or((1, 0));
                row(&mut text, (o.dtype, count(o)), constant, (low, high));
            }
            // A list of none is no C.
            let _ = writeln!(text, "  {{0, 0, -1, 1, 0}}}};");
            let _ = writeln!(text, "static const check_operand out_{k}[] = {{");
            for o in call.outputs.iter().flatten() {
                row(&mut text, (o.dtype, count(o)), -1, (1, 0));
            }
            if call.extents() > 0 {
                row(&mut text, (DType::I64, call.extents() as i64), -1, (1, 0));
            }
            let _ = writeln!(text, "  {{0, 0, -1, 1, 0}}}};");
            let given = call.inputs.iter().flatten();
            let is_whole = |o: &CallOperand| o.dtype.is_integer() && constant(o).is_none();
            let results = call.outputs.iter().flatten().count() + usize::from(call.extents() > 0);
            let _ = writeln!(
                rows,
                "  {{{usual}, judged_{usual}, in_{k}, {}, out_{k}, {results}, {}u, {}, {}}},",
                given.clone().count(),
                source.workspace.0,
                u8::from(given.clone().any(is_whole)),
                least(call)
            );
        }
        let table = format!(
            "{declared}{text}const check_case check_cases[] = {{\n{rows}}};\nconst int \
             check_count = {};\n",
            self.0.len()
        );
        (table, bytes)
    }
}

/// An operand as C has it.
fn row(text: &mut String, (dtype, count): (DType, i64), constant: i64, (low, high): (i64, i64)) {
    let letter = letter(dtype).unwrap_or('u');
    let _ = writeln!(text, "  {{'{letter}', {count}, {constant}, {low}, {high}}},");
}

fn count(o: &CallOperand) -> i64 {
    o.shape.iter().product::<i64>().max(0)
}

/// The elements of an operand that are always the same.
fn constant(o: &CallOperand) -> Option<Vec<u8>> {
    let bytes = o.constant.as_ref()?.bytes(o.dtype)?;
    (bytes.len() as i64 == count(o) * o.dtype.bytes() as i64).then_some(bytes)
}

/// The least extent of a call's operands and results.
fn least(call: &OperatorCall) -> i64 {
    let all = call.inputs.iter().chain(&call.outputs).flatten();
    all.flat_map(|o| &o.shape).copied().filter(|e| *e > 0).min().unwrap_or(1)
}

/// The whole numbers that an operand is made for, where the operator's text names them: indices of
/// what another operand has. What others may have is found by trying: operators refuse what is
/// illegal.
fn legal(call: &OperatorCall, operand: usize) -> Option<(i64, i64)> {
    let data = &call.inputs.first()?.as_ref()?.shape;
    let number = |name: &str| match call.attributes.get(name) {
        Some(Attribute::Int(i)) => *i,
        _ => 0,
    };
    let extent = match (call.op.as_str(), operand) {
        ("Gather" | "GatherElements" | "ScatterElements" | "Scatter", 1) => {
            let axis = number("axis");
            let axis = if axis < 0 { axis + data.len() as i64 } else { axis };
            *data.get(usize::try_from(axis).ok()?)?
        }
        ("GatherND", 1) => *data.iter().skip(number("batch_dims").max(0) as usize).min()?,
        ("ScatterND", 1) => *data.iter().min()?,
        _ => return None,
    };
    (extent > 0).then_some((-extent, extent - 1))
}

/// What of a call decides its case, beside the text: types, shapes, constants.
fn facts(call: &OperatorCall) -> String {
    let one = |o: &Option<CallOperand>| match o {
        Some(o) => {
            let digest = constant(o).map(|bytes| blake3::hash(&bytes).to_hex().to_string());
            format!("{} {:?} {digest:?}", o.dtype.name(), o.shape)
        }
        None => "-".into(),
    };
    let all = call.inputs.iter().chain(&call.outputs).map(one);
    format!("{} {:?} {}", call.op, legal(call, 1), all.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod sweep;
#[cfg(test)]
mod tests;
