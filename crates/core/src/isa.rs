//! Named levels of CPU instructions, such as `x86-64-v3` (AVX2): one row of a table each, with the
//! flags for the compiler, the vector registers that code may name, and the features that a CPU
//! must have. A kernel of one level runs on every CPU that has the level, whichever CPU it was
//! tuned on. Users choose a level by `--isa`; targets and devices name it, and exported libraries
//! refuse a CPU without its features.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A family of CPUs whose programs do not run on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Architecture {
    /// The name that compilers and emulators use, as `x86_64`.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
        }
    }

    /// The macro that C compilers for it define.
    pub fn defined_macro(self) -> &'static str {
        match self {
            Architecture::X86_64 => "__x86_64__",
            Architecture::Aarch64 => "__aarch64__",
        }
    }
}

/// A named level of instructions. A further one is a variant here, its row in [`LEVELS`], and the
/// bits of its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// SSE4.2: vectors of 16 bytes, no fused multiply-add.
    X86_64V2,
    /// AVX2 with fused multiply-add: 16 vectors of 32 bytes.
    X86_64V3,
    /// The same with products of bytes, four at once, as CPUs without AVX-512 have them (AVX-VNNI).
    X86_64V3Vnni,
    /// AVX-512 with its byte, word, doubleword and length extensions: 32 vectors of 64 bytes.
    X86_64V4,
    /// The same with products of bytes, four at once (`vpdpbusd`).
    X86_64V4Vnni,
    /// The same with products of pairs of bf16 (`vdpbf16ps`).
    X86_64V4Bf16,
    /// The same with products of tiles of bytes and of bf16 (AMX).
    X86_64V4Amx,
    /// NEON: 32 vectors of 16 bytes.
    Armv8A,
    /// The same with products of bytes of one sign, four at once (`sdot`).
    Armv82Dotprod,
    /// The same with products of bytes of any sign (`usdot`) and of pairs of bf16 (`bfdot`).
    Armv86A,
}

/// The unit of a core that multiplies tiles of rows of elements of four bytes, and the registers
/// that hold them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileUnit {
    /// Most rows of a tile, and most elements of four bytes in a row.
    pub rows: i64,
    /// Registers.
    pub registers: i64,
    /// Cycles of a product for each row of the left factor.
    pub row: f64,
    /// Cycles of a product of few rows: the right factor is brought to the unit row by row.
    pub least: f64,
}

/// AMX as a Xeon of the fourth generation has it: 16 cycles for a product of 16 rows (measured: 7.3
/// Top/s of bytes at 3.6 GHz where tiles lie at multiples of 64 bytes).
pub const AMX_TILES: TileUnit = TileUnit { rows: 16, registers: 8, row: 1.0, least: 8.0 };

/// A register that the instruction `cpuid` of x86 writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuidRegister {
    /// EAX.
    Eax,
    /// EBX.
    Ebx,
    /// ECX.
    Ecx,
    /// EDX.
    Edx,
}

/// Where a CPU says that it has a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// A bit of what the instruction `cpuid` of x86 writes.
    Cpuid {
        /// The leaf that is asked for.
        leaf: u32,
        /// Its subleaf.
        subleaf: u32,
        /// The register.
        register: CpuidRegister,
        /// The bit.
        bit: u32,
    },
    /// A bit of what Linux tells a program of its machine (`getauxval`).
    Hwcap {
        /// Whether it is in the second word, `AT_HWCAP2`.
        second: bool,
        /// The bit.
        bit: u32,
    },
}

/// A feature of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name, as Rust and compilers have it.
    pub name: &'static str,
    /// Where the CPU says so.
    pub at: Reported,
}

const fn cpuid(
    name: &'static str,
    leaf: u32,
    subleaf: u32,
    register: CpuidRegister,
    bit: u32,
) -> Feature {
    Feature { name, at: Reported::Cpuid { leaf, subleaf, register, bit } }
}

const fn ecx(name: &'static str, leaf: u32, bit: u32) -> Feature {
    cpuid(name, leaf, 0, CpuidRegister::Ecx, bit)
}

const fn ebx(name: &'static str, bit: u32) -> Feature {
    cpuid(name, 7, 0, CpuidRegister::Ebx, bit)
}

const fn edx(name: &'static str, bit: u32) -> Feature {
    cpuid(name, 7, 0, CpuidRegister::Edx, bit)
}

const fn hwcap(name: &'static str, second: bool, bit: u32) -> Feature {
    Feature { name, at: Reported::Hwcap { second, bit } }
}

