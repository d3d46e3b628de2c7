//! A user's kernel for one problem: its task, its choices, and the C around its source that gives
//! it the interface of all kernels.

use super::cuda::{Plan, Shape};
use squall_core::space::{Knob, Value};
use squall_core::{
    Bytes, Configuration, DType, Gpu, KernelSource, Launch, LaunchArgument, LaunchPhase,
    RealizeError, Reference, Space, Task, Tunable,
};
use std::fmt::Write as _;
use std::sync::Arc;

/// A kernel of the user's own, for one set of sizes.
#[derive(Clone)]
pub struct OwnKernel {
    /// What is tuned.
    pub task: Task,
    /// Its choices.
    pub tunable: Arc<dyn Tunable>,
    /// Where it stands untuned: the one configuration from which gains are counted.
    pub plain: Arc<dyn Tunable>,
    /// Bytes that are copied within each timed call, because the kernel writes over its input.
    pub restored: Bytes,
    /// Computes the right results; nothing where files hold them.
    pub(super) reference: Option<Recipe>,
    /// The right results where files hold them, and the inputs that files hold.
    pub(super) given: Reference,
    /// Where the knobs stand in the reference, if it is the kernel itself or sees its macros.
    pub(super) standing: Configuration,
    /// Of a CUDA kernel, what the device decides anew.
    pub(super) plan: Option<Arc<Plan>>,
}

impl OwnKernel {
    /// Whether it is written in CUDA C++.
    pub fn is_cuda(&self) -> bool {
        self.plan.is_some()
    }

    /// The kernel on a GPU: its choices are those that the GPU's limits leave. An error says why
    /// none is left.
    pub fn on(&self, gpu: &Gpu) -> Result<OwnKernel, String> {
        let Some(plan) = &self.plan else { return Ok(self.clone()) };
        let placed = plan.place(gpu).map_err(|f| f.message)?;
        let reference = self
            .reference
            .as_ref()
            .map(|r| if r.cuda.is_none() { r.clone() } else { placed.reference() });
        Ok(OwnKernel {
            tunable: placed.tunable,
            plain: placed.plain,
            standing: placed.standing,
            reference,
            ..self.clone()
        })
    }

    /// What the kernel's results must agree with.
    pub fn reference(&self, symbol: &str) -> Reference {
        // That it has a source where the knobs stand was seen when it was read.
        let kernel = self.reference.as_ref().and_then(|r| r.source(&self.standing, symbol).ok());
        Reference { kernel, ..self.given.clone() }
    }
}

/// What one argument of the call is.
#[derive(Clone)]
pub(super) enum Given {
    /// The n-th data pointer.
    Data(usize, DType),
    /// The n-th output.
    Output(usize, DType),
    /// The n-th output, after so many bytes of some data were copied to it.
    Copied { output: usize, data: usize, dtype: DType, bytes: u64 },
    /// A number, as C writes it and as it lies in memory.
    Number { c: String, bytes: Vec<u8> },
    /// The value of the n-th knob as a number of a type.
    Knob(usize, DType),
}

/// How a knob's value reaches the kernel.
#[derive(Clone)]
pub(super) enum Reaches {
    Macro,
    Argument,
    Flag(String),
    /// A parameter of the entry's template.
    Template,
}

/// How a source becomes a kernel.
#[derive(Clone)]
pub(super) struct Recipe {
    /// For the first comment.
    pub name: String,
    pub source: Arc<str>,
    pub entry: String,
    pub arguments: Vec<Given>,
    /// Further functions of the source that must not meet those of other kernels.
    pub others: Vec<String>,
    /// One for each knob; none for a reference in a file of its own.
    pub reaches: Vec<Reaches>,
    pub flags: Vec<String>,
    pub openmp: bool,
    /// How it is launched; nothing where it is C.
    pub cuda: Option<Arc<Shape>>,
}

/// A whole number as it lies in memory.
pub(super) fn whole_bytes(i: i64, d: DType) -> Vec<u8> {
    match d {
        DType::F64 => (i as f64).to_le_bytes().into(),
        d if d.is_integer() => i.to_le_bytes()[..d.bytes() as usize].into(),
        _ => (i as f32).to_le_bytes().into(),
    }
}

fn c_type(d: DType) -> &'static str {
    match d {
        DType::F64 => "double",
        DType::I8 => "int8_t",
        DType::U8 => "uint8_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        _ => "float",
    }
}

impl Recipe {
    /// The knobs' macros, and the compiler's arguments.
    fn settings(&self, c: &Configuration) -> (String, Vec<String>) {
        let mut text = format!("/* {} */\n", self.name.replace("*/", "* /"));
        let mut flags = self.flags.clone();
        for ((knob, value), reach) in c.iter().zip(&self.reaches) {
            match reach {
                Reaches::Macro => {
                    let _ = writeln!(text, "#define {} {value}", knob.name);
                }
                Reaches::Flag(form) => flags.push(form.replace("{}", &value.to_string())),
                Reaches::Argument | Reaches::Template => {}
            }
        }
        flags.retain(|f| !f.is_empty());
        (text, flags)
    }

    /// The kernel at a configuration, with entry point `symbol`; an error where it cannot be
    /// launched so.
    pub fn source(&self, c: &Configuration, symbol: &str) -> Result<KernelSource, RealizeError> {
        match &self.cuda {
            Some(shape) => self.cuda_source(shape, c, symbol),
            None => Ok(self.c_source(c, symbol)),
        }
    }

