//! The CPU sketches of two operators one behind the other as one kernel (CUTLASS's back-to-back
//! fusion). An axis that both share is cut into parts, and each part of the first operator's result
//! is read by the second while a near cache holds it (Halide's `compute_at`). Input: a workload
//! that joins two operators (`core/src/operator/chain.rs`); output: sketches. Each operator keeps
//! the sketches and knobs that it has alone, at the size of a part: the kernel is a loop over the
//! parts around the loop nests of both.

mod parts;

use super::{Derived, Facts, MOST_STACK, Primitives, Sketch, tile};
use crate::emit::stack_bytes;
use crate::nest::{Buffer, Loop, Mode, Nest, Remap, Scope, Stmt, accesses, remapped};
use crate::schedule::Primitive;
use crate::schedule::structure::drop_hints;
use parts::{Cut, cuts, put_last, sized};
use squall_core::expr::{Affine, Source, Var};
use squall_core::operator::{BACK_TO_BACK, between_operators, operators, part_sizes, shared_axes};
use squall_core::workload::flatten;
use squall_core::{Configuration, RealizeError, Space, Target, Workload, is_untuned};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The number of sizes of parts that are offered, the largest that fit.
const SIZES: usize = 3;
/// The number of sketches of each operator that are offered.
const EACH: usize = 3;
/// The beginning of these sketches' names.
const PREFIX: &str = "b2b@";
/// The beginnings of the names of the first and of the second operator's knobs.
const KNOBS: [&str; 2] = ["first_", "second_"];

/// Two operators whose kernels become one, and the parts in which they do.
pub(crate) struct BackToBack {
    /// The sketches of the two operators, each of one part.
    parts: [Arc<Sketch>; 2],
    /// The number of parts.
    count: i64,
    /// Where the parts of tensors lie, by their names.
    cuts: Arc<HashMap<String, Cut>>,
    /// The names of the inputs of both, in their order.
    inputs: Vec<String>,
    /// The name of the first operator's result, which the second reads.
    between: String,
    threads: usize,
}

/// A configuration's text for the back-to-back sketch of this name, made of a candidate of each
/// operator alone (a tunable's name and a configuration's text): the sketch's space looks for the
/// nearest configuration. None where the sketch is of other operators' sketches.
pub fn of_operators(name: &str, operators: [(&str, &str); 2]) -> Option<String> {
    let mut parts = name.strip_prefix(PREFIX)?.split('+').skip(1);
    let fits = operators.iter().all(|(tunable, _)| parts.next() == Some(tunable));
    let prefixed = |((_, text), knobs): (&(&str, &str), &str)| {
        text.split(',').map(|pair| format!("{knobs}{pair}")).collect::<Vec<_>>().join(",")
    };
    let texts = operators.iter().zip(KNOBS).map(prefixed);
    fits.then(|| texts.collect::<Vec<_>>().join(","))
}

pub fn derive(f: &Facts<'_>) -> Vec<Sketch> {
    parted(f.workload).map_or_else(Vec::new, |(between, dims)| along(f, between, &dims))
}

/// Whether both operators can be made in parts.
pub fn makes(w: &Workload) -> bool {
    parted(w).is_some()
}

/// The stage between two operators, and the dimension of each input and stage that is cut.
fn parted(w: &Workload) -> Option<(usize, Vec<Option<usize>>)> {
    if w.kind != BACK_TO_BACK {
        return None;
    }
    let between = between_operators(w)?;
    // A batch is rarely worth a cut: the first axis is that of channels or rows.
    let dims = shared_axes(w, between).into_iter().next()?;
    Some((between, dims))
}

/// The sketches that cut these dimensions.
fn along(f: &Facts<'_>, between: usize, dims: &[Option<usize>]) -> Vec<Sketch> {
    let e = &f.workload.stages[between];
    let Some(dim) = dims[f.workload.stage_source(between).0 as usize] else { return Vec::new() };
    let all = e.axes[dim].extent;
    let each = e.shape().iter().product::<i64>() / all * e.dtype.bytes() as i64;
    let mut sizes = part_sizes(all);
    // Threads share the parts.
    let are_shared = |size: &i64| all / size >= f.target.threads as i64;
    if sizes.iter().any(are_shared) {
        sizes.retain(are_shared);
    }
    // A part stays in the second cache, with what is read beside it. Where none does, the least is
    // still faster than plain loops.
    let (most, least) = (f.target.cache(2) as i64 / 2, sizes.first().copied());
    sizes.retain(|size| size * each <= most || Some(*size) == least);
    let sizes = spread(sizes);
    let is_last = dim + 1 == e.axes.len();
    let places: &[bool] = if is_last { &[false] } else { &[false, true] };
    let ways = sizes.iter().flat_map(|&size| places.iter().map(move |&last| (size, last)));
    let make = |(size, last)| of_size(f, between, dims, size, last).unwrap_or_default();
    ways.flat_map(make).collect()
}

