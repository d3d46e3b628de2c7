//! What a family of kernels says of a problem: its space, its rules, its derived numbers.

use super::*;
use crate::space::{Knob, Names, Role, Term, Value};
use proptest::prelude::*;

fn problem(a: i64, b: i64, precision: &str) -> Problem {
    Problem {
        solver: "Toy".into(),
        device: "gfx900".into(),
        words: vec![("precision".into(), precision.into())],
        numbers: vec![("a".into(), a), ("b".into(), b)],
        key: format!("{a}-{b}-{precision}"),
        layer: format!("{a}-{b}"),
    }
}

fn knob(name: &str, values: &[i64], spare: &[i64]) -> FamilyKnob {
    let main = values.iter().filter(|v| !spare.contains(v)).copied().collect();
    FamilyKnob { name: name.into(), values: values.into(), main, spare: spare.into() }
}

fn texts(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(n, t)| (n.to_string(), t.to_string())).collect()
}

fn toy() -> FamilySpec {
    FamilySpec {
        solver: "Toy".into(),
        words: vec![("precision".into(), vec!["FP32".into(), "FP16".into()])],
        numbers: vec![("a".into(), None), ("b".into(), Some(7))],
        knobs: vec![knob("x", &[1, 2, 4, 8], &[1]), knob("y", &[1, 2, 3, 4, 5], &[1])],
        definitions: texts(&[("e", "1 + (precision == 'FP16')"), ("tile", "x * y")]),
        legal: vec!["tile <= a".into(), "b % x == 0".into(), "e divides y or x == 1".into()],
        tuned: vec!["y != 3".into()],
        features: texts(&[("tiles", "-(-a // tile)"), ("by_zero", "a // (x - 2)"), ("problem", "a * b")]),
        kernel: vec!["min(tile, 4)".into()],
        listed: Vec::new(),
    }
}

#[test]
fn the_tuner_space_is_the_legal_part_of_the_main_set_else_of_the_spare_set() {
    let f = Family::new(toy()).unwrap();
    let space = |p: &Problem| {
        let c = f.instance(p).unwrap().candidates();
        (c.table.chunks(2).map(|r| f.values(r)).collect::<Vec<_>>(), c.spare)
    };
    assert_eq!(space(&problem(8, 4, "FP32")), (vec![vec![2, 2], vec![2, 4], vec![4, 2]], false));
    assert_eq!(space(&problem(8, 3, "FP32")), (vec![vec![1, 1]], true), "8 x 3: no main x divides 3");
    assert_eq!(space(&problem(0, 3, "FP32")), (vec![], true));
    let i = f.instance(&problem(8, 4, "FP16")).unwrap();
    assert!(i.is_legal(&[1, 3]) && !i.is_legal(&[2, 3]) && !i.is_legal(&[1]) && !i.is_legal(&[3, 1]) && !i.is_legal(&[8, 2]));
    assert!(f.is_legal(&problem(8, 4, "FP16"), &[2, 4]));
    assert_eq!(i.space().unwrap().len(), 3);
}

#[test]
fn features_and_kernels_of_rows() {
    let f = Family::new(toy()).unwrap();
    let i = f.instance(&problem(9, 4, "FP32")).unwrap();
    let c = i.candidates();
    let rows: Vec<Vec<i64>> = c.table.chunks(2).map(|r| f.values(r)).collect();
    assert_eq!(rows, [[2, 2], [2, 4], [4, 2]]);
    assert_eq!(i.features(&c.table), [3.0, 0.0, 36.0, 2.0, 0.0, 36.0, 2.0, 4.0, 36.0]);
    assert_eq!(i.kernel(c.row(0)), [4]);
    assert_eq!(i.kernel(c.row(0)), i.kernel(c.row(1)));
    assert_eq!((c.find(c.row(1)), c.find(&[0, 0])), (Some(1), None));
}

#[test]
fn what_a_family_cannot_take_is_said() {
    let f = Family::new(toy()).unwrap();
    let refused = |p: &Problem| f.instance(p).err().unwrap().to_string();
    assert_eq!(refused(&problem(1, 1, "INT8")), "Toy knows no precision `INT8`; it knows FP32, FP16");
    let mut p = problem(1, 1, "FP32");
    p.numbers.clear();
    assert_eq!(refused(&p), "Toy takes no problem without `a`");
    let wrong = |change: fn(&mut FamilySpec)| {
        let mut s = toy();
        change(&mut s);
        Family::new(s).unwrap_err().to_string()
    };
    assert!(wrong(|s| s.legal.push("x <= q".into())).contains("there is no knob `q`"));
    assert!(wrong(|s| s.knobs[0].values.reverse()).contains("must ascend"));
    assert!(wrong(|s| s.definitions.push(("a".into(), "1".into()))).contains("taken twice"));
}

