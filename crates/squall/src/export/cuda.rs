//! What an export for a GPU writes otherwise: `SYMBOL.cu` with a launcher behind the kernel, a
//! header for hosts, a driver that keeps data on the device, and a Makefile for nvcc.

use super::choose::Chosen;
use super::files::{driver_of, table};
use super::{DRIVER, LIBRARY, declarations};
use squall_core::{
    KernelSource, Launch, LaunchArgument, LaunchPhase, Mapped, TensorKind, TensorMap, Workload,
};
use squall_measure::cpu::Toolchain;
use squall_measure::cuda::Gpu;
use std::fmt::Write as _;

/// The file that a kernel stands in.
pub fn file(s: &KernelSource) -> String {
    format!("{}.{}", s.symbol, s.language.extension())
}

fn prototypes(s: &KernelSource) -> String {
    let n = &s.symbol;
    let mut text = format!(
        "int {n}(const void *const *data, void *const *outputs, const void *prepared, void \
         *workspace, cudaStream_t stream);\nsize_t {n}_workspace_bytes(void);\n"
    );
    if s.prepared.0 > 0 {
        let _ = write!(
            text,
            "size_t {n}_prepared_bytes(void);\nint {n}_prepare(const void *const *weights, void \
             *prepared, cudaStream_t stream);\n"
        );
    }
    text
}

/// Tensor maps by the driver, which programs of the runtime need not be linked with.
const ENCODE: &str = r#"#include <dlfcn.h>

/* A tensor of 16 bits an element whose boxes arrive in rows of 128 bytes, swizzled. */
static cudaError_t encode_map(tensor_map *to, unsigned rank, const void *at, const unsigned long long *extents, const unsigned long long *strides,
                              const unsigned *spanned, const unsigned *steps) {
  typedef int (*encoder)(void *, int, unsigned, const void *, const unsigned long long *, const unsigned long long *, const unsigned *,
                         const unsigned *, int, int, int, int);
  static const encoder encode = [] {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? (encoder)dlsym(driver, "cuTensorMapEncodeTiled") : nullptr;
  }();
  if (!encode) return cudaErrorNotSupported;
  return encode(to, 1, rank, at, extents, strides, spanned, steps, 0, 3, 2, 0) ? cudaErrorInvalidValue : cudaSuccess;
}

"#;

/// The host's part of a kernel's file.
pub fn launcher(s: &KernelSource, w: &Workload) -> String {
    let n = &s.symbol;
    let mut text = String::from(
        "\n/* ---- the launcher, made by Squall: for the host, left out by NVRTC ---- */\n#ifndef \
         __CUDACC_RTC__\n#include <cuda_runtime.h>\n#include <stddef.h>\n\nextern \"C\" {\n",
    );
    text += &prototypes(s);
    text += "}\n\n";
    if s.launches.iter().any(|l| !l.maps.is_empty()) {
        text += ENCODE;
    }
    let _ = writeln!(
        text,
        "extern \"C\" size_t {n}_workspace_bytes(void) {{ return {}; }}",
        s.workspace.0
    );
    if s.prepared.0 > 0 {
        let _ = writeln!(
            text,
            "extern \"C\" size_t {n}_prepared_bytes(void) {{ return {}; }}",
            s.prepared.0
        );
        let _ = writeln!(
            text,
            "extern \"C\" int {n}_prepare(const void *const *weights, void *prepared, \
             cudaStream_t stream) {{"
        );
        text += &body(s, w, LaunchPhase::Prepare);
    }
    let _ = writeln!(
        text,
        "extern \"C\" int {n}(const void *const *data, void *const *outputs, const void \
         *prepared, void *workspace, cudaStream_t stream) {{"
    );
    text += "  (void)data, (void)outputs, (void)prepared, (void)workspace;\n";
    text += &body(s, w, LaunchPhase::Call);
    text + "#endif\n"
}

fn body(s: &KernelSource, w: &Workload, phase: LaunchPhase) -> String {
    let mut text = String::from("  cudaError_t e = cudaSuccess;\n");
    for l in s.launches.iter().filter(|l| l.phase == phase) {
        text += &launch(l, w);
    }
    text + "  return (int)e;\n}\n"
}

