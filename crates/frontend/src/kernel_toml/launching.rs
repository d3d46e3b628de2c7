//! The launch of a CUDA kernel of a kernel.toml: grid, block and dynamic shared memory as
//! expressions over knobs, sizes and limits of the device, such as `(w + BX - 1) // BX`. They are
//! read as text here, become terms over the knobs when the device is known ([`Shape`]), and numbers
//! for each configuration.

use super::document::{Fault, Item, Table, fault, list, text, whole};
use super::model::{Sizes, TextSpan};
use squall_core::space::{Knob, Names, Term, Value};
use squall_core::text::nearest;
use squall_core::{Configuration, Gpu, RealizeError};
use toml::de::DeValue;

/// Keys of a CUDA kernel, and of a CUDA reference.
pub const KEYS: [&str; 3] = ["grid", "block", "shared"];

/// An expression and its place in the file.
#[derive(Clone, Debug)]
pub struct Expression {
    pub text: String,
    pub at: TextSpan,
}

/// The launch of a kernel, as the file says it.
#[derive(Clone, Debug)]
pub struct Launching {
    pub grid: Vec<Expression>,
    pub block: Vec<Expression>,
    pub shared: Expression,
}

/// The launch of a kernel for one problem on one device: blocks, threads of a block, bytes of
/// dynamic shared memory, as terms over the knobs.
#[derive(Clone, Debug)]
pub struct Shape {
    pub blocks: [Term; 3],
    pub threads: [Term; 3],
    pub shared: Term,
    /// The most threads of a block, and the most bytes of shared memory.
    pub limits: (i64, i64),
}

/// A device with the largest limits: what exceeds them exceeds the limits of every device.
pub const LARGEST: Gpu = Gpu {
    capability: 90,
    multiprocessors: 132,
    threads_per_block: 1024,
    threads_per_multiprocessor: 2048,
    shared_per_block: 227 << 10,
    shared_per_multiprocessor: 228 << 10,
    registers_per_multiprocessor: 65536,
    l2: 50 << 20,
};

/// The device's limits by the names that expressions know.
pub fn limits(gpu: &Gpu) -> Sizes {
    [
        ("max_threads", gpu.threads_per_block),
        ("max_shared", gpu.shared_per_block),
        ("max_threads_per_multiprocessor", gpu.threads_per_multiprocessor),
        ("multiprocessors", gpu.multiprocessors),
        ("capability", gpu.capability),
    ]
    .map(|(n, v)| (n.into(), i64::from(v)))
    .to_vec()
}

/// Reads grid, block and shared; `what` is the kernel or its reference.
pub fn launching(t: &Table, what: &str) -> Result<Launching, Fault> {
    let shape = |key: &'static str, example: &str| -> Result<Vec<Expression>, Fault> {
        let Some(item) = t.get(key) else {
            return fault(
                t.at.clone(),
                format!("{what} in CUDA needs `{key} = [..]`, for instance `{key} = [{example}]`"),
            );
        };
        let all: Vec<Expression> = match item.get_ref() {
            DeValue::Array(_) => {
                list(item)?.into_iter().map(expression).collect::<Result<_, _>>()?
            }
            _ => vec![expression(item)?],
        };
        if all.is_empty() || all.len() > 3 {
            return fault(
                item.span(),
                format!("`{key}` has one to three extents, along x, y and z, not {}", all.len()),
            );
        }
        Ok(all)
    };
    Ok(Launching {
        grid: shape("grid", "\"(n + BLOCK - 1) // BLOCK\"")?,
        block: shape("block", "\"BLOCK\"")?,
        shared: t
            .get("shared")
            .map_or(Ok(Expression { text: "0".into(), at: 0..0 }), expression)?,
    })
}

/// An expression, or a number.
pub fn expression(item: Item) -> Result<Expression, Fault> {
    let at = item.span();
    match whole(item) {
        Some(i) => Ok(Expression { text: i.to_string(), at }),
        None => Ok(Expression { text: text(item)?.into(), at }),
    }
}

impl Expression {
    /// A fault at a character of the text, counted from 1, behind the quote.
    fn wrong(&self, column: usize, message: String) -> Fault {
        let start = (self.at.start + column).min(self.at.end.saturating_sub(1)).max(self.at.start);
        Fault { at: start..start + 1, message }
    }

    pub fn condition(&self, knobs: &[Knob], constants: &Sizes) -> Result<Term, Fault> {
        Term::parse(&self.text, Names { knobs, constants })
            .map_err(|e| self.wrong(e.column, e.message))
    }

