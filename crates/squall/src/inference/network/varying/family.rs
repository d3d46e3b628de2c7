//! The kernels of one task over a range of extents. Input: the kernel that was chosen at one
//! extent, and the task's text at several; output: [`Variant`]s, each of which serves the extents
//! from its least one up to the next variant's. A variant is one C text, whose numbers
//! are formulas of the extent (`kernel_text.rs`). Below the size of a tile the nearest legal
//! configuration takes over, which must pack weights in the same way.

use super::checked::{Checked, Checker};
use super::fit::fitted;
use super::kernel_text::varying_text;
use super::ranked::{Speeds, TaskAt, legal};
use super::template::skeleton;
use super::varying_text::VaryingText;
use crate::input::input_request::chosen_at;
use crate::predict::choose::Chosen;
use squall_compiler::{on_all_cores, sketch_of_range, sketches, untuned};
use squall_core::{KernelSource, Target, TensorKind, Tunable, Workload, is_untuned};
use squall_runtime::varying::Symbol;
use std::sync::Arc;

/// How many extents a variant's text is made at; a formula must hold at all of them.
const SAMPLES: usize = 40;
/// Extents with a prime factor up to this one may end evenly in tiles.
const SMALL_FACTORS: [i64; 6] = [2, 3, 5, 7, 11, 13];
/// The most variants of a task.
const MOST_VARIANTS: usize = 16;
/// At most this many extents of a variant are checked.
const MOST_CHECKS: usize = 8;
/// Larger problems than this are not checked: references are slow.
const MOST_CHECKED_FLOP: f64 = 1e9;
/// The least extent of a variant is raised at most this often.
const MOST_CUTS: usize = 6;
/// A region ends at this part of its largest extent, unless the next one is served alike; short
/// ones are not cut.
const REGION: i64 = 6;
/// At how many extents of a region configurations are compared.
const RANKED: u32 = 6;
/// Texts are taken at all extents up to this one.
const SMALL: i64 = 16;
/// Fewer texts than this agree with formulas by chance.
const LEAST_TEXTS: usize = 4;

/// One text of a task's kernel, and the extents that it serves.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The least extent that it serves.
    pub least: i64,
    /// The configuration that its text is of.
    pub configuration: String,
    /// The text, which reads its numbers from an array behind its other data; its scratch memory
    /// is what the largest extent needs.
    pub source: KernelSource,
    /// The same text before numbers were put into an array.
    pub text: VaryingText,
    /// The kernel of one extent that has such a text.
    pub original: KernelSource,
}

/// A kernel of the task at one extent.
#[derive(Clone, Debug)]
struct Made {
    configuration: String,
    source: KernelSource,
    skeleton: String,
}

/// A variant that was not checked.
struct Proposed {
    variant: Variant,
    /// The skeleton of its text.
    skeleton: String,
    /// Extents with the skeletons of their own texts.
    others: Vec<(i64, String)>,
    /// The step of the symbol.
    step: i64,
}

/// What kernels are made from.
struct Maker<'a> {
    chosen: &'a Chosen,
    workload: &'a VaryingText,
    target: &'a Target,
    speeds: &'a Speeds<'a>,
    /// The sketch of the kernels; none of plain loops.
    sketch: Option<String>,
    /// The configuration to which theirs are near.
    wanted: String,
    /// Preparations must be this function, once it is known.
    prepare: Option<String>,
}

/// A configuration without unrolled loops.
fn not_unrolled(configuration: &str) -> String {
    let pair = |p: &str| match p.split_once('=') {
        Some((knob @ ("unroll" | "chains"), _)) => format!("{knob}=1"),
        _ => p.to_string(),
    };
    configuration.split(',').map(pair).collect::<Vec<String>>().join(",")
}

