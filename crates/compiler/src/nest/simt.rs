//! The interpreter's part for GPU programs: the threads of a cluster of blocks run in lock step,
//! statement by statement, each with its own loop variables and local buffers.
//!
//! Lock step alone would hide a forgotten barrier, so every access of shared memory is held
//! against the last ones of its element: two threads of which one writes need a barrier between
//! them, and threads of different blocks a cluster's barrier. What this proves of a program is
//! that its structure (tiles, fetches, barriers, reductions) computes the workload on these
//! extents; it says nothing of registers, alignment, the launch itself, or of the places where
//! shared buffers lie, which the emitter reuses.

use super::interpret::{State, flat};
use super::{Loop, Mode, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Expr, Source};
use std::collections::{HashMap, VecDeque};

/// When and by whom an element was accessed.
#[derive(Clone, Copy, PartialEq)]
struct Mark {
    thread: usize,
    /// Barriers of the block, and of the cluster, passed before.
    passed: [u64; 2],
}

#[derive(Clone, Default)]
struct Element {
    written: Option<Mark>,
    read: Vec<Mark>,
    /// Whether a copy to it is on its way.
    flying: bool,
}

pub(super) struct Team<'s, 'n> {
    pub(super) s: &'s mut State<'n>,
    /// Variables of each thread.
    pub(super) vars: Vec<Vec<i64>>,
    /// Threads of a block; thread `i` belongs to block `i / block` of the cluster.
    block: usize,
    pub(super) locals: HashMap<(Source, usize), Vec<f64>>,
    /// By buffer and, where each block has its own, block.
    marks: HashMap<(Source, usize), Vec<Element>>,
    passed: [u64; 2],
    /// Copies that may still be on their way, in programs that await them: batches from the oldest
    /// on, the last one open, of buffer, owner and element.
    flying: Option<VecDeque<Vec<(Source, usize, usize)>>>,
}

/// Runs the cluster and thread loops that `top` begins with.
pub fn run(s: &mut State<'_>, top: &Stmt) -> Result<(), String> {
    let (mut cluster, mut threads) = (Vec::new(), Vec::new());
    let mut at = top;
    let body = loop {
        let Stmt::Loop(l) = at else { return Err("statements stand between thread loops".into()) };
        if l.mode == Mode::Cluster {
            cluster.push(l)
        } else {
            threads.push(l)
        }
        match &l.body[..] {
            [next @ Stmt::Loop(n)] if matches!(n.mode, Mode::Cluster | Mode::Thread) => at = next,
            body => break body,
        }
    };
    let block: i64 = threads.iter().map(|l| l.extent).product();
    let total = block * cluster.iter().map(|l| l.extent).product::<i64>();
    let chain: Vec<&Loop> = cluster.into_iter().chain(threads).collect();
    let mut vars = Vec::with_capacity(total as usize);
    for i in 0..total {
        let mut v = s.vars.clone();
        let mut rest = i;
        for l in chain.iter().rev() {
            set(&mut v, l, rest % l.extent);
            rest /= l.extent;
        }
        vars.push(v);
    }
    let all: Vec<usize> = (0..total as usize).collect();
    let mut awaits = false;
    super::visit(body, &mut |s| awaits |= *s == Stmt::CommitCopies);
    let flying = awaits.then(|| VecDeque::from([Vec::new()]));
    let mut team = Team { s, vars, block: block as usize, locals: HashMap::new(), marks: HashMap::new(), passed: [0; 2], flying };
    team.block(body, &all)
}

fn set(vars: &mut [i64], l: &Loop, i: i64) {
    vars[l.var.0 as usize] = i;
    if let Some(s) = l.start {
        vars[s.var.0 as usize] = (s.step * i).min(s.cap);
    }
}

impl Team<'_, '_> {
    fn block(&mut self, stmts: &[Stmt], active: &[usize]) -> Result<(), String> {
        stmts.iter().try_for_each(|s| self.stmt(s, active))
    }

