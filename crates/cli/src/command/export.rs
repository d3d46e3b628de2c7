//! `squall export`: writes the best kernels of an input as C or CUDA C files, or with `--network
//! NAME` a whole model as a C library; with `--watch` it keeps that library up to date
//! (`squall::export`, `export_network`, `watch`).

use super::tune::seconds;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{InputArgs, JsonArgs, KernelArgs, TargetArgs, ThreadArgs, context};
use crate::progress::listen;
use crate::terminal::{note, or_dash, say, table, three};
use serde_json::json;
use squall::export::{DRIVER, KernelCounts, LIBRARY, Origin};
use squall::library::{LibraryOptions, Name, line};
use squall::report::baseline;
use squall::{
    ExportRequest, LibraryRequest, NetworkRequest, Version, WatchRequest, export_network, watch,
};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Write the best kernels as C or CUDA sources, or a whole model as a C library
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall export model.onnx --out kernels --build
  squall export 'matmul m=512 n=512 k=512' --store mm.squall --out mm
  squall export model.onnx --isa x86-64-v3,x86-64-v4 --out fleet    one is chosen at load
  make -C kernels check                      every kernel against plain loops in double precision
  squall export kernel.toml --target cuda --out gpu --build      CUDA, with launchers; needs nvcc
  python libs.py --so kernels/so.json        beside other people's libraries

  squall export resnet18.onnx --network resnet18 --out lib --build   the whole model: lib/resnet18.h
  squall export model.onnx --network net --out lib --ort --build       also for onnxruntime
  squall export model.onnx --network net --out lib --watch         lib/current follows the store
  squall export model.onnx --network net --out lib --locked        fails where one is not tuned

A task of which the store knows nothing gets a verified guess, on a GPU plain loops, and it is said
so. Guesses are kept in ~/.cache/squall.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    kernels: KernelArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// The folder to write; made if need be
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Compile the library and the driver too
    #[arg(long)]
    build: bool,
    /// Only tasks whose name matches (`*` and `?` stand for anything) or whose id begins so
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    #[command(flatten)]
    json: JsonArgs,
    /// Write the whole model as a C library whose symbols begin so: header, sources, prepared
    /// weights, CMake and make files, an example (docs/library.md)
    #[arg(long, value_name = "NAME", conflicts_with = "only")]
    network: Option<String>,
    /// Add an operator for ONNX Runtime and a model of one node to the library
    #[arg(long, requires = "network")]
    ort: bool,
    /// Build the library, go on and build a new version whenever the store's winners change; the
    /// store is looked at every so many seconds
    #[arg(
        long,
        value_name = "S",
        requires = "network",
        num_args = 0..=1,
        default_missing_value = "10",
        value_parser = seconds,
    )]
    watch: Option<f64>,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    if let Some(name) = &a.network {
        return library(a, name.parse()?);
    }
    let request = ExportRequest {
        input: a.input.request(),
        store: a.kernels.store(),
        guess: a.kernels.guess(),
        targets: a.target.requests()?,
        threads: a.threads.threads.into(),
        only: a.only.clone(),
        out: a.out.clone(),
        build: a.build,
    };
    let done = squall::export(&context(), &request, &mut listen)?;
    for k in &done.kernels {
        match &k.origin {
            Origin::Plain => note(format_args!(
                "warning: {} was never tuned: it gets its {}",
                k.task.name,
                baseline(&k.task.workload)
            )),
            Origin::Guessed(_, from) => note(format_args!(
                "note: {} was never tuned: its kernel is guessed {}",
                k.task.name,
                from.describe()
            )),
            Origin::Elsewhere(r) => note(format_args!(
                "warning: the best of {} is from another device or toolchain ({}; {}): right, but \
                 perhaps not the fastest here",
                k.task.name, r.device, r.toolchain
            )),
            Origin::Tuned(_) => {}
        }
    }
    if a.json.json {
        say(&done.manifest)?;
        return Ok(0);
    }
    let mut t = table(&["kernel", "origin", "time", "GFLOP/s", "symbol"]);
    for k in &done.kernels {
        let time = k.origin.time();
        let rate = time.map(|t| three(t.giga_rate(k.task.workload.flop() as f64)));
        t.add_row([
            k.task.name.clone(),
            k.origin.name().into(),
            or_dash(time),
            or_dash(rate),
            k.source.symbol.clone(),
        ]);
    }
    say(t)?;
    say(KernelCounts::of(&done.kernels))?;
    let folder = done.folder.display();
    if done.built {
        say(format_args!("built {folder}/{LIBRARY}; check and time it: {folder}/{DRIVER}"))?;
    } else {
        say(format_args!("written to {folder}; build, check and time: make -C '{folder}' time"))?;
    }
    Ok(0)
}

/// Writes versions of the library until it is told to end.
fn follow(a: &Args, library: LibraryRequest, every: f64) -> Result<u8, Failure> {
    let every = Duration::from_secs_f64(every);
    let request = WatchRequest { library, every, versions: None };
    let stop = interruptible()?;
    let mut failure = None;
    let mut each = |v: &Version| {
        let said = match a.json.json {
            true => say(json!({
                "version": v.number, "folder": v.folder, "link": v.link,
                "description": v.description,
            })),
            false => say(format_args!("version {}: {}", v.number, v.link.display())),
        };
        if let Err(f) = said {
            // The reader is gone.
            failure = Some(f);
            stop.store(true, Ordering::Relaxed);
        }
    };
    watch(&context(), &request, &stop, &mut listen, &mut each)?;
    failure.map_or(Ok(130), Err)
}

/// Writes the whole model as a library.
fn library(a: &Args, name: Name) -> Result<u8, Failure> {
    let request = LibraryRequest {
        network: NetworkRequest {
            input: a.input.request(),
            store: a.kernels.store(),
            guess: a.kernels.guess(),
            target: a.target.request()?,
            threads: a.threads.threads.into(),
            keep: None,
        },
        options: LibraryOptions { name, onnxruntime: a.ort, build: a.build || a.watch.is_some() },
        out: a.out.clone(),
    };
    if let Some(every) = a.watch {
        return follow(a, request, every);
    }
    let done = export_network(&context(), &request, &mut listen)?;
    if a.json.json {
        say(&done.description)?;
        return Ok(0);
    }
    let (folder, name) = (done.folder.display(), done.name.text());
    for p in &done.ports.inputs {
        say(format_args!("in   {}", line(p)))?;
    }
    for p in &done.ports.outputs {
        say(format_args!("out  {}", line(p)))?;
    }
    say(done.counts)?;
    let megabytes = |bytes: u64| three(bytes as f64 / 1e6);
    say(format_args!(
        "{name}.weights {} MB, workspace {} MB",
        megabytes(done.weights_bytes),
        megabytes(done.workspace_bytes)
    ))?;
    if done.built {
        say(format_args!("built {folder}/lib{name}.so and lib{name}.a; try it: {folder}/example"))?;
    } else {
        say(format_args!("written to {folder}; build and try it: make -C '{folder}' check"))?;
    }
    Ok(0)
}
