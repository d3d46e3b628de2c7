//! `squall init`: writes a commented kernel.toml and a small working kernel beside it, in C or CUDA
//! C, as a start for tuning a kernel of one's own. The texts are in `init/`.

use crate::failure::Failure;
use crate::terminal::say;
use squall::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};

const FILE: &str = include_str!("init/kernel.toml");
const SOURCE: &str = include_str!("init/kernel.c");
const CUDA_FILE: &str = include_str!("init/cuda.toml");
const CUDA_SOURCE: &str = include_str!("init/kernel.cu");

/// Write a commented kernel.toml and a small kernel to begin with, in C or CUDA
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall init                      kernel.toml and kernel.c here
  squall init blur.toml            blur.toml and blur.c
  squall init --cuda               kernel.toml and kernel.cu here
  squall tune kernel.toml --trials 50
  squall tune kernel.toml --trials 50 --target cuda")]
pub struct Args {
    /// The file; its source lies beside it, with the ending .c or .cu
    #[arg(value_name = "FILE", default_value = "kernel.toml")]
    file: PathBuf,
    /// A kernel for NVIDIA GPUs, in CUDA
    #[arg(long)]
    cuda: bool,
    /// Write over what is there
    #[arg(long)]
    force: bool,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    if a.file.extension().is_none_or(|e| e != "toml") {
        return Err(Failure::usage(
            format!("`{}` is no name for it", a.file.display()),
            "kernels of your own are read from files `.toml`",
        ));
    }
    let (file, text, ending) =
        if a.cuda { (CUDA_FILE, CUDA_SOURCE, "cu") } else { (FILE, SOURCE, "c") };
    let source = a.file.with_extension(ending);
    if let Some(there) = [&a.file, &source].into_iter().find(|f| f.exists()).filter(|_| !a.force) {
        let hint = "name another file, or write over it with --force";
        return Err(Failure::new(
            format!("`{}` is there already", there.display()),
            Some(hint.into()),
        ));
    }
    let Some(name) = source.file_name().and_then(|n| n.to_str()) else {
        return Err(Failure::usage(
            format!("`{}` is no name for it: it is not UTF-8", a.file.display()),
            "name another file",
        ));
    };
    let quoted = quoted(name);
    put(
        &a.file,
        &file.replace(&format!("\"kernel.{ending}\""), &format!("\"{quoted}\"")),
        a.force,
    )?;
    put(&source, text, a.force)?;
    let target = if a.cuda { " --target cuda" } else { "" };
    say(format_args!(
        "{} and {}: `squall tune {} --trials 50{target}`",
        a.file.display(),
        source.display(),
        a.file.display()
    ))?;
    Ok(0)
}

/// A name as it stands between the quotes of a TOML text, where it may hold what the text may not.
fn quoted(name: &str) -> String {
    let escaped = |c: char| match c {
        '\\' | '"' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    };
    name.chars().map(escaped).collect()
}

fn put(path: &Path, text: &str, over: bool) -> Result<(), Failure> {
    let fail = |source| Failure::from(Error::Write { path: path.into(), source });
    // Where nothing may be lost, not even what appeared since we looked is written over.
    let mut open = std::fs::OpenOptions::new();
    open.write(true).truncate(over).create(over).create_new(!over);
    open.open(path).and_then(|mut f| f.write_all(text.as_bytes())).map_err(fail)
}
