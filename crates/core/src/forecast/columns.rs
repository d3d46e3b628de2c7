//! Evaluates a [`Program`] (compiled expressions over a problem's sizes and a kernel's knobs) at
//! many points at once. The points form a tree of prefixes: a node of level k fixes the first k
//! knobs. Each expression becomes one column of numbers per level, so an instruction is decoded
//! once a level and its loop is one that compilers vectorise. `family.rs` lists the legal vectors
//! of a problem and computes features by it.
//!
//! Columns hold f64, in which whole numbers up to 2^51 are exact, division included; not-a-number
//! stands for undefined. A larger number ends the evaluation with [`TooLarge`], and the caller
//! evaluates point by point.

use super::program::{Op, Program, Schedule, UNDEFINED};
use std::cell::RefCell;

/// A number came up that columns do not hold exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// The largest number whose sums and quotients are certainly exact.
const LIMIT: f64 = (1u64 << 51) as f64;
/// The most prefixes of one length in a tree.
const MOST: usize = 1 << 22;

/// The prefixes of one length: for each, the prefix that it extends and the position of its last
/// value.
#[derive(Debug, Default)]
pub(super) struct ColumnLevel {
    pub parents: Vec<u32>,
    pub positions: Vec<u16>,
}

/// Columns over a growing tree.
pub(super) struct Columns<'a> {
    program: &'a Program,
    /// The values that the problem fixes, by node.
    base: Vec<f64>,
    /// Level k + 1 stands at k.
    pub levels: Vec<ColumnLevel>,
    /// By level, then by node of the program: empty where not computed.
    columns: Vec<Vec<Vec<f64>>>,
}

thread_local! {
    /// Columns that were in use before. Training computes features some ten thousand times a
    /// second, for some hundred candidates each: making its columns anew took a tenth of it.
    static SPARE: RefCell<Vec<Vec<f64>>> = const { RefCell::new(Vec::new()) };
}

/// Columns that a thread keeps for the next tree, and how long they are at most: 4 MiB together.
const MOST_SPARE: usize = 1024;
const LONGEST_SPARE: usize = 1 << 9;

/// An empty column.
fn spare() -> Vec<f64> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

impl Drop for Columns<'_> {
    fn drop(&mut self) {
        SPARE.with_borrow_mut(|spare| {
            for mut column in self.columns.drain(..).flatten() {
                if (1..=LONGEST_SPARE).contains(&column.capacity()) && spare.len() < MOST_SPARE {
                    column.clear();
                    spare.push(column);
                }
            }
        });
    }
}

/// An operand.
enum Side<'a> {
    One(f64),
    Many(&'a [f64]),
}

impl<'a> Columns<'a> {
    /// The root of a tree; `base` holds what the problem fixes.
    pub fn new(program: &'a Program, base: &[i64]) -> Result<Columns<'a>, TooLarge> {
        let number = |&i: &i64| match i {
            UNDEFINED => Ok(f64::NAN),
            i if (i as f64).abs() > LIMIT => Err(TooLarge),
            i => Ok(i as f64),
        };
        let base = base.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Columns { program, base, levels: Vec::new(), columns: Vec::new() })
    }

    /// Prefixes of the greatest length.
    fn width(&self) -> usize {
        self.levels.last().map_or(1, |l| l.positions.len())
    }

    /// Extends every prefix by each of `tried`, pairs of position and value.
    pub fn grow(&mut self, knob: u32, tried: &[(u16, i64)]) -> Result<(), TooLarge> {
        let before = self.width();
        if before * tried.len() > MOST {
            return Err(TooLarge);
        }
        let parents =
            (0..before as u32).flat_map(|p| std::iter::repeat_n(p, tried.len())).collect();
        let positions = tried.iter().map(|t| t.0).cycle().take(before * tried.len()).collect();
        let values: Vec<i64> = tried.iter().map(|t| t.1).collect();
        let column = values.iter().map(|&v| v as f64).cycle().take(before * tried.len()).collect();
        self.push(knob, ColumnLevel { parents, positions }, column, &values)
    }

