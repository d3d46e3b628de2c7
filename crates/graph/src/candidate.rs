//! A fusion candidate: a set of nodes of a model that may be one kernel, with the workload (tensor
//! expression) that the kernel computes and the origin of each of its inputs. The fusion rules
//! (`rules/`) make candidates by the constructors here, one for each form: a group around an
//! operator, a group with elementwise work ahead, attention, a chain of operators. A solver
//! (`solvers/`) chooses the candidates that cover the model.

use crate::feed::Feed;
use crate::fuse::group::Group;
use crate::layout::{Layout, image};
use crate::rewrite::{Lies, rewrite};
use crate::view::{View, axis, int};
use squall_core::graph::{Model, ValueId};
use squall_core::operator::{
    BACK_TO_BACK, CHAINS, FewBits, SEPARABLE, attention, chain, in_parts, range_of, rounded_behind,
};
use squall_core::workload::Input;
use squall_core::{DType, Workload};

/// A set of nodes that may be one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct FusionCandidate {
    /// The rule that found it.
    pub rule: String,
    /// A readable name, from which the task's name is made.
    pub name: String,
    /// The nodes that it covers; the first stands for it in messages.
    pub nodes: Vec<usize>,
    /// The origins of its inputs, one for each input of the workload.
    pub feeds: Vec<Feed>,
    /// The values that it writes, one for each output of the workload.
    pub outputs: Vec<ValueId>,
    /// The expression that it computes, over values that lie as in the model; the formats of its
    /// tensors are those of the inputs and stages here.
    pub workload: Workload,
    /// Further layouts in which a value that it reads or writes may lie while the others lie as in
    /// the model.
    pub layouts: Vec<(ValueId, Layout)>,
}

/// Whether the sketches of a device make operators one behind the other ([`chain`]) as one kernel.
/// This crate does not see the sketches, so the caller gives this function.
pub type MakesChain = fn(&Workload) -> bool;

impl FusionCandidate {
    /// The candidate of a single group of nodes.
    pub fn of_group(rule: &str, view: &View<'_>, group: &Group) -> Result<FusionCandidate, String> {
        let kernel = group.kernel()?;
        let made = FusionCandidate {
            rule: rule.into(),
            name: kernel.name,
            nodes: group.nodes.clone(),
            feeds: kernel.feeds,
            outputs: vec![group.output],
            workload: kernel.workload,
            layouts: Vec::new(),
        };
        Ok(made.with_layouts(view.model))
    }

    /// The kernel of a group around an anchor whose first input an elementwise group makes; none
    /// where the two do not fit together.
    pub fn after(
        rule: &str,
        view: &View<'_>,
        before: &Group,
        around: &Group,
    ) -> Option<FusionCandidate> {
        let kernel = around.kernel().ok()?;
        let (steps, feeds, shape) = before.steps();
        let workload = steps.precede(kernel.workload, shape).ok()?;
        let feeds: Vec<Feed> = feeds.iter().chain(kernel.feeds.get(1..)?).cloned().collect();
        let made = FusionCandidate {
            rule: rule.into(),
            name: format!("{}_after_{}", kernel.name, steps.tags.join("_")),
            nodes: before.nodes.iter().chain(&around.nodes).copied().collect(),
            feeds,
            outputs: vec![around.output],
            workload,
            layouts: Vec::new(),
        };
        Some(made.with_layouts(view.model))
    }

    /// The kernel of a group around an operator whose first input is a concatenation, which it
    /// reads in parts; none where the two do not fit together.
    pub fn of_parts(
        rule: &str,
        view: &View<'_>,
        concat: usize,
        around: &Group,
    ) -> Option<FusionCandidate> {
        let kernel = around.kernel().ok()?;
        let node = &view.model.nodes[concat];
        let parts = node.inputs.iter().copied().collect::<Option<Vec<ValueId>>>()?;
        let shapes = parts.iter().map(|&v| view.shape(v)).collect::<Option<Vec<_>>>()?;
        let dim = axis(int(node, "axis", 0), shapes.first()?.len()).ok()?;
        let extents: Vec<i64> = shapes.iter().map(|s| s[dim]).collect();
        let workload = in_parts(kernel.workload, dim, &extents).ok()?;
        let parts = parts.into_iter().map(Feed::Value);
        let made = FusionCandidate {
            rule: rule.into(),
            name: format!("{}_of_{}_parts", kernel.name, extents.len()),
            nodes: [&[concat], &around.nodes[..]].concat(),
            feeds: parts.chain(kernel.feeds.get(1..)?.iter().cloned()).collect(),
            outputs: vec![around.output],
            workload,
            layouts: Vec::new(),
        };
        Some(made.with_layouts(view.model))
    }

