//! Borders in programs that work on vectors: the rest of a block in two versions, of which the one
//! for the inside of an image has no tests, and loads of the lanes for which a test holds.

use super::printer::{Printer, Value};
use crate::nest::{Stmt, largest_values, visit};
use squall_core::expr::{Affine, Cond, Expr};

impl Printer<'_> {
    /// The statements twice: without their tests where all of them hold, and else with them.
    pub(super) fn versions(&mut self, stmts: &[Stmt]) {
        // Versions of versions would be many, and a variable that is bound in the block is not
        // known before it.
        let binds = stmts.iter().any(|s| matches!(s, Stmt::Let { .. }));
        if self.simd.has_versions || binds {
            return self.block(stmts);
        }
        let Some(conds) = self.all_hold(stmts) else { return self.block(stmts) };
        self.simd.has_versions = true;
        match conds.is_empty() {
            true => self.inside(stmts),
            false => {
                let test = self.conds(&conds);
                self.open(&format!("if ({test}) {{"));
                self.inside(stmts);
                self.close();
                self.open("else {");
                self.block(stmts);
                self.close();
            }
        }
        self.simd.has_versions = false;
    }

    fn inside(&mut self, stmts: &[Stmt]) {
        let before = std::mem::replace(&mut self.simd.is_inside, true);
        self.block(stmts);
        self.simd.is_inside = before;
    }

    /// Under what conditions all tests in the statements hold at all iterations of their loops;
    /// none where that never is.
    fn all_hold(&self, stmts: &[Stmt]) -> Option<Vec<Cond>> {
        let bounds = largest_values(stmts);
        let mut tests: Vec<Cond> = Vec::new();
        let mut note = |e: &Expr| {
            if let Expr::Select { conds, .. } = e {
                tests.extend(conds.iter().cloned());
            }
        };
        visit(stmts, &mut |s| {
            if let Stmt::Store { value, .. } | Stmt::Update { value, .. } = s {
                value.visit(&mut note);
            }
        });
        let mut all: Vec<Cond> = Vec::new();
        for c in tests {
            let index = self.fold(&c.index);
            let mut outer = Affine::constant(0);
            index.terms().iter().filter(|t| !bounds.contains_key(&t.0)).for_each(|&(v, by)| {
                outer.add_term(v, by);
            });
            let mut inner = index;
            outer.terms().iter().for_each(|&(v, by)| inner.add_term(v, -by));
            let (least, most) = inner.range(|v| bounds[&v]);
            let (low, high) = (c.low.saturating_sub(least), c.high.saturating_sub(most));
            match all.iter_mut().find(|o| o.index == outer) {
                Some(o) => (o.low, o.high) = (o.low.max(low), o.high.min(high)),
                None => all.push(Cond { index: outer, low, high }),
            }
        }
        if all.iter().any(|c| c.low >= c.high) {
            return None;
        }
        let is_open = |c: &Cond| !c.index.terms().is_empty();
        let holds = |c: &Cond| (c.low..c.high).contains(&c.index.offset());
        let decided = all.iter().filter(|c| !is_open(c)).all(holds);
        decided.then(|| all.into_iter().filter(is_open).collect())
    }

    /// The lanes of a load for which the conditions hold, and a constant in the others; none where
    /// the load is not of neighbours or of every second element.
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
        let index = self.fold(&c.index);
        let is_known = index.terms().iter().all(|t| self.simd.bounds.contains_key(&t.0));
        let (low, high) = index.range(|v| self.simd.bounds.get(&v).copied().unwrap_or(0));
        is_known && low >= c.low && high < c.high
    }
}
