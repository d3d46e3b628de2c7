//! The verifier: the rules that every nest must satisfy, such as indices within bounds and barriers
//! where all threads come. It runs after each schedule primitive in debug builds and before a loop
//! nest becomes kernel source; its error is a text that names the broken rule. `verify/warp.rs` has
//! the rules of warp instructions.

mod warp;

use super::{Access, Buffer, Loop, Mode, Nest, Reach, Scope, Stmt, accesses};
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use std::collections::{HashMap, HashSet};

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

/// Checks that variables are bound once and used in scope, indices have the right rank and stay in
/// bounds, locals are declared before use, inputs are not written, weights are read in `prepare`
/// only, vector loops are innermost, and amx loops are steps on tiles that registers hold.
///
/// In GPU programs block loops are outermost and thread loops next. Barriers stand where all
/// threads come, and one barrier ends each block of statements that declares shared memory, so that
/// its bytes can be reused. Behind the last barrier of a cluster, blocks touch only their own
/// shared memory. Warp instructions stand where all threads of a warp come and are the same for all
/// of them; the innermost thread loop counts the threads of a warp.
pub fn verify(n: &Nest) -> Result<(), Broken> {
    let mut c = Checker {
        n,
        bounds: HashMap::new(),
        bound: HashSet::new(),
        locals: HashSet::new(),
        preparing: true,
        guards: Vec::new(),
        level: ThreadLevel::Host,
        rank: None,
        threads: Vec::new(),
        around: None,
        awaits: false,
    };
    super::visit(&n.body, &mut |s| c.awaits |= *s == Stmt::CommitCopies);
    c.block(&n.prepare)?;
    c.preparing = false;
    c.block(&n.body)?;
    super::amx::check(n).map_err(Broken)
}

/// The walk through a nest that checks the rules, with the facts that hold at the current
/// statement.
struct Checker<'a> {
    n: &'a Nest,
    /// Largest value of each variable in scope.
    bounds: HashMap<Var, i64>,
    /// Every variable ever bound.
    bound: HashSet<Var>,
    locals: HashSet<Source>,
    preparing: bool,
    guards: Vec<Cond>,
    level: ThreadLevel,
    /// The variable that counts the blocks of the cluster.
    rank: Option<Var>,
    /// The thread loops around, outermost first, and their extents.
    threads: Vec<(Var, i64)>,
    /// The mode of the innermost loop around that shares iterations among threads or copies a TMA
    /// tile.
    around: Option<Mode>,
    /// Whether the program awaits batches of copies.
    awaits: bool,
}

/// Whether a swizzled buffer consists of whole groups of eight rows of 128 bytes.
fn whole_rows(b: &Buffer) -> bool {
    matches!(b.shape[..], [.., rows, last] if rows % 8 == 0 && last * b.dtype.bytes() as i64 == 128)
}

/// Where in a GPU program a statement stands.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum ThreadLevel {
    Host,
    Block,
    Cluster,
    Thread,
    /// Where not all threads come.
    Apart,
}

