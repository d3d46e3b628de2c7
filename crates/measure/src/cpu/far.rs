//! Opens a board (a machine that only runs kernels, reached by ssh) as a device. It finds the
//! compiler for the board's architecture, builds the keeper and sends it with the libraries that
//! programs need, and makes a [`Device`] of the facts that the board reports. `../board` is the
//! connection.

use super::{Device, Toolchain, program};
use crate::board::{Board, BoardAddress, Facts, Link};
use squall_core::{Architecture, Isa, LEVELS, MeasurerError};
use squall_runtime::host;
use std::path::{Path, PathBuf};

const NAME: &str = "keeper";

/// Connects to a board. Its kernels are compiled by `toolchain`, or by the cross compiler beside
/// it. Returns the board, and the toolchain at the level of instructions that is asked for, or else
/// at the highest level of the board.
pub fn connect(
    address: &BoardAddress,
    toolchain: &Toolchain,
    wanted: Option<Isa>,
) -> Result<(Board, Toolchain), MeasurerError> {
    let link = Link::open(address, &|facts, folder| {
        let architecture = architecture(address, facts)?;
        let lowest = LEVELS.iter().find(|l| l.architecture == architecture);
        let lowest = lowest.map_or(Isa::Armv8A, |l| l.isa);
        keeper(folder, &toolchain.at(lowest)?)
    })?;
    let isa = level(address, link.facts(), wanted)?;
    let toolchain = toolchain.at(isa)?;
    let libraries = libraries(&toolchain, isa.level().architecture)?;
    Ok((Board::new(link, libraries), toolchain))
}

/// The device that a board is, with `threads` of its cores for kernels; builds run here.
pub fn device_of(
    board: &Board,
    threads: usize,
    toolchain: &Toolchain,
) -> Result<Device, MeasurerError> {
    Device::of_board(board, threads, toolchain)
}

fn architecture(address: &BoardAddress, facts: &Facts) -> Result<Architecture, MeasurerError> {
    facts.architecture().ok_or_else(|| {
        MeasurerError::Device(format!(
            "{address} is a machine of {}, for which no kernels are made; x86_64 and aarch64 are \
             known",
            facts.machine
        ))
    })
}

/// The level of instructions of a board's kernels.
fn level(address: &BoardAddress, facts: &Facts, wanted: Option<Isa>) -> Result<Isa, MeasurerError> {
    let ours = architecture(address, facts)?;
    let Some(wanted) = wanted else {
        return facts.highest_level().ok_or_else(|| {
            MeasurerError::Device(format!("{address} has none of the levels of {}", ours.name()))
        });
    };
    let level = wanted.level();
    if level.architecture != ours {
        let fitting: Vec<&str> =
            LEVELS.iter().filter(|l| l.architecture == ours).map(|l| l.name).collect();
        return Err(MeasurerError::Device(format!(
            "{address} is a machine of {}, which does not run {wanted}; its levels are {}",
            ours.name(),
            fitting.join(", ")
        )));
    }
    match facts.absent(level)[..] {
        [] => Ok(wanted),
        ref absent => Err(MeasurerError::Device(format!(
            "{address} cannot run {wanted}: it lacks {}; name a lower level with --isa, or none",
            absent.join(", ")
        ))),
    }
}

/// Makes the keeper: static where the compiler has what that needs, so that nothing of the board
/// but its kernel matters.
fn keeper(folder: &Path, toolchain: &Toolchain) -> Result<PathBuf, MeasurerError> {
    let mut said = String::new();
    for args in [&["-O1", "-w", "-static"][..], &["-O1", "-w"]] {
        match program::make(folder, toolchain, NAME, &[host::KEEPER], args)? {
            Ok(_) => return Ok(folder.join(NAME)),
            Err(why) => said = why,
        }
    }
    Err(MeasurerError::Runner(format!(
        "`{}` cannot build the board's keeper: {said}",
        toolchain.command()
    )))
}

/// The loader and the libraries that the compiler links programs to: they travel with the runner,
/// so that the board's own need not be as new. None where the compiler does not say where all of
/// them are.
fn libraries(
    toolchain: &Toolchain,
    architecture: Architecture,
) -> Result<Vec<(String, PathBuf)>, MeasurerError> {
    let loader = match architecture {
        Architecture::X86_64 => "ld-linux-x86-64.so.2",
        Architecture::Aarch64 => "ld-linux-aarch64.so.1",
    };
    let mut names = vec![loader, "libc.so.6", "libm.so.6"];
    names.extend(toolchain.openmp().then_some("libgomp.so.1"));
    let mut found = Vec::new();
    for name in names {
        match toolchain.file(name)? {
            Some(path) => found.push((name.to_string(), path)),
            None => return Ok(Vec::new()),
        }
    }
    // Of glibc before 2.34; programs that it linked name them.
    for name in ["libdl.so.2", "libpthread.so.0", "librt.so.1"] {
        found.extend(toolchain.file(name)?.map(|path| (name.to_string(), path)));
    }
    Ok(found)
}
