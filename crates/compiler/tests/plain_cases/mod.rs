//! Helpers of `plain.rs`, `plain_threads.rs` and `nbits.rs`: a [`Case`] is a call of a plain kernel
//! (C for one ONNX operator) with operands and expected results. Cases are printed into one C
//! program, compiled by the compilers at hand with warnings as errors, run, and their printed
//! results compared.

use squall_compiler::plain;
use squall_core::DType;
use squall_core::graph::{Constant, OperatorCall};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A call with the elements of its operands, and the expected elements of its results, one result
/// behind the other.
pub struct Case {
    pub call: OperatorCall,
    pub operands: Vec<Constant>,
    pub want: Vec<f64>,
}

pub fn values(c: &Constant) -> Vec<f64> {
    match c {
        Constant::F32 { data, .. } => data.iter().map(|v| f64::from(*v)).collect(),
        Constant::F64 { data, .. } => data.clone(),
        Constant::I64 { data, .. } => data.iter().map(|v| *v as f64).collect(),
        Constant::Bool { data, .. } => data.iter().map(|v| f64::from(u8::from(*v))).collect(),
    }
}

fn c_name(d: DType) -> &'static str {
    match d {
        DType::F32 => "float",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::Bool => "unsigned char",
        other => panic!("{other:?}"),
    }
}

/// The C text that checks and prints a call's results.
struct Results {
    names: Vec<String>,
    /// Text that marks the memory behind the results, tests whether a mark was overwritten, and
    /// prints the results as one line.
    mark: String,
    overrun: String,
    print: String,
}

fn results(main: &mut String, c: &Case, k: usize) -> Results {
    let (mut names, mut mark, mut print) = (Vec::new(), String::new(), String::new());
    let mut overrun = String::from("0");
    for (i, out) in c.call.outputs.iter().flatten().enumerate() {
        let (ty, n) = (c_name(out.dtype), out.shape.iter().product::<i64>());
        let name = format!("out_{k}_{i}");
        let _ = writeln!(main, "static {ty} {name}[{}];", n + 1);
        let _ = writeln!(mark, "    {name}[{n}] = 77;");
        let _ = write!(overrun, " || {name}[{n}] != 77");
        let _ = writeln!(
            print,
            "    for (long i = 0; i < {n}; i++) printf(\"%.9g \", (double){name}[i]);"
        );
        names.push(name);
    }
    print += "    printf(\"\\n\");\n";
    Results { names, mark, overrun, print }
}

/// A number in C.
fn literal(x: f64) -> String {
    match x {
        x if x.is_nan() => "NAN".into(),
        f64::INFINITY => "INFINITY".into(),
        f64::NEG_INFINITY => "-INFINITY".into(),
        x => format!("{x:?}"),
    }
}

/// The flags that networks compile plain operators with (`Toolchain::plain_flags` and what stands
/// before those).
const NETWORKS: [&str; 5] =
    ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"];

