//! Schedule primitives that change loops alone: `split(k, 8, ko, ki)`, `fuse(outer, inner, fused)`,
//! `reorder([..])`, and the modes `parallel`, `vectorize`, `unroll`, `step`, `tensorize` of a loop.
//! Input: a loop nest and loop names; output: the rewritten nest, or the reason why not. Where a
//! split factor does not divide the extent, the last tile is moved back and overlaps the one
//! before, so that no tail code is needed. `primitive.rs` lists and applies all primitives.

use super::dependence::{DependenceAxis, by_buffer, independent};
use crate::nest::{Loop, Mode, Nest, Start, Stmt, loop_over, rewrite, substitute};
use squall_core::expr::{Affine, Var};

/// The loop of a name.
pub fn named<'a>(n: &'a Nest, name: &str) -> Result<&'a Loop, String> {
    let v = n.find_var(name).ok_or_else(|| format!("there is no loop `{name}`"))?;
    n.find_loop(v).ok_or_else(|| format!("there is no loop `{name}`"))
}

/// A name that is still free.
pub fn fresh(n: &mut Nest, name: &str) -> Result<Var, String> {
    if n.find_var(name).is_some() {
        return Err(format!("the name `{name}` is taken"));
    }
    Ok(n.new_var(name))
}

/// Splits a loop into `outer` and `inner`, the latter with `factor` iterations.
pub fn split(
    n: &mut Nest,
    name: &str,
    factor: i64,
    outer: &str,
    inner: &str,
) -> Result<(), String> {
    let l = named(n, name)?;
    let (var, extent) = (l.var, l.extent);
    if l.start.is_some() {
        return Err(format!("`{name}` counts tiles; split the loop inside a tile"));
    }
    if factor < 1 || factor > extent {
        return Err(format!("the factor {factor} is not between 1 and the extent {extent}"));
    }
    let exact = extent % factor == 0;
    if !exact {
        // The last tile computes the overlap a second time. That changes nothing where the body
        // sets what it accumulates into.
        let again = by_buffer(&l.body)
            .into_iter()
            .find(|(_, list)| list.iter().any(|a| a.write) && (!list[0].write || list[0].read));
        if let Some((b, _)) = again {
            return Err(format!(
                "{factor} does not divide {extent}, and `{}` would be accumulated twice where \
                 tiles overlap",
                n.buffer(b).name
            ));
        }
    }
    let outer = fresh(n, outer)?;
    let inner = fresh(n, inner)?;
    let (start, by) = if exact {
        (None, Affine::new([(outer, factor), (inner, 1)], 0))
    } else {
        let base = n.new_var(&format!("{}_at", n.vars[outer.0 as usize].clone()));
        (
            Some(Start { var: base, step: factor, cap: extent - factor }),
            Affine::new([(base, 1), (inner, 1)], 0),
        )
    };
    n.replace_loop(var, &mut |mut l| {
        substitute(&mut l.body, var, &by);
        let inner = Loop { var: inner, extent: factor, mode: l.mode, start: None, body: l.body };
        vec![Stmt::Loop(Loop {
            var: outer,
            extent: (extent + factor - 1) / factor,
            mode: Mode::Serial,
            start,
            body: vec![Stmt::Loop(inner)],
        })]
    });
    Ok(())
}

pub fn fuse(n: &mut Nest, outer: &str, inner: &str, into: &str) -> Result<(), String> {
    let o = named(n, outer)?;
    let i = named(n, inner)?;
    let [Stmt::Loop(only)] = &o.body[..] else {
        return Err(format!("`{outer}` has more than one statement in it"));
    };
    if only.var != i.var || o.start.is_some() || i.start.is_some() {
        return Err(format!(
            "`{inner}` is not directly inside `{outer}`, or one of them counts tiles"
        ));
    }
    let (ov, iv, extent, inner_extent) = (o.var, i.var, o.extent * i.extent, i.extent);
    let mut bad = false;
    let mut body = i.body.clone();
    rewrite(
        &mut body,
        &mut |a| {
            bad |= a.coefficient(ov) != a.coefficient(iv) * inner_extent;
            a.clone()
        },
        &mut |e| e,
    );
    if bad {
        return Err(
            "an index does not walk through both loops in one stride; reshape its buffer first"
                .into(),
        );
    }
    let v = fresh(n, into)?;
    n.replace_loop(ov, &mut |l| {
        let mut body = match l.body.into_iter().next() {
            Some(Stmt::Loop(i)) => i.body,
            _ => Vec::new(),
        };
        rewrite(
            &mut body,
            &mut |a| {
                let c = a.coefficient(iv);
                let mut a = a.clone();
                a.add_term(ov, -c * inner_extent);
                a.add_term(iv, -c);
                a.add_term(v, c);
                a
            },
            &mut |e| e,
        );
        vec![Stmt::Loop(Loop { var: v, extent, mode: l.mode, start: None, body })]
    });
    Ok(())
}

