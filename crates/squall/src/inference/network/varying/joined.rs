//! Joins the plans of several extents into one over the range. Input: drafts, and the variants of
//! each task's kernel; output: [`Joined`], a [`VaryingPlan`] with the sources that it calls.
//! Everything but numbers must be the same at all extents; what differs is named in the error.

use super::super::files::{self, Places};
use super::super::layout::FileLayout;
use super::constants::{Varies, compared, is_same, short_list};
use super::family::Variant;
use super::fit::{MOST_STEPS, Series, fitted, stepped};
use super::kernel_text::varying_text;
use super::template::{generalised, skeleton};
use super::varying_text::VaryingText;
use super::{Point, Symbol};
use crate::base::error::Error;
use crate::predict::choose::Chosen;
use squall_core::KernelSource;
use squall_runtime::Formula;
use squall_runtime::plan::{
    ALIGNMENT, At, Buffer, Element, HostPlan, MoveAxis, Parameter, Role, Step, Work,
};
use squall_runtime::varying::VaryingPlan;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

/// The region of constants in a network's plan.
const CONSTANT: u32 = 1;
/// Fewer plans than this agree with formulas by chance.
const LEAST_PLANS: usize = 4;
/// At how many extents the joined plan is verified.
const VERIFIED: i64 = 1024;

/// A plan over a range, and what it calls.
pub struct Joined {
    /// The plan.
    pub plan: VaryingPlan,
    /// The kernels of the plan in order, then functions that these call.
    pub sources: Vec<KernelSource>,
    /// The shapes of inputs and outputs.
    pub shapes: [Vec<Vec<Formula>>; 2],
    /// Bytes of the region that activations and scratch memory share.
    pub arena_bytes: usize,
    /// Steps ahead of those of the model's own plan.
    pub leading: usize,
    kernels: Vec<Chosen>,
    layout: FileLayout,
    most: i64,
}

/// A plan at one extent, made ready to be joined.
struct Ready {
    extent: i64,
    plan: HostPlan,
    /// The elements of each buffer that may have to be listed: short constants of integers.
    lists: HashMap<usize, Vec<i64>>,
    /// The lengths of the rows of each buffer that is the corner of a square, and of the square.
    corners: BTreeMap<usize, (usize, usize)>,
}

/// The kernels of a point, with the sizes that all extents share.
fn kernels_at(chosen: &[Chosen], families: &[Vec<Variant>], point: &Point) -> Vec<Chosen> {
    let one = |((k, family), task): ((&Chosen, &Vec<Variant>), &squall_core::Task)| {
        let mut k = Chosen { task: task.clone(), ..k.clone() };
        if let Some(v) = family.first() {
            (k.source.workspace, k.source.prepared) = (v.source.workspace, v.source.prepared);
        }
        k
    };
    chosen.iter().zip(families).zip(&point.model.tasks).map(one).collect()
}

