//! Sketches: the ways to structure a workload's kernel, derived by rule from its tensor expression
//! (after Ansor, OSDI 2020, section 4). A sketch leaves its choices, such as tile sizes, open as
//! knobs.
//!
//! Input: a workload and a target. Output ([`sketches`]): tunables, each a space of legal
//! configurations and a function from a configuration to kernel source. A CPU's sketch consists of
//! a loop nest that some primitives have already brought into shape (stages joined, axes
//! collapsed), a space, and a function from a configuration to the rest of the schedule; a GPU's
//! sketch (`gpu`) writes the whole nest. Each rule is a submodule with a function `derive`, listed
//! in `RULES`: the first rule that yields any sketch wins, and then other algorithms (`phases`,
//! `winograd`, ..) add theirs. Where no rule applies, plain loops remain (`plain`).

mod attention;
mod back_to_back;
mod collapse;

mod factors;
mod few_bits;
mod floats;
pub(crate) mod gpu;
mod map;
mod pairs;
mod phases;
mod plain;
mod range;
mod rows;
mod tile;
mod window;
mod winograd;
mod words;

use crate::emit::{Options, emit, stack_bytes};
use crate::features;
use crate::nest::{Nest, lower, verify};
use crate::schedule::{Primitive, apply};
use squall_core::space::{Knob, Role, Term};
use squall_core::{
    Configuration, KernelSource, RealizeError, Space, Target, TargetKind, Tunable, TunableName,
    Workload,
};
use std::sync::Arc;

pub use back_to_back::of_operators;
pub use pairs::by_pairs;
pub use plain::{reference, reference_of};
pub use range::counterpart;

/// Stack that a kernel may use for its tiles; a thread has a few MiB.
const MOST_STACK: u64 = 512 << 10;

/// The outputs along each axis of a tile of Winograd's on a GPU, for which there is no knob.
const GPU_TILE: i64 = 2;

/// A test whether the sketch of a name is wanted.
pub type Wanted<'a> = dyn Fn(&str) -> bool + Sync + 'a;

/// The input of a rule: a workload and a target.
pub(crate) struct Facts<'a> {
    pub workload: &'a Workload,
    pub target: &'a Target,
    /// Which sketches by tiles are wanted: the others are not derived, because building the space
    /// of one takes milliseconds.
    pub wanted: &'a Wanted<'a>,
    /// Whether tiles may be too small to be fast: short extents of a range have such ones, which
    /// read weights that were packed for longer extents.
    pub any_tile: bool,
}

impl<'a> Facts<'a> {
    /// A workload on a target, of which all sketches are wanted.
    pub fn new(workload: &'a Workload, target: &'a Target) -> Facts<'a> {
        Facts { workload, target, wanted: &|_| true, any_tile: false }
    }
}

/// The part of a schedule that knobs decide.
type Primitives = Box<dyn Fn(&Configuration) -> Vec<Primitive> + Send + Sync>;

/// A function from a configuration and the kernel's symbol to the kernel.
type Text = Box<dyn Fn(&Configuration, &str) -> Result<KernelSource, RealizeError> + Send + Sync>;

/// A text template that makes a sketch's kernels in place of its nests. The nests have the same
/// loops and are there for the features, which are read before a kernel is measured.
pub(crate) struct Template {
    /// The text, filled in by the values of the knobs.
    pub text: Text,
    /// How many times fewer cycles than the nest the template's kernel takes; the nest is mostly
    /// arithmetic.
    pub faster: f32,
}

/// A sketch for CPUs that a rule derived.
pub(crate) struct Sketch {
    pub name: String,
    pub target: Target,
    pub space: Space,
    /// The nest that `prefix` brought into shape.
    pub base: Nest,
    /// The primitives that made `base` of the plain nest.
    pub prefix: Vec<Primitive>,
    pub primitives: Primitives,
    /// See [`KernelSource::full_optimisation`].
    pub full_optimisation: bool,
    /// Present where kernels are not printed from nests.
    pub template: Option<Template>,
    /// Present for sketches of two operators back to back: the kernel is a loop over parts, around
    /// the nests of both operators.
    pub both: Option<back_to_back::BackToBack>,
}

