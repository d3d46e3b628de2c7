//! A network over a range of extents of one symbol: one program or library, no compilation at an
//! extent that is new. Input: a model with a symbol's range, and how its kernels are chosen;
//! output: a [`VaryingNetwork`], whose plan ([`VaryingPlan`]) has formulas in the place of numbers
//! that vary.
//!
//! The model is planned at several extents (`draft.rs`). These plans, and the texts of each
//! kernel (`family.rs`), are the same but for numbers (`template.rs`), each of which follows from
//! the extent (`fit.rs`). Texts are taken at extents that do not end evenly in tiles, so that the
//! last instance of a tile may move back at every extent. Memory is planned at the largest one.

mod checked;
mod constants;
mod draft;
mod family;
mod fit;
mod joined;
mod kernel_text;
mod ranked;
mod template;
mod varying_text;

use super::program::{self, LinkedSource, Site};
use super::{Kernel, MakeKernels, Network, Packing, fault, files, runs_here, trust};
use crate::base::error::Error;
use crate::input::user_input::ModelInput;
use crate::predict::choose::Chosen;
use crate::predict::general::GeneralPredictor;
use crate::target::target_context::TargetContext;
use checked::Checker;
use draft::Draft;
use family::{Variant, variants_of};
use joined::Joined;
use ranked::Speeds;
use squall_core::{KernelSource, Task, TensorKind};
use squall_graph::plan::Plan;
use squall_runtime::Formula;
use squall_runtime::varying::{Symbol, VaryingPlan};
use std::sync::Arc;
use varying_text::VaryingText;

/// How many plans are compared.
const DRAFTS: usize = 9;

/// What gives the model at an extent.
pub type ModelAt<'a> = dyn FnMut(i64) -> Result<ModelInput, Error> + 'a;
/// A network for every extent of a symbol's range.
pub struct VaryingNetwork {
    /// The symbol.
    pub symbol: Symbol,
    /// The plan.
    pub plan: VaryingPlan,
    /// The network at one extent, first at the largest; its folder holds program and constants.
    pub network: Network,
    /// The shapes of the inputs and outputs, each extent as a formula.
    pub shapes: [Vec<Vec<Formula>>; 2],
    /// What is linked: the variants of kernels, then functions that plain operators call.
    sources: Vec<KernelSource>,
}

/// A model and its plan at one extent.
pub struct Point {
    draft: Draft,
    model: ModelInput,
}

/// The extents at which plans are compared: the largest, primes below it, and some others.
fn drafted(symbol: &Symbol) -> Vec<i64> {
    let step = symbol.step;
    let is_prime = |n: &i64| *n > 1 && (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0);
    let (least, most) = (symbol.first() / step, symbol.last() / step);
    // A formula needs several extents; the model is asked beyond a short range.
    let end = most.max(least + 40);
    let primes: Vec<i64> = (least.max(5)..=end).filter(is_prime).collect();
    let mut all: Vec<i64> = Vec::new();
    let wanted = DRAFTS - 3;
    for i in 0..wanted {
        // Evenly by logarithm.
        let Some(last) = primes.last() else { break };
        let low = (primes[0] as f64).ln();
        let at = low + ((*last as f64).ln() - low) * i as f64 / (wanted - 1) as f64;
        let apart = |p: &&i64| ((**p as f64).ln() - at).abs();
        all.extend(primes.iter().min_by(|a, b| apart(a).total_cmp(&apart(b))));
    }
    all.extend([most, (most + least) / 2, (most / 8 * 2).max(4)]);
    // Of a short range each extent is planned.
    if most - least < DRAFTS as i64 {
        all.extend(least..=most);
    }
    all.sort_unstable();
    all.dedup();
    all.retain(|n| *n >= 1);
    all.into_iter().map(|n| n * step).collect()
}

/// A range, and what a network over it is made with.
pub struct RangeRequest<'a> {
    /// The range.
    pub symbol: &'a Symbol,
    /// The device.
    pub at: &'a TargetContext,
    /// How weights are packed.
    pub packing: Packing,
    /// What says which tiles suit many extents; the cost formula where there is none.
    pub general: Option<Arc<GeneralPredictor>>,
}

