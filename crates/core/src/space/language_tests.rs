//! Tests of the language of constraints over knobs (`language.rs`), such as `a + 2 * b == 13`: that
//! texts mean what they mean in Python, that errors point to their place, that printed terms parse
//! back, and that no text makes the parser panic.

use super::*;
use crate::space::{Role, Space, SpaceError};
use proptest::prelude::*;

fn knobs() -> Vec<Knob> {
    vec![
        Knob::ints("a", Role::Choice, 0..8),
        Knob::ints("b", Role::Choice, [1, 2, 3, 4, 6, 8]),
        Knob::ints("block_x", Role::Choice, [16, 32, 48]),
        Knob::words("layout", Role::Choice, &["plain", "packed"]),
    ]
}

fn parse(text: &str) -> Result<Term, TextError> {
    Term::parse(text, Names { knobs: &knobs(), constants: &[("n".to_string(), 64)] })
}

/// Whether a constraint holds of `a`, `b`, `block_x` and the position of `layout`.
fn holds(t: &Term, point: [i64; 4]) -> bool {
    let bound = ["a", "b", "block_x", "layout"]
        .iter()
        .zip(point)
        .try_fold(t.clone(), |t, (k, v)| t.bind(k, v));
    matches!(bound, Some(Term::Const(c)) if c != 0)
}

#[test]
fn it_means_what_python_means() {
    for (text, want) in [
        ("a + 2 * b == 13", true),
        ("a // 2 == 2 and a % 2 == 1", true),
        ("-a // 2 == -3 and -a % 3 == 1", true),
        ("2 ** 3 ** 2 == 512 and -2 ** 2 == -4 and 2 ** b == 16", true),
        ("a / 2 == 2.5 and 3 * (a / 2) == 7.5", true),
        ("a / b < 1.3 and a / b > 1.2", true),
        ("a % (b / 8) == 0 and block_x % ((a * b) / 5) == 0", true),
        ("a % (b / 3) == 1", true),
        ("1 <= a < b + 2 <= block_x", true),
        ("32 <= a * b <= 1024", false),
        ("3 < a > 4 != 6", true),
        ("not a == 4 and not (a == 5 and b == 5)", true),
        ("a in [1, 5, 7] and b not in (1, 2) and a in range(3, 9, 2)", true),
        ("a in []", false),
        ("a * b in [20]", true),
        ("layout == 'packed' and layout != \"plain\" and layout in ['packed']", true),
        ("'plain' == layout", false),
        ("4 divides block_x and not a divides block_x and b divides n", true),
        ("min(a, b, 3) == 3 and max(a, b) == 5 and abs(b - a * 2) == 6", true),
        ("min(a / 2, b / 2) == 2 and max(a / -2, b / -2) == -2", true),
        ("min(a / -2, 0) < -2.4", true),
        ("a", true),
        ("a - 5", false),
        ("a == 5 || b == 9 && !(a == 5)", true),
        ("True and not False", true),
        ("(a > 3) + (b > 3) + (b > 4) == 2", true),
        ("a > 4 or 1 / 0 == 1", true),
        ("1 / (a - 5) < 1", false),
        ("not 1 / (a - 5) < 1", false),
        ("not a % (b - 4) == 0", false),
        ("1.5e1 == 15", true),
        ("a == 5 # a comment", true),
        ("a ==\n  5", true),
    ] {
        let t = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(holds(&t, [5, 4, 32, 1]), want, "{text}: {t}");
    }
}

