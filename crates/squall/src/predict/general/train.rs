//! Trains the general predictor: fits gradient-boosted trees that order the measured candidates of
//! each task, and scores them on tasks that were held out (five-fold). Input: a [`GeneralRequest`]
//! with stores of records; output: a [`GeneralPredictor`], which `file.rs` writes. `squall train
//! --records --general` calls it.

use super::file::{GeneralPredictor, Held, MachineFacts, Provenance, StoreFacts, Trees, Winner};
use super::lessons::{KnownMachine, Lesson, LessonRow, LessonSource, lessons};
use super::relative::scheme;
use crate::base::error::Error;
use squall_compiler::CODEGEN_VERSION;
use squall_core::{DeviceIdentity, Machine, TaskId, TaskShape};
use squall_search::cost_model::{GbdtSettings, Loss};
use squall_search::{CostModel, Gbdt};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Tasks are divided into this many parts, each of which is held out once.
const FOLDS: u128 = 5;
/// The fastest candidates of a task that are kept as hints.
const KEPT: usize = 2;
/// The logarithm of the least speed, relative to the task's best, that is learned; failures count
/// as this slow.
const SLOW: f64 = -2.0;
/// The formula is not taken to be wrong by more than this, as a logarithm.
const FAR_OFF: f64 = 3.0;
/// A second-fastest candidate that is slower than the fastest by more than this is no hint.
const NEARLY: f64 = 1.1;

/// The training data and its options.
#[derive(Clone, Debug)]
pub struct GeneralRequest {
    /// The stores.
    pub stores: Vec<PathBuf>,
    /// The machines whose records they hold.
    pub machines: Vec<KnownMachine>,
    /// Tasks that are left out, so that they can be asked about.
    pub without: BTreeSet<TaskId>,
    /// Of everything random.
    pub seed: u64,
}

/// Trains a general predictor. `said` is told what is done, and says whether to go on.
///
/// # Errors
/// Where a store cannot be read, a machine is not known, or nothing can be learned.
pub fn train_general(
    request: &GeneralRequest,
    said: &mut dyn FnMut(&str) -> bool,
) -> Result<Option<GeneralPredictor>, Error> {
    let (lessons, sources) = lessons(&request.stores, &request.machines, &request.without)?;
    if lessons.is_empty() {
        return Err(Error::Nothing(format!(
            "{} hold no tuned task of a CPU with two candidates that ran; `squall tune --store` \
             makes some",
            names(&request.stores)
        )));
    }
    let rows: usize = lessons.iter().map(|l| l.rows.len()).sum();
    if !said(&format!("{} tasks, {rows} candidates", lessons.len())) {
        return Ok(None);
    }
    let mut order = Vec::new();
    for fold in 0..FOLDS {
        let is_held = |l: &Lesson| u128::from(l.task.id.number()) % FOLDS == fold;
        let (held, taught): (Vec<&Lesson>, Vec<&Lesson>) = lessons.iter().partition(|l| is_held(l));
        if held.is_empty() || taught.is_empty() {
            continue;
        }
        let trees = fit(&taught, request.seed);
        order.extend(held.into_iter().map(|l| (l, scores(&trees, l))));
        if !said(&format!("part {} of {FOLDS} was held out", fold + 1)) {
            return Ok(None);
        }
    }
    let trees = fit(&lessons.iter().collect::<Vec<_>>(), request.seed);
    let provenance = Provenance {
        codegen: CODEGEN_VERSION,
        features: scheme(),
        width: lessons[0].rows[0].features.len(),
        stores: sources.iter().map(|s| store_facts(s, &lessons)).collect(),
        machines: machines(&lessons),
        without: request.without.len() as u64,
        records_until: day(sources.iter().map(|s| s.newest).fold(0.0, f64::max)),
        seed: request.seed,
        held: held(&order),
    };
    let winners = lessons.iter().flat_map(winners).collect();
    Ok(Some(GeneralPredictor { provenance, winners, trees: Arc::new(trees) }))
}

fn names(stores: &[PathBuf]) -> String {
    let all: Vec<String> = stores.iter().map(|s| format!("`{}`", s.display())).collect();
    all.join(", ")
}

/// Trees that order each lesson's candidates.
fn fit(lessons: &[&Lesson], seed: u64) -> Trees {
    let rows: Vec<&[f32]> =
        lessons.iter().flat_map(|l| &l.rows).map(|r| r.features.as_slice()).collect();
    let trees = |labels: Vec<f32>, seed: u64| {
        let mut trees = Gbdt::new(GbdtSettings {
            trees: 400,
            depth: 6,
            shrinkage: 0.06,
            row_share: 0.7,
            column_share: 0.5,
            ridge: 5.0,
            least: 8.0,
            loss: Loss::Squared,
            seed,
        });
        trees.fit(&rows, &labels);
        trees
    };
    // How near a candidate comes to its task's best; beyond SLOW it does not matter how near.
    let near = |l: &Lesson, r: &LessonRow| (l.rows[0].time / r.time).ln().max(SLOW) as f32;
    let rank = lessons.iter().flat_map(|l| l.rows.iter().map(|r| near(l, r))).collect();
    Trees { correction: trees(corrections(lessons), seed), rank: trees(rank, seed ^ 1) }
}

