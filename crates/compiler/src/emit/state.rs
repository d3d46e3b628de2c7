//! The state that the printer of loop nests (`printer.rs`) keeps while it prints a function:
//! [`Simd`] for programs by vectors, [`Simt`] for programs by GPU threads. It holds, for example,
//! the loops around the current statement, values that are already in temporaries, and the
//! addresses of shared buffers.

use super::dialect::{ThreadWords, VectorWords};
use super::registers::Registers;
use crate::nest::TileRegisters;
use squall_core::TensorMap;
use squall_core::expr::{Affine, Source, Var};
use std::collections::{HashMap, HashSet};

/// The temporaries of the current block that hold elements loaded from memory, by buffer and index.
pub(super) type Memo = HashMap<(Source, String), String>;

/// Which AMX tiles of factors are in which tile registers, and which register is loaded next.
#[derive(Default)]
pub(super) struct LoadedTiles {
    pub left: Vec<Option<(Source, Affine)>>,
    pub right: Vec<Option<(Source, Affine)>>,
    pub turn: [usize; 2],
}

impl LoadedTiles {
    /// Forgets all: in another iteration other tiles lie at the same places in memory.
    pub(super) fn clear(&mut self) {
        *self = LoadedTiles::default();
    }
}

/// One of the two versions of a loop's body (`versions.rs`).
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Version {
    /// All tests hold, and are left out.
    Inside,
    /// Some may not.
    Border,
}

/// The state of a program by vectors.
#[derive(Default)]
pub(super) struct Simd {
    pub words: VectorWords,
    /// Unrolled loops around the current statement that run 4 times.
    pub fours: Vec<Var>,
    /// The vector loop around the current statement.
    pub vector: Option<(Var, i64)>,
    pub registers: Registers,
    /// One for each block of statements around the current one.
    pub memo: Vec<Memo>,
    /// Whether the addend of a register is being printed, and the temporaries that several such
    /// statements read, or that one reads twice.
    pub adding: bool,
    pub reused: HashSet<String>,
    /// Which of two versions of statements is being printed, if one of two is.
    pub version: Option<Version>,
    /// The largest value of each variable.
    pub bounds: HashMap<Var, i64>,
    /// Whether `prepare` is being printed, which writes prepared buffers.
    pub preparing: bool,
    /// The registers of tiles, what lies in them, and whether each thread has set up its own.
    pub tiles: Option<TileRegisters>,
    pub loaded: LoadedTiles,
    pub tiles_by_thread: bool,
}

/// The two terms of an index of a loop that threads share out: the term of the round and that of
/// the thread. An empty text is zero.
pub(super) type Parts = [String; 2];
/// The part of [`Parts`] that depends on the round.
pub(super) const ROUND: usize = 0;
/// The part of [`Parts`] that depends on the thread.
pub(super) const THREAD: usize = 1;

/// A serial loop whose steps keep pointers and counts.
#[derive(Default)]
pub(super) struct Steps {
    pub var: Option<Var>,
    /// The lines before the loop, and at the end of each step.
    pub before: Vec<String>,
    pub after: Vec<String>,
    /// The variables of addresses that are kept across steps, by the address's text.
    pub kept: HashMap<String, String>,
}

/// State of a function of many threads.
#[derive(Default)]
pub(super) struct Simt {
    pub words: ThreadWords,
    /// A number that the start of each tile is a multiple of.
    pub multiple: HashMap<Var, i64>,
    /// Where shared buffers lie, and the first free byte.
    pub places: HashMap<Source, i64>,
    pub top: i64,
    pub most: i64,
    pub threads: i64,
    /// The variable of the block's number in its cluster, and the cluster's size.
    pub rank: (Option<Var>, i64),
    /// The vector loop's variable, lane and width.
    pub lane: Option<(Var, i64, i64)>,
    /// Whether loads stand under a condition: then they may not be done ahead for all lanes.
    pub guarded: bool,
    pub vectors: HashMap<String, String>,
    pub prepared: HashMap<Source, u64>,
    /// 16-bit factors that threads make of values that they computed.
    pub packed: HashSet<Source>,
    /// Fragments that are second factors: their registers come in another order.
    pub second: HashSet<Source>,
    /// Whether every barrier awaits copies.
    pub copies: bool,
    /// Whether threads copy to shared memory on their own, and whether TMA tiles are copied; their
    /// tensor maps.
    pub copying: bool,
    pub tma: bool,
    pub maps: Vec<TensorMap>,
    /// Fragments that warpgroups add to.
    pub warpgroup_sums: Vec<Source>,
    /// Variables that change in serial loops (`moving`), and variables of the grid and its threads,
    /// which do not (`fixed`).
    pub moving: HashSet<Var>,
    pub fixed: HashSet<Var>,
    /// How many values a variable has.
    pub ranges: HashMap<Var, i64>,
    /// The serial loop around; what its threads share out, as parts of the round and of the thread.
    pub steps: Steps,
    pub dealt: HashMap<Var, Parts>,
    /// A number that the part of an index that depends on the round is a multiple of, where known.
    pub rounds: HashMap<Var, i64>,
    /// The text that is printed for a variable.
    pub alias: HashMap<Var, String>,
}