    /// Adds a level whose prefixes are given, with their last values.
    pub fn push(
        &mut self,
        knob: u32,
        level: ColumnLevel,
        column: Vec<f64>,
        values: &[i64],
    ) -> Result<(), TooLarge> {
        if values.iter().any(|&v| (v as f64).abs() > LIMIT) {
            return Err(TooLarge);
        }
        self.levels.push(level);
        let mut columns = vec![Vec::new(); self.base.len()];
        columns[knob as usize] = column;
        self.columns.push(columns);
        Ok(())
    }

    /// Computes what is scheduled for the last level.
    pub fn run(&mut self, schedule: &Schedule) -> Result<(), TooLarge> {
        let level = self.levels.len();
        if self.width() == 0 {
            return Ok(());
        }
        for &node in schedule.level(level) {
            for o in self.program.operands(node as usize) {
                self.lift(o, level);
            }
            let mut out = std::mem::take(&mut self.columns[level - 1][node as usize]);
            if out.capacity() == 0 {
                out = spare();
            }
            out.clear();
            out.resize(self.width(), 0.0);
            let fits = self.compute(node, level, &mut out);
            self.columns[level - 1][node as usize] = out;
            if !fits {
                return Err(TooLarge);
            }
        }
        Ok(())
    }

    /// Keeps only the prefixes of the last level for which all of `nodes`, known at it, are true.
    pub fn keep(&mut self, nodes: &[u32]) {
        let Some(level) = self.levels.last_mut() else { return };
        if nodes.is_empty() || level.positions.is_empty() {
            return;
        }
        let Some(columns) = self.columns.last_mut() else { return };
        let mut kept = vec![true; level.positions.len()];
        for &n in nodes {
            kept.iter_mut()
                .zip(&columns[n as usize])
                .for_each(|(k, x)| *k &= *x != 0.0 && !x.is_nan());
        }
        retain(&mut level.parents, &kept);
        retain(&mut level.positions, &kept);
        columns.iter_mut().filter(|c| !c.is_empty()).for_each(|c| retain(c, &kept));
    }

    /// A node's numbers for every prefix of the greatest length.
    pub fn numbers(&mut self, node: u32) -> Vec<f64> {
        let level = self.levels.len();
        self.lift(node, level);
        match self.side(node, level) {
            Side::One(x) => vec![x; self.width()],
            Side::Many(x) => x.to_vec(),
        }
    }

    /// The positions of every prefix of the greatest length, one prefix after another.
    pub fn table(&self) -> Vec<u16> {
        let width = self.levels.len();
        let mut table = vec![0u16; self.width() * width];
        let mut at: Vec<u32> = (0..self.width() as u32).collect();
        for (k, level) in self.levels.iter().enumerate().rev() {
            for (row, at) in table.chunks_exact_mut(width).zip(&mut at) {
                row[k] = level.positions[*at as usize];
                *at = level.parents[*at as usize];
            }
        }
        table
    }

    /// Copies a node's column down to a level, from the level at which it is known.
    fn lift(&mut self, node: u32, level: usize) {
        if self.program.level(node) == level
            || level == 0
            || !self.columns[level - 1][node as usize].is_empty()
        {
            return;
        }
        if self.program.level(node) > 0 {
            self.lift(node, level - 1);
            let from = &self.columns[level - 2][node as usize];
            let mut lifted = spare();
            lifted.extend(self.levels[level - 1].parents.iter().map(|&p| from[p as usize]));
            self.columns[level - 1][node as usize] = lifted;
        }
    }