impl Joined {
    /// Joins the plans of all points; that of the largest extent has the number `at_most`.
    pub fn of(
        points: &[Point],
        at_most: usize,
        chosen: &[Chosen],
        families: &[Vec<Variant>],
        symbol: &Symbol,
    ) -> Result<Joined, String> {
        let most = &points[at_most];
        let kernels = kernels_at(chosen, families, most);
        let layout = FileLayout::new(&most.draft.plan, &kernels, &most.draft.plain);
        let mut ready: Vec<Ready> = Vec::new();
        let mut listed = HashSet::new();
        let reference = described(most, &layout, &kernels)?;
        let shape = skeleton(&anonymous(&reference.plan));
        let mut kept: Vec<&Point> = Vec::new();
        for point in points {
            let own = kernels_at(chosen, families, point);
            if !fits(point, most) {
                continue;
            }
            let Ok(plan) = described(point, &layout, &own) else { continue };
            if skeleton(&anonymous(&plan.plan)) != shape {
                continue;
            }
            ready.push(with_constants(plan, point, &reference, most, &mut listed)?);
            kept.push(point);
        }
        let inside = symbol.last() / symbol.step - (symbol.first() - 1) / symbol.step;
        if ready.len() < LEAST_PLANS.min(inside as usize) {
            return Err("its plan is another one at each extent".into());
        }
        for r in &mut ready {
            for i in &listed {
                let b = &mut r.plan.buffers[*i];
                b.place = None;
                b.values = r.lists.get(i).cloned().ok_or("a constant is a list at some extents")?;
            }
        }
        let leading = copy_corners(&mut ready)?;
        let mut all: Vec<Vec<Variant>> = families.to_vec();
        let mut parts: Vec<KernelSource> = Vec::new();
        for f in 0..most.draft.plain.sources.len() {
            all.push(vec![plain_variant(f, &kept, most, symbol)?]);
            parts.extend(most.draft.plain.parts.get(f).into_iter().flatten().cloned());
        }
        let calls = Calls { families: &all };
        let extents: Vec<i64> = ready.iter().map(|r| r.extent).collect();
        let mut texts: Vec<String> = Vec::new();
        let mut marks = Marks::default();
        for r in &mut ready {
            marks = calls.put(&mut r.plan)?;
            texts.push(r.plan.to_string().replace('$', "$$"));
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (template, series) = generalised(&texts).ok_or("its plans differ")?;
        // Where all extents of a short range have a plan, any formula that gives them is right.
        let is_whole = (symbol.first()..=symbol.last())
            .step_by(symbol.step as usize)
            .take(MOST_STEPS + 1)
            .all(|n| extents.contains(&n));
        let formula = |s: &Series| {
            fitted(&extents, s).or_else(|| is_whole.then(|| stepped(&extents, s)).flatten())
        };
        let values: Option<Vec<Formula>> = series.iter().map(formula).collect();
        let mut values = values.ok_or("a number of its plan has no formula")?;
        let text = marks.replaced(template.with(&|k| format!("${k}")), &mut values);
        let plan = VaryingPlan { symbols: vec![symbol.clone()], values, text };
        verify(&plan, symbol)?;
        let shapes = [0, 1].map(|end| shapes(end, points));
        let [Some(inputs), Some(outputs)] = shapes else {
            return Err("an extent of an input or an output has no formula".into());
        };
        let variants = all.into_iter().flatten().map(|v| v.source);
        let sources = variants.chain(parts).collect();
        let (shapes, arena_bytes) = ([inputs, outputs], layout.bytes);
        let most = most.draft.extent;
        Ok(Joined { plan, sources, shapes, arena_bytes, leading, kernels, layout, most })
    }

    /// Writes plan and constants of the largest extent.
    pub fn write(&self, folder: &Path, point: &Point) -> Result<(), Error> {
        let places = Places { list: &point.draft.places, is_copied: false };
        let described = point.draft.described(&places, &self.layout, &self.kernels)?;
        files::write(folder, &point.draft.plan, &places, &described)?;
        let text = self.plan.text_at(&[self.most]).map_err(|e| Error::Nothing(e.to_string()))?;
        crate::base::files::put_in_folder(&folder.join(files::PLAN), text.as_bytes())
    }
}

/// A described plan, and which of its buffers begin at which constant.
struct Described {
    plan: HostPlan,
    constants: Vec<(Option<usize>, u64)>,
}

fn described(point: &Point, layout: &FileLayout, kernels: &[Chosen]) -> Result<Described, String> {
    let places = Places { list: &point.draft.places, is_copied: false };
    let described = point.draft.described(&places, layout, kernels).map_err(|e| e.to_string())?;
    let constants = described.constants();
    Ok(Described { plan: described.plan, constants })
}

/// Whether the blocks of a point lie inside of those of the largest extent.
fn fits(point: &Point, most: &Point) -> bool {
    let (own, all) = (&point.draft.plan.blocks, &most.draft.plan.blocks);
    let is_beyond = point.draft.extent > most.draft.extent;
    own.len() == all.len()
        && (is_beyond || own.iter().zip(all).all(|(o, a)| o.elements <= a.elements))
}

/// A plan's text without the names of its kernels, which have digests of shapes in them.
fn anonymous(plan: &HostPlan) -> String {
    let mut plan = plan.clone();
    plan.kernels.iter_mut().for_each(|k| k.symbol = "k".into());
    plan.to_string()
}

/// A plan whose constants lie where those of the largest extent do. Constants that are lists get
/// known by their buffers.
fn with_constants(
    own: Described,
    point: &Point,
    reference: &Described,
    most: &Point,
    listed: &mut HashSet<usize>,
) -> Result<Ready, String> {
    let mut plan = own.plan;
    let (mut lists, mut corners) = (HashMap::new(), BTreeMap::new());
    let mut compared_here = HashSet::new();
    plan.regions.clone_from(&reference.plan.regions);
    for (i, b) in plan.buffers.iter_mut().enumerate() {
        let Some((CONSTANT, at)) = b.place else { continue };
        let piece = own.constants.iter().position(|(_, start)| *start == at);
        let piece = piece.ok_or("a constant begins inside another one")?;
        let (constant, _) = own.constants[piece];
        let (_, there) = *reference.constants.get(piece).ok_or("it has other constants")?;
        b.place = Some((CONSTANT, there));
        let Some(c) = constant else { continue };
        compared_here.insert(c);
        match compared(&point.draft, &most.draft, c)? {
            Varies::Listed => _ = listed.insert(i),
            Varies::Corner { own, most } => _ = corners.insert(i, (own, most)),
            Varies::Beginning => {}
        }
        lists.extend(short_list(&point.draft.plan.constants[c]).map(|l| (i, l)));
    }
    // What kernels pack, once for all extents, is the same at all of them.
    let all = point.draft.plan.constants.iter().enumerate();
    for (c, constant) in all.filter(|(c, _)| !compared_here.contains(c)) {
        if !is_same(&point.draft, &most.draft, c) {
            return Err(format!("its weight {} depends on the extent", constant.name));
        }
    }
    Ok(Ready { extent: point.draft.extent, plan, lists, corners })
}

/// Has each run copy the constants that are corners of squares, into memory of their own behind
/// all else; how many copies that are.
fn copy_corners(ready: &mut [Ready]) -> Result<usize, String> {
    let mut all: BTreeSet<usize> = BTreeSet::new();
    for r in ready.iter() {
        all.extend(r.corners.keys());
    }
    for r in ready {
        // At the largest extent it is the whole square.
        let mut copies = Vec::new();
        for i in &all {
            let b = r.plan.buffers[*i].clone();
            let side = (b.count as usize).isqrt();
            let (own, most) = r.corners.get(i).copied().unwrap_or((side, side));
            if own * own != b.count as usize {
                return Err("a constant is a square at some extents".into());
            }
            let from = r.plan.buffers.len() as u32;
            let square = (most * most) as u64;
            r.plan.buffers.push(Buffer { count: square, ..b.clone() });
            let bytes = (square * b.element.bytes()).next_multiple_of(ALIGNMENT);
            let at = r.plan.regions[0].bytes.next_multiple_of(ALIGNMENT);
            r.plan.regions[0].bytes = at + bytes;
            let to = &mut r.plan.buffers[*i];
            (to.role, to.place) = (Role::Scratch, Some((0, at)));
            let axis = |extent: usize, to: usize, from: usize| MoveAxis {
                extent: extent as u64,
                to: to as u64,
                from: from as i64,
            };
            let axes = vec![axis(own, own, most), axis(own, 1, 1)];
            let [from, to] = [from, *i as u32].map(|buffer| At { buffer, element: 0 });
            let work = Work::Copy { from, to, axes };
            copies.push(Step { name: "a constant's corner".into(), when: Vec::new(), work });
        }
        copies.append(&mut r.plan.steps);
        r.plan.steps = copies;
    }
    Ok(all.len())
}

/// The variant of a plain operator: one text for the whole range.
fn plain_variant(
    f: usize,
    kept: &[&Point],
    most: &Point,
    symbol: &Symbol,
) -> Result<Variant, String> {
    let source = &most.draft.plain.sources[f];
    let (node, call) = &most.draft.plain.calls[f];
    let fail = |why: String| format!("node `{node}` ({}): {why}", call.op);
    let name = format!("plain_range{f}");
    let text = |p: &Point| {
        let own = p.draft.plain.sources.get(f)?;
        let own_parts = p.draft.plain.parts.get(f)?;
        let parts = most.draft.plain.parts.get(f)?;
        let is_same = own_parts.len() == parts.len()
            && own_parts.iter().zip(parts).all(|(a, b)| a.source == b.source);
        is_same.then(|| own.source.replace(&own.symbol, &name))
    };
    let texts: Option<Vec<String>> = kept.iter().map(|p| text(p)).collect();
    let texts = texts.ok_or_else(|| fail("its functions depend on the extent".into()))?;
    // Where shapes end evenly its text may be simpler; most extents say which one holds.
    let shapes: Vec<String> = texts.iter().map(|t| skeleton(t)).collect();
    let count = |s: &String| shapes.iter().filter(|o| *o == s).count();
    let usual = shapes.iter().max_by_key(|s| count(s)).cloned().unwrap_or_default();
    let like: Vec<usize> = (0..texts.len()).filter(|i| shapes[*i] == usual).collect();
    let extents: Vec<i64> = like.iter().map(|i| kept[*i].draft.extent).collect();
    if like.len() < LEAST_PLANS && like.len() < texts.len() {
        return Err(fail("its C is another one at each extent".into()));
    }
    let own: Vec<&str> = like.iter().map(|i| texts[*i].as_str()).collect();
    let text = VaryingText::of(&extents, &own);
    let text = text.ok_or_else(|| fail("a number of its C has no formula".into()))?;
    let top = most.draft.extent;
    let values = text.values(top).ok_or_else(|| fail("a number of its C is too large".into()))?;
    let weights = most.draft.plain.weights_of(f);
    let data = call.inputs.iter().enumerate();
    let data = data.filter(|(i, o)| o.is_some() && !weights.contains(i)).count();
    let made = varying_text(&text.template, &name, data, &values).map_err(fail)?;
    let original = source.clone();
    let source = KernelSource { source: made, symbol: name, ..source.clone() };
    Ok(Variant { least: symbol.least, configuration: String::new(), source, text, original })
}

/// Puts variants of kernels in the place of the kernels of plans.
struct Calls<'a> {
    families: &'a [Vec<Variant>],
}