impl VaryingNetwork {
    /// Builds a network over a range, of a model at the extent where kernels are chosen.
    pub fn build(
        request: &RangeRequest<'_>,
        base: ModelInput,
        model_at: &mut ModelAt<'_>,
        choose: &mut MakeKernels<'_>,
    ) -> Result<VaryingNetwork, Error> {
        let RangeRequest { symbol, at, packing, .. } = *request;
        runs_here(at)?;
        let fail = |why: String| {
            let hint = format!("fix the extent: --dim {}={}", symbol.name, symbol.most);
            fault(&base, why, &hint)
        };
        if !at.gpus.is_empty() || !base.remade.is_empty() {
            return Err(fail("ranges of extents are for CPUs and 32-bit floats".into()));
        }
        let tasks: Vec<&Task> = base.tasks.iter().collect();
        let mut chosen = choose(&tasks)?;
        let most = symbol.last();
        let mut points: Vec<Point> = Vec::new();
        for extent in drafted(symbol) {
            // A model may end beyond its range.
            let drafted = model_at(extent).and_then(|model| {
                let is_alike = model.tasks.len() == chosen.len();
                let draft = is_alike.then(|| Draft::of(extent, &model, packing, at)).transpose()?;
                Ok(draft.map(|draft| Point { draft, model }))
            });
            match drafted {
                Ok(Some(point)) => points.push(point),
                Ok(None) if extent != most => {}
                Ok(None) => return Err(fail(format!("at {most} it has other kernels"))),
                Err(e) if extent <= most => return Err(e),
                Err(_) => {}
            }
        }
        read_varying_weights(&mut chosen, &mut points);
        let families = families_of(&chosen, &points, request).map_err(fail)?;
        let at_most = points.iter().position(|p| p.draft.extent == most);
        let at_most = at_most.ok_or_else(|| fail(format!("it cannot be planned at {most}")))?;
        // Plain operators are judged where they have most work.
        let settled = &mut points[at_most].draft.plain;
        let (mut fallbacks, moves) = program::with_runtime_ahead(at, || trust::settle(settled, at));
        fallbacks.extend(moves.fallback.clone());
        let joined = Joined::of(&points, at_most, &chosen, &families, symbol).map_err(fail)?;
        let point = points.swap_remove(at_most);
        let (folder, temporary) = super::folder(None)?;
        joined.write(&folder, &point)?;
        let parts: Vec<LinkedSource<'_>> = joined.sources.iter().map(LinkedSource::plain).collect();
        program::build(Site { folder: &folder, is_kept: false }, &parts, &moves, at)?;
        let Joined { plan, sources, shapes, arena_bytes, leading, .. } = joined;
        let Point { draft, model } = point;
        let [inputs, outputs] = draft.ends;
        let network = Network {
            name: model.name.clone(),
            folder,
            _temporary: temporary,
            graph: model.graph.clone(),
            plan: Plan { constants: Vec::new(), ..draft.plan },
            inputs,
            outputs,
            bound: model.bound.clone(),
            half: None,
            precision: model.precision,
            kernels: chosen,
            plain: draft.plain,
            device: at.device.clone(),
            gpu: None,
            arena_bytes,
            leading,
            packed: None,
            fallbacks,
        };
        let mut made = VaryingNetwork { symbol: symbol.clone(), plan, network, shapes, sources };
        made.network.kernels.iter_mut().zip(&model.tasks).for_each(|(k, t)| k.task = t.clone());
        Ok(made)
    }

    /// The network at one extent, whose model is given: the same program and weights.
    pub fn moved_to(
        &mut self,
        extent: i64,
        model: &ModelInput,
        packing: Packing,
        at: &TargetContext,
    ) -> Result<&Network, Error> {
        let text = self.plan.text_at(&[extent]).map_err(|e| Error::Usage {
            message: e.to_string(),
            hint: "give a length of the range, or another range".into(),
        })?;
        let draft = Draft::of(extent, model, packing, at)?;
        crate::base::files::put_in_folder(&self.network.folder.join(files::PLAN), text.as_bytes())?;
        let n = &mut self.network;
        [n.inputs, n.outputs] = draft.ends;
        n.plan = Plan { constants: Vec::new(), ..draft.plan };
        n.graph = model.graph.clone();
        n.kernels.iter_mut().zip(&model.tasks).for_each(|(k, t)| k.task = t.clone());
        Ok(n)
    }

    /// The functions that are linked into its program.
    pub(crate) fn linked_kernels(&self) -> Vec<Kernel<'_>> {
        self.sources.iter().map(|source| Kernel { source, head: String::new() }).collect()
    }
}

/// A task whose numbers follow from one extent, which is itself a quotient of the symbol's, as
/// half of an image's height is.
struct InnerExtent {
    /// The extent by the symbol's.
    formula: Formula,
    /// The task by the extent.
    workload: VaryingText,
    /// The extent's range.
    range: Symbol,
}

