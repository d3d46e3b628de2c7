//! `squall doctor`: what this machine offers, what is missing, and the command that mends it.

use crate::failure::Failure;
use crate::option::{JsonArgs, StoreArgs, ThreadArgs};
use crate::terminal::{say, three};
use serde_json::{Value, json};
use squall::core::MachineModel;
use squall::measure::cpu::{Device, Toolchain};
use squall::measure::cuda::Gpu;
use squall::measure::fit::{self, CoreRates, GpuRates};
use squall::records::StoreError;
use squall::{Roof, Store, measure_roof, toolchain_id};

/// Check compiler, CPU, memory, store; measure the machine's roof
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall doctor
  squall doctor --threads 2 --json
  CC=clang squall doctor --store tuned.squall

Exit code 1 means that tuning is impossible, and the line with `mend:` says what to do.")]
pub struct Args {
    #[command(flatten)]
    threads: ThreadArgs,
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

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let mut found = Vec::new();
    let mut add = |name, good, detail: String, mend: Option<String>| {
        found.push(Finding { name, good, detail, mend })
    };
    let toolchain = match Toolchain::detect() {
        Ok(t) => {
            add("compiler", true, format!("{} ({})", t.command(), t.version()), None);
            add("flags", true, t.flags().join(" "), None);
            let openmp = (!t.openmp()).then(|| {
                "only for kernels of several threads: apt-get install libomp-dev, or CC=gcc".into()
            });
            add(
                "OpenMP",
                t.openmp() || a.threads.threads == 1,
                if t.openmp() { "yes" } else { "no" }.into(),
                openmp,
            );
            Some(t)
        }
        Err(e) => {
            add(
                "compiler",
                false,
                e.to_string(),
                Some(
                    "apt-get install gcc (or dnf install gcc, apk add build-base), or set CC"
                        .into(),
                ),
            );
            None
        }
    };
    let mut machine = Value::Null;
    let mut measured: Option<Roof> = None;
    let mut model = Value::Null;
    if let Some(tc) = &toolchain {
        match Device::detect(a.threads.threads as usize, tc) {
            Ok(d) => {
                add("CPU", true, d.model.clone(), None);
                let vectors = format!(
                    "{} registers of {} bytes; {}",
                    d.target.vector_registers(),
                    d.target.vector_bytes(),
                    d.features.join(" ")
                );
                add("vectors", true, vectors, None);
                let spare =
                    if d.spare.is_empty() { "none".into() } else { format!("{:?}", d.spare) };
                add(
                    "cores",
                    true,
                    format!(
                        "{:?} measure, {spare} beside them build; between measurements all do",
                        d.cores
                    ),
                    None,
                );
                let caches: Vec<String> =
                    d.caches.iter().map(|c| format!("L{} {}", c.level, c.size)).collect();
                add(
                    "caches",
                    true,
                    if caches.is_empty() { "unknown".into() } else { caches.join(", ") },
                    None,
                );
                match measure_roof(&d, tc) {
                    Ok(r) => {
                        add(
                            "peak",
                            true,
                            format!(
                                "{} GFLOP/s with {} thread(s), f32, \
                                     measured",
                                three(r.peak_gflops),
                                d.target.threads
                            ),
                            None,
                        );
                        let levels: Vec<String> = r
                            .levels
                            .iter()
                            .map(|l| format!("{} {} GB/s", l.name, three(l.gbs)))
                            .collect();
                        add(
                            "bandwidth",
                            true,
                            format!(
                                "{}, memory {} GB/s, \
                            measured",
                                levels.join(", "),
                                three(r.memory_gbs)
                            ),
                            None,
                        );
                        if let Ok(ghz) = squall::measure::cpu::clock(&d, tc) {
                            let fitted = fitted(&d, &r, ghz);
                            add("model", true, described(&fitted, ghz), None);
                            model = json!(fitted);
                        }
                        measured = Some(r);
                    }
                    Err(e) => add(
                        "roof",
                        false,
                        e.to_string(),
                        Some(
                            "free the temporary folder, or name another: TMPDIR=/path squall \
                              doctor"
                                .into(),
                        ),
                    ),
                }
                machine = json!({
                    "id": d.id(), "model": d.model, "features": d.features, "threads": d.target.threads,
                    "vector_bytes": d.target.vector_bytes(), "vector_registers": d.target.vector_registers(),
                    "cores": d.cores, "spare": d.spare, "siblings": d.siblings,
                    "caches": d.caches.iter().map(|c| json!({"level": c.level, "bytes": c.size.0, "shared_by": c.shared_by})).collect::<Vec<_>>(),
                });
            }
            Err(e) => add(
                "CPU",
                false,
                e.to_string(),
                Some("choose fewer --threads, or allow more cores (taskset, cgroup)".into()),
            ),
        }
    }
    let mut gpu = Value::Null;
    if let Some(tc) = &toolchain {
        // Without a GPU tuning for the CPU is possible all the same.
        match Gpu::detect(0, tc) {
            Ok(g) => {
                let more =
                    if g.count > 1 { format!(", the first of {}", g.count) } else { String::new() };
                add(
                    "CUDA",
                    true,
                    format!("{}{more}, driver {}, {}", g.name, g.driver, g.toolchain()),
                    None,
                );
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
                add("GPU clocks", true, clocks, None);
                let roof = squall::gpu_roof(&g, tc);
                match &roof {
                    Ok(r) => {
                        let levels: Vec<String> = r
                            .levels
                            .iter()
                            .map(|l| format!("{} {} GB/s", l.name, three(l.gbs)))
                            .collect();
                        let text = format!(
                            "{} GFLOP/s f32, {}, memory {} GB/s, measured",
                            three(r.peak_gflops),
                            levels.join(", "),
                            three(r.memory_gbs)
                        );
                        add("GPU roof", true, text, None);
                    }
                    Err(e) => add("GPU roof", true, format!("none: {e}"), None),
                }
                gpu = json!({
                    "id": g.id(), "count": g.count, "driver": g.driver, "toolchain": g.toolchain(),
                    "sm_mhz": h.now.sm_mhz, "memory_mhz": h.now.memory_mhz, "most_sm_mhz": h.most_sm_mhz, "most_memory_mhz": h.most_memory_mhz,
                    "degrees": h.degrees, "watts": h.watts, "throttled_by": h.now.throttled_by(),
                    "model": roof.as_ref().map_or(g.target.machine.clone(), |r| fitted_gpu(&g, r)),
                    "roof": roof.ok().as_ref().map(squall::report::json::roof),
                });
            }
            Err(e) => add("CUDA", true, format!("none: {e}"), None),
        }
    }
    let store = store(a, &mut add);
    let good = found.iter().all(|f| f.good);
    if a.json.json {
        let findings: Vec<Value> = found
            .iter()
            .map(|f| json!({"name": f.name, "good": f.good, "detail": f.detail, "mend": f.mend}))
            .collect();
        say(json!({
            "can_tune": good,
            "findings": findings,
            "compiler": toolchain.as_ref().map(|t| json!({"command": t.command(), "version": t.version(), "flags": t.flags(), "openmp": t.openmp()})),
            "toolchain": toolchain.as_ref().map(toolchain_id),
            "device": machine,
            "model": model,
            "gpu": gpu,
            "roof": measured.as_ref().map(squall::report::json::roof),
            "store": store,
        }))?;
    } else {
        for f in &found {
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
        })?;
    }
    Ok(u8::from(!good))
}

