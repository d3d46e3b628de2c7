//! The dialect of C: the table that tells the printer (`printer.rs`) how to spell numbers,
//! functions, loops and vectors in C with the vector extensions of GCC and Clang. It is what
//! kernels for CPUs are printed in; `c_prelude.rs` gives the helper functions that the spellings
//! call.

use super::c_prelude;
use super::dialect::{Dialect, Execution, Index, Numbers, VectorWords};
use squall_core::Language;

/// C with the vector types of GCC and Clang.
pub const C: Dialect = Dialect {
    language: Language::C,
    title: "/* $1, made by Squall */\n",
    numbers: Numbers {
        f16: "unsigned short",
        bf16: "unsigned short",
        f32: "float",
        f64: "double",
        nan: "__builtin_nanf(\"\")",
        infinity: "(__builtin_inff())",
        minus_infinity: "(-__builtin_inff())",
    },
    functions: &[
        ("abs", "abs_$f($1)"),
        ("exp", "exp_$f($1)"),
        ("log", "log_$f($1)"),
        ("sqrt", "sqrt_$f($1)"),
        ("tanh", "tanh_$f($1)"),
        ("erf", "erf_$f($1)"),
        ("sigmoid", "sigmoid_$f($1)"),
        ("floor", "floor_$f($1)"),
        ("ceil", "ceil_$f($1)"),
        ("round", "round_$f($1)"),
        ("sin", "sin_$f($1)"),
        ("cos", "cos_$f($1)"),
        ("sign", "sign_$f($1)"),
        ("max", "max_$f($1, $2)"),
        ("min", "min_$f($1, $2)"),
        ("max_nan", "max_nan_$f($1, $2)"),
        ("min_nan", "min_nan_$f($1, $2)"),
        ("pow", "pow_$f($1, $2)"),
        ("fma", "fma_$f($1, $2, $3)"),
        ("fms", "fms_$f($1, $2, $3)"),
        ("fnma", "fnma_$f($1, $2, $3)"),
    ],
    accumulate: "$1 += $2;",
    index: Index {
        counter: "long",
        value: "long",
        unsigned: "unsigned long",
        suffix: "",
        least: "$1 < $2 ? $1 : $2",
    },
    restrict: "*restrict ",
    execution: Execution::Vectors(VectorWords {
        export: "",
        vector: "v$1",
        load: "*(const $1 *)&$2",
        store: "*($1 *)&$2",
        list: "($1){$2}",
        array: "$1 $2[$3] __attribute__((aligned(64)));",
        prefetch: "__builtin_prefetch(&$1);",
        held: "IN_REGISTER($1);",
        step: "__asm__ volatile(\"\" ::: \"memory\");",
        parallel: "#pragma omp parallel for schedule(static)",
        collapse: " collapse($1)",
        threads: " num_threads($1)",
    }),
    prelude: |used| c_prelude::text(used) + "\n",
};
