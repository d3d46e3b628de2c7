//! `cargo xtask bench cpu`: tunes 21 workloads, exports the winners, and lets the referee, a Python
//! script outside of the repository, time them beside other libraries in one run. Output: a JSON
//! file in `benches/runs/`, from which `cargo xtask tables` makes the documents' tables. The other
//! benchmarks are in the files below this one.

mod examples;
mod gpu_networks;
mod held;
mod threads;
mod trust;

pub use examples::examples;
pub use gpu_networks::gpu_networks;
pub use threads::threads;
pub use trust::trust;

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const USAGE: &str =
    "usage: cargo xtask bench cpu [LIST.ops] [--short] [--trials N] [--only PATTERN] [--sketch \
     PATTERN] [--isa LEVEL] [--rounds N] [--python PATH]

  LIST.ops          workloads of the referee's [default: examples/workloads.ops]
  --short           32 trials and 3 rounds: under ten minutes
  --trials N        of each workload [default: 300]
  --only PATTERN    workloads whose name matches
  --sketch PATTERN  sketches whose name matches (`tile*`: without Winograd)
  --isa LEVEL       kernels of a level of instructions; of x86-64-v3, all libraries are held to \
  it where CPUID can be made to fault, else those that can be told (oneDNN, OpenBLAS)
  --rounds N        of the referee [default: 40]
  --python PATH     with the packages of ../shared/peers/README.md [default: peers-venv beside \
  the repository, else python3]";

/// The workloads, as operator lines of ours with the referee's names.
const WORKLOADS: &str = "examples/workloads.ops";

struct Settings {
    trials: u32,
    rounds: u32,
    list: Option<PathBuf>,
    only: Option<String>,
    sketch: Option<String>,
    isa: Option<String>,
    python: Option<PathBuf>,
}

/// Reads the arguments and runs the benchmark.
pub fn cpu(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let s = settings(arguments)?;
    let referee = root.join("../shared/peers/libs.py");
    if !referee.exists() {
        return Err(format!(
            "{} is not there: without the referee there is nothing to compare with",
            referee.display()
        ));
    }
    let python = python_with_libraries(root, &s)?;
    let bench = Bench::open(root, "cpu.squall")?;
    let out = tuned_and_exported(root, &bench, &s)?;
    let names = kernels(&read(&out.join("manifest.json"))?, &out)?;
    let so = bench.folder.join("so.json");
    write(&so, &json!(names))?;
    let judged = bench.folder.join("libs.json");
    let list = names.keys().cloned().collect::<Vec<_>>().join(",");
    let rounds = s.rounds.to_string();
    let mut referee = referee_command(&python, &referee);
    let is_held = match s.isa.as_deref() {
        Some("x86-64-v3") => held::hold_to_avx2(&mut referee, &bench.folder)?,
        _ => false,
    };
    referee
        .args(["--threads", "1", "--rounds", &rounds, "--workloads", &list, "--so"])
        .arg(&so)
        .arg("--out")
        .arg(&judged);
    let table = output(&mut referee)?;
    print!("{table}");
    let rows = table.lines().filter(|l| l.contains("of peak") || l.starts_with("so:"));
    let result = json!({
        "what": "squall's kernels beside the libraries, one thread, one run of \
                 ../shared/peers/libs.py",
        "circumstances": circumstances(root),
        "trials": s.trials,
        "sketches": s.sketch,
        "isa": s.isa,
        "libraries_held_by_cpuid": is_held,
        "rounds": s.rounds,
        "table": rows.collect::<Vec<_>>(),
        "referee": read(&judged)?,
    });
    let date = text(Command::new("date").arg("+%Y-%m-%d-%H%M"));
    let level = s.isa.as_ref().map_or(String::new(), |isa| format!("-{isa}"));
    keep(root, &format!("{date}-cpu-{}{level}.json", s.trials), &result)
}

/// The Python that has the libraries to compare with.
fn python_with_libraries(root: &Path, s: &Settings) -> Result<PathBuf, String> {
    let beside = root.join("../peers-venv/bin/python");
    let python =
        s.python.clone().unwrap_or_else(|| if beside.exists() { beside } else { "python3".into() });
    let packages = Command::new(&python)
        .args(["-c", "import numpy, onnx, onnxruntime"])
        .stderr(Stdio::null())
        .status();
    if packages.is_ok_and(|p| p.success()) {
        return Ok(python);
    }
    let hint = "python3 -m venv ../peers-venv && ../peers-venv/bin/pip install numpy onnx \
                onnxruntime openvino onednn-cpu-gomp==2023.2.0 onednn-devel-cpu-gomp==2023.2.0";
    Err(format!("{} lacks the libraries to compare with; once: {hint}", python.display()))
}

/// Tunes the workloads and exports the winners; returns the folder of the export.
fn tuned_and_exported(root: &Path, bench: &Bench, s: &Settings) -> Result<PathBuf, String> {
    let out = bench.folder.join("export");
    let workloads = s.list.clone().unwrap_or_else(|| root.join(WORKLOADS));
    let only: Vec<&str> = s.only.iter().flat_map(|p| ["--only", p]).collect();
    let sketch: Vec<&str> = s.sketch.iter().flat_map(|p| ["--sketch", p]).collect();
    let isa: Vec<&str> = s.isa.iter().flat_map(|level| ["--isa", level]).collect();
    run(Command::new(&bench.squall)
        .arg("tune")
        .arg(&workloads)
        .args(["--trials", &s.trials.to_string(), "--store"])
        .arg(&bench.store)
        .args(&only)
        .args(&isa)
        .args(&sketch))?;
    run(Command::new(&bench.squall)
        .arg("export")
        .arg(&workloads)
        .arg("--store")
        .arg(&bench.store)
        .arg("--out")
        .arg(&out)
        .args(&only)
        .args(&isa)
        .arg("--build"))?;
    Ok(out)
}