/// Compiles and runs one program of all cases; returns the results that it printed, case by case.
/// Where `is_fixed`, all operands are the same in all calls: the kernel packs some of them ahead of
/// two calls, and the results are those of the second call.
fn run(compiler: &str, level: &[&str], cases: &[&Case], is_fixed: bool) -> Vec<Vec<f64>> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (mut main, mut files) =
        (String::from("#include <math.h>\n#include <stdio.h>\n"), vec![path("main.c")]);
    let mut body = String::new();
    for (k, c) in cases.iter().enumerate() {
        let fixed = vec![is_fixed; c.call.inputs.len()];
        let made = plain::source_over(&c.call, &fixed, &format!("plain_{k}"));
        let made = made.unwrap_or_else(|e| panic!("{e}"));
        let file = path(&format!("{k}.c"));
        std::fs::write(&file, &made.text).unwrap();
        files.push(file);
        let _ = writeln!(main, "int plain_{k}(const void *const *, void *const *, void *);");
        let mut names = Vec::new();
        let mut operands = c.operands.iter();
        for (i, o) in c.call.inputs.iter().enumerate() {
            let Some(o) = o else {
                names.push("0".into());
                continue;
            };
            let ty = c_name(o.dtype);
            let v = operands.next().unwrap();
            let list: Vec<String> = values(v).iter().map(|v| literal(*v) + ", ").collect();
            let _ = writeln!(main, "static {ty} in_{k}_{i}[] = {{{}0}};", list.join(""));
            names.push(format!("in_{k}_{i}"));
        }
        let prepare = preparation(&mut main, &made, k, &mut names);
        let results = results(&mut main, c, k);
        let _ = writeln!(main, "static double scratch_{k}[{}];", made.scratch_bytes / 8 + 8);
        let _ = writeln!(
            body,
            "  {{ const void *in[] = {{{}}}; void *out[] = {{{}, 0}};\n{}{prepare}    \
             if (plain_{k}(in, out, scratch_{k}) || {}) return {};\n{}  }}",
            names.join(", "),
            results.names.join(", "),
            results.mark,
            results.overrun,
            k % 100 + 1,
            results.print
        );
    }
    let _ = writeln!(main, "int main(void) {{\n{body}  return 0;\n}}");
    std::fs::write(&files[0], main).unwrap();
    let program = path("program");
    let mut command = std::process::Command::new(compiler);
    // By -O3 GCC says of arrays that a loop fills whole that they may not be.
    command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-maybe-uninitialized"]);
    command.args(NETWORKS);
    command.args(level).arg("-o").arg(&program);
    let built = command.args(&files).arg("-lm").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = std::process::Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{:?}", ran.status);
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines().map(|l| l.split_whitespace().map(|w| w.parse().unwrap()).collect()).collect()
}

/// The text that packs operands and makes a first call, without the operands that were packed. The
/// memory behind the packed elements must stay as it was.
fn preparation(
    main: &mut String,
    made: &plain::PlainSource,
    k: usize,
    names: &mut Vec<String>,
) -> String {
    if made.prepared_bytes == 0 {
        return String::new();
    }
    let doubles = made.prepared_bytes / 8;
    let _ = writeln!(main, "int plain_{k}_prepare(const void *const *, void *);");
    let _ =
        writeln!(main, "static double packed_{k}[{}] __attribute__((aligned(64)));", doubles + 1);
    names.push(format!("packed_{k}"));
    let absent: String = made.weights.iter().map(|i| format!("    in[{i}] = 0;\n")).collect();
    format!(
        "    packed_{k}[{doubles}] = 77;\n    if (plain_{k}_prepare(in, packed_{k})) return 101;\n\
         {absent}    if (plain_{k}(in, out, scratch_{k}) || packed_{k}[{doubles}] != 77) return \
         102;\n"
    )
}

/// A stand-in for CUDA's headers, for threads that run one after another.
const THREADS: &str = "#include <math.h>
#include <string.h>
struct place { unsigned x, y, z; };
struct float4 { float x, y, z, w; };
extern place blockIdx, threadIdx, blockDim, gridDim;
#define __global__
#define __device__
static inline float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
static inline int atomicMax(int *p, int v) { int old = *p; *p = old < v ? v : old; return old; }
static inline int atomicExch(int *p, int v) { int old = *p; *p = v; return old; }
static inline float __uint_as_float(unsigned i) { float x; memcpy(&x, &i, 4); return x; }
static inline unsigned __float_as_uint(float x) { unsigned i; memcpy(&i, &x, 4); return i; }
unsigned __shfl_sync(unsigned, unsigned mine, int from);
static inline void __syncwarp() { __shfl_sync(0, 0, 0); }
static inline unsigned __shfl_xor_sync(unsigned all, unsigned mine, int mask) {
  return __shfl_sync(all, mine, (int)(threadIdx.x & 31) ^ mask);
}
";

