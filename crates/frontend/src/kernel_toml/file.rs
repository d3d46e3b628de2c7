//! Makes the kernel of each problem of a kernel.toml. Input: the checked contents of the file
//! ([`File`]) and a set of sizes; output: a [`UserKernel`]: a task whose workload states the
//! shapes, an identity (a hash of everything that decides what the kernel computes), a space of
//! configurations, and the reference for its results. `mod.rs` reads the file and calls this once a
//! problem.

use super::cuda::CudaKernel;
use super::document::{self, Fault, Item, Table, fault};
use super::launching::{LARGEST, Launching, expression};
use super::listed::Listed;
use super::model::{
    self, Amount, Argument, ArgumentRole, PassedAs, ProblemValues, TunedKnob, Values,
};
use super::recipe::{CallArgument, Choices, Recipe, whole_bytes};
use super::reference::{Files, Second};
use super::source::Read;
use super::user_kernel::UserKernel;
use squall_core::space::{Knob, SpaceError, Term};
use squall_core::workload::{Axis, Foreign, Input};
use squall_core::{
    Bytes, Configuration, DType, Reference, Space, Stage, Task, TensorKind, Workload,
};
use std::ops::Range;
use std::sync::Arc;
use toml::de::DeValue;

/// The checked contents of a kernel.toml, from which the kernel of each problem is made.
pub struct File<'a> {
    pub top: Table<'a>,
    pub arguments: Vec<Argument>,
    pub knobs: Vec<TunedKnob>,
    pub recipe: Recipe,
    /// The launch, where the kernel is in CUDA.
    pub launching: Option<Launching>,
    pub reference: Option<Second>,
    /// Files that hold the expected results, one for each argument that is written.
    pub results: Files,
    /// The only configurations that are legal, where a file lists them.
    pub listed: Option<Listed>,
    pub read: &'a Read<'a>,
}

/// The inputs and outputs of a kernel, and the arguments of its call.
#[derive(Default)]
struct Interface {
    inputs: Vec<Input>,
    ranges: Vec<Option<(f64, f64)>>,
    /// Bytes of the inputs that files hold.
    files: Vec<Option<Arc<[u8]>>>,
    outputs: Vec<Stage>,
    arguments: Vec<CallArgument>,
}

