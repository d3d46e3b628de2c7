//! Writes an export's folder: `SYMBOL.c` and `SYMBOL_reference.c` (plain loops) for each kernel, a
//! header, the manifest (JSON whose keys other programs read), the driver that checks and times the
//! kernels, a Makefile, and `so.json`, the kernels in the form that a referee of libraries takes.
//! Input: the chosen kernels (`choose.rs`) and the target; `cuda.rs` has the texts that differ for
//! GPUs.

use super::levels::{LevelKernels, Levels};
use super::{DRIVER, LIBRARY, cuda};
use crate::base::error::Error;
use crate::base::files::{make_folder, put_in_folder};
use crate::inference::kernel_text::{comment, declarations, literal, symbols};
use crate::predict::choose::{Chosen, Origin};
use crate::target::target_context::TargetContext;
use serde_json::{Value, json};
use squall_core::{DType, KernelSource, TensorKind};
use squall_measure::cpu::Toolchain;
use squall_runtime::host;
use squall_runtime::plan::HostPlan;
use std::fmt::Write as _;
use std::path::Path;

/// Writes all files; returns the manifest.
pub fn write(
    folder: &Path,
    kernels: &[Chosen],
    levels: &Levels,
    at: &TargetContext,
) -> Result<Value, Error> {
    std::fs::create_dir_all(folder)
        .map_err(|source| Error::Write { path: folder.into(), source })?;
    let put = |name: &str, text: &str| put_in_folder(&folder.join(name), text.as_bytes());
    let gpu = at.gpus.first();
    for k in kernels {
        for (s, head) in [(&k.source, comment(k)), (&k.reference, String::new())] {
            let launcher = if s.language.is_launched() {
                cuda::launcher(s, &k.task.workload)
            } else {
                String::new()
            };
            put(&cuda::file(s), &(head + &s.source + &launcher))?;
        }
    }
    for (s, _) in levels.sources(&at.toolchain) {
        let from = levels.origin(s).map(comment).unwrap_or_default();
        put(&cuda::file(s), &(from + &s.source))?;
    }
    match gpu {
        Some(gpu) => {
            put("squall_kernels.h", &cuda::header(kernels))?;
            put("Makefile", &cuda::makefile(kernels, gpu, &at.toolchain))?;
        }
        None => {
            put("squall_kernels.h", &header(kernels, levels))?;
            put("Makefile", &makefile(kernels, levels, &at.toolchain))?;
        }
    }
    put(host::DRIVER.0, host::DRIVER.1)?;
    put("kernels.c", &linked(kernels))?;
    library(folder)?;
    let mut manifest = manifest(kernels, &at.device_name(), &at.place.toolchain);
    if !levels.levels.is_empty() {
        let level = |l: &LevelKernels| {
            let facts = l.chosen.iter().zip(&l.sources).map(|(k, s)| fact(k, &s.symbol, s));
            json!({
                "name": l.isa.name(),
                "toolchain": l.toolchain.id(),
                "kernels": facts.collect::<Vec<_>>(),
            })
        };
        manifest["levels"] = levels.levels.iter().map(level).collect();
    }
    put("manifest.json", &format!("{manifest:#}\n"))?;
    if gpu.is_none() {
        put("so.json", &format!("{:#}\n", referee(folder, kernels)))?;
    }
    Ok(manifest)
}

fn header(kernels: &[Chosen], levels: &Levels) -> String {
    let mut h = format!(
        "/* Kernels tuned by Squall. `make` builds {LIBRARY} and `{DRIVER}`, which checks and \
         times them.\n\
         \x20*\n\
         \x20* Every kernel has this interface; all pointers are 64-byte aligned, tensors are \
         dense and row-major,\n\
         \x20* data and weights come in the order of manifest.json, each kind counted by itself, \
         0 means success:\n\
         \x20*\n\
         \x20*   SYMBOL(data, outputs, prepared, workspace)   one call\n\
         \x20*   SYMBOL_workspace_bytes()                     scratch memory that a call needs\n\
         \x20*   SYMBOL_prepare(weights, prepared)            packs constant weights once; only \
         where declared,\n\
         \x20*   SYMBOL_prepared_bytes()                      else `prepared` is not used\n\
         \x20*/\n#ifndef SQUALL_KERNELS_H\n#define SQUALL_KERNELS_H\n\n#include <stddef.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n"
    );
    for k in kernels {
        let name = k.task.name.replace("*/", "* /").replace("/*", "/ *").replace(['\n', '\r'], " ");
        let _ = write!(h, "\n/* {name} */\n{}", declarations(&k.source));
    }
    h + &super::levels::declarations(levels) + "\n#ifdef __cplusplus\n}\n#endif\n#endif\n"
}