#[test]
fn errors_point_and_suggest() {
    for (text, want) in [
        ("", "line 1, column 1: expected a condition, found nothing"),
        ("blok_x > 3", "line 1, column 1: there is no knob `blok_x` (did you mean `block_x`?)"),
        (
            "a > 3 and\n  blockx > 2",
            "line 2, column 3: there is no knob `blockx` (did you mean `block_x`?)",
        ),
        (
            "a = 3",
            "line 1, column 3: expected an operator or the end, found `=` (equality is `==`)",
        ),
        ("a + ", "line 2, column 1: expected a number, a knob or `(`, found the end"),
        ("(a + 1", "line 2, column 1: expected `)`, found the end"),
        (
            "layout == 'pakced'",
            "line 1, column 11: `layout` has no value 'pakced' (did you mean `packed`?)",
        ),
        (
            "layout < 'plain'",
            "line 1, column 10: the words of `layout` have no order: compare with `==`, `!=` or \
             `in`",
        ),
        (
            "a + 'x' == 2",
            "line 1, column 5: 'x' is no number; a text can only be compared with a knob",
        ),
        ("a == 'x", "line 1, column 6: the quote ' is not closed"),
        ("a in 3", "line 1, column 6: expected a list like `[1, 2, 4]`, found `3`"),
        ("a not 3", "line 1, column 7: expected `in` after `not`, found `3`"),
        ("min(a) > 1", "line 1, column 6: `min` takes two arguments or more"),
        ("a in range(0, 9999999999)", "line 1, column 6: this range has more than 1048576 numbers"),
        (
            "a in range(1, 2, 0)",
            "line 1, column 6: `range` takes a start, an end and a step other than zero",
        ),
        ("2 ** (1 / 2) > a", "line 1, column 6: an exponent must be a whole number"),
        ("a @ b", "line 1, column 3: expected an operator or the end, found `@`"),
        ("a $ b", "line 1, column 3: unexpected character `$`"),
    ] {
        let got = parse(text).map_or_else(|e| e.to_string(), |t| t.to_string());
        assert_eq!(got, want, "{text}");
    }
}

#[test]
fn hostile_sizes_end_in_a_message() {
    let deep = format!("{}a{}", "(".repeat(5000), ")".repeat(5000));
    assert!(parse(&deep).unwrap_err().message.contains("too deeply"));
    assert!(parse(&"not ".repeat(5000)).unwrap_err().message.contains("too deeply"));
    let fractions = vec!["a / b"; 300].join(" + ");
    assert!(parse(&fractions).unwrap_err().message.contains("too large"));
    let extremes = (0..40).fold("a / b".to_string(), |s, _| format!("min({s}, a / b)"));
    assert!(parse(&extremes).unwrap_err().message.contains("too large"));
    assert!(parse("a + b - block_x in range(1000000)").unwrap_err().message.contains("too large"));
    // What was read can be read again when it was printed, however it grew.
    for text in [
        "min(min(0, min(0, (0/0))), 0)",
        "min(a/b, b/a, a/b) > 0",
        "max(1/a, max(1/b, max(1/a, 1/b))) < 3",
    ] {
        assert!(parse(&parse(text).unwrap().to_string()).is_ok(), "{text}");
    }
    // Many plain conditions are no trouble.
    assert!(parse(&vec!["a * b < 900"; 300].join(" and ")).is_ok());
}

#[test]
fn contradictions_and_division_by_zero_leave_nothing() {
    for text in ["a > 9", "a < b and b < a", "1 % (a - a) == 0", "a / 0 == a / 0"] {
        assert_eq!(
            Space::new(knobs(), &[parse(text).unwrap()]).unwrap_err(),
            SpaceError::Empty,
            "{text}"
        );
    }
    let long = Knob::ints("k", Role::Choice, 0..1_000_000);
    assert_eq!(
        Space::new(vec![long], &[]).unwrap_err().to_string(),
        "knob `k` has 1000000 values; 65535 are the most"
    );
}

#[test]
fn lists_of_values() {
    let ints = |v: &[i64]| v.iter().map(|&i| Value::Int(i)).collect::<Vec<_>>();
    for (text, want) in [
        ("[1, 2, 4]", ints(&[1, 2, 4])),
        ("[32 * i for i in range(1, 4)]", ints(&[32, 64, 96])),
        ("[1] + [2 * i for i in range(1, 3)]", ints(&[1, 2, 4])),
        ("[2**i for i in [0, 3]]", ints(&[1, 8])),
        ("range(0, 6, 2)", ints(&[0, 2, 4])),
        ("['a', \"b\"]", vec![Value::Word("a".into()), Value::Word("b".into())]),
        ("[True, False]", ints(&[1, 0])),
        ("[]", vec![]),
    ] {
        assert_eq!(parse_values(text, &[]).unwrap(), want, "{text}");
    }
    for (text, want) in [
        ("[1, 2", "line 2, column 1: expected `]`, found the end"),
        ("[x]", "line 1, column 2: there is no knob `x`"),
        ("[1 / 2]", "line 1, column 2: expected a whole number"),
        ("[1 // i for i in range(2)]", "line 1, column 2: this has no value for i = 0"),
        ("3", "line 1, column 1: expected `[`, found `3`"),
    ] {
        let e = parse_values(text, &[]).unwrap_err().to_string();
        assert!(e.starts_with(want), "{text}: {e}");
    }
}

