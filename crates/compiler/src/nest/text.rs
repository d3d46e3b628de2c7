//! The words of a loop nest's text: the keyword of each loop mode (`for`, `parallel`, `vector`, ..)
//! and buffer scope (`data`, `weight`, `local`, ..), and indices such as `[2*i + j, k]`. `print.rs`
//! and `warp.rs` print with them.

use super::{Mode, Nest, Scope};
use squall_core::expr::{Affine, Names, Source, Var, print_affine};
use std::fmt;

impl Names for Nest {
    fn var(&self, v: Var) -> &str {
        self.vars.get(v.0 as usize).map_or("?", String::as_str)
    }
    fn source(&self, s: Source) -> &str {
        self.buffers.get(s.0 as usize).map_or("?", |b| &b.name)
    }
}

impl Mode {
    /// The word that starts a loop of this mode.
    pub(super) fn word(self) -> &'static str {
        match self {
            Mode::Serial => "for",
            Mode::Parallel => "parallel",
            Mode::Vector => "vector",
            Mode::Unroll => "unroll",
            Mode::Step => "step",
            Mode::Amx => "amx",
            Mode::Block => "block",
            Mode::Cluster => "cluster",
            Mode::Thread => "thread",
            Mode::Share => "share",
            Mode::Tma => "tma",
        }
    }
}

impl Scope {
    /// The word that declares a buffer of this scope.
    pub(super) fn word(self) -> &'static str {
        match self {
            Scope::Data(_) => "data",
            Scope::Weight(_) => "weight",
            Scope::Output => "output",
            Scope::Prepared => "prepared",
            Scope::Workspace => "workspace",
            Scope::Local => "local",
            Scope::Shared => "shared",
            Scope::Cluster => "distributed",
            Scope::Swizzled => "swizzled",
            Scope::Fragment => "fragment",
        }
    }
}

/// An index: a list of affine forms in brackets.
pub(super) fn index(f: &mut fmt::Formatter<'_>, n: &Nest, index: &[Affine]) -> fmt::Result {
    write!(f, "[")?;
    for (i, a) in index.iter().enumerate() {
        if i > 0 {
            write!(f, ", ")?;
        }
        print_affine(f, a, n)?;
    }
    write!(f, "]")
}