/// Of the sizes that fit, the largest and those that are half of the one before or less: of whole
/// vectors, where there are such.
fn spread(mut fitting: Vec<i64>) -> Vec<i64> {
    for lanes in [8, 4] {
        if fitting.iter().any(|s| s % lanes == 0) {
            fitting.retain(|s| s % lanes == 0);
            break;
        }
    }
    let mut list: Vec<i64> = Vec::new();
    for &size in fitting.iter().rev() {
        if list.len() < SIZES && list.last().is_none_or(|last| 2 * size <= *last) {
            list.push(size);
        }
    }
    list
}

/// The sketches of parts of a size, in which the first operator's result has the cut axis where the
/// model has it, or last.
fn of_size(
    f: &Facts<'_>,
    between: usize,
    dims: &[Option<usize>],
    size: i64,
    last: bool,
) -> Option<Vec<Sketch>> {
    let w = f.workload;
    let source = w.stage_source(between);
    let dim = dims[source.0 as usize]?;
    let part = sized(w, dims, size);
    let mut halves = operators(&part, between);
    if last {
        put_last(&mut halves, dim)?;
    }
    let target = Target { threads: 1, ..f.target.clone() };
    let [one, other] = halves.each_ref().map(|w| of_part(w, &target));
    // Rows that lie across each other have no sketch of rows.
    if last && [&one, &other].iter().any(|list| list.iter().any(|s| is_untuned(&s.name))) {
        return None;
    }
    let cuts = Arc::new(cuts(&part, dims));
    let mark = if last { ",last" } else { "" };
    let mut list = Vec::new();
    for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
        let name = format!("{PREFIX}{size}{mark}+{}+{}", a.name, b.name);
        if !(f.wanted)(&name) {
            continue;
        }
        let both = BackToBack {
            parts: [a.clone(), b.clone()],
            count: w.shape_of(source)[dim] / size,
            cuts: cuts.clone(),
            inputs: w.inputs.iter().map(|i| i.name.clone()).collect(),
            between: w.stages[between].name.clone(),
            threads: f.target.threads,
        };
        let space = a.space.then(&b.space, KNOBS).ok();
        // Kernels that see a tensor in a shape in which its parts are none have no place here.
        let stack = |s: &Space| both.nest(&s.nth(0)).map_or(u64::MAX, |n| stack_bytes(&n));
        let Some(space) = space.filter(|s| stack(s) <= MOST_STACK) else { continue };
        let primitives: Primitives = Box::new(|_| Vec::new());
        list.push(Sketch {
            name,
            target: f.target.clone(),
            space,
            base: a.base.clone(),
            prefix: Vec::new(),
            primitives,
            full_optimisation: false,
            template: None,
            both: Some(both),
        });
    }
    Some(list)
}

/// The sketches of an operator's part: those that take its reduction in one piece, where there are
/// any.
fn of_part(w: &Workload, t: &Target) -> Vec<Arc<Sketch>> {
    let direct = |s: &Sketch| s.template.is_none() && s.is_direct();
    let wanted = |name: &str| !name.starts_with(tile::AMX);
    let mut list = super::derive_wanted(&Facts { wanted: &wanted, ..Facts::new(w, t) });
    list.retain(direct);
    let is_cut = |s: &Sketch| s.name.split(',').any(|part| part == "cut");
    if !list.iter().all(is_cut) {
        list.retain(|s| !is_cut(s));
    }
    list.truncate(EACH);
    list.into_iter().map(Arc::new).collect()
}

impl BackToBack {
    /// The configurations of both operators.
    fn apart(&self, c: &Configuration) -> Result<[Configuration; 2], RealizeError> {
        let indices: Vec<usize> = c.indices().collect();
        let (a, b) = indices.split_at(self.parts[0].space.knobs().len().min(indices.len()));
        let of = |s: &Sketch, i| s.space.configuration(i);
        match (of(&self.parts[0], a), of(&self.parts[1], b)) {
            (Some(a), Some(b)) => Ok([a, b]),
            _ => Err(RealizeError("it is no configuration of both operators".into())),
        }
    }