/// The function of a text that packs weights, and the sizes; empty where nothing is packed.
fn preparation(source: &KernelSource) -> String {
    if source.prepared.0 == 0 {
        return String::new();
    }
    let text = &source.source;
    let at = text.find(&format!("size_t {}_prepared_bytes", source.symbol));
    let end = text.find(&format!("size_t {}_workspace_bytes", source.symbol));
    match (at, end) {
        (Some(at), Some(end)) if at < end => text[at..end].into(),
        _ => String::new(),
    }
}

impl Maker<'_> {
    /// The sketch of the chosen kernel at an extent; for plain loops, and for the configuration
    /// that has no knobs, the loops.
    fn tunable(&self, extent: i64, is_plain: bool) -> Result<Arc<dyn Tunable>, String> {
        let text = self.workload.at(extent).ok_or("an extent is too large")?;
        let w = Workload::parse(&text).map_err(|e| e.to_string())?;
        let own = self.sketch.as_ref().filter(|_| !is_plain);
        let Some(own) = own else { return Ok(untuned(&w, self.target)) };
        let found = sketch_of_range(&w, self.target, own);
        found.ok_or_else(|| format!("there is no sketch {own}"))
    }

    /// The legal configuration at an extent that is nearest to the chosen one.
    fn nearest(&self, extent: i64) -> Result<String, String> {
        let tunable = self.tunable(extent, false)?;
        let nearest = tunable.space().nearest(&self.wanted).ok_or("no configuration is legal")?;
        Ok(nearest.to_string())
    }

    /// The kernel of a configuration at an extent.
    fn at(&self, extent: i64, configuration: &str) -> Result<Made, String> {
        let tunable = self.tunable(extent, configuration.is_empty())?;
        let own = legal(tunable.as_ref(), configuration).ok_or("the configuration is not legal")?;
        let made = tunable.realize(&own, &self.chosen.source.symbol);
        let source = made.map_err(|e| e.to_string())?;
        if self.prepare.as_ref().is_some_and(|p| *p != preparation(&source)) {
            return Err("it packs its weights in another way".into());
        }
        let (configuration, skeleton) = (configuration.into(), skeleton(&source.source));
        Ok(Made { configuration, source, skeleton })
    }

    /// Whether no extent of the task that varies ends evenly in small tiles.
    fn is_rough(&self, extent: i64, fixed: &[i64]) -> bool {
        let Some(values) = self.workload.values(extent) else { return false };
        let ends_evenly = |(v, g): (&i64, &i64)| {
            let v = v / g;
            SMALL_FACTORS.iter().any(|f| v % f == 0)
        };
        !values.iter().zip(fixed).any(ends_evenly)
    }
}

/// What is a factor of each number of the task at all extents.
fn fixed_factors(workload: &VaryingText, extents: &[i64]) -> Vec<i64> {
    fn gcd(a: i64, b: i64) -> i64 {
        if b == 0 { a.abs() } else { gcd(b, a % b) }
    }
    let mut all = vec![0; workload.numbers.len()];
    for n in extents {
        let Some(values) = workload.values(*n) else { continue };
        all.iter_mut().zip(values).for_each(|(g, v)| *g = gcd(*g, v));
    }
    all.into_iter().map(|g| g.max(1)).collect()
}

/// Some of a list, evenly by rank, the last one among them.
fn some(list: &[i64], count: usize) -> Vec<i64> {
    if list.len() <= count {
        return list.to_vec();
    }
    (1..=count).map(|i| list[i * list.len() / count - 1]).collect()
}