/// The features that levels need, each once; of x86 the level's own after those of lower ones.
const FEATURES: [Feature; 27] = [
    ecx("sse3", 1, 0),
    ecx("ssse3", 1, 9),
    ecx("sse4.1", 1, 19),
    ecx("sse4.2", 1, 20),
    ecx("popcnt", 1, 23),
    ecx("fma", 1, 12),
    ecx("movbe", 1, 22),
    ecx("avx", 1, 28),
    ecx("f16c", 1, 29),
    ecx("lzcnt", 0x8000_0001, 5),
    ebx("bmi1", 3),
    ebx("avx2", 5),
    ebx("bmi2", 8),
    ebx("avx512f", 16),
    ebx("avx512dq", 17),
    ebx("avx512cd", 28),
    ebx("avx512bw", 30),
    ebx("avx512vl", 31),
    ecx("avx512vnni", 7, 11),
    cpuid("avx512bf16", 7, 1, CpuidRegister::Eax, 5),
    cpuid("avxvnni", 7, 1, CpuidRegister::Eax, 4),
    hwcap("dotprod", false, 20),
    hwcap("i8mm", true, 13),
    hwcap("bf16", true, 14),
    edx("amx-tile", 24),
    edx("amx-int8", 25),
    edx("amx-bf16", 22),
];

/// The bits of the first features of [`FEATURES`].
const fn first(n: u32) -> u32 {
    (1 << n) - 1
}

/// The bits of AVX-512 VNNI, of AVX-VNNI, of ARM's products of bytes, of those of any sign and of
/// pairs, and of AMX.
const AVX512_VNNI: u32 = 1 << 18;
const AVX_VNNI: u32 = 1 << 20;
const DOTPROD: u32 = 1 << 21;
const I8MM_BF16: u32 = 3 << 22;
const AMX: u32 = 7 << 24;

/// The facts about a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// The level.
    pub isa: Isa,
    /// Its name, as users write it.
    pub name: &'static str,
    /// The CPUs that it is a level of.
    pub architecture: Architecture,
    /// The flag by which GCC and Clang make code of it.
    pub flag: &'static str,
    /// Flags beside it, for instructions that its level in compilers lacks.
    pub extensions: &'static [&'static str],
    /// Width of a vector register in bytes.
    pub vector_bytes: usize,
    /// Vector registers that its code names.
    pub vector_registers: usize,
    /// Whether a multiplication and an addition are one instruction.
    pub fused: bool,
    /// The bits of the features that a CPU must have.
    features: u32,
    /// The bits of the x86 register XCR0 by which the operating system says that it keeps the
    /// vector registers; 0 where any system does.
    pub xcr0: u64,
    /// The registers that hold tiles, and the unit that multiplies these.
    pub tiles: Option<TileUnit>,
}

/// All levels; of one architecture the lower ones first, of which the higher ones are supersets,
/// though AVX-512 does not bring AVX-VNNI.
pub const LEVELS: [Level; 10] = [
    Level {
        isa: Isa::X86_64V2,
        name: "x86-64-v2",
        architecture: Architecture::X86_64,
        flag: "-march=x86-64-v2",
        extensions: &[],
        vector_bytes: 16,
        vector_registers: 16,
        fused: false,
        features: first(5),
        xcr0: 0,
        tiles: None,
    },
    Level {
        isa: Isa::X86_64V3,
        name: "x86-64-v3",
        architecture: Architecture::X86_64,
        flag: "-march=x86-64-v3",
        extensions: &[],
        vector_bytes: 32,
        vector_registers: 16,
        fused: true,
        features: first(13),
        xcr0: 0x6,
        tiles: None,
    },
    Level {
        isa: Isa::X86_64V3Vnni,
        name: "x86-64-v3-vnni",
        architecture: Architecture::X86_64,
        flag: "-march=x86-64-v3",
        extensions: &["-mavxvnni"],
        vector_bytes: 32,
        vector_registers: 16,
        fused: true,
        features: first(13) | AVX_VNNI,
        xcr0: 0x6,
        tiles: None,
    },
    Level {
        isa: Isa::X86_64V4,
        name: "x86-64-v4",
        architecture: Architecture::X86_64,
        flag: "-march=x86-64-v4",
        extensions: &[],
        vector_bytes: 64,
        vector_registers: 32,
        fused: true,
        features: first(18),
        xcr0: 0xe6,
        tiles: None,
    },
    Level {
        isa: Isa::X86_64V4Vnni,
        name: "x86-64-v4-vnni",
        architecture: Architecture::X86_64,
        flag: "-march=x86-64-v4",
        extensions: &["-mavx512vnni"],
        vector_bytes: 64,
        vector_registers: 32,
        fused: true,
        features: first(19),
        xcr0: 0xe6,
        tiles: None,
    },
    Level {
        isa: Isa::X86_64V4Bf16,
        name: "x86-64-v4-bf16",
        architecture: Architecture::X86_64,
        flag: "-march=x86-64-v4",
        extensions: &["-mavx512vnni", "-mavx512bf16"],
        vector_bytes: 64,
        vector_registers: 32,
        fused: true,
        features: first(20),
        xcr0: 0xe6,
        tiles: None,
    },
    Level {
        isa: Isa::X86_64V4Amx,
        name: "x86-64-v4-amx",
        architecture: Architecture::X86_64,
        flag: "-march=x86-64-v4",
        extensions: &["-mavx512vnni", "-mavx512bf16", "-mamx-tile", "-mamx-int8", "-mamx-bf16"],
        vector_bytes: 64,
        vector_registers: 32,
        fused: true,
        features: first(20) | AMX,
        xcr0: 0x600e6,
        tiles: Some(AMX_TILES),
    },
    Level {
        isa: Isa::Armv8A,
        name: "armv8-a",
        architecture: Architecture::Aarch64,
        flag: "-march=armv8-a",
        extensions: &[],
        vector_bytes: 16,
        vector_registers: 32,
        fused: true,
        features: 0,
        xcr0: 0,
        tiles: None,
    },
    Level {
        isa: Isa::Armv82Dotprod,
        name: "armv8.2-a-dotprod",
        architecture: Architecture::Aarch64,
        flag: "-march=armv8.2-a+dotprod",
        extensions: &[],
        vector_bytes: 16,
        vector_registers: 32,
        fused: true,
        features: DOTPROD,
        xcr0: 0,
        tiles: None,
    },
    Level {
        isa: Isa::Armv86A,
        name: "armv8.6-a",
        architecture: Architecture::Aarch64,
        flag: "-march=armv8.6-a",
        extensions: &[],
        vector_bytes: 16,
        vector_registers: 32,
        fused: true,
        features: DOTPROD | I8MM_BF16,
        xcr0: 0,
        tiles: None,
    },
];