/// A made space of 10^12 raw combinations and a million legal ones opens fast and is counted
/// exactly: four knobs of a thousand values, each tied to the one before.
#[test]
fn a_huge_product_with_few_legal_points_is_counted_exactly() {
    let knobs: Vec<Knob> =
        (0..4).map(|k| Knob::ints(format!("k{k}"), Role::Choice, 0..1000)).collect();
    let names = Names { knobs: &knobs, constants: &[] };
    let texts = ["k2 == (k0 + k1) % 1000", "k3 == (3 * k2 + 7) % 1000"];
    let constraints: Vec<Term> = texts.iter().map(|t| Term::parse(t, names).unwrap()).collect();
    let s = Space::new(knobs.clone(), &constraints).unwrap();
    assert_eq!((s.raw_size(), s.len()), (1e12, 1_000_000));
    assert_eq!(s.rank(&s.nth(123_456)), Some(123_456));
}

fn text() -> impl proptest::strategy::Strategy<Value = String> {
    let leaf = prop_oneof![
        (0i64..20).prop_map(|i| i.to_string()),
        prop::sample::select(vec!["a", "b", "block_x"]).prop_map(String::from)
    ];
    leaf.prop_recursive(4, 24, 2, |t| {
        let signs = vec![
            "+",
            "-",
            "*",
            "/",
            "//",
            "%",
            "<",
            "<=",
            ">",
            ">=",
            "==",
            "!=",
            " and ",
            " or ",
            " divides ",
        ];
        prop_oneof![
            (t.clone(), prop::sample::select(signs), t.clone())
                .prop_map(|(a, s, b)| format!("({a}{s}{b})")),
            (prop::sample::select(vec!["min", "max"]), t.clone(), t.clone())
                .prop_map(|(f, a, b)| format!("{f}({a}, {b})")),
            t.clone().prop_map(|t| format!("(not {t})")),
            (t.clone(), t.clone(), t).prop_map(|(a, b, c)| format!("({a} in [{b}, {c}])")),
        ]
    })
}

proptest! {
    #[test]
    fn it_prints_and_parses_back(text in text(), point in (0i64..8, 1i64..9, 16i64..49)) {
        let Ok(t) = parse(&text) else { return Ok(()) };
        let again = parse(&t.to_string())
            .map_err(|e| TestCaseError::fail(format!("{text} -> {t}: {e}")))?;
        let point = [point.0, point.1, point.2, 0];
        prop_assert_eq!(holds(&t, point), holds(&again, point), "{} -> {}", text, t);
    }

    #[test]
    fn bounds_hold(text in text()) {
        let Ok(t) = parse(&text) else { return Ok(()) };
        let knobs = knobs();
        let Ok(space) = Space::new(knobs.clone(), &[]) else { return Ok(()) };
        let range = |name: &str| {
            let k = knobs.iter().find(|k| k.name == name).unwrap();
            let n = |v: &Value| if let Value::Int(i) = v { *i } else { 0 };
            (n(&k.values[0]), n(k.values.last().unwrap()))
        };
        if let Some((low, high)) = t.bounds(&range) {
            for c in space.iter() {
                let bind = |t: Term, (k, v): (&Knob, &Value)| {
                    t.bind(&k.name, if let Value::Int(i) = v { *i } else { 0 })
                };
                let Some(Term::Const(x)) = c.iter().try_fold(t.clone(), bind) else {
                    return Err(TestCaseError::fail(format!("{t} at {c} means nothing")));
                };
                prop_assert!(low <= x && x <= high, "{} at {}: {} is not in \
                    {}..{}", t, c, x, low, high);
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[ab1-3 ()\\[\\]<>=!+*/%,.'\"a-f|&-]{0,40}") {
        let _ = parse(&text);
        let _ = parse_values(&text, &[]);
    }
}
