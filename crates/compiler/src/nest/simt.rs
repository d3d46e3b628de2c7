//! The interpreter for GPU programs (SIMT): the threads of a cluster of blocks run in lock step,
//! statement by statement, each with its own loop variables and local buffers. Input and output are
//! those of `interpret.rs`, which calls this for nests with block loops.
//!
//! Lock step alone would hide a forgotten barrier, so the interpreter compares every access of
//! shared memory with the last ones of the same element: two threads of which one writes need a
//! barrier between them, and threads of different blocks need a cluster's barrier. Buffers have the
//! addresses that the emitter gives them, so accesses of another buffer that lay at the same place
//! count as well. It is an error to read an element that no thread wrote, and to access another
//! block's memory before a cluster's barrier shows that the block has begun. (The verifier makes
//! sure that the other block has not ended.)
//!
//! A program that runs without an error has tiles, fetches, barriers and reductions that compute
//! the workload (a tensor expression) on these extents. The interpreter says nothing of registers,
//! alignment, the printed text, or the launch itself.

mod warp;
mod warpgroup;

use super::state::{State, bind, flat};
use super::{Loop, Mode, Reach, Scope, Stmt, shared_place, shared_room};
use squall_core::expr::{Affine, Expr, Source};
use std::collections::{HashMap, VecDeque};
use warpgroup::Begun;

/// An access: the thread, and the barriers that it had passed.
#[derive(Clone, Copy, PartialEq)]
struct Mark {
    thread: usize,
    /// How many barriers of the block, and of the cluster, the thread had passed before.
    passed: [u64; 2],
}

/// The last accesses of an element of shared memory.
#[derive(Clone, Default)]
struct Element {
    written: Option<Mark>,
    read: Vec<Mark>,
    /// Whether a copy to it is on its way.
    flying: bool,
    /// How many asynchronous products may still read it.
    in_use: u32,
}

/// The accesses of a buffer's elements in one block's shared memory.
struct Marks {
    block: usize,
    /// The first byte in shared memory, and the bytes of an element.
    place: i64,
    bytes: i64,
    elements: Vec<Element>,
}

impl Marks {
    /// The elements that share a byte with those from `from` to `to`.
    fn between(&self, from: i64, to: i64) -> &[Element] {
        let number = |byte: i64| (byte.max(0) as usize).min(self.elements.len());
        let first = number((from - self.place).div_euclid(self.bytes));
        &self.elements
            [first..number((to - self.place + self.bytes - 1).div_euclid(self.bytes)).max(first)]
    }

    fn end(&self) -> i64 {
        self.place + self.bytes * self.elements.len() as i64
    }
}

struct Team<'s, 'n> {
    s: &'s mut State<'n>,
    /// Variables of each thread.
    vars: Vec<Vec<i64>>,
    /// Threads of a block; thread `i` belongs to block `i / block` of the cluster.
    block: usize,
    locals: HashMap<(Source, usize), Vec<f64>>,
    /// By buffer and block in whose memory it lies.
    marks: HashMap<(Source, usize), Marks>,
    /// The marks of buffers whose block of statements has ended.
    past: Vec<Marks>,
    /// The first free byte of shared memory.
    top: i64,
    passed: [u64; 2],
    /// In programs that await copies, the batches that may still be on their way, oldest first, as
    /// (buffer, owner, element). The last batch is not committed yet.
    flying: Option<VecDeque<Vec<(Source, usize, usize)>>>,
    /// Whether TMA tiles are among them.
    tma: bool,
    /// Products that each warp's warpgroup began and did not await, the oldest first, by warp.
    begun: HashMap<usize, VecDeque<Begun>>,
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
            bind(&mut v, l, rest % l.extent);
            rest /= l.extent;
        }
        vars.push(v);
    }
    let all: Vec<usize> = (0..total as usize).collect();
    let mut awaits = false;
    super::visit(body, &mut |s| awaits |= *s == Stmt::CommitCopies);
    let flying = awaits.then(|| VecDeque::from([Vec::new()]));
    let tma = super::copies_tma_tiles(body);
    let block = block as usize;
    let (locals, marks) = (HashMap::new(), HashMap::new());
    let begun = HashMap::new();
    let mut team = Team {
        s,
        vars,
        block,
        locals,
        marks,
        past: Vec::new(),
        top: 0,
        passed: [0; 2],
        flying,
        tma,
        begun,
    };
    team.block(body, &all)
}

