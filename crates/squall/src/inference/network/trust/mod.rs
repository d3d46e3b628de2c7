//! Verifies that the user's compiler translates plain operators correctly. (A plain operator is C
//! code generated for a node without a tuned kernel.) Each text is built twice: as networks run it,
//! and by an independent build without the optimisations that compilers get wrong. A separate
//! program (`compare.c`) runs both on the same random operands, among them hard ones (NaN,
//! infinities, denormals). Where the results differ, the network uses the independent build, and
//! the user is told. Verdicts are kept in the object cache, under the digest of all that made them.

mod moves;
mod on_gpu;
mod probe;
mod values;

pub use moves::{MovesBuild, moves_build};
pub use on_gpu::settle as settle_on_gpu;

use super::launch;
use super::plain::PlainOperators;
use super::units::compile_text;
use crate::base::error::Error;
use crate::inference::objects::{compile, objects};
use crate::target::target_context::TargetContext;
use squall_core::graph::infer::region::{self, BODY, REGION};
use squall_core::graph::{Attribute, CallOperand, OperatorCall};
use squall_core::{DType, KernelSource};
use squall_measure::cpu::Toolchain;
use squall_measure::{TemporaryFolder, end_with_us};
use squall_runtime::host;
use squall_runtime::plan::letter;
use std::fmt::{self, Write as _};
use std::iter::repeat;
use std::path::Path;

const COMPARE: &str = include_str!("compare.c");
const CASES: &str = include_str!("cases.h");
const GUARDED: &str = include_str!("guarded.h");
/// The program that compares.
const NAME: &str = "compare";

/// The result of comparing the two builds of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    /// The difference of the usual build from the independent one.
    Wrong(String),
    /// The independent build took no operands that were tried, or the program could not run it.
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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Right => f.write_str("right"),
            Verdict::Wrong(why) => write!(f, "wrong {why}"),
            Verdict::Unknown => f.write_str("unknown"),
        }
    }
}

/// Compares a network's plain operators and gives those that are built wrong the flags of the
/// independent build; what the user is to know of them.
pub fn settle(plain: &mut PlainOperators, at: &TargetContext) -> Vec<String> {
    let verdicts = match verdicts(plain, at) {
        Ok(verdicts) => verdicts,
        Err(e) => return vec![format!("plain operators run unchecked: {e}")],
    };
    let mut said = Vec::new();
    for (i, verdict) in verdicts.into_iter().enumerate() {
        let Verdict::Wrong(why) = verdict else { continue };
        let (node, call) = &plain.calls[i];
        let source = &mut plain.sources[i];
        let parts = plain.parts.get_mut(i).into_iter().flatten();
        for function in std::iter::once(&mut *source).chain(parts) {
            function.flags = at.toolchain.independent_flags();
            function.openmp = false;
        }
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
    let folder = TemporaryFolder::new("compare")?;
    let place = folder.path().join("verdict");
    let case = |(i, source): (usize, _)| Case {
        source,
        parts: plain.parts.get(i).map_or(&[], Vec::as_slice),
        call: &plain.calls[i].1,
        weights: plain.weights_of(i),
    };
    let cases: Vec<Case<'_>> = plain.sources.iter().enumerate().map(case).collect();
    let keys: Vec<String> = cases.iter().map(|case| key(case, &at.toolchain)).collect();
    let mut verdicts: Vec<Option<Verdict>> =
        keys.iter().map(|key| kept(key, &place, &at.toolchain)).collect();
    let open: Vec<usize> = (0..keys.len()).filter(|i| verdicts[*i].is_none()).collect();
    if !open.is_empty() {
        let cases = open.iter().map(|i| cases[*i]).collect();
        let lines = compared(folder.path(), &Cases(cases), at)?;
        for (i, line) in open.iter().zip(lines) {
            let verdict = line.as_deref().and_then(Verdict::parse);
            // A busy machine may be why something does not end.
            let is_sure = |line: &&String| !line.contains("does not end");
            if let (Some(line), Some(_)) = (line.as_ref().filter(is_sure), &verdict) {
                keep(&keys[*i], line, &place, &at.toolchain);
            }
            verdicts[*i] = verdict;
        }
    }
    Ok(verdicts.into_iter().map(|v| v.unwrap_or(Verdict::Unknown)).collect())
}

/// The digest of all that a verdict depends on.
fn key(case: &Case<'_>, toolchain: &Toolchain) -> String {
    let args = toolchain.object_arguments(case.source);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let independent = toolchain.independent_flags().join(" ");
    let facts = format!("{} {:?} {}", facts(case.call), case.weights, case.source.prepared.0);
    // Kernels inside of a region may share loops where the region does not.
    let part = |p: &KernelSource| format!("{:?}\n{}", toolchain.object_arguments(p), p.source);
    let parts: Vec<String> = case.parts.iter().map(part).collect();
    let mut texts =
        vec![case.source.source.as_str(), COMPARE, GUARDED, CASES, &independent, &facts];
    texts.extend(parts.iter().map(String::as_str));
    toolchain.key(&args, &texts)
}

/// The verdict that is kept under a key.
fn kept(key: &str, place: &Path, toolchain: &Toolchain) -> Option<Verdict> {
    toolchain.kept_program(key, place, || Err(())).ok()?;
    let line = std::fs::read_to_string(place).ok()?;
    Verdict::parse(&line)
}

/// Keeps a verdict's line under a key; what cannot be kept is compared again.
fn keep(key: &str, line: &str, place: &Path, toolchain: &Toolchain) {
    let _ = toolchain.kept_program(key, place, || std::fs::write(place, line));
}

/// The text of a comparing program with our headers in place of the lines that include them.
fn with_headers(text: &str) -> String {
    let text = text.replace("#include \"guarded.h\"\n", GUARDED);
    host::whole(&text.replace("#include \"cases.h\"\n", CASES))
}

/// An operator that is compared.
#[derive(Clone, Copy)]
struct Case<'a> {
    source: &'a KernelSource,
    /// The functions that it calls.
    parts: &'a [KernelSource],
    call: &'a OperatorCall,
    /// The operands that the function packs ahead of its call.
    weights: &'a [usize],
}

