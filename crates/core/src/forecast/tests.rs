//! Tests of the kernel families of MIOpen's solvers (`family.rs`, `program.rs`, `columns.rs`): the
//! tuner space of small made families, their rules and derived features, and that evaluation by
//! prefixes and by columns gives the same numbers as the expressions' definition.

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
        features: texts(&[
            ("tiles", "-(-a // tile)"),
            ("by_zero", "a // (x - 2)"),
            ("problem", "a * b"),
        ]),
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
    assert_eq!(
        space(&problem(8, 3, "FP32")),
        (vec![vec![1, 1]], true),
        "8 x 3: no main x divides 3"
    );
    assert_eq!(space(&problem(0, 3, "FP32")), (vec![], true));
    let i = f.instance(&problem(8, 4, "FP16")).unwrap();
    assert!(
        i.is_legal(&[1, 3])
            && !i.is_legal(&[2, 3])
            && !i.is_legal(&[1])
            && !i.is_legal(&[3, 1])
            && !i.is_legal(&[8, 2])
    );
    assert!(f.is_legal(&problem(8, 4, "FP16"), &[2, 4]));
    assert_eq!(i.space().unwrap().len(), 3);
    for (a, b, precision) in [(8, 4, "FP32"), (8, 3, "FP32"), (9, 4, "FP16"), (0, 3, "FP32")] {
        let i = f.instance(&problem(a, b, precision)).unwrap();
        let all: Vec<Vec<i64>> = i.candidates().table.chunks(2).map(|r| f.values(r)).collect();
        for x in 0..10 {
            for y in 0..7 {
                assert_eq!(
                    i.is_candidate(&[x, y]),
                    all.contains(&vec![x, y]),
                    "{a}, {b}: {x}, {y}"
                );
            }
        }
    }
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
    assert_eq!(
        refused(&problem(1, 1, "INT8")),
        "Toy knows no precision `INT8`; it knows FP32, FP16"
    );
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
    /// Computing level by level is what the term means, and what binding one knob after another
    /// gives. Where a part of the term is undefined, binding may meet it earlier or pass it by (of
    /// `(x // 0) and 0` it depends on which value comes first), and then one of the two may be
    /// undefined where the other is not; but what both define is the same.
    #[test]
    fn programs_agree_with_terms(text in expression(4), inputs in prop::array::uniform3(-3i64..9)) {
        let (term, program, slots, root) = compiled(&text);
        let want = NAMES.iter().zip(inputs).try_fold(term.clone(), |t, (n, v)| t.bind(n, v));
        let want = match want {
            Some(Term::Const(i)) => Some(i),
            None => None,
            Some(t) => panic!("{t} is left of {text}"),
        };
        let schedule = program.schedule(&[root], 3);
        let mut values = program.values();
        for level in 0..3 {
            values[slots[level] as usize] = inputs[level];
            program.run(&schedule, level, &mut values);
        }
        let got = values[root as usize];
        let got = (got != i64::MIN).then_some(got);
        let mut undefined = 0;
        let meant = meaning(&term, &inputs, &mut undefined);
        prop_assert_eq!(got, meant, "{}", &text);
        if undefined == 0 || want.is_some() && got.is_some() {
            prop_assert_eq!(want, got, "{}", &text);
        }
    }

    /// A whole tree at once is the same as point by point.
    #[test]
    fn columns_agree_with_points(
        text in expression(4),
        p in -3i64..9,
        tried in prop::array::uniform2(prop::collection::vec(-3i64..9, 1..5)),
        filter: bool,
    ) {
        let (_, program, slots, root) = compiled(&text);
        let schedule = program.schedule(&[root], 3);
        let mut base = program.values();
        base[slots[0] as usize] = p;
        program.run(&schedule, 0, &mut base);
        let (mut want, mut large) = (Vec::new(), false);
        for &x in &tried[0] {
            for &y in &tried[1] {
                let mut values = base.clone();
                values[slots[1] as usize] = x;
                program.run(&schedule, 1, &mut values);
                values[slots[2] as usize] = y;
                program.run(&schedule, 2, &mut values);
                let at = values[root as usize];
                // What only the root reads may be undefined by its size.
                large |= values.iter().any(|v| *v == i64::MIN || v.abs() > 1 << 51);
                if !(filter && program.level(root) == 2 && (at == 0 || at == i64::MIN)) {
                    want.push((x, y, (at != i64::MIN).then_some(at as f64)));
                }
            }
        }
        let all = || -> Result<Vec<f64>, columns::TooLarge> {
            let mut columns = columns::Columns::new(&program, &base)?;
            for k in 0..2 {
                let values = tried[k].iter().enumerate();
                let pairs: Vec<(u16, i64)> = values.map(|(i, v)| (i as u16, *v)).collect();
                columns.grow(slots[k + 1], &pairs)?;
                columns.run(&schedule)?;
            }
            if filter && program.level(root) == 2 {
                columns.keep(&[root]);
            }
            let numbers = columns.numbers(root);
            let row = |r: &[u16]| (tried[0][r[0] as usize], tried[1][r[1] as usize]);
            let rows: Vec<(i64, i64)> = columns.table().chunks(2).map(row).collect();
            let wanted: Vec<(i64, i64)> = want.iter().map(|w| (w.0, w.1)).collect();
            assert_eq!(rows, wanted, "{text}");
            Ok(numbers)
        };
        match all() {
            Ok(numbers) => for (x, w) in numbers.iter().zip(&want) {
                prop_assert_eq!((!x.is_nan()).then_some(*x), w.2, "{} at {:?}", &text, (p, w));
            },
            Err(columns::TooLarge) => prop_assert!(large, "{} with p = {p} was given up", text),
        }
    }
}