    /// The user's function as it is, and how it is launched.
    fn cuda_source(
        &self,
        shape: &Shape,
        c: &Configuration,
        symbol: &str,
    ) -> Result<KernelSource, RealizeError> {
        let (mut text, flags) = self.settings(c);
        // As in C: exported kernels are linked into one library. A namespace keeps its name.
        let last = |name: &str| name.rsplit("::").next().unwrap_or(name).to_string();
        let (path, name) = self
            .entry
            .rsplit_once("::")
            .map_or(("", self.entry.as_str()), |(p, n)| (&self.entry[..p.len() + 2], n));
        for other in self.others.iter().map(|o| last(o)).filter(|o| o != name) {
            let _ = writeln!(text, "#define {other} {symbol}_own_{other}");
        }
        let _ = writeln!(text, "#define {name} {symbol}_own");
        text += &self.source;
        let (blocks, threads, shared) = shape.of(c)?;
        let mut arguments = Vec::new();
        for a in &self.arguments {
            arguments.push(match a {
                Given::Data(n, _) => LaunchArgument::Data(*n as u32),
                Given::Output(n, _) => LaunchArgument::Output(*n as u32),
                Given::Copied { output, data, .. } => {
                    LaunchArgument::Restored { output: *output as u32, data: *data as u32 }
                }
                Given::Number { bytes, .. } => LaunchArgument::Number(bytes.clone()),
                Given::Knob(k, d) => match c.value(*k) {
                    Value::Int(i) => LaunchArgument::Number(whole_bytes(*i, *d)),
                    Value::Word(w) => {
                        return Err(RealizeError(format!(
                            "`{w}` is a word, which no argument takes"
                        )));
                    }
                },
            });
        }
        let of_template =
            |(_, reach): &((&Knob, &Value), &Reaches)| matches!(reach, Reaches::Template);
        let parameters: Vec<String> = c
            .iter()
            .zip(&self.reaches)
            .filter(of_template)
            .map(|((_, v), _)| v.to_string())
            .collect();
        let entry = format!("{path}{symbol}_own");
        let entry = if parameters.is_empty() {
            entry
        } else {
            format!("{entry}<{}>", parameters.join(", "))
        };
        Ok(KernelSource {
            language: squall_core::Language::Cuda,
            source: text,
            symbol: symbol.into(),
            prepared: Bytes(0),
            workspace: Bytes(0),
            openmp: false,
            full_optimisation: true,
            flags,
            launches: vec![Launch {
                phase: LaunchPhase::Call,
                entry,
                blocks,
                threads,
                shared,
                arguments: Some(arguments),
                maps: Vec::new(),
            }],
        })
    }

    fn c_source(&self, c: &Configuration, symbol: &str) -> KernelSource {
        let (mut text, flags) = self.settings(c);
        // Several kernels are linked into one library, and may come from one source.
        for other in self.others.iter().filter(|o| **o != self.entry) {
            let _ = writeln!(text, "#define {other} {symbol}_own_{other}");
        }
        let _ = writeln!(text, "#define {} {symbol}_own\n{}", self.entry, self.source);
        text += "#line 1 \"wrapper made by Squall\"\n#include <stddef.h>\n#include <stdint.h>\n\
                 #include <string.h>\n";
        // Through a pointer that the compiler cannot see through: sizes stay what they are to the
        // user's own callers, numbers that are not known before.
        let _ = writeln!(
            text,
            "static __typeof__(&{symbol}_own) volatile {symbol}_call = {symbol}_own;"
        );
        let _ = writeln!(text, "size_t {symbol}_workspace_bytes(void) {{ return 0; }}");
        let _ = writeln!(
            text,
            "int {symbol}(const void *const *data, void *const *outputs, const void *prepared, \
             void *workspace) {{"
        );
        text += "  (void)data; (void)prepared; (void)workspace;\n";
        let mut arguments = Vec::new();
        for a in &self.arguments {
            arguments.push(match a {
                Given::Data(n, d) => format!("(const {} *)data[{n}]", c_type(*d)),
                Given::Output(n, d) => format!("({} *)outputs[{n}]", c_type(*d)),
                Given::Copied { output, data, dtype, bytes } => {
                    let _ = writeln!(text, "  memcpy(outputs[{output}], data[{data}], {bytes});");
                    format!("({} *)outputs[{output}]", c_type(*dtype))
                }
                Given::Number { c, .. } => c.clone(),
                Given::Knob(k, d) => format!("({})({})", c_type(*d), c.value(*k)),
            });
        }
        let _ = writeln!(text, "  {symbol}_call({});\n  return 0;\n}}", arguments.join(", "));
        KernelSource {
            language: squall_core::Language::C,
            source: text,
            symbol: symbol.into(),
            prepared: Bytes(0),
            workspace: Bytes(0),
            openmp: self.openmp,
            full_optimisation: true,
            flags,
            launches: Vec::new(),
        }
    }
}

/// A recipe with choices.
#[derive(Clone)]
pub(super) struct Choices {
    pub name: &'static str,
    pub space: Space,
    pub recipe: Recipe,
}

impl Tunable for Choices {
    fn name(&self) -> &str {
        self.name
    }
    fn space(&self) -> &Space {
        &self.space
    }
    fn realize(
        &self,
        configuration: &Configuration,
        symbol: &str,
    ) -> Result<KernelSource, RealizeError> {
        self.recipe.source(configuration, symbol)
    }
    fn is_flat(&self) -> bool {
        true
    }
    fn features(&self, configuration: &Configuration) -> Vec<f32> {
        configuration.indices().map(|i| i as f32).collect()
    }
}
