//! Addresses in GPU programs: the C text of an element of a buffer, which lies in registers, in the
//! block's shared memory (plain or swizzled), in another block's shared memory, or in device
//! memory. Input: a buffer and an affine index; output: text. Methods of the printer, called by the
//! other files on GPU programs.

use super::dialect::fill;
use super::printer::{Printer, c_name};
use crate::nest::Scope;
use squall_core::expr::{Affine, Cond, Source, Var};

impl Printer<'_> {
    /// Whether an offset without its lane is a multiple of the vector's width.
    pub(super) fn aligned(&self, off: &Affine, lane: Var, lanes: i64) -> bool {
        let multiple = |v: &Var| self.simt.multiple.get(v).copied().unwrap_or(1);
        off.offset() % lanes == 0
            && off.terms().iter().all(|(v, c)| *v == lane || c * multiple(v) % lanes == 0)
    }

    /// The number of the block in the cluster in whose shared memory an element lies, if that may
    /// be another block than the thread's own.
    pub(super) fn elsewhere(&self, b: Source, index: &[Affine]) -> Option<String> {
        let rank = index
            .first()
            .filter(|_| self.n.buffer(b).scope == Scope::Cluster && self.simt.rank.1 > 1)?;
        let rank = self.fold(rank);
        (rank.as_var().is_none() || rank.as_var() != self.simt.rank.0).then(|| self.affine(&rank))
    }

    /// An element of a buffer that begins at a byte of an array of floats.
    fn within(&self, b: Source, array: &str, byte: i64, off: &Affine) -> String {
        let dtype = self.n.buffer(b).dtype;
        let at = self.affine(&off.plus(byte / dtype.bytes() as i64));
        if dtype.is_half() {
            format!("(({} *){array})[{at}]", self.element_type(dtype))
        } else {
            format!("{array}[{at}]")
        }
    }

    /// The C text of an element of shared memory, in the block's own.
    pub(super) fn here(&self, b: Source, off: &Affine) -> String {
        self.within(b, "shared", self.simt.places.get(&b).copied().unwrap_or(0), off)
    }

    /// The C text of an element.
    pub(super) fn at(&self, b: Source, index: &[Affine], off: &Affine) -> String {
        let buf = self.n.buffer(b);
        let own = |at: &Affine| self.affine(at);
        let within = |array: &str, byte: i64| self.within(b, array, byte, off);
        match buf.scope {
            Scope::Prepared => within("prepared", self.simt.prepared[&b] as i64),
            Scope::Workspace => within("workspace", self.simt.prepared[&b] as i64),
            Scope::Swizzled => {
                self.helper("swizzled");
                let first =
                    self.simt.places.get(&b).copied().unwrap_or(0) / buf.dtype.bytes() as i64;
                // Whole groups of eight rows, stages among them, stay where they are.
                let group = 1024 / buf.dtype.bytes() as i64;
                let (whole, rest): (Vec<_>, Vec<_>) =
                    off.terms().iter().copied().partition(|t| t.1 % group == 0);
                let (whole, rest) = (Affine::new(whole, first), Affine::new(rest, off.offset()));
                format!(
                    "(({} *)shared)[{} + swizzled{}({})]",
                    self.element_type(buf.dtype),
                    own(&whole),
                    buf.dtype.bytes(),
                    own(&rest)
                )
            }
            Scope::Shared | Scope::Cluster => match self.elsewhere(b, index) {
                Some(rank) => format!("peer(&{}, {rank})", self.here(b, off)),
                None => self.here(b, off),
            },
            _ => format!("{}[{}]", c_name(&buf.name), own(off)),
        }
    }

    /// The address of an element; `apart`, what moves along serial loops is added to a pointer,
    /// which then need not be computed in each of their steps. The compiler does not see that by
    /// itself: `int` may not wrap, pointers may.
    pub(super) fn pointer(&self, from: Source, at: &[Affine], apart: bool) -> String {
        let off = self.offset(from, at);
        let (moving, still): (Vec<_>, Vec<_>) =
            off.terms().iter().copied().partition(|t| self.simt.moving.contains(&t.0));
        if !apart || moving.is_empty() {
            return format!("&{}", self.at(from, at, &off));
        }
        format!(
            "&{} + ({})",
            self.at(from, at, &Affine::new(still, 0)),
            self.affine(&Affine::new(moving, off.offset()))
        )
    }

    /// The bits of an element of 16, zero where a condition does not hold.
    pub(super) fn bits(&mut self, from: Source, at: &[Affine], conds: &[Cond]) -> String {
        let (v, lane) = self.simt.lane.map_or((Var(u32::MAX), 0), |l| (l.0, l.1));
        let at: Vec<Affine> = at.iter().map(|a| a.substitute(v, &Affine::constant(lane))).collect();
        let place = self.at(from, &at, &self.offset(from, &at));
        if conds.is_empty() {
            return format!("{place}.bits");
        }
        format!("(unsigned short)({} ? {place}.bits : 0)", self.conds(conds))
    }

    pub(super) fn thread_load(&mut self, b: Source, index: &[Affine]) -> String {
        let mut off = self.offset(b, index);
        let Some((v, lane, lanes)) = self.simt.lane else { return self.at(b, index, &off) };
        let (scope, dtype) = (self.n.buffer(b).scope, self.n.buffer(b).dtype);
        let lanes = lanes.min(4);
        let wide =
            scope != Scope::Local && dtype.bytes() == 4 && self.elsewhere(b, index).is_none();
        if !self.simt.guarded && wide && off.coefficient(v) == 1 && self.aligned(&off, v, lanes) {
            off.add_term(v, -1);
            off = off.plus(lane / lanes * lanes);
            let lane = lane % lanes;
            let place = self.at(b, index, &off);
            let name = match self.simt.vectors.get(&place) {
                Some(t) => t.clone(),
                None => {
                    let t = self.temporary();
                    let floats = fill(self.simt.words.floats, &[&lanes.to_string()]);
                    self.line(&format!("const {floats} {t} = *(const {floats} *)&{place};"));
                    self.simt.vectors.insert(place, t.clone());
                    t
                }
            };
            return format!("{name}.{}", ["x", "y", "z", "w"][lane as usize]);
        }
        off = off.substitute(v, &Affine::constant(lane));
        let index: Vec<Affine> =
            index.iter().map(|a| a.substitute(v, &Affine::constant(lane))).collect();
        self.at(b, &index, &off)
    }
}
