//! The type of a dialect: a table of how one language of C's family spells everything that the
//! printer prints, from `f32` to a kernel launch. In a spelling `$1`, `$2`, .. stand for its parts,
//! as in `("pow", "powf($1, $2)")`. `c.rs` and `cuda.rs` are the tables; a new language is one more
//! file with a table, and a line in [`super::DIALECTS`].

use squall_core::Language;
use std::collections::BTreeSet;

/// The spellings in which a language differs from others of C's family.
#[derive(Clone, Copy)]
pub struct Dialect {
    /// The language.
    pub language: Language,
    /// The first text of a source; `$1` is the kernel's name.
    pub title: &'static str,
    /// Types of numbers.
    pub numbers: Numbers,
    /// The calls of functions on numbers, by name; `$f` stands for the form: `f` of a float, `d` of
    /// a double, `v8` of a vector.
    pub functions: &'static [(&'static str, &'static str)],
    /// Adds a value to an element. With a product this is a multiply-add, which compilers join.
    pub accumulate: &'static str,
    /// The spelling of array indices and loop counters.
    pub index: Index,
    /// The text between a pointer's type and its name where no other pointer points to the same
    /// memory.
    pub restrict: &'static str,
    /// Whether a program computes by SIMD vectors or by many threads, with the words for it.
    pub execution: Execution,
    /// Gives the text ahead of a program's functions: the helpers that they used.
    pub prelude: fn(&Used) -> String,
}

/// Spellings of the types of numbers, and of NaN and the infinities.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// 16 bits with 5 of exponent.
    pub f16: &'static str,
    /// 16 bits with 8 of exponent.
    pub bf16: &'static str,
    /// 32 bits.
    pub f32: &'static str,
    /// 64 bits.
    pub f64: &'static str,
    /// Not a number.
    pub nan: &'static str,
    /// Infinity.
    pub infinity: &'static str,
    /// Minus infinity.
    pub minus_infinity: &'static str,
}

/// The spelling of array indices and loop counters.
#[derive(Clone, Copy)]
pub struct Index {
    /// The type of a loop's counter.
    pub counter: &'static str,
    /// The type of an index that is computed once and not changed.
    pub value: &'static str,
    /// The type without sign.
    pub unsigned: &'static str,
    /// Behind a number of that type.
    pub suffix: &'static str,
    /// The lesser of two.
    pub least: &'static str,
}

/// Whether a program computes by SIMD vectors or by many threads, with the words for it.
#[derive(Clone, Copy)]
pub enum Execution {
    /// One thread, or some, whose instructions work on vectors: CPUs.
    Vectors(VectorWords),
    /// Many threads in blocks, each of them working on single numbers: GPUs.
    Threads(ThreadWords),
}

/// Words of programs that work on vectors.
#[derive(Clone, Copy, Default)]
pub struct VectorWords {
    /// Before a function that others call.
    pub export: &'static str,
    /// The type of a vector of `$1` lanes.
    pub vector: &'static str,
    /// A vector in memory that is read: type, first element.
    pub load: &'static str,
    /// A vector in memory that is written: type, first element.
    pub store: &'static str,
    /// A vector by its lanes: type, lanes.
    pub list: &'static str,
    /// A local array: type, name, elements.
    pub array: &'static str,
    /// Asks for the cache line of an element.
    pub prefetch: &'static str,
    /// Behind the load of a vector that several sums of a step use: the compiler keeps it in a
    /// register, and does not read it again in each of them.
    pub held: &'static str,
    /// The statement across which the compiler must not keep elements of memory in registers.
    pub step: &'static str,
    /// Before a loop whose iterations threads share.
    pub parallel: &'static str,
    /// Behind `parallel`: how many loops are shared as one.
    pub collapse: &'static str,
    /// Behind `collapse`: how many threads there are.
    pub threads: &'static str,
}

/// Words of programs of many threads.
#[derive(Clone, Copy, Default)]
pub struct ThreadWords {
    /// The head of a function that is launched: cluster, bounds, name, parameters.
    pub function: &'static str,
    /// The cluster's part of that head: blocks.
    pub cluster: &'static str,
    /// The array that all shared buffers lie in: alignment.
    pub shared: &'static str,
    /// A parameter that holds a tensor map: number.
    pub tensor_map: &'static str,
    /// The number of a block, and that of a thread in it.
    pub block: &'static str,
    /// See `block`.
    pub thread: &'static str,
    /// Where a block's threads wait for each other.
    pub barrier: &'static str,
    /// Before a loop that stays one.
    pub rolled: &'static str,
    /// The pragma before a loop that the compiler unrolls.
    pub unrolled: &'static str,
    /// See `unrolled`.
    pub unrolled_by: &'static str,
    /// The type of `$1` floats side by side, and how a value of it is made of its lanes.
    pub floats: &'static str,
    /// See `floats`.
    pub make_floats: &'static str,
}

/// The helper functions and vector widths that the text of a program used; they decide which text
/// stands ahead of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Functions, or families of them, by name.
    pub helpers: BTreeSet<&'static str>,
    /// Widths of vectors.
    pub lanes: BTreeSet<i64>,
    /// The products of warpgroups that were used: format, columns, which factors lie transposed,
    /// and the form of the product.
    pub products: BTreeSet<(&'static str, i64, [bool; 2], ProductForm)>,
}

/// Where the first factor lies, and whether a product replaces its sums or is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProductForm {
    /// It is added to the sums.
    Adding,
    /// It takes their place.
    Replacing,
    /// It is added, and its first factor lies in registers.
    Held,
}

impl ProductForm {
    /// The start of the function's name behind `group_`.
    pub fn word(self) -> &'static str {
        match self {
            ProductForm::Adding => "",
            ProductForm::Replacing => "first_",
            ProductForm::Held => "held_",
        }
    }
}

impl Used {
    /// Whether a helper was used.
    pub fn has(&self, helper: &str) -> bool {
        self.helpers.contains(helper)
    }

    /// Adds what another part of the program used.
    pub fn extend(&mut self, other: Used) {
        self.helpers.extend(other.helpers);
        self.lanes.extend(other.lanes);
        self.products.extend(other.products);
    }
}

/// A spelling with its parts filled in.
pub(super) fn fill(spelling: &str, parts: &[&str]) -> String {
    let mut text = String::with_capacity(spelling.len() + 16);
    let mut rest = spelling;
    while let Some(at) = rest.find('$') {
        text += &rest[..at];
        rest = &rest[at + 1..];
        let part = rest.chars().next().and_then(|c| c.to_digit(10)).unwrap_or(0) as usize;
        match part.checked_sub(1).and_then(|i| parts.get(i)) {
            Some(part) => {
                text += part;
                rest = &rest[1..];
            }
            None => text.push('$'),
        }
    }
    text + rest
}
