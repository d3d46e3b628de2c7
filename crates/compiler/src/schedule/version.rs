//! The version primitive: the body of a loop is written out twice, for the inside of an image
//! without tests and for its border with them. LLVM calls that loop versioning.

use super::loops::named;
use crate::nest::{Loop, Mode, Nest, Stmt, inside, share};
use squall_core::expr::Var;

/// Puts the versions into the loop, where the tests in it hold at some of its iterations.
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

/// The loops around a variable, its own the last.
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
