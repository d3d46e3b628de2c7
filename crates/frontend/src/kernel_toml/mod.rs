//! kernel.toml: users' own kernels in C or CUDA with their knobs, each set of sizes a task. `squall
//! init` writes one that says what may stand in it.

mod cuda;
mod document;
mod kernel;
mod model;
mod source;

pub use kernel::OwnKernel;
pub use source::Read;

use crate::error::ImportError;
use document::{Fault, Item, Table, fault, identifier, text};
use kernel::{Choices, Given, Reaches, Recipe, whole_bytes};
use model::{Amount, Argument, Dial, Part, Problem, Values, Way};
use squall_core::space::{Knob, SpaceError, Term};
use squall_core::workload::{Axis, Foreign, Input};
use squall_core::{
    Bytes, Configuration, DType, Reference, Space, Stage, Task, TensorKind, UNTUNED, Workload,
};
use std::ops::Range;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

const TOP: &[&str] = &[
    "name",
    "language",
    "source",
    "entry",
    "flags",
    "openmp",
    "tolerance",
    "flop",
    "constraints",
    "argument",
    "knob",
    "problem",
    "reference",
    "grid",
    "block",
    "shared",
];
const REFERENCE: &[&str] = &["source", "entry", "flags", "outputs", "grid", "block", "shared"];

/// Reads a kernel.toml; `name` says in errors where the text comes from, `read` gives the sources
/// that it names.
pub fn import_kernel(
    contents: &str,
    name: &str,
    read: &Read,
) -> Result<Vec<OwnKernel>, ImportError> {
    kernels(contents, read).map_err(|f| f.show(name, contents))
}

fn kernels(contents: &str, read: &Read) -> Result<Vec<OwnKernel>, Fault> {
    let document = DeTable::parse(contents)
        .map_err(|e| Fault { at: e.span().unwrap_or(0..0), message: e.message().trim().into() })?;
    let top = Table::new("a kernel.toml", document.get_ref(), 0..0, TOP)?;
    let cuda = is_cuda(&top, "c")?;
    let entry = entry(&top, cuda)?;
    let title = top.text("name")?.unwrap_or(&entry).to_string();

    let mut taken = Vec::new();
    let arguments: Vec<Argument> = top
        .list("argument")?
        .into_iter()
        .map(|a| model::argument(a, &mut taken))
        .collect::<Result<_, _>>()?;
    if arguments.is_empty() {
        return fault(
            top.at,
            "the kernel needs its arguments, in the order of the call: `[[argument]]` tables with \
             name, type, role",
        );
    }
    if !arguments.iter().any(Argument::is_written) {
        return fault(
            top.need("argument")?.span(),
            "no argument is written: one or more have role = \"output\" or \"inout\"",
        );
    }
    let mut taken = Vec::new();
    let dials: Vec<Dial> = top
        .list("knob")?
        .into_iter()
        .map(|k| model::knob(k, cuda, &mut taken))
        .collect::<Result<_, _>>()?;
    if dials.is_empty() {
        return fault(
            top.at,
            "there is nothing to tune: it needs a `[[knob]]` with name and values",
        );
    }
    for d in &dials {
        let passed =
            arguments.iter().any(|a| matches!(a.part, Part::Knob) && a.name == d.knob.name);
        if passed != (d.way == Way::Argument) {
            let n = &d.knob.name;
            return fault(
                d.at.clone(),
                format!(
                    "a knob with `as = \"argument\"` needs an argument with the same name and \
                     role = \"knob\", and the other way round: `{n}`"
                ),
            );
        }
    }
    if let Some(a) = arguments
        .iter()
        .find(|a| matches!(a.part, Part::Knob) && !dials.iter().any(|d| d.knob.name == a.name))
    {
        return fault(
            top.need("argument")?.span(),
            format!("no knob is called `{}`, as this argument is", a.name),
        );
    }
    let mut problems: Vec<Problem> = Vec::new();
    for item in top.list("problem")? {
        let p = model::problem(item, problems.first())?;
        if let Some((n, _)) = p.sizes.iter().find(|s| dials.iter().any(|d| d.knob.name == s.0)) {
            return fault(p.at, format!("`{n}` is a knob already"));
        }
        if let Some((n, _)) =
            p.sizes.iter().find(|s| cuda && cuda::limits(&cuda::LARGEST).iter().any(|l| l.0 == s.0))
        {
            return fault(p.at, format!("`{n}` is a limit of the device: choose another name"));
        }
        if problems.iter().any(|q| q.name == p.name) {
            return fault(p.at, format!("a problem above is called `{}` too", p.name));
        }
        problems.push(p);
    }
    if problems.is_empty() {
        problems.push(Problem { name: String::new(), sizes: Vec::new(), at: 0..0 });
    }
    let launching = if cuda { Some(cuda::launching(&top, "a kernel")?) } else { None };
    let recipe = recipe(&top, "source", &title, &entry, cuda, read)?;
    if cuda {
        cuda::has_entry(
            &recipe.source,
            &entry,
            top.need("entry")?.span(),
            top.text("source")?.unwrap_or(""),
        )?;
        if let Some(o) = top.get("openmp") {
            return fault(
                o.span(),
                "`openmp` is for C: a GPU's threads are those of `block` and `grid`",
            );
        }
    }
    let (reference, results) = reference(&top, &title, &arguments, cuda, read)?;
    let file = File { recipe, launching, reference, results, top, arguments, dials, read };
    problems.iter().map(|p| file.kernel(p, &title)).collect()
}

