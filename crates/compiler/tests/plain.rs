//! Plain kernels compiled by the C compilers at hand (warnings are errors) and run, against the
//! evaluators of constants and against loops written here, on random shapes.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_compiler::plain;
use squall_core::DType;
use squall_core::graph::{Attribute, CallOperand, Constant, Node, OperatorCall, fold};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A call with the elements of all its operands.
struct Case {
    call: OperatorCall,
    operands: Vec<Constant>,
    want: Vec<f64>,
}

fn values(c: &Constant) -> Vec<f64> {
    match c {
        Constant::F32 { data, .. } => data.iter().map(|v| f64::from(*v)).collect(),
        Constant::I64 { data, .. } => data.iter().map(|v| *v as f64).collect(),
        Constant::Bool { data, .. } => data.iter().map(|v| f64::from(u8::from(*v))).collect(),
    }
}

fn c_name(d: DType) -> &'static str {
    match d {
        DType::F32 => "float",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::U8 => "unsigned char",
        DType::Bool => "unsigned char",
        other => panic!("{other:?}"),
    }
}

/// One program that runs all cases and prints their results; what it printed, case by case.
fn run(compiler: &str, cases: &[Case]) -> Vec<Vec<f64>> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (mut main, mut files) = (String::from("#include <stdio.h>\n"), vec![path("main.c")]);
    let mut body = String::new();
    for (k, c) in cases.iter().enumerate() {
        let made = plain::source(&c.call, &format!("plain_{k}")).unwrap_or_else(|e| panic!("{e}"));
        let file = path(&format!("{k}.c"));
        std::fs::write(&file, &made.text).unwrap();
        files.push(file);
        let _ = writeln!(main, "int plain_{k}(const void *const *, void *const *, void *);");
        let mut names = Vec::new();
        for (i, (o, v)) in c.call.inputs.iter().zip(&c.operands).enumerate() {
            let ty = c_name(o.as_ref().unwrap().dtype);
            let list: Vec<String> = values(v).iter().map(|v| format!("{v:?}, ")).collect();
            let _ = writeln!(main, "static {ty} in_{k}_{i}[] = {{{}0}};", list.join(""));
            names.push(format!("in_{k}_{i}"));
        }
        let out = c.call.outputs[0].as_ref().unwrap();
        let (ty, n) = (c_name(out.dtype), out.shape.iter().product::<i64>());
        let _ = writeln!(main, "static {ty} out_{k}[{}];", n + 1);
        let _ = writeln!(main, "static double scratch_{k}[{}];", made.scratch_bytes / 8 + 8);
        let _ = writeln!(
            body,
            "  {{ const void *in[] = {{{}}}; void *out[] = {{out_{k}, 0}}; out_{k}[{n}] = 77; if \
             (plain_{k}(in, out, scratch_{k}) || out_{k}[{n}] != 77) return {};\n    for (long i \
             = 0; \
             i < {n}; i++) printf(\"%.9g \", (double)out_{k}[i]);\n    printf(\"\\n\"); }}",
            names.join(", "),
            k % 100 + 1
        );
    }
    let _ = writeln!(main, "int main(void) {{\n{body}  return 0;\n}}");
    std::fs::write(&files[0], main).unwrap();
    let program = path("program");
    let mut command = std::process::Command::new(compiler);
    command.args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    let built = command.args(&files).arg("-lm").output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = std::process::Command::new(&program).output().unwrap();
    assert!(ran.status.success(), "{:?}", ran.status);
    let text = String::from_utf8(ran.stdout).unwrap();
    text.lines().map(|l| l.split_whitespace().map(|w| w.parse().unwrap()).collect()).collect()
}

/// What CUDA's headers say, for threads that run one after another.
const THREADS: &str = "#include <math.h>
#include <string.h>
struct place { unsigned x, y, z; };
extern place blockIdx, threadIdx, blockDim, gridDim;
#define __global__
#define __device__
static inline float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
";

