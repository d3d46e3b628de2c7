//! Decides which local buffers become named C variables, so that the compiler keeps them in
//! registers: buffers that are only accessed at indices that are constants once unrolled loops are
//! written out. Input: a loop nest; output: [`Registers`], the lanes of each such buffer. The
//! printer for vectors (`vectors.rs`) reads it.

use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Stmt};
use squall_core::expr::{Affine, Source, Var};
use squall_core::workload::flatten;
use std::collections::{BTreeMap, HashMap};

/// The most variables for one buffer; no machine has registers for more, so larger buffers stay in
/// memory.
const MOST: i64 = 64;

/// Lanes of each register buffer; 1 for scalars.
#[derive(Default)]
pub struct Registers {
    lanes: HashMap<Source, i64>,
}

/// The accesses of one buffer, as far as they decide whether variables can hold it.
#[derive(Default)]
struct Use {
    fixed: bool,
    vector: Vec<i64>,
    /// Offsets and coefficients of vector accesses: all must be multiples of the lanes.
    strides: Vec<i64>,
    strided: bool,
}

impl Registers {
    /// Looks at all accesses of all local buffers.
    pub fn find(n: &Nest) -> Registers {
        let mut uses: HashMap<Source, Use> = HashMap::new();
        for stmts in [&n.prepare, &n.body] {
            walk(n, stmts, &mut Vec::new(), &mut uses);
        }
        let mut r = Registers::default();
        for (b, u) in uses {
            let buf = n.buffer(b);
            if buf.scope != Scope::Local || !u.fixed || u.strided {
                continue;
            }
            let lanes = u.vector.first().copied().unwrap_or(1);
            let uniform =
                u.vector.iter().all(|&l| l == lanes) && u.strides.iter().all(|s| s % lanes == 0);
            let elements = buf.elements().max(1);
            if uniform && elements % lanes == 0 && elements / lanes <= MOST {
                r.lanes.insert(b, lanes);
            }
        }
        r
    }

    /// Lanes of the variables that hold a buffer, if variables do.
    pub fn get(&self, b: Source) -> Option<i64> {
        self.lanes.get(&b).copied()
    }
}

/// A loop around a statement: its counter and whether its value is known where code is printed.
type Around = (Var, Mode, i64);

fn walk(n: &Nest, stmts: &[Stmt], around: &mut Vec<Around>, uses: &mut HashMap<Source, Use>) {
    for s in stmts {
        match s {
            Stmt::Loop(Loop { var, extent, mode, body, start }) => {
                around.push((*var, *mode, *extent));
                if let Some(st) = start {
                    around.push((st.var, *mode, *extent));
                }
                walk(n, body, around, uses);
                around.truncate(around.len() - 1 - usize::from(start.is_some()));
            }
            Stmt::If { body, .. } => walk(n, body, around, uses),
            Stmt::Store { buffer, index, value } | Stmt::Update { buffer, index, value, .. } => {
                note(n, *buffer, index, around, uses);
                for (b, i) in value.loads() {
                    note(n, b, i, around, uses);
                }
            }
            _ => {}
        }
    }
}

fn note(n: &Nest, b: Source, index: &[Affine], around: &[Around], uses: &mut HashMap<Source, Use>) {
    let off = flatten(index, &n.buffer(b).shape);
    let u = uses.entry(b).or_insert_with(|| Use { fixed: true, ..Use::default() });
    let vector = around.iter().find(|a| a.1 == Mode::Vector && a.2 > 1);
    for &(v, c) in off.terms() {
        let Some(&(_, mode, extent)) = around.iter().find(|a| a.0 == v) else {
            u.fixed = false;
            continue;
        };
        match mode {
            _ if extent == 1 => {}
            Mode::Unroll | Mode::Step => {
                if vector.is_some() {
                    u.strides.push(c);
                }
            }
            Mode::Vector => {
                u.strided |= c != 1;
            }
            _ => u.fixed = false,
        }
    }
    if let Some(&(v, _, lanes)) = vector {
        if off.uses(v) {
            u.vector.push(lanes);
            u.strides.push(off.offset());
        } else {
            // A broadcast of one element: as good as a scalar access.
            u.strides.clear();
            u.strided |= n.buffer(b).scope == Scope::Local && n.buffer(b).elements() > 1;
        }
    }
}

/// Sizes of all local arrays that stay on the stack, for sketches that must bound them.
pub fn stack_bytes(n: &Nest) -> u64 {
    let r = Registers::find(n);
    let locals = n
        .buffers
        .iter()
        .enumerate()
        .filter(|(i, b)| b.scope == Scope::Local && r.get(Source(*i as u32)).is_none());
    locals.map(|(_, b): (usize, &Buffer)| b.elements() as u64 * 4).sum()
}

/// Lane widths by local buffer, for features: how many registers a nest names.
pub fn register_count(n: &Nest) -> BTreeMap<Source, i64> {
    let r = Registers::find(n);
    let local = |i: usize| Source(i as u32);
    (0..n.buffers.len())
        .filter_map(|i| r.get(local(i)).map(|l| (local(i), n.buffers[i].elements().max(1) / l)))
        .collect()
}
