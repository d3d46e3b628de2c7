//! Damages files that were right: flipped bits, cuts, repeats, exchanged numbers, lines and words.
//! Input: a [`Draw`](crate::Draw) and the bytes of a file; output: damaged bytes, which
//! `cargo xtask campaign` and the tests give to readers.

use crate::draw::Draw;

/// The file with some damage; never more than twice as long.
pub fn mutate(draw: &mut Draw<'_>, whole: &[u8]) -> Vec<u8> {
    let most = whole.len() * 2 + 64;
    let mut bytes = whole.to_vec();
    for _ in 0..1 + draw.below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = draw.bits() as usize % bytes.len();
        let run = 1 + draw.below(32.min(bytes.len() - at));
        match draw.below(10) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + run)),
            2 => {
                let piece = bytes[at..at + run].to_vec();
                let to = draw.bits() as usize % bytes.len();
                bytes.splice(to..to, piece);
            }
            3 => bytes[at..at + run]
                .fill(*[0, 0xff, b' ', b'9', 0x80].get(draw.below(5)).unwrap_or(&0)),
            4 => bytes[at..at + run].iter_mut().for_each(|b| *b = draw.bits() as u8),
            5 => number(draw, &mut bytes, at),
            6 => {
                let insert = draw.name().into_bytes();
                bytes.splice(at..at, insert);
            }
            7 => lines(draw, &mut bytes),
            _ => bytes[at] ^= 1 << draw.below(8),
        }
        bytes.truncate(most);
    }
    bytes
}

/// Another number in the place of the first one behind a place.
fn number(draw: &mut Draw<'_>, bytes: &mut Vec<u8>, at: usize) {
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|p| p + at) else {
        return;
    };
    let digits = bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    bytes.splice(start..start + digits, draw.number().into_bytes());
}

/// Two lines exchanged, or one of them twice.
fn lines(draw: &mut Draw<'_>, bytes: &mut Vec<u8>) {
    let mut all: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let (a, b) = (draw.below(all.len()), draw.below(all.len()));
    if draw.once_in(2) {
        all.swap(a, b);
    } else {
        let again = all[a].clone();
        all.insert(b, again);
    }
    *bytes = all.join(&b'\n');
}