/// How much faster each candidate is than the cost formula says, as a logarithm; the mean of a
/// machine is its clock's and says nothing.
fn corrections(lessons: &[&Lesson]) -> Vec<f32> {
    let of = |l: &Lesson, r: &LessonRow| {
        let time = r.time.min(l.rows[0].time * (-SLOW).exp());
        f64::from(r.estimate) - time.ln()
    };
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for l in lessons {
        let sum = sums.entry(&l.device).or_default();
        sum.0 += l.rows.iter().map(|r| of(l, r)).sum::<f64>();
        sum.1 += l.rows.len() as f64;
    }
    let label = |l: &Lesson, r: &LessonRow| {
        let (sum, count) = sums[l.device.as_str()];
        (of(l, r) - sum / count).clamp(-FAR_OFF, FAR_OFF) as f32
    };
    lessons.iter().flat_map(|l| l.rows.iter().map(|r| label(l, r))).collect()
}

fn scores(trees: &Trees, lesson: &Lesson) -> Vec<f32> {
    let rows: Vec<&[f32]> = lesson.rows.iter().map(|r| r.features.as_slice()).collect();
    let estimates: Vec<f32> = lesson.rows.iter().map(|r| r.estimate).collect();
    trees.scores(&rows, &estimates)
}

/// The quality of scores: the best time over the first candidate's, and over the best of four's.
fn worth(lesson: &Lesson, scores: &[f32]) -> (f64, f64) {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let best = |n: usize| {
        let times = order.iter().take(n).map(|&i| lesson.rows[i].time);
        lesson.rows[0].time / times.fold(f64::INFINITY, f64::min)
    };
    // A failure costs as much as a kernel that is far too slow.
    (best(1).max(0.01), best(4).max(0.01))
}

fn held(order: &[(&Lesson, Vec<f32>)]) -> Held {
    let mean = |all: Vec<(f64, f64)>| {
        let n = all.len().max(1) as f64;
        let of = |pick: fn(&(f64, f64)) -> f64| {
            (all.iter().map(|w| pick(w).ln()).sum::<f64>() / n).exp()
        };
        let round = |x: f64| (x * 1e4).round() / 1e4;
        (round(of(|w| w.0)), round(of(|w| w.1)))
    };
    let formula = |l: &Lesson| -> Vec<f32> { l.rows.iter().map(|r| -r.estimate).collect() };
    Held {
        tasks: order.len() as u64,
        predictor: mean(order.iter().map(|(l, s)| worth(l, s)).collect()),
        formula: mean(order.iter().map(|(l, _)| worth(l, &formula(l))).collect()),
    }
}

fn store_facts(source: &LessonSource, lessons: &[Lesson]) -> StoreFacts {
    let of: Vec<&Lesson> =
        lessons.iter().filter(|l| source.tasks.contains(&(l.device.clone(), l.task.id))).collect();
    StoreFacts {
        name: source.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into()),
        tasks: of.len() as u64,
        candidates: of.iter().map(|l| l.rows.len() as u64).sum(),
    }
}

fn machines(lessons: &[Lesson]) -> Vec<MachineFacts> {
    let mut all: Vec<MachineFacts> = Vec::new();
    for l in lessons {
        let candidates = l.rows.len() as u64;
        match all.iter_mut().find(|m| m.device == l.device) {
            Some(m) => {
                m.tasks += 1;
                m.candidates += candidates;
            }
            None => all.push(MachineFacts {
                device: l.device.clone(),
                machine: l.machine.clone(),
                tasks: 1,
                candidates,
            }),
        }
    }
    all
}

fn winners(lesson: &Lesson) -> Vec<Winner> {
    let Machine::Cpu { vector_bytes, .. } = DeviceIdentity::parse(&lesson.device).machine else {
        return Vec::new();
    };
    let Some(shape) = TaskShape::of(&lesson.task.workload) else { return Vec::new() };
    let good = lesson.rows.iter().take(KEPT).filter(|r| r.time <= NEARLY * lesson.rows[0].time);
    let winner = |r: &LessonRow| Winner {
        shape: shape.clone(),
        vector_bytes,
        tunable: r.name.0.clone(),
        configuration: r.name.1.clone(),
    };
    good.map(winner).collect()
}

/// The day of a time in seconds since 1970, in UTC.
fn day(seconds: f64) -> String {
    // Days from civil dates, by Howard Hinnant: eras of 400 years that begin on March 1.
    let z = (seconds / 86_400.0).floor() as i64 + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::day;

    #[test]
    fn days_have_their_dates() {
        assert_eq!(day(0.0), "1970-01-01");
        assert_eq!(day(951_782_399.0), "2000-02-28");
        assert_eq!(day(951_782_400.0), "2000-02-29");
        assert_eq!(day(1_795_435_200.0), "2026-11-23");
    }
}
