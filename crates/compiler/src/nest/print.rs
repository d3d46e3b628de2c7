//! Nests as text; [`parse`](super::parse) reads them back.

use super::{Mode, Nest, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Names, PrintExpr, Source, Var, print_affine, print_cond};
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
            Mode::Block => "block",
            Mode::Cluster => "cluster",
            Mode::Thread => "thread",
            Mode::Share => "share",
            Mode::Box => "box",
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

impl fmt::Display for Nest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nest {}", self.name)?;
        for b in &self.buffers {
            let shape: Vec<String> = b.shape.iter().map(i64::to_string).collect();
            writeln!(f, "{} {}: {}[{}]", b.scope.word(), b.name, b.dtype.name(), shape.join(", "))?;
        }
        if !self.prepare.is_empty() {
            writeln!(f, "prepare {{")?;
            block(f, self, &self.prepare, 1)?;
            writeln!(f, "}}")?;
        }
        writeln!(f, "{{")?;
        block(f, self, &self.body, 1)?;
        writeln!(f, "}}")
    }
}

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

fn block(f: &mut fmt::Formatter<'_>, n: &Nest, stmts: &[Stmt], depth: usize) -> fmt::Result {
    for s in stmts {
        write!(f, "{:1$}", "", depth * 2)?;
        match s {
            Stmt::Loop(l) => {
                write!(f, "{} {} in {}", l.mode.word(), n.var(l.var), l.extent)?;
                if let Some(s) = l.start {
                    write!(f, " at {} = {}*{} cap {}", n.var(s.var), s.step, n.var(l.var), s.cap)?;
                }
                writeln!(f, " {{")?;
                block(f, n, &l.body, depth + 1)?;
                writeln!(f, "{:1$}}}", "", depth * 2)?;
            }
            Stmt::Barrier(Reach::Block) => writeln!(f, "barrier")?,
            Stmt::Barrier(Reach::Cluster) => writeln!(f, "barrier_cluster")?,
            Stmt::Let { var, value, divisor, modulo } => {
                write!(f, "let {} = ", n.var(*var))?;
                print_affine(f, value, n)?;
                if *divisor > 1 {
                    write!(f, " over {divisor}")?;
                }
                writeln!(f, " mod {modulo}")?;
            }
            Stmt::Warp(w) => super::warp::print(f, n, w)?,
            Stmt::CommitCopies => writeln!(f, "commit_copies")?,
            Stmt::AwaitCopies(n) => writeln!(f, "await_copies {n}")?,
            Stmt::AwaitProducts(n) => writeln!(f, "await_products {n}")?,
            Stmt::Prefetch { buffer, at } => {
                write!(f, "prefetch {} at ", n.source(*buffer))?;
                print_affine(f, at, n)?;
                writeln!(f)?;
            }
            Stmt::Local(b) => writeln!(f, "local {}", n.source(*b))?,
            Stmt::Store { buffer, index: i, value } => {
                write!(f, "{}", n.source(*buffer))?;
                index(f, n, i)?;
                writeln!(f, " = {}", PrintExpr(value, n))?;
            }
            Stmt::Update { op, buffer, index: i, value } => {
                let sign = match op.name() {
                    "sum" => "+=",
                    "prod" => "*=",
                    "max" => "max=",
                    _ => "min=",
                };
                write!(f, "{}", n.source(*buffer))?;
                index(f, n, i)?;
                writeln!(f, " {sign} {}", PrintExpr(value, n))?;
            }
            Stmt::If { conds, body } => {
                write!(f, "if ")?;
                for (i, c) in conds.iter().enumerate() {
                    if i > 0 {
                        write!(f, " and ")?;
                    }
                    print_cond(f, c, n)?;
                }
                writeln!(f, " {{")?;
                block(f, n, body, depth + 1)?;
                writeln!(f, "{:1$}}}", "", depth * 2)?;
            }
        }
    }
    Ok(())
}