impl Calls<'_> {
    /// The number of a family's first variant among all.
    fn first(&self, family: usize) -> usize {
        self.families[..family].iter().map(Vec::len).sum()
    }

    /// The numbers that a variant reads; at least one, so that all take as many data.
    fn numbers(v: &Variant) -> Vec<Formula> {
        if v.text.numbers.is_empty() { vec![Formula::number(0)] } else { v.text.numbers.clone() }
    }

    /// A number that is one more from each variant's least extent on.
    fn counted(&self, family: usize, first: usize) -> Formula {
        self.families[family].iter().skip(1).fold(Formula::number(first as i64), |sum, v| {
            sum.plus(Formula::number(v.least - 1).less(Formula::symbol(0)))
        })
    }

    /// Rewrites a plan: marks stand for the numbers that the variants' formulas give.
    fn put(&self, plan: &mut HostPlan) -> Result<Marks, String> {
        let mut marks = Marks::default();
        let buffers = plan.buffers.len();
        let list = Element::new('l').ok_or("there are no lists")?;
        let old = std::mem::take(&mut plan.kernels);
        for (family, k) in self.families.iter().zip(&old) {
            for v in family {
                let numbers = Calls::numbers(v);
                let count = numbers.len() as u64;
                let values = numbers.into_iter().map(|f| marks.number(f)).collect();
                plan.buffers.push(Buffer { values, ..Buffer::own(Role::Constant, list, count) });
                let mut k = k.clone();
                k.symbol.clone_from(&v.source.symbol);
                k.parameters.push(Parameter { role: Role::Data, element: list, count });
                plan.kernels.push(k);
            }
        }
        for step in &mut plan.steps {
            let Work::Call { kernel, buffers: own, .. } = &mut step.work else { continue };
            let family = *kernel as usize;
            let first = self.first(family);
            *kernel = marks.index(self.counted(family, first));
            own.push(marks.index(self.counted(family, buffers + first)));
        }
        Ok(marks)
    }
}

