//! The parser of schedules (lists of primitives that rewrite a loop nest). Input: a text with one
//! primitive a line, such as `cache_write(m1, C, acc)`, as `primitive.rs` prints it; output: a list
//! of `Primitive`, or the line and column of the first error. Used by tests and their reference
//! pages (`compiler/tests/primitives/`).

use super::{Primitive, WinogradTile};
use crate::nest::Mode;
use squall_core::text::{Cursor, TextError};

/// Parses primitives, one after another.
pub fn parse(text: &str) -> Result<Vec<Primitive>, TextError> {
    let mut c = Cursor::new(text)?;
    let mut out = Vec::new();
    while !c.at_end() {
        let name = c.name()?;
        c.expect("(")?;
        let p = match name.as_str() {
            "inline" => Primitive::Inline { buffer: c.name()? },
            "reshape" => Primitive::Reshape { buffer: c.name()?, dim: comma_int(&mut c)? as usize },
            "relayout" => {
                let b = c.name()?;
                c.expect(",")?;
                Primitive::Relayout { buffer: b, order: list(&mut c, |c| Ok(c.int()? as usize))? }
            }
            "fuse" => Primitive::Fuse {
                outer: c.name()?,
                inner: comma_name(&mut c)?,
                fused: comma_name(&mut c)?,
            },
            "join" => Primitive::Join { first: c.name()?, second: comma_name(&mut c)? },
            "split" => split(&mut c)?,
            "peel" => {
                Primitive::Peel { of: c.name()?, at: comma_int(&mut c)?, rest: comma_name(&mut c)? }
            }
            "reorder" => Primitive::Reorder { loops: list(&mut c, Cursor::name)? },
            "fission" => {
                let l = c.name()?;
                c.expect(",")?;
                Primitive::Fission { of: l, names: list(&mut c, Cursor::name)? }
            }
            "contract" => Primitive::Contract { buffer: c.name()?, at: comma_name(&mut c)? },
            "compute_at" => Primitive::ComputeAt { buffer: c.name()?, at: comma_name(&mut c)? },
            "cache_write" => Primitive::CacheWrite {
                at: c.name()?,
                buffer: comma_name(&mut c)?,
                local: comma_name(&mut c)?,
            },
            "forward" => Primitive::Forward { buffer: c.name()? },
            "pack" | "pack_near" => pack(&mut c, name == "pack_near")?,
            "prefetch" => Primitive::Prefetch { buffer: c.name()?, lines: comma_int(&mut c)? },
            "version" => Primitive::Version { at: c.name()? },
            "skip" => Primitive::Skip { buffer: c.name()? },
            "reduce_at_store" => {
                Primitive::ReduceAtStore { buffer: c.name()?, partial: comma_name(&mut c)? }
            }
            "rfactor" => Primitive::Rfactor { of: c.name()?, partial: comma_name(&mut c)? },
            "winograd" => {
                let b = c.name()?;
                c.expect(",")?;
                let numbers = list(&mut c, Cursor::int)?;
                match <[i64; 8]>::try_from(numbers).ok().and_then(WinogradTile::from_numbers) {
                    Some(tile) => Primitive::Winograd { buffer: b, tile },
                    None => {
                        return c.error(
                            "expected 8 numbers: output, rows, lanes, vectors, tiles, unroll, \
                             panels outside, threads (0 one, 1 share phases, 2 share blocks)",
                        );
                    }
                }
            }
            "serial" => Primitive::Mark { mode: Mode::Serial, of: c.name()? },
            "parallel" => Primitive::Mark { mode: Mode::Parallel, of: c.name()? },
            "vectorize" => Primitive::Mark { mode: Mode::Vector, of: c.name()? },
            "unroll" => Primitive::Mark { mode: Mode::Unroll, of: c.name()? },
            "step" => Primitive::Mark { mode: Mode::Step, of: c.name()? },
            "tensorize" => Primitive::Mark { mode: Mode::Amx, of: c.name()? },
            _ => return c.error(format!("unknown primitive `{name}`")),
        };
        c.expect(")")?;
        out.push(p);
    }
    Ok(out)
}

fn split(c: &mut Cursor) -> Result<Primitive, TextError> {
    let (of, factor) = (c.name()?, comma_int(c)?);
    Ok(Primitive::Split { of, factor, outer: comma_name(c)?, inner: comma_name(c)? })
}

fn pack(c: &mut Cursor, is_near: bool) -> Result<Primitive, TextError> {
    let (buffer, at, packed) = (c.name()?, comma_name(c)?, comma_name(c)?);
    Ok(match is_near {
        true => Primitive::PackNear { buffer, at, packed },
        false => Primitive::Pack { buffer, at, packed },
    })
}

fn comma_name(c: &mut Cursor) -> Result<String, TextError> {
    c.expect(",")?;
    c.name()
}

fn comma_int(c: &mut Cursor) -> Result<i64, TextError> {
    c.expect(",")?;
    c.int()
}

fn list<T>(
    c: &mut Cursor,
    mut item: impl FnMut(&mut Cursor) -> Result<T, TextError>,
) -> Result<Vec<T>, TextError> {
    c.expect("[")?;
    let mut out = Vec::new();
    while !c.accept("]") {
        if !out.is_empty() {
            c.expect(",")?;
        }
        out.push(item(c)?);
    }
    Ok(out)
}