/// A tensor map on its way to a kernel.
fn map(i: usize, m: &TensorMap) -> String {
    fn list<T: ToString>(all: &[T]) -> String {
        all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
    }
    let at = match m.memory {
        Mapped::Data(n) => format!("data[{n}]"),
        Mapped::Prepared(byte) => format!("(const char *)prepared + {byte}"),
        Mapped::Workspace(byte) => format!("(const char *)workspace + {byte}"),
    };
    // One dimension has no strides, and C++ no empty arrays.
    let strides = if m.strides.is_empty() { "0".into() } else { list(&m.strides) };
    format!(
        "    static const unsigned long long extents{i}[] = {{{}}}, strides{i}[] = {{{strides}}};\n\
         \x20   static const unsigned spanned{i}[] = {{{}}}, steps{i}[] = {{{}}};\n    tensor_map \
         map{i};\n\
         \x20   if (!e) e = encode_map(&map{i}, {}, {at}, extents{i}, strides{i}, spanned{i}, \
         steps{i});\n",
        list(&m.extents),
        list(&m.spanned),
        list(&m.steps),
        m.extents.len(),
    )
}

fn launch(l: &Launch, w: &Workload) -> String {
    let count = |kind: TensorKind| w.inputs.iter().filter(|i| i.kind == kind).count();
    let mut text = format!("  {{\n    const void *const f = (const void *)&{};\n", l.entry);
    let mut names: Vec<String> = Vec::new();
    let pointer = |text: &mut String, names: &mut Vec<String>, from: String| {
        let name = format!("a{}", names.len());
        let _ = writeln!(text, "    const void *{name} = {from};");
        names.push(format!("(void *)&{name}"));
    };
    match &l.arguments {
        None if l.phase == LaunchPhase::Prepare => {
            (0..count(TensorKind::Weight))
                .for_each(|i| pointer(&mut text, &mut names, format!("weights[{i}]")));
            pointer(&mut text, &mut names, "prepared".into());
        }
        None => {
            (0..count(TensorKind::Data))
                .for_each(|i| pointer(&mut text, &mut names, format!("data[{i}]")));
            ["outputs[0]", "prepared", "workspace"]
                .into_iter()
                .for_each(|p| pointer(&mut text, &mut names, p.into()));
        }
        Some(arguments) => {
            for a in arguments {
                match a {
                    LaunchArgument::Data(n) => pointer(&mut text, &mut names, format!("data[{n}]")),
                    LaunchArgument::Output(n) => {
                        pointer(&mut text, &mut names, format!("outputs[{n}]"))
                    }
                    LaunchArgument::Restored { output, data } => {
                        let o = &w.outputs()[*output as usize];
                        let bytes = o.elements() * o.dtype.bytes();
                        let _ = writeln!(
                            text,
                            "    if (!e) e = cudaMemcpyAsync(outputs[{output}], data[{data}], \
                             {bytes}, cudaMemcpyDeviceToDevice, stream);"
                        );
                        pointer(&mut text, &mut names, format!("outputs[{output}]"));
                    }
                    LaunchArgument::Number(bytes) => {
                        let name = format!("a{}", names.len());
                        let list: Vec<String> = bytes.iter().map(u8::to_string).collect();
                        let _ = writeln!(
                            text,
                            "    alignas(8) static const unsigned char {name}[] = {{{}}};",
                            list.join(", ")
                        );
                        names.push(format!("(void *){name}"));
                    }
                }
            }
        }
    }
    for (i, m) in l.maps.iter().enumerate() {
        text += &map(i, m);
        names.push(format!("(void *)&map{i}"));
    }
    let _ = writeln!(text, "    void *arguments[] = {{{}}};", names.join(", "));
    // More than 48 KiB have to be asked for, and functions have some beside what a launch gives
    // them. Clusters of more than 8 blocks too: devices without them refuse.
    if l.shared > 0 {
        let _ = writeln!(
            text,
            "    if (!e) e = cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, \
             {});",
            l.shared
        );
    }
    text += "    if (cudaFuncSetAttribute(f, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) \
             != cudaSuccess) cudaGetLastError();\n";
    let ([a, b, c], [x, y, z]) = (l.blocks, l.threads);
    let _ = writeln!(
        text,
        "    if (!e) e = cudaLaunchKernel(f, dim3({a}, {b}, {c}), dim3({x}, {y}, {z}), arguments, \
         {}, stream);\n  }}",
        l.shared
    );
    text
}