/// A rule that derives sketches for CPUs.
struct Rule {
    derive: fn(&Facts<'_>) -> Vec<Sketch>,
    /// Whether it has a sketch for operators one behind the other
    /// ([`chain`](squall_core::operator::chain)): it says so without deriving one.
    makes_chain: fn(&Workload) -> bool,
}

impl Rule {
    /// A rule of sketches for single operators.
    const fn of_one(derive: fn(&Facts<'_>) -> Vec<Sketch>) -> Rule {
        Rule { derive, makes_chain: |_| false }
    }
}

/// The rules, in order; the first that applies gives all sketches, and other algorithms add theirs.
/// Plain loops remain where none does.
const RULES: &[Rule] = &[
    Rule::of_one(attention::derive),
    Rule { derive: back_to_back::derive, makes_chain: back_to_back::makes },
    Rule::of_one(few_bits::derive),
    Rule::of_one(range::derive),
    Rule::of_one(tile::derive),
    Rule::of_one(rows::derive),
    Rule::of_one(map::derive),
];

/// Whether CPUs have a sketch that makes operators one behind the other as one kernel.
pub fn cpu_makes_chain(w: &Workload) -> bool {
    RULES.iter().any(|rule| (rule.makes_chain)(w))
}

/// Whether GPUs have such a sketch.
pub fn gpu_makes_chain(w: &Workload) -> bool {
    gpu::makes_chain(w)
}

pub(crate) fn derive(w: &Workload, t: &Target) -> Vec<Sketch> {
    derive_wanted(&Facts::new(w, t))
}

fn derive_wanted(facts: &Facts<'_>) -> Vec<Sketch> {
    let w = facts.workload;
    let paired = by_pairs(w).map(|p| {
        let mut list = tile::derive(&Facts { workload: &p, ..*facts });
        list.extend(tiles_of_windows(facts, &p));
        list
    });
    let derived = paired.into_iter().chain(RULES.iter().map(|rule| (rule.derive)(facts)));
    let derived = derived.into_iter().find(|list| !list.is_empty());
    let mut list = derived.unwrap_or_else(|| vec![plain::sketch(facts)]);
    list.extend(phases::derive(facts));
    // Words take more memory than bytes and fewer instructions: the tuner chooses.
    if facts.target.machine.words {
        if let Some(w) = words::by_words(w) {
            list.extend(tile::derive(&Facts { workload: &w, ..*facts }));
        }
        if let Some(w) = floats::by_floats(w) {
            list.extend(winograd::derive(&Facts { workload: &w, ..*facts }));
        }
    }
    // Winograd's filtering multiplies floats, which is slower than all products on tiles are.
    if !list.iter().any(|s| s.name.starts_with(tile::AMX)) {
        list.extend(winograd::derive(facts));
    }
    list
}

/// Sketches for AMX of a first layer by pairs, with its channels last in what the tiles read.
fn tiles_of_windows(facts: &Facts<'_>, paired: &Workload) -> Vec<Sketch> {
    if facts.target.machine.tiles.is_none() {
        return Vec::new();
    }
    let Some(w) = window::channels_last(paired) else { return Vec::new() };
    let named = |name: &str| format!("{name},last");
    let wanted = |name: &str| name.starts_with(tile::AMX) && (facts.wanted)(&named(name));
    let list = tile::derive(&Facts { workload: &w, wanted: &wanted, ..*facts });
    list.into_iter().map(|s| Sketch { name: named(&s.name), ..s }).collect()
}

/// The plain loops of a workload, as a sketch.
pub(crate) fn plain_sketch(w: &Workload, t: &Target) -> Sketch {
    plain::sketch(&Facts::new(w, t))
}

/// The tuned spaces of a task: at least one.
pub fn sketches(w: &Workload, t: &Target) -> Vec<Arc<dyn Tunable>> {
    if let TargetKind::Cuda(gpu) = t.kind {
        let facts = Facts::new(w, t);
        return gpu::derive(&facts, gpu).into_iter().map(|p| open(p, t)).collect();
    }
    derive(w, t).into_iter().map(|s| open(s, t)).collect()
}

/// The sketches of a CPU whose names are wanted, if there is any; otherwise, and for GPUs, all
/// sketches.
pub fn sketches_wanted(w: &Workload, t: &Target, wanted: &Wanted<'_>) -> Vec<Arc<dyn Tunable>> {
    let found = match t.kind {
        TargetKind::Cpu => derive_wanted(&Facts { wanted, ..Facts::new(w, t) }),
        TargetKind::Cuda(_) => Vec::new(),
    };
    // Without the tiles another rule may have had its turn.
    let found: Vec<_> = found.into_iter().filter(|s| wanted(&s.name)).map(|s| open(s, t)).collect();
    if found.is_empty() { sketches(w, t) } else { found }
}

/// The sketch of this name for a CPU with every legal tile, also those that are too small to be
/// fast: a kernel for a range of extents takes its configurations for short extents from it.
pub fn sketch_of_range(w: &Workload, t: &Target, name: &str) -> Option<Arc<dyn Tunable>> {
    let wanted = |sketch: &str| sketch == name;
    let found = derive_wanted(&Facts { wanted: &wanted, any_tile: true, ..Facts::new(w, t) });
    found.into_iter().find(|s| s.name == name).map(|s| open(s, t))
}

/// Plain loops with exactly one configuration: what a C programmer gets from the compiler.
pub fn untuned(w: &Workload, t: &Target) -> Arc<dyn Tunable> {
    let facts = Facts::new(w, t);
    match t.kind {
        TargetKind::Cpu => open(plain::sketch(&facts), t),
        TargetKind::Cuda(gpu) => open(gpu::plain(&facts, gpu), t),
    }
}

impl Sketch {
    /// The whole schedule of a configuration, from the plain nest on.
    pub fn schedule(&self, c: &Configuration) -> Vec<Primitive> {
        if let Some(both) = &self.both {
            return both.schedules(c);
        }
        self.prefix.iter().cloned().chain((self.primitives)(c)).collect()
    }

