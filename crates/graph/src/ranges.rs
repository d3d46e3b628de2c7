//! Channel shuffles without copies (ShuffleNetV2, arXiv 1807.11164). A convolution that reads
//! channels in an order that moves (`Transpose`, `Concat`, `Split`) gave them is rewritten to read
//! ranges of channels of several values where these lie in memory; its weight is permuted instead,
//! before the first call. A depthwise convolution becomes one for each range, since its channels
//! are independent. The moves between are removed.
//!
//! Input and output: a model; `in_ranges` returns `None` where it has no such shuffle. The reads of
//! several values are a `Concat` with the attribute `read_in_parts`, for which the rule
//! `rules/joined.rs` makes kernels.

use crate::layout::Layout;
use crate::moves::{is_seen_through, joints, pushed};
use crate::numbered::{add_value, needed, numbered};
use crate::site::Site;
use crate::view::{View, axis, input, int, is_standard};
use squall_core::DType;
use squall_core::graph::{Attribute, Constant, Model, Node, Value, ValueId};
use squall_core::operators;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The attribute of a concatenation whose reader reads its parts where they are.
pub const READ_IN_PARTS: &str = "read_in_parts";
/// The most ranges that a convolution reads; more are copied into one value.
const MOST_RANGES: usize = 16;

/// The most channels of a value that is looked at, and the most channels of all values together.
const MOST_CHANNELS: i64 = 1 << 14;
const MOST_IN_ALL: usize = 1 << 20;

/// Whether a model was rewritten by [`in_ranges`].
pub fn is_in_ranges(model: &Model) -> bool {
    model.nodes.iter().any(|n| n.op == "Concat" && int(n, READ_IN_PARTS, 0) != 0)
}

/// The model in which convolutions read shuffled channels where they lie; `None` where no set of
/// moves with a shuffle is read by convolutions alone.
pub fn in_ranges(model: &Model) -> Option<Model> {
    if !model.nodes.iter().any(|n| n.op == "Transpose" && !n.folded) {
        return None;
    }
    let view = View::new(model);
    let moved = Moved::of(&view);
    let good = moved.good();
    if good.is_empty() {
        return None;
    }
    let mut w = Writer {
        view: &view,
        moved,
        good,
        values: model.values.clone(),
        nodes: Vec::new(),
        parts: BTreeMap::new(),
        pieces: HashMap::new(),
    };
    model.nodes.iter().for_each(|n| w.node(n));
    let nodes = needed(&w.values, &model.outputs, w.nodes);
    let made = numbered(model, w.values, nodes);
    made.verify().is_ok().then_some(made)
}

/// A channel of a value.
type Channel = (ValueId, i64);

/// Neighbouring channels of a value, and their places in the value that is made of them.
#[derive(Clone, Debug, PartialEq)]
struct Range {
    of: ValueId,
    first: i64,
    places: Vec<i64>,
}

/// For each value that moves make, its channels as channels of values that no move makes.
struct Moved<'a> {
    view: &'a View<'a>,
    channels: HashMap<ValueId, Vec<Channel>>,
    /// For each value, the first value of its set; moves join values to sets.
    sets: HashMap<ValueId, ValueId>,
    /// Sets in which channels are shuffled, and sets with another reader than convolutions.
    shuffled: BTreeSet<ValueId>,
    refused: BTreeSet<ValueId>,
    /// The results of depthwise convolutions of moved values, in ranges, each range a value of its
    /// own; they are numbered behind the values of the model.
    pieces: BTreeSet<ValueId>,
    /// The number of channels noted so far.
    count: usize,
}

