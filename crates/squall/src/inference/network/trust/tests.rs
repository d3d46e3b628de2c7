//! Tests of the comparison of builds, with planted compiler faults: a macro that only the usual
//! build defines makes its text compute something else, and the comparison must find it and choose
//! the independent build.

use super::*;
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use squall_core::graph::{Model, Value};
use squall_core::{Bytes, Language};

const PLANTED: &str = "-DPLANTED=1";

fn operand(dtype: DType, count: i64) -> Option<CallOperand> {
    Some(CallOperand { dtype, shape: vec![count], constant: None })
}

/// Operators of one text each: bodies over `x`, the index `k` and the result `y`, each of 16.
fn operators(bodies: &[&str]) -> PlainOperators {
    let source = |(i, body): (usize, &&str)| {
        let symbol = format!("plain_{i}");
        KernelSource {
            language: Language::C,
            source: format!(
                "#include <math.h>\n#ifdef PLANTED\nenum {{ planted = 1 }};\n#else\nenum {{ \
                 planted = 0 }};\n#endif\nint {symbol}(const void *const *data, void *const \
                 *outputs, const void *prepared, void *workspace) {{\n  const float *x = \
                 data[0];\n  const long long *k = data[1];\n  float *y = outputs[0];\n  \
                 (void)k, (void)prepared, (void)workspace;\n  for (int i = 0; i < 16; i++) y[i] \
                 = x[i];\n  {body}\n  return 0;\n}}\n"
            ),
            symbol,
            prepared: Bytes(0),
            workspace: Bytes(64),
            openmp: false,
            full_optimisation: true,
            flags: vec![PLANTED.into()],
            launches: Vec::new(),
        }
    };
    let call = |_: &&str| OperatorCall {
        op: "Gather".into(),
        domain: String::new(),
        opset: 20,
        attributes: Default::default(),
        inputs: vec![operand(DType::F32, 16), operand(DType::I64, 16)],
        outputs: vec![operand(DType::F32, 16)],
    };
    PlainOperators {
        sources: bodies.iter().enumerate().map(source).collect(),
        calls: bodies.iter().map(|b| ("n".to_string(), call(b))).collect(),
        ..PlainOperators::default()
    }
}

#[test]
fn what_the_usual_build_does_otherwise_is_found_and_runs_by_the_independent_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |folder: &Path| {
        let context = Context::with_cache(Some(folder.into()));
        context.target(TargetRequest::Cpu, 1).unwrap()
    };
    let here = at(folder.path());
    // Each with what is said of it; nothing of what is right.
    let cases = [
        ("", None),
        ("if (planted) y[5] += 1;", Some("element 5 of result 0")),
        // Two that are no numbers are the same, whatever their bits are.
        ("if (planted) y[3] = y[3] != y[3] ? -y[3] : y[3];", None),
        ("for (int i = 0; planted && i < 16; i++) if (y[i] != y[i]) y[i] = 0;", Some("element")),
        ("for (int i = 0; planted && i < 16; i++) if (y[i] > 1e20f) y[i] = 1;", Some("element")),
        ("for (int i = 0; planted && i < 16; i++) if (isinf(y[i])) y[i] = 1;", Some("element")),
        ("if (planted) y[16] = 1;", Some("crashes")),
        ("if (planted) *(volatile int *)0 = 1;", Some("crashes")),
        ("if (planted) return 1;", Some("refuses")),
        // Indices are legal ones, and what is refused by both is refused alike.
        (
            "for (int i = 0; i < 16; i++) if (k[i] < -16 || k[i] > 15) { if (planted) y[0] += 1; }",
            None,
        ),
        ("if (k[0] != k[1]) return 1;\n  if (planted) y[2] += 1;", Some("element 2")),
        ("if (k[0] < 9) return planted + 1;", None),
        ("if (planted) ((volatile float *)workspace)[15] = 1;", None),
        ("if (planted) ((volatile float *)workspace)[16] = 1;", Some("crashes")),
    ];
    let bodies: Vec<&str> = cases.iter().map(|c| c.0).collect();
    let mut plain = operators(&bodies);
    let key = |plain: &PlainOperators, i: usize, at: &TargetContext| {
        let (source, call) = (&plain.sources[i], &plain.calls[i].1);
        let case = Case { source, parts: &[], call, weights: plain.weights_of(i) };
        super::key(&case, &at.toolchain)
    };
    let keys: Vec<String> = (0..bodies.len()).map(|i| key(&plain, i, &here)).collect();
    let said = settle(&mut plain, &here);
    let mut lines = said.iter();
    for ((body, want), source) in cases.iter().zip(&plain.sources) {
        match want {
            None => assert_eq!(source.flags, [PLANTED], "{body}: {said:?}"),
            Some(words) => {
                assert!(source.flags.contains(&"-O1".to_string()), "{body}: {said:?}");
                let line = lines.next().unwrap();
                assert!(line.contains(words) && line.contains("node `n` (Gather)"), "{line}");
            }
        }
    }
    assert_eq!(lines.next(), None);
    // Another process knows it all, and says the same.
    let there = at(folder.path());
    let place = folder.path().join("verdict");
    assert!(keys.iter().all(|key| kept(key, &place, &there.toolchain).is_some()));
    assert_eq!(settle(&mut operators(&bodies), &there), said);
    let other = key(&plain, 1, &there);
    assert_ne!(other, keys[1], "other flags have another verdict");
}