    /// The scheduled nest.
    pub fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError> {
        let mut n = self.base.clone();
        match &self.both {
            Some(both) => n = both.nest(c)?,
            None => {
                apply(&mut n, &(self.primitives)(c)).map_err(|e| RealizeError(e.to_string()))?;
            }
        }
        let stack = stack_bytes(&n);
        if stack > MOST_STACK {
            return Err(RealizeError(format!("{stack} bytes of stack are over {MOST_STACK}")));
        }
        Ok(n)
    }
}

impl Derived for Sketch {
    fn name(&self) -> &str {
        &self.name
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError> {
        Sketch::nest(self, c)
    }

    fn print(&self, n: &Nest, symbol: &str) -> KernelSource {
        emit(
            n,
            symbol,
            Options {
                threads: self.target.threads,
                double: false,
                full_optimisation: self.full_optimisation,
            },
        )
    }

    fn realize(&self, c: &Configuration, symbol: &str) -> Result<KernelSource, RealizeError> {
        match &self.template {
            Some(t) => (t.text)(c, symbol),
            None => printed(self, c, symbol),
        }
    }

    fn features(&self, n: &Nest, t: &Target) -> Vec<f32> {
        let mut row = features::extract(n, t);
        if let Some(t) = &self.template {
            let arithmetic = ["estimate", "vector_flop", "scalar_flop"];
            for (name, x) in crate::FEATURES.iter().zip(&mut row) {
                if arithmetic.contains(name) {
                    *x = (*x - t.faster.log2()).max(0.0);
                }
            }
        }
        row
    }
}

/// The kernel that the nest of a configuration is.
fn printed(
    derived: &(impl Derived + ?Sized),
    c: &Configuration,
    symbol: &str,
) -> Result<KernelSource, RealizeError> {
    let n = derived.nest(c)?;
    verify(&n).map_err(|e| RealizeError(format!("a bug of Squall: {e}")))?;
    Ok(derived.print(&n, symbol))
}

/// A derived sketch for any device: a space, and the nest of each of its configurations.
pub(crate) trait Derived: Send + Sync {
    fn name(&self) -> &str;
    fn space(&self) -> &Space;
    fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError>;
    /// The nest in the device's dialect.
    fn print(&self, n: &Nest, symbol: &str) -> KernelSource;

    /// The features of a nest for the cost model.
    fn features(&self, n: &Nest, t: &Target) -> Vec<f32> {
        features::extract(n, t)
    }

    /// Whether its algorithm computes what the expression says, operation by operation.
    fn is_direct(&self) -> bool {
        !TunableName::parse(self.name()).algorithm.ends_with("winograd")
    }

    /// The kernel of a configuration.
    fn realize(&self, c: &Configuration, symbol: &str) -> Result<KernelSource, RealizeError> {
        printed(self, c, symbol)
    }
}

/// A derived sketch, with the interface that search uses.
struct Open<D> {
    derived: D,
    target: Target,
}

impl<D: Derived> Tunable for Open<D> {
    fn name(&self) -> &str {
        self.derived.name()
    }