    fn stmt(&mut self, s: &Stmt, active: &[usize]) -> Result<(), String> {
        match s {
            Stmt::Loop(l) if l.mode == Mode::Share => self.share(l, active),
            Stmt::Loop(l) => {
                for i in 0..l.extent {
                    active.iter().for_each(|&t| set(&mut self.vars[t], l, i));
                    self.block(&l.body, active)?;
                }
                Ok(())
            }
            Stmt::Barrier(reach) => {
                if active.len() != self.vars.len() {
                    return Err("not all threads come to a barrier".into());
                }
                self.passed[0] += 1;
                self.passed[1] += u64::from(*reach == Reach::Cluster);
                Ok(())
            }
            Stmt::Let { var, value, modulo } => {
                for &t in active {
                    let x = value.eval(|v| self.vars[t][v.0 as usize]).rem_euclid(*modulo);
                    self.vars[t][var.0 as usize] = x;
                }
                Ok(())
            }
            Stmt::Warp(w) => self.warps(w, active),
            Stmt::CommitCopies => {
                self.flying.iter_mut().for_each(|f| f.push_back(Vec::new()));
                Ok(())
            }
            Stmt::AwaitCopies(last) => {
                self.arrive(*last as usize);
                Ok(())
            }
            Stmt::Local(b) => {
                let size = self.s.nest.buffer(*b).elements() as usize;
                match self.s.nest.buffer(*b).scope {
                    Scope::Local => active.iter().for_each(|&t| _ = self.locals.insert((*b, t), vec![f64::NAN; size])),
                    Scope::Cluster => self.declare(*b, 0, size),
                    Scope::Fragment => {
                        active.iter().filter(|t| *t % 32 == 0).for_each(|&t| _ = self.locals.insert((*b, t / 32), vec![f64::NAN; size]));
                    }
                    _ => (0..self.vars.len() / self.block).for_each(|k| self.declare(*b, k, size)),
                }
                Ok(())
            }
            Stmt::If { conds, body } => {
                let inside: Vec<usize> =
                    active.iter().copied().filter(|&t| conds.iter().all(|c| c.holds(|v| self.vars[t][v.0 as usize]))).collect();
                if inside.is_empty() { Ok(()) } else { self.block(body, &inside) }
            }
            Stmt::Store { buffer, index, value } => active.iter().try_for_each(|&t| {
                let x = self.eval(value, t)?;
                let x = self.s.nest.buffer(*buffer).dtype.round(x);
                self.write(*buffer, index, t, x)?;
                self.copies(*buffer, index, value, t);
                Ok(())
            }),
            Stmt::Update { op, buffer, index, value } => active.iter().try_for_each(|&t| {
                let x = self.eval(value, t)?;
                let old = self.read(*buffer, index, t)?;
                self.write(*buffer, index, t, op.binary().apply(old, x))
            }),
        }
    }

    fn declare(&mut self, b: Source, block: usize, size: usize) {
        self.locals.insert((b, block), vec![f64::NAN; size]);
        self.marks.insert((b, block), vec![Element::default(); size]);
    }

    /// Iterations in turn: every block's threads take one each, until none is left.
    fn share(&mut self, top: &Loop, active: &[usize]) -> Result<(), String> {
        let mut chain = vec![top];
        while let [Stmt::Loop(l)] = &chain[chain.len() - 1].body[..]
            && l.mode == Mode::Share
        {
            chain.push(l);
        }
        let total: i64 = chain.iter().map(|l| l.extent).product();
        let body = &chain[chain.len() - 1].body;
        for round in 0..(total as usize).div_ceil(self.block) {
            let mut busy = Vec::new();
            for &t in active {
                let mut i = (round * self.block + t % self.block) as i64;
                if i < total {
                    for l in chain.iter().rev() {
                        set(&mut self.vars[t], l, i % l.extent);
                        i /= l.extent;
                    }
                    busy.push(t);
                }
            }
            self.block(body, &busy)?;
        }
        Ok(())
    }

    /// Notes an element that a copy is on its way to.
    fn copies(&mut self, b: Source, index: &[Affine], value: &Expr, t: usize) {
        let Some(batch) = self.flying.as_mut().and_then(|f| f.back_mut()) else { return };
        if self.s.nest.buffer(b).scope != Scope::Shared || super::copied(self.s.nest, value).is_none() {
            return;
        }
        let at = flat(index, &self.s.nest.buffer(b).shape, &self.vars[t]);
        let owner = t / self.block;
        batch.push((b, owner, at));
        if let Some(e) = self.marks.get_mut(&(b, owner)).and_then(|m| m.get_mut(at)) {
            e.flying = true;
        }
    }

