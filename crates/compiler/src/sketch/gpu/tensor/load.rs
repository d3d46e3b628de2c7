//! Copies from device memory to shared memory in the sketches for tensor cores: the tile of a
//! factor for one step is copied into a stage of the pipeline, by the block's threads (`cp.async`)
//! or by the copy engine (`tma.rs`). Input: a factor, its shared buffer (`shared.rs`) and the
//! number of the step; output: statements for `program.rs`.

use super::super::loops::{around, count};
use super::super::span::Span;
use super::roles::{Factor, TileLayout};
use super::shared::SharedTile;
use super::tile::{Step, Tiling, guarded};
use crate::nest::{Mode, Stmt};
use squall_core::expr::{Affine, Cond};

impl Tiling<'_> {
    /// Copies a factor's tile for a step to one of the stages, or, where `piece` is given, only the
    /// part of it at one place of a dimension.
    pub fn load_factor(
        &mut self,
        which: usize,
        tile: &SharedTile,
        step: &Affine,
        stage: &Affine,
        piece: Option<&(usize, Affine)>,
    ) -> Vec<Stmt> {
        let f = self.factors[which].clone();
        let none = Affine::constant(0);
        let (mut all, mut still) = self.walk(step);
        still.resize(self.p.reduce.len(), none.clone());
        if self.tma {
            let step = Step { number: self.number(step), window: still };
            return self.tma_copies(&f, tile.from, tile.buffer, &step, stage);
        }
        let spans = self.spans(&f, step, &[], &still, &none);
        all.push(self.thread_copy(&f, tile, &spans, stage, piece));
        all
    }

    /// The statement by which the block's threads copy a factor's tile, or the part of it at one
    /// place of a dimension.
    fn thread_copy(
        &mut self,
        f: &Factor,
        t: &SharedTile,
        spans: &[Span],
        stage: &Affine,
        piece: Option<&(usize, Affine)>,
    ) -> Stmt {
        let o = self.operands[f.operand].clone();
        let planes = f.layout.gathered();
        let width = if planes { spans.last().map_or(1, |s| s.lanes) } else { self.depth / 2 };
        // Whole lines go from last to last dimension; where they turn, a lane takes a column of the
        // source.
        let across = planes || t.order.last() != Some(&t.along);
        let vector = if across { spans.len() - 1 } else { t.along };
        let lane = self.n.new_var("v");
        let (mut loops, mut at) = (Vec::new(), vec![Affine::constant(0); spans.len()]);
        let mut dims: Vec<usize> =
            (0..spans.len()).filter(|&d| spans[d].extent > 1 || d == vector).collect();
        if f.layout == TileLayout::Transposed {
            dims.sort_by_key(|&d| d != vector);
        }
        for d in dims {
            if let Some((_, place)) = piece.filter(|p| p.0 == d) {
                at[d] = place.clone();
                continue;
            }
            let x = self.n.new_var(&format!("x{d}"));
            if d == vector && width > 1 {
                loops.push((x, spans[d].extent / width));
                at[d] = Affine::new([(x, width), (lane, 1)], 0);
            } else {
                loops.push((x, spans[d].extent));
                at[d] = Affine::var(x);
            }
        }
        let global: Vec<Affine> =
            spans.iter().enumerate().map(|(d, s)| s.base.add(&at[d].scale(s.step))).collect();
        let packed = f.layout == TileLayout::Packed;
        let mut conds = if packed { Vec::new() } else { o.conds_at(&global) };
        if !packed && !f.filled && f.layout != TileLayout::Sliding && self.runs_over() {
            // The index leaves out groups that share the reduction's dimension.
            let rest =
                o.index[f.along].map_vars(|v| match self.p.axes.iter().position(|x| x.var == v) {
                    Some(a) => Affine::var(self.start[a]),
                    None => Affine::constant(0),
                });
            conds.push(Cond {
                index: global[f.along].add(&rest.scale(-1)),
                low: 0,
                high: self.p.reduce[0].extent,
            });
        }
        let element = o.value(t.from, &global);
        let index = t.index(stage, planes, |d| at[d].clone());
        let mut copy =
            vec![Stmt::Store { buffer: t.buffer, index, value: guarded(conds, element) }];
        if width > 1 {
            copy = vec![count(lane, width, Mode::Vector, copy)];
        }
        around(&loops, Mode::Share, copy).remove(0)
    }
}