    fn space(&self) -> &Space {
        self.derived.space()
    }

    fn realize(&self, c: &Configuration, symbol: &str) -> Result<KernelSource, RealizeError> {
        self.derived.realize(c, symbol)
    }

    fn features(&self, c: &Configuration) -> Vec<f32> {
        let nest = self.derived.nest(c);
        nest.map_or_else(|_| Vec::new(), |n| self.derived.features(&n, &self.target))
    }

    fn share_of_operations(&self, c: &Configuration) -> Option<f64> {
        if self.derived.is_direct() {
            return None;
        }
        // Transforms and tiles over the edge come on top, so that no kernel does less.
        let m = c.int("m").unwrap_or(GPU_TILE);
        Some(winograd::share_of_products(self.name(), m))
    }

    fn prior(&self, features: &[f32]) -> Option<f32> {
        features.first().copied()
    }
}

/// A sketch, with the interface that search uses.
fn open(derived: impl Derived + 'static, target: &Target) -> Arc<dyn Tunable> {
    Arc::new(Open { derived, target: target.clone() })
}

/// Applies primitives to a nest at derivation; `None`, and the nest unchanged, where one refuses.
pub(crate) fn attempt(
    n: &mut Nest,
    prefix: &mut Vec<Primitive>,
    primitives: Vec<Primitive>,
) -> Option<()> {
    let mut trial = n.clone();
    apply(&mut trial, &primitives).ok()?;
    *n = trial;
    prefix.extend(primitives);
    Some(())
}

/// The plain nest that sketches start from.
pub(crate) fn start(w: &Workload) -> (Nest, Vec<Primitive>) {
    (lower(w), Vec::new())
}

/// Powers of two from `low` to `high`.
pub(crate) fn powers(low: i64, high: i64) -> impl Iterator<Item = i64> {
    std::iter::successors(Some(low), |x| Some(x * 2)).take_while(move |x| *x <= high)
}

/// Divisors of `n`, ascending.
pub(crate) fn divisors(n: i64) -> Vec<i64> {
    (1..=n).filter(|d| n % d == 0).collect()
}

/// The constraint that tiles which cover an axis, the last moved back to stay inside, compute at
/// most one part in `parts` twice.
pub(crate) fn overlap_at_most(extent: i64, tile: impl Fn() -> Term, parts: i64) -> Term {
    let covered = Term::product([Term::from(extent).ceil_div(tile()), tile(), Term::from(parts)]);
    covered.at_most((parts + 1) * extent)
}

/// A space in the making: knobs, constraints that must hold, and constraints that hold in every
/// good kernel.
#[derive(Default)]
pub(crate) struct Draft {
    pub knobs: Vec<Knob>,
    pub must: Vec<Term>,
    pub should: Vec<Term>,
}

impl Draft {
    /// The space under all constraints; without the constraints of good kernels where no
    /// configuration meets them.
    pub fn open(self) -> Option<Space> {
        let all: Vec<Term> = self.must.iter().chain(&self.should).cloned().collect();
        Space::new(self.knobs.clone(), &all).or_else(|_| Space::new(self.knobs, &self.must)).ok()
    }
}

/// A knob that says how many cache lines ahead the innermost loop prefetches a stream of weights:
/// none, as many as cover the latency of a near cache, or of a far one.
pub(crate) fn prefetch_knob() -> Knob {
    Knob::ints("prefetch", Role::Choice, [0, 16, 48])
}

/// Shorthands that keep schedules readable.
pub(crate) mod short {
    use super::Primitive;
    use crate::nest::Mode;

    pub fn split(l: &str, f: i64, o: impl Into<String>, i: impl Into<String>) -> Primitive {
        Primitive::Split { of: l.into(), factor: f, outer: o.into(), inner: i.into() }
    }
    pub fn vectorize(l: impl Into<String>) -> Primitive {
        Primitive::Mark { mode: Mode::Vector, of: l.into() }
    }
    pub fn step(l: impl Into<String>) -> Primitive {
        Primitive::Mark { mode: Mode::Step, of: l.into() }
    }
    pub fn unroll(l: impl Into<String>) -> Primitive {
        Primitive::Mark { mode: Mode::Unroll, of: l.into() }
    }
    pub fn parallel(l: impl Into<String>) -> Primitive {
        Primitive::Mark { mode: Mode::Parallel, of: l.into() }
    }
}
