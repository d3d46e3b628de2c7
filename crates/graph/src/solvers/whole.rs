//! The solver of the cheapest cover: kernels and layouts together, so that the sum of the kernels'
//! times is least. Times that are not known are estimated from bytes and operations, scaled by the
//! times that are known. Input: fusion candidates (sets of nodes that may be one kernel) and known
//! times; output: the exact optimum by `cover.rs`, or the reason why there is no proof (graphs that
//! are too wide), where greedy fusion stays. `squall/src/decide/cover_runoff.rs` measures the best
//! covers against each other in whole networks. `mod.rs` lists the solvers.

use super::cover::{CoverProblem, Producer};
use super::images::Images;
use super::in_place::settled;
use super::{Cost, greedy, layouts};
use crate::assignment::{Choice, Step, reads};
use crate::candidate::{FusionCandidate, root};
use crate::candidates::Candidates;
use crate::feed::Feed;
use crate::fuse::anchor::is_anchor;
use crate::rules::{ATTENTION, PROLOGUE};
use crate::view::View;
use squall_core::graph::ValueId;
use squall_core::{Task, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// See [`super::Solve`]. Where the graph is too wide for a proof, greedy fusion with the fastest
/// layouts stays.
pub fn solve(all: &Candidates, choice: Choice, time: &Cost<'_>) -> Choice {
    let costs = CoverCosting::of(time, Unknown::Estimated);
    cheapest_cover(all, &costs).map(|c| c.choice).unwrap_or_else(|_| {
        let greedy = greedy::solve(all, choice, time);
        layouts::fastest_in_place(all, greedy, time)
    })
}

/// The time that counts for a kernel that was never tuned.
pub enum Unknown<'a> {
    /// An estimate from bytes and operations, scaled as the times that are known.
    Estimated,
    /// A lower bound of its time: the function's value for its workload, in nanoseconds, and no
    /// less than the known time around its anchors. A cover of known kernels that is cheapest even
    /// so needs no further trial.
    AtLeast(&'a dyn Fn(&Workload) -> f64),
    /// More than any kernel takes, so that known kernels are chosen wherever they cover the model.
    Avoided,
}

/// The costs of kernels in a cover.
pub struct CoverCosting<'a> {
    /// The known times.
    pub time: &'a Cost<'a>,
    /// The rule for kernels without a known time.
    pub unknown: Unknown<'a>,
    /// The time in nanoseconds of each copy that attention saves where it reads or writes in the
    /// memory of others; 0 where other kernels save theirs as well.
    pub copy: f64,
}

impl<'a> CoverCosting<'a> {
    /// Costs of kernels alone.
    pub fn of(time: &'a Cost<'a>, unknown: Unknown<'a>) -> CoverCosting<'a> {
        CoverCosting { time, unknown, copy: 0.0 }
    }
}

/// A choice of kernels and layouts with the least sum of times.
#[derive(Clone, Debug, PartialEq)]
pub struct CheapestCover {
    /// The choice.
    pub choice: Choice,
    /// The same choice with every value in memory of its own.
    pub dense: Choice,
    /// The sum of times, in nanoseconds.
    pub time: f64,
}

/// The cheapest cover, exactly; fails with the reason where there is no proof.
pub fn cheapest_cover(all: &Candidates, costs: &CoverCosting<'_>) -> Result<CheapestCover, String> {
    let everything = everything(all);
    let images = Images::of_all(all, &everything);
    let programme = Programme::new(all, &images, costs);
    let cover = programme.problem.solve()?;
    let kernels = cover.producer.iter().zip(&programme.candidates);
    let steps = kernels.filter_map(|(p, list)| p.map(|i| list[i])).collect();
    let chosen = images.laid_out(&|g| cover.last[g]);
    let dense = Choice { steps: ordered(all, steps), ..chosen };
    Ok(CheapestCover { choice: settled(all, &dense), dense, time: cover.time })
}

/// A kernel in the cheapest cover that it can be part of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoverCost {
    /// Its place among the candidates.
    pub candidate: usize,
    /// Its time there, in nanoseconds.
    pub time: f64,
    /// Whether that is an estimate, in all layouts.
    pub estimated: bool,
    /// How much longer that cover takes than the cheapest one; 0 for candidates of the cheapest.
    pub behind: f64,
}

/// How the candidates of a model stand to each other.
#[derive(Clone, Debug, PartialEq)]
pub struct CoverCosts {
    /// The least sum of times, in nanoseconds.
    pub time: f64,
    /// The kernels of the cheapest cover, in the order of the model.
    pub chosen: Vec<CoverCost>,
    /// All others that can be part of a cover, in the order of candidates.
    pub lost: Vec<CoverCost>,
}