    /// A whole number over knobs of numbers.
    fn amount(&self, knobs: &[Knob], constants: &Sizes) -> Result<Term, Fault> {
        let bytes = self.text.as_bytes();
        let slash = |i: usize| bytes.get(i) == Some(&b'/');
        if let Some(i) =
            (0..bytes.len()).find(|&i| slash(i) && !slash(i + 1) && (i == 0 || !slash(i - 1)))
        {
            let message =
                "`/` leaves a fraction: `//` rounds down, and `(a + b - 1) // b` rounds up".into();
            return Err(self.wrong(i + 1, message));
        }
        let term = self.condition(knobs, constants)?;
        let words = |k: &&Knob| k.values.iter().any(|v| matches!(v, Value::Word(_)));
        match knobs.iter().filter(|k| term.knobs().contains(&k.name.as_str())).find(words) {
            Some(k) => Err(Fault {
                at: self.at.clone(),
                message: format!(
                    "the values of `{}` are words, with which nothing can be counted",
                    k.name
                ),
            }),
            None => Ok(term),
        }
    }
}

impl Launching {
    /// The texts, for a kernel's identity.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.grid.iter().chain(&self.block).chain([&self.shared]).map(|s| s.text.as_str())
    }

    pub fn shape(&self, knobs: &[Knob], constants: &Sizes, gpu: &Gpu) -> Result<Shape, Fault> {
        let three = |all: &[Expression]| -> Result<[Term; 3], Fault> {
            let mut terms = [1, 1, 1].map(Term::Const);
            for (t, s) in terms.iter_mut().zip(all) {
                *t = s.amount(knobs, constants)?;
            }
            Ok(terms)
        };
        Ok(Shape {
            blocks: three(&self.grid)?,
            threads: three(&self.block)?,
            shared: self.shared.amount(knobs, constants)?,
            limits: (i64::from(gpu.threads_per_block), i64::from(gpu.shared_per_block)),
        })
    }
}

impl Shape {
    /// Blocks, threads and bytes of a configuration; an error says what no device takes.
    pub fn of(&self, c: &Configuration) -> Result<([u32; 3], [u32; 3], u32), RealizeError> {
        let value = |t: &Term, what: &str, least: i64, most: i64| -> Result<u32, RealizeError> {
            let bound = c.iter().try_fold(t.clone(), |t, (k, v)| match v {
                Value::Int(i) => t.bind(&k.name, *i),
                Value::Word(_) => Some(t),
            });
            // Without any knob it still has to be folded.
            match bound.and_then(|t| t.bind("", 0)) {
                Some(Term::Const(i)) if (least..=most).contains(&i) => Ok(i as u32),
                Some(Term::Const(i)) => {
                    Err(RealizeError(format!("{what} would be {i}; it must be {least} to {most}")))
                }
                _ => Err(RealizeError(format!(
                    "{what} has no value: something is divided by zero or too large"
                ))),
            }
        };
        let three = |terms: &[Term; 3],
                     what: &str,
                     most: [i64; 3]|
         -> Result<[u32; 3], RealizeError> {
            let axis = |i: usize| {
                value(&terms[i], &format!("the {what}'s extent {}", ["x", "y", "z"][i]), 1, most[i])
            };
            Ok([axis(0)?, axis(1)?, axis(2)?])
        };
        let blocks = three(&self.blocks, "grid", [i64::from(i32::MAX), 65535, 65535])?;
        let threads = three(&self.threads, "block", [1024, 1024, 64])?;
        let count: i64 = threads.iter().map(|&t| i64::from(t)).product();
        if count > self.limits.0 {
            return Err(RealizeError(format!(
                "a block of {count} threads: this device takes {} at most",
                self.limits.0
            )));
        }
        Ok((blocks, threads, value(&self.shared, "dynamic shared memory", 0, self.limits.1)?))
    }
}

/// Refuses an entry that the source does not have.
pub fn has_entry(source: &str, entry: &str, at: TextSpan, file: &str) -> Result<(), Fault> {
    let plain = entry.rsplit("::").next().unwrap_or(entry);
    let words: Vec<&str> = source
        .split(|c: char| !(c == '_' || c.is_ascii_alphanumeric()))
        .filter(|w| !w.is_empty())
        .collect();
    if words.contains(&plain) {
        return Ok(());
    }
    // The word in front of the bracket, behind attributes with brackets of their own.
    let mut kernels: Vec<&str> = Vec::new();
    for mut rest in source.split("__global__").skip(1) {
        let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
        while let Some((head, more)) = rest.split_once('(') {
            match head.rsplit(|c| !is_part(c)).find(|w| !w.is_empty()) {
                // `__launch_bounds__(..)` and the like.
                Some(word) if word.starts_with("__") => {
                    rest = more.split_once(')').map_or("", |r| r.1)
                }
                Some(name) => {
                    kernels.push(name);
                    break;
                }
                None => rest = more,
            }
        }
    }
    let has = if kernels.is_empty() {
        "it has no `__global__` function at all".into()
    } else {
        format!("it has {}", kernels.join(", "))
    };
    fault(
        at,
        format!(
            "`{}` has no function `{plain}`{}; {has}",
            crate::error::shown(file),
            nearest(plain, &kernels)
        ),
    )
}
