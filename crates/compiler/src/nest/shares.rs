//! Loops that CPU threads share (`Mode::Parallel`), as the interpreter (`interpret.rs`) runs and
//! checks them. The iterations are dealt in shares; the interpreter runs the shares in reverse
//! order and reports an error where two shares touch one element and either writes it. A loop nest
//! that passes therefore means the same in every order and however its threads interleave.

use super::{Buffer, Loop, chain};
use squall_core::expr::Source;
use std::cell::RefCell;

/// The loops whose iterations are dealt together when threads share `top`, outermost first: `top`
/// and the loops directly nested in it, as the emitter prints them.
pub fn shared_chain(top: &Loop) -> Vec<&Loop> {
    let mut all = chain(top);
    let end = all.iter().skip(1).position(|l| l.extent == 1);
    all.truncate(end.map_or(all.len(), |at| at + 1));
    all
}

/// The iterations of a chain's loops, share by share: the shares in reverse, the iterations of each
/// in order.
pub(super) fn in_shares(chain: &[&Loop]) -> Vec<(u32, Vec<i64>)> {
    let mut all = vec![(0, Vec::new())];
    for l in chain {
        let next = |(share, at): &(u32, Vec<i64>)| {
            let (share, at) = (*share, at.clone());
            (0..l.extent).map(move |i| {
                let own = i.min(l.shares() - 1) as u32;
                (share * l.shares() as u32 + own, [at.clone(), vec![i]].concat())
            })
        };
        all = all.iter().flat_map(next).collect();
    }
    all.sort_by_key(|(share, _)| std::cmp::Reverse(*share));
    all
}

/// The share that last wrote an element, and the last two that read it; 0 for none.
#[derive(Clone, Copy, Default)]
struct Touched {
    writer: u32,
    readers: [u32; 2],
}

/// Which shares touched which elements of each buffer in the loop that is being shared.
#[derive(Default)]
pub(super) struct Shares {
    /// The share that runs, from 1; 0 outside of shared loops.
    running: u32,
    /// The first share of this loop: what lower ones touched lies behind a barrier.
    first: u32,
    /// The last number that was given to a share.
    last: u32,
    elements: RefCell<Vec<Vec<Touched>>>,
    conflict: RefCell<Option<(Source, usize)>>,
}

impl Shares {
    /// Whether a share runs.
    pub fn is_running(&self) -> bool {
        self.running > 0
    }

    /// A loop begins that threads share in `shares` parts.
    pub fn begin(&mut self, shares: i64) {
        self.first = self.last + 1;
        self.last += shares as u32;
    }

    /// One of its shares runs, by its number from 0; none, when the loop has ended.
    pub fn run(&mut self, share: Option<u32>) {
        self.running = share.map_or(0, |s| self.first + s);
    }

    /// The running share has elements of its own of a buffer.
    pub fn declared(&self, b: Source) {
        if let Some(elements) = self.elements.borrow_mut().get_mut(b.0 as usize) {
            elements.fill(Touched::default());
        }
    }

    /// The running share touches an element.
    pub fn touch(&self, b: Source, at: usize, writes: bool) {
        let (own, first) = (self.running, self.first);
        if own == 0 {
            return;
        }
        let mut elements = self.elements.borrow_mut();
        if elements.len() <= b.0 as usize {
            elements.resize(b.0 as usize + 1, Vec::new());
        }
        let buffer = &mut elements[b.0 as usize];
        if buffer.len() <= at {
            buffer.resize(at + 1, Touched::default());
        }
        let e = &mut buffer[at];
        let is_other = |share: u32| share >= first && share != own;
        if is_other(e.writer) || (writes && e.readers.into_iter().any(is_other)) {
            self.conflict.borrow_mut().get_or_insert((b, at));
        }
        match writes {
            true => e.writer = own,
            false if e.readers[0] != own => e.readers = [own, e.readers[0]],
            false => {}
        }
    }

    /// An error where two shares met.
    pub fn check(&self, buffers: &[Buffer]) -> Result<(), String> {
        match *self.conflict.borrow() {
            None => Ok(()),
            Some((b, at)) => Err(format!(
                "threads that share a loop meet at element {at} of `{}`, which one of them writes",
                buffers[b.0 as usize].name
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::nest::{parse, try_interpret};

    /// Rows of 7 by tiles of 4, the last of which begins at 3.
    fn tiles(body: &str) -> String {
        format!(
            "nest rows\ndata X: f32[7, 3]\nworkspace T: f32[7]\noutput Y: f32[7]\n{{\n  parallel \
             mo in 2 at m = 4*mo cap 3 {{\n{body}  }}\n}}\n"
        )
    }

    #[test]
    fn a_tile_that_was_moved_back_is_its_neighbours_share() {
        let text = tiles(
            "    for mi in 4 {\n      Y[m + mi] = 0\n      for k in 3 {\n        Y[m + mi] += \
             X[m + mi, k]\n      }\n    }\n",
        );
        let data = vec![(0..21).map(f64::from).collect::<Vec<_>>()];
        let sums: Vec<f64> = (0..7).map(|i| f64::from(9 * i + 3)).collect();
        let nest = parse(&text).expect("parses");
        assert_eq!(try_interpret(&nest, &data, &[]), Ok(sums));
    }

    #[test]
    fn threads_that_meet_are_found() {
        let data = vec![vec![1.0; 21]];
        for (body, buffer) in [
            // A tile of four rows at every third.
            ("    for mi in 4 {\n      Y[mi + 3*mo] = 0\n    }\n", "Y"),
            ("    Y[0] = X[m, 0]\n", "Y"),
            ("    T[0] = X[m, 0]\n    Y[m] = T[0]\n", "T"),
            ("    T[m] = X[m, 0]\n    Y[m] = T[3]\n", "T"),
        ] {
            // Two tiles, the last of which was moved back, are one share, whatever they touch.
            let one = parse(&tiles(
                &body.replace("mi in 4 {\n      Y[mi + 3*mo]", "mi in 4 {\n      Y[mi + m]"),
            ));
            assert!(try_interpret(&one.expect("parses"), &data, &[]).is_ok(), "{body}");
            let text = tiles(body).replace("2 at m = 4*mo cap 3", "2 at m = 3*mo cap 3");
            let nest = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let why = try_interpret(&nest, &data, &[]).expect_err("they meet");
            assert!(why.contains(&format!("of `{buffer}`")), "{why}");
        }
    }
}