/// All candidates with their distance from the choice: for each the cheapest cover that contains
/// it. Fails with the reason where there is no proof.
pub fn standings(all: &Candidates, time: &Cost<'_>) -> Result<CoverCosts, String> {
    let everything = everything(all);
    let images = Images::of_all(all, &everything);
    let programme = Programme::new(all, &images, &CoverCosting::of(time, Unknown::Estimated));
    let best = programme.problem.solve()?;
    let (mut chosen, mut lost) = (Vec::new(), Vec::new());
    for (v, list) in programme.candidates.iter().enumerate() {
        for (i, &candidate) in list.iter().enumerate() {
            let is_chosen = best.producer[v] == Some(i);
            let forced;
            let cover = if is_chosen {
                &best
            } else {
                let Ok(made) = programme.problem.with(v, i).solve() else { continue };
                forced = made;
                &forced
            };
            let Some(time) = programme.problem.time(v, i, &cover.last) else { continue };
            let estimated = programme.estimated[v][i];
            let behind = (cover.time - best.time).max(0.0);
            let s = CoverCost { candidate, time, estimated, behind };
            if is_chosen { chosen.push(s) } else { lost.push(s) }
        }
    }
    chosen.sort_by_key(|s| all.list[s.candidate].nodes.first().copied());
    lost.sort_by_key(|s| s.candidate);
    Ok(CoverCosts { time: best.time, chosen, lost })
}

/// All candidates, and the nodes that no kernel is made for.
fn everything(all: &Candidates) -> Choice {
    let nodes = all.refused.keys().filter(|&&n| !all.model.nodes[n].folded);
    let kernels = (0..all.list.len()).map(Step::Kernel);
    Choice { steps: kernels.chain(nodes.map(|&n| Step::Node(n))).collect(), ..Choice::default() }
}

/// Kernels and the other nodes in an order of execution: each stands where the model computes its
/// result, when the model has computed all its operands.
fn ordered(all: &Candidates, kernels: Vec<usize>) -> Vec<Step> {
    let view = View::new(&all.model);
    let place = |i: &usize| all.list[*i].outputs.first().and_then(|&v| view.producer(v));
    let kernels = kernels.into_iter().map(|i| (place(&i).unwrap_or(usize::MAX), Step::Kernel(i)));
    let nodes = all.refused.keys().filter(|&&n| !all.model.nodes[n].folded);
    let mut steps: Vec<(usize, Step)> = kernels.chain(nodes.map(|&n| (n, Step::Node(n)))).collect();
    steps.sort_by_key(|(at, _)| *at);
    steps.into_iter().map(|(_, s)| s).collect()
}

/// The programme of a model.
struct Programme {
    problem: CoverProblem,
    /// For each value of the problem the candidates that give it.
    candidates: Vec<Vec<usize>>,
    /// For each of those whether none of its times is known.
    estimated: Vec<Vec<bool>>,
}

impl Programme {
    fn new(all: &Candidates, images: &Images<'_>, costs: &CoverCosting<'_>) -> Programme {
        let m = &all.model;
        let mut given: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (i, c) in all.list.iter().enumerate() {
            given.entry(c.outputs[0]).or_default().push(i);
        }
        let number: BTreeMap<ValueId, usize> = given.keys().copied().zip(0..).collect();
        let view = View::new(m);
        // Outputs, values that nodes without kernels read, and values that nothing reads must be
        // stored.
        let mut required: BTreeSet<ValueId> = m.outputs.iter().map(|&v| root(m, v)).collect();
        for &n in all.refused.keys().filter(|&&n| !m.nodes[n].folded) {
            required.extend(reads(all, &Step::Node(n)));
        }
        required.extend(given.keys().copied().filter(|&v| view.users(v).is_empty()));
        let within = &settled(all, &images.laid_out(&|_| true));
        let times = Times { all, images, within, costs };
        let mut all_times: Vec<(Vec<usize>, Vec<Option<Known>>)> =
            (0..all.list.len()).map(|i| times.of(i)).collect();
        let scale = match costs.unknown {
            Unknown::Estimated => scale(all_times.iter().flat_map(|(_, t)| t).flatten()),
            Unknown::AtLeast(_) => {
                raise(all, &mut all_times);
                1.0
            }
            Unknown::Avoided => 1.0,
        };
        let values = given.iter().map(|(v, list)| {
            let producer = |&i: &usize| {
                let feeds = all.list[i].feeds.iter();
                let read = feeds.filter_map(|f| match f {
                    Feed::Value(v) => number.get(&root(m, *v)).copied(),
                    _ => None,
                });
                let (groups, times) = all_times[i].clone();
                let times = times.into_iter().map(|t| t.map(|t| t.time(scale))).collect();
                Producer {
                    reads: read.collect::<BTreeSet<_>>().into_iter().collect(),
                    groups,
                    times,
                }
            };
            (list.iter().map(producer).collect(), required.contains(v))
        });
        let problem = CoverProblem { values: values.collect(), groups: images.groups };
        let blind = |&i: &usize| all_times[i].1.iter().flatten().all(|k| k.measured.is_none());
        let estimated = given.values().map(|list| list.iter().map(blind).collect()).collect();
        Programme { problem, candidates: given.into_values().collect(), estimated }
    }
}

