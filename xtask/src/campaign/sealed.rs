//! Damages files that carry digests or are packed, and seals them again with a right digest, so
//! that the damage reaches the reader behind the check: predictors, choosers, packed databases,
//! weights of exported libraries. The hostile inputs of `learned.rs` and `network.rs` use it.

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder, ZlibDecoder, ZlibEncoder};
use squall_fuzz::{Draw, mutate};
use std::io::{Read, repeat};

/// A general predictor whose digest fits its damage.
pub fn general(draw: &mut Draw<'_>, whole: &[u8]) -> Vec<u8> {
    const DIGEST: usize = 32;
    let Some(body) = whole.len().checked_sub(DIGEST).map(|end| &whole[..end]) else {
        return mutate(draw, whole);
    };
    // The head says lengths, and trees are the rest: half of the damage is in the head.
    let head = body.len().min(1 << 14);
    let mut bytes = match draw.below(3) {
        0 => mutate(draw, body),
        1 => [mutate(draw, &body[..head]), body[head..].to_vec()].concat(),
        _ => flipped(draw, body),
    };
    let digest = blake3::hash(&bytes);
    bytes.extend(digest.as_bytes());
    bytes
}

/// Some bytes exchanged, so that all lengths stay as they are.
fn flipped(draw: &mut Draw<'_>, whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..1 + draw.below(20) {
        let at = draw.bits() as usize % bytes.len().max(1);
        if let Some(b) = bytes.get_mut(at) {
            *b = draw.bits() as u8;
        }
    }
    bytes
}

/// A chooser whose unpacked body is damaged, packed again.
pub fn chooser(draw: &mut Draw<'_>, whole: &[u8]) -> Vec<u8> {
    const HEAD: usize = 12;
    let mut body = Vec::new();
    let packed = whole.get(HEAD..).unwrap_or_default();
    if ZlibDecoder::new(packed).read_to_end(&mut body).is_err() {
        return mutate(draw, whole);
    }
    let damaged = if draw.once_in(2) { mutate(draw, &body) } else { flipped(draw, &body) };
    let mut bytes = whole[..HEAD].to_vec();
    // Writing to memory does not fail.
    let _ = ZlibEncoder::new(&damaged[..], Compression::fast()).read_to_end(&mut bytes);
    bytes
}

/// A predictor whose unpacked bytes are damaged, packed again or not.
pub fn predictor(draw: &mut Draw<'_>, whole: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    if GzDecoder::new(whole).read_to_end(&mut body).is_err() {
        return mutate(draw, whole);
    }
    let damaged = if draw.once_in(2) { mutate(draw, &body) } else { flipped(draw, &body) };
    if draw.once_in(2) { damaged } else { packed(draw, &damaged) }
}

/// A file packed by gzip, at times damaged after that.
pub fn packed(draw: &mut Draw<'_>, whole: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = GzEncoder::new(whole, Compression::fast()).read_to_end(&mut bytes);
    if draw.once_in(3) { mutate(draw, &bytes) } else { bytes }
}

/// Gigabytes of zeros, packed to some megabytes: many members of gzip's, one after another.
pub fn bomb() -> Vec<u8> {
    let mut member = Vec::new();
    let zeros = repeat(0).take(32 << 20);
    let _ = GzEncoder::new(zeros, Compression::fast()).read_to_end(&mut member);
    member.repeat(100)
}

/// A file of an exported network's weights whose head fits its damage: `NAME.weights`.
pub fn weights(draw: &mut Draw<'_>, whole: &[u8]) -> Vec<u8> {
    const HEAD: usize = 40;
    const ENTRY: usize = 32;
    let count =
        |b: &[u8]| b.get(32..36).map_or(0, |c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    let mut bytes = whole.to_vec();
    let sealed = |b: &[u8]| HEAD + (count(b) as usize).saturating_mul(ENTRY);
    let end = sealed(&bytes).min(bytes.len());
    if end == 0 {
        return bytes;
    }
    for _ in 0..1 + draw.below(3) {
        let at = 8 + draw.below(end.saturating_sub(8));
        let value = match draw.below(3) {
            0 => draw.integer() as u64,
            1 => whole.len() as u64 - draw.below(64) as u64,
            _ => draw.below(8) as u64,
        };
        let field = at / 8 * 8;
        if let Some(place) = bytes.get_mut(field..field + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
    }
    let end = sealed(&bytes);
    if let Some(head) = bytes.get(..end) {
        let seal = digest(head).to_le_bytes();
        if let Some(place) = bytes.get_mut(end..end + 8) {
            place.copy_from_slice(&seal);
        }
    }
    bytes
}

/// The digest of such files (crates/runtime/host/digest.c).
fn digest(bytes: &[u8]) -> u64 {
    const A: u64 = 0x9E37_79B1_85EB_CA87;
    const B: u64 = 0xC2B2_AE3D_27D4_EB4F;
    const C: u64 = 0x1656_67B1_9E37_79F9;
    const D: u64 = 0x85EB_CA77_C2B2_AE63;
    const E: u64 = 0x27D4_EB2F_1656_67C5;
    let word = |p: &[u8]| p.iter().rev().fold(0u64, |w, b| w << 8 | u64::from(*b));
    let mixed =
        |lane: u64, w: u64| lane.wrapping_add(w.wrapping_mul(B)).rotate_left(31).wrapping_mul(A);
    let mut sum = E;
    let mut rest = bytes;
    if rest.len() >= 32 {
        let mut lanes = [A.wrapping_add(B), B, 0, 0u64.wrapping_sub(A)];
        while let Some((block, more)) = rest.split_at_checked(32) {
            for (lane, eight) in lanes.iter_mut().zip(block.chunks(8)) {
                *lane = mixed(*lane, word(eight));
            }
            rest = more;
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(l, by)| l.rotate_left(by));
        sum = turned.fold(0, u64::wrapping_add);
        for lane in lanes {
            sum = (sum ^ mixed(0, lane)).wrapping_mul(A).wrapping_add(D);
        }
    }
    sum = sum.wrapping_add(bytes.len() as u64);
    while let Some((eight, more)) = rest.split_at_checked(8) {
        sum = (sum ^ mixed(0, word(eight))).rotate_left(27).wrapping_mul(A).wrapping_add(D);
        rest = more;
    }
    if let Some((four, more)) = rest.split_at_checked(4) {
        sum = (sum ^ word(four).wrapping_mul(A)).rotate_left(23).wrapping_mul(B).wrapping_add(C);
        rest = more;
    }
    for byte in rest {
        sum = (sum ^ u64::from(*byte).wrapping_mul(E)).rotate_left(11).wrapping_mul(A);
    }
    sum = (sum ^ sum >> 33).wrapping_mul(B);
    sum = (sum ^ sum >> 29).wrapping_mul(C);
    sum ^ sum >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a file that Squall 0.1 wrote, and its seal.
    #[test]
    fn the_digest_is_that_of_the_host_library() {
        let head = include_bytes!("sealed/head");
        let (body, seal) = head.split_at(head.len() - 8);
        assert_eq!(digest(body).to_le_bytes(), seal);
    }
}