#[test]
fn what_a_function_packs_ahead_is_compared_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = Context::with_cache(Some(folder.path().into()));
    let at = at.target(TargetRequest::Cpu, 1).unwrap();
    // Bodies of the preparation over the weight `x` and the packed `to`, of 16 elements each.
    let cases = [
        ("", None),
        ("if (planted) to[3] += 1;", Some("element 3 of result 0")),
        ("if (planted) to[16] = 1;", Some("crashes")),
        ("if (planted) return 1;", Some("refuses")),
    ];
    for (body, want) in cases {
        let mut plain = operators(&["for (int i = 0; i < 16; i++) y[i] = packed[i];"]);
        let source = &mut plain.sources[0];
        source.source = source
            .source
            .replace("const float *x = data[0]", "const float *packed = prepared, *x = packed")
            .replace("data[1]", "data[0]");
        source.source += &format!(
            "int {}_prepare(const void *const *weights, void *prepared) {{\n  const float *x = \
             weights[0];\n  float *to = prepared;\n  for (int i = 0; i < 16; i++) to[i] = \
             x[i];\n  {body}\n  return 0;\n}}\n",
            source.symbol
        );
        source.prepared = Bytes(64);
        plain.weights = vec![vec![0]];
        let said = settle(&mut plain, &at);
        match want {
            None => assert_eq!(said, Vec::<String>::new()),
            Some(words) => {
                assert!(said.len() == 1 && said[0].contains(words), "{body}: {said:?}");
            }
        }
    }
}

