//! The C host library (`host/*.c`) as texts inside the binary, with the main files of the programs
//! over it: runner, network, driver. Programs are compiled on the user's machine from these texts;
//! exported folders and libraries get copies of the parts that they need.

/// A file of the library: its name and its text.
pub type HostFile = (&'static str, &'static str);

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../host/", $name)))),*]
    };
}

/// The files of the library. A main file includes `runtime.c`, which includes the others; on CPUs
/// `moves.c` is compiled apart.
pub const LIBRARY: [HostFile; 66] = sources![
    "runtime.c",
    "bases.c",
    "bases.h",
    "branches.c",
    "branches.h",
    "cuda.c",
    "cuda.h",
    "call.h",
    "conversation.c",
    "conversation.h",
    "cpu.c",
    "cpu.h",
    "devices.c",
    "devices.h",
    "digest.c",
    "digest.h",
    "element.c",
    "element.h",
    "error.c",
    "error.h",
    "execute.c",
    "execute.h",
    "gpu.c",
    "gpu.h",
    "gpu_library.c",
    "gpu_library.h",
    "gpu_network.c",
    "gpu_network.h",
    "guard.c",
    "guard.h",
    "host.c",
    "host.h",
    "kernel.c",
    "kernel.h",
    "launch.h",
    "library.c",
    "library.h",
    "model.c",
    "model.h",
    "module.c",
    "module.h",
    "moves.c",
    "moves.h",
    "needs.c",
    "network.c",
    "network.h",
    "nvrtc.c",
    "nvrtc.h",
    "packed.c",
    "packed.h",
    "plan.c",
    "plan.h",
    "pool.c",
    "pool.h",
    "prepare.c",
    "prepare.h",
    "reply.c",
    "reply.h",
    "session.c",
    "session.h",
    "timing.c",
    "varying.c",
    "varying.h",
    "verify.c",
    "weights.c",
    "weights.h",
];

/// The part of the library that an exported network is made of.
pub const EXPORTED: [&str; 30] = [
    "bases.c",
    "bases.h",
    "cpu.c",
    "cpu.h",
    "digest.c",
    "digest.h",
    "element.c",
    "element.h",
    "error.c",
    "error.h",
    "launch.h",
    "library.c",
    "library.h",
    "model.c",
    "model.h",
    "needs.c",
    "plan.c",
    "plan.h",
    "pool.c",
    "pool.h",
    "varying.c",
    "varying.h",
    "verify.c",
    "weights.c",
    "weights.h",
    "call.h",
    "execute.c",
    "execute.h",
    "moves.c",
    "moves.h",
];

/// The part of the library that a network that was exported for a GPU is made of.
pub const EXPORTED_GPU: [&str; 25] = [
    "bases.c",
    "bases.h",
    "call.h",
    "digest.c",
    "digest.h",
    "element.c",
    "element.h",
    "error.c",
    "error.h",
    "execute.h",
    "gpu_library.c",
    "gpu_library.h",
    "launch.h",
    "library.h",
    "model.c",
    "model.h",
    "moves.c",
    "moves.h",
    "plan.c",
    "plan.h",
    "pool.h",
    "varying.h",
    "verify.c",
    "weights.c",
    "weights.h",
];

/// These files of the library.
pub fn exported<'f>(files: &'f [&str]) -> impl Iterator<Item = HostFile> + 'f {
    LIBRARY.into_iter().filter(|(name, _)| files.contains(name))
}

/// The process that runs kernels while they are tuned.
pub const RUNNER: HostFile = sources!["runner.c"][0];

/// The program at the far end of the connection to a board; it stands alone.
pub const KEEPER: HostFile = sources!["keeper.c"][0];

/// Kernels that measure what a GPU can do at most; the runner compiles them.
pub const GPU_ROOF: HostFile = sources!["roof.cu"][0];

/// The program that runs a network; `kernels.c`, the table of what is linked in, and [`MOVES`] are
/// linked with it.
pub const NETWORK: HostFile = sources!["network_main.c"][0];

/// Its moves of data, a unit of their own.
pub const MOVES: HostFile = sources!["moves.c"][0];

/// The program that runs a network on a GPU.
pub const GPU_NETWORK: HostFile = sources!["gpu_network_main.c"][0];

/// The program that checks and times exported kernels; it includes `kernels.c` as well.
pub const DRIVER: HostFile = sources!["driver.c"][0];

/// How launches become arguments of the driver: C and C++, on its own.
pub const LAUNCH: &str = include_str!("../host/launch.h");

/// How an exported launcher launches by its tables: C++ over the CUDA runtime, behind [`LAUNCH`].
pub const LAUNCHER: &str = include_str!("../host/launcher.h");

/// A text with the library's files in place of the lines that include them.
pub fn whole(text: &str) -> String {
    let included = |line: &str| {
        let name = line.strip_prefix("#include \"")?.strip_suffix('"')?;
        LIBRARY.iter().find(|(file, _)| *file == name).map(|(_, text)| whole(text))
    };
    text.lines().map(|line| included(line).unwrap_or_else(|| format!("{line}\n"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_program_includes_nothing_of_ours() {
        let text = whole(RUNNER.1);
        assert!(!text.lines().any(|l| l.starts_with("#include \"")), "{text}");
        assert!(text.contains("int rt_plan_read(") && text.contains("int main("));
    }

    #[test]
    fn main_files_are_thin() {
        for (name, text) in [RUNNER, NETWORK, GPU_NETWORK, DRIVER] {
            assert!(text.lines().count() <= 150, "{name}");
        }
    }
}