/// The header, for hosts in C and C++.
pub fn header(kernels: &[Chosen]) -> String {
    let mut h = format!(
        "/* CUDA kernels tuned by Squall. `make` builds {LIBRARY} and `{DRIVER}`, which checks \
         and times them.\n\
         \x20*\n\
         \x20* Every kernel has this interface; all pointers are the device's, 256-byte aligned \
         as cudaMalloc gives them,\n\
         \x20* tensors are dense and row-major, data and weights come in the order of \
         manifest.json, each kind counted by\n\
         \x20* itself. Calls return once launched, with a cudaError_t: 0 means success.\n\
         \x20*\n\
         \x20*   SYMBOL(data, outputs, prepared, workspace, stream)   one call\n\
         \x20*   SYMBOL_workspace_bytes()                     scratch memory that a call needs\n\
         \x20*   SYMBOL_prepare(weights, prepared, stream)    packs constant weights once; only \
         where declared,\n\
         \x20*   SYMBOL_prepared_bytes()                      else `prepared` is not used\n\
         \x20*/\n#ifndef SQUALL_KERNELS_H\n#define SQUALL_KERNELS_H\n\n#include \
         <cuda_runtime_api.h>\n#include <stddef.h>\n\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\n"
    );
    for k in kernels {
        let name = k.task.name.replace("*/", "* /").replace("/*", "/ *").replace(['\n', '\r'], " ");
        let _ = write!(h, "\n/* {name} */\n{}", prototypes(&k.source));
    }
    h + "\n#ifdef __cplusplus\n}\n#endif\n#endif\n"
}

/// The program that checks and times.
pub fn driver(kernels: &[Chosen]) -> String {
    let head = "/* Checks every kernel against its reference, and times it on the GPU. Made by \
                Squall. */\n#include \"squall_kernels.h\"\n\
         #include <math.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
         #include <string.h>\n\n";
    let of = |k: &Chosen| {
        if k.reference.language.is_launched() {
            prototypes(&k.reference)
        } else {
            declarations(&k.reference)
        }
    };
    let references = format!("extern \"C\" {{\n{}}}\n", kernels.iter().map(of).collect::<String>());
    let form = "/* On the device, or in C on the host. */\nstruct entry {\n  int (*run)(const \
                void *const *, void *const *, const void *, void *, cudaStream_t);\n  \
          int (*prepare)(const void *const *, void *, cudaStream_t);\n  int (*c_run)(const void \
          *const *, void *const *, const void *, void *);\n  \
          int (*c_prepare)(const void *const *, void *);\n  size_t prepared_bytes, \
          workspace_bytes;\n};\n";
    let entry = |s: &KernelSource| {
        let prepare =
            if s.prepared.0 > 0 { format!("{}_prepare", s.symbol) } else { "NULL".into() };
        let (p, w) = (s.prepared.0, s.workspace.0);
        if !s.language.is_launched() {
            format!("{{NULL, NULL, {}, {prepare}, {p}, {w}}}", s.symbol)
        } else {
            format!("{{{}, {prepare}, NULL, NULL, {p}, {w}}}", s.symbol)
        }
    };
    driver_of(head, &references, form, &table(kernels, &entry), include_str!("driver_cuda.cu"))
}

