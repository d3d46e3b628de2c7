//! A user's kernel for one problem: its task, its choices, and the C around its source that gives
//! it the interface of all kernels.

use squall_core::{Bytes, Configuration, DType, KernelSource, RealizeError, Reference, Space, Task, Tunable};
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
}

impl OwnKernel {
    /// What the kernel's results must agree with.
    pub fn reference(&self, symbol: &str) -> Reference {
        Reference { kernel: self.reference.as_ref().map(|r| r.source(&self.standing, symbol)), ..self.given.clone() }
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
    /// A number, as C writes it.
    Number(String),
    /// The value of the n-th knob as a number of a type.
    Knob(usize, DType),
}

/// How a knob's value reaches the kernel.
#[derive(Clone)]
pub(super) enum Reaches {
    Macro,
    Argument,
    Flag(String),
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
}

fn c_type(d: DType) -> &'static str {
    match d {
        DType::F64 => "double",
        DType::I8 => "int8_t",
        DType::U8 => "uint8_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::F32 | DType::F16 | DType::Bf16 | DType::Tf32 => "float",
    }
}

impl Recipe {
    /// The kernel at a configuration, with entry point `symbol`.
    pub fn source(&self, c: &Configuration, symbol: &str) -> KernelSource {
        let mut text = format!("/* {} */\n", self.name.replace("*/", "* /"));
        let mut flags = self.flags.clone();
        for ((knob, value), reach) in c.iter().zip(&self.reaches) {
            match reach {
                Reaches::Macro => {
                    let _ = writeln!(text, "#define {} {value}", knob.name);
                }
                Reaches::Flag(form) => flags.push(form.replace("{}", &value.to_string())),
                Reaches::Argument => {}
            }
        }
        flags.retain(|f| !f.is_empty());
        // Several kernels are linked into one library, and may come from one source.
        for other in self.others.iter().filter(|o| **o != self.entry) {
            let _ = writeln!(text, "#define {other} {symbol}_own_{other}");
        }
        let _ = writeln!(text, "#define {} {symbol}_own\n{}", self.entry, self.source);
        text += "#line 1 \"wrapper made by Squall\"\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n";
        // Through a pointer that the compiler cannot see through: sizes stay what they are to the
        // user's own callers, numbers that are not known before.
        let _ = writeln!(text, "static __typeof__(&{symbol}_own) volatile {symbol}_call = {symbol}_own;");
        let _ = writeln!(text, "size_t {symbol}_workspace_bytes(void) {{ return 0; }}");
        let _ = writeln!(text, "int {symbol}(const void *const *data, void *const *outputs, const void *prepared, void *workspace) {{");
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
                Given::Number(n) => n.clone(),
                Given::Knob(k, d) => format!("({})({})", c_type(*d), c.value(*k)),
            });
        }
        let _ = writeln!(text, "  {symbol}_call({});\n  return 0;\n}}", arguments.join(", "));
        KernelSource {
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
    fn realize(&self, configuration: &Configuration, symbol: &str) -> Result<KernelSource, RealizeError> {
        Ok(self.recipe.source(configuration, symbol))
    }
    fn is_flat(&self) -> bool {
        true
    }
    fn features(&self, configuration: &Configuration) -> Vec<f32> {
        configuration.indices().map(|i| i as f32).collect()
    }
}