/// The model of a CPU, as far as its roof tells.
fn fitted(d: &Device, roof: &Roof, ghz: f64) -> MachineModel {
    let threads = d.target.threads as f64;
    let reads = roof.levels.iter().map(|l| l.gbs).chain([roof.memory_gbs]);
    let rates = CoreRates {
        ghz,
        gflops: roof.peak_gflops / threads,
        reads: reads.map(|gbs| gbs / threads).collect(),
    };
    fit::cpu(&d.target.machine, &rates)
}

/// A CPU's model in a line; JSON has all of it.
fn described(m: &MachineModel, ghz: f64) -> String {
    let units = m.cpu_units();
    let fill = |(i, c): (usize, &squall::core::machine::CacheLevel)| {
        format!("L{} filled with {} B a cycle", i + 1, three(c.fill))
    };
    let fills: Vec<String> = m.caches.iter().enumerate().map(fill).collect();
    format!(
        "{} FMA and {} load ports at {} GHz; {}; fitted, all of it with --json",
        units.fma_ports,
        units.load_ports,
        three(ghz),
        if fills.is_empty() { "caches unknown".into() } else { fills.join(", ") }
    )
}

/// The model of a GPU, as far as its roof tells; its clock is taken to be the highest.
fn fitted_gpu(g: &Gpu, roof: &Roof) -> MachineModel {
    let rates = GpuRates {
        multiprocessors: g.limits.multiprocessors,
        ghz: f64::from(g.health.most_sm_mhz) / 1000.0,
        gflops: roof.peak_gflops,
        l2_gbs: roof.levels.first().map_or(0.0, |l| l.gbs),
        memory_gbs: roof.memory_gbs,
    };
    match g.health.most_sm_mhz {
        0 => g.target.machine.clone(),
        _ => fit::gpu(&g.target.machine, &rates),
    }
}

/// Where records would go, and how they are.
fn store(a: &Args, add: &mut impl FnMut(&'static str, bool, String, Option<String>)) -> Value {
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
            add("store", false, e.to_string(), Some(e.remedy()));
        }
        (Ok(_), Some((folder, Err(e)))) => {
            let detail = format!("`{}` cannot be written: {e}", folder.display());
            facts["problem"] = detail.clone().into();
            add(
                "store",
                false,
                detail,
                Some("name another place: --store FILE or SQUALL_STORE".into()),
            );
        }
        (Ok(detail), _) => add("store", true, detail, None),
    }
    facts
}
