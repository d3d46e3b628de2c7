//! What a kernel.toml says of a CUDA kernel beyond what it says of one in C: how it is launched, by
//! expressions over knobs, sizes and limits of the device, which are known only once one is aimed
//! at.

use super::document::{Fault, Item, Table, fault, list, text, whole};
use super::kernel::{Choices, Recipe};
use super::model::{Place, Sizes};
use squall_core::space::{Knob, Names, SpaceError, Term, Value};
use squall_core::text::nearest;
use squall_core::{Configuration, Gpu, RealizeError, Space, UNTUNED};
use std::sync::Arc;
use toml::de::DeValue;

/// Keys of a CUDA kernel, and of a CUDA reference.
pub const KEYS: [&str; 3] = ["grid", "block", "shared"];

/// An expression and where it stands.
#[derive(Clone, Debug)]
pub struct Said {
    pub text: String,
    pub at: Place,
}

/// How a kernel is launched, in words.
#[derive(Clone, Debug)]
pub struct Launching {
    grid: Vec<Said>,
    block: Vec<Said>,
    shared: Said,
}

/// The same for one problem on one device: blocks, threads of a block, bytes of dynamic shared
/// memory.
#[derive(Clone, Debug)]
pub struct Shape {
    blocks: [Term; 3],
    threads: [Term; 3],
    shared: Term,
    /// Threads that a block may have, bytes that it may share.
    limits: (i64, i64),
}

/// A kernel before it is known where it runs.
#[derive(Clone)]
pub struct Plan {
    pub knobs: Vec<Knob>,
    /// Where it stands untuned, if the file says so, and where that is said.
    pub defaults: (Vec<usize>, Option<Place>),
    pub constraints: Vec<Said>,
    pub sizes: Sizes,
    pub launching: Launching,
    pub recipe: Recipe,
    /// A second kernel in CUDA, which sees the knobs at their defaults.
    pub reference: Option<(Launching, Recipe)>,
    /// The problem's name, for errors.
    pub problem: String,
}

/// A kernel on a device.
pub struct Placed {
    pub tunable: Arc<Choices>,
    pub plain: Arc<Choices>,
    pub standing: Configuration,
    pub reference: Option<Recipe>,
}

impl Placed {
    /// The second kernel, or else the first at its defaults.
    pub fn reference(&self) -> Recipe {
        self.reference.clone().unwrap_or_else(|| self.plain.recipe.clone())
    }
}

/// A device as large as any: what breaks its limits breaks those of all.
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
    let shape = |key: &'static str, example: &str| -> Result<Vec<Said>, Fault> {
        let Some(item) = t.get(key) else {
            return fault(
                t.at.clone(),
                format!("{what} in CUDA needs `{key} = [..]`, for instance `{key} = [{example}]`"),
            );
        };
        let all: Vec<Said> = match item.get_ref() {
            DeValue::Array(_) => list(item)?.into_iter().map(said).collect::<Result<_, _>>()?,
            _ => vec![said(item)?],
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
        shared: t.get("shared").map_or(Ok(Said { text: "0".into(), at: 0..0 }), said)?,
    })
}

/// An expression, or a number.
pub fn said(item: Item) -> Result<Said, Fault> {
    let at = item.span();
    match whole(item) {
        Some(i) => Ok(Said { text: i.to_string(), at }),
        None => Ok(Said { text: text(item)?.into(), at }),
    }
}

impl Said {
    /// A fault at a character of the text, counted from 1, behind the quote.
    fn wrong(&self, column: usize, message: String) -> Fault {
        let start = (self.at.start + column).min(self.at.end.saturating_sub(1)).max(self.at.start);
        Fault { at: start..start + 1, message }
    }

