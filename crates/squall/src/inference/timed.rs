//! The measured time of whole inferences of a model, beside the times of other libraries in the
//! same rounds. `timing.rs` fills an [`Inference`]; reports (JSON and page) and `squall bench` show
//! it.

use crate::inference::kernel_graph::KernelGraph;
use crate::inference::network::PlainSteps;
use crate::inference::peers::Peer;
use crate::predict::counts::KernelCounts;
use squall_core::Nanos;

/// Whole inferences, timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// Squall's fastest inference.
    pub best: Nanos,
    /// The median of Squall's inferences.
    pub median: Nanos,
    /// The number of Squall's inferences.
    pub inferences: u64,
    /// How many of the kernels are tuned, guessed, or plain loops.
    pub kernels: KernelCounts,
    /// Which operators became which kernels, with their times.
    pub graph: KernelGraph,
    /// The nodes that still run as plain C.
    pub plain: PlainSteps,
    /// The other libraries' times in the same rounds, in the order of the request.
    pub beside: Vec<Peer>,
}

impl Inference {
    /// How many times faster than a library it is.
    pub fn ratio(&self, peer: &Peer) -> Option<f64> {
        let theirs = peer.times.as_ref().ok()?.best_ns;
        Some(theirs as f64 / self.best.0.max(1.0))
    }

    /// A line for each library.
    pub fn notes(&self) -> Vec<String> {
        let note = |p: &Peer| match (&p.times, self.ratio(p)) {
            (Ok(t), Some(ratio)) => {
                let (best, median) = (Nanos(t.best_ns as f64), Nanos(t.median_ns as f64));
                let differs = match t.error {
                    Some(e) if e <= 1e-2 => String::new(),
                    Some(e) => format!("; its output differs from ours by {:.2} %", e * 100.0),
                    None => "; its output has another shape than ours".into(),
                };
                format!(
                    "beside {} {}: best {best}, median {median} of {} inferences; ours is {:.2}x \
                     as fast{differs}",
                    p.library.name(),
                    t.version,
                    t.inferences,
                    ratio
                )
            }
            (Err(why), _) => format!("beside {}: no time; {why}", p.library.name()),
            _ => format!("beside {}: no time", p.library.name()),
        };
        self.beside.iter().map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::peers::{Library, PeerTimes};

    #[test]
    fn a_library_is_named_with_its_time_or_with_what_it_lacks() {
        let peer = |times| Peer { library: Library::OnnxRuntime, times };
        let theirs = PeerTimes {
            version: "1.2".into(),
            best_ns: 20,
            median_ns: 21,
            inferences: 4,
            error: Some(0.5),
        };
        let beside = vec![peer(Ok(theirs)), peer(Err("no Python".into()))];
        let (best, median) = (Nanos(10.0), Nanos(11.0));
        let kernels = KernelCounts::default();
        let (graph, plain) = (KernelGraph::default(), PlainSteps::default());
        let i = Inference { best, median, inferences: 3, kernels, graph, plain, beside };
        assert_eq!(i.ratio(&i.beside[0]), Some(2.0));
        let notes = i.notes();
        assert!(notes[0].contains("2.00x") && notes[0].contains("differs"), "{notes:?}");
        assert!(notes[1].contains("no Python"), "{notes:?}");
    }
}