impl<'a> Moved<'a> {
    fn of(view: &'a View<'a>) -> Moved<'a> {
        let mut m = Moved {
            view,
            channels: HashMap::new(),
            sets: HashMap::new(),
            shuffled: BTreeSet::new(),
            refused: BTreeSet::new(),
            pieces: BTreeSet::new(),
            count: 0,
        };
        let mut next = view.model.values.len();
        for n in view.model.nodes.iter().filter(|n| !n.folded) {
            if is_seen_through(n) && m.moves(n).is_some() {
                continue;
            }
            m.reads(n, &mut next);
        }
        for &v in &view.model.outputs {
            m.refuse(view.root(v));
        }
        m
    }

    /// The sets that are rewritten, by their first values.
    fn good(&self) -> BTreeSet<ValueId> {
        let first = |v: &ValueId| self.set(*v);
        let refused: BTreeSet<ValueId> = self.refused.iter().map(first).collect();
        self.shuffled.iter().map(first).filter(|s| !refused.contains(s)).collect()
    }

    fn set(&self, mut v: ValueId) -> ValueId {
        while let Some(&up) = self.sets.get(&v).filter(|up| **up != v) {
            v = up;
        }
        v
    }

    fn join(&mut self, a: ValueId, b: ValueId) {
        let (a, b) = (self.set(a), self.set(b));
        self.sets.insert(a.max(b), a.min(b));
        self.sets.entry(a.min(b)).or_insert(a.min(b));
    }

    fn refuse(&mut self, v: ValueId) {
        if self.channels.contains_key(&v) {
            self.refused.insert(v);
        }
    }

    /// The channels of an image, or of one whose channels are cut into several dimensions.
    fn channels_of(&self, v: ValueId) -> Option<Vec<Channel>> {
        if let Some(known) = self.channels.get(&v) {
            return Some(known.clone());
        }
        let shape = self.view.shape(v).filter(|s| s.len() == 4)?;
        let (count, _) = channels(shape)?;
        let is_made = self.view.is_f32(v) && !self.view.is_weight(v);
        let is_own = self.view.model.values[v].alias.is_none();
        (is_made && is_own).then(|| (0..count).map(|c| (v, c)).collect())
    }

    /// Notes which channels a move puts where; none where it does more than that.
    fn moves(&mut self, n: &Node) -> Option<()> {
        let view = self.view;
        let mut made = Vec::new();
        let first = view.shape(input(n, 0)?)?;
        let all = n.inputs.iter().flatten().chain(&n.outputs).filter(|v| !view.is_weight(**v));
        // Moves of images and of places are none of channels.
        if n.problem.is_some()
            || !all.map(|&v| view.shape(v)).all(|s| s.is_some_and(|s| is_alike(s, first)))
        {
            return None;
        }
        if n.op == "Concat" {
            let &[y] = &n.outputs[..] else { return None };
            let shape = view.shape(y)?;
            if shape.len() != 4 || axis(int(n, "axis", 0), 4) != Ok(1) {
                return None;
            }
            let mut all = Vec::new();
            for i in 0..n.inputs.len() {
                all.extend(self.channels_of(input(n, i)?)?);
                (all.len() as i64 <= shape[1]).then_some(())?;
            }
            (all.len() as i64 == shape[1]).then_some(())?;
            made.push((y, all));
        } else {
            let x = input(n, 0)?;
            let of = self.channels_of(x)?;
            let (count, places) = channels(view.shape(x)?)?;
            let own = Site::own(view.model, x, Layout::Model)?;
            for (_, result) in joints(n) {
                let y = n.outputs[result];
                let (_, there) = channels(view.shape(y)?)?;
                let site = pushed(view, n, result, &own)?;
                let list = channels_at(&site, count, places, there)?;
                let there = list.into_iter().map(|c| of.get(c as usize).copied());
                made.push((y, there.collect::<Option<Vec<Channel>>>()?));
            }
        }
        self.count += made.iter().map(|m| m.1.len()).sum::<usize>();
        (self.count <= MOST_IN_ALL).then_some(())?;
        for (y, list) in made {
            if n.op == "Transpose" {
                self.shuffled.insert(y);
            }
            for v in n.inputs.iter().flatten().filter(|v| !view.is_weight(**v)) {
                // A value that no move makes joins no sets, because it lies where it was made.
                if self.channels.contains_key(v) {
                    self.join(*v, y);
                }
            }
            self.channels.insert(y, list);
        }
        Some(())
    }

    /// Notes the reads of moved values by a node that is no move; convolutions may read ranges.
    fn reads(&mut self, n: &Node, next: &mut usize) {
        let roots: Vec<ValueId> =
            n.inputs.iter().flatten().flat_map(|&v| [v, self.view.root(v)]).collect();
        let is_conv = is_standard(n, "Conv") && n.outputs.len() == 1;
        let x = input(n, 0).filter(|x| is_conv && self.channels.contains_key(x));
        let ranges = x.and_then(|x| ranges(&self.channels[&x]));
        let is_alone = x.is_some_and(|x| roots.iter().filter(|v| **v == x).count() == 2);
        let (Some(x), Some(ranges), true) = (x, ranges, is_alone) else {
            return roots.into_iter().for_each(|v| self.refuse(v));
        };
        let weights = input(n, 1).and_then(|w| self.view.shape(w));
        let group = int(n, "group", 1);
        let is_known = n.inputs[1..].iter().flatten().all(|&v| self.view.is_weight(v));
        match weights {
            Some([_, _, _, _]) if group == 1 && is_known => {}
            Some(&[k, 1, _, _]) if is_known && group == k && k == self.count(x) => {
                let y = n.outputs[0];
                let mut made = vec![(0, 0); k as usize];
                for r in &ranges {
                    let places = r.places.iter().enumerate();
                    places.for_each(|(i, &at)| made[at as usize] = (*next, i as i64));
                    *next += 1;
                }
                self.pieces.insert(y);
                self.channels.insert(y, made);
                self.join(x, y);
            }
            _ => self.refuse(x),
        }
    }

    fn count(&self, v: ValueId) -> i64 {
        self.channels.get(&v).map_or(0, |c| c.len() as i64)
    }
}

