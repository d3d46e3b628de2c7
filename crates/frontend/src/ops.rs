//! Reads operator lines: kernels without a model, one per line, in the spirit of oneDNN's benchdnn.
//! Output: an [`Import`] of tasks, or an error that points to the place in the line.
//!
//! ```text
//! # a comment
//! conv2: conv2d c=64 h=56 k=64 r=3 pad=1 epilogue=bias,relu
//! matmul m=128 n=3072 k=768 weight=b epilogue=bias,gelu
//! matmul m=1024 n=1024 k=1024 dtype=bf16
//! matmul m=1 n=4096 k=4096 weight=b bits=4 block=32 level=4
//! conv2d c=64 h=56 k=64 r=3 pad=1 direction=backward_data
//! MIOpenDriver conv -n 1 -c 64 -H 56 -W 56 -k 64 -y 3 -x 3 -p 1 -q 1 -F 4
//! ```
//!
//! A line may also be a command of MIOpenDriver, which gives a kernel for each direction that it
//! asks for, or a key of MIOpen's databases.

mod convolution;

use crate::error::ImportError;
use crate::import::Import;
use crate::miopen;
use squall_core::operator::{
    ByteResult, Epilogue, FewBits, FewBitsZero, LayerNorm, MatMul, Pool, PoolKind, Reduce,
    ReduceOp, Softmax, elementwise, functions, in_format,
};
use squall_core::tasks::{Tasks, named};
use squall_core::text::nearest;
use squall_core::{TensorKind, Workload};

/// An operator: its name, its keys, and the steps that may follow.
struct Operator {
    name: &'static str,
    keys: &'static [&'static str],
    build: fn(&Line) -> Result<(String, Workload), Fault>,
}

const OPERATORS: &[Operator] = &[
    Operator { name: "conv2d", keys: convolution::CONV2D, build: convolution::conv2d },
    Operator { name: "conv3d", keys: convolution::CONV3D, build: convolution::conv3d },
    Operator {
        name: "conv_transpose2d",
        keys: convolution::TRANSPOSE2D,
        build: convolution::transpose2d,
    },
    Operator {
        name: "conv_transpose3d",
        keys: convolution::TRANSPOSE3D,
        build: convolution::transpose3d,
    },
    Operator {
        name: "matmul",
        keys: &["batch", "m", "n", "k", "weight", "bits", "block", "level", "dtype", "epilogue"],
        build: matmul,
    },
    Operator {
        name: "pool",
        keys: &[
            "kind",
            "n",
            "c",
            "h",
            "w",
            "r",
            "s",
            "stride",
            "stride_h",
            "stride_w",
            "pad",
            "pad_h",
            "pad_w",
            "dilation",
            "dilation_h",
            "dilation_w",
            "count_pad",
            "dtype",
            "epilogue",
        ],
        build: pool,
    },
    Operator { name: "reduce", keys: &["op", "rows", "cols", "dtype", "epilogue"], build: reduce },
    Operator { name: "softmax", keys: &["rows", "cols", "dtype"], build: softmax },
    Operator { name: "layernorm", keys: &["rows", "cols", "eps", "dtype"], build: layernorm },
    Operator { name: "elementwise", keys: &["op", "n", "dtype"], build: map },
];

/// A fault at a byte of the line.
struct Fault {
    at: usize,
    message: String,
}

fn fault<T>(at: usize, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at, message: message.into() })
}

/// `key=value`.
struct Pair<'a> {
    key: &'a str,
    value: &'a str,
    /// Where the key and the value begin in the line.
    at: usize,
    value_at: usize,
}

/// An operator line, split into its parts.
struct Line<'a> {
    name: Option<&'a str>,
    operator: &'static Operator,
    operator_at: usize,
    pairs: Vec<Pair<'a>>,
}

