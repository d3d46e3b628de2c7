//! The primitive `rfactor(loop, partial)`, as in Halide and TVM: iterations of a reduction loop
//! accumulate into separate partial results, which are combined at the end, so that a reduction
//! runs in vector lanes or in several independent chains. Input: a loop nest with a loop around one
//! accumulation; output: the nest with the buffer of partial results, or the reason why not.
//! `primitive.rs` lists and applies all primitives.

use super::loops::named;
use super::structure::buffer;
use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Stmt};
use squall_core::expr::{Affine, Expr, Var};

/// Gives each iteration of the reduction loop `name` a partial result in the buffer `partial`.
pub fn rfactor(n: &mut Nest, name: &str, partial: &str) -> Result<(), String> {
    let l = named(n, name)?;
    let (var, extent) = (l.var, l.extent);
    if l.start.is_some() {
        return Err(format!("`{name}` counts tiles"));
    }
    let [Stmt::Update { op, buffer: target, index, .. }] = &l.body[..] else {
        return Err(format!("`{name}` does not hold exactly one accumulation"));
    };
    let (op, target, index) = (*op, *target, index.clone());
    if index.iter().any(|a| a.uses(var)) {
        return Err(format!("`{name}` does not reduce"));
    }
    if buffer(n, partial).is_ok() {
        return Err(format!("the name `{partial}` is taken"));
    }
    // The outermost loop around it that only reduces; partial results are declared around that
    // loop.
    let mut chain = Vec::new();
    chain_to(&n.body, var, &mut chain);
    let top = chain
        .iter()
        .rev()
        .take_while(|(v, starts, single)| {
            *single && !index.iter().any(|a| a.uses(*v) || starts.is_some_and(|s| a.uses(s)))
        })
        .last()
        .map_or(var, |c| c.0);
    let Buffer { dtype, lenient, .. } = *n.buffer(target);
    let p = n.new_buffer(Buffer {
        name: partial.into(),
        dtype,
        shape: vec![extent],
        scope: Scope::Local,
        lenient,
    });
    let init = n.new_var(&format!("{name}_init"));
    let sum = n.new_var(&format!("{name}_sum"));
    n.replace_loop(var, &mut |mut l| {
        if let [Stmt::Update { buffer, index, .. }] = &mut l.body[..] {
            *buffer = p;
            *index = vec![Affine::var(var)];
        }
        vec![Stmt::Loop(l)]
    });
    let serial = |v: Var, body: Stmt| {
        Stmt::Loop(Loop { var: v, extent, mode: Mode::Serial, start: None, body: vec![body] })
    };
    n.replace_loop(top, &mut |l| {
        vec![
            Stmt::Local(p),
            serial(
                init,
                Stmt::Store {
                    buffer: p,
                    index: vec![Affine::var(init)],
                    value: Expr::Const(op.identity()),
                },
            ),
            Stmt::Loop(l),
            serial(
                sum,
                Stmt::Update {
                    op,
                    buffer: target,
                    index: index.clone(),
                    value: Expr::load(p, vec![Affine::var(sum)]),
                },
            ),
        ]
    });
    Ok(())
}

/// Loops from the outermost to `v`: variable, tile start, and whether it holds one statement.
fn chain_to(stmts: &[Stmt], v: Var, chain: &mut Vec<(Var, Option<Var>, bool)>) -> bool {
    for s in stmts {
        if let Stmt::Loop(l) = s {
            chain.push((l.var, l.start.map(|s| s.var), l.body.len() == 1));
            if l.var == v || chain_to(&l.body, v, chain) {
                return true;
            }
            chain.pop();
        }
    }
    false
}
