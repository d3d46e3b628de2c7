//! Times whole inferences of a built network, and of other libraries (`peers/`) in the same rounds.
//! Input: a network with its inputs, seconds, and libraries; output: an [`Inference`]. The time is
//! divided into rounds in which all take turns, so that a slow moment of the machine meets all
//! alike. `inference/bench.rs` and `decide/tune.rs` call it.

use crate::base::error::Error;
use crate::inference::network::{Network, Times};
use crate::inference::peers::{Library, Peer, Running};
use crate::inference::timed::Inference;
use crate::input::arrays::NamedArray;
use crate::input::user_input::Input;
use crate::task::event::{Event, Listen};
use squall_core::Nanos;

/// The number of rounds, where other libraries are timed beside Squall.
const ROUNDS: usize = 5;

/// A model that is timed, with its inputs.
pub struct Timed<'a> {
    pub input: &'a Input,
    /// The program that was built of it.
    pub network: &'a Network,
    pub inputs: &'a [NamedArray],
}

/// Times a model for `seconds`, and each library for as long. Returns the inference's times,
/// Squall's outputs and the times of the layers.
pub fn time_beside(
    timed: &Timed<'_>,
    seconds: f64,
    libraries: &[Library],
    threads: usize,
    listen: &mut Listen<'_>,
) -> Result<(Vec<NamedArray>, Times, Inference), Error> {
    let Timed { input, network, inputs } = *timed;
    let mut running: Vec<(Library, Result<Running, String>)> = Vec::new();
    for &library in libraries {
        listen(Event::Note(format!("{} loads the model", library.name())));
        running.push((library, Running::load(library, input, inputs, threads)));
    }
    let rounds = if running.iter().any(|(_, r)| r.is_ok()) { ROUNDS } else { 1 };
    let each = seconds / rounds as f64;
    let mut all: Option<(Vec<NamedArray>, Vec<Times>)> = None;
    for _ in 0..rounds {
        for (_, peer) in &mut running {
            if let Ok(r) = peer
                && let Err(why) = r.time(each)
            {
                *peer = Err(why);
            }
        }
        let (outputs, times) = network.time(inputs, each)?;
        all.get_or_insert_with(|| (outputs, Vec::new())).1.push(times);
    }
    let Some((outputs, times)) = all.and_then(|(o, t)| Some((o, joined(t)?))) else {
        return Err(Error::Nothing("the network was not timed".into()));
    };
    let beside = running.into_iter().map(|(library, peer)| match peer {
        Ok(r) => r.finish(outputs.first().map(|(_, y)| y)),
        Err(why) => Peer { library, times: Err(why) },
    });
    let beside = beside.collect();
    let inference = Inference {
        best: Nanos(times.best_ns as f64),
        median: Nanos(times.median_ns as f64),
        inferences: times.inferences,
        kernels: network.counts(),
        graph: network.kernel_graph(&times.layers),
        plain: network.plain_steps(&times.layers),
        beside,
    };
    Ok((outputs, times, inference))
}

/// The times of several rounds as those of one.
fn joined(rounds: Vec<Times>) -> Option<Times> {
    let mut medians: Vec<u64> = rounds.iter().map(|t| t.median_ns).collect();
    medians.sort_unstable();
    let median_ns = *medians.get(medians.len() / 2)?;
    let all = rounds.into_iter().reduce(|mut all, one| {
        all.best_ns = all.best_ns.min(one.best_ns);
        all.inferences += one.inferences;
        if let (Some(a), Some(b)) = (&mut all.host, one.host) {
            a.best_ns = a.best_ns.min(b.best_ns);
            a.median_ns = a.median_ns.min(b.median_ns);
            a.inferences += b.inferences;
        }
        for (a, b) in all.layers.iter_mut().zip(&one.layers) {
            a.best_ns = a.best_ns.min(b.best_ns);
            a.in_place_ns = a.in_place_ns.min(b.in_place_ns);
        }
        all
    })?;
    Some(Times { median_ns, ..all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::network::Layer;

    fn times(best_ns: u64, median_ns: u64, layer: u64) -> Times {
        let layer = Layer {
            node: "n".into(),
            name: "l".into(),
            kind: crate::inference::network::LayerKind::Move,
            task: None,
            best_ns: layer,
            in_place_ns: layer + 1,
        };
        Times { best_ns, median_ns, inferences: 3, host: None, layers: vec![layer] }
    }

    #[test]
    fn rounds_are_joined() {
        assert_eq!(joined(Vec::new()), None);
        let all = vec![times(10, 14, 9), times(8, 30, 7), times(11, 12, 8)];
        assert_eq!(joined(all), Some(Times { inferences: 9, ..times(8, 14, 7) }));
    }
}
