//! The primitive `prefetch(buffer, lines)`: inserts prefetch hints for a buffer that a loop streams
//! through, about `lines` cache lines ahead.
//!
//! A hint lets the core wait for memory while it multiplies. Without hints it would not, because
//! its queue has no room for loads of hundreds of instructions later, and its own prefetcher stops
//! at the end of each page. `primitive.rs` lists and applies all primitives.

use super::structure::buffer;
use crate::nest::{Loop, Mode, Nest, Stmt, accesses};
use squall_core::expr::Affine;
use squall_core::workload::flatten;

/// Bytes of a cache line.
const LINE: i64 = 64;

/// Inserts hints at the start of the innermost loop that moves through `name`: one for each line
/// that an iteration reads, for the iteration about `lines` lines later.
pub fn prefetch(n: &mut Nest, name: &str, lines: i64) -> Result<(), String> {
    let b = buffer(n, name)?;
    if !n.buffer(b).scope.is_read_from_memory() {
        return Err(format!("`{name}` is not read from memory by the timed call"));
    }
    if lines < 1 {
        return Err("at least one line ahead".into());
    }
    let mut reads: Vec<Vec<Affine>> = accesses(&n.body)
        .iter()
        .filter(|a| a.buffer == b && a.read)
        .map(|a| a.index.to_vec())
        .collect();
    reads.dedup();
    let [index] = &reads[..] else {
        return Err(format!("`{name}` is read in {} places", reads.len()));
    };
    let at = flatten(index, &n.buffer(b).shape);
    let mut path = Vec::new();
    super::pack::path_to(&n.body, b, &mut path);
    let runs = |l: &Loop| matches!(l.mode, Mode::Serial | Mode::Parallel) && l.extent > 1;
    let Some(home) = path.iter().rposition(|l| runs(l) && l.moves(&at)) else {
        return Err(format!("no loop moves through `{name}`"));
    };
    let (home, inside) = (&path[home], &path[home + 1..]);
    let bytes = n.buffer(b).dtype.bytes() as i64;
    // These loops visit the cache lines that one iteration reads. Loops that are written out stay,
    // in steps of a line where theirs are shorter; the first lane of a vector stands for all of its
    // lanes.
    let mut ahead = at.clone();
    let mut hints: Vec<Loop> = Vec::new();
    for l in inside.iter().filter(|l| l.moves(&at)) {
        if l.start.is_some() {
            return Err(format!(
                "`{}` counts tiles inside of the loop that moves through `{name}`",
                n.vars[l.var.0 as usize]
            ));
        }
        let per_line = (LINE / (at.coefficient(l.var).abs() * bytes)).max(1);
        let extent = (l.extent + per_line - 1) / per_line;
        if l.mode == Mode::Vector || extent == 1 {
            ahead = ahead.substitute(l.var, &Affine::constant(0));
            continue;
        }
        let var = n.new_var(&format!("{}_ahead", n.vars[l.var.0 as usize].clone()));
        ahead = ahead.substitute(l.var, &Affine::var(var).scale(per_line));
        hints.push(Loop { var, extent, mode: Mode::Unroll, start: None, body: Vec::new() });
    }
    let each: i64 = hints.iter().map(|l| l.extent).product();
    let iterations = (lines / each).max(1);
    let step = at.coefficient(home.var) + home.start.map_or(0, |s| at.coefficient(s.var) * s.step);
    let hint = Stmt::Prefetch { buffer: b, at: ahead.plus(iterations * step) };
    let body =
        hints.into_iter().rev().fold(vec![hint], |body, l| vec![Stmt::Loop(Loop { body, ..l })]);
    n.replace_loop(home.var, &mut |mut l| {
        l.body.splice(0..0, body.iter().cloned());
        vec![Stmt::Loop(l)]
    });
    Ok(())
}