/// The number of channels of an image, which may be several dimensions, and its number of
/// positions; `None` for too many channels.
fn channels(shape: &[i64]) -> Option<(i64, i64)> {
    let [_, channels @ .., h, w] = shape else { return None };
    let count = channels.iter().try_fold(1i64, |n, c| n.checked_mul(*c))?;
    let is_one = !channels.is_empty() && (1..=MOST_CHANNELS).contains(&count);
    is_one.then(|| (count, h * w))
}

/// Whether two values have equal numbers of images, of equal height and width.
fn is_alike(a: &[i64], b: &[i64]) -> bool {
    let of = |s: &[i64]| match s {
        [n, _, .., h, w] => Some([*n, *h, *w]),
        _ => None,
    };
    of(a).is_some() && of(a) == of(b)
}

/// The channels of a value of so many channels and places that lie at a site in it, in their order
/// there; none where more moves than channels.
fn channels_at(site: &Site, count: i64, places: i64, there: i64) -> Option<Vec<i64>> {
    let [images, channels @ .., h, w] = &site.dims[..] else { return None };
    let inner: Vec<_> = [h, w].into_iter().flatten().collect();
    let mut stride = 1;
    for f in inner.iter().rev() {
        (f.stride == stride).then_some(())?;
        stride *= f.extent;
    }
    let whole = count * places;
    let is_whole = images.iter().all(|f| f.stride % whole == 0) && images.len() <= 1;
    let mut list = vec![site.offset];
    for f in channels.iter().flatten() {
        list = list.iter().flat_map(|at| (0..f.extent).map(move |i| at + i * f.stride)).collect();
    }
    let of_channel = |at: i64| (at % places == 0 && at < whole).then_some(at / places);
    (is_whole && stride == places && there == places).then_some(())?;
    list.into_iter().map(of_channel).collect()
}

/// The ranges that a list of channels falls into, in the order of their values; `None` where there
/// are too many, or where a channel is read twice.
fn ranges(list: &[Channel]) -> Option<Vec<Range>> {
    let mut sorted: Vec<(Channel, i64)> =
        list.iter().enumerate().map(|(at, &c)| (c, at as i64)).collect();
    sorted.sort_unstable();
    let mut out: Vec<Range> = Vec::new();
    for ((of, channel), place) in sorted {
        match out.last_mut() {
            Some(r) if r.of == of && r.first + r.places.len() as i64 == channel => {
                r.places.push(place);
            }
            Some(r) if r.of == of && channel < r.first + r.places.len() as i64 => return None,
            _ => out.push(Range { of, first: channel, places: vec![place] }),
        }
    }
    (out.len() <= MOST_RANGES).then_some(out)
}

/// A model while it is rewritten.
struct Writer<'a> {
    view: &'a View<'a>,
    moved: Moved<'a>,
    good: BTreeSet<ValueId>,
    values: Vec<Value>,
    nodes: Vec<Node>,
    /// Parts of values that were made already.
    parts: BTreeMap<(ValueId, i64, i64), ValueId>,
    /// The values of pieces, by their numbers.
    pieces: HashMap<ValueId, ValueId>,
}