/// The same cases by their functions for a GPU, as C++ by the letter: all threads of a phase run
/// one after another, in order and against it.
fn run_on_threads(cases: &[Case]) -> Vec<Vec<f64>> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (mut files, mut body) = (vec![path("main.cc")], String::new());
    let mut main = format!("#include <stdio.h>\n{THREADS}");
    main += "place blockIdx, threadIdx, blockDim, gridDim;\n";
    for (k, c) in cases.iter().enumerate() {
        let made = plain::device_source(&c.call, &format!("device_{k}")).unwrap();
        let file = path(&format!("{k}.cc"));
        std::fs::write(&file, format!("{THREADS}{}", made.text)).unwrap();
        files.push(file);
        let mut names = Vec::new();
        for (i, (o, v)) in c.call.inputs.iter().zip(&c.operands).enumerate() {
            let ty = c_name(o.as_ref().unwrap().dtype);
            let list: Vec<String> = values(v).iter().map(|v| format!("({ty}){v:?}, ")).collect();
            let _ = writeln!(main, "static {ty} in_{k}_{i}[] = {{{}0}};", list.join(""));
            names.push(format!("in_{k}_{i}"));
        }
        let out = c.call.outputs[0].as_ref().unwrap();
        let (ty, n) = (c_name(out.dtype), out.shape.iter().product::<i64>());
        let _ = writeln!(main, "static {ty} out_{k}[{}];", n + 1);
        let _ = writeln!(main, "static double scratch_{k}[{}];", made.scratch_bytes / 8 + 8);
        let given = format!("{}out_{k}, scratch_{k}, &status", names.join(", ") + ", ");
        let pointers = "const void *, ".repeat(names.len());
        let _ = writeln!(body, "  for (int r = 0; r < 2; r++) {{\n    out_{k}[{n}] = 77;");
        for p in &made.phases {
            let entry = &p.entry;
            let _ = writeln!(main, "extern \"C\" void {entry}({pointers}void *, void *, int *);");
            let (threads, blocks) = (p.width.min(4), p.width.min(9).div_ceil(4));
            let _ = writeln!(
                body,
                "    blockDim.x = {threads}, gridDim.x = {blocks};\n    for (long i = 0; i < \
                 {all}; i++) {{\n      long t = r ? {all} - 1 - i : i;\n      blockIdx.x = t / \
                 {threads}, threadIdx.x = t % {threads};\n      {entry}({given});\n    }}",
                all = threads * blocks
            );
        }
        let _ = writeln!(
            body,
            "    if (status || out_{k}[{n}] != 77) return {};\n    for (long i = 0; i < {n}; i++) \
             printf(\"%.9g \", (double)out_{k}[i]);\n    printf(\"\\n\");\n  }}",
            k % 100 + 1
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

fn check(cases: &[Case]) {
    let compare = |what: &str, case: &Case, got: &[f64]| {
        let near = |(a, b): (&f64, &f64)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * b.abs().max(1.0)
        };
        let right = got.len() == case.want.len() && got.iter().zip(&case.want).all(near);
        assert!(right, "{what}: {:?}\n{got:?} instead of {:?}", case.call, case.want);
    };
    for compiler in compilers() {
        for (case, got) in cases.iter().zip(run(compiler, cases)) {
            compare(compiler, case, &got);
        }
    }
    let there = std::process::Command::new("c++").arg("--version").output().is_ok();
    if !there {
        println!("skipped: there is no c++ for the functions of GPUs");
        return;
    }
    for (n, got) in run_on_threads(cases).into_iter().enumerate() {
        compare(&format!("threads, order {}", n % 2), &cases[n / 2], &got);
    }
}

fn random(r: &mut Random, dtype: DType, shape: &[i64]) -> Constant {
    let n = shape.iter().product::<i64>() as usize;
    let shape = shape.to_vec();
    match dtype {
        DType::F32 => {
            let data = (0..n).map(|_| r.random_range(-40..40i32) as f32 / 8.0).collect();
            Constant::F32 { shape, data }
        }
        DType::Bool => Constant::Bool { shape, data: (0..n).map(|_| r.random()).collect() },
        DType::U8 => {
            Constant::I64 { shape, data: (0..n).map(|_| r.random_range(1..200)).collect() }
        }
        _ => {
            let value = |r: &mut Random| {
                let v = r.random_range(1..30i64);
                if r.random() { v } else { -v }
            };
            Constant::I64 { shape, data: (0..n).map(|_| value(r)).collect() }
        }
    }
}

/// A case whose result the evaluators of constants say. Operands behind the first `moving` ones
/// are known to the generator, too.
fn folded(
    op: &str,
    operands: Vec<(DType, Constant)>,
    moving: usize,
    attributes: &[(&str, Attribute)],
) -> Case {
    let attributes: BTreeMap<String, Attribute> =
        attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect();
    let node = Node {
        name: op.into(),
        op: op.into(),
        domain: String::new(),
        inputs: (0..operands.len()).map(Some).collect(),
        outputs: vec![operands.len()],
        attributes: attributes.clone(),
        folded: false,
        problem: None,
    };
    let inputs: Vec<Option<Constant>> = operands.iter().map(|o| Some(o.1.clone())).collect();
    let dtypes: Vec<Option<DType>> = operands.iter().map(|o| Some(o.0)).collect();
    let made = fold::evaluate_as(&node, &inputs, &dtypes, 20).expect(op).expect(op);
    let dtype = match (&made[0], operands.last()) {
        (Constant::Bool { .. }, _) => DType::Bool,
        (Constant::F32 { .. }, _) => DType::F32,
        (_, _) if operands[0].0 == DType::F32 || op == "NonZero" => DType::I64,
        _ => operands[0].0,
    };
    let call = OperatorCall {
        op: op.into(),
        domain: String::new(),
        opset: 20,
        attributes,
        inputs: operands
            .iter()
            .enumerate()
            .map(|(i, (dtype, c))| {
                let constant = (i >= moving).then(|| c.clone());
                Some(CallOperand { dtype: *dtype, shape: c.shape().to_vec(), constant })
            })
            .collect(),
        outputs: vec![Some(CallOperand { dtype, shape: made[0].shape().to_vec(), constant: None })],
    };
    let want = values(&made[0]);
    Case { call, operands: operands.into_iter().map(|o| o.1).collect(), want }
}

/// A shape, and one that broadcasts to it.
fn broadcasting(r: &mut Random) -> (Vec<i64>, Vec<i64>) {
    let rank = r.random_range(0..5usize);
    let a: Vec<i64> = (0..rank).map(|_| r.random_range(1..4)).collect();
    let skip = r.random_range(0..=rank);
    let b = a[skip..].iter().map(|d| if r.random() { *d } else { 1 }).collect();
    (a, b)
}

#[test]
fn elementwise_operators_broadcast_in_all_types() {
    let mut r = Random::seed_from_u64(1);
    let mut cases = Vec::new();
    for round in 0..4 {
        for op in ["Add", "Sub", "Mul", "Div", "Min", "Max"] {
            for dtype in [DType::F32, DType::I32, DType::I64, DType::U8] {
                let (a, b) = broadcasting(&mut r);
                let (a, b) = if round % 2 == 0 { (a, b) } else { (b, a) };
                let (x, y) = (random(&mut r, dtype, &a), random(&mut r, dtype, &b));
                let zero = y.as_f32().is_some_and(|v| v.contains(&0.0));
                if op == "Div" && zero {
                    continue;
                }
                cases.push(folded(op, vec![(dtype, x), (dtype, y)], 2, &[]));
            }
        }
        for op in ["Equal", "Less", "GreaterOrEqual"] {
            let (a, b) = broadcasting(&mut r);
            let (x, y) = (random(&mut r, DType::I32, &a), random(&mut r, DType::I32, &b));
            cases.push(folded(op, vec![(DType::I32, x), (DType::I32, y)], 2, &[]));
        }
        let (a, b) = broadcasting(&mut r);
        let operands = vec![
            (DType::Bool, random(&mut r, DType::Bool, &b)),
            (DType::F32, random(&mut r, DType::F32, &a)),
            (DType::F32, random(&mut r, DType::F32, &b)),
        ];
        cases.push(folded("Where", operands, 3, &[]));
        for op in ["Neg", "Abs", "Floor", "Ceil", "Round", "Exp", "Sign"] {
            let x = random(&mut r, DType::F32, &a);
            cases.push(folded(op, vec![(DType::F32, x)], 1, &[]));
        }
    }
    check(&cases);
}

#[test]
fn moves_and_reductions_are_those_of_constants() {
    let mut r = Random::seed_from_u64(2);
    let ints = Constant::ints;
    let mut cases = Vec::new();
    for _ in 0..6 {
        let shape: Vec<i64> = (0..3).map(|_| r.random_range(1..6)).collect();
        let x = (DType::F32, random(&mut r, DType::F32, &shape));
        let i64s = |v: Vec<i64>| (DType::I64, ints(v));
        let perm = Attribute::Ints(vec![2, 0, 1]);
        cases.push(folded("Transpose", vec![x.clone()], 1, &[("perm", perm)]));
        let pads = i64s(vec![1, 0, 2, 0, 3, 1]);
        for mode in ["constant", "edge", "reflect", "wrap"] {
            let mode = Attribute::String(mode.into());
            cases.push(folded("Pad", vec![x.clone(), pads.clone()], 1, &[("mode", mode)]));
        }
        let [s, e, a, t] = [vec![-1, 0], vec![-9, 9], vec![0, 2], vec![-1, 2]].map(i64s);
        cases.push(folded("Slice", vec![x.clone(), s, e, a, t], 1, &[]));
        cases.push(folded("Tile", vec![x.clone(), i64s(vec![2, 1, 3])], 1, &[]));
        let axis = r.random_range(0..3usize);
        let at: Vec<i64> = (0..4).map(|_| r.random_range(-shape[axis]..shape[axis])).collect();
        let axis_is = ("axis", Attribute::Int(axis as i64));
        cases.push(folded("Gather", vec![x.clone(), i64s(at)], 2, std::slice::from_ref(&axis_is)));
        let y = (DType::F32, random(&mut r, DType::F32, &shape));
        cases.push(folded("Concat", vec![x.clone(), y], 2, std::slice::from_ref(&axis_is)));
        let data = (0..shape.iter().product()).map(|_| r.random_range(-shape[axis]..shape[axis]));
        let places = Constant::I64 { shape: shape.clone(), data: data.collect() };
        let operands = vec![x.clone(), (DType::I64, places)];
        cases.push(folded("GatherElements", operands, 2, &[axis_is]));
        let row = vec![r.random_range(0..shape[0]), r.random_range(-shape[1]..0)];
        let row = Constant::I64 { shape: vec![1, 2], data: row };
        cases.push(folded("GatherND", vec![x.clone(), (DType::I64, row.clone())], 2, &[]));
        let new = (DType::F32, random(&mut r, DType::F32, &[1, shape[2]]));
        cases.push(folded("ScatterND", vec![x.clone(), (DType::I64, row), new], 3, &[]));
        cases.push(folded("Trilu", vec![x.clone()], 1, &[("upper", Attribute::Int(0))]));
        for op in ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"] {
            for (dtype, axes) in [(DType::F32, vec![1]), (DType::I32, vec![2, 0])] {
                let x = (dtype, random(&mut r, dtype, &shape));
                cases.push(folded(op, vec![x, i64s(axes)], 1, &[]));
            }
        }
    }
    check(&cases);
}