/// The extent from which all numbers of a task follow, where one of them is a quotient.
fn inner_extent(text: &VaryingText, symbol: &Symbol) -> Option<InnerExtent> {
    let quotients = text.numbers.iter().filter(|f| f.divides());
    let formula = quotients.min_by_key(|f| f.at(&[symbol.last()]).unwrap_or(i64::MAX))?.clone();
    let mut texts: Vec<(i64, String)> = Vec::new();
    let steps = (symbol.last() - symbol.first()) / symbol.step;
    for i in 0..=steps {
        // Some far apart, and neighbours, which a quotient may not tell from each other.
        if i % (steps / 24 + 1) > 1 {
            continue;
        }
        let n = symbol.first() + i * symbol.step;
        let (inner, text) = (formula.at(&[n])?, text.at(n)?);
        match texts.iter().find(|(known, _)| *known == inner) {
            Some((_, known)) if *known != text => return None,
            Some(_) => {}
            None => texts.push((inner, text)),
        }
    }
    let extents: Vec<i64> = texts.iter().map(|t| t.0).collect();
    let own: Vec<&str> = texts.iter().map(|t| t.1.as_str()).collect();
    let workload = VaryingText::of(&extents, &own)?;
    let [least, most] = [symbol.first(), symbol.last()].map(|n| formula.at(&[n]));
    let range = Symbol { least: least?, most: most?, step: 1, ..symbol.clone() };
    (range.least >= 1).then_some(InnerExtent { formula, workload, range })
}

impl InnerExtent {
    /// The kernels over the extent's range, by the symbol's extents.
    fn variants(
        &self,
        chosen: &Chosen,
        symbol: &Symbol,
        speeds: &Speeds<'_>,
        checker: &mut Checker<'_>,
    ) -> Result<Vec<Variant>, String> {
        let mut all = variants_of(chosen, &self.workload, &self.range, speeds, checker)?;
        for v in &mut all {
            for f in &mut v.text.numbers {
                *f = f.over_symbol(&self.formula);
            }
            // The extent grows with the symbol's.
            let (mut low, mut high) = (symbol.first(), symbol.last());
            while low < high {
                let middle = low + (high - low) / 2;
                match self.formula.at(&[middle]) {
                    Some(inner) if inner >= v.least => high = middle,
                    _ => low = middle + 1,
                }
            }
            v.least = low;
        }
        Ok(all)
    }
}

/// Makes weights whose extents vary data of their tasks: they are beginnings of constants, which
/// nothing packs.
fn read_varying_weights(chosen: &mut [Chosen], points: &mut [Point]) {
    for (i, k) in chosen.iter_mut().enumerate() {
        for w in 0..k.task.workload.inputs.len() {
            let shape = &k.task.workload.inputs[w].shape;
            let is_same = |p: &Point| {
                let own = p.model.tasks[i].workload.inputs.get(w);
                own.is_none_or(|own| own.shape == *shape)
            };
            if points.iter().all(is_same) {
                continue;
            }
            let others = points.iter_mut().map(|p| &mut p.model.tasks[i].workload);
            for workload in others.chain([&mut k.task.workload]) {
                if let Some(input) = workload.inputs.get_mut(w) {
                    input.kind = TensorKind::Data;
                }
            }
        }
    }
}

/// The families of kernels of all tasks.
fn families_of(
    chosen: &[Chosen],
    points: &[Point],
    request: &RangeRequest<'_>,
) -> Result<Vec<Vec<Variant>>, String> {
    let RangeRequest { symbol, at, .. } = *request;
    let speeds = &Speeds { general: request.general.clone(), target: &at.target };
    let extents: Vec<i64> = points.iter().map(|p| p.draft.extent).collect();
    let mut all = Vec::new();
    let mut checker = Checker::new(at);
    for (i, k) in chosen.iter().enumerate() {
        let texts: Vec<String> =
            points.iter().map(|p| p.model.tasks[i].workload.to_string()).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let fail = |why: &str| format!("kernel {}: {why}", k.task.name);
        let text = VaryingText::of(&extents, &texts)
            .ok_or_else(|| fail("its extents do not follow from the symbol's by a formula"))?;
        let made = match inner_extent(&text, symbol) {
            Some(inner) => inner.variants(k, symbol, speeds, &mut checker),
            None => variants_of(k, &text, symbol, speeds, &mut checker),
        };
        all.push(made.map_err(|e| fail(&e))?);
    }
    Ok(all)
}
