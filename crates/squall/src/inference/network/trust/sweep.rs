//! A long test that is run by hand: random calls of every operator that has a plain kernel, at
//! extents of 1 to 9 and 16, built by each compiler at hand and each optimisation level, and
//! compared with the independent build (`mod.rs`). `SQUALL_SWEEP=N` is the number of calls for each
//! operator, `SQUALL_SEED` the seed, and `SQUALL_COMPILERS` a list of compilers, separated by
//! commas.

use super::*;
use crate::inference::network::plain;
use crate::target::target_request::TargetRequest;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_compiler::plain as operators;
use squall_core::graph::infer::{Ctx, NodeOperand};
use squall_core::graph::{Constant, Node};
use squall_core::operators::infer;
use squall_core::{Bytes, Language};
use squall_measure::ObjectCache;
use squall_measure::cpu::Object;
use std::collections::BTreeMap;

/// Flags that are added to the usual ones: the levels, and the flags of earlier networks.
const LEVELS: [&[&str]; 4] = [
    &["-O1", "-ffp-contract=off"],
    &["-O2", "-ffp-contract=off"],
    &["-O3", "-ffp-contract=off"],
    &["-O2", "-ftree-vectorize", "-ffp-contract=off"],
];

/// Attributes that operators are tried with: a name, and values.
const WORDS: &[(&str, &str, &[&str])] = &[
    ("GridSample", "mode", &["linear", "nearest", "cubic"]),
    ("GridSample", "padding_mode", &["zeros", "border", "reflection"]),
    ("Resize", "mode", &["nearest", "linear", "cubic"]),
    ("Resize", "coordinate_transformation_mode", &["align_corners", "asymmetric", "half_pixel"]),
    ("Pad", "mode", &["constant", "reflect", "edge", "wrap"]),
    ("RoiAlign", "mode", &["avg", "max"]),
    ("ScatterElements", "reduction", &["none", "add", "mul", "max", "min"]),
    ("ScatterND", "reduction", &["none", "add", "mul", "max", "min"]),
    ("LSTM", "direction", &["forward", "reverse", "bidirectional"]),
    ("GRU", "direction", &["forward", "reverse", "bidirectional"]),
    ("RNN", "direction", &["forward", "reverse", "bidirectional"]),
    ("Gelu", "approximate", &["none", "tanh"]),
    ("DepthToSpace", "mode", &["DCR", "CRD"]),
    ("BitShift", "direction", &["LEFT", "RIGHT"]),
    ("Einsum", "equation", &["ij,jk->ik", "bij,bjk->bik", "ii->i", "i,j->ij", "bhid,bhjd->bhij"]),
];
const NUMBERS: &[(&str, &[i64])] = &[
    ("axis", &[-1, 0, 1]),
    ("keepdims", &[0, 1]),
    ("align_corners", &[0, 1]),
    ("exclusive", &[0, 1]),
    ("reverse", &[0, 1]),
    ("blocksize", &[2]),
    ("largest", &[0, 1]),
    ("size", &[3]),
    ("transA", &[0, 1]),
    ("transB", &[0, 1]),
    ("ceil_mode", &[0, 1]),
    ("count_include_pad", &[0, 1]),
    ("fmod", &[0, 1]),
    ("linear_before_reset", &[0, 1]),
    ("num_groups", &[1, 2]),
    ("is_causal", &[0, 1]),
    ("upper", &[0, 1]),
    ("onesided", &[0, 1]),
    ("to", &[1, 2, 3, 6, 7, 9, 11]),
];