    fn condition(&self, knobs: &[Knob], constants: &Sizes) -> Result<Term, Fault> {
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

    fn shape(&self, knobs: &[Knob], constants: &Sizes, gpu: &Gpu) -> Result<Shape, Fault> {
        let three = |all: &[Said]| -> Result<[Term; 3], Fault> {
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

impl Plan {
    /// The kernel on a device. An error's place is of meaning only to who read the file just now.
    pub fn place(&self, gpu: &Gpu) -> Result<Placed, Fault> {
        let mut constants = self.sizes.clone();
        constants.extend(limits(gpu));
        let own: Vec<Term> = self
            .constraints
            .iter()
            .map(|c| c.condition(&self.knobs, &constants))
            .collect::<Result<_, _>>()?;
        let shape = self.launching.shape(&self.knobs, &constants, gpu)?;
        let fits = [
            Term::product(shape.threads.clone()).at_most(shape.limits.0),
            shape.shared.clone().at_most(shape.limits.1),
        ];
        let space = |terms: &[Term]| Space::new(self.knobs.clone(), &[&own, terms].concat());
        let space = match space(&fits) {
            Ok(s) => s,
            Err(SpaceError::Empty) if space(&fits[1..]).is_ok() => {
                let at = self.launching.block[0].at.start
                    ..self.launching.block[self.launching.block.len() - 1].at.end;
                let most = shape.limits.0;
                return fault(
                    at,
                    format!(
                        "every block has more than {most} threads, the most that the device \
                         takes: give its knobs smaller values"
                    ),
                );
            }
            Err(SpaceError::Empty) if space(&fits[..1]).is_ok() => {
                let most = shape.limits.1;
                return fault(
                    self.launching.shared.at.clone(),
                    format!(
                        "every block asks for more than {most} bytes of shared memory, the most \
                         that the device gives one: give its knobs smaller values"
                    ),
                );
            }
            Err(e) => {
                let at = self
                    .constraints
                    .first()
                    .zip(self.constraints.last())
                    .map(|(a, b)| a.at.start..b.at.end);
                let of = if self.problem.is_empty() {
                    String::new()
                } else {
                    format!(" (problem `{}`)", self.problem)
                };
                return fault(at.unwrap_or(self.launching.block[0].at.clone()), format!("{e}{of}"));
            }
        };
        let standing = match (space.configuration(&self.defaults.0), &self.defaults.1) {
            (Some(c), _) => c,
            (None, None) => space.nth(0),
            (None, Some(at)) => {
                let of = if self.problem.is_empty() {
                    String::new()
                } else {
                    format!(", for problem `{}`", self.problem)
                };
                return fault(
                    at.clone(),
                    format!(
                        "the defaults of the knobs break a constraint or a limit of the device{of}"
                    ),
                );
            }
        };
        let only =
            standing.iter().map(|(k, v)| Knob { values: vec![v.clone()], ..k.clone() }).collect();
        let fixed =
            Space::new(only, &[]).map_err(|e| Fault { at: 0..0, message: e.to_string() })?;
        let standing = fixed.nth(0);
        let reference = match &self.reference {
            None => None,
            Some((l, r)) => Some((
                Recipe {
                    cuda: Some(Arc::new(l.shape(&self.knobs, &constants, gpu)?)),
                    ..r.clone()
                },
                l.grid[0].at.clone(),
            )),
        };
        let recipe = Recipe { cuda: Some(Arc::new(shape)), ..self.recipe.clone() };
        // What stands at the defaults is launched first of all.
        let first = [(&recipe, self.launching.grid[0].at.clone())]
            .into_iter()
            .chain(reference.iter().map(|(r, at)| (r, at.clone())));
        for (r, at) in first {
            r.source(&standing, "k")
                .map_err(|e| Fault { at, message: format!("at the defaults of the knobs: {e}") })?;
        }
        Ok(Placed {
            tunable: Arc::new(Choices { name: "own", space, recipe: recipe.clone() }),
            plain: Arc::new(Choices { name: UNTUNED, space: fixed, recipe }),
            standing,
            reference: reference.map(|r| r.0),
        })
    }
}

/// Refuses an entry that the source does not have.
pub fn has_entry(source: &str, entry: &str, at: Place, file: &str) -> Result<(), Fault> {
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

/// Refuses what would make NVRTC do anything but compile this kernel.
pub fn compiler_flag(flag: &str, at: Place) -> Result<(), Fault> {
    let (dashes, word) = flag.split_at(flag.len() - flag.trim_start_matches('-').len());
    let words = [
        "use_fast_math",
        "maxrregcount=",
        "fmad=",
        "ftz=",
        "prec-div=",
        "prec-sqrt=",
        "std=",
        "extra-device-vectorization",
        "lineinfo",
        "restrict",
        "D",
        "U",
        "I",
    ];
    let meant = flag.is_empty()
        || (matches!(dashes, "-" | "--") && words.iter().any(|w| word.starts_with(w)));
    if !meant || flag.contains(char::is_whitespace) {
        return fault(
            at,
            format!(
                "`{flag}` is no flag of NVRTC for one kernel: -D, -U, -I, --std=, \
                 --use_fast_math, --maxrregcount=, --fmad=, --ftz=, --prec-div=, --prec-sqrt=, \
                 --extra-device-vectorization, --restrict and -lineinfo are, without spaces"
            ),
        );
    }
    Ok(())
}
