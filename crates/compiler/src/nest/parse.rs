//! The parser of loop nests. Input: the text of a nest, as `print.rs` writes it (an example is in
//! `mod.rs`); output: a verified `Nest`, or the line and column of the first error. Tests and
//! reference pages of schedule primitives contain such texts.

use super::{
    Buffer, Loop, Matrix, Mode, Nest, Reach, Scope, Start, Stmt, TileSlice, Warp, extents, verify,
};
use squall_core::expr::Source;
use squall_core::text::{Cursor, Scope as Names, TextError};
use squall_core::workload::Reducer;

/// Parses and verifies a nest.
pub fn parse(text: &str) -> Result<Nest, TextError> {
    let mut c = Cursor::new(text)?;
    c.expect_word("nest")?;
    let mut n = Nest {
        name: c.name()?,
        vars: Vec::new(),
        buffers: Vec::new(),
        prepare: Vec::new(),
        body: Vec::new(),
    };
    let mut names = Names::default();
    let (mut data, mut weights) = (0, 0);
    loop {
        let scope = match c.peek_name() {
            Some("data") => {
                data += 1;
                Scope::Data(data - 1)
            }
            Some("weight") => {
                weights += 1;
                Scope::Weight(weights - 1)
            }
            Some("output") => Scope::Output,
            Some("prepared") => Scope::Prepared,
            Some("workspace") => Scope::Workspace,
            Some("local") => Scope::Local,
            Some("shared") => Scope::Shared,
            Some("distributed") => Scope::Cluster,
            Some("swizzled") => Scope::Swizzled,
            Some("fragment") => Scope::Fragment,
            _ => break,
        };
        c.name()?;
        let name = c.name()?;
        c.expect(":")?;
        let dtype = c.dtype()?;
        c.expect("[")?;
        let mut shape = Vec::new();
        while !c.accept("]") {
            if !shape.is_empty() {
                c.expect(",")?;
            }
            shape.push(c.extent()?);
        }
        names.sources.insert(name.clone(), Source(n.buffers.len() as u32));
        let lenient = c.accept_word("lenient");
        n.buffers.push(Buffer { name, dtype, shape, scope, lenient });
    }
    if c.accept_word("prepare") {
        n.prepare = block(&mut c, &mut n, &mut names)?;
    }
    n.body = block(&mut c, &mut n, &mut names)?;
    if !c.at_end() {
        return c.error("expected the end");
    }
    match verify(&n) {
        Ok(()) => Ok(n),
        Err(e) => c.error(e.to_string()),
    }
}

const MODES: [Mode; 11] = [
    Mode::Serial,
    Mode::Parallel,
    Mode::Vector,
    Mode::Unroll,
    Mode::Step,
    Mode::Amx,
    Mode::Block,
    Mode::Cluster,
    Mode::Thread,
    Mode::Share,
    Mode::Tma,
];

/// Words of loop modes that nests were written with before.
const FORMER_MODES: [(&str, Mode); 1] = [("box", Mode::Tma)];

/// The mode that a word says, by its word of today or a former one.
fn mode(word: &str) -> Option<Mode> {
    let former = FORMER_MODES.into_iter().find(|f| f.0 == word).map(|f| f.1);
    MODES.into_iter().find(|m| m.word() == word).or(former)
}

fn block(c: &mut Cursor, n: &mut Nest, names: &mut Names) -> Result<Vec<Stmt>, TextError> {
    c.expect("{")?;
    let mut out = Vec::new();
    while !c.accept("}") {
        if let Some(mode) = c.peek_name().and_then(mode) {
            c.name()?;
            let var = declare(c, n, names)?;
            c.expect_word("in")?;
            let extent = c.extent()?;
            let mut start = None;
            if c.accept_word("at") {
                let v = declare(c, n, names)?;
                c.expect("=")?;
                let step = c.extent()?;
                c.expect("*")?;
                c.name()?;
                c.expect_word("cap")?;
                start = Some(Start { var: v, step, cap: c.int()? });
            }
            let body = block(c, n, names)?;
            out.push(Stmt::Loop(Loop { var, extent, mode, start, body }));
        } else if c.accept_word("local") {
            out.push(Stmt::Local(buffer(c, names)?));
        } else if let Some(word) =
            c.peek_name().filter(|w| w.starts_with("warp_")).map(String::from)
        {
            c.name()?;
            out.push(Stmt::Warp(warp(&word, c, n, names)?));
        } else if c.accept_word("let") {
            let var = declare(c, n, names)?;
            c.expect("=")?;
            let value = c.affine(names)?;
            let divisor = if c.accept_word("over") { c.extent()? } else { 1 };
            c.expect_word("mod")?;
            out.push(Stmt::Let { var, value, divisor, modulo: c.extent()? });
        } else if c.accept_word("version") {
            out.push(Stmt::Version);
        } else if c.accept_word("prefetch") {
            let buffer = buffer(c, names)?;
            c.expect_word("at")?;
            out.push(Stmt::Prefetch { buffer, at: c.affine(names)? });
        } else if c.accept_word("commit_copies") {
            out.push(Stmt::CommitCopies);
        } else if c.accept_word("await_copies") {
            out.push(Stmt::AwaitCopies(batches(c)?));
        } else if c.accept_word("await_products") {
            out.push(Stmt::AwaitProducts(batches(c)?));
        } else if c.accept_word("warpgroup_multiply") || c.accept_word("group_multiply") {
            // Nests were written with the second word before.
            out.push(Stmt::Warp(warpgroup_multiply(c, names)?));
        } else if c.accept_word("barrier") {
            out.push(Stmt::Barrier(Reach::Block));
        } else if c.accept_word("barrier_cluster") {
            out.push(Stmt::Barrier(Reach::Cluster));
        } else if c.accept_word("if") {
            let conds = c.conds(names)?;
            out.push(Stmt::If { conds, body: block(c, n, names)? });
        } else {
            let buffer = buffer(c, names)?;
            let index = c.index(names)?;
            if c.accept("=") {
                out.push(Stmt::Store { buffer, index, value: c.expr(names)? });
                continue;
            }
            let ops = [
                ("+=", Reducer::Sum),
                ("*=", Reducer::Prod),
                ("max=", Reducer::Max),
                ("min=", Reducer::Min),
            ];
            let Some((_, op)) = ops.into_iter().find(|(sign, _)| c.accept(sign)) else {
                return c.error("expected `=`, `+=`, `*=`, `max=` or `min=`");
            };
            out.push(Stmt::Update { op, buffer, index, value: c.expr(names)? });
        }
    }
    Ok(out)
}