pub fn reorder(n: &mut Nest, names: &[String]) -> Result<(), String> {
    let mut wanted = Vec::new();
    for name in names {
        let v = named(n, name)?.var;
        if wanted.contains(&v) {
            return Err(format!("`{name}` is listed twice"));
        }
        wanted.push(v);
    }
    // The outermost is the one that contains all others.
    let inside = |v: Var, l: &Loop| loop_over(&l.body, v).is_some();
    let Some(&top) = wanted
        .iter()
        .find(|&&t| n.find_loop(t).is_some_and(|l| wanted.iter().all(|&v| v == t || inside(v, l))))
    else {
        return Err("the loops are not nested in one another".into());
    };
    let mut chain = Vec::new();
    let mut at = n.find_loop(top).ok_or("the loop vanished")?;
    loop {
        if !wanted.contains(&at.var) {
            return Err(format!("`{}` lies between them", n.vars[at.var.0 as usize]));
        }
        chain.push(Loop { body: Vec::new(), ..at.clone() });
        if chain.len() == wanted.len() {
            break;
        }
        let [Stmt::Loop(next)] = &at.body[..] else {
            return Err(format!(
                "`{}` has more than one statement in it",
                n.vars[at.var.0 as usize]
            ));
        };
        at = next;
    }
    let axes: Vec<DependenceAxis> = chain.iter().map(DependenceAxis::of).collect();
    independent(n, &at.body, &axes, true)?;
    let innermost = at.body.clone();
    let mut ordered: Vec<Loop> =
        wanted.iter().filter_map(|v| chain.iter().find(|l| l.var == *v).cloned()).collect();
    let mut body = innermost;
    while let Some(mut l) = ordered.pop() {
        l.body = body;
        body = vec![Stmt::Loop(l)];
    }
    n.replace_loop(top, &mut |_| std::mem::take(&mut body));
    Ok(())
}

pub fn mark(n: &mut Nest, mode: Mode, name: &str) -> Result<(), String> {
    let l = named(n, name)?;
    let var = l.var;
    match mode {
        Mode::Vector => {
            if l.extent > 64 || !(l.extent as u64).is_power_of_two() {
                return Err(format!("{} lanes: a vector has a power of two up to 64", l.extent));
            }
            if l.body.iter().any(|s| !matches!(s, Stmt::Store { .. } | Stmt::Update { .. })) {
                return Err(format!("`{name}` is not innermost"));
            }
            independent(n, &l.body, &[DependenceAxis::of(l)], false)?;
            // Lanes run all loads of a statement before its store; a later statement must find
            // what an earlier one stored, which independence over lanes gives.
        }
        // Whether its iterations may be shared is asked behind each primitive.
        Mode::Parallel | Mode::Serial | Mode::Unroll | Mode::Step => {}
        Mode::Amx => return tensorize(n, name),
        Mode::Block | Mode::Cluster | Mode::Thread | Mode::Share | Mode::Tma => {
            return Err("GPU programs are written as a whole".into());
        }
    }
    n.replace_loop(var, &mut |l| vec![Stmt::Loop(Loop { mode, ..l })]);
    Ok(())
}

/// Makes one step on tiles of a loop and those directly nested in it.
fn tensorize(n: &mut Nest, name: &str) -> Result<(), String> {
    let l = named(n, name)?;
    let (var, mut made) = (l.var, l.clone());
    let mut at = &mut made;
    loop {
        at.mode = Mode::Amx;
        match &mut at.body[..] {
            [Stmt::Loop(next)] => at = next,
            _ => break,
        }
    }
    crate::nest::tile_step(n, &made)?;
    n.replace_loop(var, &mut |_| vec![Stmt::Loop(made.clone())]);
    Ok(())
}