/// Whether a table speaks of CUDA, which the ending of its source says too; what else there is, in
/// which nothing is launched.
fn is_cuda(t: &Table, otherwise: &str) -> Result<bool, Fault> {
    let by_name = match t.text("source")? {
        Some(s) if s.ends_with(".cu") => "cuda",
        Some(_) => "c",
        None => otherwise,
    };
    let cuda = t.word("language", &["c", "cuda"], by_name)? == "cuda";
    match cuda::KEYS.iter().filter(|_| !cuda).find_map(|k| Some((k, t.get(k)?))) {
        Some((k, v)) => fault(
            v.span(),
            format!(
                "`{k}` says how a CUDA kernel is launched, and this is C; CUDA has `language \
                 = \"cuda\"`"
            ),
        ),
        None => Ok(cuda),
    }
}

/// The function's name; of CUDA it may lie in a namespace.
fn entry(t: &Table, cuda: bool) -> Result<String, Fault> {
    let item = t.need("entry")?;
    let name = text(item)?;
    for part in name.split("::").filter(|_| cuda) {
        identifier(part, item.span())?;
    }
    if cuda { Ok(name.into()) } else { identifier(name, item.span()) }
}

fn recipe(
    t: &Table,
    key: &str,
    title: &str,
    entry: &str,
    cuda: bool,
    read: &Read,
) -> Result<Recipe, Fault> {
    let file = t.need(key)?;
    let source = match source::expand(text(file)?, read) {
        Ok(s) => s,
        Err(why) => {
            return fault(
                file.span(),
                format!("`{}` cannot be read: {why}", crate::error::shown(text(file)?)),
            );
        }
    };
    let flags = t.texts("flags")?;
    for (flag, item) in flags.iter().zip(t.list("flags")?) {
        if cuda {
            cuda::compiler_flag(flag, item.span())?
        } else {
            model::compiler_flag(flag, item.span())?
        }
    }
    Ok(Recipe {
        name: title.into(),
        source: source.into(),
        entry: entry.into(),
        arguments: Vec::new(),
        reaches: Vec::new(),
        others: Vec::new(),
        flags: flags.into_iter().map(String::from).collect(),
        openmp: false,
        cuda: None,
    })
}

/// A second kernel, and whether it stands in the kernel's own source, where it sees the knobs'
/// macros.
#[derive(Clone)]
struct Second {
    recipe: Recipe,
    same: bool,
    /// How it is launched, where it is in CUDA.
    launching: Option<cuda::Launching>,
}
/// Names of files with their places.
type Files = Vec<(String, Range<usize>)>;