fn buffer(c: &mut Cursor, names: &Names) -> Result<Source, TextError> {
    let name = c.name()?;
    match names.sources.get(&name) {
        Some(&s) => Ok(s),
        None => c.error(format!("unknown buffer `{name}`")),
    }
}

fn batches(c: &mut Cursor) -> Result<u32, TextError> {
    let n = c.int()?;
    u32::try_from(n).or_else(|_| c.error("expected a number of batches"))
}

/// Parses the text behind `warpgroup_multiply`.
fn warpgroup_multiply(c: &mut Cursor, names: &Names) -> Result<Warp, TextError> {
    let part = |c: &mut Cursor, word| -> Result<TileSlice, TextError> {
        c.expect_word(word)?;
        c.expect_word("from")?;
        let first = c.affine(names)?;
        c.expect_word("of")?;
        Ok(TileSlice { first, all: c.extent()? })
    };
    let (rows, columns) = (part(c, "rows")?, part(c, "columns")?);
    c.expect(":")?;
    let to = buffer(c, names)?;
    let replaces = c.accept("=");
    if !replaces {
        c.expect("+=")?;
    }
    let a = Matrix { buffer: buffer(c, names)?, at: c.index(names)? };
    c.expect("*")?;
    let b = Matrix { buffer: buffer(c, names)?, at: c.index(names)? };
    Ok(Warp::WarpgroupMultiply { to, rows, columns, a, b, replaces })
}

/// Parses the text behind `word`, the name of a warp instruction.
fn warp(word: &str, c: &mut Cursor, n: &mut Nest, names: &mut Names) -> Result<Warp, TextError> {
    let matrix = |c: &mut Cursor, names: &Names| {
        Ok(Matrix { buffer: buffer(c, names)?, at: c.index(names)? })
    };
    match word {
        "warp_zero" => Ok(Warp::Zero(matrix(c, names)?)),
        "warp_load" => {
            c.expect_word("rows")?;
            let mut rows = Vec::new();
            while rows.is_empty() || c.accept(",") {
                let v = declare(c, n, names)?;
                c.expect_word("in")?;
                rows.push((v, c.extent()?));
            }
            c.expect_word("from")?;
            let first = c.affine(names)?;
            c.expect_word("column")?;
            let column = declare(c, n, names)?;
            let columns = if c.accept_word("in") { Some(c.extent()?) } else { None };
            c.expect(":")?;
            let to = matrix(c, names)?;
            let columns = columns.unwrap_or(extents(n, &to).1);
            let rest = if c.accept_word("and") { Some(matrix(c, names)?) } else { None };
            c.expect("=")?;
            Ok(Warp::Load {
                to,
                rest,
                rows,
                first,
                column,
                columns,
                from: buffer(c, names)?,
                index: c.index(names)?,
            })
        }
        "warp_multiply" => {
            let to = matrix(c, names)?;
            c.expect("+=")?;
            let a = matrix(c, names)?;
            c.expect("*")?;
            Ok(Warp::Multiply { to, a, b: matrix(c, names)? })
        }
        "warp_store" => {
            c.expect_word("row")?;
            let row = declare(c, n, names)?;
            c.expect_word("column")?;
            let column = declare(c, n, names)?;
            c.expect(":")?;
            let (to, index) = (buffer(c, names)?, c.index(names)?);
            c.expect("=")?;
            Ok(Warp::Store { from: matrix(c, names)?, row, column, to, index })
        }
        "warp_unpack" | "warp_pack" => {
            let to = matrix(c, names)?;
            c.expect("=")?;
            let from = matrix(c, names)?;
            Ok(if word == "warp_pack" {
                Warp::Pack { to, from }
            } else {
                Warp::Unpack { to, from }
            })
        }
        "warp_reduce" => {
            let name = c.name()?;
            let Some(&(op, _)) = Reducer::ALL.iter().find(|r| r.1 == name) else {
                return c.error(format!("`{name}` combines nothing"));
            };
            c.expect_word("of")?;
            let lanes = c.extent()?;
            c.expect(":")?;
            Ok(Warp::Reduce { op, buffer: buffer(c, names)?, lanes })
        }
        _ => c.error(format!(
            "there is no instruction `{word}`; there are warp_zero, warp_load, warp_multiply, \
             warp_store, warp_unpack, warp_pack and warp_reduce"
        )),
    }
}

fn declare(
    c: &mut Cursor,
    n: &mut Nest,
    names: &mut Names,
) -> Result<squall_core::expr::Var, TextError> {
    let name = c.name()?;
    if names.vars.contains_key(&name) {
        return c.error(format!("the variable `{name}` is taken"));
    }
    let v = n.new_var(&name);
    names.vars.insert(name, v);
    Ok(v)
}