/// The first number that stands for a number of a kernel: no plan has numbers so large.
const NUMBER_MARK: i64 = 4_611_686_000_000_000_000;
/// The first number that stands for a kernel or a buffer.
const INDEX_MARK: u32 = 4_000_000_000;

/// Numbers that stand in a plan's text for formulas that are known, until all else is joined.
/// Without them, numbers of kernels that agree at the few extents of plans would be taken for one.
#[derive(Default)]
struct Marks {
    numbers: Vec<Formula>,
    indices: Vec<Formula>,
}

impl Marks {
    fn of(list: &mut Vec<Formula>, formula: Formula) -> usize {
        let known = list.iter().position(|f| *f == formula);
        known.unwrap_or_else(|| {
            list.push(formula);
            list.len() - 1
        })
    }

    fn number(&mut self, formula: Formula) -> i64 {
        NUMBER_MARK + Marks::of(&mut self.numbers, formula) as i64
    }

    fn index(&mut self, formula: Formula) -> u32 {
        INDEX_MARK + Marks::of(&mut self.indices, formula) as u32
    }

    /// A text with `$K` in the place of marks, whose formulas join the values.
    fn replaced(&self, text: String, values: &mut Vec<Formula>) -> String {
        let mut of: HashMap<String, String> = HashMap::new();
        let numbers = self.numbers.iter().enumerate();
        let numbers = numbers.map(|(i, f)| ((NUMBER_MARK + i as i64).to_string(), f));
        let indices = self.indices.iter().enumerate();
        let indices = indices.map(|(i, f)| ((INDEX_MARK + i as u32).to_string(), f));
        for (mark, f) in numbers.chain(indices) {
            let number = match f.at(&[]) {
                Some(constant) => constant.to_string(),
                None => format!("${}", Marks::of(values, f.clone())),
            };
            of.insert(mark, number);
        }
        let line = |line: &str| {
            let word = |w: &str| of.get(w).cloned().unwrap_or_else(|| w.into());
            line.split(' ').map(word).collect::<Vec<String>>().join(" ") + "\n"
        };
        text.lines().map(line).collect()
    }
}

