//! Prints copies by a GPU's copy engine (TMA tiles, compute capability 9.0) and loads of matrices
//! from the swizzled rows that they fill. Input: a loop of the mode `tma`, which `nest/tma_tile.rs`
//! reads; output: a call of `tma_copy` and a tensor map among the launch's arguments.
//!
//! One thread asks for a TMA tile; its bytes are counted by a barrier in shared memory. Batches of
//! copies are numbered as they are committed: batch `i` uses barrier `i % 8` in its `i / 8`-th
//! phase, so that no more than eight batches may be on their way.

use super::printer::Printer;
use super::state::ROUND;
use crate::gcd;
use crate::nest::{self, Loop, Mode, Scope, Stmt};
use squall_core::expr::{Affine, Source, Var};
use squall_core::{Mapped, TensorMap};

/// The 16-bit elements in a row of 128 bytes, and in the eight rows that are swizzled as one.
const ROW: i64 = 64;
const EIGHT_ROWS: i64 = 8 * ROW;
/// A bound in elements: the addresses that lanes load a matrix from differ by less.
const LANES: i64 = 16;

impl Printer<'_> {
    /// Prints loops that copy a TMA tile.
    pub(super) fn tma_tile(&mut self, l: &Loop) {
        // The verifier made sure that it is one.
        let Ok(tile) = nest::tma_tile(self.n, l) else { return };
        let source = self.n.buffer(tile.from);
        let bytes = source.dtype.bytes();
        let memory = match source.scope {
            Scope::Data(i) => Mapped::Data(i as u32),
            Scope::Prepared => Mapped::Prepared(self.simt.prepared[&tile.from]),
            _ => Mapped::Workspace(self.simt.prepared[&tile.from]),
        };
        let all = || tile.dimensions.iter();
        let map = TensorMap {
            memory,
            extents: all().map(|s| s.extent as u64).collect(),
            strides: all().skip(1).map(|s| s.stride as u64 * bytes).collect(),
            spanned: all().map(|s| s.spanned() as u32).collect(),
            steps: all().map(|s| s.step as u32).collect(),
        };
        let number = self.simt.maps.iter().position(|m| *m == map).unwrap_or_else(|| {
            self.simt.maps.push(map);
            self.simt.maps.len() - 1
        });
        let to = self.at(tile.to, &tile.at, &self.offset(tile.to, &tile.at));
        let first: Vec<String> = all().map(|s| self.affine(&self.fold(&s.first))).collect();
        self.helper("tma");
        let text = format!(
            "tma_copy(&{to}, map{number}, arrived + (copied & 7), {}, {});",
            tile.bytes,
            first.join(", ")
        );
        self.line(&text);
    }

    /// Statements in order; neighbouring TMA tiles are asked for together.
    pub(super) fn thread_statements(&mut self, stmts: &[Stmt]) {
        let is_tile = |s: &Stmt| matches!(s, Stmt::Loop(l) if l.mode == Mode::Tma);
        for part in stmts.chunk_by(|a, b| is_tile(a) && is_tile(b)) {
            let tiles = is_tile(&part[0]);
            if tiles {
                self.open("if (asks && elected()) {");
            }
            part.iter().for_each(|s| self.statement(s));
            if tiles {
                self.close();
            }
        }
    }

    /// Ends a batch of copies.
    pub(super) fn commit(&mut self) {
        if self.simt.copying {
            self.copies("copies_commit();");
        }
        if self.simt.tma {
            self.line("if (asks && elected()) tma_commit(arrived + (copied & 7));");
            self.line("copied++;");
        }
    }

    /// Waits for all batches of copies but the last `last`.
    pub(super) fn await_copies(&mut self, last: u32) {
        if self.simt.copying {
            self.copies(&format!("copies_await<{last}>();"));
        }
        if self.simt.tma {
            // Each of these waits for one batch; the interpreter refuses programs that await two.
            self.line("tma_await(arrived + (seen & 7), seen >> 3 & 1);");
            self.line("seen++;");
        }
    }

    /// The address in swizzled rows of what a lane reads of a matrix. The thread's own part of it
    /// is kept through the steps of a loop, because what moves changes other bits of the address,
    /// or whole eights of rows.
    pub(super) fn kept_swizzled(&mut self, b: Source, index: &[Affine]) -> Option<String> {
        if self.n.buffer(b).scope != Scope::Swizzled || !self.keeps() {
            return None;
        }
        let off = self.offset(b, index);
        let (still, moving) = self.parted(&off);
        let multiple = |v: &Var| {
            if self.simt.dealt.contains_key(v) {
                self.simt.rounds.get(v).copied().unwrap_or(1)
            } else {
                1
            }
        };
        let (far, near): (Vec<_>, Vec<_>) =
            moving.terms().iter().copied().partition(|t| t.1 * multiple(&t.0) % EIGHT_ROWS == 0);
        let rest = moving.offset().rem_euclid(ROW);
        let apart = near.iter().all(|t| t.1 == 1 && multiple(&t.0) % LANES == 0)
            && near.len() + usize::from(rest > 0) < 2;
        if !apart
            || rest % LANES != 0
            || (moving.offset() - rest) % EIGHT_ROWS != 0
            || still.terms().is_empty()
        {
            return None;
        }
        self.helper("swizzled");
        // One for each pair of a row's eight pieces of 16 bytes.
        let name = self.keep(
            |f| f.at(b, index, &still),
            |name, place| format!("unsigned {name}[4]; lines_at({name}, &{place});"),
        );
        let far =
            Affine::new(far, moving.offset() - rest).scale(self.n.buffer(b).dtype.bytes() as i64);
        let [near, far] =
            [Affine::new(near, rest), far].map(|a| self.by_part(ROUND, |f| f.affine(&a)));
        Some(format!("{name}[({near}) / {LANES}] + ({far})"))
    }

    /// Splits a row's number that two digits count, blocks of 64 and the place in one, into the
    /// part that depends on the thread and the rest, if they do not carry. `own` and `rest` are the
    /// parts of the count without the lane's, which is `lane`.
    pub(super) fn dealt_blocks(
        &mut self,
        [block, place]: [Var; 2],
        own: &Affine,
        rest: &Affine,
        lane: &str,
    ) {
        let common = |a: &Affine| a.terms().iter().fold(a.offset(), |g, t| gcd(g, t.1));
        let reach =
            |t: &(Var, i64)| self.simt.ranges.get(&t.0).filter(|_| t.1 > 0).map(|r| t.1 * (r - 1));
        let Some(furthest) = rest.terms().iter().map(reach).sum::<Option<i64>>() else { return };
        // The thread's part contains no whole blocks.
        let unit = if common(own) == 0 { ROW } else { common(own) };
        let inside = ROW % unit == 0 && furthest + rest.offset() + LANES <= unit;
        if common(rest) % LANES != 0 || rest.offset() < 0 || !(unit % ROW == 0 || inside) {
            return;
        }
        let [own, rest] = [own, rest].map(|a| self.affine(a));
        let parts = if unit % ROW == 0 {
            [
                [format!("({rest}) / {ROW}"), format!("({own}) / {ROW}")],
                [format!("({rest}) % {ROW}"), lane.to_string()],
            ]
        } else {
            [
                [String::new(), format!("({own}) / {ROW}")],
                [rest, format!("({own}) % {ROW} + {lane}")],
            ]
        };
        let [blocks, places] = parts;
        self.simt.dealt.extend([(block, blocks), (place, places)]);
        self.simt.rounds.insert(place, LANES);
    }
}