/// Reads operator lines, one kernel per line; errors name the text's origin by `name`.
pub fn import_ops(text: &str, name: &str) -> Result<Import, ImportError> {
    let mut tasks = Tasks::default();
    for (i, line) in text.lines().enumerate() {
        // A flag of MIOpenDriver is `-#`.
        let of_miopen = miopen::is_problem(line);
        let code = if of_miopen { line } else { line.split('#').next().unwrap_or("") };
        if code.trim().is_empty() {
            continue;
        }
        let read = if of_miopen { problems } else { kernel };
        read(code, &mut tasks).map_err(|f| {
            let column = code[..f.at.min(code.len())].chars().count() + 1;
            ImportError::Line { name: name.into(), line: i + 1, column, message: f.message }
        })?;
    }
    let tasks = tasks.finish();
    if tasks.is_empty() {
        let message = "no operator line is there; write one, as `matmul m=64 n=64 k=64`".into();
        return Err(ImportError::Line { name: name.into(), line: 1, column: 1, message });
    }
    Ok(Import { tasks })
}

/// The kernels of a key of MIOpen's databases, or of a command of MIOpenDriver.
fn problems(code: &str, tasks: &mut Tasks) -> Result<(), Fault> {
    for (name, workload) in miopen::kernels(code).map_err(|message| Fault { at: 0, message })? {
        tasks.add(&name, workload, Vec::new());
    }
    Ok(())
}

fn kernel(code: &str, tasks: &mut Tasks) -> Result<(), Fault> {
    let line = split(code)?;
    let (made, workload) = (line.operator.build)(&line)?;
    if let Some(name) = line.name.filter(|n| tasks.has(n)) {
        return fault(
            line.start_of_name(code),
            format!("the name `{name}` is taken by a line above"),
        );
    }
    tasks.add(line.name.unwrap_or(&made), workload, Vec::new());
    Ok(())
}

fn split(code: &str) -> Result<Line<'_>, Fault> {
    let mut words = Vec::new();
    let mut start = None;
    for (i, c) in code.char_indices().chain([(code.len(), ' ')]) {
        match (c.is_whitespace(), start) {
            (false, None) => start = Some(i),
            (true, Some(s)) => {
                words.push((s, &code[s..i]));
                start = None;
            }
            _ => {}
        }
    }
    let mut words = words.into_iter().peekable();
    let name = words.next_if(|(_, w)| w.ends_with(':')).map(|(at, w)| (at, &w[..w.len() - 1]));
    if let Some((at, "")) = name {
        return fault(at, "expected a name before `:`");
    }
    let Some((at, word)) = words.next() else {
        return fault(code.len(), "expected an operator after the name");
    };
    let Some(operator) = OPERATORS.iter().find(|o| o.name == word) else {
        let all: Vec<&str> = OPERATORS.iter().map(|o| o.name).collect();
        return fault(
            at,
            format!(
                "there is no operator `{word}`{}; there are {}",
                nearest(word, &all),
                all.join(", ")
            ),
        );
    };
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for (at, word) in words {
        let Some((key, value)) = word.split_once('=') else {
            return fault(
                at,
                format!("expected `key=value`, found `{word}`{}", nearest(word, operator.keys)),
            );
        };
        if !operator.keys.contains(&key) {
            let all = operator.keys.join(", ");
            return fault(
                at,
                format!(
                    "{} has no key `{key}`{}; its keys are {all}",
                    operator.name,
                    nearest(key, operator.keys)
                ),
            );
        }
        if pairs.iter().any(|p| p.key == key) {
            return fault(at, format!("`{key}` is given twice"));
        }
        pairs.push(Pair { key, value, at, value_at: at + key.len() + 1 });
    }
    let line = Line { name: name.map(|n| n.1), operator, operator_at: at, pairs };
    let formats: &[&str] = match operator.name {
        "conv2d" | "matmul" => &["f32", "tf32", "f16", "bf16", "u8"],
        name if name.starts_with("conv") => &["f32", "tf32", "f16", "bf16"],
        _ => &["f32"],
    };
    if let Some(p) = line.pairs.iter().find(|p| p.key == "dtype" && !formats.contains(&p.value)) {
        let what = format!("{} kernels are made for {} today", operator.name, formats.join(", "));
        return fault(
            p.value_at,
            format!("dtype={}: {what}{}", p.value, nearest(p.value, formats)),
        );
    }
    Ok(line)
}