/// The knowledge of a kernel's time.
#[derive(Clone, Copy)]
struct Known {
    measured: Option<f64>,
    estimated: f64,
}

impl Known {
    fn time(&self, scale: f64) -> f64 {
        self.measured.unwrap_or(self.estimated * scale)
    }
}

/// A kernel takes at least this share of the time of a known kernel without an anchor that does a
/// part of its work; it may save storing intermediate values.
const OF_A_PART: f64 = 0.9;

/// The factor by which a kernel's hoped-for time is longer in layouts in which neither it nor the
/// kernels that it replaces were timed. A cover in other layouts alone is left to the choice of
/// layouts.
const OTHER_LAYOUT: f64 = 1.1;

/// How much longer a kernel is taken to be for each node that it computes ahead of its anchor: what
/// can follow one operator as well as come ahead of the next follows.
const AHEAD: f64 = 1e-3;

/// Raises the hoped-for times of kernels that were never timed, or not in a layout: to the time of
/// the fastest known kernel around each of their anchors, to nearly the times of the known kernels
/// without an anchor that they replace, and to their own time in a layout where it is known; by
/// [`OTHER_LAYOUT`] more in other layouts, and by [`AHEAD`] for each node ahead.
fn raise(all: &Candidates, times: &mut [(Vec<usize>, Vec<Option<Known>>)]) {
    let known: Vec<Vec<InLayout>> = times.iter().map(|(g, t)| InLayout::of(g, t)).collect();
    let anchors: Vec<Vec<usize>> = all
        .list
        .iter()
        .map(|c| c.nodes.iter().copied().filter(|&n| is_anchor(&all.model.nodes[n].op)).collect())
        .collect();
    // The kernels that are known by each of their anchors, those without one by their first node.
    let mut around: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut without: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, c) in all.list.iter().enumerate().filter(|(i, _)| !known[*i].is_empty()) {
        anchors[i].iter().for_each(|&n| around.entry(n).or_default().push(i));
        let first = c.nodes.first().filter(|_| anchors[i].is_empty());
        first.into_iter().for_each(|&n| without.entry(n).or_default().push(i));
    }
    let is_within = |a: &[usize], b: &[usize]| a.iter().all(|n| b.contains(n));
    for (i, c) in all.list.iter().enumerate() {
        // The kernel takes at least a share of the fastest time of each of these sets.
        let mut least: Vec<(f64, Vec<&InLayout>)> = Vec::new();
        if known[i].is_empty() {
            let same = |n: &usize| {
                let same = around.get(n)?.iter().filter(|&&p| is_within(&anchors[p], &anchors[i]));
                Some((1.0, same.flat_map(|&p| &known[p]).collect()))
            };
            least.extend(anchors[i].iter().filter_map(same));
            let parts = c.nodes.iter().filter_map(|n| without.get(n)).flatten();
            let parts = parts.filter(|&&p| is_within(&all.list[p].nodes, &c.nodes));
            least.extend(parts.map(|&p| (OF_A_PART, known[p].iter().collect())));
        } else {
            least.push((1.0, known[i].iter().collect()));
        }
        let ahead = c.nodes.iter().position(|n| anchors[i].contains(n)).unwrap_or(0);
        let (groups, list) = &mut times[i];
        for (bits, k) in list.iter_mut().enumerate() {
            let Some(k) = k else { continue };
            let fastest = |(share, list): &(f64, Vec<&InLayout>)| {
                let there = list.iter().map(|k| k.hoped(groups, bits)).min_by(f64::total_cmp);
                share * there.unwrap_or(0.0)
            };
            let time = least.iter().map(fastest).fold(k.estimated, f64::max);
            k.estimated = time * (1.0 + AHEAD * ahead as f64);
        }
    }
}

/// A time that is known of a candidate, and which of its groups of images have their channels last
/// there.
struct InLayout {
    time: f64,
    last: BTreeMap<usize, bool>,
}

/// Whether the group at a place has its channels last, in the layouts of this number.
fn is_last(bits: usize, place: usize) -> bool {
    bits >> place & 1 == 1
}

