//! Plain kernels: C for one ONNX operator at constant shapes, as the standard defines it, without
//! tuning. They serve operators for which no sketch exists, so that every model runs.
//!
//! Input: an [`OperatorCall`] (operator, attributes, types and shapes of operands); output: a
//! [`PlainSource`], or a [`DeviceSource`] for GPUs. Each family of operators is a file with a table
//! `OPS` of operators and generators, functions that write an operator's C by means of
//! `program.rs`. A call with an attribute or element type that the generator does not write is
//! refused by [`Unsupported`]. `squall/src/inference/network/plain.rs` builds the kernels.

mod attention;
mod broadcast;
mod byte_sums;
mod bytes;
mod cast;
mod choice;
mod context;
mod convolution;
mod copy;
mod deform;
mod device;
mod elementwise;
mod fourier;
mod functions;
mod gather;
mod geometry;
mod loss;
mod matmul;
mod nbits;
mod norm;
mod pick;
mod pool;
mod program;
mod quantized;
mod ranks;
mod recurrent;
mod reduce;
mod region;
mod regions;
mod resize;
mod scan;
mod scatter;
mod signal;
mod softmax;
mod work;

pub use self::device::{DeviceSource, Phase};
pub(crate) use self::nbits::{FewBitsKnobs, few_bits};
use self::program::Program;
pub use self::work::{LeastWork, least_work};
use squall_core::graph::OperatorCall;
use squall_core::operators::{operator, standard_operators};
use std::fmt;

/// The C of one operator at constant shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainSource {
    /// A translation unit that stands alone: C99, one function of external linkage,
    /// `int SYMBOL(const void *const *in, void *const *out, void *scratch)`, as
    /// [`OperatorCall`] describes it. It depends on the symbol only where that stands.
    pub text: String,
    /// Bytes of memory that `scratch` must have, aligned as for any type; 0 where it may be null.
    pub scratch_bytes: u64,
    /// Whether OpenMP may share its loops among threads.
    pub shares_loops: bool,
    /// Functions that it calls.
    pub parts: Vec<PlainPart>,
    /// Bytes of memory into which `int SYMBOL_prepare(const void *const *in, void *prepared)` packs
    /// operands that are the same in all calls, once ahead of them; 0 where there is none. A call
    /// finds that memory behind its operands, at `in[inputs.len()]`.
    pub prepared_bytes: u64,
    /// The operands that `SYMBOL_prepare` reads. Calls do not read these, and it reads no others.
    pub weights: Vec<usize>,
}

/// A function that a region calls: a translation unit of its own with
/// `int SYMBOL(const void *const *data, void *const *outputs, const void *prepared, void
/// *workspace)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainPart {
    /// The function's name.
    pub symbol: String,
    /// The text.
    pub text: String,
    /// Whether OpenMP may share its loops among threads.
    pub shares_loops: bool,
}

/// Why no plain kernel is written for a call: which attribute, type or operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The operator.
    pub op: String,
    /// The attribute, type or operand that is not supported.
    pub what: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operator `{}`: {}", self.op, self.what)
    }
}

impl std::error::Error for Unsupported {}

/// Writes the body of one operator.
type Generator = fn(&mut Program<'_>) -> Result<(), String>;

/// All operators that have plain kernels, family by family.
const FAMILIES: &[&[(&str, Generator)]] = &[
    attention::OPS,
    cast::OPS,
    convolution::OPS,
    deform::OPS,
    copy::OPS,
    elementwise::OPS,
    gather::OPS,
    geometry::OPS,
    loss::OPS,
    matmul::OPS,
    norm::OPS,
    pick::OPS,
    pool::OPS,
    quantized::OPS,
    recurrent::OPS,
    reduce::OPS,
    region::OPS,
    resize::OPS,
    scan::OPS,
    scatter::OPS,
    signal::OPS,
    softmax::OPS,
];

/// The names of all operators that have plain kernels.
pub fn operators() -> impl Iterator<Item = &'static str> {
    let written = FAMILIES.iter().copied().flatten().map(|(name, _)| *name);
    let by_row = standard_operators().filter(|row| elementwise::by_row(row).is_some());
    written.chain(by_row.map(|row| row.name))
}

/// Whether an operator has a plain kernel; a call of it may still be [`Unsupported`].
pub fn has(domain: &str, op: &str) -> bool {
    generator(domain, op).is_some()
}

/// The generator of an operator of a domain: a standard operator, or one that only Squall's readers
/// of models write.
fn generator(domain: &str, op: &str) -> Option<Generator> {
    let families = match domain {
        "" | "ai.onnx" => FAMILIES,
        squall_core::graph::infer::nbits::DOMAIN => {
            &[nbits::OPS, bytes::OPS, choice::OPS, regions::OPS]
        }
        _ => return None,
    };
    let written = families.iter().copied().flatten().find(|(name, _)| *name == op);
    let by_row = || operator(domain, op).and_then(elementwise::by_row);
    written.map(|(_, generator)| *generator).or_else(by_row)
}

/// The C of a call, as a function of this symbol.
pub fn source(call: &OperatorCall, symbol: &str) -> Result<PlainSource, Unsupported> {
    source_over(call, &[], symbol)
}

/// The C of a call, as a function of this symbol, where `fixed` says of each operand whether it is
/// the same in all calls: an operator that packs some of these operands packs them once.
pub fn source_over(
    call: &OperatorCall,
    fixed: &[bool],
    symbol: &str,
) -> Result<PlainSource, Unsupported> {
    written(call, fixed, |program| program.finish(symbol))
}

/// The CUDA C++ of a call; see [`DeviceSource`].
pub fn device_source(call: &OperatorCall, symbol: &str) -> Result<DeviceSource, Unsupported> {
    if call.op == squall_core::graph::infer::region::REGION {
        let what = "lengths that only the run knows, and loops, are for CPUs";
        return Err(Unsupported { op: call.op.clone(), what: what.into() });
    }
    written(call, &[], |program| device::finish(&program, symbol))
}

/// Writes a call's program and passes it to `finish`.
fn written<T>(
    call: &OperatorCall,
    fixed: &[bool],
    finish: impl FnOnce(Program<'_>) -> T,
) -> Result<T, Unsupported> {
    let refuse = |what: String| Unsupported { op: call.op.clone(), what };
    let generate =
        generator(&call.domain, &call.op).ok_or_else(|| refuse("it has no plain kernel".into()))?;
    let node = context::node_of(call);
    let mut program = Program::new(call, &node, fixed).map_err(refuse)?;
    generate(&mut program).map_err(refuse)?;
    Ok(finish(program))
}

#[cfg(test)]
mod tests;
