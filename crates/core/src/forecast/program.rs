//! Compiles many expressions over the same inputs (a problem's sizes and a kernel's knobs) into one
//! list of instructions, and evaluates it point by point. Equal subexpressions are one node, and a
//! node is computed again only when the last knob that it depends on changes, so walking a space in
//! order costs little more than its distinct prefixes. `family.rs` evaluates its rules and features
//! by this; `columns.rs` is the form for many points at once.

use crate::space::Term;
use std::collections::HashMap;

/// The value of a division by zero or an overflow, and of every expression that reads one.
pub(super) const UNDEFINED: i64 = i64::MIN;

/// One instruction; operands are nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Op {
    Const(i64),
    /// A number that comes from outside: of the problem, or a knob.
    Input(u32),
    Add(u32, u32),
    Mul(u32, u32),
    CeilDiv(u32, u32),
    FloorDiv(u32, u32),
    Mod(u32, u32),
    Pow(u32, u32),
    Min(u32, u32),
    Max(u32, u32),
    Le(u32, u32),
    Eq(u32, u32),
    Not(u32),
    And(Box<[u32]>),
    Or(Box<[u32]>),
}

/// Expressions by node; inputs are numbered, and each has a level: 0 for numbers that the problem
/// fixes, k + 1 for knob k.
#[derive(Debug, Default)]
pub(super) struct Program {
    ops: Vec<Op>,
    levels: Vec<usize>,
    ids: HashMap<Op, u32>,
    names: HashMap<String, u32>,
}

/// The nodes to compute at each level for some expressions, operands before their users.
#[derive(Debug, Default)]
pub(super) struct Schedule(Vec<Vec<u32>>);

impl Schedule {
    /// What has to be computed at a level.
    pub fn level(&self, level: usize) -> &[u32] {
        &self.0[level]
    }
}

impl Program {
    /// Declares an input, known by its name from here on; its node.
    pub fn input(&mut self, name: &str, level: usize) -> u32 {
        let id = self.push(Op::Input(self.ops.len() as u32), level);
        self.names.insert(name.into(), id);
        id
    }

    /// Gives a node a name.
    pub fn define(&mut self, name: &str, node: u32) {
        self.names.insert(name.into(), node);
    }

    /// Adds an expression whose names are inputs or definitions; its node, or the unknown name.
    pub fn add(&mut self, t: &Term) -> Result<u32, String> {
        let two = |p: &mut Program, a: &Term, b: &Term, op: fn(u32, u32) -> Op| {
            let (a, b) = (p.add(a)?, p.add(b)?);
            Ok(p.node(op(a, b)))
        };
        match t {
            Term::Const(i) => Ok(self.node(Op::Const(*i))),
            Term::Knob(name) => self.names.get(name).copied().ok_or_else(|| name.clone()),
            Term::Sum(v) => self.chain(v, 0, Op::Add),
            Term::Product(v) => self.chain(v, 1, Op::Mul),
            Term::CeilDiv(a, b) => two(self, a, b, Op::CeilDiv),
            Term::FloorDiv(a, b) => two(self, a, b, Op::FloorDiv),
            Term::Mod(a, b) => two(self, a, b, Op::Mod),
            Term::Pow(a, b) => two(self, a, b, Op::Pow),
            Term::Min(a, b) => two(self, a, b, Op::Min),
            Term::Max(a, b) => two(self, a, b, Op::Max),
            Term::Le(a, b) => two(self, a, b, Op::Le),
            Term::Eq(a, b) => two(self, a, b, Op::Eq),
            Term::Not(a) => {
                let a = self.add(a)?;
                Ok(self.node(Op::Not(a)))
            }
            Term::And(v) | Term::Or(v) => {
                let all: Box<[u32]> = v.iter().map(|t| self.add(t)).collect::<Result<_, _>>()?;
                Ok(self.node(if matches!(t, Term::And(_)) { Op::And(all) } else { Op::Or(all) }))
            }
        }
    }

    /// What computes a node.
    pub fn op(&self, node: u32) -> &Op {
        &self.ops[node as usize]
    }

    /// The level at which a node is known.
    pub fn level(&self, node: u32) -> usize {
        self.levels[node as usize]
    }

    /// What `roots` need.
    pub fn schedule(&self, roots: &[u32], levels: usize) -> Schedule {
        let mut order = vec![Vec::new(); levels];
        for (i, used) in self.used(roots).into_iter().enumerate() {
            if used && !matches!(self.ops[i], Op::Input(_) | Op::Const(_)) {
                order[self.levels[i]].push(i as u32);
            }
        }
        Schedule(order)
    }

    /// Room for a value of every node, constants filled in.
    pub fn values(&self) -> Vec<i64> {
        self.ops.iter().map(|op| if let Op::Const(i) = op { *i } else { UNDEFINED }).collect()
    }

    /// Computes what is scheduled for a level; inputs and lower levels must be there.
    pub fn run(&self, schedule: &Schedule, level: usize, values: &mut [i64]) {
        for &i in &schedule.0[level] {
            values[i as usize] = evaluate(&self.ops[i as usize], values);
        }
    }