impl<'a> Case<'a> {
    fn functions(self) -> impl Iterator<Item = &'a KernelSource> {
        std::iter::once(self.source).chain(self.parts)
    }

    /// Whether it is a region, whose memory grows as it runs and whose loops data may end.
    fn is_region(&self) -> bool {
        self.call.op == REGION && self.call.attributes.contains_key(BODY)
    }
}

/// How a comparing program's own text is compiled.
fn own_arguments(level: &str, toolchain: &Toolchain) -> Vec<String> {
    ["-c", level]
        .into_iter()
        .chain(toolchain.flags().iter().map(String::as_str))
        .map(String::from)
        .collect()
}

/// Operators that are compared by one program.
struct Cases<'a>(Vec<Case<'a>>);

/// Builds the comparing program with both builds of all operators, and runs it: a line for each.
fn compared(
    folder: &Path,
    cases: &Cases<'_>,
    at: &TargetContext,
) -> Result<Vec<Option<String>>, Error> {
    let usual = || cases.0.iter().flat_map(|case| case.functions());
    let others = cases.0.iter().flat_map(|case| independent(*case, &at.toolchain));
    let others: Vec<KernelSource> = others.collect();
    let all: Vec<&KernelSource> = usual().chain(&others).collect();
    objects(folder, &all, &at.toolchain)?;
    let (table, constants) = cases.table();
    for (name, text, level) in
        [(NAME, with_headers(COMPARE), "-O1"), ("cases", format!("{CASES}{table}"), "-O0")]
    {
        let arguments = own_arguments(level, &at.toolchain);
        compile_text(at, &text, &arguments, &folder.join(format!("{name}.o")))?;
    }
    let openmp = all.iter().any(|s| s.openmp).then(|| "-fopenmp".to_string());
    let mut link: Vec<String> = openmp.into_iter().collect();
    link.extend(["-o", NAME, "compare.o", "cases.o"].map(String::from));
    link.extend(all.iter().map(|s| format!("{}.o", s.symbol)));
    link.push("-lm".into());
    compile(folder, &at.toolchain, &link.iter().map(String::as_str).collect::<Vec<_>>())?;
    let fail = |path: &Path, source| Error::Write { path: path.into(), source };
    let file = folder.join("constants.bin");
    std::fs::write(&file, &constants).map_err(|e| fail(&file, e))?;
    let program = folder.join(NAME);
    let mut command = at.device.command(&program);
    command.arg(&file).arg(constants.len().to_string()).current_dir(folder);
    launch::on_cores(&mut command, &at.device);
    let done = launch::output(end_with_us(&mut command)).map_err(|e| fail(&program, e))?;
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

/// The independent build of an operator's functions, under names of their own: the names of its
/// parts begin with its own.
fn independent<'a>(
    case: Case<'a>,
    toolchain: &'a Toolchain,
) -> impl Iterator<Item = KernelSource> + 'a {
    let named = &case.source.symbol;
    case.functions().map(move |source| KernelSource {
        source: source.source.replace(named, &format!("other_{named}")),
        symbol: source.symbol.replace(named, &format!("other_{named}")),
        flags: toolchain.independent_flags(),
        openmp: false,
        ..source.clone()
    })
}