impl Checker<'_> {
    fn fail<T>(&self, m: impl Into<String>) -> Result<T, Broken> {
        Err(Broken(m.into()))
    }

    fn var(&self, v: Var) -> &str {
        use squall_core::expr::Names;
        Names::var(self.n, v)
    }

    fn bind(&mut self, v: Var, max: i64) -> Result<(), Broken> {
        if !self.bound.insert(v) {
            return self.fail(format!("`{}` is bound twice", self.var(v)));
        }
        self.bounds.insert(v, max);
        Ok(())
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<(), Broken> {
        let (mut declared, mut lets) = (Vec::new(), Vec::new());
        for s in stmts {
            match s {
                Stmt::Loop(l) => self.loop_(l)?,
                Stmt::Local(b) => {
                    self.declare(*b)?;
                    declared.push(*b);
                }
                Stmt::Store { buffer, index, value }
                | Stmt::Update { buffer, index, value, .. } => {
                    self.access(*buffer, index, true)?;
                    self.expr(value)?;
                }
                Stmt::If { conds, body } => {
                    conds.iter().try_for_each(|c| self.affine(&c.index))?;
                    let n = self.guards.len();
                    let level = self.level;
                    self.level =
                        if level == ThreadLevel::Thread { ThreadLevel::Apart } else { level };
                    self.guards.extend(conds.iter().cloned());
                    self.block(body)?;
                    self.guards.truncate(n);
                    self.level = level;
                }
                Stmt::Let { var, value, divisor, modulo } => {
                    self.affine(value)?;
                    if value.range(|v| self.bounds[&v]).0 < 0 || *modulo < 1 || *divisor < 1 {
                        return self.fail(format!(
                            "`{}` is a remainder of what may be negative",
                            self.var(*var)
                        ));
                    }
                    self.bind(*var, modulo - 1)?;
                    lets.push(*var);
                }
                Stmt::Version => {}
                Stmt::Prefetch { buffer, at } => {
                    self.affine(at)?;
                    if self.level != ThreadLevel::Host
                        || !self.n.buffer(*buffer).scope.is_read_from_memory()
                    {
                        return self.fail(format!(
                            "`{}` is not memory that a CPU's caches can be asked for",
                            self.n.buffer(*buffer).name
                        ));
                    }
                }
                Stmt::Warp(w) => self.warp(w)?,
                Stmt::CommitCopies | Stmt::AwaitCopies(_) | Stmt::AwaitProducts(_)
                    if self.level == ThreadLevel::Thread => {}
                Stmt::CommitCopies | Stmt::AwaitCopies(_) | Stmt::AwaitProducts(_) => {
                    return self.fail("copies or products are counted where not all threads come");
                }
                Stmt::Barrier(_) if self.level == ThreadLevel::Thread => {}
                Stmt::Barrier(_) => {
                    return self.fail("a barrier stands where not all threads of a block come");
                }
            }
        }
        self.ends_with_barrier(stmts, &declared)?;
        declared.iter().for_each(|b| {
            self.locals.remove(b);
        });
        lets.iter().for_each(|v| _ = self.bounds.remove(v));
        Ok(())
    }

    /// A local buffer is declared once, where its scope allows it.
    fn declare(&mut self, b: Source) -> Result<(), Broken> {
        let buffer = self.n.buffer(b);
        let inside = self.level == ThreadLevel::Thread;
        let fits = match buffer.scope {
            Scope::Local => true,
            Scope::Shared | Scope::Cluster | Scope::Fragment => inside,
            Scope::Swizzled => inside && whole_rows(buffer),
            _ => false,
        };
        if !fits || !self.locals.insert(b) {
            return self.fail(format!("`{}` cannot be declared here", buffer.name));
        }
        Ok(())
    }

    /// A block of statements that declares shared memory ends with a barrier.
    fn ends_with_barrier(&self, stmts: &[Stmt], declared: &[Source]) -> Result<(), Broken> {
        let shared = |scope| declared.iter().any(|b| self.n.buffer(*b).scope == scope);
        let last = stmts.last();
        // Behind the last barrier of the cluster no block touches others' memory.
        let barrier = stmts.iter().rposition(|s| *s == Stmt::Barrier(Reach::Cluster));
        let own = |a: &Access<'_>| {
            a.index.first().is_some_and(|i| i.as_var().is_some() && i.as_var() == self.rank)
        };
        let behind = accesses(&stmts[barrier.map_or(0, |b| b + 1)..]);
        let away =
            behind.iter().any(|a| self.n.buffer(a.buffer).scope == Scope::Cluster && !own(a));
        if shared(Scope::Cluster) && (away || barrier.is_none())
            || [Scope::Shared, Scope::Cluster, Scope::Swizzled].into_iter().any(shared)
                && !matches!(last, Some(Stmt::Barrier(_)))
        {
            return self.fail("a block that declares shared memory does not end with a barrier");
        }
        Ok(())
    }

    fn loop_(&mut self, l: &Loop) -> Result<(), Broken> {
        if l.extent < 1 {
            return self.fail(format!("loop `{}` is empty", self.var(l.var)));
        }
        self.bind(l.var, l.extent - 1)?;
        if let Some(s) = l.start {
            if s.step < 1
                || s.cap < 0
                || s.step * (l.extent - 1) < s.cap
                || s.step * (l.extent - 2).max(0) > s.cap
            {
                return self.fail(format!(
                    "the tile starts of `{}` do not cover their axis",
                    self.var(l.var)
                ));
            }
            self.bind(s.var, s.cap)?;
        }
        if l.mode == Mode::Vector
            && l.body.iter().any(|s| !matches!(s, Stmt::Store { .. } | Stmt::Update { .. }))
        {
            return self.fail(format!("the vector loop `{}` is not innermost", self.var(l.var)));
        }
        let level = self.level;
        let (from, to) = match l.mode {
            Mode::Block => (ThreadLevel::Host..=ThreadLevel::Block, ThreadLevel::Block),
            Mode::Cluster => (ThreadLevel::Block..=ThreadLevel::Cluster, ThreadLevel::Cluster),
            Mode::Thread => (ThreadLevel::Block..=ThreadLevel::Thread, ThreadLevel::Thread),
            Mode::Share | Mode::Tma => {
                (ThreadLevel::Thread..=ThreadLevel::Apart, ThreadLevel::Apart)
            }
            _ => (ThreadLevel::Host..=ThreadLevel::Apart, level),
        };
        if !from.contains(&level) {
            return self.fail(format!(
                "the {} loop `{}` stands in a wrong place",
                l.mode.word(),
                self.var(l.var)
            ));
        }
        let around = self.around;
        if l.mode == Mode::Tma && around != Some(Mode::Tma) {
            self.tma_tile(l)?;
        }
        if matches!(l.mode, Mode::Share | Mode::Tma) {
            self.around = Some(l.mode);
        }
        self.level = to;
        let outside = self.threads.len();
        if l.mode == Mode::Thread {
            self.threads.push((l.var, l.extent));
        }
        if l.mode == Mode::Cluster {
            self.rank = Some(l.var);
        }
        self.block(&l.body)?;
        self.threads.truncate(outside);
        self.around = around;
        self.level = level;
        self.bounds.remove(&l.var);
        if let Some(s) = l.start {
            self.bounds.remove(&s.var);
        }
        Ok(())
    }

    /// Refuses a TMA tile that is not the same for all threads, as one of them asks for it, or that
    /// no batch of copies awaits.
    fn tma_tile(&self, l: &Loop) -> Result<(), Broken> {
        let tile = super::tma_tile(self.n, l).map_err(Broken)?;
        let own = |a: &Affine| self.threads.iter().any(|t| a.uses(t.0));
        let guards = self.guards.iter().map(|c| &c.index);
        if self.around.is_some()
            || tile.dimensions.iter().map(|d| &d.first).chain(&tile.at).chain(guards).any(own)
        {
            return self.fail(format!(
                "a TMA tile of `{}` is not the same for all threads",
                self.n.buffer(tile.from).name
            ));
        }
        if !self.awaits {
            return self.fail(format!(
                "a TMA tile of `{}` is in no batch of copies",
                self.n.buffer(tile.from).name
            ));
        }
        Ok(())
    }

    fn affine(&self, a: &Affine) -> Result<(), Broken> {
        match a.terms().iter().find(|(v, _)| !self.bounds.contains_key(v)) {
            Some((v, _)) => self.fail(format!("`{}` is used out of its scope", self.var(*v))),
            None => Ok(()),
        }
    }

    fn access(&self, b: Source, index: &[Affine], write: bool) -> Result<(), Broken> {
        let Some(buf) = self.n.buffers.get(b.0 as usize) else {
            return self.fail("a buffer does not exist");
        };
        let allowed = match buf.scope {
            Scope::Data(_) => !write && !self.preparing,
            Scope::Weight(_) => !write,
            Scope::Output => !self.preparing,
            Scope::Prepared => self.preparing || !write,
            Scope::Workspace => !self.preparing,
            Scope::Local | Scope::Shared | Scope::Cluster | Scope::Swizzled | Scope::Fragment => {
                self.locals.contains(&b)
            }
        };
        if !allowed {
            let what = if write { "written" } else { "read" };
            return self.fail(format!(
                "{} `{}` may not be {what} here",
                buf.scope.word(),
                buf.name
            ));
        }
        if index.len() != buf.shape.len() {
            return self.fail(format!(
                "`{}` has {} dimensions, {} indices are given",
                buf.name,
                buf.shape.len(),
                index.len()
            ));
        }
        for (a, &extent) in index.iter().zip(&buf.shape) {
            self.affine(a)?;
            let (mut lo, mut hi) = a.range(|v| self.bounds[&v]);
            // The index is multiples of what guards test, plus a rest without their variables: of
            // one guard, or of several where it runs over several dimensions.
            let (mut rest, mut tested) = (a.clone(), (0, 0));
            for g in &self.guards {
                let Some(&(first, c)) = g.index.terms().first() else { continue };
                let (least, most) = g.index.range(|v| self.bounds[&v]);
                let (least, most) = (least.max(g.low), most.min(g.high - 1));
                let without = |a: &Affine| {
                    let k = a.coefficient(first) / c;
                    let rest = a.add(&g.index.scale(-k));
                    let apart = k > 0 && g.index.terms().iter().all(|t| !rest.uses(t.0));
                    apart.then(|| (k, rest.range(|v| self.bounds[&v]), rest))
                };
                if let Some((k, (low, high), _)) = without(a) {
                    lo = lo.max(k * least + low);
                    hi = hi.min(k * most + high);
                }
                if let Some((k, (low, high), others)) = without(&rest) {
                    tested = (tested.0 + k * least, tested.1 + k * most);
                    lo = lo.max(tested.0 + low);
                    hi = hi.min(tested.1 + high);
                    rest = others;
                }
            }
            if lo < 0 || hi >= extent {
                return self.fail(format!(
                    "an index of `{}` runs over {lo}..={hi}, the extent is {extent}",
                    buf.name
                ));
            }
        }
        Ok(())
    }

    fn expr(&mut self, e: &Expr) -> Result<(), Broken> {
        match e {
            Expr::Const(_) => Ok(()),
            Expr::Load { source, index } => self.access(*source, index, false),
            Expr::Unary(_, a) | Expr::Cast(_, a) => self.expr(a),
            Expr::Binary(_, a, b) => {
                self.expr(a)?;
                self.expr(b)
            }
            Expr::Select { conds, then, other } => {
                conds.iter().try_for_each(|c| self.affine(&c.index))?;
                let n = self.guards.len();
                self.guards.extend(conds.iter().cloned());
                self.expr(then)?;
                self.guards.truncate(n);
                self.expr(other)
            }
        }
    }
}
