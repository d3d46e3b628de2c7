//! What an export writes: `SYMBOL.c` and `SYMBOL_reference.c` for each kernel, the header, the
//! manifest (a wire format), the driver, a Makefile, and the kernels in the form that a referee
//! of libraries takes (`so.json`).

use super::choose::{Chosen, Origin};
use super::{DRIVER, LIBRARY, cuda};
use crate::error::Error;
use crate::target_context::TargetContext;
use serde_json::{Value, json};
use squall_core::{DType, KernelSource, Stage, TensorKind, Workload};
use squall_measure::cpu::{ELEMENTS, Toolchain, letter};
use std::fmt::Write as _;
use std::path::Path;

/// Writes all files; returns the manifest.
pub fn write(folder: &Path, kernels: &[Chosen], aimed: &TargetContext) -> Result<Value, Error> {
    std::fs::create_dir_all(folder)
        .map_err(|source| Error::Write { path: folder.into(), source })?;
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|source| Error::Write { path, source })
    };
    let gpu = aimed.gpus.first();
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
    match gpu {
        Some(gpu) => {
            put("squall_kernels.h", &cuda::header(kernels))?;
            put("driver.cu", &cuda::driver(kernels))?;
            put("Makefile", &cuda::makefile(kernels, gpu, &aimed.toolchain))?;
        }
        None => {
            put("squall_kernels.h", &header(kernels))?;
            put("driver.c", &driver(kernels))?;
            put("Makefile", &makefile(kernels, &aimed.toolchain))?;
        }
    }
    let manifest = manifest(kernels, &aimed.device_name(), &aimed.place.toolchain);
    put("manifest.json", &format!("{manifest:#}\n"))?;
    if gpu.is_none() {
        put("so.json", &format!("{:#}\n", referee(folder, kernels)))?;
    }
    Ok(manifest)
}

/// What stands above a kernel's code. Nothing in it can end the comment early.
pub(crate) fn comment(k: &Chosen) -> String {
    let mut text = format!("{} (task {})\n", k.task.name, k.task.id);
    match &k.origin {
        Origin::Plain => {
            text += &format!(
                "{}: nothing tuned is known of this task\n",
                crate::report::baseline(&k.task.workload)
            )
        }
        Origin::Tuned(r) | Origin::Elsewhere(r) => {
            let _ = writeln!(text, "{}: {}", r.tunable, r.configuration);
            if let Some(t) = r.outcome.time() {
                let rate = t.giga_rate(k.task.workload.flop() as f64);
                let _ = writeln!(text, "{t} ({rate:.2} GFLOP/s) on {}\n{}", r.device, r.toolchain);
            }
        }
    }
    let _ = write!(text, "\n{}", k.task.workload);
    format!(
        "/* {} */\n",
        text.replace("*/", "* /").replace("/*", "/ *").trim_end().replace('\n', "\n * ")
    )
}

/// The prototypes of a kernel.
pub(crate) fn declarations(k: &KernelSource) -> String {
    let s = &k.symbol;
    let mut text = format!(
        "int {s}(const void *const *data, void *const *outputs, const void *prepared, void \
         *workspace);\nsize_t {s}_workspace_bytes(void);\n"
    );
    if k.prepared.0 > 0 {
        let _ = write!(
            text,
            "size_t {s}_prepared_bytes(void);\nint {s}_prepare(const void *const *weights, void \
             *prepared);\n"
        );
    }
    text
}

fn header(kernels: &[Chosen]) -> String {
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
    h + "\n#ifdef __cplusplus\n}\n#endif\n#endif\n"
}

