//! `squall doctor`: checks what tuning needs on this machine (compiler, CPU or GPU, memory, store),
//! measures its roof (peak and bandwidths), fits its machine model, and prints for each missing
//! thing the command that mends it.

use crate::failure::Failure;
use crate::option::{IsaArgs, JsonArgs, StoreArgs, ThreadArgs};
use crate::terminal::{say, three};
use serde_json::{Value, json};
use squall::{
    Device, Execution, Gpu, Isa, LEVELS, MachineModel, Roof, Store, StoreError, Toolchain,
    fitted_cpu, fitted_gpu, gpu_roof, measure_roof, runs, toolchain_id,
};

/// Check compiler, CPU, memory, store; measure the machine's roof
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall doctor
  squall doctor --threads 2 --json
  squall doctor --isa x86-64-v3
  CC=clang squall doctor --store tuned.squall

Exit code 1 means that tuning is impossible, and the line with `mend:` says what to do.")]
pub struct Args {
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    isa: IsaArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// A thing that was looked at.
struct Finding {
    name: &'static str,
    /// Whether tuning can do with it.
    good: bool,
    detail: String,
    mend: Option<String>,
}

/// All that was looked at.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, name: &'static str, good: bool, detail: String, mend: Option<String>) {
        self.0.push(Finding { name, good, detail, mend });
    }

    fn good(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(name, true, detail.into(), None);
    }

    fn missing(&mut self, name: &'static str, detail: impl Into<String>, mend: &str) {
        self.add(name, false, detail.into(), Some(mend.into()));
    }
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let mut found = Findings::default();
    let threads = usize::from(a.threads.threads);
    let toolchain = compiler(&mut found, threads, a.isa.one()?);
    levels_here(&mut found);
    let (mut machine, mut model, mut gpu) = (Value::Null, Value::Null, Value::Null);
    let mut measured = None;
    if let Some(tc) = &toolchain {
        (machine, model, measured) = cpu(&mut found, threads, tc);
        // Without a GPU tuning for the CPU is possible all the same.
        match Gpu::detect(0, tc) {
            Ok(g) => gpu = gpu_facts(&mut found, &g, tc),
            Err(e) => found.good("CUDA", format!("none: {e}")),
        }
    }
    let store = store(a, &mut found);
    let good = found.0.iter().all(|f| f.good);
    if a.json.json {
        let findings: Vec<Value> = found
            .0
            .iter()
            .map(|f| json!({"name": f.name, "good": f.good, "detail": f.detail, "mend": f.mend}))
            .collect();
        say(json!({
            "can_tune": good,
            "findings": findings,
            "compiler": toolchain.as_ref().map(|t| json!({
                "command": t.command(),
                "version": t.version(),
                "flags": t.flags(),
                "openmp": t.openmp(),
            })),
            "toolchain": toolchain.as_ref().map(toolchain_id),
            "device": machine,
            "model": model,
            "gpu": gpu,
            "roof": measured.as_ref().map(squall::report::json::roof),
            "store": store,
        }))?;
    } else {
        show(&found, good)?;
    }
    Ok(u8::from(!good))
}

fn show(found: &Findings, good: bool) -> Result<(), Failure> {
    for f in &found.0 {
        say(format_args!(
            "{} {:<10} {}",
            if f.good { "ok     " } else { "MISSING" },
            f.name,
            f.detail
        ))?;
        if let Some(m) = &f.mend {
            say(format_args!("        {:<10} mend: {m}", ""))?;
        }
    }
    say(if good {
        "tuning is possible"
    } else {
        "tuning is impossible until what is missing is mended"
    })
}

/// Looks at the C compiler.
fn compiler(found: &mut Findings, threads: usize, isa: Option<Isa>) -> Option<Toolchain> {
    let at_level = |t: Toolchain| isa.map_or(Ok(t.clone()), |isa| t.at(isa));
    let t = match Toolchain::detect().and_then(at_level) {
        Ok(t) => t,
        Err(e) => {
            let mend = "apt-get install gcc (or dnf install gcc, apk add build-base), or set CC";
            found.missing("compiler", e.to_string(), mend);
            return None;
        }
    };
    found.good("compiler", format!("{} ({})", t.command(), t.version()));
    found.good("flags", t.flags().join(" "));
    let mend = (!t.openmp()).then(|| {
        "only for kernels of several threads: apt-get install libomp-dev, or CC=gcc".into()
    });
    let detail = if t.openmp() { "yes" } else { "no" };
    found.add("OpenMP", t.openmp() || threads == 1, detail.into(), mend);
    Some(t)
}

