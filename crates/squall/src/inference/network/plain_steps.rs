//! The steps of a network that still run as plain C, with their share of the time and their bound:
//! plain operators, moves of data, and kernels that are plain loops. Input: a network and the times
//! of its steps; output: [`PlainSteps`], a short table of equal nodes, which `squall bench` and the
//! report of `squall tune` show. `step_work.rs` has the least work of each step.

use super::step_work::{StepWork, operands_of, work_of};
use super::{Layer, LayerKind, Network};
use crate::target::roof::Roof;
use squall_core::Nanos;
use std::collections::HashMap;

/// Rows with a smaller share of the time are summed in one.
const LEAST_SHARE: f64 = 0.005;

/// The word for kernels that are plain loops, since no better was made for their tasks.
const LOOPS: &str = "loops";

/// The nodes of a network that run as plain C.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlainSteps {
    /// Equal nodes in one row; the slowest row first.
    pub rows: Vec<PlainRow>,
    /// The nodes of all rows that would be too short to matter, if there are some.
    pub rest: Option<PlainTime>,
}

/// Nodes with the same operator over operands of the same types and extents.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainRow {
    /// How they run: `plain` (a plain operator), `move` (of data), or `loops` (a kernel that is
    /// plain loops).
    pub by: &'static str,
    /// Their operator, or the name of their task.
    pub op: String,
    /// The name of the first of them.
    pub node: String,
    /// Their time and work.
    pub time: PlainTime,
}

/// Some nodes' time in an inference, and their least work.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainTime {
    /// How many nodes.
    pub nodes: usize,
    /// Their time together.
    pub best_ns: u64,
    /// Their share of the time of all steps, from 0 to 1.
    pub share: f64,
    /// The work of each of their steps; nothing where the work of one step is not known.
    pub works: Option<Vec<StepWork>>,
}

impl PlainTime {
    /// The least time in which a machine can do it, step by step.
    pub fn bound(&self, roof: &Roof) -> Option<Nanos> {
        let works = self.works.as_ref()?;
        Some(Nanos(works.iter().map(|w| w.bound(roof).0).sum()))
    }

    /// The time divided by its bound; nothing where the bound is 0 or not known.
    pub fn times_bound(&self, roof: &Roof) -> Option<f64> {
        let bound = self.bound(roof)?.0;
        (bound > 0.0).then(|| self.best_ns as f64 / bound)
    }

    /// Operations and bytes of all its steps.
    pub fn totals(&self) -> Option<(u64, u64)> {
        let works = self.works.as_ref()?;
        let sum = |of: fn(&StepWork) -> u64| works.iter().map(of).fold(0, u64::saturating_add);
        Some((sum(|w| w.operations), sum(|w| w.bytes)))
    }

    fn add(&mut self, other: PlainTime) {
        self.nodes += other.nodes;
        self.best_ns += other.best_ns;
        self.share += other.share;
        self.works = self.works.take().zip(other.works).map(|(mut all, more)| {
            all.extend(more);
            all
        });
    }
}

impl PlainSteps {
    /// The time of all rows and of the rest.
    pub fn whole(&self) -> PlainTime {
        let works = Some(Vec::new());
        let mut whole = PlainTime { nodes: 0, best_ns: 0, share: 0.0, works };
        let rows = self.rows.iter().map(|row| &row.time);
        rows.chain(&self.rest).for_each(|time| whole.add(time.clone()));
        whole
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.rest.is_none()
    }

