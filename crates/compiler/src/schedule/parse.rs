//! Reads a schedule's text.

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
            "inline" => Primitive::Inline(c.name()?),
            "reshape" => Primitive::Reshape(c.name()?, comma_int(&mut c)? as usize),
            "relayout" => {
                let b = c.name()?;
                c.expect(",")?;
                Primitive::Relayout(b, list(&mut c, |c| Ok(c.int()? as usize))?)
            }
            "fuse" => Primitive::Fuse(c.name()?, comma_name(&mut c)?, comma_name(&mut c)?),
            "join" => Primitive::Join(c.name()?, comma_name(&mut c)?),
            "split" => Primitive::Split(
                c.name()?,
                comma_int(&mut c)?,
                comma_name(&mut c)?,
                comma_name(&mut c)?,
            ),
            "peel" => Primitive::Peel(c.name()?, comma_int(&mut c)?, comma_name(&mut c)?),
            "reorder" => Primitive::Reorder(list(&mut c, Cursor::name)?),
            "fission" => {
                let l = c.name()?;
                c.expect(",")?;
                Primitive::Fission(l, list(&mut c, Cursor::name)?)
            }
            "contract" => Primitive::Contract(c.name()?, comma_name(&mut c)?),
            "cache_write" => {
                Primitive::CacheWrite(c.name()?, comma_name(&mut c)?, comma_name(&mut c)?)
            }
            "forward" => Primitive::Forward(c.name()?),
            "pack" => Primitive::Pack(c.name()?, comma_name(&mut c)?, comma_name(&mut c)?),
            "pack_near" => Primitive::PackNear(c.name()?, comma_name(&mut c)?, comma_name(&mut c)?),
            "prefetch" => Primitive::Prefetch(c.name()?, comma_int(&mut c)?),
            "rfactor" => Primitive::Rfactor(c.name()?, comma_name(&mut c)?),
            "winograd" => {
                let b = c.name()?;
                c.expect(",")?;
                let numbers = list(&mut c, Cursor::int)?;
                match <[i64; 8]>::try_from(numbers).ok().and_then(WinogradTile::from_numbers) {
                    Some(tile) => Primitive::Winograd(b, tile),
                    None => {
                        return c.error(
                            "expected 8 numbers: output, rows, lanes, vectors, tiles, unroll, \
                             panels outside, threads (0 one, 1 share phases, 2 share blocks)",
                        );
                    }
                }
            }
            "serial" => Primitive::Mark(Mode::Serial, c.name()?),
            "parallel" => Primitive::Mark(Mode::Parallel, c.name()?),
            "vectorize" => Primitive::Mark(Mode::Vector, c.name()?),
            "unroll" => Primitive::Mark(Mode::Unroll, c.name()?),
            _ => return c.error(format!("unknown primitive `{name}`")),
        };
        c.expect(")")?;
        out.push(p);
    }
    Ok(out)
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
