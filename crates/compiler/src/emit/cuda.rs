//! The dialect of CUDA C++: the table that tells the printer (`printer.rs`) how to spell numbers,
//! functions, launches, barriers and shared memory for NVRTC and nvcc. `cuda_prelude.rs` has the
//! device functions that the spellings call.

use super::cuda_prelude;
use super::dialect::{Dialect, Execution, Index, Numbers, ThreadWords};
use squall_core::Language;

/// CUDA C++.
pub const CUDA: Dialect = Dialect {
    language: Language::Cuda,
    title: "// $1, made by Squall\n",
    numbers: Numbers {
        f16: "half_t",
        bf16: "bfloat_t",
        f32: "float",
        f64: "double",
        nan: "__int_as_float(0x7fffffff)",
        infinity: "__int_as_float(0x7f800000)",
        minus_infinity: "__int_as_float(0xff800000)",
    },
    functions: &[
        ("abs", "fabsf($1)"),
        ("exp", "expf($1)"),
        ("log", "logf($1)"),
        ("sqrt", "sqrtf($1)"),
        ("tanh", "tanhf($1)"),
        ("erf", "erff($1)"),
        ("sigmoid", "(1.0f / (1.0f + expf(-$1)))"),
        ("floor", "floorf($1)"),
        ("ceil", "ceilf($1)"),
        ("round", "rintf($1)"),
        ("sin", "sinf($1)"),
        ("cos", "cosf($1)"),
        ("sign", "sign($1)"),
        ("max", "fmaxf($1, $2)"),
        ("min", "fminf($1, $2)"),
        ("max_nan", "max_nan($1, $2)"),
        ("min_nan", "min_nan($1, $2)"),
        ("pow", "powf($1, $2)"),
    ],
    accumulate: "$1 += $2;",
    index: Index {
        counter: "int",
        value: "const int",
        unsigned: "unsigned",
        suffix: "u",
        least: "min($1, $2)",
    },
    restrict: "*__restrict__ ",
    execution: Execution::Threads(ThreadWords {
        function: "extern \"C\" __global__ void $1__launch_bounds__($2) $3($4) {",
        cluster: "__cluster_dims__($1, 1, 1) ",
        shared: "extern __shared__ __align__($1) float shared[];\n\n",
        tensor_map: "const __grid_constant__ tensor_map map$1",
        block: "blockIdx.x",
        thread: "threadIdx.x",
        barrier: "__syncthreads();",
        rolled: "#pragma unroll 1",
        unrolled: "#pragma unroll",
        unrolled_by: "#pragma unroll $1",
        floats: "float$1",
        make_floats: "make_float$1($2)",
    }),
    prelude: cuda_prelude::text,
};