impl Cases<'_> {
    /// The table of the cases as C, and the bytes of the constants that it names.
    fn table(&self) -> (String, Vec<u8>) {
        let (mut declared, mut text, mut bytes) = (String::new(), String::new(), Vec::new());
        let mut rows = String::new();
        for (k, case) in self.0.iter().enumerate() {
            let (source, call) = (case.source, case.call);
            let usual = &source.symbol;
            let _ = writeln!(declared, "extern check_function {usual}, other_{usual};");
            let mut preparations = "0, 0".to_string();
            if source.prepared.0 > 0 {
                preparations = format!("{usual}_prepare, other_{usual}_prepare");
                let _ = writeln!(declared, "extern check_preparation {preparations};");
            }
            let _ = writeln!(text, "static const check_operand in_{k}[] = {{");
            for (i, o) in call.inputs.iter().enumerate() {
                let Some(o) = o else { continue };
                let constant = constant(o).map_or(-1, |data| {
                    let at = bytes.len() as i64;
                    bytes.extend(data);
                    at
                });
                let range = legal(call, i).unwrap_or((1, 0));
                let is_weight = case.weights.contains(&i);
                row(&mut text, o.dtype, count(o), (constant, range), [is_weight, false]);
            }
            // A list of none is no C.
            let _ = writeln!(text, "  {{0, 0, -1, 1, 0, 0, 0}}}};");
            let _ = writeln!(text, "static const check_operand out_{k}[] = {{");
            let grown = region::grown_of(&call.op, &call.attributes);
            for (o, grown) in call.outputs.iter().zip(grown.into_iter().chain(repeat(None))) {
                let Some(o) = o else { continue };
                let dtype = grown.as_ref().map_or(o.dtype, |(dtype, _)| *dtype);
                row(&mut text, dtype, count(o), RESULT, [false, grown.is_some()]);
            }
            if call.extents() > 0 {
                row(&mut text, DType::I64, call.extents() as i64, RESULT, [false, false]);
            }
            let _ = writeln!(text, "  {{0, 0, -1, 1, 0, 0, 0}}}};");
            let given = call.inputs.iter().flatten();
            let is_whole = |o: &CallOperand| o.dtype.is_integer() && constant(o).is_none();
            let results = call.outputs.iter().flatten().count() + usize::from(call.extents() > 0);
            let _ = writeln!(
                rows,
                "  {{{usual}, other_{usual}, {preparations}, in_{k}, {}, out_{k}, {results}, {}u, \
                 {}u, {}, {}, {}}},",
                given.clone().count(),
                source.workspace.0,
                source.prepared.0,
                u8::from(given.clone().any(is_whole)),
                least(call),
                u8::from(case.is_region())
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

/// The place among the constants and the range of a result, which has neither.
const RESULT: (i64, (i64, i64)) = (-1, (1, 0));

/// Writes the row of an operand or result in the table of `cases.h`: the place of its elements
/// among the constants, the range of its whole numbers, whether it is packed ahead, and whether it
/// is a record of the memory and extents of a result that grew in a loop.
fn row(
    text: &mut String,
    dtype: DType,
    count: i64,
    elements: (i64, (i64, i64)),
    [is_weight, is_grown]: [bool; 2],
) {
    let (constant, (low, high)) = elements;
    let (weight, grown) = (u8::from(is_weight), u8::from(is_grown));
    let letter = letter(dtype).unwrap_or('u');
    let _ =
        writeln!(text, "  {{'{letter}', {count}, {constant}, {low}, {high}, {weight}, {grown}}},");
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

/// The facts of a call that decide its case, beside the text: types, shapes, constants.
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
