//! Chooses a configuration for a range of extents by what the general predictor expects of it at
//! several. Input: a configuration to start from, and the task with its sketch at some extents;
//! output: the configuration near it that is expected to be fastest over all of them. A tile that
//! suits the one extent where the kernel was chosen may cost others a last tile that overlaps the
//! one before by most of itself.

use crate::predict::general::{GeneralPredictor, expected_speeds};
use squall_compiler::on_all_cores;
use squall_core::{Configuration, Target, Tunable, Workload};
use std::sync::Arc;

/// A configuration is left for one that is expected to be faster by this part.
const LEAST_GAIN: f32 = 0.03;
/// How many knobs may get other values, one after the other.
const MOST_STEPS: usize = 4;

/// A task and its sketch at one extent.
pub struct TaskAt {
    /// The task.
    pub workload: Workload,
    /// The sketch.
    pub tunable: Arc<dyn Tunable>,
}

/// What is known of speeds before anything is timed.
pub struct Speeds<'a> {
    /// The predictor; none where the cost formula alone is asked.
    pub general: Option<Arc<GeneralPredictor>>,
    /// The target.
    pub target: &'a Target,
}

impl Speeds<'_> {
    /// The configuration that is expected to be fastest over some extents, of those that are legal
    /// at all of them, near `from`, and taken. `from` where that is not legal.
    pub fn fastest(&self, from: &str, all: &[TaskAt], is_taken: &dyn Fn(&str) -> bool) -> String {
        let mut best = from.to_string();
        let Some(Some(mut speed)) = self.of(&[best.clone()], all).pop() else { return best };
        for _ in 0..MOST_STEPS {
            let near = neighbours(&best);
            let speeds = self.of(&near, all);
            let mut ranked: Vec<(f32, String)> =
                near.into_iter().zip(speeds).filter_map(|(c, s)| Some((s?, c))).collect();
            ranked.retain(|(s, _)| *s > speed + LEAST_GAIN);
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            let Some(found) = ranked.into_iter().find(|(_, c)| is_taken(c)) else { break };
            (speed, best) = found;
        }
        best
    }

    /// The mean of each configuration's logarithms of speeds; none where it is not legal at one of
    /// the extents.
    fn of(&self, configurations: &[String], all: &[TaskAt]) -> Vec<Option<f32>> {
        let at = on_all_cores(all, |t| self.at(configurations, t));
        let mean = |i: usize| {
            let sum: Option<f32> = at.iter().map(|speeds| speeds[i]).sum();
            sum.filter(|_| !at.is_empty()).map(|s| s / at.len() as f32)
        };
        (0..configurations.len()).map(mean).collect()
    }

    /// The logarithms of speeds at one extent.
    fn at(&self, configurations: &[String], t: &TaskAt) -> Vec<Option<f32>> {
        let features: Vec<Option<Vec<f32>>> = (configurations.iter())
            .map(|c| Some(t.tunable.features(&legal(t.tunable.as_ref(), c)?)))
            .map(|f| f.filter(|f| !f.is_empty()))
            .collect();
        let rows: Vec<Vec<f32>> = features.iter().flatten().cloned().collect();
        let general = self.general.as_deref();
        let mut speeds = expected_speeds(general, &t.workload, self.target, &rows).into_iter();
        features.iter().map(|f| f.as_ref().and_then(|_| speeds.next())).collect()
    }
}

/// The configuration of a text, if it is legal.
pub fn legal(tunable: &dyn Tunable, configuration: &str) -> Option<Configuration> {
    let own = tunable.space().nearest(configuration)?;
    agrees(&own.to_string(), configuration).then_some(own)
}

/// Whether two configurations have the same value of each knob that both have: an axis may be too
/// short for one.
fn agrees(a: &str, b: &str) -> bool {
    a.split(',').filter_map(|p| p.split_once('=')).all(|(knob, value)| {
        let other = b.split(',').filter_map(|p| p.split_once('=')).find(|(k, _)| *k == knob);
        other.is_none_or(|(_, v)| v == value)
    })
}

/// Configurations that differ in the number of one knob.
fn neighbours(configuration: &str) -> Vec<String> {
    let pairs: Vec<&str> = configuration.split(',').collect();
    let mut all = Vec::new();
    for (i, pair) in pairs.iter().enumerate() {
        let Some((knob, value)) = pair.split_once('=') else { continue };
        let Ok(n) = value.parse::<i64>() else { continue };
        let mut others = vec![1, n / 2, n - 2, n - 1, n + 1, n + 2, n * 2];
        others.sort_unstable();
        others.dedup();
        for other in others.into_iter().filter(|o| *o >= 1 && *o != n) {
            let mut pairs: Vec<String> = pairs.iter().map(|p| p.to_string()).collect();
            pairs[i] = format!("{knob}={other}");
            all.push(pairs.join(","));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_in_one_number() {
        assert_eq!(
            neighbours("a=4,b=x,c=1"),
            [
                "a=1,b=x,c=1",
                "a=2,b=x,c=1",
                "a=3,b=x,c=1",
                "a=5,b=x,c=1",
                "a=6,b=x,c=1",
                "a=8,b=x,c=1",
                "a=4,b=x,c=2",
                "a=4,b=x,c=3"
            ]
        );
    }

    #[test]
    fn configurations_agree_where_both_have_a_knob() {
        assert!(agrees("a=1,b=2", "b=2,c=3"));
        assert!(!agrees("a=1,b=2", "b=3"));
    }
}