#[test]
fn a_learned_family_knows_what_it_saw() {
    let e = |values: &[i64]| Example { problem: problem(1, 1, "FP32"), values: values.into() };
    let all = [e(&[3, 1]), e(&[1, 2]), e(&[3, 1]), e(&[9])];
    let (f, odd) = Family::learned("Other", &all.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!((odd, f.is_constrained()), (1, false));
    let p = problem(5, 5, "BF16");
    let c = f.instance(&p).unwrap().candidates();
    assert_eq!(c.table.chunks(2).map(|r| f.values(r)).collect::<Vec<_>>(), [[1, 2], [3, 1]]);
    assert!(f.is_legal(&p, &[3, 1]) && !f.is_legal(&p, &[3, 2]) && !f.is_legal(&p, &[9]));
    assert!(Family::learned("Other", &[]).is_err());
    let text = serde_json::to_string(f.spec()).unwrap();
    assert_eq!(&serde_json::from_str::<FamilySpec>(&text).unwrap(), f.spec());
}

#[test]
fn the_fixed_split() {
    let key = "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F";
    assert_eq!((fnv1a(key.as_bytes()), fnv1a(key.as_bytes()) % 100), (0x2eef_8c02_377c_5fce, 42));
    assert_eq!(fnv1a(b"256-56-56-128-1-1-0-0-1-1-1-1-1") % 100, 84);
}

proptest! {
    /// Computing level by level is what binding one knob after another gives, but for a division by
    /// zero in a part on which the rest does not depend (`(x // 0) and 0`): which of the two sees
    /// it depends on the order in which values come.
    #[test]
    fn programs_agree_with_terms(text in expression(4), inputs in prop::array::uniform3(-3i64..9)) {
        let names = ["p", "x", "y"];
        let knobs: Vec<Knob> = names.iter().map(|n| Knob::ints(*n, Role::Choice, [0])).collect();
        let term = Term::parse(&text, Names { knobs: &knobs, constants: &[] }).unwrap();
        let want = names.iter().zip(inputs).try_fold(term.clone(), |t, (n, v)| t.bind(n, v));
        let want = match want {
            Some(Term::Const(i)) => Some(i),
            None => None,
            Some(t) => panic!("{t} is left of {text}"),
        };
        let mut program = super::program::Program::default();
        let slots: Vec<u32> = names.iter().enumerate().map(|(l, n)| program.input(n, l)).collect();
        let root = program.add(&term).unwrap();
        let schedule = program.schedule(&[root], 3);
        let mut values = program.values();
        for level in 0..3 {
            values[slots[level] as usize] = inputs[level];
            program.run(&schedule, level, &mut values);
        }
        let got = values[root as usize];
        let got = (got != i64::MIN).then_some(got);
        let divides = ["//", "%", "divides"].iter().any(|d| text.contains(d));
        prop_assert!(got == want || divides && (got.is_none() || want.is_none()), "{}: {:?}, expected {:?}", text, got, want);
    }
}

/// Random expressions over `p`, `x` and `y`.
fn expression(depth: u32) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![Just("p".to_string()), Just("x".to_string()), Just("y".to_string()), (0i64..6).prop_map(|i| i.to_string())];
    leaf.prop_recursive(depth, 24, 2, |inner| {
        let op = prop::sample::select(vec!["+", "-", "*", "//", "%", "<=", "<", "==", "!=", "and", "or", "divides"]);
        prop_oneof![
            (inner.clone(), op, inner.clone()).prop_map(|(a, o, b)| format!("(({a}) {o} ({b}))")),
            inner.clone().prop_map(|a| format!("(not ({a}))")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("max({a}, {b})")),
        ]
    })
}

#[test]
fn values_of_spaces_are_the_family_s() {
    let f = Family::new(toy()).unwrap();
    let s = f.space(&problem(8, 4, "FP32")).unwrap();
    let all: Vec<Vec<Value>> = s.iter().map(|c| c.iter().map(|(_, v)| v.clone()).collect()).collect();
    assert_eq!(all[2], [Value::Int(4), Value::Int(2)]);
}