/// Says which levels of instructions kernels can be held to, and what runs them.
fn levels_here(found: &mut Findings) {
    let mut lines = [(Vec::new(), ""), (Vec::new(), " under an emulator"), (Vec::new(), "")];
    lines[2].1 = " not to be run here";
    for l in &LEVELS {
        let at = match runs(l) {
            Execution::Here | Execution::Board(_) => 0,
            Execution::Emulated(_) => 1,
            Execution::Nowhere(_) => 2,
        };
        lines[at].0.push(l.name);
    }
    let lines = lines.iter().filter(|l| !l.0.is_empty());
    let text: Vec<String> = lines.map(|(names, how)| names.join(", ") + how).collect();
    found.good("levels", text.join("; "));
}

/// Looks at the CPU; its facts, its model and its roof.
fn cpu(
    found: &mut Findings,
    threads: usize,
    toolchain: &Toolchain,
) -> (Value, Value, Option<Roof>) {
    let d = match Device::detect(threads, toolchain) {
        Ok(d) => d,
        Err(e) => {
            let mend = "choose fewer --threads, or allow more cores (taskset, cgroup)";
            found.missing("CPU", e.to_string(), mend);
            return (Value::Null, Value::Null, None);
        }
    };
    if let Err(e) = d.can_time() {
        found.missing("CPU", e.to_string(), "name a level that this CPU has, or none");
        return (Value::Null, Value::Null, None);
    }
    found.good("CPU", d.model.clone());
    let vectors = format!(
        "{} registers of {} bytes; {}",
        d.target.vector_registers(),
        d.target.vector_bytes(),
        d.features.join(" ")
    );
    found.good("vectors", vectors);
    let spare = if d.spare.is_empty() { "none".into() } else { format!("{:?}", d.spare) };
    let cores =
        format!("{:?} measure, {spare} beside them build; between measurements all do", d.cores);
    found.good("cores", cores);
    let caches: Vec<String> = d.caches.iter().map(|c| format!("L{} {}", c.level, c.size)).collect();
    found.good("caches", if caches.is_empty() { "unknown".into() } else { caches.join(", ") });
    let roof = cpu_roof(found, &d, toolchain);
    let mut model = Value::Null;
    if let Some((fitted, ghz)) = roof.as_ref().and_then(|r| fitted_cpu(&d, toolchain, r)) {
        found.good("model", described(&fitted, ghz));
        model = json!(fitted);
    }
    let caches = d
        .caches
        .iter()
        .map(|c| json!({"level": c.level, "bytes": c.size.0, "shared_by": c.shared_by}));
    let facts = json!({
        "id": d.id(),
        "model": d.model,
        "features": d.features,
        "threads": d.target.threads,
        "vector_bytes": d.target.vector_bytes(),
        "vector_registers": d.target.vector_registers(),
        "cores": d.cores,
        "spare": d.spare,
        "siblings": d.siblings,
        "caches": caches.collect::<Vec<_>>(),
    });
    (facts, model, roof)
}

/// A CPU's model in a line; JSON has all of it.
fn described(m: &MachineModel, ghz: f64) -> String {
    let units = m.cpu_units();
    let fills: Vec<String> = m
        .caches
        .iter()
        .enumerate()
        .map(|(i, c)| format!("L{} filled with {} B a cycle", i + 1, three(c.fill)))
        .collect();
    format!(
        "{} FMA and {} load ports at {} GHz; {}; fitted, all of it with --json",
        units.fma_ports,
        units.load_ports,
        three(ghz),
        if fills.is_empty() { "caches unknown".into() } else { fills.join(", ") }
    )
}