struct Draw(Random);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn extent(&mut self) -> i64 {
        self.one(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 16])
    }

    fn shape(&mut self, rank: usize) -> Vec<i64> {
        let mut shape: Vec<i64> = (0..rank).map(|_| self.extent()).collect();
        // What is compared at 16 in each of five dimensions would take long.
        while shape.iter().product::<i64>() > 20_000 {
            let i = self.below(rank);
            shape[i] = 1 + shape[i] / 3;
        }
        shape
    }

    fn whole(&mut self, values: Vec<i64>) -> Option<CallOperand> {
        let shape = vec![values.len() as i64];
        let constant = Constant::I64 { shape: shape.clone(), data: values };
        Some(CallOperand { dtype: DType::I64, shape, constant: Some(constant) })
    }

    /// Operands of the forms that families of operators take.
    fn operands(&mut self, op: &str, dtype: DType) -> Vec<Option<CallOperand>> {
        let of =
            |dtype, shape: &[i64]| Some(CallOperand { dtype, shape: shape.into(), constant: None });
        let f = |shape: &[i64]| of(DType::F32, shape);
        let small: Vec<i64> = (0..9).map(|_| 1 + self.below(4) as i64).collect();
        let [b, c, h, w] = [self.one(&[1, 2]), self.extent(), self.extent(), self.extent()];
        match op {
            "GridSample" if self.below(3) > 0 => vec![f(&[b, c, h, w]), f(&[b, small[0], w, 2])],
            "GridSample" => vec![f(&[b, c, small[1], h, w]), f(&[b, small[0], 2, w, 3])],
            "Conv" | "ConvInteger" | "ConvTranspose" => {
                let integer = op == "ConvInteger";
                let t = if integer { DType::U8 } else { dtype };
                vec![of(t, &[b, c, h + 2, w + 2]), of(t, &[c, c, small[0].min(3), small[1].min(3)])]
            }
            "MatMul" | "MatMulInteger" => {
                let t = if op == "MatMul" { dtype } else { DType::U8 };
                vec![of(t, &[b, h, c]), of(t, &[c, w])]
            }
            "Gemm" => vec![of(dtype, &[h, c]), of(dtype, &[c, w]), of(dtype, &[w])],
            "LSTM" | "GRU" | "RNN" => {
                let g = match op {
                    "LSTM" => 4,
                    "GRU" => 3,
                    _ => 1,
                };
                let d = self.one(&[1, 2]);
                vec![f(&[h, b, c]), f(&[d, g * w, c]), f(&[d, g * w, w])]
            }
            "RoiAlign" | "MaxRoiPool" => {
                vec![f(&[b, c, h, w]), f(&[small[0], 4]), of(DType::I64, &small[..1])]
            }
            "BatchNormalization"
            | "InstanceNormalization"
            | "GroupNormalization"
            | "LayerNormalization"
            | "RMSNormalization" => {
                let last = if op.starts_with('L') || op.starts_with('R') { w } else { c };
                let n = if op.starts_with('B') { 4 } else { 2 };
                let mut all = vec![f(&[b, c, h, w])];
                all.extend((0..n).map(|_| f(&[last])));
                all
            }
            "Attention" => {
                let s = self.extent();
                vec![f(&[b, small[0], h, c]), f(&[b, small[0], s, c]), f(&[b, small[0], s, w])]
            }
            "Gather" | "GatherElements" => {
                let rank = 1 + self.below(4);
                let x = self.shape(rank);
                let k = if op == "Gather" { self.shape(1) } else { x.clone() };
                vec![of(dtype, &x), of(DType::I64, &k)]
            }
            "ScatterElements" => {
                let x = self.shape(2);
                vec![of(dtype, &x), of(DType::I64, &x), of(dtype, &x)]
            }
            "GatherND" => vec![of(dtype, &[h, w, c]), of(DType::I64, &[small[0], 2])],
            "ScatterND" => {
                vec![
                    of(dtype, &[h, w, c]),
                    of(DType::I64, &[small[0], 2]),
                    of(dtype, &[small[0], c]),
                ]
            }
            "Resize" | "Upsample" => {
                let sizes = vec![b, c, self.extent(), self.extent()];
                let x = of(dtype, &[b, c, h, w]);
                vec![x, None, None, self.whole(sizes)]
            }
            "Pad" => {
                vec![of(dtype, &[h + 3, w + 3]), self.whole(vec![small[0] - 2, 1, 2, small[1]])]
            }
            "TopK" => vec![of(dtype, &[b, h, w]), self.whole(vec![1])],
            "Expand" => vec![of(dtype, &[h, 1]), self.whole(vec![b, h, w])],
            "Tile" => vec![of(dtype, &[h, w]), self.whole(vec![2, 3])],
            "Reshape" => vec![of(dtype, &[h, w]), self.whole(vec![w, h])],
            "Slice" => vec![
                of(dtype, &[h, w]),
                self.whole(vec![0]),
                self.whole(vec![1_000]),
                self.whole(vec![1]),
                self.whole(vec![small[0]]),
            ],
            "Where" => {
                let x = self.shape(3);
                vec![of(DType::Bool, &x[1..]), of(dtype, &x), of(dtype, &x[2..])]
            }
            "AffineGrid" => vec![f(&[b, 2, 3]), self.whole(vec![b, c, h, w])],
            "OneHot" => vec![of(DType::I64, &[h]), self.whole(vec![w]), f(&[2])],
            "QuantizeLinear" => vec![f(&[h, w]), f(&[]), of(DType::U8, &[])],
            "DequantizeLinear" => vec![of(DType::I8, &[h, w]), f(&[]), of(DType::I8, &[])],
            _ => {
                let rank = self.below(5);
                let x = self.shape(rank);
                let mut all = vec![of(dtype, &x)];
                for _ in 0..self.below(4) {
                    let skip = self.below(rank + 1);
                    let other: Vec<i64> =
                        x[skip..].iter().map(|e| if self.below(3) > 0 { *e } else { 1 }).collect();
                    all.push(of(dtype, if self.below(2) > 0 { &x } else { &other }));
                }
                all
            }
        }
    }

    fn attributes(&mut self, op: &str, all: &[Option<CallOperand>]) -> BTreeMap<String, Attribute> {
        let mut made = BTreeMap::new();
        for (of, name, words) in WORDS {
            if *of == op {
                made.insert(name.to_string(), Attribute::String(self.one(words).into()));
            }
        }
        for (name, values) in NUMBERS {
            if self.below(8) == 0 || *name == "to" && op == "Cast" {
                made.insert(name.to_string(), Attribute::Int(self.one(values)));
            }
        }
        let rank = all[0].as_ref().map_or(0, |o| o.shape.len());
        if op.contains("Pool") && rank > 2 {
            let k = (0..rank - 2).map(|_| 1 + self.below(3) as i64).collect();
            made.insert("kernel_shape".into(), Attribute::Ints(k));
        }
        if op == "Transpose" {
            made.insert("perm".into(), Attribute::Ints((0..rank as i64).rev().collect()));
        }
        if matches!(op, "LSTM" | "GRU" | "RNN")
            && let Some(Some(r)) = all.get(2)
        {
            made.insert("hidden_size".into(), Attribute::Int(r.shape[2]));
        }
        made
    }

    /// A random call that has a plain kernel, if this attempt gives one.
    fn call(&mut self, op: &str) -> Option<OperatorCall> {
        use DType::{Bool, F32, F64, I8, I32, I64, U8};
        let dtype = self.one(&[F32, F32, F32, F32, F64, I64, I32, U8, I8, Bool]);
        let inputs = self.operands(op, dtype);
        let attributes = self.attributes(op, &inputs);
        let node = Node {
            name: op.into(),
            op: op.into(),
            domain: String::new(),
            inputs: inputs.iter().enumerate().map(|(i, o)| o.as_ref().map(|_| i)).collect(),
            outputs: vec![100],
            attributes: attributes.clone(),
            folded: false,
            problem: None,
        };
        let seen = |o: &'_ CallOperand| o.clone();
        let held: Vec<Option<CallOperand>> = inputs.iter().map(|o| o.as_ref().map(seen)).collect();
        let given = held.iter().map(|o| {
            o.as_ref().map(|o| NodeOperand {
                name: "x",
                dtype: Some(o.dtype),
                shape: Some(&o.shape),
                constant: o.constant.as_ref(),
            })
        });
        let made = infer(&Ctx { node: &node, opset: 20, inputs: given.collect() }).ok()?;
        let of = |o: &squall_core::graph::infer::Output| {
            Some(CallOperand { dtype: o.dtype?, shape: o.shape.clone(), constant: None })
        };
        let outputs: Vec<Option<CallOperand>> = made.iter().map(of).collect();
        let elements = |o: &CallOperand| count(o);
        if outputs.iter().flatten().map(elements).sum::<i64>() > 1 << 20 {
            return None;
        }
        let call = OperatorCall {
            op: op.into(),
            domain: String::new(),
            opset: 20,
            attributes,
            inputs,
            outputs,
        };
        operators::source(&call, "x").ok().map(|_| call)
    }
}

