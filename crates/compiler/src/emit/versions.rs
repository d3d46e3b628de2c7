//! Borders of images in programs by vectors. The statement `version` in a loop nest prints the rest
//! of its block twice: one version for the inside of an image without tests, and one with them; a
//! test at run time chooses (loop versioning). A load whose padding test differs between lanes
//! becomes a masked load. Methods of the printer; the conditions come from `nest/inside.rs`.

use super::printer::{Printer, Value};
use super::state::Version;
use crate::nest::{Stmt, decided, inside};
use squall_core::expr::{Affine, Cond, Expr};

impl Printer<'_> {
    /// Prints the statements twice: without their tests where all of them hold, and otherwise with
    /// them.
    pub(super) fn versions(&mut self, stmts: &[Stmt]) {
        // Versions of versions would be many.
        let is_one = self.simd.version.is_some();
        let Some(conds) = self.all_hold(stmts).filter(|_| !is_one) else {
            return self.block(stmts);
        };
        if conds.is_empty() {
            return self.version(Version::Inside, stmts);
        }
        let test = self.conds(&conds);
        self.open(&format!("if ({test}) {{"));
        self.version(Version::Inside, stmts);
        self.close();
        self.open("else {");
        self.version(Version::Border, stmts);
        self.close();
    }

    fn version(&mut self, version: Version, stmts: &[Stmt]) {
        // Tiles that one version leaves in registers are not there in the other version, nor behind
        // both.
        self.simd.loaded.clear();
        self.simd.version = Some(version);
        self.block(stmts);
        self.simd.version = None;
        self.simd.loaded.clear();
    }

    /// The conditions under which all tests in the statements hold; `None` where they never all
    /// hold.
    fn all_hold(&self, stmts: &[Stmt]) -> Option<Vec<Cond>> {
        let fold = |c: Cond| Cond { index: self.fold(&c.index), ..c };
        let mut all: Vec<Cond> = inside(stmts)?.into_iter().map(fold).collect();
        let is_never = all.iter().any(|c| decided(c) == Some(false));
        all.retain(|c| decided(c).is_none());
        Some(all).filter(|_| !is_never)
    }

    /// A load of the lanes for which the conditions hold, with a constant in the others; `None`
    /// where the load is not of neighbours or of every second element.
    pub(super) fn masked(&mut self, conds: &[Cond], then: &Expr, other: &Expr) -> Option<Value> {
        let (lane, lanes) = self.simd.vector?;
        let (Expr::Load { source, index }, &Expr::Const(other)) = (then, other) else {
            return None;
        };
        if self.o.double
            || !self.holds_floats(*source)
            || self.simd.registers.get(*source).is_some()
        {
            return None;
        }
        let mut base = self.offset(*source, index);
        let stride = base.coefficient(lane);
        base.add_term(lane, -stride);
        let name = match stride {
            1 => "masked",
            2 => "masked_even",
            _ => return None,
        };
        let (of_lanes, shared): (Vec<Cond>, Vec<Cond>) =
            conds.iter().cloned().partition(|c| c.index.uses(lane));
        let open: Vec<Cond> = of_lanes.into_iter().filter(|c| !self.always(c)).collect();
        // Lanes are counted by 32 bits.
        let is_short = |x: i64| i32::try_from(x).is_ok();
        let fits = |c: &Cond| {
            let (least, most) = self.range(&c.index)?;
            Some([least - c.low, most - c.low, c.high - c.low].into_iter().all(is_short))
        };
        if !open.iter().all(|c| fits(c) == Some(true)) {
            return None;
        }
        let ty = self.vector_type(lanes);
        let t = self.temporary();
        self.line(&format!("{ty} {t} = {};", self.all_lanes(other, lanes)));
        if !shared.is_empty() {
            let test = self.conds(&shared);
            self.open(&format!("if ({test}) {{"));
        }
        if open.is_empty() {
            let v = self.value(then);
            let v = self.widen(v, lanes);
            self.line(&format!("{t} = {v};"));
        } else {
            let masks: Vec<String> = open.iter().map(|c| self.mask(c, lanes)).collect();
            let (load, place) = (self.function(name, lanes), self.place(*source, &base));
            self.helper("masked");
            if lanes == 16 {
                // They are loaded by halves.
                self.vector_type(8);
            }
            let mask = masks.join(" & ");
            self.line(&format!("{t} = {load}(&{place}, {mask}, {t});"));
        }
        if !shared.is_empty() {
            self.close();
        }
        Some(Value::vector(t))
    }

    /// A constant in all lanes.
    fn all_lanes(&self, x: f64, lanes: i64) -> String {
        format!("{}({})", self.function("all", lanes), self.constant(x))
    }

    /// Which lanes a condition holds for.
    fn mask(&self, c: &Cond, lanes: i64) -> String {
        let lane = self.simd.vector.map(|v| v.0);
        let mut from = self.fold(&c.index).plus(-c.low);
        let step = lane.map_or(0, |l| from.coefficient(l));
        lane.into_iter().for_each(|l| from.add_term(l, -step));
        let inside = self.function("inside", lanes);
        format!("{inside}({}, {step}, {})", self.affine(&from), c.high - c.low)
    }

    /// Whether a condition holds at every iteration, with what loops that are written out decide.
    fn always(&self, c: &Cond) -> bool {
        self.range(&c.index).is_some_and(|(low, high)| low >= c.low && high < c.high)
    }

    /// The least and the largest value of a form, with what loops that are written out decide.
    fn range(&self, a: &Affine) -> Option<(i64, i64)> {
        let a = self.fold(a);
        let is_known = a.terms().iter().all(|t| self.simd.bounds.contains_key(&t.0));
        is_known.then(|| a.range(|v| self.simd.bounds.get(&v).copied().unwrap_or(0)))
    }
}
