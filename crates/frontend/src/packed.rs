//! Unpacks gzip and bzip2 files of strangers (databases, recordings), with a limit on the unpacked
//! size: a file that packs to less than 1/64 of its contents is refused, since it would fill the
//! memory with repetition. `miopen/mod.rs` and `recording/mod.rs` read files by it.

use bzip2::read::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use std::io::Read;

/// The smallest ratio of packed to unpacked size that is accepted, as its inverse: databases and
/// recordings pack to a tenth; a file that packs to less than this part holds nothing but
/// repetition.
const RATIO: u64 = 64;
/// The bytes to which even a small file may unpack.
const FREE: u64 = 64 << 20;
/// The most bytes to which any file unpacks.
const MOST: u64 = 1 << 30;

/// The ways in which a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Bzip2,
}

impl Packing {
    /// The packing of a file with these bytes; none where it is not packed.
    pub fn of(bytes: &[u8]) -> Option<Packing> {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            return Some(Packing::Gzip);
        }
        bytes.starts_with(b"BZh").then_some(Packing::Bzip2)
    }

    /// The unpacked bytes, or the fault of the file and its remedy.
    pub fn unpack(self, bytes: &[u8]) -> Result<Vec<u8>, (String, &'static str)> {
        let most = (bytes.len() as u64).saturating_mul(RATIO).clamp(FREE, MOST);
        let mut out = Vec::new();
        let (kind, read) = match self {
            Packing::Gzip => {
                ("gzip", MultiGzDecoder::new(bytes).take(most + 1).read_to_end(&mut out))
            }
            Packing::Bzip2 => {
                ("bzip2", MultiBzDecoder::new(bytes).take(most + 1).read_to_end(&mut out))
            }
        };
        if let Err(e) = read {
            let what = format!("this {kind} file is damaged or cut short ({e})");
            return Err((what, "fetch it again"));
        }
        if out.len() as u64 > most {
            let what = format!(
                "this {kind} file of {} bytes unpacks to more than {} MiB",
                bytes.len(),
                most >> 20
            );
            return Err((what, "unpack it yourself if you trust it, or split it"));
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::GzEncoder;

    fn zeros(n: u64) -> Vec<u8> {
        let mut packed = Vec::new();
        let zeros = std::io::repeat(0).take(n);
        GzEncoder::new(zeros, Compression::fast()).read_to_end(&mut packed).unwrap();
        packed
    }

    #[test]
    fn what_unpacks_to_more_than_its_size_explains_is_refused() {
        let bomb = zeros(8 << 20).repeat(20);
        let e = Packing::of(&bomb).unwrap().unpack(&bomb).unwrap_err();
        assert!(e.0.contains("more than 64 MiB"), "{}", e.0);
        let small = zeros(8 << 20);
        assert_eq!(Packing::of(&small).unwrap().unpack(&small).unwrap().len(), 8 << 20);
        let cut = &small[..small.len() / 2];
        assert!(Packing::Gzip.unpack(cut).unwrap_err().0.contains("cut short"));
        assert_eq!(Packing::of(b"plain"), None);
    }
}