impl Level {
    /// What a CPU of its architecture must have to run it.
    pub fn needs(&self) -> impl Iterator<Item = &'static Feature> + use<> {
        let bits = self.features;
        FEATURES.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, f)| f)
    }

    /// Whether its products of bytes are made of products of words: x86 without VNNI.
    pub fn multiplies_words(&self) -> bool {
        self.architecture == Architecture::X86_64 && self.features & (AVX512_VNNI | AVX_VNNI) == 0
    }

    /// The flags by which compilers make code of it.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.flag).chain(self.extensions.iter().copied())
    }
}

impl Isa {
    /// The facts about it.
    pub fn level(self) -> &'static Level {
        LEVELS.iter().find(|l| l.isa == self).unwrap_or(&LEVELS[0])
    }

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        self.level().name
    }

    /// The level of this name.
    pub fn named(text: &str) -> Option<Isa> {
        LEVELS.iter().find(|l| l.name == text).map(|l| l.isa)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = String;
    fn from_str(text: &str) -> Result<Isa, String> {
        Isa::named(text).ok_or_else(|| {
            let names: Vec<&str> = LEVELS.iter().map(|l| l.name).collect();
            format!("`{text}` is no level of instructions; there are {}", names.join(", "))
        })
    }
}

impl Serialize for Isa {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Isa {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Isa, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_rows_of_one_table() {
        for l in &LEVELS {
            assert_eq!((l.isa.level(), Isa::named(l.name)), (l, Some(l.isa)));
            let flag = l.flag.strip_prefix("-march=").map(|f| f.replace('+', "-"));
            let named = flag.is_some_and(|f| l.name.starts_with(&f));
            let whole = l.extensions.is_empty().then(|| l.flag.replace('+', "-"));
            assert!(named && whole.is_none_or(|f| f.ends_with(l.name)), "{}", l.name);
            assert_eq!(serde_json::to_string(&l.isa).unwrap(), format!("\"{}\"", l.name));
        }
        let error = "avx2".parse::<Isa>().unwrap_err();
        assert!(error.contains("avx2") && error.contains("x86-64-v3-vnni, x86-64-v4"), "{error}");
    }

    #[test]
    fn levels_end_with_the_features_that_name_them() {
        let last = |isa: Isa| isa.level().needs().last().map(|f| f.name);
        assert_eq!(last(Isa::X86_64V3Vnni), Some("avxvnni"));
        assert_eq!(last(Isa::Armv82Dotprod), Some("dotprod"));
        assert_eq!(last(Isa::Armv86A), Some("bf16"));
        assert_eq!(last(Isa::X86_64V2), Some("popcnt"));
        assert_eq!(last(Isa::X86_64V3), Some("bmi2"));
        assert_eq!(last(Isa::X86_64V4), Some("avx512vl"));
        assert_eq!(last(Isa::X86_64V4Vnni), Some("avx512vnni"));
        assert_eq!(last(Isa::X86_64V4Bf16), Some("avx512bf16"));
        assert_eq!(last(Isa::X86_64V4Amx), Some("amx-bf16"));
        assert_eq!(last(Isa::Armv8A), None);
    }
}