/// The reference: a second kernel, files that hold the results, or neither.
fn reference(
    top: &Table,
    title: &str,
    arguments: &[Argument],
    cuda: bool,
    read: &Read,
) -> Result<(Option<Second>, Files), Fault> {
    let Some(item) = top.get("reference") else { return Ok((None, Files::new())) };
    let t = Table::of("the reference", item, REFERENCE)?;
    if let Some(outputs) = t.get("outputs") {
        if let Some(other) = ["entry", "source", "flags"].iter().find_map(|k| t.get(k)) {
            return fault(
                other.span(),
                "results come from files (`outputs`) or from a second function (`entry`), not \
                 from both",
            );
        }
        let written: Vec<&str> =
            arguments.iter().filter(|a| a.is_written()).map(|a| a.name.as_str()).collect();
        let files: Files = t
            .texts("outputs")?
            .into_iter()
            .zip(t.list("outputs")?)
            .map(|(f, i)| (f.into(), i.span()))
            .collect();
        if files.len() != written.len() {
            return fault(
                outputs.span(),
                format!(
                    "there are {} files for what is written: {}",
                    files.len(),
                    written.join(", ")
                ),
            );
        }
        let random = |a: &&Argument| matches!(&a.part, Part::Input { values } | Part::Inout { values } if !matches!(values, Values::File(..)));
        if let Some(a) = arguments.iter().find(random) {
            return fault(
                outputs.span(),
                format!("results from files need inputs from files: `{}` has no `file`", a.name),
            );
        }
        return Ok((None, files));
    }
    // A second function of the same file needs no second file.
    let same = t.get("source").is_none();
    let own = cuda;
    let cuda = is_cuda(&t, if own { "cuda" } else { "c" })?;
    match t.get("source") {
        None if own != cuda => {
            return fault(
                t.at.clone(),
                "a reference in another language stands in a file of its own: `source = ..`",
            );
        }
        Some(s) if cuda && !own => {
            return fault(s.span(), "the reference of a C kernel is C: nothing here runs on a GPU");
        }
        _ => {}
    }
    let entry = entry(&t, cuda)?;
    let file = if same { top.need("source")? } else { t.need("source")? };
    let mut made = recipe(if same { top } else { &t }, "source", title, &entry, cuda, read)?;
    if cuda {
        cuda::has_entry(&made.source, &entry, t.need("entry")?.span(), text(file)?)?;
    }
    made.flags = t.texts("flags")?.into_iter().map(String::from).collect();
    let launching = if cuda { Some(cuda::launching(&t, "a reference")?) } else { None };
    Ok((Some(Second { recipe: made, same, launching }), Files::new()))
}

/// A file that was read, for one problem after another.
struct File<'a> {
    top: Table<'a>,
    arguments: Vec<Argument>,
    dials: Vec<Dial>,
    recipe: Recipe,
    /// How it is launched, where it is in CUDA.
    launching: Option<cuda::Launching>,
    reference: Option<Second>,
    /// Files that hold the right results, one for each argument that is written.
    results: Files,
    read: &'a Read<'a>,
}

/// What goes in and out of a kernel, and how the call is written.
#[derive(Default)]
struct Interface {
    inputs: Vec<Input>,
    ranges: Vec<Option<(f64, f64)>>,
    /// Bytes of the inputs that files hold.
    files: Vec<Option<Arc<[u8]>>>,
    outputs: Vec<Stage>,
    given: Vec<Given>,
}

