//! Builds the program of a network on a CPU: the C runtime, compiled once for all networks, linked
//! with a table of this network's kernels and with the kernels. Input: kernel sources and a
//! toolchain; output: an executable. It is kept in the object cache under the digest of everything
//! that it is linked from.

use super::trust::{self, MovesBuild};
use super::units::{MOVES, RUNTIME, TABLE, compile_text, openmp, usual_arguments};
use crate::base::error::Error;
use crate::inference::kernel_text::{comment, declarations, symbols};
use crate::inference::objects::{compile, objects};
use crate::predict::choose::Chosen;
use crate::target::target_context::TargetContext;
use squall_core::KernelSource;
use squall_measure::TemporaryFolder;
use squall_measure::cpu::{Toolchain, on_spare_cores};
use squall_runtime::host;
use std::path::Path;

/// The program's file.
pub const NAME: &str = "network";

/// A function that is linked in.
pub struct LinkedSource<'a> {
    source: &'a KernelSource,
    /// The comment above its source in a folder that the user keeps.
    head: String,
}

impl<'a> LinkedSource<'a> {
    /// A task's kernel.
    pub fn of(kernel: &'a Chosen) -> LinkedSource<'a> {
        LinkedSource { source: &kernel.source, head: comment(kernel) }
    }

    /// A plain operator.
    pub fn plain(source: &'a KernelSource) -> LinkedSource<'a> {
        LinkedSource {
            source,
            head: "/* A plain operator: C generated for a node without a kernel. */\n".into(),
        }
    }
}

/// Where the program is built.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// Whether it outlives the network: it also gets the sources then, and a kernel whose source
    /// lies there unchanged beside its object is not compiled again.
    pub is_kept: bool,
}

/// Does `work` while the runtime is compiled on the spare cores, where it is not kept, and its
/// moves of data are judged; how these are compiled, of which a GPU needs nothing.
pub fn with_runtime_ahead<T>(at: &TargetContext, work: impl FnOnce() -> T) -> (T, MovesBuild) {
    let mut moves = MovesBuild::default();
    if !at.gpus.is_empty() {
        return (work(), moves);
    }
    let runtime = || {
        std::thread::scope(|scope| {
            if at.toolchain.objects().is_kept() {
                // Whether it compiles shows when it is asked for.
                scope.spawn(|| compile_runtime(at).ok());
            }
            moves = trust::moves_build(at);
        });
    };
    let done = on_spare_cores(&at.device, runtime, work);
    (done, moves)
}

/// Compiles the runtime but for its moves, which are compiled where they are compared.
fn compile_runtime(at: &TargetContext) -> Result<(), Error> {
    let folder = TemporaryFolder::new("network")?;
    let to = folder.path().join("network.o");
    compile_text(at, &runtime_text(), &usual_arguments(&RUNTIME, at), &to)
}

/// Builds the program.
pub fn build(
    site: Site<'_>,
    kernels: &[LinkedSource<'_>],
    moves: &MovesBuild,
    at: &TargetContext,
) -> Result<(), Error> {
    let usual = |unit| usual_arguments(unit, at);
    let units = [
        (RUNTIME.name, runtime_text(), usual(&RUNTIME)),
        (MOVES.name, host::whole(host::MOVES.1), moves.arguments.clone()),
        (TABLE.name, table(kernels, at.device.cores.len()), usual(&TABLE)),
    ];
    if site.is_kept {
        for (name, text, _) in &units {
            put(&site.folder.join(format!("{name}.c")), text)?;
        }
    }
    let changed = match site.is_kept {
        true => changed(site.folder, kernels, &at.toolchain)?,
        false => kernels.iter().map(|k| k.source).collect(),
    };
    if site.is_kept {
        // They lie beside their sources, wherever the program comes from.
        objects(site.folder, &changed, &at.toolchain)?;
    }
    let link = link_arguments(kernels, at);
    let link: Vec<&str> = link.iter().map(String::as_str).collect();
    let to = site.folder.join(NAME);
    let make = || -> Result<(), Error> {
        objects(site.folder, &changed, &at.toolchain)?;
        for (name, text, arguments) in &units {
            compile_text(at, text, arguments, &site.folder.join(format!("{name}.o")))?;
        }
        compile(site.folder, &at.toolchain, &link)
    };
    let parts: Option<Vec<String>> =
        kernels.iter().map(|k| at.toolchain.object_key(k.source)).collect();
    // A program with a kernel that may change behind its source is linked anew.
    let Some(parts) = parts else { return make() };
    let units: Vec<String> = units.iter().map(|(_, t, args)| format!("{args:?}\n{t}")).collect();
    let all: Vec<&str> = units.iter().chain(&parts).map(String::as_str).collect();
    let key = at.toolchain.key(&link, &all);
    at.toolchain.kept_program(&key, &to, make)
}

fn runtime_text() -> String {
    host::whole(host::NETWORK.1)
}

/// The table of the kernels, and the number of threads.
fn table(kernels: &[LinkedSource<'_>], threads: usize) -> String {
    let mut c = String::from("/* The kernels of a network. Made by Squall. */\n");
    c += &host::whole("#include \"host.h\"\n");
    c.extend(kernels.iter().map(|k| declarations(k.source)));
    c += "\n";
    c += symbols(kernels.iter().map(|k| k.source)).trim_start_matches("static ");
    c + &format!(
        "const size_t rt_symbol_count = sizeof rt_symbols / sizeof *rt_symbols;\nconst int \
         rt_threads = {threads};\n"
    )
}

fn link_arguments(kernels: &[LinkedSource<'_>], at: &TargetContext) -> Vec<String> {
    let needs_openmp = kernels.iter().any(|k| k.source.openmp).then_some("-fopenmp");
    let mut args: Vec<String> = openmp(at).or(needs_openmp).into_iter().map(String::from).collect();
    args.extend(["-o".into(), NAME.into()]);
    args.extend([RUNTIME, MOVES, TABLE].map(|unit| format!("{}.o", unit.name)));
    args.extend(kernels.iter().map(|k| format!("{}.o", k.source.symbol)));
    args.extend(["-lm".into(), "-ldl".into()]);
    args
}

/// Writes the sources of a folder that outlives the network; those of which no object lies there.
fn changed<'k>(
    folder: &Path,
    kernels: &[LinkedSource<'k>],
    toolchain: &Toolchain,
) -> Result<Vec<&'k KernelSource>, Error> {
    // A source says how it was compiled: where the same text lies beside an object, that is it.
    let made_with =
        format!("{} {}", toolchain.id(), toolchain.flags().join(" ")).replace("*/", "* /");
    let mut changed = Vec::new();
    for k in kernels {
        let path = folder.join(format!("{}.c", k.source.symbol));
        let own: String = k.source.flags.iter().map(|f| format!(" {f}")).collect();
        let text = format!("/* {made_with}{own} */\n{}{}", k.head, k.source.source);
        if path.with_extension("o").is_file()
            && std::fs::read_to_string(&path).is_ok_and(|t| t == text)
        {
            continue;
        }
        // An object of older text must not stay, should compiling fail now.
        let _ = std::fs::remove_file(path.with_extension("o"));
        put(&path, &text)?;
        changed.push(k.source);
    }
    Ok(changed)
}

pub(super) fn put(path: &Path, text: &str) -> Result<(), Error> {
    crate::base::files::put_in_folder(path, text.as_bytes())
}
