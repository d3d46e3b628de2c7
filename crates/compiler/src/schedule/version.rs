//! The primitive `version(loop)`: the body of a loop is emitted twice, once without padding tests
//! for the inside of an image and once with them for its border, and a test at run time chooses.
//! LLVM calls this loop versioning. Input: a loop nest; output: the nest with the statement
//! `version` in the loop (`emit/versions.rs` prints the two bodies). `primitive.rs` lists and
//! applies all primitives.

use super::loops::named;
use crate::nest::{Loop, Mode, Nest, Stmt, inside, share};
use squall_core::expr::Var;

/// Marks the loop for two versions, if the tests in its body hold at some of its iterations.
pub fn version(n: &mut Nest, name: &str) -> Result<(), String> {
    let l = named(n, name)?;
    if !matches!(l.mode, Mode::Serial | Mode::Parallel | Mode::Unroll | Mode::Step) {
        return Err(format!("`{name}` is written out as instructions of its own"));
    }
    let (var, conds, mut path) = (l.var, inside(&l.body), Vec::new());
    if !path_to(&n.body, var, &mut path) {
        return Err(format!("`{name}` is no loop of the timed call"));
    }
    if conds.is_none_or(|c| share(&c, &path) == 0.0) {
        return Ok(());
    }
    n.replace_loop(var, &mut |mut l| {
        l.body.insert(0, Stmt::Version);
        vec![Stmt::Loop(l)]
    });
    Ok(())
}

/// Collects the loops around a variable's loop, and that loop last.
fn path_to<'n>(stmts: &'n [Stmt], var: Var, path: &mut Vec<&'n Loop>) -> bool {
    for s in stmts {
        match s {
            Stmt::Loop(l) => {
                path.push(l);
                if l.var == var || path_to(&l.body, var, path) {
                    return true;
                }
                path.pop();
            }
            Stmt::If { body, .. } if path_to(body, var, path) => return true,
            _ => {}
        }
    }
    false
}
