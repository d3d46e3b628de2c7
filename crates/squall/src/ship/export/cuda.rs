//! The texts of an export that differ for GPUs: `SYMBOL.cu` (the kernel's CUDA C with a host
//! function behind it that launches it on a stream), the header for host code, and a Makefile for
//! nvcc. `files.rs` writes them beside the files that all exports have; the C text of the launcher
//! is `runtime/host/launch.h` and `launcher.h`.

use super::{DRIVER, LIBRARY};
use crate::predict::choose::Chosen;
use squall_core::{KernelSource, Workload};
use squall_measure::cpu::Toolchain;
use squall_measure::cuda::Gpu;
use squall_runtime::plan::{HostPlan, Kernel};
use squall_runtime::{host, tables};
use std::fmt::Write as _;

/// The name of a kernel's file.
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

/// The host's part of a kernel's file: tables of its launches, and the code that reads them.
pub fn launcher(s: &KernelSource, w: &Workload) -> String {
    let n = &s.symbol;
    let kernel = Kernel::of_source(s, None, &HostPlan::of_workload(w).buffers);
    let functions: Vec<String> =
        s.launches.iter().map(|l| format!("(const void *)&{}", l.entry)).collect();
    let most = kernel.launches.iter().map(|l| l.arguments.len()).max().unwrap_or(0).max(1);
    let mut text = format!(
        "\n/* ---- the launcher, made by Squall: for the host, left out by NVRTC ---- */\n#ifndef \
         __CUDACC_RTC__\n{}{}\nextern \"C\" {{\n{}}}\n\n{}static const void *const \
         {n}_functions[] = {{{}}};\n\n",
        host::LAUNCH,
        host::LAUNCHER,
        prototypes(s),
        tables::launches(&kernel, n),
        functions.join(", "),
    );
    let run = |phase: u32, memory: &str| {
        let (count, tables) = (functions.len(), format!("{n}_launches, {n}_functions"));
        format!(
            "  const rt_memory m = {{{memory}}};\n  return rt_launch_all<{count}, \
             {most}>({tables}, {phase}, m, stream);\n}}\n"
        )
    };
    let _ = writeln!(
        text,
        "extern \"C\" size_t {n}_workspace_bytes(void) {{ return {}; }}",
        s.workspace.0
    );
    if s.prepared.0 > 0 {
        let _ = write!(
            text,
            "extern \"C\" size_t {n}_prepared_bytes(void) {{ return {}; }}\nextern \"C\" int \
             {n}_prepare(const void *const *weights, void *prepared, cudaStream_t stream) {{\n{}",
            s.prepared.0,
            run(1, "nullptr, weights, nullptr, prepared, nullptr")
        );
    }
    let _ = write!(
        text,
        "extern \"C\" int {n}(const void *const *data, void *const *outputs, const void \
         *prepared, void *workspace, cudaStream_t stream) {{\n{}",
        run(0, "data, nullptr, outputs, prepared, workspace")
    );
    text + "#endif\n"
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
         driver.o: driver.c kernels.c\n\t$(CC) -O2 -fPIC -c -o $@ driver.c\n\n\
         {DRIVER}: driver.o $(KERNELS) $(REFERENCES)\n\t$(NVCC) $(ARCH) -o \
         $@ driver.o $(KERNELS) $(REFERENCES) -Xcompiler -fopenmp -lm -ldl\n\n\
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
    use squall_core::{Bytes, Language, Launch, LaunchArgument, LaunchPhase, Mapped, TensorMap};

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
            "k_maps0[] = {{'d', 0, 2, {192, 128}, {384}, {64, 128}, {1, 1}}, \
             {'s', 256, 1, {4096}, {0}, {64}, {1}}};",
            "{'d', 1, 0, 0, {0}}, {'o', 0, 0, 0, {0}}, {'p', 0, 0, 0, {0}}, {'s', 0, 0, 0, {0}}, \
             {'m', 0, 0, 0, {0}}, {'m', 1, 0, 0, {0}}};",
            "    {0, \"\", {4, 1, 1}, {128, 1, 1}, 1024, 7, 2, k_arguments0, k_maps0},",
            "k_functions[] = {(const void *)&k};",
            "return rt_launch_all<1, 7>(k_launches, k_functions, 0, m, stream);",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    /// CUDA's runtime, as far as launchers use it: functions run at once, on the CPU.
    const RUNTIME: &str = r#"
        #include <stddef.h>
        #include <stdio.h>
        #include <string.h>
        typedef int cudaError_t;
        typedef void *cudaStream_t;
        enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotSupported = 801 };
        enum { cudaMemcpyDeviceToDevice = 3, cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
        enum { cudaFuncAttributeNonPortableClusterSizeAllowed = 14 };
        struct dim3 {
          unsigned x, y, z;
          dim3(unsigned a, unsigned b, unsigned c) : x(a), y(b), z(c) {}
        };
        static cudaError_t cudaGetLastError() { return cudaSuccess; }
        static cudaError_t cudaFuncSetAttribute(const void *, int, int) { return cudaSuccess; }
        static cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int,
                                           cudaStream_t) {
          return memcpy(to, from, n), cudaSuccess;
        }
        static cudaError_t cudaLaunchKernel(const void *f, dim3 b, dim3 t, void **a,
                                            size_t shared, cudaStream_t) {
          printf("%u %u %zu:", b.x, t.x, shared);
          auto run = (void (*)(const float *, float *, int))f;
          run(*(const float **)a[0], *(float **)a[1], *(int *)a[2]);
          return cudaSuccess;
        }
    "#;

    #[test]
    fn a_launcher_compiled_alone_launches_with_its_arguments() {
        let workload = Workload::parse(
            "workload axpy\ndata X: f32[4]\ndata Y: f32[4]\nstage Z: f32[i: 4] = X[i] + \
             Y[i]\noutput Z",
        )
        .unwrap();
        let arguments = vec![
            LaunchArgument::Data(0),
            LaunchArgument::Restored { output: 0, data: 1 },
            LaunchArgument::Number(4i32.to_ne_bytes().into()),
        ];
        let source = KernelSource {
            language: Language::Cuda,
            source: "__global__ void f(const float *x, float *y, int n) {\n  for (int i = 0; i < \
                     n; i++) y[i] += x[i];\n}\n"
                .into(),
            symbol: "axpy".into(),
            prepared: Bytes(0),
            workspace: Bytes(0),
            openmp: false,
            full_optimisation: true,
            flags: Vec::new(),
            launches: vec![Launch {
                arguments: Some(arguments),
                ..Launch::linear(LaunchPhase::Call, "f", 3, 64, 1024)
            }],
        };
        let main = "int main() {\n  float x[] = {1, 2, 3, 4}, y[] = {10, 20, 30, 40}, z[4];\n  \
                    const void *data[] = {x, y};\n  void *outputs[] = {z};\n  int code = \
                    axpy(data, outputs, nullptr, nullptr, nullptr);\n  for (float v : z) \
                    printf(\" %g\", v);\n  return code;\n}\n";
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("cuda_runtime.h", RUNTIME);
        put("axpy.cu", &(source.source.clone() + &launcher(&source, &workload) + main));
        let built = std::process::Command::new("c++")
            .args(["-std=c++17", "-Wall", "-Werror", "-D__global__=", "-I.", "-x", "c++"])
            .args(["axpy.cu", "-o", "axpy", "-ldl"])
            .current_dir(folder.path())
            .output();
        let Ok(built) = built else {
            println!("skipped: there is no c++");
            return;
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let ran = std::process::Command::new(folder.path().join("axpy")).output().unwrap();
        assert!(ran.status.success());
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "3 64 1024: 11 22 33 44");
    }
}