/// Verifies a plan at extents of its range, all of a short one.
fn verify(plan: &VaryingPlan, symbol: &Symbol) -> Result<(), String> {
    let (least, most) = (symbol.first() / symbol.step, symbol.last() / symbol.step);
    let most_plan = plan.at(&[most * symbol.step]).map_err(|e| e.to_string())?;
    let stride = ((most - least) / VERIFIED).max(1);
    let mut n = least;
    while n <= most {
        let own =
            plan.at(&[n * symbol.step]).map_err(|e| format!("at {}: {e}", n * symbol.step))?;
        let is_inside = own.buffers.iter().zip(&most_plan.buffers).all(|(o, m)| o.count <= m.count);
        if !is_inside {
            return Err(format!("at {} it needs more memory than at the most", n * symbol.step));
        }
        n += stride;
    }
    Ok(())
}

/// The shapes of the inputs (0) or outputs (1) as formulas.
fn shapes(end: usize, points: &[Point]) -> Option<Vec<Vec<Formula>>> {
    let extents: Vec<i64> = points.iter().map(|p| p.draft.extent).collect();
    let first = &points.first()?.draft.ends[end];
    let value = |i: usize| {
        (0..first[i].shape.len())
            .map(|axis| {
                let at = |p: &Point| p.draft.ends[end].get(i)?.shape.get(axis).copied();
                let series: Series = points.iter().map(at).collect::<Option<_>>()?;
                fitted(&extents, &series)
            })
            .collect::<Option<Vec<Formula>>>()
    };
    (0..first.len()).map(value).collect()
}