    /// The kernel of a group that gives scores, the softmax node that alone reads them, and the
    /// group around the product that alone reads that; none where the three do not fit together.
    pub fn attention(
        rule: &str,
        view: &View<'_>,
        scores: &Group,
        softmax: usize,
        values: &Group,
    ) -> Option<FusionCandidate> {
        let (first, second) = (scores.kernel().ok()?, values.kernel().ok()?);
        let workload = attention(first.workload, &second.workload).ok()?;
        let made = FusionCandidate {
            rule: rule.into(),
            name: format!("{}_softmax_{}", first.name, second.name),
            nodes: scores.nodes.iter().chain([&softmax]).chain(&values.nodes).copied().collect(),
            feeds: first.feeds.iter().chain(second.feeds.get(1..)?).cloned().collect(),
            outputs: vec![values.output],
            workload,
            layouts: Vec::new(),
        };
        Some(made.with_layouts(view.model))
    }

    /// The kernel of a group and of what alone is asked of its result in another: the largest of
    /// its elements, with what is computed of that, or their rounding to bytes. The result itself
    /// is stored by no kernel of these, or by one more. None where the two do not fit together.
    pub fn behind(
        rule: &str,
        view: &View<'_>,
        made: &Group,
        asked: &Group,
    ) -> Option<FusionCandidate> {
        FusionCandidate::of_chain(rule, view, &[made, asked], &|first, others| {
            let second = others[0];
            // Images have their channels last on the way, as kernels are fastest and bytes lie.
            let first = match image(view.model, made.output) {
                Some(image) => {
                    let inputs = vec![Lies::Model; first.inputs.len()];
                    rewrite(&first, &inputs, Lies::ChannelsLast(image))?
                }
                None => first,
            };
            let both = match second.output().dtype {
                DType::U8 => rounded_behind(first, second),
                _ => range_of(first, second),
            };
            both.ok()
        })
    }

    /// The kernel of groups of which each reads the result of the one before as its first input;
    /// none where no sketch of the device makes them as one.
    pub fn of_operators(
        rule: &str,
        view: &View<'_>,
        groups: &[&Group],
        makes_chain: MakesChain,
    ) -> Option<FusionCandidate> {
        FusionCandidate::of_chain(rule, view, groups, &|first, others| {
            let made = |kind: &str| chain(kind, first.clone(), others).ok();
            CHAINS.into_iter().filter_map(made).find(makes_chain)
        })
    }

    /// The kernel of several groups, each of which reads the result of the one before as its first
    /// input; none where `join` makes nothing of what they compute.
    fn of_chain(
        rule: &str,
        view: &View<'_>,
        groups: &[&Group],
        join: &dyn Fn(Workload, &[&Workload]) -> Option<Workload>,
    ) -> Option<FusionCandidate> {
        let kernels = groups.iter().map(|g| g.kernel().ok()).collect::<Option<Vec<_>>>()?;
        let (first, others) = kernels.split_first()?;
        let behind: Vec<&Workload> = others.iter().map(|k| &k.workload).collect();
        let mut feeds = first.feeds.clone();
        for kernel in others {
            feeds.extend(kernel.feeds.get(1..)?.iter().cloned());
        }
        let names: Vec<&str> = kernels.iter().map(|k| &k.name[..]).collect();
        let made = FusionCandidate {
            rule: rule.into(),
            name: names.join("_"),
            nodes: groups.iter().flat_map(|g| &g.nodes).copied().collect(),
            feeds,
            outputs: vec![groups.last()?.output],
            workload: join(first.workload.clone(), &behind)?,
            layouts: Vec::new(),
        };
        Some(made.with_layouts(view.model))
    }

    /// What it is for the tensors that it reads: the kind of its workload, of several operators
    /// that of the first alone.
    pub fn kind(&self, model: &Model) -> &str {
        let first = self.nodes.first().map(|&n| &model.nodes[n]);
        match (self.workload.kind.as_str(), first.map(|n| (n.op.as_str(), n))) {
            (BACK_TO_BACK | SEPARABLE, Some(("Conv", n))) if int(n, "group", 1) == 1 => "conv2d",
            (BACK_TO_BACK | SEPARABLE, Some(("Conv", _))) => "depthwise_conv2d",
            (BACK_TO_BACK, Some(("MatMul" | "Gemm", _))) => "matmul",
            (kind, _) => kind,
        }
    }

