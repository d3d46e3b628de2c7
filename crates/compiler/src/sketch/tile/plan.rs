//! From a configuration of multi-level tiling to its schedule.

use super::super::divisors;
use super::super::powers;
use super::super::short::{parallel, split, unroll, vectorize};
use super::{Axis, Border, Shape};
use crate::schedule::Primitive;
use squall_core::Configuration;

/// The schedule of a configuration.
pub(super) fn plan(s: &Shape, c: &str, k: &Configuration) -> Vec<Primitive> {
    let get = |name: String| k.int(&name).unwrap_or(1);
    let factor = |a: &Axis, level: u8| get(format!("{}{level}", a.short));
    let lanes = get("lanes".into());
    let mut p = Vec::new();
    let at = |a: &Axis, level: u8| format!("{}{level}", a.short);
    // Spatial splits.
    for (i, a) in s.tiled.iter().enumerate() {
        let l = if i == s.lane { lanes } else { 1 };
        let (f1, f2, f3) = (factor(a, 1), factor(a, 2), factor(a, 3) * l);
        p.push(split(&a.name, f1 * f2 * f3, at(a, 0), at(a, 4)));
        p.push(split(&at(a, 4), f2 * f3, at(a, 1), at(a, 5)));
        p.push(split(&at(a, 5), f3, at(a, 2), at(a, 3)));
        if i == s.lane {
            let inner = format!("{}6", a.short);
            p.push(Primitive::Split { of: at(a, 3), factor: l, outer: inner, inner: "v".into() });
        }
    }
    let lane = &s.tiled[s.lane];
    // Loops of the register tile: the lane axis's vectors last, then the lanes.
    let tile: Vec<String> = (s.tiled.iter().enumerate())
        .filter(|(i, _)| *i != s.lane)
        .map(|(_, a)| at(a, 3))
        .chain([format!("{}6", lane.short), "v".into()])
        .collect();
    let middle: Vec<String> = s.tiled.iter().map(|a| at(a, 2)).collect();
    let order = s
        .orders
        .iter()
        .find(|o| Some(o.0.as_str()) == k.word("order"))
        .map_or_else(|| (0..s.tiled.len()).collect(), |o| o.1.clone());
    let level = |l: u8| order.iter().map(move |&i| at(&s.tiled[i], l));
    let outside: Vec<String> = level(0).chain(level(1)).collect();
    p.push(Primitive::Reorder {
        loops: outside.iter().chain(&middle).chain(&tile).cloned().collect(),
    });
    // The reduction.
    let whole = s.whole;
    let factor = |a: &Axis, level: u8| {
        if whole && s.reduce.iter().any(|r| r.name == a.name) { a.extent } else { factor(a, level) }
    };
    let sunk: Vec<String> =
        if whole { tile.clone() } else { middle.iter().chain(&tile).cloned().collect() };
    for l in sunk.iter().rev() {
        p.push(Primitive::Fission {
            of: l.clone(),
            names: vec![format!("{l}i"), l.clone(), format!("{l}e")],
        });
    }
    for a in &s.reduce {
        p.push(split(&a.name, factor(a, 1), format!("{}0", a.short), format!("{}1", a.short)));
    }
    let mut inner: Vec<&Axis> = s.reduce.iter().collect();
    if k.word("reduce") == Some("first_inside") {
        inner.rotate_left(1);
    }
    let r0: Vec<String> = s.reduce.iter().map(|a| format!("{}0", a.short)).collect();
    let r1: Vec<String> = inner.iter().map(|a| format!("{}1", a.short)).collect();
    let mut chain: Vec<String> = r0;
    if !whole {
        chain.extend(middle.iter().cloned());
    }
    chain.extend(r1.iter().cloned());
    chain.extend(tile.iter().cloned());
    p.push(Primitive::Reorder { loops: chain });
    // Unrolling, from the innermost reduction loop outwards.
    let mut room = get("unroll".into());
    for a in inner.iter().rev() {
        let (name, extent) = (format!("{}1", a.short), factor(a, 1));
        if room >= extent {
            p.push(unroll(name));
            room /= extent;
            continue;
        }
        if let Some(d) = divisors(extent).into_iter().rfind(|d| *d <= room && *d > 1) {
            let inner_name = format!("{}2u", a.short);
            p.push(split(&name, d, format!("{}1o", a.short), inner_name.clone()));
            p.push(unroll(inner_name));
        }
        break;
    }
    for l in &tile[..tile.len() - 1] {
        p.push(unroll(l.clone()));
    }
    p.push(vectorize("v"));
    // The accumulators.
    let last_outer = if whole { &middle } else { &outside };
    let home = last_outer.last().map_or("v", |l| l).to_string();
    p.push(Primitive::Contract { buffer: c.into(), at: home });
    let staged = !s.contiguous || !whole;
    if staged {
        if !s.contiguous {
            p.push(Primitive::Relayout { buffer: c.into(), order: s.layout.clone() });
        }
        if !whole {
            p.push(vectorize("vi"));
        } else {
            mark_tile(&mut p, &tile, "i");
        }
        // The loop that holds the whole inner reduction.
        let first = inner.first().map(|a| format!("{}1", a.short)).unwrap_or_default();
        let split_first =
            p.iter().any(|x| matches!(x, Primitive::Split { of: l, .. } if *l == first));
        let root = if split_first { format!("{}1o", inner[0].short) } else { first };
        p.push(Primitive::CacheWrite { at: root, buffer: c.into(), local: "acc".into() });
        if whole {
            p.push(Primitive::Forward { buffer: c.into() });
        }
    } else {
        mark_tile(&mut p, &tile, "i");
    }
    epilogue(s, &mut p, &tile, lanes);
    for (name, _) in &s.packable {
        let top = s.outer.first().map_or(&outside[0], |a| &a.name);
        match k.word(&format!("pack_{name}")) {
            Some("yes") => p.push(Primitive::Pack {
                buffer: name.clone(),
                at: top.clone(),
                packed: format!("{name}_packed"),
            }),
            // Inside the outermost tile loop, where all loops within read the same part again.
            Some("near") => p.push(Primitive::PackNear {
                buffer: name.clone(),
                at: outside[0].clone(),
                packed: format!("{name}_packed"),
            }),
            _ => {}
        }
    }
    copy(s, &mut p);
    if let Some(name) = s.stream.as_ref().filter(|_| get("prefetch".into()) > 1) {
        let ahead = |of: String| Primitive::Prefetch { buffer: of, lines: get("prefetch".into()) };
        match k.word(&format!("pack_{name}")) {
            Some("yes") => p.push(ahead(format!("{name}_packed"))),
            // Copied next to its use it is in a near cache.
            Some("near") => {}
            _ => p.push(ahead(name.clone())),
        }
    }
    if s.threads > 1 {
        let all: Vec<String> = s.outer.iter().map(|a| a.name.clone()).chain(level(0)).collect();
        for l in all.iter().take(get("parallel".into()) as usize) {
            p.push(parallel(l.clone()));
        }
    }
    p
}

