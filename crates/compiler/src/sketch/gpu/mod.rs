//! Sketches of GPU kernels. Input: a workload (a tensor expression) and a GPU; output: a `Program`
//! for each sketch, which is a space of knobs and a function from a configuration to the whole loop
//! nest of the kernel, printed as CUDA C by `emit/cuda.rs`.
//!
//! Each rule writes the nest directly, because the blocks, threads and shared tiles of a GPU are
//! one structure that no chain of schedule primitives reaches in small steps. The rules:
//! `attention` for two products around a softmax, `separable` for a depthwise convolution with the
//! pointwise ones beside it, `contract` for sums over tiles, with `tensor` and `warpgroup` for sums
//! that tensor cores multiply, `winograd` for 3x3 convolutions by fewer products, `rows` for
//! reductions along rows, `columns` for those across them, `map` for elementwise kernels, and plain
//! loops, one thread an element, where none applies. `loops`, `problem`, `span` and `resources` are
//! shared by the rules.

mod attention;
mod columns;
mod contract;
mod loops;
mod map;
mod problem;
mod resources;
mod row_steps;
mod rows;
mod separable;
mod span;
mod tensor;
mod warpgroup;
mod winograd;

use super::{Derived, Facts};
use crate::emit::emit_cuda;
use crate::nest::Nest;
use squall_core::{Configuration, Gpu, KernelSource, RealizeError, Space, UNTUNED, Workload};

/// The function that writes the nest of a configuration.
type Make = Box<dyn Fn(&Configuration) -> Result<Nest, String> + Send + Sync>;

/// A derived sketch for a GPU: a space, and the nest of each of its configurations.
pub(crate) struct Program {
    pub name: String,
    pub space: Space,
    gpu: Gpu,
    make: Make,
}

/// A rule that derives sketches for a GPU.
struct Rule {
    derive: fn(&Facts<'_>, Gpu) -> Vec<Program>,
    /// Whether it has a sketch for operators one behind the other
    /// ([`chain`](squall_core::operator::chain)): it says so without deriving one.
    makes_chain: fn(&Workload) -> bool,
}

impl Rule {
    /// A rule of sketches for single operators.
    const fn of_one(derive: fn(&Facts<'_>, Gpu) -> Vec<Program>) -> Rule {
        Rule { derive, makes_chain: |_| false }
    }
}

/// The rules in order; the first that applies gives all sketches, and Winograd's algorithm and sums
/// along rows add their own.
const RULES: &[Rule] = &[
    Rule::of_one(attention::derive),
    Rule { derive: separable::derive, makes_chain: separable::makes },
    Rule { derive: contract::derive, makes_chain: contract::makes_normed },
    Rule::of_one(rows::derive),
    Rule::of_one(columns::derive),
    Rule::of_one(map::derive),
];

/// Whether a sketch makes operators one behind the other as one kernel.
pub fn makes_chain(w: &Workload) -> bool {
    RULES.iter().any(|rule| (rule.makes_chain)(w))
}

pub(crate) fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    // Tiles that reach over an edge count on nothing being there, which is another's in a larger
    // box. Attention alone stays inside.
    if !f.workload.rooms.is_empty() {
        let list = attention::derive(f, gpu);
        return if list.is_empty() { vec![plain(f, gpu)] } else { list };
    }
    let derived = RULES.iter().map(|rule| (rule.derive)(f, gpu)).find(|list| !list.is_empty());
    let mut list = derived.unwrap_or_else(|| vec![plain(f, gpu)]);
    list.extend(winograd::derive(f, gpu));
    // A sum along the last axis is a tile of sums, or a block's threads share a row of it.
    if f.workload.kind == "reduce" {
        let rows = rows::derive(f, gpu);
        rows.into_iter().for_each(|r| {
            if list.iter().all(|known| known.name != r.name) {
                list.push(r);
            }
        });
    }
    list
}

/// One thread an element of each stage, one launch a stage.
pub(crate) fn plain(f: &Facts<'_>, gpu: Gpu) -> Program {
    let nest = map::plain(f);
    Program {
        name: UNTUNED.into(),
        space: super::plain::one(),
        gpu,
        make: Box::new(move |_| Ok(nest.clone())),
    }
}

impl Program {
    /// The verified nest of a configuration, within the device's limits.
    pub fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError> {
        let n = (self.make)(c).map_err(RealizeError)?;
        resources::check_shared(&n, self.gpu).map_err(RealizeError)?;
        Ok(n)
    }
}

impl Derived for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError> {
        Program::nest(self, c)
    }

    fn print(&self, n: &Nest, symbol: &str) -> KernelSource {
        emit_cuda(n, symbol)
    }
}