    /// All batches but the last so many, and the open one, arrive.
    fn arrive(&mut self, last: usize) {
        let Some(flying) = &mut self.flying else { return };
        while flying.len() > last + 1 {
            for (b, owner, at) in flying.pop_front().unwrap_or_default() {
                if let Some(e) = self.marks.get_mut(&(b, owner)).and_then(|m| m.get_mut(at)) {
                    e.flying = false;
                    // From now on a barrier lets others see it.
                    e.written.iter_mut().for_each(|w| w.passed = self.passed);
                }
            }
        }
    }

    /// Whose memory a buffer's element is for a thread: its own, its block's, the cluster's.
    fn owner(&self, b: Source, t: usize) -> Option<usize> {
        match self.s.nest.buffer(b).scope {
            Scope::Local => Some(t),
            Scope::Shared => Some(t / self.block),
            Scope::Cluster => Some(0),
            Scope::Fragment => Some(t / 32),
            _ => None,
        }
    }

    fn clash(&self, b: Source, at: usize, old: Mark, t: usize) -> Result<(), String> {
        let reach = usize::from(old.thread / self.block != t / self.block);
        if old.thread == t || old.passed[reach] < self.passed[reach] {
            return Ok(());
        }
        let name = &self.s.nest.buffer(b).name;
        let kind = ["barrier", "cluster barrier"][reach];
        Err(format!("threads {} and {t} access element {at} of `{name}` without a {kind} between them", old.thread))
    }

    pub(super) fn read(&mut self, b: Source, index: &[Affine], t: usize) -> Result<f64, String> {
        let at = flat(index, &self.s.nest.buffer(b).shape, &self.vars[t]);
        let Some(owner) = self.owner(b, t) else { return Ok(self.s.memory[b.0 as usize][at]) };
        let mark = Mark { thread: t, passed: self.passed };
        if let Some(e) = self.marks.get(&(b, owner)).and_then(|m| m.get(at)) {
            if e.flying {
                return Err(format!("element {at} of `{}` is read before its copy is awaited", self.s.nest.buffer(b).name));
            }
            if let Some(w) = e.written {
                self.clash(b, at, w, t)?;
            }
            let known = e.read.contains(&mark);
            if let Some(e) = self.marks.get_mut(&(b, owner)).and_then(|m| m.get_mut(at))
                && !known
            {
                e.read.retain(|r| r.thread != t);
                e.read.push(mark);
            }
        }
        self.locals
            .get(&(b, owner))
            .and_then(|m| m.get(at))
            .copied()
            .ok_or_else(|| format!("`{}` is read undeclared", self.s.nest.buffer(b).name))
    }

    pub(super) fn write(&mut self, b: Source, index: &[Affine], t: usize, x: f64) -> Result<(), String> {
        let at = flat(index, &self.s.nest.buffer(b).shape, &self.vars[t]);
        let Some(owner) = self.owner(b, t) else {
            self.s.memory[b.0 as usize][at] = x;
            return Ok(());
        };
        if let Some(e) = self.marks.get(&(b, owner)).and_then(|m| m.get(at)).cloned() {
            if e.flying {
                return Err(format!("element {at} of `{}` is written before its copy is awaited", self.s.nest.buffer(b).name));
            }
            e.written.iter().chain(&e.read).try_for_each(|m| self.clash(b, at, *m, t))?;
            let mark = Mark { thread: t, passed: self.passed };
            if let Some(e) = self.marks.get_mut(&(b, owner)).and_then(|m| m.get_mut(at)) {
                *e = Element { written: Some(mark), ..Element::default() };
            }
        }
        let name = &self.s.nest.buffer(b).name;
        let place = self.locals.get_mut(&(b, owner)).and_then(|m| m.get_mut(at));
        *place.ok_or_else(|| format!("`{name}` is written undeclared"))? = x;
        Ok(())
    }

    fn eval(&mut self, e: &Expr, t: usize) -> Result<f64, String> {
        let vars = self.vars[t].clone();
        let mut failed = None;
        let x = e.eval(&|v| vars[v.0 as usize], &mut |b, index| {
            self.read(b, index, t).unwrap_or_else(|why| {
                failed.get_or_insert(why);
                f64::NAN
            })
        });
        failed.map_or(Ok(x), Err)
    }
}
