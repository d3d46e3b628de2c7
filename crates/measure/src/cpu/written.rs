//! Recognises the output of a wrong compiler: reads from an ELF file's head for which machine it
//! is. A cross compiler's kernels would run under an emulator, if one is registered, and be timed
//! as if they were this machine's; so they are refused with the reason.

use squall_core::{Architecture, Isa};
use std::io::Read;
use std::path::Path;

/// The offsets in an ELF file of its byte order and, in two bytes, its machine.
const ORDER: usize = 5;
const MACHINE: usize = 18;
const HEAD: usize = 20;

/// A machine's name as compilers use it.
fn name(machine: u16) -> String {
    match machine {
        3 => "x86 (32 bits)".into(),
        8 => "MIPS".into(),
        20 => "PowerPC".into(),
        21 => "PowerPC (64 bits)".into(),
        22 => "S/390".into(),
        40 => "ARM (32 bits)".into(),
        62 => "x86-64".into(),
        183 => "AArch64".into(),
        243 => "RISC-V".into(),
        258 => "LoongArch".into(),
        other => format!("machine {other}"),
    }
}

/// The machine that an ELF file is for; none where it is none.
fn machine(path: &Path) -> Option<u16> {
    let mut head = Vec::new();
    std::fs::File::open(path).ok()?.take(HEAD as u64).read_to_end(&mut head).ok()?;
    if head.len() < HEAD || !head.starts_with(b"\x7fELF") {
        return None;
    }
    let two = [head[MACHINE], head[MACHINE + 1]];
    Some(if head[ORDER] == 2 { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
}

/// Why a file that a compiler wrote cannot be used; none where it can, and where this system has
/// another form of programs. It should be for this machine, or for the one of a level that was
/// asked for.
pub(super) fn fault(path: &Path, isa: Option<Isa>) -> Option<String> {
    let ours = machine(Path::new("/proc/self/exe"))?;
    let wanted = isa.map_or(ours, |isa| match isa.level().architecture {
        Architecture::X86_64 => 62,
        Architecture::Aarch64 => 183,
    });
    match machine(path) {
        None => Some("what it writes is no program or library of this system".into()),
        Some(theirs) if theirs == wanted => None,
        Some(theirs) if wanted != ours => {
            Some(format!("it compiles for {}, and {} is asked for", name(theirs), name(wanted)))
        }
        // An x86-64 runs programs of 32 bits itself.
        Some(theirs) if (ours, theirs) == (62, 3) => None,
        Some(theirs) => Some(format!(
            "it compiles for {}, and this machine is {}: its kernels would be emulated here, and \
             their times would mean nothing; name this machine's own compiler in CC",
            name(theirs),
            name(ours)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_and_garbage_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.so");
        let Some(ours) = machine(Path::new("/proc/self/exe")) else { return };
        let mut head = std::fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        std::fs::write(&file, &head).unwrap();
        assert_eq!(fault(&file, None), None);
        let other: u16 = if ours == 183 { 62 } else { 183 };
        let two = if head[ORDER] == 2 { other.to_be_bytes() } else { other.to_le_bytes() };
        head[MACHINE..MACHINE + 2].copy_from_slice(&two);
        std::fs::write(&file, &head).unwrap();
        let why = fault(&file, None).unwrap();
        assert!(why.contains(&name(other)) && why.contains("emulated"), "{why}");
        for garbage in [&b"#!/bin/sh\n"[..], b"", b"\x7fELF"] {
            std::fs::write(&file, garbage).unwrap();
            assert!(fault(&file, None).is_some_and(|w| w.contains("no program")), "{garbage:?}");
        }
    }
}
