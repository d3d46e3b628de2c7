//! Attention as one GPU kernel: two products with a softmax between them. After FlashAttention (Dao
//! et al., 2022; Dao, 2023). Input: a workload (a tensor expression) that `problem.rs` recognises
//! as attention; output: the sketch of this file, by plain threads, and two more for 16-bit tensors
//! by tensor cores.
//!
//! A block computes a tile of rows of one head and walks through the keys tile by tile: the scores
//! of a tile stay in registers, their powers in shared memory, and no score goes through device
//! memory. For each row the largest score so far and the sum of powers are kept; where a tile has a
//! larger score, earlier sums are scaled down (online softmax). A thread has `m_i` rows next to
//! each other, `n_i` scores of each, and its share of the columns of the output.
//!
//! In the sketches by tensor cores powers stay in registers as well: `tensor` gives rows to warps
//! (`mma.sync`), `warpgroup` to warpgroups (`wgmma`), and `rows` holds the softmax steps that their
//! threads have in common. `program` writes the loop nest of the sketch by plain threads.

mod problem;
mod program;
mod rows;
mod tensor;
mod warpgroup;

use super::super::{Draft, Facts, divisors, overlap_at_most, powers};
use super::Program;
use super::resources::Block;
use problem::{Attention, problem};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Gpu, Space};
use std::sync::Arc;

/// The initial value of a row's largest score: no finite score is less, and the power of a
/// difference to it is 0 and not NaN, as it would be with an infinity.
const LEAST: f64 = f32::MIN as f64;

/// The most sums of each of the two products that a thread holds in registers.
const MOST_SUMS: i64 = 64;

/// The sketches of attention: by warpgroups, by warps and by plain threads.
pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    let Some(p) = problem(f.workload).map(Arc::new) else { return Vec::new() };
    let by_matrices = [warpgroup::derive(&p, gpu), tensor::derive(&p, gpu)];
    let Some(space) = space(&p, gpu) else { return Vec::new() };
    let make = move |c: &squall_core::Configuration| program::program(&p, c);
    let plain = Program { name: "gpu_attention".into(), space, gpu, make: Box::new(make) };
    by_matrices.into_iter().flatten().chain([plain]).collect()
}

/// The space of the sketch by plain threads.
fn space(p: &Attention, gpu: Gpu) -> Option<Space> {
    let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
    let (rows, keys, columns) = (p.row.1, p.key.1, p.column.1);
    let across = divisors(columns).into_iter().filter(|d| *d <= 64 && d.count_ones() == 1);
    let knobs = vec![
        Knob::ints("m_t", tile("m", 0), powers(1, rows.min(64))),
        Knob::ints("m_i", tile("m", 1), 1..=8.min(rows)),
        Knob::ints("n_t", tile("n", 0), across),
        Knob::ints("n_i", tile("n", 1), [1, 2, 3, 4, 8]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
        Knob::ints("vector", Role::Vector, [1, 4]),
        Knob::ints("pad", Role::Layout, [0, 1, 4]),
    ];
    let mut d = Draft { knobs, ..Draft::default() };
    let knobs = |names: &[&str]| Term::product(names.iter().map(|k| Term::knob(*k)));
    d.must.push(knobs(&["m_t", "m_i"]).at_most(rows));
    d.must.push(knobs(&["m_i", "n_i"]).at_most(MOST_SUMS));
    let (own, most) = (knobs(&["m_i"]), MOST_SUMS);
    let of_output = Term::product([own, Term::from(columns).ceil_div(Term::knob("n_t"))]);
    d.must.push(of_output.at_most(most));
    // A tile that is longer than all keys together is empty in half of its places at most.
    d.must.push(knobs(&["n_t", "n_i"]).at_most((2 * keys).max(columns)));
    d.should.push(overlap_at_most(rows, || knobs(&["m_t", "m_i"]), 4));
    let threads = knobs(&["m_t", "n_t"]);
    // Fewer threads wait for memory, and fewer scores of a thread read as much for each as they
    // multiply.
    d.should.push(Term::from(128.min(rows)).at_most(threads.clone()));
    d.should.push(Term::from(16).at_most(knobs(&["m_i", "n_i"])));
    d.should.push(Term::from(3.min(rows)).at_most(Term::knob("m_i")));
    let with_pad = |t: Term| Term::sum([t, Term::knob("pad")]);
    let (tall, wide) = (|| knobs(&["m_t", "m_i"]), || knobs(&["n_t", "n_i"]));
    let bytes = |depth: Term, lines: Term| Term::product([depth, with_pad(lines), Term::from(4)]);
    let shared = Term::sum([
        bytes(Term::from(p.depth.1), tall()),
        bytes(Term::from(p.depth.1), wide()),
        bytes(wide(), Term::from(columns)),
        bytes(wide(), tall()),
        bytes(Term::knob("n_t"), tall()),
    ]);
    d.must.extend(Block { threads, registers: None, shared: vec![shared] }.fits(gpu));
    d.open()
}
