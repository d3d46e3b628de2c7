//! Tests that a new language is only a table (a dialect, `emit/dialect.rs`): two invented
//! languages, one of SIMD vectors and one of many threads, are defined here, and small nests are
//! printed in them and compared with the expected text.

use squall_compiler::emit::{
    C, CUDA, Dialect, Execution, Index, Numbers, Options, ThreadWords, VectorWords, print,
};
use squall_compiler::nest::{parse, verify};

/// An invented language of vectors; the printer knows nothing of it but this table.
const LANES: Dialect = Dialect {
    title: "-- $1\n",
    numbers: Numbers { f32: "real", infinity: "endless", ..C.numbers },
    functions: &[("exp", "exp<$f>($1)"), ("max", "most<$f>($1, $2)")],
    accumulate: "add($1, $2);",
    index: Index { counter: "whole", value: "let", least: "least($1, $2)", ..C.index },
    restrict: "* alone ",
    execution: Execution::Vectors(VectorWords {
        held: "kept($1);",
        step: "",
        export: "export ",
        vector: "lanes<$1>",
        load: "load($1, $2)",
        store: "stored($1, $2)",
        list: "$1[$2]",
        array: "$1 $2[$3];",
        prefetch: "soon($1);",
        parallel: "@together",
        collapse: "($1 loops)",
        threads: "[$1]",
    }),
    prelude: |used| format!("uses {:?} of {:?}\n", used.helpers, used.lanes),
    ..C
};

/// An invented language of many threads.
const CROWD: Dialect = Dialect {
    title: "-- $1\n",
    numbers: Numbers { f16: "short_real", ..CUDA.numbers },
    index: Index { value: "let", suffix: "n", ..CUDA.index },
    restrict: "* alone ",
    execution: Execution::Threads(ThreadWords {
        function: "kernel($2) $1$3 ($4) {",
        shared: "shared array by $1\n",
        block: "block",
        thread: "thread",
        barrier: "meet();",
        rolled: "@loop",
        unrolled: "@unrolled",
        unrolled_by: "@unrolled $1",
        floats: "real$1",
        make_floats: "reals$1($2)",
        cluster: "",
        tensor_map: "",
    }),
    prelude: |used| format!("uses {:?}\n", used.helpers),
    ..CUDA
};

const O: Options = Options { threads: 4, double: false, full_optimisation: false };

fn printed(nest: &str, d: &Dialect) -> String {
    let n = parse(nest).expect("a nest");
    verify(&n).expect("a nest that holds");
    let kernel = print(&n, "k", O, d);
    assert_eq!(kernel.language, d.language);
    kernel.source
}

#[test]
fn a_language_of_vectors_is_a_table() {
    let nest = "nest softer
data X: f32[9, 16]
output Y: f32[9, 16]
local acc: f32[8] lenient
{
  parallel io in 3 at i = 4*io cap 5 {
    for k in 4 {
      for jo in 2 {
        local acc
        vector j in 8 {
          acc[j] = -inf
        }
        vector v in 8 {
          acc[v] max= exp(X[i + k, 8*jo + v])
        }
        vector w in 8 {
          Y[i + k, 8*jo + w] = acc[w]
        }
        vector u in 8 {
          Y[i + k, 8*jo + u] += X[i + k, 8*jo + u] * 2
        }
      }
    }
  }
}
";
    let text = printed(nest, &LANES);
    let golden = "-- softer
uses {\"all\", \"exp\", \"max\", \"parallel\"} of {8}
export size_t k_workspace_bytes(void) { return 0; }
";
    assert!(text.starts_with(golden), "{text}");
    for line in [
        "export int k(const void *const *data, void *const *outputs, const void *prepared",
        "  const real * alone X_ = data[0];",
        "@together[4]\n  for (whole io_share = 0; io_share < 2; io_share++) {\n    for (whole io_ \
         = io_share; io_ < io_share + 1 + (io_share == 1); io_++) {",
        "      let i_ = least(4*io_, 5);",
        "lanes<8> acc__0;",
        "acc__0 = all_v8((-__builtin_inff()));",
        " = load(lanes<8>, ",
        "acc__0 = most<v8>(acc__0, exp<v8>(",
        "stored(lanes<8>, ",
        "        add(stored(lanes<8>, ",
    ] {
        assert!(text.contains(line), "`{line}` is missing in\n{text}");
    }
    assert!(!text.contains("float") && !text.contains("long"), "no word of C's table:\n{text}");
    assert!(text != printed(nest, &C));
}

#[test]
fn a_language_of_threads_is_a_table() {
    let nest = "nest turned
data X: f32[64, 32]
output Y: f16[32, 64]
shared S: f32[32, 32]
{
  block b in 2 {
    thread t in 32 {
      local S
      share r in 32 {
        share c in 32 {
          S[r, c] = X[32*b + r, c]
        }
      }
      barrier
      for i in 32 {
        Y[i, 32*b + t] = max(S[t, i], 0)
      }
      barrier
    }
  }
}
";
    let text = printed(nest, &CROWD);
    assert!(
        text.starts_with(
            "-- turned\nuses {\"copies\", \"formats\", \"max_nan\"}\nshared array by 16\n\
             kernel(32) k (const float * alone X_, short_real * alone Y_"
        ),
        "{text}"
    );
    for line in [
        "let b_ = (int)((unsigned)block);",
        "let t_ = (int)((unsigned)thread);",
        "  @unrolled 8\n",
        "  meet();\n  @loop\n",
        "max_nan(0.0f, shared[",
    ] {
        assert!(text.contains(line), "`{line}` is missing in\n{text}");
    }
    assert!(!text.contains("threadIdx") && !text.contains("pragma"), "{text}");
}