    fn side(&self, node: u32, level: usize) -> Side<'_> {
        match self.program.level(node) {
            0 => Side::One(self.base[node as usize]),
            _ => Side::Many(&self.columns[level - 1][node as usize]),
        }
    }

    /// Computes one instruction for a whole level; returns whether its numbers are held exactly.
    fn compute(&self, node: u32, level: usize, out: &mut [f64]) -> bool {
        let at = |i: &u32| self.side(*i, level);
        let two = |a: &u32, b: &u32, out: &mut [f64], f: &dyn Fn(Side, Side, &mut [f64])| {
            f(at(a), at(b), out)
        };
        match self.program.op(node) {
            // Both are there before anything runs.
            Op::Const(_) | Op::Input(_) => {}
            Op::Add(a, b) => two(a, b, out, &|a, b, o| zip(a, b, o, |a, b| a + b)),
            Op::Mul(a, b) => two(a, b, out, &|a, b, o| zip(a, b, o, |a, b| a * b)),
            Op::CeilDiv(a, b) => two(a, b, out, &|a, b, o| zip(a, b, o, |a, b| -quotient(-a, b))),
            Op::FloorDiv(a, b) => two(a, b, out, &|a, b, o| zip(a, b, o, quotient)),
            Op::Mod(a, b) => two(a, b, out, &|a, b, o| zip(a, b, o, |a, b| a - b * quotient(a, b))),
            Op::Pow(a, b) => two(a, b, out, &|a, b, o| zip(a, b, o, power)),
            Op::Min(a, b) => two(a, b, out, &|a, b, o| {
                zip(a, b, o, |a, b| defined(a, b, if a < b { a } else { b }))
            }),
            Op::Max(a, b) => two(a, b, out, &|a, b, o| {
                zip(a, b, o, |a, b| defined(a, b, if a > b { a } else { b }))
            }),
            Op::Le(a, b) => two(a, b, out, &|a, b, o| {
                zip(a, b, o, |a, b| defined(a, b, if a <= b { 1.0 } else { 0.0 }))
            }),
            Op::Eq(a, b) => two(a, b, out, &|a, b, o| {
                zip(a, b, o, |a, b| defined(a, b, if a == b { 1.0 } else { 0.0 }))
            }),
            Op::Not(a) => zip(at(a), Side::One(0.0), out, |a, b| {
                defined(a, b, if a == 0.0 { 1.0 } else { 0.0 })
            }),
            // From the last to the first: an earlier one that decides, decides.
            Op::And(v) => {
                out.fill(1.0);
                for i in v.iter().rev() {
                    fold(at(i), out, |a, so_far| if a != 0.0 && !a.is_nan() { so_far } else { a });
                }
            }
            Op::Or(v) => {
                for i in v {
                    fold(
                        at(i),
                        out,
                        |a, so_far| if a != 0.0 && !a.is_nan() { 1.0 } else { so_far },
                    );
                }
            }
        }
        !out.iter().fold(false, |large, x| large | (x.abs() > LIMIT))
    }
}

fn retain<T: Copy>(all: &mut Vec<T>, kept: &[bool]) {
    let mut to = 0;
    for (from, &k) in kept.iter().enumerate() {
        all[to] = all[from];
        to += usize::from(k);
    }
    all.truncate(to);
}

/// `c`, where both are defined.
#[inline(always)]
fn defined(a: f64, b: f64, c: f64) -> f64 {
    if a.is_nan() | b.is_nan() { f64::NAN } else { c }
}

/// The quotient, rounded down; undefined by zero. Exact for whole numbers within the limit: the
/// quotient of two is farther from the next whole number than it is rounded by.
#[inline(always)]
fn quotient(a: f64, b: f64) -> f64 {
    // Rounds to the nearest whole number, for |x| < 2^51.
    const ROUND: f64 = (3u64 << 51) as f64;
    let q = a / b;
    let nearest = (q + ROUND) - ROUND;
    let down = if nearest > q { nearest - 1.0 } else { nearest };
    if b == 0.0 { f64::NAN } else { down }
}

/// A power as whole numbers have it; undefined where it is negative or too large for i64.
fn power(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let exponent = u32::try_from(b as i64).ok();
    exponent.and_then(|e| (a as i64).checked_pow(e)).map_or(f64::NAN, |x| x as f64)
}

#[inline(always)]
fn zip(a: Side, b: Side, out: &mut [f64], f: impl Fn(f64, f64) -> f64) {
    match (a, b) {
        (Side::Many(a), Side::Many(b)) => {
            out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (a, b))| *o = f(*a, *b))
        }
        (Side::Many(a), Side::One(b)) => out.iter_mut().zip(a).for_each(|(o, a)| *o = f(*a, b)),
        (Side::One(a), Side::Many(b)) => out.iter_mut().zip(b).for_each(|(o, b)| *o = f(a, *b)),
        (Side::One(a), Side::One(b)) => out.fill(f(a, b)),
    }
}

#[inline(always)]
fn fold(a: Side, out: &mut [f64], f: impl Fn(f64, f64) -> f64) {
    match a {
        Side::One(a) => out.iter_mut().for_each(|o| *o = f(a, *o)),
        Side::Many(a) => out.iter_mut().zip(a).for_each(|(o, a)| *o = f(*a, *o)),
    }
}