/// The manifest. Scripts depend on these keys: they are never renamed.
fn manifest(kernels: &[Chosen], device: &str, tools: &str) -> Value {
    let kernels: Vec<Value> = kernels
        .iter()
        .map(|k| {
            let w = &k.task.workload;
            let inputs = |kind: TensorKind| -> Vec<Value> {
                let of_kind = w.inputs.iter().filter(|i| i.kind == kind);
                of_kind.map(|i| json!({"name": i.name, "dtype": i.dtype.name(), "shape": i.shape})).collect()
            };
            let record = k.origin.record();
            json!({
                "name": k.task.name,
                "task": k.task.id.to_string(),
                "symbol": k.source.symbol,
                "source": cuda::file(&k.source),
                "kind": w.kind,
                "count": k.task.count,
                "nodes": k.task.nodes,
                "data": inputs(TensorKind::Data),
                "weights": inputs(TensorKind::Weight),
                "outputs": w.outputs().iter().map(|o| json!({"name": o.name, "dtype": o.dtype.name(), "shape": o.shape()})).collect::<Vec<_>>(),
                "prepared_bytes": k.source.prepared.0,
                "workspace_bytes": k.source.workspace.0,
                "openmp": k.source.openmp,
                "tuned": record.is_some_and(|r| !r.is_untuned()),
                "tunable": record.map(|r| r.tunable.as_str()),
                "configuration": record.map(|r| r.configuration.as_str()),
                "best_ns": record.and_then(|r| r.outcome.time()).map(|t| t.0),
                "measured_on": record.map(|r| r.device.as_str()),
                "launches": k.source.launches,
            })
        })
        .collect();
    json!({"library": LIBRARY, "driver": DRIVER, "device": device, "toolchain": tools, "kernels": kernels})
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

/// The letter of a tensor's type as kernels see it: those made here compute in f32 whatever their
/// tensors are said to be.
fn type_of(w: &Workload, d: DType) -> char {
    if w.foreign.is_some() || d.is_half() { letter(d).unwrap_or('f') } else { 'f' }
}

fn driver(kernels: &[Chosen]) -> String {
    let head = "/* Checks every kernel against its reference (plain loops in double precision \
                where it was made by rule), and times it.\n\
         \x20* Made by Squall. */\n\
         #define _POSIX_C_SOURCE 200809L\n#include \"squall_kernels.h\"\n\
         #include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
         #include <string.h>\n#include <time.h>\n\n";
    let references: String = kernels.iter().map(|k| declarations(&k.reference)).collect();
    let form = "struct entry {\n  int (*run)(const void *const *, void *const *, const void *, \
                void *);\n  \
          int (*prepare)(const void *const *, void *);\n  size_t prepared_bytes, \
          workspace_bytes;\n};\n";
    let entry = |s: &KernelSource| {
        let prepare =
            if s.prepared.0 > 0 { format!("{}_prepare", s.symbol) } else { "NULL".into() };
        format!("{{{}, {prepare}, {}, {}}}", s.symbol, s.prepared.0, s.workspace.0)
    };
    driver_of(head, &references, form, &table(kernels, &entry), include_str!("driver.c"))
}

/// A driver's text: what it includes, the references' prototypes, the form of an entry, the table
/// of kernels, and how one is checked.
pub(super) fn driver_of(
    head: &str,
    references: &str,
    entry: &str,
    table: &str,
    check: &str,
) -> String {
    let random = "static uint64_t random_bits(uint64_t *state) { /* splitmix64 */\n  uint64_t z = \
                  *state += 0x9E3779B97F4A7C15u;\n  \
          z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;\n  z = (z ^ (z >> 27)) * \
          0x94D049BB133111EBu;\n  return z ^ (z >> 31);\n}\n";
    let forms = "struct input {\n  int weight;\n  tensor is;\n};\n\nstruct kernel {\n  const char \
                 *name, *symbol;\n  \
          struct entry ours, plain;\n  int inputs;\n  struct input input[64];\n  int outputs;\n  \
          tensor output[64];\n  double flop, tolerance;\n};\n";
    let common = include_str!("driver_common.c");
    format!(
        "{head}{references}\n{random}\n{ELEMENTS}\n{entry}\n{forms}\nstatic const struct kernel \
         kernels[] = {{\n{table}}};\n\n{common}{check}"
    )
}

/// The rows of the driver's table of kernels.
pub(super) fn table(kernels: &[Chosen], entry: &dyn Fn(&KernelSource) -> String) -> String {
    let mut c = String::new();
    for k in kernels {
        let w = &k.task.workload;
        let range = |n: usize| w.foreign.as_ref().and_then(|f| f.ranges.get(n).copied().flatten());
        let input = |(n, i): (usize, &squall_core::workload::Input)| {
            let (bounded, low, high) = range(n).map_or((0, 0.0, 0.0), |r| (1, r.0, r.1));
            let (weight, elements) =
                (i32::from(i.kind == TensorKind::Weight), i.shape.iter().product::<i64>());
            format!(
                "{{{weight}, {{'{}', {elements}, {bounded}, {low:?}, {high:?}, NULL}}}}",
                type_of(w, i.dtype)
            )
        };
        let inputs: Vec<String> = w.inputs.iter().enumerate().map(input).collect();
        let output =
            |o: &Stage| format!("{{'{}', {}, 0, 0, 0, NULL}}", type_of(w, o.dtype), o.elements());
        let outputs: Vec<String> = w.outputs().iter().map(output).collect();
        let tolerance = w.tolerance();
        let _ = writeln!(
            c,
            "    {{{}, \"{}\", {}, {}, {}, {{{}}}, {}, {{{}}}, {:e}, {tolerance:e}}},",
            literal(&k.task.name),
            k.source.symbol,
            entry(&k.source),
            entry(&k.reference),
            inputs.len(),
            if inputs.is_empty() { "{0}".into() } else { inputs.join(", ") },
            outputs.len(),
            outputs.join(", "),
            w.flop() as f64
        );
    }
    c
}

/// A C string literal.
pub(crate) fn literal(text: &str) -> String {
    let mut s = String::from("\"");
    for b in text.bytes() {
        match b {
            b'"' | b'\\' => {
                s.push('\\');
                s.push(b as char);
            }
            // Three octal digits end the escape; `?` could begin a trigraph.
            b' '..=b'~' if b != b'?' => s.push(b as char),
            _ => {
                let _ = write!(s, "\\{b:03o}");
            }
        }
    }
    s + "\""
}

fn makefile(kernels: &[Chosen], toolchain: &Toolchain) -> String {
    let flag = |yes: bool| if yes { " -fopenmp" } else { "" };
    let openmp = flag(kernels.iter().any(|k| k.source.openmp));
    // References of large tasks use all cores.
    let all = flag(kernels.iter().any(|k| k.source.openmp || k.reference.openmp));
    let objects = |f: &dyn Fn(&Chosen) -> &KernelSource| {
        kernels.iter().map(|k| format!("{}.o", f(k).symbol)).collect::<Vec<_>>().join(" ")
    };
    let mut m = format!(
        "# Builds {LIBRARY} and the driver with the flags that the kernels were measured with.\n\
         # `make check` runs every kernel against its reference, `make time` also times them.\n\
         CC = {}\nCFLAGS = {}\nKERNELS = {}\nREFERENCES = {}\n\n\
         all: {LIBRARY} {DRIVER}\n\n\
         {LIBRARY}: $(KERNELS)\n\t$(CC) -shared{openmp} -o $@ $(KERNELS) -lm\n\n\
         {DRIVER}: driver.c squall_kernels.h $(KERNELS) $(REFERENCES)\n\t$(CC) -O2{all} -o $@ \
         driver.c $(KERNELS) $(REFERENCES) -lm\n\n\
         check: {DRIVER}\n\t./{DRIVER} --check\n\ntime: {DRIVER}\n\t./{DRIVER}\n\n",
        toolchain.command(),
        toolchain.flags().join(" "),
        objects(&|k| &k.source),
        objects(&|k| &k.reference),
    );
    for s in kernels.iter().flat_map(|k| [&k.source, &k.reference]) {
        let omp = flag(s.openmp);
        let own: String = s.flags.iter().map(|f| format!(" '{f}'").replace('$', "$$")).collect();
        let _ = write!(
            m,
            "{0}.o: {0}.c\n\t$(CC) {1} -fPIC $(CFLAGS){omp}{2} -c -o $@ $<\n",
            s.symbol,
            toolchain.optimisation(s).join(" "),
            own
        );
    }
    let _ = write!(m, "\nclean:\n\trm -f *.o {LIBRARY} {DRIVER}\n\n.PHONY: all check time clean\n");
    m
}