    /// Gathers equal nodes into rows, and rows with small shares into one.
    fn of(nodes: Vec<PlainNode>) -> PlainSteps {
        let mut rows: Vec<PlainRow> = Vec::new();
        let mut known: HashMap<(&'static str, String, String), usize> = HashMap::new();
        for n in nodes {
            let key = (n.row.by, n.row.op.clone(), n.operands);
            match known.get(&key) {
                Some(&at) => rows[at].time.add(n.row.time),
                None => {
                    known.insert(key, rows.len());
                    rows.push(n.row);
                }
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.time.best_ns));
        let shown = rows.iter().take_while(|row| row.time.share >= LEAST_SHARE).count();
        let rest = rows.split_off(shown).into_iter().map(|row| row.time);
        let rest = rest.reduce(|mut all, time| {
            all.add(time);
            all
        });
        PlainSteps { rows, rest }
    }
}

/// A node with the types and extents of its operands and results.
struct PlainNode {
    row: PlainRow,
    operands: String,
}

impl Network {
    /// The nodes of the network that run as plain C, with their times from those of all its steps.
    pub fn plain_steps(&self, layers: &[Layer]) -> PlainSteps {
        let total: u64 = layers.iter().map(|l| l.best_ns).sum();
        let mut nodes: Vec<PlainNode> = Vec::new();
        let mut known: HashMap<(&'static str, &str), usize> = HashMap::new();
        for (step, layer) in self.plan.steps.iter().zip(layers) {
            let Some(by) = self.plain_word(layer) else { continue };
            let works = work_of(&self.plan, step, &self.kernels).map(|work| vec![work]);
            let share = layer.best_ns as f64 / total.max(1) as f64;
            let time = PlainTime { nodes: 1, best_ns: layer.best_ns, share, works };
            let operands = operands_of(&self.plan, step);
            match known.get(&(by, layer.node.as_str())) {
                // A node may be several moves.
                Some(&at) => {
                    nodes[at].row.time.add(PlainTime { nodes: 0, ..time });
                    nodes[at].operands += &format!("; {operands}");
                }
                None => {
                    known.insert((by, layer.node.as_str()), nodes.len());
                    let (op, node) = (layer.name.clone(), layer.node.clone());
                    nodes.push(PlainNode { row: PlainRow { by, op, node, time }, operands });
                }
            }
        }
        PlainSteps::of(nodes)
    }

    /// How a step runs as plain C, if it does.
    fn plain_word(&self, layer: &Layer) -> Option<&'static str> {
        match layer.kind {
            LayerKind::Plain | LayerKind::Move => Some(layer.kind.name()),
            LayerKind::Kernel => {
                let kernel = self.kernels.iter().find(|k| Some(k.task.id) == layer.task)?;
                (kernel.origin.name() == "plain").then_some(LOOPS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::network::step_work::tests::roof;
    use crate::target::roof::Factors;

    fn node(op: &str, name: &str, best_ns: u64, bytes: Option<u64>) -> PlainNode {
        let work = |bytes| vec![StepWork { operations: 0, bytes, factors: Factors::Floats }];
        let time =
            PlainTime { nodes: 1, best_ns, share: best_ns as f64 / 1000.0, works: bytes.map(work) };
        let row = PlainRow { by: "plain", op: op.into(), node: name.into(), time };
        PlainNode { row, operands: format!("{bytes:?}") }
    }

    #[test]
    fn equal_nodes_share_a_row_and_short_ones_the_last() {
        let steps = PlainSteps::of(vec![
            node("Relu", "r", 3, Some(10)),
            node("TopK", "a", 40, Some(200)),
            node("LSTM", "l", 50, None),
            node("TopK", "b", 60, Some(200)),
            node("TopK", "c", 30, Some(100)),
            node("Sin", "s", 4, Some(20)),
        ]);
        let shown: Vec<(&str, &str, usize, u64)> = (steps.rows.iter())
            .map(|r| (r.op.as_str(), r.node.as_str(), r.time.nodes, r.time.best_ns))
            .collect();
        assert_eq!(shown, [("TopK", "a", 2, 100), ("LSTM", "l", 1, 50), ("TopK", "c", 1, 30)]);
        // 400 bytes at 10 a nanosecond.
        assert_eq!(steps.rows[0].time.bound(&roof()), Some(Nanos(40.0)));
        assert_eq!(steps.rows[0].time.times_bound(&roof()), Some(2.5));
        assert_eq!(steps.rows[0].time.totals(), Some((0, 400)));
        assert_eq!(steps.rows[1].time.bound(&roof()), None);
        assert_eq!(steps.rows[1].time.times_bound(&roof()), None);
        let rest = steps.rest.as_ref().unwrap();
        assert_eq!((rest.nodes, rest.best_ns, rest.bound(&roof())), (2, 7, Some(Nanos(3.0))));
        let whole = steps.whole();
        assert_eq!((whole.nodes, whole.best_ns, whole.bound(&roof())), (6, 187, None));
    }

    #[test]
    fn a_node_that_moves_nothing_has_no_ratio() {
        let steps = PlainSteps::of(vec![node("Relu", "r", 30, Some(0))]);
        assert_eq!(steps.rows[0].time.bound(&roof()), Some(Nanos(0.0)));
        assert_eq!(steps.rows[0].time.times_bound(&roof()), None);
        assert_eq!(steps.rest, None);
        let none = PlainSteps::of(Vec::new());
        assert!(none.is_empty() && none.whole().best_ns == 0);
        // Short ones alone are a rest.
        let rest = PlainSteps::of(vec![node("Relu", "r", 1, Some(8))]);
        assert!(rest.rows.is_empty() && !rest.is_empty());
    }
}