/// Measures what the CPU can do at most.
fn cpu_roof(found: &mut Findings, d: &Device, toolchain: &Toolchain) -> Option<Roof> {
    let r = match measure_roof(d, toolchain) {
        Ok(r) => r,
        Err(e) => {
            let mend = "free the temporary folder, or name another: TMPDIR=/path squall doctor";
            found.missing("roof", e.to_string(), mend);
            return None;
        }
    };
    let threads = d.target.threads;
    let peak = format!("{} GFLOP/s with {threads} thread(s), f32, measured", three(r.peak_gflops));
    found.good("peak", peak);
    let memory = three(r.memory_gbs);
    found.good("bandwidth", format!("{}, memory {memory} GB/s, measured", levels(&r)));
    Some(r)
}

/// The caches of a roof.
fn levels(r: &Roof) -> String {
    let levels: Vec<String> =
        r.levels.iter().map(|l| format!("{} {} GB/s", l.name, three(l.gbs))).collect();
    levels.join(", ")
}

/// Looks at a GPU; its facts.
fn gpu_facts(found: &mut Findings, g: &Gpu, toolchain: &Toolchain) -> Value {
    let more = if g.count > 1 { format!(", the first of {}", g.count) } else { String::new() };
    found.good("CUDA", format!("{}{more}, driver {}, {}", g.name, g.driver, g.toolchain()));
    let (h, slow) = (g.health, g.health.now.throttled_by());
    let slow = if slow.is_empty() {
        "nothing slows it down".into()
    } else {
        format!("slowed down by: {}", slow.join(", "))
    };
    let clocks = match h.most_sm_mhz {
        0 => "unknown: no NVML (libnvidia-ml.so.1)".to_string(),
        most => format!(
            "{} of {most} MHz, memory {} of {} MHz, {} C, {} W; {slow}",
            h.now.sm_mhz, h.now.memory_mhz, h.most_memory_mhz, h.degrees, h.watts
        ),
    };
    found.good("GPU clocks", clocks);
    let roof = gpu_roof(g, toolchain);
    let text = match &roof {
        Ok(r) => format!(
            "{} GFLOP/s f32, {}, memory {} GB/s, measured",
            three(r.peak_gflops),
            levels(r),
            three(r.memory_gbs)
        ),
        Err(e) => format!("none: {e}"),
    };
    found.good("GPU roof", text);
    json!({
        "id": g.id(),
        "count": g.count,
        "driver": g.driver,
        "toolchain": g.toolchain(),
        "sm_mhz": h.now.sm_mhz,
        "memory_mhz": h.now.memory_mhz,
        "most_sm_mhz": h.most_sm_mhz,
        "most_memory_mhz": h.most_memory_mhz,
        "degrees": h.degrees,
        "watts": h.watts,
        "throttled_by": h.now.throttled_by(),
        "model": fitted_gpu(g, roof.as_ref().ok()),
        "roof": roof.ok().as_ref().map(squall::report::json::roof),
    })
}

/// Where records would go, and how they are.
fn store(a: &Args, found: &mut Findings) -> Value {
    let path = &a.store.store;
    let place = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let mut facts = json!({"path": place.to_string_lossy(), "records": Value::Null});
    // A doctor looks and touches nothing: a store that is missing is not made.
    let checked = match Store::open_read_only(path) {
        Ok(s) => s.verify().map(|n| {
            facts["records"] = n.into();
            format!("{} ({n} records, all readable)", place.display())
        }),
        Err(StoreError::Missing { .. } | StoreError::Empty { .. }) => {
            Ok(format!("{} (made by the first tuning)", place.display()))
        }
        Err(e) => Err(e),
    };
    let probe = place.parent().map(|folder| {
        let file = folder.join(format!(".squall-doctor-{}", std::process::id()));
        let writable = std::fs::write(&file, b"x");
        let _ = std::fs::remove_file(&file);
        (folder.to_path_buf(), writable)
    });
    match (checked, probe) {
        (Err(e), _) => {
            facts["problem"] = e.to_string().into();
            found.missing("store", e.to_string(), &e.remedy());
        }
        (Ok(_), Some((folder, Err(e)))) => {
            let detail = format!("`{}` cannot be written: {e}", folder.display());
            facts["problem"] = detail.clone().into();
            let mend = "name another place: --store FILE or SQUALL_STORE";
            found.missing("store", detail, mend);
        }
        (Ok(detail), _) => found.good("store", detail),
    }
    facts
}