/// Writes a result to `benches/runs/`.
fn keep(root: &Path, name: &str, result: &Value) -> Result<(), String> {
    let file = root.join("benches/runs").join(name);
    write(&file, result)?;
    println!("written: {}", file.display());
    Ok(())
}

/// The common beginning of every benchmark: a release build and a store without records.
struct Bench {
    squall: PathBuf,
    folder: PathBuf,
    store: PathBuf,
}

impl Bench {
    fn open(root: &Path, store: &str) -> Result<Bench, String> {
        let folder = root.join("target/bench");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        run(Command::new("cargo").current_dir(root).args([
            "build",
            "--release",
            "--locked",
            "-p",
            "squall-cli",
        ]))?;
        let store = folder.join(store);
        // What an earlier run found would come on top of the trials that the result names. A killed
        // run leaves its journal too, which would be read into the new store.
        for suffix in ["", "-wal", "-shm"] {
            let mut name = store.clone().into_os_string();
            name.push(suffix);
            match fs::remove_file(&name) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{}: {e}", name.display()));
                }
                _ => {}
            }
        }
        Ok(Bench { squall: root.join("target/release/squall"), folder, store })
    }
}

/// When and where a result was measured, and of which code.
fn circumstances(root: &Path) -> Value {
    let mut describe = Command::new("git");
    describe.current_dir(root).args(["describe", "--always", "--dirty"]);
    json!({
        "date": text(Command::new("date").arg("+%Y-%m-%d %H:%M")),
        "cpu": cpu_model(),
        "compiler": text(Command::new("cc").arg("--version")).lines().next(),
        "commit": text(&mut describe),
    })
}

fn settings(arguments: &[&str]) -> Result<Settings, String> {
    let (list, only, sketch, isa, python) = Default::default();
    let mut s = Settings { trials: 300, rounds: 40, list, only, sketch, isa, python };
    let mut rest = arguments.iter();
    let number = |v: Option<&&str>| {
        v.and_then(|v| v.parse().ok()).filter(|n| *n > 0).ok_or_else(|| USAGE.to_string())
    };
    while let Some(a) = rest.next() {
        match *a {
            "--short" => (s.trials, s.rounds) = (32, 3),
            "--trials" => s.trials = number(rest.next())?,
            "--rounds" => s.rounds = number(rest.next())?,
            "--only" => s.only = Some(rest.next().ok_or(USAGE)?.to_string()),
            "--sketch" => s.sketch = Some(rest.next().ok_or(USAGE)?.to_string()),
            "--isa" => s.isa = Some(rest.next().ok_or(USAGE)?.to_string()),
            "--python" => s.python = Some(PathBuf::from(rest.next().ok_or(USAGE)?)),
            list if list.ends_with(".ops") => {
                s.list = Some(std::path::absolute(list).map_err(|e| format!("{list}: {e}"))?)
            }
            _ => return Err(USAGE.into()),
        }
    }
    Ok(s)
}

/// Pins the referee to one core: libraries start as many threads as they see cores.
fn referee_command(python: &Path, script: &Path) -> Command {
    let pinned = Command::new("taskset")
        .args(["-c", "0", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success());
    if !pinned {
        let mut c = Command::new(python);
        c.arg(script);
        return c;
    }
    let mut c = Command::new("taskset");
    c.args(["-c", "0"]).arg(python).arg(script);
    c
}

/// For each exported kernel what the referee asks for.
fn kernels(manifest: &Value, out: &Path) -> Result<serde_json::Map<String, Value>, String> {
    let fault = || format!("{}: no library or no kernels", out.join("manifest.json").display());
    let library = manifest["library"].as_str().ok_or_else(fault)?;
    let lib = out.join(library).display().to_string();
    let list = manifest["kernels"].as_array().ok_or_else(fault)?;
    Ok(list
        .iter()
        .filter_map(|k| {
            Some((
                k["name"].as_str()?.to_string(),
                json!({ "squall": { "lib": lib, "symbol": k["symbol"].as_str()? } }),
            ))
        })
        .collect())
}

fn run(c: &mut Command) -> Result<(), String> {
    match c.status() {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("{c:?}: {s}")),
        Err(e) => Err(format!("{c:?}: {e}")),
    }
}

fn output(c: &mut Command) -> Result<String, String> {
    let done = c.stderr(Stdio::inherit()).output().map_err(|e| format!("{c:?}: {e}"))?;
    if !done.status.success() {
        return Err(format!("{c:?}: {}", done.status));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The JSON that a command prints, whatever its exit code.
fn read_output(c: &mut Command) -> Result<Value, String> {
    let done = c.stderr(Stdio::inherit()).output().map_err(|e| format!("{c:?}: {e}"))?;
    serde_json::from_slice(&done.stdout).map_err(|e| format!("{c:?}: {}: {e}", done.status))
}

/// What a small command says, empty where it cannot be run.
fn text(c: &mut Command) -> String {
    c.output().map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default()
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    line.map_or_else(|| "unknown".into(), |l| l.1.trim().to_string())
}

fn read(path: &Path) -> Result<Value, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, value: &Value) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| e.to_string())?;
    fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
}