/// Threads of a warp, which take turns where they exchange values: each writes its own, lets all
/// others do so, and reads. The values of two exchanges in turn lie in different places, since a
/// thread may write the next one before another has read this one.
const WARP: &str = "#include <functional>
#include <ucontext.h>
static std::function<void()> work;
static ucontext_t lanes[32], scheduler;
static char stacks[32][1 << 16];
static unsigned values[2][32], exchanges[32];
static bool ended[32];
static int lane;
unsigned __shfl_sync(unsigned, unsigned mine, int from) {
  const int own = lane;
  unsigned *all = values[exchanges[own]++ & 1];
  all[own] = mine;
  swapcontext(&lanes[own], &scheduler);
  return all[from];
}
static void begin_lane() { work(); ended[lane] = true; }
static void run_warp(unsigned first, bool reverse) {
  for (int l = 0; l < 32; l++) {
    getcontext(&lanes[l]);
    lanes[l].uc_stack.ss_sp = stacks[l], lanes[l].uc_stack.ss_size = sizeof stacks[l];
    lanes[l].uc_link = &scheduler;
    makecontext(&lanes[l], begin_lane, 0);
    ended[l] = false, exchanges[l] = 0;
  }
  for (int left = 32; left > 0;)
    for (int n = 0; n < 32; n++) {
      lane = reverse ? 31 - n : n;
      if (ended[lane]) continue;
      threadIdx.x = first + lane;
      swapcontext(&scheduler, &lanes[lane]);
      left -= ended[lane];
    }
}
";

/// The text that runs a phase, whose function gets the arguments `given`: one thread or one warp
/// after another, in order or, where `r` is not 0, in reverse.
fn run_phase(p: &plain::Phase, given: &str) -> String {
    let entry = &p.entry;
    let step = p.step.map_or(String::new(), |step| format!(", {step}"));
    let call = format!("{entry}({given}{step})");
    if p.in_warps {
        let (threads, blocks) = (64, p.width.div_ceil(64).min(3));
        let warps = blocks * threads / 32;
        return format!(
            "    blockDim.x = {threads}, gridDim.x = {blocks};
    work = [&] {{ {call}; }};
    for (long i = 0; i < {warps}; i++) {{
      long w = r ? {warps} - 1 - i : i;
      blockIdx.x = w * 32 / {threads};
      run_warp(w * 32 % {threads}, r);
    }}\n"
        );
    }
    let (threads, blocks) = (p.width.min(4), p.width.min(9).div_ceil(4));
    format!(
        "    blockDim.x = {threads}, gridDim.x = {blocks};
    for (long i = 0; i < {all}; i++) {{
      long t = r ? {all} - 1 - i : i;
      blockIdx.x = t / {threads}, threadIdx.x = t % {threads};
      {call};
    }}\n",
        all = threads * blocks
    )
}

/// Runs the cases by their GPU functions, compiled as standard C++: all threads of a phase run one
/// after another, or warp by warp, once in order and once in reverse.
fn run_on_threads(cases: &[Case]) -> Vec<Vec<f64>> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (mut files, mut body) = (vec![path("main.cc")], String::new());
    let mut main = format!("#include <stdio.h>\n{THREADS}");
    main += "place blockIdx, threadIdx, blockDim, gridDim;\n";
    main += WARP;
    for (k, c) in cases.iter().enumerate() {
        let made = plain::device_source(&c.call, &format!("device_{k}")).unwrap();
        let file = path(&format!("{k}.cc"));
        std::fs::write(&file, format!("{THREADS}{}", made.text)).unwrap();
        files.push(file);
        let mut names = Vec::new();
        let there = c.call.inputs.iter().flatten();
        for (i, (o, v)) in there.zip(&c.operands).enumerate() {
            let ty = c_name(o.dtype);
            let list: Vec<String> =
                values(v).iter().map(|v| format!("({ty}){}, ", literal(*v))).collect();
            let _ = writeln!(main, "static {ty} in_{k}_{i}[] = {{{}0}};", list.join(""));
            names.push(format!("in_{k}_{i}"));
        }
        let results = results(&mut main, c, k);
        let _ = writeln!(main, "static double scratch_{k}[{}];", made.scratch_bytes / 8 + 8);
        let (outs, scratch) = (results.names.join(", "), format!("scratch_{k}"));
        let given = format!("{}, {outs}, {scratch}, &status", names.join(", "));
        let pointers =
            "const void *, ".repeat(names.len()) + &"void *, ".repeat(results.names.len());
        let _ = writeln!(body, "  for (int r = 0; r < 2; r++) {{\n{}", results.mark);
        let mut declared = BTreeSet::new();
        for p in &made.phases {
            let entry = &p.entry;
            let step = if p.step.is_some() { ", int" } else { "" };
            if declared.insert(entry) {
                let _ = writeln!(main, "extern \"C\" void {entry}({pointers}void *, int *{step});");
            }
            body += &run_phase(p, &given);
        }
        let _ = writeln!(
            body,
            "    if (status || {}) return {};\n{}  }}",
            results.overrun,
            k % 100 + 1,
            results.print
        );
    }
    let _ = writeln!(main, "int main() {{\n  int status = 0;\n{body}  return 0;\n}}");
    std::fs::write(&files[0], main).unwrap();
    let program = path("program");
    let mut command = std::process::Command::new("c++");
    let built = command.args(["-std=c++17", "-O0", "-w", "-o"]).arg(&program).args(&files).output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = std::process::Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{:?}", ran.status);
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines().map(|l| l.split_whitespace().map(|w| w.parse().unwrap()).collect()).collect()
}