impl Team<'_, '_> {
    fn block(&mut self, stmts: &[Stmt], active: &[usize]) -> Result<(), String> {
        let top = self.top;
        stmts.iter().try_for_each(|s| self.stmt(s, active))?;
        if self.top > top {
            self.give_back(top)?;
        }
        Ok(())
    }

    /// Shared memory from a byte on is free again.
    fn give_back(&mut self, top: i64) -> Result<(), String> {
        self.top = top;
        let mut gone: Vec<_> =
            self.marks.iter().filter(|(_, m)| m.place >= top).map(|(k, _)| *k).collect();
        gone.sort_unstable_by_key(|k| (k.0.0, k.1));
        for key in gone {
            let Some(marks) = self.marks.remove(&key) else { continue };
            if marks.elements.iter().any(|e| e.in_use > 0) {
                return Err(format!(
                    "products that read `{}` are not awaited where its place becomes free",
                    self.s.nest.buffer(key.0).name
                ));
            }
            if marks.elements.iter().any(|e| e.flying) {
                return Err(format!(
                    "copies to `{}` are still on their way where its place becomes free",
                    self.s.nest.buffer(key.0).name
                ));
            }
            self.past.push(marks);
        }
        Ok(())
    }

    fn stmt(&mut self, s: &Stmt, active: &[usize]) -> Result<(), String> {
        match s {
            Stmt::Loop(l) if matches!(l.mode, Mode::Share | Mode::Tma) => self.share(l, active),
            Stmt::Loop(l) => {
                for i in 0..l.extent {
                    active.iter().for_each(|&t| bind(&mut self.vars[t], l, i));
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
            Stmt::Let { var, value, divisor, modulo } => {
                for &t in active {
                    let x =
                        (value.eval(|v| self.vars[t][v.0 as usize]) / divisor).rem_euclid(*modulo);
                    self.vars[t][var.0 as usize] = x;
                }
                Ok(())
            }
            Stmt::Prefetch { .. } | Stmt::Version => Ok(()),
            Stmt::Warp(w) => self.warps(w, active),
            Stmt::CommitCopies => {
                self.flying.iter_mut().for_each(|f| f.push_back(Vec::new()));
                Ok(())
            }
            Stmt::AwaitCopies(last) => {
                let arrived = self.arrive(*last as usize);
                // The program counts batches of TMA tiles one by one.
                if self.tma && arrived != 1 {
                    return Err(format!("{arrived} batches of TMA tiles are awaited at once"));
                }
                Ok(())
            }
            Stmt::AwaitProducts(last) => self.await_products(*last as usize, active),
            Stmt::Local(b) => {
                let size = self.s.nest.buffer(*b).elements() as usize;
                match self.s.nest.buffer(*b).scope {
                    Scope::Local => active
                        .iter()
                        .for_each(|&t| _ = self.locals.insert((*b, t), vec![f64::NAN; size])),
                    Scope::Fragment => {
                        active.iter().filter(|t| *t % 32 == 0).for_each(|&t| {
                            _ = self.locals.insert((*b, t / 32), vec![f64::NAN; size])
                        });
                    }
                    _ => self.declare(*b, size),
                }
                Ok(())
            }
            Stmt::If { conds, body } => {
                let inside: Vec<usize> = active
                    .iter()
                    .copied()
                    .filter(|&t| conds.iter().all(|c| c.holds(|v| self.vars[t][v.0 as usize])))
                    .collect();
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

    /// Gives a shared buffer its place in every block. Accesses of buffers that lay there before
    /// count as reads of its elements.
    fn declare(&mut self, b: Source, size: usize) {
        let blocks = self.vars.len() / self.block;
        let (place, bytes) =
            (shared_place(self.s.nest, b, self.top), self.s.nest.buffer(b).dtype.bytes() as i64);
        self.top = place + shared_room(self.s.nest, b);
        let whole = self.s.nest.buffer(b).scope == Scope::Cluster;
        let each = if whole { size / self.s.nest.buffer(b).shape[0] as usize } else { size };
        for block in 0..blocks {
            let before = |byte: i64| {
                let there = self
                    .past
                    .iter()
                    .filter(|m| m.block == block)
                    .flat_map(|m| m.between(byte, byte + bytes));
                Element {
                    read: there.flat_map(|e| e.written.iter().chain(&e.read)).copied().collect(),
                    ..Element::default()
                }
            };
            let elements = (0..each as i64).map(|i| before(place + i * bytes)).collect();
            let marks = Marks { block, place, bytes, elements };
            self.past.retain(|m| m.block != block || m.place < place || m.end() > marks.end());
            self.marks.insert((b, block), marks);
            if !whole {
                self.locals.insert((b, block), vec![f64::NAN; size]);
            }
        }
        if whole {
            self.locals.insert((b, 0), vec![f64::NAN; size]);
        }
    }

    /// The access records of elements of a block's shared memory, for changing them.
    fn elements_mut(
        &mut self,
        b: Source,
        block: usize,
        places: &[usize],
        mut f: impl FnMut(&mut Element),
    ) {
        let Some(m) = self.marks.get_mut(&(b, block)) else { return };
        for &at in places {
            m.elements.get_mut(at).into_iter().for_each(&mut f);
        }
    }

    /// The accesses of an element of the buffer that belongs to `owner`.
    fn element(&mut self, b: Source, owner: usize, at: usize) -> Option<&mut Element> {
        let (block, at) = self.lies(b, owner, at);
        self.marks.get_mut(&(b, block)).and_then(|m| m.elements.get_mut(at))
    }

    /// The block in whose memory an element lies, and its number there.
    fn lies(&self, b: Source, owner: usize, at: usize) -> (usize, usize) {
        match self.s.nest.buffer(b).scope {
            Scope::Cluster => {
                let buf = self.s.nest.buffer(b);
                let each = (buf.elements() / buf.shape[0]) as usize;
                (at / each, at % each)
            }
            _ => (owner, at),
        }
    }

    /// Runs shared loops in rounds: each thread of a block takes one iteration a round, until none
    /// is left.
    fn share(&mut self, top: &Loop, active: &[usize]) -> Result<(), String> {
        let chain = super::chain(top);
        let total: i64 = chain.iter().map(|l| l.extent).product();
        let body = &chain[chain.len() - 1].body;
        for round in 0..(total as usize).div_ceil(self.block) {
            let mut busy = Vec::new();
            for &t in active {
                let mut i = (round * self.block + t % self.block) as i64;
                if i < total {
                    for l in chain.iter().rev() {
                        bind(&mut self.vars[t], l, i % l.extent);
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
        if !matches!(self.s.nest.buffer(b).scope, Scope::Shared | Scope::Swizzled)
            || super::copied(self.s.nest, value).is_none()
        {
            return;
        }
        let at = flat(index, &self.s.nest.buffer(b).shape, &self.vars[t]);
        let owner = t / self.block;
        batch.push((b, owner, at));
        if let Some(e) = self.element(b, owner, at) {
            e.flying = true;
        }
    }

    /// Lets all committed batches but the last `last` arrive, and returns how many arrived.
    fn arrive(&mut self, last: usize) -> usize {
        let mut arrived = 0;
        while let Some(flying) = self.flying.as_mut().filter(|f| f.len() > last + 1) {
            for (b, owner, at) in flying.pop_front().unwrap_or_default() {
                let passed = self.passed;
                if let Some(e) = self.element(b, owner, at) {
                    e.flying = false;
                    // From now on a barrier lets others see it.
                    e.written.iter_mut().for_each(|w| w.passed = passed);
                }
            }
            arrived += 1;
        }
        arrived
    }

    /// The owner of a buffer as a thread sees it: the thread, its warp, its block or the cluster;
    /// `None` for device memory.
    fn owner(&self, b: Source, t: usize) -> Option<usize> {
        match self.s.nest.buffer(b).scope {
            Scope::Local => Some(t),
            Scope::Shared | Scope::Swizzled => Some(t / self.block),
            Scope::Cluster => Some(0),
            Scope::Fragment => Some(t / 32),
            _ => None,
        }
    }

    /// Refuses an access of `t` that is not behind a barrier after `old`.
    fn clash(&self, b: Source, at: usize, old: Mark, t: usize) -> Result<(), String> {
        let reach = usize::from(old.thread / self.block != t / self.block);
        if old.thread == t || old.passed[reach] < self.passed[reach] {
            return Ok(());
        }
        let name = &self.s.nest.buffer(b).name;
        let kind = ["barrier", "cluster barrier"][reach];
        Err(format!(
            "threads {} and {t} access element {at} of `{name}` without a {kind} between them",
            old.thread
        ))
    }

    /// The accesses of an element of shared memory so far, or why the thread may not access it.
    fn admit(
        &mut self,
        b: Source,
        owner: usize,
        at: usize,
        t: usize,
        write: bool,
    ) -> Result<Option<&mut Element>, String> {
        let (block, _) = self.lies(b, owner, at);
        let Some(e) = self.element(b, owner, at).map(|e| &*e) else { return Ok(None) };
        let what = if write { "written" } else { "read" };
        let (flying, written, in_use) = (e.flying, e.written, e.in_use > 0);
        let others = if write { e.read.clone() } else { Vec::new() };
        let name = &self.s.nest.buffer(b).name;
        if flying {
            return Err(format!("element {at} of `{name}` is {what} before its copy is awaited"));
        }
        if write && in_use {
            return Err(format!(
                "element {at} of `{name}` is written while products that read it are not awaited"
            ));
        }
        if block != t / self.block && self.passed[1] == 0 {
            return Err(format!(
                "element {at} of `{name}` is {what} by another block before a cluster barrier: \
                 its own may not have begun"
            ));
        }
        if !write && written.is_none() {
            return Err(format!(
                "element {at} of `{name}` is read by thread {t}, and no thread wrote it"
            ));
        }
        written.iter().chain(&others).try_for_each(|m| self.clash(b, at, *m, t))?;
        Ok(self.element(b, owner, at))
    }

    /// Elements of a block's shared memory as a product of its warps reads them.
    fn take(
        &mut self,
        b: Source,
        places: impl Iterator<Item = usize>,
        t: usize,
        out: &mut Vec<f64>,
    ) -> Result<(), String> {
        let (owner, passed) = (t / self.block, self.passed[0]);
        let undeclared = || format!("`{}` is read undeclared", self.s.nest.buffer(b).name);
        let (Some(marks), Some(memory)) =
            (self.marks.get(&(b, owner)), self.locals.get(&(b, owner)))
        else {
            return Err(undeclared());
        };
        let mut doubtful = Vec::new();
        for at in places {
            let (Some(e), Some(&x)) = (marks.elements.get(at), memory.get(at)) else {
                return Err(undeclared());
            };
            if e.flying || !e.written.is_some_and(|w| w.thread == t || w.passed[0] < passed) {
                doubtful.push(at);
            }
            out.push(x);
        }
        // A product reads many elements, so only those that look wrong are looked up one by one.
        doubtful.into_iter().try_for_each(|at| self.admit(b, owner, at, t, false).map(|_| ()))
    }

    fn read(&mut self, b: Source, index: &[Affine], t: usize) -> Result<f64, String> {
        let at = flat(index, &self.s.nest.buffer(b).shape, &self.vars[t]);
        let Some(owner) = self.owner(b, t) else { return Ok(self.s.memory[b.0 as usize][at]) };
        let mark = Mark { thread: t, passed: self.passed };
        if let Some(e) = self.admit(b, owner, at, t, false)?
            && !e.read.contains(&mark)
        {
            e.read.retain(|r| r.thread != t);
            e.read.push(mark);
        }
        self.locals
            .get(&(b, owner))
            .and_then(|m| m.get(at))
            .copied()
            .ok_or_else(|| format!("`{}` is read undeclared", self.s.nest.buffer(b).name))
    }

    fn write(&mut self, b: Source, index: &[Affine], t: usize, x: f64) -> Result<(), String> {
        let at = flat(index, &self.s.nest.buffer(b).shape, &self.vars[t]);
        let Some(owner) = self.owner(b, t) else {
            self.s.memory[b.0 as usize][at] = x;
            return Ok(());
        };
        let mark = Mark { thread: t, passed: self.passed };
        if let Some(e) = self.admit(b, owner, at, t, true)? {
            *e = Element { written: Some(mark), ..Element::default() };
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
