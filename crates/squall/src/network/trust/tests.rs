//! Planted faults of a compiler: texts that a macro of the usual build alone makes wrong ones.

use super::*;
use crate::settings::TargetRequest;
use crate::target_context::Context;
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
    let keys: Vec<String> = plain
        .sources
        .iter()
        .zip(&plain.calls)
        .map(|(s, c)| key(s, &c.1, &here.toolchain))
        .collect();
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
    let other = key(&plain.sources[1], &plain.calls[1].1, &there.toolchain);
    assert_ne!(other, keys[1], "other flags have another verdict");
}