/// How all of it is built.
pub fn makefile(kernels: &[Chosen], gpu: &Gpu, toolchain: &Toolchain) -> String {
    let objects = |f: &dyn Fn(&Chosen) -> &KernelSource| {
        kernels.iter().map(|k| format!("{}.o", f(k).symbol)).collect::<Vec<_>>().join(" ")
    };
    // The short form, `-arch=sm_90a`, also compiles for sm_90, which has not all instructions of
    // sm_90a.
    let number = gpu.architecture().replace("sm_", "");
    let architecture = format!("-gencode=arch=compute_{number},code=sm_{number}");
    let mut m = format!(
        "# Builds {LIBRARY} and the driver, with nvcc of the CUDA toolkit.\n\
         # `make check` runs every kernel against its reference, `make time` also times them.\n\
         NVCC ?= nvcc\nARCH = {}\nNVFLAGS = -O3 -std=c++17 $(ARCH) -Xcompiler -fPIC \
         -diag-suppress 177\nCC = {}\nCFLAGS = {}\nKERNELS = {}\nREFERENCES = {}\n\n\
         all: {LIBRARY} {DRIVER}\n\n\
         {LIBRARY}: $(KERNELS)\n\t$(NVCC) $(ARCH) -shared -o $@ $(KERNELS) -ldl\n\n\
         {DRIVER}: driver.cu squall_kernels.h $(KERNELS) $(REFERENCES)\n\t$(NVCC) $(NVFLAGS) -o \
         $@ driver.cu $(KERNELS) $(REFERENCES) -Xcompiler -fopenmp -lm -ldl\n\n\
         check: {DRIVER}\n\t./{DRIVER} --check\n\ntime: {DRIVER}\n\t./{DRIVER}\n\n",
        architecture,
        toolchain.command(),
        toolchain.flags().join(" "),
        objects(&|k| &k.source),
        objects(&|k| &k.reference),
    );
    for s in kernels.iter().flat_map(|k| [&k.source, &k.reference]) {
        let own: String = s.flags.iter().map(|f| format!(" '{f}'").replace('$', "$$")).collect();
        let symbol = &s.symbol;
        let _ = if !s.language.is_launched() {
            let omp = if s.openmp { " -fopenmp" } else { "" };
            write!(
                m,
                "{symbol}.o: {symbol}.c\n\t$(CC) {} -fPIC $(CFLAGS){omp}{own} -c -o $@ $<\n",
                toolchain.optimisation(s).join(" ")
            )
        } else {
            write!(m, "{symbol}.o: {symbol}.cu\n\t$(NVCC) $(NVFLAGS){own} -c -o $@ $<\n")
        };
    }
    let _ = write!(m, "\nclean:\n\trm -f *.o {LIBRARY} {DRIVER}\n\n.PHONY: all check time clean\n");
    m
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::Bytes;

    #[test]
    fn a_launcher_encodes_the_tensor_maps_of_its_kernel() {
        let workload = Workload::parse(
            "workload m\ndata A: bf16[128, 192]\ndata B: bf16[192, 128]\nstage Y: f32[m: 128, n: \
             128] = sum(k: 192) A[m, k] * B[k, n]\noutput Y",
        )
        .unwrap();
        let map = |memory, extents: &[u64], rows| TensorMap {
            memory,
            extents: extents.into(),
            strides: extents.iter().take(extents.len() - 1).map(|x| 2 * x).collect(),
            spanned: [64, rows][..extents.len()].into(),
            steps: vec![1; extents.len()],
        };
        let maps =
            vec![map(Mapped::Data(0), &[192, 128], 128), map(Mapped::Workspace(256), &[4096], 64)];
        let source = KernelSource {
            language: squall_core::Language::Cuda,
            source: String::new(),
            symbol: "k".into(),
            prepared: Bytes(0),
            workspace: Bytes(8192),
            openmp: false,
            full_optimisation: true,
            flags: Vec::new(),
            launches: vec![Launch { maps, ..Launch::linear(LaunchPhase::Call, "k", 4, 128, 1024) }],
        };
        let text = launcher(&source, &workload);
        for part in [
            "static const unsigned long long extents0[] = {192, 128}, strides0[] = {384};",
            "static const unsigned spanned0[] = {64, 128}, steps0[] = {1, 1};",
            "if (!e) e = encode_map(&map0, 2, data[0], extents0, strides0, spanned0, steps0);",
            "extents1[] = {4096}, strides1[] = {0};",
            "encode_map(&map1, 1, (const char *)workspace + 256, ",
            "(void *)&a4, (void *)&map0, (void *)&map1};",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