impl File<'_> {
    fn kernel(&self, p: &Problem, title: &str) -> Result<OwnKernel, Fault> {
        let Interface { inputs, ranges, files, outputs, given } = self.interface(p)?;
        let mut results = Vec::new();
        for ((file, at), o) in self.results.iter().zip(&outputs) {
            results.extend_from_slice(&self.array(file, at, o.dtype, &o.shape(), p)?);
        }
        let copied = given
            .iter()
            .map(|g| if let Given::Copied { bytes, .. } = g { *bytes } else { 0 })
            .sum();
        let mut recipe =
            Recipe { arguments: given, openmp: self.top.truth("openmp")?, ..self.recipe.clone() };
        recipe.others =
            self.reference.iter().filter(|r| r.same).map(|r| r.recipe.entry.clone()).collect();
        recipe.reaches = self.dials.iter().map(|d| reaches(&d.way)).collect();
        // The same arguments, but for knobs.
        let macros = |r: &Reaches| {
            if matches!(r, Reaches::Macro) { Reaches::Macro } else { Reaches::Argument }
        };
        let reference = self.reference.as_ref().map(|Second { recipe: r, same, .. }| {
            let reaches =
                if *same { recipe.reaches.iter().map(macros).collect() } else { Vec::new() };
            let arguments = recipe
                .arguments
                .iter()
                .filter(|g| !matches!(g, Given::Knob(..)))
                .cloned()
                .collect();
            Recipe {
                arguments,
                reaches,
                others: if *same { vec![recipe.entry.clone()] } else { Vec::new() },
                ..r.clone()
            }
        });
        let workload = Workload {
            kind: self.recipe.entry.rsplit("::").next().unwrap_or(&self.recipe.entry).into(),
            inputs,
            foreign: Some(Foreign {
                digest: self.digest(p, reference.as_ref(), &files, &results)?,
                tolerance: self.tolerance(&outputs)?,
                flop: self.flop(p)?,
                ranges,
            }),
            stages: outputs,
        };
        if let Err(e) = workload.check() {
            return fault(self.top.need("argument")?.span(), e.to_string());
        }
        let name =
            if p.name.is_empty() { title.to_string() } else { format!("{title}_{}", p.name) };
        let task = Task::new(name, workload);
        let given = Reference { kernel: None, outputs: results.into(), inputs: files };
        let made = |tunable, plain, standing, reference: Option<Recipe>, plan| OwnKernel {
            task,
            standing,
            restored: Bytes(copied),
            reference: reference.filter(|_| self.results.is_empty()),
            given,
            plain,
            tunable,
            plan,
        };
        if let Some(launching) = &self.launching {
            let second = self.reference.as_ref().and_then(|r| r.launching.clone());
            let plan = self.plan(p, launching, recipe, second.zip(reference.clone()))?;
            let placed = plan.place(&cuda::LARGEST)?;
            // A second kernel in C is what it is on any device.
            let reference = reference
                .filter(|_| plan.reference.is_none())
                .unwrap_or_else(|| placed.reference());
            return Ok(made(
                placed.tunable,
                placed.plain,
                placed.standing,
                Some(reference),
                Some(Arc::new(plan)),
            ));
        }
        let space = self.space(p)?;
        let standing = self.standing(&space, p)?;
        let only =
            standing.iter().map(|(k, v)| Knob { values: vec![v.clone()], ..k.clone() }).collect();
        let fixed = Space::new(only, &[]).map_err(|e: SpaceError| Fault {
            at: self.dials[0].at.clone(),
            message: e.to_string(),
        })?;
        let at_rest = fixed.nth(0);
        let plain = Arc::new(Choices { name: UNTUNED, space: fixed, recipe: recipe.clone() });
        let reference = reference.unwrap_or_else(|| recipe.clone());
        Ok(made(
            Arc::new(Choices { name: "own", space, recipe }),
            plain,
            at_rest,
            Some(reference),
            None,
        ))
    }

    fn space(&self, p: &Problem) -> Result<Space, Fault> {
        let knobs: Vec<Knob> = self.dials.iter().map(|d| d.knob.clone()).collect();
        let constraints: Vec<Item> = self.top.list("constraints")?;
        let terms: Vec<Term> = constraints
            .iter()
            .map(|c| model::constraint(c, &knobs, &p.sizes))
            .collect::<Result<_, _>>()?;
        Space::new(knobs, &terms).map_err(|e| {
            let at = self.top.get("constraints").map_or(self.dials[0].at.clone(), |c| c.span());
            let of =
                if p.name.is_empty() { String::new() } else { format!(" (problem `{}`)", p.name) };
            Fault { at, message: format!("{e}{of}") }
        })
    }

    /// What a device decides of a CUDA kernel, as far as the file says it.
    fn plan(
        &self,
        p: &Problem,
        launching: &cuda::Launching,
        recipe: Recipe,
        reference: Option<(cuda::Launching, Recipe)>,
    ) -> Result<cuda::Plan, Fault> {
        let said = self.dials.iter().find(|d| d.default.is_some()).map(|d| d.at.clone());
        Ok(cuda::Plan {
            knobs: self.dials.iter().map(|d| d.knob.clone()).collect(),
            defaults: (self.dials.iter().map(|d| d.default.unwrap_or(0)).collect(), said),
            constraints: self
                .top
                .list("constraints")?
                .into_iter()
                .map(cuda::said)
                .collect::<Result<_, _>>()?,
            sizes: p.sizes.clone(),
            launching: launching.clone(),
            recipe,
            reference,
            problem: p.name.clone(),
        })
    }

    /// Where the kernel stands untuned: at the defaults, or else the first configuration.
    fn standing(&self, space: &Space, p: &Problem) -> Result<Configuration, Fault> {
        let indices: Vec<usize> = self.dials.iter().map(|d| d.default.unwrap_or(0)).collect();
        match space.configuration(&indices) {
            Some(c) => Ok(c),
            None => match self.dials.iter().find(|d| d.default.is_some()) {
                Some(d) => fault(
                    d.at.clone(),
                    format!(
                        "the defaults of the knobs break a constraint, for problem `{}`",
                        p.name
                    ),
                ),
                None => Ok(space.nth(0)),
            },
        }
    }

    /// The numbers of a .npy file that must be of a type and shape.
    fn array(
        &self,
        file: &str,
        at: &Range<usize>,
        dtype: DType,
        shape: &[i64],
        p: &Problem,
    ) -> Result<Arc<[u8]>, Fault> {
        let file = file.replace("{}", &p.name);
        let shown = crate::error::shown(&file);
        let bytes = (self.read)(&file).map_err(|why| Fault {
            at: at.clone(),
            message: format!("`{shown}` cannot be read: {why}"),
        })?;
        match crate::npy::read_numbers(&bytes) {
            Ok(n) if n.dtype == dtype && n.shape == shape => Ok(n.bytes.into()),
            Ok(n) => fault(
                at.clone(),
                format!(
                    "`{shown}` holds {} of shape {:?}, expected {} of shape {shape:?}",
                    n.dtype.name(),
                    n.shape,
                    dtype.name()
                ),
            ),
            Err(e) => fault(at.clone(), format!("`{shown}`: {e}")),
        }
    }

    fn interface(&self, p: &Problem) -> Result<Interface, Fault> {
        let mut all = Interface::default();
        for a in &self.arguments {
            let shape = model::extents(a, &p.sizes)?;
            if let Part::Input { values } | Part::Inout { values } = &a.part {
                all.inputs.push(Input {
                    name: a.name.clone(),
                    dtype: a.dtype,
                    shape: shape.clone(),
                    kind: TensorKind::Data,
                });
                all.ranges.push(if let Values::Between(a, b) = values {
                    Some((*a, *b))
                } else {
                    None
                });
                all.files.push(match values {
                    Values::File(file, at) => Some(self.array(file, at, a.dtype, &shape, p)?),
                    _ => None,
                });
            }
            if a.is_written() {
                let axes =
                    shape.iter().enumerate().map(|(i, &e)| Axis::new(format!("i{i}"), e)).collect();
                // What is read before it is written has one name as it comes, another as it goes.
                let after = if matches!(a.part, Part::Output) { "" } else { "_after" };
                let body = squall_core::expr::Expr::Const(0.0);
                all.outputs.push(Stage {
                    name: format!("{}{after}", a.name),
                    dtype: a.dtype,
                    axes,
                    reduction: None,
                    body,
                });
            }
            let d = a.dtype;
            let bytes = shape.iter().product::<i64>() as u64 * d.bytes();
            let (data, output) =
                (all.inputs.len().wrapping_sub(1), all.outputs.len().wrapping_sub(1));
            all.given.push(match &a.part {
                Part::Input { .. } => Given::Data(data, d),
                Part::Output => Given::Output(output, d),
                Part::Inout { .. } => Given::Copied { output, data, dtype: d, bytes },
                Part::Scalar(x) => {
                    Given::Number { c: scalar(x, d, p)?, bytes: number_bytes(x, d, p)? }
                }
                Part::Knob => Given::Knob(
                    self.dials.iter().position(|k| k.knob.name == a.name).unwrap_or(0),
                    d,
                ),
            });
        }
        Ok(all)
    }

    /// How far results may lie apart: whole numbers not at all, others by what rounding explains.
    /// (Where outputs are of both kinds, whoever compares takes whole numbers for exact.)
    fn tolerance(&self, outputs: &[Stage]) -> Result<f64, Fault> {
        match self.top.get("tolerance") {
            Some(t) => match document::number(t)? {
                x if (0.0..1.0).contains(&x) => Ok(x),
                x => fault(
                    t.span(),
                    format!(
                        "a tolerance is relative to the largest element, from 0 to below 1, not {x}"
                    ),
                ),
            },
            None => {
                let of = |o: &Stage| match o.dtype {
                    d if d.is_integer() => 0.0,
                    DType::F64 => 1e-10,
                    _ => 1e-4,
                };
                Ok(outputs.iter().map(of).fold(0.0, f64::max))
            }
        }
    }

    fn flop(&self, p: &Problem) -> Result<u64, Fault> {
        let Some(item) = self.top.get("flop") else { return Ok(0) };
        let flop = match item.get_ref() {
            DeValue::String(s) => model::evaluate(s, &item.span(), &p.sizes)? as f64,
            _ => document::number(item)?,
        };
        if (0.0..1e18).contains(&flop) {
            Ok(flop as u64)
        } else {
            fault(item.span(), "operations of one call are 0 or more")
        }
    }

    /// The kernel's identity: everything that decides what it computes and which choices it has.
    fn digest(
        &self,
        p: &Problem,
        reference: Option<&Recipe>,
        files: &[Option<Arc<[u8]>>],
        results: &[u8],
    ) -> Result<String, Fault> {
        let mut h = blake3::Hasher::new();
        // Each part with its length: no two texts run into one another.
        let mut add = |text: &str| {
            h.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        for r in [Some(&self.recipe), reference].into_iter().flatten() {
            add(&r.source);
            add(&r.entry);
            r.flags.iter().for_each(|f| add(f));
        }
        for a in &self.arguments {
            // Places move with every blank line.
            let part = match &a.part {
                Part::Scalar(x) => format!("scalar {}", scalar(x, a.dtype, p)?),
                Part::Input { values } => format!("Input {{ low_high: {} }}", values.digest()),
                Part::Inout { values } => format!("Inout {{ low_high: {} }}", values.digest()),
                other => format!("{other:?}"),
            };
            add(&format!("{} {} {part}", a.name, a.dtype.name()));
        }
        for d in &self.dials {
            add(&format!("{} {:?} {:?}", d.knob.name, d.knob.values, d.way));
        }
        for c in self.top.texts("constraints")? {
            add(c);
        }
        let second = self.reference.iter().filter_map(|r| r.launching.as_ref());
        for l in self.launching.iter().chain(second) {
            l.texts().for_each(&mut add);
        }
        p.sizes.iter().for_each(|(n, v)| add(&format!("{n}={v}")));
        add(if self.top.truth("openmp")? { "openmp" } else { "" });
        for bytes in
            files.iter().flatten().map(|f| &f[..]).chain(Some(results).filter(|r| !r.is_empty()))
        {
            add(&blake3::hash(bytes).to_hex());
        }
        Ok(h.finalize().to_hex()[..16].to_string())
    }
}