impl InLayout {
    fn of(groups: &[usize], times: &[Option<Known>]) -> Vec<InLayout> {
        let known = times.iter().enumerate();
        let known = known.filter_map(|(bits, k)| Some((k.as_ref()?.measured?, bits)));
        let one = |(time, bits)| {
            let last = groups.iter().enumerate().map(|(place, &g)| (g, is_last(bits, place)));
            InLayout { time, last: last.collect() }
        };
        known.map(one).collect()
    }

    /// The hoped-for time in these layouts of groups.
    fn hoped(&self, groups: &[usize], bits: usize) -> f64 {
        let differs = |(place, g): (usize, &usize)| {
            self.last.get(g).is_some_and(|&last| last != is_last(bits, place))
        };
        let is_other = groups.iter().enumerate().any(differs);
        self.time * if is_other { OTHER_LAYOUT } else { 1.0 }
    }
}

/// How much longer than estimated the slowest tenth of the kernels whose times are known takes at
/// least: what was never tuned is chosen where it would be faster even so.
fn scale<'a>(all: impl Iterator<Item = &'a Known>) -> f64 {
    let mut ratios: Vec<f64> =
        all.filter_map(|k| k.measured.map(|t| t / k.estimated)).filter(|r| r.is_finite()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() * 9 / 10).copied().unwrap_or(1.0)
}

/// An estimate of a kernel's time in nanoseconds from its work: 50 operations and 10 bytes a
/// nanosecond, and a call. Values computed ahead of an operator pass through a near cache once
/// more, at 40 bytes a nanosecond: steps that can as well follow an operator do so.
fn estimate(c: &FusionCandidate, w: &Workload) -> f64 {
    let ahead = match w.inputs.first() {
        Some(x) if c.rule == PROLOGUE => 4.0 * x.shape.iter().map(|&e| e as f64).product::<f64>(),
        _ => 0.0,
    };
    w.flop() as f64 / 50.0 + w.bytes().0 as f64 / 10.0 + ahead / 40.0 + 500.0
}

/// More than any kernel takes in nanoseconds; sums of some thousands are no impossible ones.
const AVOIDED: f64 = 1e9;

/// By how much more a kernel is estimated whose images have their channels first.
const CHANNELS_FIRST: f64 = 0.1;

/// Times of candidates in all layouts.
struct Times<'a> {
    all: &'a Candidates,
    images: &'a Images<'a>,
    within: &'a Choice,
    costs: &'a CoverCosting<'a>,
}

impl Times<'_> {
    /// The groups of images that a candidate reads or writes, and its known time for each
    /// combination of their layouts.
    fn of(&self, candidate: usize) -> (Vec<usize>, Vec<Option<Known>>) {
        let (c, m) = (&self.all.list[candidate], &self.all.model);
        let mut groups: Vec<usize> =
            c.touched(m).iter().filter_map(|v| self.images.values.get(v).copied()).collect();
        groups.sort_unstable();
        groups.dedup();
        let known = |w: &Workload| (self.costs.time)(Task::new("", w.clone()).id);
        let one = |bits: usize| {
            let last = |g: usize| {
                groups.iter().position(|&t| t == g).is_some_and(|place| is_last(bits, place))
            };
            let own = self.images.laid_out(&last);
            let mut placed = own.clone();
            for (v, site) in &self.within.sites {
                // Images lie in others where their channels are last, other values always.
                if own.layouts.contains_key(v) || !self.images.values.contains_key(v) {
                    placed.layouts.remove(v);
                    placed.sites.insert(*v, site.clone());
                }
            }
            let there = c.placed(&|v| placed.lies(m, v))?;
            let lying = c.touched(m).iter().filter(|v| placed.sites.contains_key(v)).count();
            let saved = self.costs.copy * f64::from(c.rule == ATTENTION) * lying as f64;
            let measured = known(&there).map(|t| (t - saved).max(1.0));
            let measured =
                measured.or_else(|| c.placed(&|v| own.lies(m, v)).and_then(|w| known(&w)));
            // Channels last are the rule, so an unknown time begins with that layout.
            let first = 1.0 - f64::from(bits.count_ones()) / groups.len().max(1) as f64;
            let order = if groups.is_empty() { 1.0 } else { 1.0 + CHANNELS_FIRST * first };
            let estimated = match self.costs.unknown {
                Unknown::Estimated => order * estimate(c, &there),
                Unknown::AtLeast(bound) => (order * bound(&there) - saved).max(1.0),
                Unknown::Avoided => order * AVOIDED,
            };
            Some(Known { measured, estimated })
        };
        let times = (0..1usize << groups.len()).map(one).collect();
        (groups, times)
    }
}