/// Unrolls and vectorises a copy of the register tile's loops.
fn mark_tile(p: &mut Vec<Primitive>, tile: &[String], suffix: &str) {
    for l in &tile[..tile.len() - 1] {
        p.push(unroll(format!("{l}{suffix}")));
    }
    p.push(vectorize(format!("v{suffix}")));
}

/// Stores the tile: in place where the lanes are contiguous in the output, else transposed in
/// blocks of four by four.
fn epilogue(s: &Shape, p: &mut Vec<Primitive>, tile: &[String], lanes: i64) {
    let last = &s.tiled[s.tiled.len() - 1];
    if s.contiguous {
        return mark_tile(p, tile, "e");
    }
    let row = format!("{}3e", last.short);
    let extent = p.iter().find_map(|x| match x {
        Primitive::Split { of: l, factor: f, inner: i, .. }
            if *i == format!("{}3", last.short) && *l == format!("{}5", last.short) =>
        {
            Some(*f)
        }
        _ => None,
    });
    let vectors = format!("{}6e", s.tiled[s.lane].short);
    if extent.is_none_or(|e| e < 4) || lanes < 4 {
        return p.push(vectorize("ve"));
    }
    p.push(split(&row, 4, "row_o", "row_v"));
    p.push(split("ve", 4, "lane_o", "lane_u"));
    let keep: Vec<String> =
        tile[..tile.len() - 2].iter().map(|l| format!("{l}e")).filter(|l| *l != row).collect();
    let all = keep.into_iter().chain([
        vectors,
        "lane_o".into(),
        "row_o".into(),
        "lane_u".into(),
        "row_v".into(),
    ]);
    p.push(Primitive::Reorder { loops: all.collect() });
    p.push(unroll("lane_u"));
    p.push(vectorize("row_v"));
}

/// Peels and vectorises the padded copy.
fn copy(s: &Shape, p: &mut Vec<Primitive>) {
    let Some(Border { name, low, high, extent }) = &s.border else { return };
    let mut inside = name.clone();
    if *low > 0 && low < extent {
        p.push(Primitive::Peel { of: name.clone(), at: *low, rest: "pad_in".into() });
        inside = "pad_in".into();
    }
    if high < extent && high > low {
        p.push(Primitive::Peel { of: inside.clone(), at: high - low, rest: "pad_end".into() });
    }
    let width = high - low;
    let lanes = powers(1, 16).take_while(|l| *l <= width).last().unwrap_or(1);
    if lanes > 1 {
        p.push(split(&inside, lanes, "pad_o", "pad_v"));
        p.push(vectorize("pad_v"));
    }
    if s.threads > 1
        && let Some(top) = &s.copy_outer
        && s.outer.iter().all(|a| a.name != *top)
        && top != name
    {
        p.push(parallel(top.clone()));
    }
}