/// A product of matrices by its definition.
fn product(a: &[f32], b: &[f32], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let sum = |i: usize, j: usize| -> f64 {
        (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum()
    };
    (0..m * n).map(|at| sum(at / n, at % n)).collect()
}

#[test]
fn products_of_all_sizes_are_right() {
    let mut r = Random::seed_from_u64(3);
    let mut cases = Vec::new();
    for [m, n, k] in [[1, 1, 1], [4, 16, 8], [5, 17, 3], [3, 40, 33], [9, 2, 7], [8, 16, 0]] {
        let (a, b) = (random(&mut r, DType::F32, &[m, k]), random(&mut r, DType::F32, &[k, n]));
        let sizes = [m as usize, n as usize, k as usize];
        let want = product(a.as_f32().unwrap(), b.as_f32().unwrap(), sizes);
        let float = |shape: &[i64]| {
            Some(CallOperand { dtype: DType::F32, shape: shape.to_vec(), constant: None })
        };
        let call = OperatorCall {
            op: "MatMul".into(),
            domain: String::new(),
            opset: 20,
            attributes: BTreeMap::new(),
            inputs: vec![float(&[m, k]), float(&[k, n])],
            outputs: vec![float(&[m, n])],
        };
        cases.push(Case { call, operands: vec![a, b], want });
    }
    check(&cases);
}