/// The calls of all operators, and those of which none was found.
fn calls(each: usize, seed: u64) -> (Vec<OperatorCall>, Vec<&'static str>) {
    let mut draw = Draw(Random::seed_from_u64(seed));
    let (mut all, mut none) = (Vec::new(), Vec::new());
    for op in operators::operators() {
        let before = all.len();
        for _ in 0..each * 200 {
            if all.len() == before + each {
                break;
            }
            all.extend(draw.call(op));
        }
        if all.len() == before {
            none.push(op);
        }
    }
    (all, none)
}

#[test]
#[ignore = "takes minutes: SQUALL_SWEEP=20 cargo test -p squall --lib sweep -- --ignored"]
fn all_operators_by_all_compilers_at_all_levels() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<usize>().ok());
    let seed = number("SQUALL_SEED").unwrap_or(56) as u64;
    let (calls, none) = calls(number("SQUALL_SWEEP").unwrap_or(4), seed);
    println!("{} calls; none of {}", calls.len(), none.join(", "));
    let named = std::env::var("SQUALL_COMPILERS").unwrap_or_else(|_| "gcc,clang".into());
    let mut wrong = Vec::new();
    for compiler in named.split(',') {
        let Ok(toolchain) = Toolchain::named(compiler) else { continue };
        let toolchain = toolchain.with_objects(ObjectCache::temporary().unwrap());
        let threads = 1;
        let at = TargetContext::look(TargetRequest::Cpu, threads, &toolchain).unwrap();
        for level in LEVELS {
            for (part, calls) in calls.chunks(100).enumerate() {
                let source = |(i, call): (usize, &OperatorCall)| {
                    let symbol = format!("plain_{part}_{i}");
                    // Every second call packs ahead all operands that it can pack.
                    let fixed = vec![i % 2 > 0; call.inputs.len()];
                    let made = plain::text(call, &fixed, &symbol).unwrap();
                    let source = KernelSource {
                        language: Language::C,
                        source: made.text,
                        symbol,
                        prepared: Bytes(made.prepared_bytes),
                        workspace: Bytes(made.scratch_bytes),
                        openmp: false,
                        full_optimisation: true,
                        flags: level.iter().map(|f| f.to_string()).collect(),
                        launches: Vec::new(),
                    };
                    (source, made.weights)
                };
                let sources: Vec<(KernelSource, Vec<usize>)> =
                    calls.iter().enumerate().map(source).collect();
                let folder = TemporaryFolder::new("sweep").unwrap();
                // A call that inference takes and no model has may have no C.
                let is_built = |case: &Case<'_>| {
                    let made = toolchain.object(case.source, &folder.path().join("x.o"));
                    match made.unwrap() {
                        Object::Refused(said, _) => {
                            println!("{compiler} refuses {:?}: {said}", case.call);
                        }
                        _ => return true,
                    }
                    false
                };
                let both = sources.iter().zip(calls);
                let cases = both.map(|((source, weights), call)| {
                    let parts = &[];
                    Case { source, parts, call, weights }
                });
                let cases = Cases(cases.filter(is_built).collect());
                let lines = compared(folder.path(), &cases, &at).unwrap();
                for (line, Case { call, .. }) in lines.iter().zip(&cases.0) {
                    let said = line.clone().unwrap_or_else(|| "the program ended".into());
                    if !said.starts_with("right") {
                        let what = format!("{compiler} {level:?}: {said}: {call:?}");
                        println!("{what}");
                        wrong.push(what);
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong", wrong.len());
}