/// The manifest. Scripts depend on these keys: they are never renamed.
fn manifest(kernels: &[Chosen], device: &str, tools: &str) -> Value {
    let kernels: Vec<Value> =
        kernels.iter().map(|k| fact(k, &k.source.symbol, &k.source)).collect();
    json!({
        "library": LIBRARY,
        "driver": DRIVER,
        "device": device,
        "toolchain": tools,
        "kernels": kernels,
    })
}

/// What is known of a kernel: of a source under such a symbol, and where it comes from.
fn fact(k: &Chosen, symbol: &str, s: &KernelSource) -> Value {
    let w = &k.task.workload;
    let inputs = |kind: TensorKind| -> Vec<Value> {
        let of_kind = w.inputs.iter().filter(|i| i.kind == kind);
        of_kind.map(|i| tensor(&i.name, i.dtype, &i.shape)).collect()
    };
    let outputs: Vec<Value> =
        w.outputs().iter().map(|o| tensor(&o.name, o.dtype, &o.shape())).collect();
    let record = k.origin.record();
    let guessed_by = match k.origin {
        Origin::Guessed(_, from) => Some(from.name()),
        _ => None,
    };
    json!({
        "name": k.task.name,
        "task": k.task.id.to_string(),
        "symbol": symbol,
        "source": cuda::file(s),
        "kind": w.kind,
        "count": k.task.count,
        "nodes": k.task.nodes,
        "data": inputs(TensorKind::Data),
        "weights": inputs(TensorKind::Weight),
        "outputs": outputs,
        "prepared_bytes": s.prepared.0,
        "workspace_bytes": s.workspace.0,
        "openmp": s.openmp,
        "tuned": k.origin.name() == "tuned",
        "origin": k.origin.name(),
        "guessed_by": guessed_by,
        "tunable": record.map(|r| r.tunable.as_str()),
        "configuration": record.map(|r| r.configuration.as_str()),
        "best_ns": k.origin.time().map(|t| t.0),
        "measured_on": record.map(|r| r.device.as_str()),
        "launches": s.launches,
    })
}

fn tensor(name: &str, dtype: DType, shape: &[i64]) -> Value {
    json!({"name": name, "dtype": dtype.name(), "shape": shape})
}

fn referee(folder: &Path, kernels: &[Chosen]) -> Value {
    let library = folder.join(LIBRARY);
    let entries = kernels.iter().map(|k| {
        (
            k.task.name.clone(),
            json!({"squall": {"lib": library.to_string_lossy(), "symbol": k.source.symbol}}),
        )
    });
    Value::Object(entries.collect())
}

/// Writes the C host library into `runtime/` of a folder.
fn library(folder: &Path) -> Result<(), Error> {
    let folder = folder.join("runtime");
    make_folder(&folder)?;
    let put = |(name, text): &(&str, &str)| put_in_folder(&folder.join(name), text.as_bytes());
    host::LIBRARY.iter().try_for_each(put)
}

/// The prototypes of a kernel that a host program in C calls: launchers take a stream.
fn host_declarations(k: &KernelSource) -> String {
    let text = declarations(k);
    if !k.language.is_launched() {
        return text;
    }
    let stream = |text: String, last: &str| text.replace(last, &format!("{last}, void *stream"));
    stream(stream(text, "void *workspace"), "void *prepared")
        .replace("const void *prepared, void *stream", "const void *prepared")
}