fn compilers() -> Vec<&'static str> {
    let there = |c: &&str| std::process::Command::new(c).arg("--version").output().is_ok();
    let found: Vec<&str> = ["gcc", "clang"].into_iter().filter(there).collect();
    assert!(!found.is_empty(), "no C compiler is here");
    found
}

/// Compares the results of a call with the expected ones.
fn compare(what: &str, case: &Case, got: &[f64]) {
    let near = |(a, b): (&f64, &f64)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * b.abs().max(1.0)
    };
    let right = got.len() == case.want.len() && got.iter().zip(&case.want).all(near);
    assert!(right, "{what}: {:?}\n{got:?} instead of {:?}", case.call, case.want);
}

/// Compiles calls with further flags, such as those of an instruction level, and compares their
/// results with the expected ones.
pub fn check_at(level: &[&str], cases: &[Case]) {
    for compiler in compilers() {
        let all: Vec<&Case> = cases.iter().collect();
        let usual = run(compiler, level, &all, false);
        for (case, got) in all.iter().zip(&usual) {
            compare(&format!("{compiler} {level:?}"), case, got);
        }
        let some: Vec<usize> = (0..all.len()).filter(|k| packs_ahead(all[*k])).collect();
        if some.is_empty() {
            continue;
        }
        let those: Vec<&Case> = some.iter().map(|k| all[*k]).collect();
        let bits = |of: &[f64]| of.iter().map(|v| v.to_bits()).collect::<Vec<u64>>();
        for (k, got) in some.iter().zip(run(compiler, level, &those, true)) {
            let what = format!("{compiler} {level:?}, packed ahead: {:?}", all[*k].call);
            assert_eq!(bits(&got), bits(&usual[*k]), "{what}");
        }
    }
}

/// Whether a call packs operands ahead where all of them are the same in all calls.
pub fn packs_ahead(case: &Case) -> bool {
    let fixed = vec![true; case.call.inputs.len()];
    plain::source_over(&case.call, &fixed, "x").is_ok_and(|made| made.prepared_bytes > 0)
}

/// Compares the results of calls by the threads of a GPU with the results of this machine's
/// processor, and asserts that several threads share the work where there is any. The results that
/// the cases state are ignored.
pub fn check_threads(mut cases: Vec<Case>) {
    let all: Vec<&Case> = cases.iter().collect();
    let wanted = run(compilers()[0], &[], &all, false);
    for (case, want) in cases.iter_mut().zip(wanted) {
        let made = plain::device_source(&case.call, "shared").unwrap();
        let shared = made.phases.iter().any(|p| p.width > 1);
        assert!(shared || want.len() < 2, "one thread does all: {:?}", case.call);
        case.want = want;
    }
    let there = std::process::Command::new("c++").arg("--version").output().is_ok();
    if !there {
        println!("skipped: there is no c++ for the functions of GPUs");
        return;
    }
    for (n, got) in run_on_threads(&cases).into_iter().enumerate() {
        compare(&format!("threads, order {}", n % 2), &cases[n / 2], &got);
    }
}

/// Compares the results of calls, on this machine's processor and as threads of a GPU, with the
/// expected ones.
pub fn check(cases: &[Case]) {
    check_at(&[], cases);
    let there = std::process::Command::new("c++").arg("--version").output().is_ok();
    if !there {
        println!("skipped: there is no c++ for the functions of GPUs");
        return;
    }
    for (n, got) in run_on_threads(cases).into_iter().enumerate() {
        compare(&format!("threads, order {}", n % 2), &cases[n / 2], &got);
    }
}