impl File<'_> {
    /// The kernel for one problem.
    pub fn kernel(&self, p: &ProblemValues, title: &str) -> Result<UserKernel, Fault> {
        let Interface { inputs, ranges, files, outputs, arguments } = self.interface(p)?;
        let mut results = Vec::new();
        for ((file, at), o) in self.results.iter().zip(&outputs) {
            results.extend_from_slice(&self.array(file, at, o.dtype, &o.shape(), p)?);
        }
        let restored = arguments
            .iter()
            .map(|g| if let CallArgument::Copied { bytes, .. } = g { *bytes } else { 0 })
            .sum();
        let recipe = self.recipe(arguments)?;
        let reference = self.reference.as_ref().map(|r| self.reference_recipe(r, &recipe));
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
            ..Workload::default()
        };
        if let Err(e) = workload.check() {
            return fault(self.top.need("argument")?.span(), e.to_string());
        }
        let name =
            if p.name.is_empty() { title.to_string() } else { format!("{title}_{}", p.name) };
        let task = Task::new(name, workload);
        let given = Reference { outputs: results.into(), inputs: files, ..Reference::default() };
        let computed = |r: Recipe| Some(r).filter(|_| self.results.is_empty());
        if let Some(launching) = &self.launching {
            let second = self.reference.as_ref().and_then(|r| r.launching.clone());
            let plan = self.cuda_kernel(p, launching, recipe, second.zip(reference.clone()))?;
            let placed = plan.on(&LARGEST)?;
            // A reference in C is the same on every device.
            let in_c = reference.filter(|_| plan.reference.is_none());
            return Ok(UserKernel {
                task,
                restored: Bytes(restored),
                reference: computed(in_c.unwrap_or_else(|| placed.reference())),
                given,
                plain: placed.plain,
                tunable: placed.tunable,
                default: placed.default,
                plan: Some(Arc::new(plan)),
            });
        }
        let space = self.space(p)?;
        let default = self.default(&space, p)?;
        let only =
            default.iter().map(|(k, v)| Knob { values: vec![v.clone()], ..k.clone() }).collect();
        let fixed = Space::new(only, &[]).map_err(|e: SpaceError| Fault {
            at: self.knobs[0].at.clone(),
            message: e.to_string(),
        })?;
        Ok(UserKernel {
            task,
            restored: Bytes(restored),
            reference: computed(reference.unwrap_or_else(|| recipe.clone())),
            given,
            default: fixed.nth(0),
            plain: Arc::new(Choices {
                name: squall_core::UNTUNED,
                space: fixed,
                recipe: recipe.clone(),
            }),
            tunable: Arc::new(Choices { name: "own", space, recipe }),
            plan: None,
        })
    }

    /// The kernel's recipe with the arguments of a problem.
    fn recipe(&self, arguments: Vec<CallArgument>) -> Result<Recipe, Fault> {
        let same = self.reference.iter().filter(|r| r.same);
        Ok(Recipe {
            arguments,
            openmp: self.top.truth("openmp")?,
            others: same.map(|r| r.recipe.entry.clone()).collect(),
            passed_as: self.knobs.iter().map(|k| k.passed_as.clone()).collect(),
            ..self.recipe.clone()
        })
    }

    /// The recipe of a second kernel, which takes the kernel's arguments but for the knobs.
    fn reference_recipe(&self, second: &Second, recipe: &Recipe) -> Recipe {
        let is_knob = |g: &&CallArgument| matches!(g, CallArgument::Knob(..));
        let arguments = recipe.arguments.iter().filter(|g| !is_knob(g)).cloned().collect();
        // Of the kernel's knobs it sees the macros, where it stands in the same source.
        let seen = |p: &PassedAs| match p {
            PassedAs::Macro => PassedAs::Macro,
            _ => PassedAs::Argument,
        };
        let (passed_as, others) = match second.same {
            true => (recipe.passed_as.iter().map(seen).collect(), vec![recipe.entry.clone()]),
            false => (Vec::new(), Vec::new()),
        };
        Recipe { arguments, passed_as, others, ..second.recipe.clone() }
    }

    fn space(&self, p: &ProblemValues) -> Result<Space, Fault> {
        let knobs: Vec<Knob> = self.knobs.iter().map(|d| d.knob.clone()).collect();
        let constraints: Vec<Item> = self.top.list("constraints")?;
        let terms: Vec<Term> = constraints
            .iter()
            .map(|c| model::constraint(c, &knobs, &p.sizes))
            .collect::<Result<_, _>>()?;
        let space = Space::new(knobs, &terms);
        let space = match &self.listed {
            Some(listed) => space.and_then(|s| listed.within(&s)),
            None => space,
        };
        space.map_err(|e| {
            let listed = || self.listed.as_ref().map_or(self.knobs[0].at.clone(), |l| l.at.clone());
            let at = self.top.get("constraints").map_or_else(listed, |c| c.span());
            let of =
                if p.name.is_empty() { String::new() } else { format!(" (problem `{}`)", p.name) };
            Fault { at, message: format!("{e}{of}") }
        })
    }

    /// A CUDA kernel before the device is known.
    fn cuda_kernel(
        &self,
        p: &ProblemValues,
        launching: &Launching,
        recipe: Recipe,
        reference: Option<(Launching, Recipe)>,
    ) -> Result<CudaKernel, Fault> {
        let default = self.knobs.iter().find(|d| d.default.is_some()).map(|d| d.at.clone());
        Ok(CudaKernel {
            knobs: self.knobs.iter().map(|d| d.knob.clone()).collect(),
            defaults: (self.knobs.iter().map(|d| d.default.unwrap_or(0)).collect(), default),
            constraints: self
                .top
                .list("constraints")?
                .into_iter()
                .map(expression)
                .collect::<Result<_, _>>()?,
            listed: self.listed.clone(),
            sizes: p.sizes.clone(),
            launching: launching.clone(),
            recipe,
            reference,
            problem: p.name.clone(),
        })
    }

    /// The configuration of the defaults; the first one where the file gives none.
    fn default(&self, space: &Space, p: &ProblemValues) -> Result<Configuration, Fault> {
        let indices: Vec<usize> = self.knobs.iter().map(|d| d.default.unwrap_or(0)).collect();
        match space.configuration(&indices) {
            Some(c) => Ok(c),
            None => match self.knobs.iter().find(|d| d.default.is_some()) {
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
        p: &ProblemValues,
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

    fn interface(&self, p: &ProblemValues) -> Result<Interface, Fault> {
        let mut all = Interface::default();
        for a in &self.arguments {
            let shape = model::extents(a, &p.sizes)?;
            if let ArgumentRole::Input { values } | ArgumentRole::Inout { values } = &a.role {
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
                // An argument that is read and then written is an input and an output, which have
                // different names.
                let after = if matches!(a.role, ArgumentRole::Output) { "" } else { "_after" };
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
            all.arguments.push(match &a.role {
                ArgumentRole::Input { .. } => CallArgument::Data(data, d),
                ArgumentRole::Output => CallArgument::Output(output, d),
                ArgumentRole::Inout { .. } => {
                    CallArgument::Copied { output, data, dtype: d, bytes }
                }
                ArgumentRole::Scalar(x) => {
                    CallArgument::Number { c: scalar(x, d, p)?, bytes: number_bytes(x, d, p)? }
                }
                ArgumentRole::Knob => CallArgument::Knob(
                    self.knobs.iter().position(|k| k.knob.name == a.name).unwrap_or(0),
                    d,
                ),
            });
        }
        Ok(all)
    }

    /// How far results may lie apart: whole numbers not at all, others by what rounding explains.
    /// (Where outputs are of both kinds, the comparison takes whole numbers for exact.)
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

    fn flop(&self, p: &ProblemValues) -> Result<u64, Fault> {
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

    /// The kernel's identity: a hash of everything that decides what it computes and which
    /// configurations it has.
    fn digest(
        &self,
        p: &ProblemValues,
        reference: Option<&Recipe>,
        files: &[Option<Arc<[u8]>>],
        results: &[u8],
    ) -> Result<String, Fault> {
        let mut h = blake3::Hasher::new();
        // Each part is hashed with its length, so that its end is unambiguous.
        let mut add = |text: &str| {
            h.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        for r in [Some(&self.recipe), reference].into_iter().flatten() {
            add(&r.source);
            add(&r.entry);
            r.flags.iter().for_each(|f| add(f));
        }
        for a in &self.arguments {
            // Places in the file do not belong to the identity.
            let part = match &a.role {
                ArgumentRole::Scalar(x) => format!("scalar {}", scalar(x, a.dtype, p)?),
                ArgumentRole::Input { values } => {
                    format!("Input {{ low_high: {} }}", values.digest())
                }
                ArgumentRole::Inout { values } => {
                    format!("Inout {{ low_high: {} }}", values.digest())
                }
                other => format!("{other:?}"),
            };
            add(&format!("{} {} {part}", a.name, a.dtype.name()));
        }
        for d in &self.knobs {
            add(&format!("{} {:?} {:?}", d.knob.name, d.knob.values, d.passed_as));
        }
        for c in self.top.texts("constraints")? {
            add(c);
        }
        if let Some(listed) = &self.listed {
            add(&listed.digest);
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

/// A number as it lies in memory.
fn number_bytes(x: &Amount, d: DType, p: &ProblemValues) -> Result<Vec<u8>, Fault> {
    Ok(match x {
        Amount::Number(x) if d == DType::F64 => x.to_le_bytes().into(),
        Amount::Number(x) if d == DType::F32 => (*x as f32).to_le_bytes().into(),
        Amount::Number(x) => whole_bytes(*x as i64, d),
        Amount::Text(e, at) => whole_bytes(model::evaluate(e, at, &p.sizes)?, d),
    })
}

/// A number as C spells it.
fn scalar(x: &Amount, d: DType, p: &ProblemValues) -> Result<String, Fault> {
    let c = match x {
        Amount::Number(x) if d.is_integer() => format!("{}", *x as i64),
        Amount::Number(x) => format!("{x:?}"),
        Amount::Text(e, at) => model::evaluate(e, at, &p.sizes)?.to_string(),
    };
    // The least i64 has no literal in C, and is not passed in practice.
    Ok(match d {
        DType::F32 => format!("(float)({c})"),
        DType::F64 => format!("(double)({c})"),
        DType::I64 => format!("(int64_t)({c}LL)"),
        _ => format!("({c})"),
    })
}