impl Writer<'_> {
    /// A new value of floats, which is not known yet.
    fn floats(&mut self, shape: Vec<i64>) -> ValueId {
        add_value(&mut self.values, "ranges", Some(DType::F32), shape, None)
    }

    /// Numbers that are known.
    fn known(&mut self, list: &[i64]) -> ValueId {
        let shape = vec![list.len() as i64];
        let constant = Constant::I64 { shape: shape.clone(), data: list.to_vec() };
        add_value(&mut self.values, "ranges", Some(DType::I64), shape, Some(constant))
    }

    /// A new node of one result.
    fn push(&mut self, of: &Node, op: &str, inputs: Vec<ValueId>, y: ValueId) -> &mut Node {
        self.nodes.push(Node {
            name: format!("{}/{op}/{}", of.name, self.values.len()),
            op: op.into(),
            domain: String::new(),
            inputs: inputs.into_iter().map(Some).collect(),
            outputs: vec![y],
            attributes: BTreeMap::new(),
            folded: false,
            problem: None,
        });
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    /// These of a weight's slices along an axis, made ahead of the first call.
    fn gathered(&mut self, n: &Node, weight: ValueId, along: i64, places: &[i64]) -> ValueId {
        let mut shape = self.view.shape(weight).unwrap_or_default().to_vec();
        shape[along as usize] = places.len() as i64;
        let indices = self.known(places);
        let y = self.floats(shape);
        self.values[y].weight = true;
        let node = self.push(n, "Gather", vec![weight, indices], y);
        node.attributes.insert("axis".into(), Attribute::Int(along));
        node.folded = true;
        // Elements that the model already holds need not be computed later.
        let node = node.clone();
        let of = |v: ValueId| self.values[v].constant.as_deref().cloned();
        let known = self.view.constant(weight).cloned().or_else(|| of(weight));
        if let Some(known) = known {
            let made =
                operators::evaluate(&node, &[Some(known), of(indices)], self.view.model.opset);
            self.values[y].constant = made.and_then(|m| m.ok()?.pop()).map(Arc::new);
        }
        y
    }

    /// A range of channels as a value.
    fn part(&mut self, n: &Node, r: &Range) -> ValueId {
        let of = self.pieces.get(&r.of).copied().unwrap_or(r.of);
        let mut shape = self.values[of].shape.clone().unwrap_or_default();
        let count = r.places.len() as i64;
        if shape[1] == count {
            return of;
        }
        if let Some(&known) = self.parts.get(&(of, r.first, count)) {
            return known;
        }
        shape[1] = count;
        let y = self.floats(shape);
        let limits = [vec![r.first], vec![r.first + count], vec![1]];
        if self.view.model.opset < 10 {
            let node = self.push(n, "Slice", vec![of], y);
            for (name, list) in ["starts", "ends", "axes"].into_iter().zip(limits) {
                node.attributes.insert(name.into(), Attribute::Ints(list));
            }
        } else {
            let limits = limits.map(|l| self.known(&l));
            self.push(n, "Slice", [&[of][..], &limits].concat(), y);
        }
        self.parts.insert((of, r.first, count), y);
        y
    }

    /// Takes over one node of the old model.
    fn node(&mut self, n: &Node) {
        let x = input(n, 0).filter(|x| {
            is_standard(n, "Conv") && !n.folded && self.good.contains(&self.moved.set(*x))
        });
        let list = x.and_then(|x| self.moved.channels.get(&x));
        let Some(ranges) = list.and_then(|l| ranges(l)) else {
            return self.nodes.push(n.clone());
        };
        match self.moved.pieces.contains(&n.outputs[0]) {
            true => self.depthwise(n, &ranges),
            false => self.convolution(n, &ranges),
        }
    }

    /// A convolution that reads ranges, with its weight in their order.
    fn convolution(&mut self, n: &Node, ranges: &[Range]) {
        let parts: Vec<ValueId> = ranges.iter().map(|r| self.part(n, r)).collect();
        let places: Vec<i64> = ranges.iter().flat_map(|r| r.places.clone()).collect();
        let mut made = n.clone();
        let is_in_order = places.windows(2).all(|p| p[1] == p[0] + 1);
        if let Some(w) = input(n, 1).filter(|_| !is_in_order) {
            made.inputs[1] = Some(self.gathered(n, w, 1, &places));
        }
        made.inputs[0] = Some(match parts[..] {
            [one] => one,
            _ => {
                let mut shape = self.values[parts[0]].shape.clone().unwrap_or_default();
                shape[1] = places.len() as i64;
                let y = self.floats(shape);
                let node = self.push(n, "Concat", parts, y);
                node.attributes.insert("axis".into(), Attribute::Int(1));
                node.attributes.insert(READ_IN_PARTS.into(), Attribute::Int(1));
                y
            }
        });
        self.nodes.push(made);
    }

    /// A depthwise convolution as one for each range.
    fn depthwise(&mut self, n: &Node, ranges: &[Range]) {
        let y = n.outputs[0];
        let list = self.moved.channels.get(&y).cloned().unwrap_or_default();
        for r in ranges {
            let part = self.part(n, r);
            let count = r.places.len() as i64;
            let given = n.inputs[1..].iter().flatten();
            let weights: Vec<ValueId> = given.map(|&v| self.gathered(n, v, 0, &r.places)).collect();
            let mut shape = self.view.shape(y).unwrap_or_default().to_vec();
            shape[1] = count;
            let piece = self.floats(shape);
            let number = list[r.places[0] as usize].0;
            self.pieces.insert(number, piece);
            let node = self.push(n, "Conv", [&[part][..], &weights].concat(), piece);
            node.attributes.clone_from(&n.attributes);
            node.attributes.insert("group".into(), Attribute::Int(count));
        }
    }
}