    /// The schedule of each operator.
    pub fn schedules(&self, c: &Configuration) -> Vec<Primitive> {
        let Ok(both) = self.apart(c) else { return Vec::new() };
        self.parts.iter().zip(&both).flat_map(|(s, c)| s.schedule(c)).collect()
    }

    /// The nest of both.
    pub fn nest(&self, c: &Configuration) -> Result<Nest, RealizeError> {
        let [a, b] = self.apart(c)?;
        let nests = [self.parts[0].nest(&a)?, self.parts[1].nest(&b)?];
        self.joined(&nests).ok_or_else(|| {
            RealizeError("an operator sees a tensor in a shape that has no parts".into())
        })
    }

    fn joined(&self, nests: &[Nest; 2]) -> Option<Nest> {
        let mut n = Nest {
            name: nests[0].name.clone(),
            vars: Vec::new(),
            buffers: Vec::new(),
            prepare: Vec::new(),
            body: Vec::new(),
        };
        let part = n.new_var("part");
        let inputs = self.declare_inputs(nests, &mut n)?;
        let between = self.declare_between(nests, &mut n)?;
        let mut body = Vec::new();
        for of in nests {
            let slots = self.slots(of, &inputs, &between, &mut n)?;
            let vars: Vec<Var> = of.vars.iter().map(|v| n.new_var(v)).collect();
            let in_part = |part| InPart { of, slots: &slots, part };
            body.extend(remapped(&of.body, &in_part(part), &vars));
            // What all parts share is prepared once.
            let is_ahead = |b: Source| slots[b.0 as usize].place == Place::Ahead;
            let of_part = |s: &Stmt| {
                accesses(std::slice::from_ref(s)).iter().any(|a| a.write && is_ahead(a.buffer))
            };
            let (each, once): (Vec<Stmt>, Vec<Stmt>) =
                of.prepare.iter().cloned().partition(of_part);
            n.prepare.extend(remapped(&once, &in_part(part), &vars));
            if !each.is_empty() {
                let var = n.new_var("part_p");
                let prepare = remapped(&each, &in_part(var), &vars);
                n.prepare.push(self.over_parts(var, Mode::Serial, prepare));
            }
        }
        if self.threads <= 1 {
            return Some(Nest { body: vec![self.over_parts(part, Mode::Serial, body)], ..n });
        }
        // Threads have memory of their own for what lies between and beside it, which is near.
        let (mode, own) = (Mode::Parallel, Scope::Workspace);
        n.body = body;
        for b in (0..n.buffers.len() as u32).map(Source) {
            if n.buffer(b).scope == own {
                drop_hints(&mut n, b);
            }
        }
        let body = std::mem::take(&mut n.body);
        let mut locals = Vec::new();
        for (i, b) in n.buffers.iter_mut().enumerate().filter(|(_, b)| b.scope == own) {
            b.scope = Scope::Local;
            locals.push(Stmt::Local(Source(i as u32)));
        }
        locals.extend(body);
        Some(Nest { body: vec![self.over_parts(part, mode, locals)], ..n })
    }

    fn over_parts(&self, var: Var, mode: Mode, body: Vec<Stmt>) -> Stmt {
        Stmt::Loop(Loop { var, extent: self.count, mode, start: None, body })
    }

    /// Declares the inputs of both, in their order: each with the memory of all of its parts. None
    /// where both read one.
    fn declare_inputs(&self, nests: &[Nest; 2], n: &mut Nest) -> Option<HashMap<String, Slot>> {
        let (mut data, mut weights) = (0, 0);
        let mut slots = HashMap::new();
        for name in &self.inputs {
            let of = |n: &'_ Nest| n.buffers.iter().find(|b| b.name == *name).cloned();
            let mut all = nests.iter().filter_map(of);
            let (Some(mut buffer), None) = (all.next(), all.next()) else { return None };
            let count = match &mut buffer.scope {
                Scope::Data(i) => (i, &mut data),
                Scope::Weight(i) => (i, &mut weights),
                _ => return None,
            };
            *count.0 = *count.1;
            *count.1 += 1;
            let place = self.placed(name, &mut buffer.shape)?;
            slots.insert(name.clone(), Slot { to: n.new_buffer(buffer), place });
        }
        Some(slots)
    }

