//! Turns a user's source into a kernel at one configuration: in C a function around the user's with
//! the interface that all kernels have, in CUDA the launch of the user's function. Knobs arrive as
//! macros, arguments or compiler flags. [`Choices`], a recipe with its space, implements the trait
//! [`Tunable`], so search and measuring treat the user's kernel as any other.

use super::launching::Shape;
use super::model::PassedAs;
use squall_core::space::{Knob, Value};
use squall_core::{
    Bytes, Configuration, DType, KernelSource, Launch, LaunchArgument, LaunchPhase, RealizeError,
    Space, Tunable,
};
use std::fmt::Write as _;
use std::sync::Arc;

/// One argument of the call.
#[derive(Clone)]
pub(super) enum CallArgument {
    /// The n-th data pointer.
    Data(usize, DType),
    /// The n-th output.
    Output(usize, DType),
    /// The n-th output, after a number of bytes of some data were copied to it.
    Copied { output: usize, data: usize, dtype: DType, bytes: u64 },
    /// A number, as C writes it and as it lies in memory.
    Number { c: String, bytes: Vec<u8> },
    /// The value of the n-th knob as a number of a type.
    Knob(usize, DType),
}

/// The way from a source to a kernel.
#[derive(Clone)]
pub(super) struct Recipe {
    /// The name for the comment in the first line.
    pub name: String,
    pub source: Arc<str>,
    pub entry: String,
    pub arguments: Vec<CallArgument>,
    /// Further functions of the source; they are renamed so that kernels can be linked together.
    pub others: Vec<String>,
    /// One for each knob; empty for a reference in a file of its own.
    pub passed_as: Vec<PassedAs>,
    pub flags: Vec<String>,
    pub openmp: bool,
    /// How it is launched; `None` where it is C.
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
        for ((knob, value), passed) in c.iter().zip(&self.passed_as) {
            match passed {
                PassedAs::Macro => {
                    let _ = writeln!(text, "#define {} {value}", knob.name);
                }
                PassedAs::Flag(form) => flags.push(form.replace("{}", &value.to_string())),
                PassedAs::Argument | PassedAs::Template => {}
            }
        }
        flags.retain(|f| !f.is_empty());
        (text, flags)
    }

    /// The kernel at a configuration, with entry point `symbol`.
    ///
    /// # Errors
    /// Where it cannot be launched with these values.
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
        // As in C, exported kernels are linked into one library. Namespaces keep their names.
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
                CallArgument::Data(n, _) => LaunchArgument::Data(*n as u32),
                CallArgument::Output(n, _) => LaunchArgument::Output(*n as u32),
                CallArgument::Copied { output, data, .. } => {
                    LaunchArgument::Restored { output: *output as u32, data: *data as u32 }
                }
                CallArgument::Number { bytes, .. } => LaunchArgument::Number(bytes.clone()),
                CallArgument::Knob(k, d) => match c.value(*k) {
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
            |(_, passed): &((&Knob, &Value), &PassedAs)| matches!(passed, PassedAs::Template);
        let parameters: Vec<String> = c
            .iter()
            .zip(&self.passed_as)
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
        // Several kernels are linked into one library, and may come from one source, so that all of
        // its functions get names of their own.
        for other in self.others.iter().filter(|o| **o != self.entry) {
            let _ = writeln!(text, "#define {other} {symbol}_own_{other}");
        }
        let _ = writeln!(text, "#define {} {symbol}_own\n{}", self.entry, self.source);
        text += "#line 1 \"wrapper made by Squall\"\n#include <stddef.h>\n#include <stdint.h>\n\
                 #include <string.h>\n";
        // The call goes through a volatile pointer, so that the compiler cannot specialise the
        // kernel for its sizes, which the user's own callers do not know at compile time either.
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
                CallArgument::Data(n, d) => format!("(const {} *)data[{n}]", c_type(*d)),
                CallArgument::Output(n, d) => format!("({} *)outputs[{n}]", c_type(*d)),
                CallArgument::Copied { output, data, dtype, bytes } => {
                    let _ = writeln!(text, "  memcpy(outputs[{output}], data[{data}], {bytes});");
                    format!("({} *)outputs[{output}]", c_type(*dtype))
                }
                CallArgument::Number { c, .. } => c.clone(),
                CallArgument::Knob(k, d) => format!("({})({})", c_type(*d), c.value(*k)),
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

/// A recipe with the space of its configurations.
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