impl<'a> Line<'a> {
    fn pair(&self, key: &str) -> Option<&Pair<'a>> {
        self.pairs.iter().find(|p| p.key == key)
    }

    fn start_of_name(&self, code: &str) -> usize {
        code.len() - code.trim_start().len()
    }

    /// The number that the line gives for a key, if any.
    fn given(&self, key: &str, least: i64) -> Result<Option<i64>, Fault> {
        let Some(p) = self.pair(key) else { return Ok(None) };
        match p.value.parse::<i64>() {
            Ok(x) if x < least => {
                fault(p.value_at, format!("`{key}` must be {least} or more, not {x}"))
            }
            Ok(x) if x > 1 << 31 => fault(p.value_at, format!("`{key}` is too large: {x}")),
            Ok(x) => Ok(Some(x)),
            Err(_) => fault(
                p.value_at,
                format!("expected a whole number for `{key}`, found `{}`", p.value),
            ),
        }
    }

    fn or(&self, key: &str, default: i64) -> Result<i64, Fault> {
        Ok(self.given(key, 1)?.unwrap_or(default))
    }

    fn need(&self, key: &str) -> Result<i64, Fault> {
        match self.given(key, 1)? {
            Some(x) => Ok(x),
            None => fault(self.operator_at, format!("{} needs `{key}=`", self.operator.name)),
        }
    }

    /// `key` along each of these sides, or `key_h` and the like where they are given.
    fn along<const N: usize>(
        &self,
        key: &str,
        sides: [&str; N],
        least: i64,
        default: i64,
    ) -> Result<[i64; N], Fault> {
        let all = self.given(key, least)?.unwrap_or(default);
        let mut out = [all; N];
        for (x, side) in out.iter_mut().zip(sides) {
            *x = self.given(&format!("{key}_{side}"), least)?.unwrap_or(all);
        }
        Ok(out)
    }

    /// `key`, or `key_h` and `key_w` where they are given.
    fn two(&self, key: &str, least: i64, default: i64) -> Result<[i64; 2], Fault> {
        self.along(key, ["h", "w"], least, default)
    }

    /// One of several words.
    fn word(
        &self,
        key: &str,
        words: &[&'static str],
        default: Option<&'static str>,
    ) -> Result<&'static str, Fault> {
        match (self.pair(key), default) {
            (None, Some(d)) => Ok(d),
            (None, None) => fault(
                self.operator_at,
                format!("{} needs `{key}=` ({})", self.operator.name, words.join(", ")),
            ),
            (Some(p), _) => match words.iter().find(|w| **w == p.value) {
                Some(w) => Ok(w),
                None => fault(
                    p.value_at,
                    format!(
                        "`{key}` is one of {}, not `{}`{}",
                        words.join(", "),
                        p.value,
                        nearest(p.value, words)
                    ),
                ),
            },
        }
    }

    /// The workload with the steps of `epilogue=`, and the name made for both. `bias` is the shape
    /// and name of a bias, where the operator can have one.
    fn finish(
        &self,
        stem: &str,
        w: Result<Workload, String>,
        shape: &[i64],
        bias: Option<(&'static str, Vec<i64>)>,
    ) -> Made {
        let here = |message| Fault { at: self.operator_at, message };
        let w = w.map_err(here)?;
        let mut e = Epilogue::none();
        if let Some(p) = self.pair("epilogue").filter(|p| !p.value.is_empty() && p.value != "none")
        {
            let mut at = p.value_at;
            for step in p.value.split(',') {
                self.step(step, at, &mut e, shape, &bias)?;
                at += step.len() + 1;
            }
            if !e.fits(&w, shape) {
                return fault(
                    p.at,
                    "these steps are too many, or use the value more than once, for one kernel",
                );
            }
        }
        let w = e.attach(w, shape).map_err(here)?;
        let name = named(stem, &e.tags);
        let Some(p) = self.pair("dtype").filter(|p| p.value != "f32") else { return Ok((name, w)) };
        if p.value == "u8" {
            return fault(p.value_at, "kernels of bytes are products and forward convolutions");
        }
        match squall_core::DType::from_name(p.value) {
            Some(d) => Ok((format!("{name}_{}", p.value), in_format(w, d).map_err(here)?)),
            None => fault(p.value_at, format!("there is no dtype `{}`", p.value)),
        }
    }

    /// The kernel of bytes, where the line asks for one: it has a scale and an offset for each
    /// channel, and no further steps.
    fn in_bytes(&self, stem: &str, w: impl Fn() -> Result<Workload, String>) -> Option<Made> {
        let p = self.pair("dtype").filter(|p| p.value == "u8")?;
        if let Some(e) = self.pair("epilogue").filter(|e| !["", "none"].contains(&e.value)) {
            return Some(fault(
                e.at,
                "kernels of bytes scale, shift and saturate what they give, and take no epilogue",
            ));
        }
        let made = w().map_err(|message| Fault { at: p.value_at, message });
        Some(made.map(|w| (format!("{stem}_u8"), w)))
    }

    fn step(
        &self,
        step: &str,
        at: usize,
        e: &mut Epilogue,
        shape: &[i64],
        bias: &Option<(&'static str, Vec<i64>)>,
    ) -> Result<(), Fault> {
        let body = e.body.clone();
        e.body = match (step, bias) {
            ("bias", Some((name, shape))) => {
                functions::add(body, e.operand(name, TensorKind::Weight, shape.clone()))
            }
            ("add", _) => functions::add(body, e.operand("R", TensorKind::Data, shape.to_vec())),
            ("mul", _) => functions::mul(body, e.operand("R", TensorKind::Data, shape.to_vec())),
            _ => match functions::NAMED.iter().find(|(n, _)| *n == step) {
                Some((_, f)) => f(body),
                None => {
                    let mut all: Vec<&str> = functions::NAMED.iter().map(|(n, _)| *n).collect();
                    all.splice(
                        0..0,
                        if bias.is_some() {
                            vec!["bias", "add", "mul"]
                        } else {
                            vec!["add", "mul"]
                        },
                    );
                    return fault(
                        at,
                        format!(
                            "there is no step `{step}`{}; there are {}",
                            nearest(step, &all),
                            all.join(", ")
                        ),
                    );
                }
            },
        };
        e.tags.push(step.into());
        Ok(())
    }
}

type Made = Result<(String, Workload), Fault>;

fn matmul(l: &Line<'_>) -> Made {
    let weight = l.word("weight", &["b", "none"], Some("none"))?;
    let kind = if weight == "b" { TensorKind::Weight } else { TensorKind::Data };
    let mut product = MatMul::plain(l.need("m")?, l.need("n")?, l.need("k")?, kind);
    if let Some(bits) = l.pair("bits") {
        return few_bits(l, &product, bits);
    }
    if let Some(p) = ["block", "level"].iter().find_map(|key| l.pair(key)) {
        return fault(p.at, format!("`{}` is of weights of few bits: say `bits=` too", p.key));
    }
    let batch = l.or("batch", 1)?;
    product.batch = vec![(batch, true, true)];
    if let Some(made) = l.in_bytes(&product.name(), || product.in_bytes(ByteResult::ANY)) {
        return made;
    }
    let shape = [batch, product.m, product.n];
    l.finish(&product.name(), product.workload(), &shape, Some(("C", vec![product.n])))
}

/// A product with packed weights of 4 or 8 bits, whose zero points are half of their range; of
/// level 4 where activations are quantised, as onnxruntime's `accuracy_level` is.
fn few_bits(l: &Line<'_>, product: &MatMul, bits: &Pair<'_>) -> Made {
    let here = |message| Fault { at: bits.at, message };
    for key in ["batch", "dtype", "epilogue"] {
        if let Some(p) = l.pair(key) {
            return fault(p.at, format!("a product with weights of few bits takes no `{key}`"));
        }
    }
    if product.b != TensorKind::Weight {
        return Err(here("weights of few bits are weights: say `weight=b`".into()));
    }
    let (width, level) = (l.or("bits", 4)?, l.given("level", 0)?.unwrap_or(0));
    if let Some(p) = l.pair("level").filter(|_| level > 4) {
        return fault(p.value_at, "`level` is 4, where activations are quantised, or less");
    }
    let &MatMul { m, n, k, .. } = product;
    let zero = FewBitsZero::Same(1 << (width - 1).clamp(0, 7));
    let (block, whole) = (l.or("block", 32)?, level == 4);
    let product = FewBits { m, k, n, bits: width, block, whole, zero, bias: false };
    Ok((product.name(), product.workload().map_err(here)?))
}

fn pool(l: &Line<'_>) -> Made {
    let kind = match l.word("kind", &["max", "avg"], None)? {
        "max" => PoolKind::Max,
        _ => PoolKind::Average { count_padding: l.given("count_pad", 0)?.unwrap_or(0) != 0 },
    };
    let (c, h, r) = (l.need("c")?, l.need("h")?, l.need("r")?);
    let [ph, pw] = l.two("pad", 0, 0)?;
    let pool = Pool {
        kind,
        n: l.or("n", 1)?,
        c,
        h,
        w: l.or("w", h)?,
        r,
        s: l.or("s", r)?,
        stride: l.two("stride", 1, 1)?,
        pads: [ph, pw, ph, pw],
        dilation: l.two("dilation", 1, 1)?,
        positions: None,
    };
    l.finish(&pool.name(), pool.workload(), &pool.output(), None)
}

fn reduce(l: &Line<'_>) -> Made {
    let words: Vec<&'static str> = ReduceOp::ALL.iter().map(|(_, n)| *n).collect();
    let word = l.word("op", &words, None)?;
    let op = ReduceOp::ALL.iter().find(|(_, n)| *n == word).map_or(ReduceOp::Sum, |(op, _)| *op);
    let rows = l.need("rows")?;
    let reduce = Reduce { op, axes: vec![(rows, false), (l.need("cols")?, true)] };
    l.finish(&reduce.name(), reduce.workload(), &[rows], None)
}

fn softmax(l: &Line<'_>) -> Made {
    let softmax =
        Softmax { before: l.need("rows")?, extent: l.need("cols")?, after: 1, log: false };
    l.finish(&softmax.name(), softmax.workload(), &[softmax.before, softmax.extent], None)
}

fn layernorm(l: &Line<'_>) -> Made {
    let eps = match l.pair("eps") {
        None => 1e-5,
        Some(p) => match p.value.parse::<f64>() {
            Ok(x) if x.is_finite() && x >= 0.0 => x,
            _ => {
                return fault(
                    p.value_at,
                    format!("expected a number of 0 or more for `eps`, found `{}`", p.value),
                );
            }
        },
    };
    let (gain, bias) = (TensorKind::Weight, Some(TensorKind::Weight));
    let norm = LayerNorm { rows: l.need("rows")?, cols: l.need("cols")?, eps, gain, bias };
    l.finish(&norm.name(), norm.workload(), &[norm.rows, norm.cols], None)
}

fn map(l: &Line<'_>) -> Made {
    let n = l.need("n")?;
    let words: Vec<&'static str> =
        functions::NAMED.iter().map(|(n, _)| *n).chain(["add", "mul"]).collect();
    let op = l.word("op", &words, None)?;
    let mut e = Epilogue::none();
    let x = e.operand("R", TensorKind::Data, vec![n]);
    e.body = match functions::NAMED.iter().find(|(name, _)| *name == op) {
        Some((_, f)) => f(x),
        None => {
            let r = e.operand("R", TensorKind::Data, vec![n]);
            if op == "add" { functions::add(x, r) } else { functions::mul(x, r) }
        }
    };
    let w = elementwise(&e, &[n]).map_err(|message| Fault { at: l.operator_at, message })?;
    Ok((format!("{op}_{n}"), w))
}

#[cfg(test)]
mod tests;
