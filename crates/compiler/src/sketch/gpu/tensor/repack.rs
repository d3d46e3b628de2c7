//! Copies of factors in device memory in an order that tensor cores read better than the tensor's
//! own: weights are copied into tiles ahead of time, data is transposed at each call by a launch
//! before the kernel. Input: a factor of a [`Tiling`](super::tile::Tiling); effect: the copying
//! statements are added to the loop nest and the factor reads from the copy.

use super::super::loops::{around, count, launches, tiles};
use super::super::problem::ContractionOperand;
use super::roles::TileLayout;
use super::tile::{Tiling, guarded};
use crate::nest::{Mode, Scope, Stmt};
use squall_core::DType;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};

impl Tiling<'_> {
    /// Transposes a factor at each call, in a launch of its own: in the copy the reduction is last
    /// and filled up with zeros, and the border of a padded input is included. A factor whose
    /// reduction shares its dimension with another axis is left as it is.
    pub fn transpose(&mut self, which: usize) {
        let p = self.p;
        let along = self.factors[which].along;
        let o = self.operands[self.factors[which].operand].clone();
        if o.index[along].terms().len() > 1 {
            return;
        }
        let last = |v: Var| {
            p.axes.iter().chain(&p.reduce).find(|a| a.var == v).map_or(0, |a| a.extent - 1)
        };
        let ranges: Vec<(i64, i64)> = o.index.iter().map(|i| i.range(last)).collect();
        let width = self.depth / 2;
        let filled = self.reached();
        let others: Vec<usize> = (0..o.index.len()).filter(|&d| d != along).collect();
        let extent = |d: usize| ranges[d].1 - ranges[d].0 + 1;
        let shape: Vec<i64> = others.iter().map(|&d| extent(d)).chain([filled]).collect();
        let name = format!("{}_turned", self.n.buffer(o.source).name);
        let format = if self.split { DType::F32 } else { self.format };
        let to = self.buffer(&name, shape, Scope::Workspace, format);
        let vars: Vec<Var> = others.iter().map(|d| self.n.new_var(&format!("t{d}"))).collect();
        let [k, lane] = ["tk", "tv"].map(|x| self.n.new_var(x));
        let k_at = Affine::new([(k, width), (lane, 1)], 0);
        let at = |d: usize| match others.iter().position(|&x| x == d) {
            Some(j) => Affine::new([(vars[j], 1)], ranges[d].0),
            None => k_at.plus(o.index[along].offset()),
        };
        let place: Vec<Affine> = (0..o.index.len()).map(at).collect();
        let mut conds = o.conds_at(&place);
        if filled > p.reduce[0].extent {
            conds.push(Cond { index: k_at.clone(), low: 0, high: p.reduce[0].extent });
        }
        let value = guarded(conds, o.value(o.source, &place));
        let index = vars.iter().map(|v| Affine::var(*v)).chain([k_at.clone()]).collect();
        let copy =
            vec![count(lane, width, Mode::Vector, vec![Stmt::Store { buffer: to, index, value }])];
        // Neighbouring threads read neighbours.
        let mut loops: Vec<(Var, i64)> =
            vars.iter().zip(&others).map(|(&v, &d)| (v, extent(d))).collect();
        loops.insert(loops.len() - 1, (k, filled / width));
        let made = launches(&mut self.n, around(&loops, Mode::Serial, copy));
        self.n.body.extend(made);
        let index = others
            .iter()
            .map(|&d| o.index[d].plus(-ranges[d].0))
            .chain([Affine::var(p.reduce[0].var)])
            .collect();
        let f = &mut self.factors[which];
        self.operands[f.operand] = ContractionOperand {
            source: to,
            index,
            conds: Vec::new(),
            other: 0.0,
            packed: false,
            prologue: None,
        };
        (f.along, f.layout, f.filled) = (others.len(), TileLayout::KMajor, true);
    }

    /// Makes the copy of a weight: numbers of tiles, steps, windows, the tile, and what a step
    /// takes of the reduction, filled up with zeros.
    fn pack(&mut self, o: &ContractionOperand) -> Source {
        let p = self.p;
        let used = |v: Var| o.index.iter().any(|i| i.uses(v));
        let axes: Vec<usize> = (0..p.axes.len()).filter(|&a| used(p.axes[a].var)).collect();
        let windows: Vec<usize> = (1..p.reduce.len()).filter(|&r| used(p.reduce[r].var)).collect();
        let (whole, steps) = (self.whole(), self.steps * self.cluster);
        let mut shape: Vec<i64> =
            axes.iter().map(|&a| (p.axes[a].extent + self.size[a] - 1) / self.size[a]).collect();
        shape.push(steps);
        shape.extend(windows.iter().map(|&r| p.reduce[r].extent));
        shape.extend(axes.iter().map(|&a| self.size[a]));
        shape.push(whole);
        let name = format!("{}_tiles", self.n.buffer(o.source).name);
        let format = if self.split { DType::F32 } else { self.format };
        let to = self.buffer(&name, shape.clone(), Scope::Prepared, format);
        let vars: Vec<Var> = (0..shape.len()).map(|d| self.n.new_var(&format!("w{d}"))).collect();
        let starts: Vec<Var> = axes.iter().map(|_| self.n.new_var("from")).collect();
        let (k, r) = (axes.len(), windows.len());
        let along = Affine::new([(vars[k], whole), (vars[vars.len() - 1], 1)], 0);
        let at = |v: Var| {
            if v == p.reduce[0].var {
                return along.clone();
            }
            match axes.iter().position(|&a| p.axes[a].var == v) {
                Some(j) => Affine::new([(starts[j], 1), (vars[k + 1 + r + j], 1)], 0),
                None => windows
                    .iter()
                    .position(|&x| p.reduce[x].var == v)
                    .map_or_else(|| Affine::var(v), |j| Affine::var(vars[k + 1 + j])),
            }
        };
        let load = Expr::load(o.source, o.index.iter().map(|i| i.map_vars(at)).collect());
        let end = Cond { index: along.clone(), low: 0, high: p.reduce[0].extent };
        let value = guarded(self.runs_over().then_some(end).into_iter().collect(), load);
        let store = Stmt::Store {
            buffer: to,
            index: vars.iter().map(|v| Affine::var(*v)).collect(),
            value,
        };
        let loops: Vec<(Var, i64)> = vars.iter().copied().zip(shape).collect();
        let plain = around(&loops[k..], Mode::Serial, vec![store]);
        let mut made = launches(&mut self.n, plain);
        for j in (0..k).rev() {
            made =
                vec![tiles(vars[j], starts[j], p.axes[axes[j]].extent, self.size[axes[j]], made)];
        }
        self.n.prepare.extend(made);
        to
    }

    /// Where a factor is fetched from: from itself, or from a copy in tiles, which is made here.
    pub fn source(&mut self, which: usize) -> Source {
        let (p, operand) = (self.p, self.factors[which].operand);
        match self.factors[which].layout {
            TileLayout::Packed => self.pack(&p.operands[operand]),
            _ => self.operands[operand].source,
        }
    }
}