    fn with_layouts(self, model: &Model) -> FusionCandidate {
        FusionCandidate { layouts: self.find_layouts(model), ..self }
    }

    /// The values that it reads as they are and writes, each once.
    pub fn touched(&self, model: &Model) -> Vec<ValueId> {
        let value = |f: &Feed| if let Feed::Value(v) = f { Some(root(model, *v)) } else { None };
        let mut list: Vec<ValueId> =
            self.feeds.iter().filter_map(value).chain(self.outputs.iter().copied()).collect();
        list.sort_unstable();
        list.dedup();
        list
    }

    /// In which layouts, apart from the model's, each touched value may lie while the others lie as
    /// in the model.
    pub fn find_layouts(&self, model: &Model) -> Vec<(ValueId, Layout)> {
        let mut list = Vec::new();
        let constant = |v: &ValueId| model.values[*v].weight || model.values[*v].constant.is_some();
        for v in self.touched(model).into_iter().filter(|v| !constant(v)) {
            for &(layout, _) in Layout::ALL.iter().filter(|(l, _)| *l != Layout::Model) {
                let of = |u: ValueId| if u == v { layout } else { Layout::Model };
                if image(model, v).is_some() && self.variant(model, &of).is_some() {
                    list.push((v, layout));
                }
            }
        }
        list
    }

    /// The workload where values lie as `layout` says of their roots; none where the kernel cannot
    /// go over them so.
    pub fn variant(&self, model: &Model, layout: &dyn Fn(ValueId) -> Layout) -> Option<Workload> {
        // A value that is no image has no other layout.
        let last = |v: ValueId| match layout(root(model, v)) {
            Layout::Model => Some(Lies::Model),
            Layout::ChannelsLast => image(model, root(model, v)).map(Lies::ChannelsLast),
        };
        self.placed(&last)
    }

    /// The workload where values lie as `lies` says; none where it says nothing of one, or where
    /// the kernel cannot go over them so.
    pub fn placed<'a>(&self, lies: &dyn Fn(ValueId) -> Option<Lies<'a>>) -> Option<Workload> {
        let input = |f: &Feed| match f {
            Feed::Value(v) => lies(*v),
            _ => Some(Lies::Model),
        };
        let inputs = self.feeds.iter().map(input).collect::<Option<Vec<Lies<'_>>>>()?;
        let outputs = self.outputs.iter().map(|&v| lies(v)).collect::<Option<Vec<_>>>()?;
        let is_plain = |l: &Lies<'_>| matches!(l, Lies::Model);
        // Elements of four bytes are counted otherwise than those of the values that hold them, and
        // bytes lie as their operators have them.
        let w = &self.workload;
        let packs = w.inputs.iter().any(|i| i.dtype.is_packed());
        let are_bytes = packs && w.output().dtype != DType::F32;
        let moved = |(i, l): (&Input, &Lies<'_>)| i.dtype.is_packed() && !is_plain(l);
        if w.inputs.iter().zip(&inputs).any(moved)
            || are_bytes && !inputs.iter().chain(&outputs).all(is_plain)
        {
            return None;
        }
        match outputs[..] {
            _ if inputs.iter().chain(&outputs).all(is_plain) => Some(self.workload.clone()),
            // Their kernels are made for one way to lie.
            _ if FewBits::of(w).is_some() => None,
            [output] => rewrite(&self.workload, &inputs, output),
            _ => None,
        }
    }

    /// What the name of its task gets for the layouts of images: `_nhwc` where all that it reads
    /// and writes first has its channels last, `_to_nhwc` and `_from_nhwc` where it crosses over,
    /// `_beside_nhwc` where only what it adds on the way has.
    pub fn suffix(&self, model: &Model, layout: &dyn Fn(ValueId) -> Layout) -> &'static str {
        let last = |v: ValueId| layout(root(model, v)) == Layout::ChannelsLast;
        let input = matches!(self.feeds.first(), Some(Feed::Value(v)) if last(*v));
        let output = self.outputs.first();
        match (input, output.is_some_and(|&v| last(v))) {
            (true, false) if output.is_some_and(|&v| image(model, v).is_some()) => "_from_nhwc",
            (true, _) => "_nhwc",
            (false, true) => "_to_nhwc",
            (false, false) if self.touched(model).into_iter().any(last) => "_beside_nhwc",
            (false, false) => "",
        }
    }
}

/// The value that an alias stands for.
pub fn root(model: &Model, v: ValueId) -> ValueId {
    model.values[v].alias.unwrap_or(v)
}