/// The kernels of a task over a symbol's range, by their least extents. Where the chosen kernel's
/// sketch has none for some of the extents whose weights are packed alike, as where the axis of its
/// vectors becomes shorter than a vector, another sketch serves the range.
pub fn variants_of(
    chosen: &Chosen,
    workload: &VaryingText,
    symbol: &Symbol,
    speeds: &Speeds<'_>,
    checker: &mut Checker<'_>,
) -> Result<Vec<Variant>, String> {
    let target = speeds.target;
    let record = chosen.origin.record().filter(|r| !is_untuned(&r.tunable));
    let own = record.map(|r| r.tunable.clone());
    let wanted = record.map_or_else(String::new, |r| r.configuration.clone());
    let mut maker = Maker { chosen, workload, target, speeds, sketch: own, wanted, prepare: None };
    let first = match maker.variants(symbol, checker) {
        Ok(all) => return Ok(all),
        Err(why) => why,
    };
    let text = workload.at(chosen_at(symbol)).ok_or("an extent is too large")?;
    let at_base = Workload::parse(&text).map_err(|e| e.to_string())?;
    let mut others: Vec<Option<String>> =
        sketches(&at_base, target).iter().map(|s| Some(s.name().to_string())).collect();
    others.retain(|s| *s != maker.sketch && !s.as_ref().is_some_and(|s| is_untuned(s)));
    others.push(None);
    for sketch in others {
        maker.sketch = sketch;
        maker.prepare = None;
        if let Ok(all) = maker.variants(symbol, checker) {
            return Ok(all);
        }
    }
    Err(first)
}