const NAMES: [&str; 3] = ["p", "x", "y"];

/// An expression over [`NAMES`] as a term and as a program: with the nodes of its inputs, of levels
/// 0, 1 and 2, and of its value.
fn compiled(text: &str) -> (Term, super::program::Program, Vec<u32>, u32) {
    let knobs: Vec<Knob> = NAMES.iter().map(|n| Knob::ints(*n, Role::Choice, [0])).collect();
    let term = Term::parse(text, Names { knobs: &knobs, constants: &[] }).unwrap();
    let mut program = super::program::Program::default();
    let slots: Vec<u32> = NAMES.iter().enumerate().map(|(l, n)| program.input(n, l)).collect();
    let root = program.add(&term).unwrap();
    (term, program, slots, root)
}

/// What a term means, by its definition; counts the parts that are undefined, those on which
/// nothing depends among them.
fn meaning(t: &Term, inputs: &[i64; 3], undefined: &mut usize) -> Option<i64> {
    let mut of = |t: &Term| meaning(t, inputs, undefined);
    let floor = |a: i64, b: i64| (b != 0).then(|| (a as f64 / b as f64).floor() as i64);
    let out = match t {
        Term::Const(i) => Some(*i),
        Term::Knob(k) => NAMES.iter().position(|n| n == k).map(|i| inputs[i]),
        Term::And(v) | Term::Or(v) => {
            let parts: Vec<Option<i64>> = v.iter().map(&mut of).collect();
            if matches!(t, Term::Or(_)) {
                return Some(i64::from(parts.iter().any(|p| p.is_some_and(|p| p != 0))));
            }
            return match parts.into_iter().find(|p| p.is_none_or(|p| p == 0)) {
                Some(decides) => decides,
                None => Some(1),
            };
        }
        Term::Not(a) => of(a).map(|a| i64::from(a == 0)),
        Term::Sum(v) => {
            let parts: Vec<Option<i64>> = v.iter().map(&mut of).collect();
            parts.into_iter().try_fold(0i64, |s, p| s.checked_add(p?))
        }
        Term::Product(v) => {
            let parts: Vec<Option<i64>> = v.iter().map(&mut of).collect();
            parts.into_iter().try_fold(1i64, |s, p| s.checked_mul(p?))
        }
        Term::CeilDiv(a, b)
        | Term::FloorDiv(a, b)
        | Term::Mod(a, b)
        | Term::Pow(a, b)
        | Term::Min(a, b)
        | Term::Max(a, b)
        | Term::Le(a, b)
        | Term::Eq(a, b) => {
            let (a, b) = (of(a), of(b));
            (|| {
                let (a, b) = (a?, b?);
                match t {
                    Term::CeilDiv(..) => floor(-a, b).map(|q| -q),
                    Term::FloorDiv(..) => floor(a, b),
                    Term::Mod(..) => floor(a, b).map(|q| a - b * q),
                    Term::Pow(..) => a.checked_pow(u32::try_from(b).ok()?),
                    Term::Min(..) => Some(a.min(b)),
                    Term::Max(..) => Some(a.max(b)),
                    Term::Le(..) => Some(i64::from(a <= b)),
                    _ => Some(i64::from(a == b)),
                }
            })()
        }
    };
    *undefined += usize::from(out.is_none());
    out
}

/// Random expressions over `p`, `x` and `y`.
fn expression(depth: u32) -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("p".to_string()),
        Just("x".to_string()),
        Just("y".to_string()),
        (0i64..6).prop_map(|i| i.to_string())
    ];
    leaf.prop_recursive(depth, 24, 2, |inner| {
        let op = prop::sample::select(vec![
            "+", "-", "*", "//", "%", "<=", "<", "==", "!=", "and", "or", "divides",
        ]);
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
    let all: Vec<Vec<Value>> =
        s.iter().map(|c| c.iter().map(|(_, v)| v.clone()).collect()).collect();
    assert_eq!(all[2], [Value::Int(4), Value::Int(2)]);
}