    /// Nodes that the problem fixes and that expressions over knobs read: all that the expressions
    /// depend on of a problem.
    pub fn frontier(&self, roots: &[u32]) -> Vec<u32> {
        let used = self.used(roots);
        let mut read = vec![false; self.ops.len()];
        for &r in roots {
            read[r as usize] = true;
        }
        for i in (0..self.ops.len()).filter(|&i| used[i] && self.levels[i] > 0) {
            self.operands(i).for_each(|o| read[o as usize] = true);
        }
        let fixed =
            |i: &usize| read[*i] && self.levels[*i] == 0 && !matches!(self.ops[*i], Op::Const(_));
        (0..self.ops.len()).filter(fixed).map(|i| i as u32).collect()
    }

    /// For each node whether some expressions need it.
    fn used(&self, roots: &[u32]) -> Vec<bool> {
        let mut used = vec![false; self.ops.len()];
        for &r in roots {
            used[r as usize] = true;
        }
        // Operands stand before their users.
        for i in (0..self.ops.len()).rev().filter(|&i| !matches!(self.ops[i], Op::Input(_))) {
            if used[i] {
                self.operands(i).for_each(|o| used[o as usize] = true);
            }
        }
        used
    }

    /// What a node is computed from.
    pub fn operands(&self, node: usize) -> impl Iterator<Item = u32> + '_ {
        let (pair, list): ([Option<u32>; 2], &[u32]) = match &self.ops[node] {
            Op::Const(_) | Op::Input(_) => ([None; 2], &[]),
            Op::Not(a) => ([Some(*a), None], &[]),
            Op::And(v) | Op::Or(v) => ([None; 2], v),
            Op::Add(a, b)
            | Op::Mul(a, b)
            | Op::CeilDiv(a, b)
            | Op::FloorDiv(a, b)
            | Op::Mod(a, b) => ([Some(*a), Some(*b)], &[]),
            Op::Pow(a, b) | Op::Min(a, b) | Op::Max(a, b) | Op::Le(a, b) | Op::Eq(a, b) => {
                ([Some(*a), Some(*b)], &[])
            }
        };
        pair.into_iter().flatten().chain(list.iter().copied())
    }

    /// A sum or product, lower levels first: what the problem fixes is then computed once.
    fn chain(&mut self, v: &[Term], neutral: i64, op: fn(u32, u32) -> Op) -> Result<u32, String> {
        let mut all: Vec<u32> = v.iter().map(|t| self.add(t)).collect::<Result<_, _>>()?;
        all.sort_by_key(|&i| self.level(i));
        let Some(&first) = all.first() else { return Ok(self.node(Op::Const(neutral))) };
        Ok(all[1..].iter().fold(first, |a, &b| self.node(op(a, b))))
    }

    fn node(&mut self, op: Op) -> u32 {
        if let Some(&id) = self.ids.get(&op) {
            return id;
        }
        let id = self.push(op, 0);
        self.levels[id as usize] =
            self.operands(id as usize).map(|o| self.levels[o as usize]).max().unwrap_or(0);
        id
    }

    fn push(&mut self, op: Op, level: usize) -> u32 {
        let id = self.ops.len() as u32;
        self.ids.insert(op.clone(), id);
        self.ops.push(op);
        self.levels.push(level);
        id
    }
}

fn evaluate(op: &Op, values: &[i64]) -> i64 {
    let at = |i: &u32| values[*i as usize];
    let two = |a: &u32, b: &u32, f: fn(i64, i64) -> Option<i64>| {
        let (a, b) = (at(a), at(b));
        if a == UNDEFINED || b == UNDEFINED { UNDEFINED } else { f(a, b).unwrap_or(UNDEFINED) }
    };
    match op {
        Op::Const(i) => *i,
        Op::Input(i) => at(i),
        Op::Add(a, b) => two(a, b, i64::checked_add),
        Op::Mul(a, b) => two(a, b, i64::checked_mul),
        Op::CeilDiv(a, b) => two(a, b, |a, b| floor_div(-a, b).map(|q| -q)),
        Op::FloorDiv(a, b) => two(a, b, floor_div),
        Op::Mod(a, b) => two(a, b, |a, b| Some(a - b.checked_mul(floor_div(a, b)?)?)),
        Op::Pow(a, b) => two(a, b, |a, b| a.checked_pow(u32::try_from(b).ok()?)),
        Op::Min(a, b) => two(a, b, |a, b| Some(a.min(b))),
        Op::Max(a, b) => two(a, b, |a, b| Some(a.max(b))),
        Op::Le(a, b) => two(a, b, |a, b| Some(i64::from(a <= b))),
        Op::Eq(a, b) => two(a, b, |a, b| Some(i64::from(a == b))),
        Op::Not(a) => match at(a) {
            UNDEFINED => UNDEFINED,
            a => i64::from(a == 0),
        },
        // From left to right, as `Term::bind` does: the first conjunct that decides, decides.
        Op::And(v) => v.iter().map(at).find(|a| *a == 0 || *a == UNDEFINED).unwrap_or(1),
        Op::Or(v) => i64::from(v.iter().map(at).any(|a| a != 0 && a != UNDEFINED)),
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}