/// A region of one result of a length that the run knows: as many of the operand's first numbers
/// as a body over `n` and `y` says, which a part of it copies.
fn region(n: &str, copy: &str) -> PlainOperators {
    let mut plain = operators(&[""]);
    let symbol = plain.sources[0].symbol.clone();
    let planted = "#include <stdlib.h>\n#ifdef PLANTED\nenum { planted = 1 };\n#else\nenum { \
                   planted = 0 };\n#endif\n";
    plain.sources[0].source = format!(
        "{planted}int {symbol}_p0_(const float *x, float *y, long n);\nint {symbol}(const void \
         *const *data, void *const *outputs, const void *prepared, void *workspace) {{\n  const \
         float *x = data[0];\n  long long *record = outputs[0];\n  (void)prepared, \
         (void)workspace;\n  long n = 0;\n  {n}\n  float *y = malloc((size_t)n * 4 + 4);\n  if \
         (!y) return 1;\n  {symbol}_p0_(x, y, n);\n  record[0] = (long long)(size_t)y, record[1] \
         = 4 * n, record[2] = 1, record[3] = n;\n  return 0;\n}}\n"
    );
    let part = format!(
        "{planted}int {symbol}_p0_(const float *x, float *y, long n) {{\n  for (long i = 0; i < \
         n; i++) y[i] = x[i];\n  {copy}\n  return 0;\n}}\n"
    );
    let of = |symbol: String, source| KernelSource { symbol, source, ..plain.sources[0].clone() };
    plain.parts = vec![vec![of(format!("{symbol}_p0_"), part)]];
    let value = Value {
        name: "y".into(),
        dtype: Some(DType::F32),
        shape: Some(vec![-1]),
        constant: None,
        weight: false,
        alias: None,
    };
    let body = Model {
        nodes: Vec::new(),
        values: vec![value],
        inputs: Vec::new(),
        outputs: vec![0],
        opset: 20,
        name: "body".into(),
    };
    let call = &mut plain.calls[0].1;
    call.op = REGION.into();
    call.attributes = [(BODY.to_string(), Attribute::Body(Box::new(body)))].into();
    call.outputs = vec![operand(DType::I64, region::GROWN)];
    plain
}

#[test]
fn regions_are_compared_with_their_parts_and_by_what_grew() {
    let folder = tempfile::tempdir().unwrap();
    let at = Context::with_cache(Some(folder.path().into()));
    let at = at.target(TargetRequest::Cpu, 1).unwrap();
    let few = "while (n < 16 && x[n] < 1e38) n++;";
    let cases = [
        (few.to_string(), "", None),
        (format!("{few} if (planted && n) n--;"), "", Some("the extents of result 0 differ")),
        (few.to_string(), "if (planted) *(volatile int *)0 = 1;", Some("crashes")),
        (
            few.to_string(),
            "for (long i = 0; planted && i < n; i++) if (y[i] < -1e9f) y[i] = 7;",
            Some("of result 0 is 7"),
        ),
    ];
    for (n, copy, want) in &cases {
        let mut plain = self::region(n, copy);
        let said = settle(&mut plain, &at);
        match want {
            None => assert_eq!(said, Vec::<String>::new()),
            Some(words) => {
                assert!(said.len() == 1 && said[0].contains(words), "{n} {copy}: {said:?}");
            }
        }
        for function in plain.functions() {
            let is_other = function.flags.contains(&"-O1".to_string());
            assert_eq!(is_other, want.is_some(), "{}: {said:?}", function.symbol);
        }
    }
}

#[test]
fn moves_of_data_are_compared_and_the_verdict_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let at = Context::with_cache(Some(folder.path().join("cache")));
    let at = at.target(TargetRequest::Cpu, 1).unwrap();
    let right = [vec!["-c".to_string(), "-O3".into()], at.toolchain.flags().to_vec()].concat();
    let independent = [&right[..], &at.toolchain.independent_flags()].concat();
    assert_eq!(moves::verdict(&right, &independent, &at).unwrap(), Verdict::Right);
    let cases = [("(n) - ((n) > 64)", "byte"), ("(n) > 64 ? 1u << 30 : (n)", "crashes")];
    for (i, (length, words)) in cases.into_iter().enumerate() {
        let planted = folder.path().join(format!("planted{i}.h"));
        let text = format!("#include <string.h>\n#define memcpy(a, b, n) memcpy(a, b, {length})\n");
        std::fs::write(&planted, text).unwrap();
        let usual = ["-include".to_string(), planted.display().to_string()];
        let usual = [&right[..], &usual].concat();
        let verdict = moves::verdict(&usual, &independent, &at).unwrap();
        assert!(matches!(&verdict, Verdict::Wrong(why) if why.contains(words)), "{verdict:?}");
        // Without the fault the kept verdict is what is read.
        std::fs::write(&planted, "").unwrap();
        assert_eq!(moves::verdict(&usual, &independent, &at).unwrap(), verdict);
    }
}
