//! The program of a network: the runtime, compiled once for all networks, linked with the table of
//! this one's kernels and with the kernels themselves. The linked program is kept as objects are.

use super::trust;
use super::units::{MOVES, UNITS, Unit, openmp, usual_arguments};
use crate::error::Error;
use crate::export::{Chosen, comment, compile, declarations, objects, refused, symbols};
use crate::target_context::TargetContext;
use squall_core::KernelSource;
use squall_measure::TemporaryFolder;
use squall_measure::cpu::{Object, Toolchain, on_spare_cores};
use squall_runtime::host;
use std::path::Path;

/// The program's file.
pub const NAME: &str = "network";

/// A function that is linked in.
pub struct LinkedSource<'a> {
    source: &'a KernelSource,
    /// What stands above its source, where that is kept.
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

/// Does `work` while the runtime is compiled on the spare cores, where it is not kept.
pub fn with_runtime_ahead<T>(at: &TargetContext, work: impl FnOnce() -> T) -> T {
    let runtime = || {
        if let Ok(folder) = TemporaryFolder::new("network") {
            std::thread::scope(|scope| {
                for (u, text) in UNITS.iter().zip(runtime_texts()) {
                    let to = folder.path().join(format!("{}.o", u.0));
                    // Whether it compiles shows when it is asked for.
                    scope.spawn(move || unit(at, (&text, &arguments(u, at)), &to).ok());
                }
            });
        }
    };
    if !at.gpus.is_empty() || !at.toolchain.objects().is_kept() {
        return work();
    }
    on_spare_cores(&at.device, runtime, work)
}

/// Builds the program.
pub fn build(
    site: Site<'_>,
    kernels: &[LinkedSource<'_>],
    at: &TargetContext,
) -> Result<(), Error> {
    let [runtime, moves] = runtime_texts();
    let texts = [runtime, moves, table(kernels, at.device.cores.len())];
    if site.is_kept {
        for ((name, _), text) in UNITS.iter().zip(&texts) {
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
    let arguments = UNITS.each_ref().map(|u| arguments(u, at));
    let link = link_arguments(kernels, at);
    let link: Vec<&str> = link.iter().map(String::as_str).collect();
    let to = site.folder.join(NAME);
    let make = || -> Result<(), Error> {
        objects(site.folder, &changed, &at.toolchain)?;
        for (((name, _), text), arguments) in UNITS.iter().zip(&texts).zip(&arguments) {
            unit(at, (text, arguments), &site.folder.join(format!("{name}.o")))?;
        }
        compile(site.folder, &at.toolchain, &link)
    };
    let parts: Option<Vec<String>> =
        kernels.iter().map(|k| at.toolchain.object_key(k.source)).collect();
    // A program with a kernel that may change behind its source is linked anew.
    let Some(parts) = parts else { return make() };
    let with = format!("{arguments:?}");
    let all = texts.iter().chain(&parts).map(String::as_str);
    let all: Vec<&str> = all.chain([with.as_str()]).collect();
    let key = at.toolchain.key(&link, &all);
    at.toolchain.kept_program(&key, &to, make)
}

/// The texts of the units that are the same for all networks.
fn runtime_texts() -> [String; 2] {
    [host::whole(host::NETWORK.1), host::whole(host::MOVES.1)]
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

/// How a unit is compiled.
fn arguments(unit: &Unit, at: &TargetContext) -> Vec<String> {
    if *unit == MOVES { trust::moves_build(at).arguments } else { usual_arguments(unit, at) }
}

/// Compiles a text of ours.
fn unit(at: &TargetContext, (text, arguments): (&str, &[String]), to: &Path) -> Result<(), Error> {
    let args: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match at.toolchain.compiled_text(text, &args, to)? {
        Object::Refused(said, _) => {
            Err(refused(to.parent().unwrap_or(Path::new(".")), &at.toolchain, &said))
        }
        _ => Ok(()),
    }
}

fn link_arguments(kernels: &[LinkedSource<'_>], at: &TargetContext) -> Vec<String> {
    let needs_openmp = kernels.iter().any(|k| k.source.openmp).then_some("-fopenmp");
    let mut args: Vec<String> = openmp(at).or(needs_openmp).into_iter().map(String::from).collect();
    args.extend(["-o".into(), NAME.into()]);
    args.extend(UNITS.iter().map(|(name, _)| format!("{name}.o")));
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
    crate::files::put_in_folder(path, text.as_bytes())
}