/// What the driver is compiled with: the library, the kernels that are linked in, and their plans.
fn linked(kernels: &[Chosen]) -> String {
    let sources = || kernels.iter().flat_map(|k| [&k.source, &k.reference]);
    let mut c = String::from(
        "/* The kernels that the driver checks, and their plans. Made by Squall. */\n",
    );
    if sources().any(|s| s.language.is_launched()) {
        c += "#define SQUALL_CUDA\n";
    }
    c += "#include \"runtime/runtime.c\"\n\n";
    c.extend(sources().map(host_declarations));
    c += "\n";
    c += &symbols(sources());
    c += "\nstatic const rt_export rt_exported[] = {\n";
    for k in kernels {
        let w = &k.task.workload;
        let plan = |s: &KernelSource| {
            let text = HostPlan::of_workload(w).with_kernel(s, None, &[]).to_string();
            let lines: Vec<String> =
                text.lines().map(|l| format!("\n     {}", literal(format!("{l}\n")))).collect();
            lines.concat()
        };
        let _ = writeln!(
            c,
            "    {{{}, \"{}\",{},{},\n     {:e}, {:e}}},",
            literal(&k.task.name),
            k.source.symbol,
            plan(&k.source),
            plan(&k.reference),
            w.flop() as f64,
            w.tolerance(),
        );
    }
    c + "};\n"
}

fn makefile(kernels: &[Chosen], levels: &Levels, toolchain: &Toolchain) -> String {
    let flag = |yes: bool| if yes { " -fopenmp" } else { "" };
    let openmp = flag(kernels.iter().any(|k| k.source.openmp));
    // References of large tasks use all cores.
    let all = flag(kernels.iter().any(|k| k.source.openmp || k.reference.openmp));
    let objects = |f: &dyn Fn(&Chosen) -> &KernelSource| {
        kernels.iter().map(|k| format!("{}.o", f(k).symbol)).collect::<Vec<_>>().join(" ")
    };
    let extra: String =
        levels.sources(toolchain).map(|(s, _)| format!(" {}.o", s.symbol)).collect();
    let mut m = format!(
        "# Builds {LIBRARY} and the driver with the flags that the kernels were measured with.\n\
         # `make check` runs every kernel against its reference, `make time` also times them.\n\
         CC = {}\nCFLAGS = {}\nKERNELS = {}\nREFERENCES = {}\n\n\
         all: {LIBRARY} {DRIVER}\n\n\
         {LIBRARY}: $(KERNELS)\n\t$(CC) -shared{openmp} -o $@ $(KERNELS) -lm\n\n\
         {DRIVER}: driver.c kernels.c $(KERNELS) $(REFERENCES)\n\t$(CC) -O2{all} -o $@ \
         driver.c $(KERNELS) $(REFERENCES) -lm -ldl\n\n\
         check: {DRIVER}\n\t./{DRIVER} --check\n\ntime: {DRIVER}\n\t./{DRIVER}\n\n",
        toolchain.command(),
        toolchain.flags().join(" "),
        objects(&|k| &k.source) + &extra,
        objects(&|k| &k.reference),
    );
    let own = kernels.iter().flat_map(|k| [&k.source, &k.reference]).map(|s| (s, toolchain));
    for (s, with) in own.chain(levels.sources(toolchain)) {
        // The flags of another level stand behind those of the kernels and win.
        let level = with.isa().filter(|i| Some(*i) != toolchain.isa());
        let flags = level.into_iter().flat_map(|i| i.level().flags());
        let level: String = flags.map(|flag| format!(" {flag}")).collect();
        let omp = flag(s.openmp);
        let flags: String = s.flags.iter().map(|f| format!(" '{f}'").replace('$', "$$")).collect();
        let _ = write!(
            m,
            "{0}.o: {0}.c\n\t$(CC) {1} -fPIC $(CFLAGS){level}{omp}{2} -c -o $@ $<\n",
            s.symbol,
            with.optimisation(s).join(" "),
            flags
        );
    }
    let _ = write!(m, "\nclean:\n\trm -f *.o {LIBRARY} {DRIVER}\n\n.PHONY: all check time clean\n");
    m
}