fn reaches(way: &Way) -> Reaches {
    match way {
        Way::Macro => Reaches::Macro,
        Way::Argument => Reaches::Argument,
        Way::Flag(form) => Reaches::Flag(form.clone()),
        Way::Template => Reaches::Template,
    }
}

/// A number as it lies in memory.
fn number_bytes(x: &Amount, d: DType, p: &Problem) -> Result<Vec<u8>, Fault> {
    Ok(match x {
        Amount::Number(x) if d == DType::F64 => x.to_le_bytes().into(),
        Amount::Number(x) if d == DType::F32 => (*x as f32).to_le_bytes().into(),
        Amount::Number(x) => whole_bytes(*x as i64, d),
        Amount::Text(e, at) => whole_bytes(model::evaluate(e, at, &p.sizes)?, d),
    })
}

/// A number as C writes it.
fn scalar(x: &Amount, d: DType, p: &Problem) -> Result<String, Fault> {
    let c = match x {
        Amount::Number(x) if d.is_integer() => format!("{}", *x as i64),
        Amount::Number(x) => format!("{x:?}"),
        Amount::Text(e, at) => model::evaluate(e, at, &p.sizes)?.to_string(),
    };
    // The least i64 has no literal of its own; nobody passes it.
    Ok(match d {
        DType::F32 => format!("(float)({c})"),
        DType::F64 => format!("(double)({c})"),
        DType::I64 => format!("(int64_t)({c}LL)"),
        _ => format!("({c})"),
    })
}

#[cfg(test)]
mod cuda_tests;
#[cfg(test)]
mod tests;