    /// Declares what lies between: as both see it, or as one row where they see it otherwise.
    fn declare_between(&self, nests: &[Nest; 2], n: &mut Nest) -> Option<Slot> {
        let made = nests[0].buffers.iter().find(|b| b.scope == Scope::Output)?;
        let read = nests[1].buffers.iter().find(|b| b.name == self.between)?;
        if (made.dtype, made.elements()) != (read.dtype, read.elements()) {
            return None;
        }
        let (shape, place) = match made.shape == read.shape {
            true => (made.shape.clone(), Place::Same),
            false => (vec![made.elements()], Place::Row),
        };
        let b = Buffer { shape, scope: Scope::Workspace, name: self.between.clone(), ..*made };
        Some(Slot { to: n.new_buffer(b), place })
    }

    /// Where the buffers of an operator's nest are in that of both.
    fn slots(
        &self,
        of: &Nest,
        inputs: &HashMap<String, Slot>,
        between: &Slot,
        n: &mut Nest,
    ) -> Option<Vec<Slot>> {
        let ahead = self.of_parts(of);
        let slot = |(i, b): (usize, &Buffer)| {
            if b.name == self.between {
                return Some(between.clone());
            }
            if let (Scope::Data(_) | Scope::Weight(_), Some(slot)) = (b.scope, inputs.get(&b.name))
            {
                return Some(slot.clone());
            }
            let mut buffer = b.clone();
            let place = match b.scope {
                Scope::Output => self.cuts.get(&b.name)?.placed(&mut buffer.shape, self.count)?,
                // The weights of all parts are prepared.
                Scope::Prepared if ahead.contains(&Source(i as u32)) => {
                    buffer.shape.insert(0, self.count);
                    Place::Ahead
                }
                _ => Place::Same,
            };
            Some(Slot { to: n.new_buffer(buffer), place })
        };
        of.buffers.iter().enumerate().map(slot).collect()
    }

    /// The weights that are cut, and what is prepared from them: each part has its own.
    fn of_parts(&self, of: &Nest) -> HashSet<Source> {
        let is_cut =
            |b: &Buffer| matches!(b.scope, Scope::Weight(_)) && self.cuts.contains_key(&b.name);
        let all = of.buffers.iter().enumerate();
        let mut found: HashSet<Source> =
            all.filter(|(_, b)| is_cut(b)).map(|(i, _)| Source(i as u32)).collect();
        for stmt in &of.prepare {
            let touched = accesses(std::slice::from_ref(stmt));
            if touched.iter().any(|a| a.read && found.contains(&a.buffer)) {
                found.extend(touched.iter().filter(|a| a.write).map(|a| a.buffer));
            }
        }
        found
    }

    /// Gives a tensor the extents of all of its parts, and says where a part lies.
    fn placed(&self, name: &str, shape: &mut [i64]) -> Option<Place> {
        match self.cuts.get(name) {
            None => Some(Place::Same),
            Some(cut) => cut.placed(shape, self.count),
        }
    }
}

/// Where a buffer of an operator's nest is in that of both.
#[derive(Clone)]
struct Slot {
    to: Source,
    place: Place,
}

/// Where an operator's elements are in a buffer.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    /// At the places where the operator's own nest has them.
    Same,
    /// At this step further along a dimension in each part.
    Along { dim: usize, step: i64 },
    /// In the part's own slice of a buffer with one more dimension.
    Ahead,
    /// One behind the other, in a single row.
    Row,
}

/// An operator's nest in a part, over the buffers of both.
struct InPart<'a> {
    of: &'a Nest,
    slots: &'a [Slot],
    part: Var,
}

impl InPart<'_> {
    fn slot(&self, b: Source) -> &Slot {
        &self.slots[b.0 as usize]
    }
}

impl Remap for InPart<'_> {
    fn buffer(&self, b: Source) -> Source {
        self.slot(b).to
    }

    fn index(&self, b: Source, mut index: Vec<Affine>) -> Vec<Affine> {
        match self.slot(b).place {
            Place::Same => {}
            Place::Along { dim, step } => index[dim].add_term(self.part, step),
            Place::Ahead => index.insert(0, Affine::var(self.part)),
            Place::Row => index = vec![flatten(&index, &self.of.buffer(b).shape)],
        }
        index
    }

    fn asked(&self, b: Source, mut at: Affine) -> Affine {
        let shape = &self.of.buffer(b).shape;
        match self.slot(b).place {
            Place::Same | Place::Row => {}
            Place::Along { dim, step } => {
                at.add_term(self.part, step * shape[dim + 1..].iter().product::<i64>());
            }
            Place::Ahead => at.add_term(self.part, shape.iter().product()),
        }
        at
    }
}