impl Maker<'_> {
    /// The variants of one sketch.
    fn variants(
        &mut self,
        symbol: &Symbol,
        checker: &mut Checker<'_>,
    ) -> Result<Vec<Variant>, String> {
        let base = chosen_at(symbol);
        self.prepare = Some(preparation(&self.at(base, &self.nearest(base)?)?.source));
        let mut variants: Vec<Variant> = Vec::new();
        let step = symbol.step;
        let (lowest, mut top) = (symbol.first(), symbol.last());
        while top >= lowest {
            if variants.len() == MOST_VARIANTS {
                return Err(format!("it needs more than {MOST_VARIANTS} kernels"));
            }
            let (wanted, bottom) = self.region(lowest, top, step);
            let own = std::mem::replace(&mut self.wanted, wanted);
            let made = self.variant(bottom, top, step, checker);
            self.wanted = own;
            // What is expected to be fast may not be right.
            let variant = made.or_else(|_| self.variant(bottom, top, step, checker))?;
            top = variant.least - step;
            variants.push(variant);
        }
        variants.reverse();
        let scratch = variants.iter().map(|v| v.source.workspace.0).max().unwrap_or(0);
        for (i, v) in variants.iter_mut().enumerate() {
            v.source.workspace.0 = scratch;
            let name = format!("{}_range{i}", self.chosen.source.symbol);
            v.source.source = v.source.source.replace(&self.chosen.source.symbol, &name);
            v.source.symbol = name;
        }
        Ok(variants)
    }

    /// The configuration for the extents from some one up to `top`, and that one: the longest such
    /// region over whose parts one configuration is expected to be fastest.
    fn region(&self, lowest: i64, top: i64, step: i64) -> (String, i64) {
        let below = |top: i64| match top / step {
            n if n <= SMALL => lowest,
            n => lowest.max(n / REGION * step),
        };
        let mut bottom = below(top);
        let best = self.fastest(bottom, top, step);
        while bottom > lowest {
            let next = below(bottom - step);
            if self.fastest(next, bottom - step, step) != best {
                break;
            }
            bottom = next;
        }
        (best, bottom)
    }

    /// The configuration that is expected to be fastest from one extent to another.
    fn fastest(&self, bottom: i64, top: i64, step: i64) -> String {
        let mut all = Vec::new();
        for i in 0..RANKED {
            // Evenly by logarithm, and odd: tiles rarely end evenly.
            let share = (f64::from(i) + 0.5) / f64::from(RANKED);
            let low = (bottom / step) as f64;
            let n = (low * ((top / step) as f64 / low).powf(share)) as i64;
            let extent = (n | 1).clamp(bottom / step, top / step) * step;
            let Ok(tunable) = self.tunable(extent, false) else { continue };
            let text = self.workload.at(extent);
            let Some(Ok(workload)) = text.map(|t| Workload::parse(&t)) else { continue };
            all.push(TaskAt { workload, tunable });
        }
        let base = self.nearest(top).unwrap_or_default();
        let is_taken = |c: &str| self.at(top, c).is_ok();
        self.speeds.fastest(&base, &all, &is_taken)
    }

    /// The variant that serves `top` and as many extents below it as it can, of those from
    /// `lowest` on.
    fn variant(
        &self,
        lowest: i64,
        top: i64,
        step: i64,
        checker: &mut Checker<'_>,
    ) -> Result<Variant, String> {
        let half = lowest.max((top / step + 1) / 2 * step);
        // Tiles that fit half of the extent serve more of the range, and loops that are not
        // unrolled end in the same way at all extents. Loops without tiles serve the shortest
        // extents, where no weights are packed.
        let usual = [self.nearest(top), self.nearest(half)];
        let rolled = self.nearest(half).map(|c| not_unrolled(&c));
        let plain = (top <= SMALL / 2 * step).then(|| Ok(String::new()));
        let usual = usual.into_iter().chain([rolled]).chain(plain);
        // These are slower than others, and better than none.
        let last = [self.smallest(step), Ok(String::new())];
        let (mut best, mut faults): (Option<Variant>, Vec<String>) = (None, Vec::new());
        let mut proposed: Vec<String> = Vec::new();
        for (is_last, configuration) in
            usual.map(|c| (false, c)).chain(last.into_iter().map(|c| (true, c)))
        {
            if is_last && best.is_some() {
                break;
            }
            let made = configuration.and_then(|c| {
                if proposed.contains(&c) {
                    return Err("it was tried".into());
                }
                proposed.push(c.clone());
                let made = self.variant_of(&c, lowest, top, step)?;
                self.right(made, top, step, checker)
            });
            match made {
                Ok(v) if v.least <= lowest.max(top / 4 * 3) => return Ok(v),
                Ok(v) if best.as_ref().is_none_or(|b| v.least < b.least) => best = Some(v),
                Ok(_) => {}
                Err(why) => faults.push(why),
            }
        }
        faults.dedup();
        best.ok_or_else(|| format!("at {top}: {}", faults.join("; ")))
    }

    /// The configuration near the chosen one whose tiles along axes that vary are smallest: an
    /// axis of one element is none to a sketch.
    fn smallest(&self, step: i64) -> Result<String, String> {
        let (large, small) = (self.nearest(64 * step)?, self.nearest(2 * step)?);
        let is_same = |pair: &&str| large.split(',').any(|p| p == *pair);
        let pair = |p: &str| match p.split_once('=') {
            Some((knob, value)) if !is_same(&p) && value.parse::<i64>().is_ok() => {
                format!("{knob}=1")
            }
            _ => p.to_string(),
        };
        let wanted: Vec<String> = small.split(',').map(pair).collect();
        let nearest = self.tunable(2 * step, false)?.space().nearest(&wanted.join(","));
        nearest.map(|c| c.to_string()).ok_or_else(|| "no configuration is legal".into())
    }

    /// The same of one configuration.
    fn variant_of(
        &self,
        configuration: &str,
        lowest: i64,
        top: i64,
        step: i64,
    ) -> Result<Proposed, String> {
        let own = self.at(top, configuration);
        // A text needs several extents; there may be too few in the range.
        let beyond = top.max(64 * step);
        let extents: Vec<i64> = (lowest.max(step)..=beyond).step_by(step as usize).collect();
        let fixed = fixed_factors(self.workload, &extents);
        let rough: Vec<i64> =
            extents.iter().copied().filter(|n| self.is_rough(*n, &fixed)).collect();
        let mut candidates = some(&rough, SAMPLES / 2);
        candidates.extend(some(&extents, SAMPLES / 2));
        // Tiles of the shortest extents fit no others.
        candidates.extend(extents.iter().copied().filter(|n| *n <= top && top <= SMALL * step));
        candidates.sort_unstable();
        candidates.dedup();
        let made = on_all_cores(&candidates, |n| self.at(*n, configuration));
        let made: Vec<(i64, Made)> =
            candidates.iter().copied().zip(made).filter_map(|(n, m)| Some((n, m.ok()?))).collect();
        // Texts of extents that do not end evenly in tiles hold for all extents; most do not. A
        // configuration that is legal where tiles end evenly alone has no text for the others.
        let general = made.iter().rev().find(|(n, _)| rough.binary_search(n).is_ok());
        let count = |of: &Made| made.iter().filter(|(_, m)| m.skeleton == of.skeleton).count();
        let general = match general {
            None if rough.is_empty() => made.iter().max_by_key(|(_, m)| count(m)),
            general => general,
        };
        let mut like: Vec<(i64, Made)> = match general {
            Some((_, g)) => {
                made.iter().filter(|(_, m)| m.skeleton == g.skeleton).cloned().collect()
            }
            None => Vec::new(),
        };
        let all = made.clone();
        if like.len() >= LEAST_TEXTS
            && let Ok(mut v) = self.made(&like, top)
            && self.holds(&v, top)
        {
            v.least = self.least(&v, lowest, top, step);
            // Its shortest extents are where counts of tiles change most; others tell whether
            // formulas of few texts hold.
            let served: Vec<i64> = extents.iter().copied().filter(|n| *n >= v.least).collect();
            let is_new = |n: &i64| *n <= top && candidates.binary_search(n).is_err();
            let new: Vec<i64> = served.iter().copied().filter(is_new).collect();
            let mut further: Vec<i64> = new.iter().copied().take(2 * SMALL as usize).collect();
            further.extend(some(&new, SAMPLES));
            further.sort_unstable();
            further.dedup();
            let made = on_all_cores(&further, |n| self.at(*n, configuration));
            let skeleton = like[0].1.skeleton.clone();
            let found = further.into_iter().zip(made).filter_map(|(n, m)| Some((n, m.ok()?)));
            let found: Vec<(i64, Made)> = found.collect();
            like.extend(found.iter().filter(|(_, m)| m.skeleton == skeleton).cloned());
            let made_all: Vec<(i64, Made)> = all.into_iter().chain(found).collect();
            like.sort_by_key(|(n, _)| *n);
            let mut variant = self.made(&like, top)?;
            variant.least = v.least;
            let others = made_all.into_iter().map(|(n, m)| (n, m.skeleton)).collect();
            let skeleton = like[0].1.skeleton.clone();
            return Ok(Proposed { variant, skeleton, others, step });
        }
        // An extent may have a text of its own.
        let variant = self.made(&[(top, own?)], top)?;
        Ok(Proposed { variant, skeleton: String::new(), others: Vec::new(), step })
    }

    /// A variant without the extents at which it is wrong.
    fn right(
        &self,
        mut p: Proposed,
        top: i64,
        step: i64,
        checker: &mut Checker<'_>,
    ) -> Result<Variant, String> {
        for _ in 0..MOST_CUTS {
            match self.check(&p, top, checker) {
                Ok(()) => return Ok(p.variant),
                Err((n, _)) if n < top => p.variant.least = n + step,
                Err((_, why)) => return Err(why),
            }
        }
        Err("it is wrong at many extents".into())
    }

    /// Checks a variant where it is most likely to be wrong: at its least extent and the one
    /// behind it, at the least of each kind of extents for which the sketch has a simpler text, at
    /// some extents of which no text was seen, and at the largest. Says at which extent it is
    /// wrong, and how.
    fn check(
        &self,
        p: &Proposed,
        top: i64,
        checker: &mut Checker<'_>,
    ) -> Result<(), (i64, String)> {
        let v = &p.variant;
        let mut known: Vec<&str> = vec![&p.skeleton];
        let mut extents = vec![v.least];
        let mut others: Vec<&(i64, String)> =
            p.others.iter().filter(|(n, _)| (v.least..=top).contains(n)).collect();
        others.sort();
        extents.extend(others.iter().find(|(n, _)| *n > v.least).map(|(n, _)| *n));
        for (n, skeleton) in others {
            if !known.contains(&skeleton.as_str()) {
                known.push(skeleton);
                extents.push(*n);
            }
        }
        extents.truncate(MOST_CHECKS);
        // Formulas were found at the extents that had texts; the others tell whether they hold
        // between these, and the largest one whether scratch memory suffices.
        let is_cheap = |n: &i64| self.flop(*n).is_some_and(|f| f <= MOST_CHECKED_FLOP);
        let had = |n: &i64| p.others.iter().any(|(o, s)| o == n && *s == p.skeleton);
        let between: Vec<i64> = (v.least..=top).step_by(p.step as usize).filter(is_cheap).collect();
        let new: Vec<i64> = between.iter().copied().filter(|n| !had(n)).collect();
        extents.extend(new.first().into_iter().chain(new.get(new.len() / 2)).chain(new.last()));
        extents.extend(between.last());
        extents.sort_unstable();
        extents.dedup();
        let checked = Checked {
            name: &self.chosen.task.name,
            workload: self.workload,
            text: &v.text,
            source: &v.original,
            scratch: v.source.workspace,
            configuration: &v.configuration,
        };
        checker.check(&checked, &extents)
    }

    /// The bytes of scratch memory that suffice up to an extent: what a formula says, and what
    /// texts need there, at the extents below it and at the next one above it.
    fn scratch(
        &self,
        like: &[(i64, Made)],
        extents: &[i64],
        top: i64,
        configuration: &str,
    ) -> Option<i64> {
        let all: Vec<i64> = like.iter().map(|(_, m)| m.source.workspace.0 as i64).collect();
        let above = like.iter().position(|(n, _)| *n >= top).unwrap_or(all.len() - 1);
        let by_formula = fitted(extents, &all).and_then(|f| f.at(&[top]));
        let own = self.at(top, configuration).ok().map(|m| m.source.workspace.0 as i64);
        let has_top = like[above].0 >= top;
        let known = by_formula.or(own).or(has_top.then_some(0))?;
        let seen = all[..=above].iter().copied().max().unwrap_or(0);
        Some(known.max(own.unwrap_or(0)).max(seen))
    }

    /// The work of the task at an extent.
    fn flop(&self, extent: i64) -> Option<f64> {
        let text = self.workload.at(extent)?;
        Workload::parse(&text).ok().map(|w| w.flop() as f64)
    }

    /// Whether no number of a variant's text is below zero at an extent, as the start of a tile
    /// would be that is larger than the extent.
    fn holds(&self, v: &Variant, extent: i64) -> bool {
        v.text.values(extent).is_some_and(|all| all.iter().all(|n| *n >= 0))
    }

    /// The least extent of a contiguous range up to the top at which a variant holds.
    fn least(&self, v: &Variant, lowest: i64, top: i64, step: i64) -> i64 {
        let mut least = top;
        while least - step >= lowest && self.holds(v, least - step) {
            least -= step;
        }
        least
    }

    /// A variant of texts of one skeleton.
    fn made(&self, like: &[(i64, Made)], top: i64) -> Result<Variant, String> {
        let (_, general) = like.first().ok_or("it has no text")?;
        let extents: Vec<i64> = like.iter().map(|(n, _)| *n).collect();
        let texts: Vec<&str> = like.iter().map(|(_, m)| m.source.source.as_str()).collect();
        let text = VaryingText::of(&extents, &texts);
        let text = text.ok_or("a number of its kernel has no formula")?;
        let most = text.values(top).ok_or("a number of its kernel is too large")?;
        let data = self.chosen.task.workload.inputs.iter();
        let data = data.filter(|i| i.kind == TensorKind::Data).count();
        let made = varying_text(&text.template, &general.source.symbol, data, &most)?;
        let scratch = self.scratch(like, &extents, top, &general.configuration);
        let scratch = scratch.ok_or("its scratch memory has no formula")?;
        let mut source = KernelSource { source: made, ..general.source.clone() };
        source.workspace.0 = u64::try_from(scratch).map_err(|e| e.to_string())?;
        let configuration = general.configuration.clone();
        let original = general.source.clone();
        Ok(Variant { least: top, configuration, source, text, original })
    }
}
