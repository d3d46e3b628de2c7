//! Prints a loop nest as text, such as `for k in 32 { .. }`; [`parse`](super::parse) reads it back.
//! The words of modes and scopes are in `text.rs`, warp instructions in `warp.rs`. `squall explain
//! --stage nest` and the tests show this text; `mod.rs` has an example.

use super::text::index;
use super::{Nest, Reach, Stmt};
use squall_core::expr::{Names, PrintExpr, print_affine, print_cond};
use std::fmt;

impl fmt::Display for Nest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "nest {}", self.name)?;
        for b in &self.buffers {
            let shape: Vec<String> = b.shape.iter().map(i64::to_string).collect();
            let lenient = if b.lenient { " lenient" } else { "" };
            let (dtype, shape) = (b.dtype.name(), shape.join(", "));
            writeln!(f, "{} {}: {dtype}[{shape}]{lenient}", b.scope.word(), b.name)?;
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
            Stmt::Version => writeln!(f, "version")?,
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
