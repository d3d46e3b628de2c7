//! Tests of spaces against brute force: on small random spaces the decision diagram must list
//! exactly the configurations that filtering all combinations leaves. Larger spaces are sampled,
//! renamed knobs are read, and the nearest legal configuration is checked.

use super::*;
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

fn numbers(indices: &[usize], knobs: &[Knob]) -> Vec<i64> {
    indices
        .iter()
        .zip(knobs)
        .map(|(&i, k)| if let Value::Int(n) = k.values[i] { n } else { i as i64 })
        .collect()
}

fn filter(knobs: &[Knob], constraints: &[Term]) -> Vec<Vec<usize>> {
    let mut out = Vec::new();
    let mut point = vec![0; knobs.len()];
    loop {
        let values = numbers(&point, knobs);
        let legal = constraints.iter().all(|t| {
            let bound =
                knobs.iter().zip(&values).try_fold(t.clone(), |t, (k, &v)| t.bind(&k.name, v));
            matches!(bound, Some(Term::Const(c)) if c != 0)
        });
        if legal {
            out.push(point.clone());
        }
        let Some(i) = (0..point.len()).rev().find(|&i| point[i] + 1 < knobs[i].values.len()) else {
            return out;
        };
        point[i] += 1;
        point[i + 1..].fill(0);
    }
}

fn term() -> impl Strategy<Value = Term> {
    let leaf = prop_oneof![
        (-3i64..9).prop_map(Term::Const),
        (0usize..4).prop_map(|k| Term::knob(format!("k{k}")))
    ];
    leaf.prop_recursive(3, 12, 3, |t| {
        let two = (t.clone(), t.clone()).prop_map(|(a, b)| (Box::new(a), Box::new(b)));
        prop_oneof![
            prop::collection::vec(t.clone(), 1..3).prop_map(Term::Sum),
            prop::collection::vec(t.clone(), 1..3).prop_map(Term::Product),
            two.clone().prop_map(|(a, b)| Term::CeilDiv(a, b)),
            two.clone().prop_map(|(a, b)| Term::FloorDiv(a, b)),
            two.clone().prop_map(|(a, b)| Term::Mod(a, b)),
            two.clone().prop_map(|(a, b)| Term::Min(a, b)),
            two.clone().prop_map(|(a, b)| Term::Max(a, b)),
            two.clone().prop_map(|(a, b)| Term::Le(a, b)),
            two.prop_map(|(a, b)| Term::Eq(a, b)),
            prop::collection::vec(t.clone(), 1..3).prop_map(Term::And),
            prop::collection::vec(t.clone(), 1..3).prop_map(Term::Or),
            t.prop_map(|t| Term::Not(Box::new(t))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn the_diagram_is_the_filter(
        sizes in prop::collection::vec(1usize..5, 4),
        constraints in prop::collection::vec(term(), 0..4),
    ) {
        let knob = |(i, &n): (usize, &usize)| {
            let values = (0..n as i64).map(|v| v * (i as i64 + 1));
            Knob::ints(format!("k{i}"), Role::Choice, values)
        };
        let knobs: Vec<Knob> = sizes.iter().enumerate().map(knob).collect();
        let want = filter(&knobs, &constraints);
        match Space::new(knobs.clone(), &constraints) {
            Err(e) => prop_assert!(want.is_empty() && e == SpaceError::Empty, "{e}"),
            Ok(space) => {
                prop_assert_eq!(space.len(), want.len() as u128);
                let got: Vec<Vec<usize>> = space.iter().map(|c| c.indices().collect()).collect();
                prop_assert_eq!(&got, &want);
                for c in space.iter() {
                    prop_assert_eq!(&space.parse(&c.to_string()).unwrap(), &c);
                }
                // The cursor reaches all and only those, and never a dead end.
                let mut seen = Vec::new();
                let mut stack = vec![space.open()];
                while let Some(p) = stack.pop() {
                    if p.next_knob().is_none() {
                        seen.push(p.finish().unwrap().indices().collect::<Vec<_>>());
                        continue;
                    }
                    prop_assert!(p.allowed().len() > 0);
                    for v in p.allowed() {
                        let mut q = p.clone();
                        prop_assert!(q.bind(v));
                        stack.push(q);
                    }
                }
                seen.sort();
                prop_assert_eq!(&seen, &want);
            }
        }
    }
}

/// A tiling space of three axes and two reductions with more than 10^9 raw combinations.
fn tiling() -> Space {
    let axes = [("k", 64), ("p", 56), ("q", 56)];
    let mut knobs = Vec::new();
    let mut constraints = Vec::new();
    for level in (0..3).rev() {
        for (axis, extent) in axes {
            knobs.push(Knob::ints(
                format!("{axis}{level}"),
                Role::Tile { axis: axis.into(), level },
                (1..=64).filter(|d| extent % d == 0),
            ));
        }
    }
    for r in ["c", "r", "s"] {
        knobs.push(Knob::ints(
            r,
            Role::Tile { axis: r.into(), level: 0 },
            [1, 2, 4, 8, 16, 32, 64],
        ));
    }
    for (axis, extent) in axes {
        constraints
            .push(Term::product((0..3).map(|l| Term::knob(format!("{axis}{l}")))).divides(extent));
    }
    constraints.push(Term::product(["k2", "p2", "q2"].map(Term::knob)).at_most(512));
    Space::new(knobs, &constraints).unwrap()
}

#[test]
fn a_large_space_opens_small_and_samples_evenly() {
    let s = tiling();
    assert!(s.raw_size() > 1e9, "{s:?}");
    assert!(s.nodes() < 20_000, "{} nodes", s.nodes());
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    // Even over the legal set: the share of each first value is its share of the count.
    let n = 20_000;
    let mut hits = vec![0u32; s.knobs()[0].values.len()];
    for _ in 0..n {
        let c = s.sample(&mut rng);
        assert!(s.contains(&c.indices().collect::<Vec<_>>()));
        hits[c.indices().next().unwrap()] += 1;
    }
    let open = s.open();
    for (v, &h) in hits.iter().enumerate() {
        let p = open.count(v) as f64 / s.len() as f64;
        let sigma = (f64::from(n) * p * (1.0 - p)).sqrt();
        assert!(
            (f64::from(h) - f64::from(n) * p).abs() < 5.0 * sigma + 1.0,
            "value {v}: {h} of {n}, expected share {p}"
        );
    }
}

#[test]
fn samples_are_the_same_for_a_seed_on_every_machine() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    assert_eq!(
        tiling().sample(&mut rng).to_string(),
        tiling().sample(&mut Xoshiro256PlusPlus::seed_from_u64(7)).to_string()
    );
}

#[test]
fn errors_say_what_is_wrong() {
    let k = |v: &[i64]| Knob::new("a", Role::Choice, v.iter().map(|&i| Value::Int(i)).collect());
    assert_eq!(Space::new(vec![k(&[])], &[]).unwrap_err(), SpaceError::EmptyKnob("a".into()));
    assert_eq!(
        Space::new(vec![k(&[2, 1])], &[]).unwrap_err(),
        SpaceError::UnsortedKnob("a".into())
    );
    assert_eq!(
        Space::new(vec![k(&[1]), k(&[1])], &[]).unwrap_err(),
        SpaceError::DuplicateKnob("a".into())
    );
    assert_eq!(
        Space::new(vec![k(&[1])], &[Term::knob("b")]).unwrap_err(),
        SpaceError::UnknownKnob("b".into())
    );
    assert_eq!(
        Space::new(vec![k(&[1])], &[Term::knob("a").equals(2)]).unwrap_err(),
        SpaceError::Empty
    );
    let s = Space::new(vec![k(&[1, 2])], &[]).unwrap();
    assert!(s.parse("a=3").unwrap_err().to_string().contains("no value `3`"));
    assert!(s.parse("").unwrap_err().to_string().contains("`a` is missing"));
}

#[test]
fn the_nearest_configuration_is_legal_and_keeps_what_it_can() {
    let tile = |axis: &str| Role::Tile { axis: axis.into(), level: 0 };
    let space = |x: i64| {
        let knobs = vec![
            Knob::ints("x0", tile("x"), (1..=x).filter(|v| x % v == 0)),
            Knob::ints("y0", tile("y"), [1, 2, 4, 8, 16]),
            Knob::words("layout", Role::Layout, &["plain", "packed"]),
        ];
        Space::new(knobs, &[Term::product([Term::knob("x0"), Term::knob("y0")]).at_most(64)])
            .unwrap()
    };
    let (from, to) = (space(64), space(56));
    assert_eq!(
        from.nearest("layout=packed,x0=16,y0=4").unwrap().to_string(),
        "x0=16,y0=4,layout=packed"
    );
    assert_eq!(
        to.nearest("x0=16,y0=4,layout=packed").unwrap().to_string(),
        "x0=14,y0=4,layout=packed"
    );
    // What no longer fits gives way to the knobs before it.
    assert_eq!(
        to.nearest("x0=64,y0=16,layout=plain").unwrap().to_string(),
        "x0=56,y0=1,layout=plain"
    );
    // Strangers and gaps are no errors.
    assert!(to.nearest("other=3,layout=woven").is_some());
    for c in from.iter() {
        assert_eq!(from.nearest(&c.to_string()), Some(c));
    }
}

/// A space whose `copy` and `rows` were one knob, `pad`, and whose `ahead` was a number.
fn renamed() -> Space {
    let copy = Knob::words("copy", Role::Choice, &["threads", "tma"]);
    let rows = Knob::words("rows", Role::Layout, &["dense", "padded"]);
    let ahead = Knob::scale("ahead", Role::Choice, &["none", "slice", "step"]);
    let knobs = vec![
        Knob::ints("stages", Role::Choice, 1..=3),
        ahead.formerly("ahead", &[("0", "none"), ("1", "slice"), ("2", "step")]),
        copy.formerly("pad", &[("0", "threads"), ("1", "threads"), ("2", "tma")]),
        rows.formerly("pad", &[("0", "dense"), ("1", "padded"), ("2", "dense")]),
    ];
    let both = Term::product([knobs[2].is("tma"), knobs[3].is("padded")]).equals(0);
    Space::new(knobs, &[both]).unwrap()
}

#[test]
fn texts_from_before_a_knob_was_renamed_are_read() {
    let s = renamed();
    for (old, new) in [
        ("stages=1,ahead=0,pad=0", "stages=1,ahead=none,copy=threads,rows=dense"),
        ("pad=1,stages=3,ahead=1", "stages=3,ahead=slice,copy=threads,rows=padded"),
        ("stages=2,ahead=2,pad=2", "stages=2,ahead=step,copy=tma,rows=dense"),
    ] {
        assert_eq!(s.parse(old).unwrap().to_string(), new);
        assert_eq!(s.nearest(old).unwrap().to_string(), new);
        assert_eq!(s.parse(new).unwrap().to_string(), new);
        // What was said before can be asked for, as files of predictors do.
        for (knob, value) in old.split(',').filter_map(|pair| pair.split_once('=')) {
            let c = s.parse(new).unwrap();
            let number = c.int(knob).map(|i| i.to_string());
            assert_eq!(number.as_deref().or(c.formerly(knob)), Some(value), "{knob} of {new}");
        }
    }
    // A knob's own name goes before what an older one says, wherever the two stand.
    let mixed = s.parse("pad=2,copy=threads,ahead=step,stages=1").unwrap();
    assert_eq!(mixed.to_string(), "stages=1,ahead=step,copy=threads,rows=dense");
    for (bad, why) in [
        ("stages=1,ahead=0,pad=3", "there is no knob `pad`"),
        ("stages=1,ahead=3,pad=1", "`ahead` has no value `3`"),
        ("stages=1,ahead=0", "`copy` is missing"),
        ("stages=1,ahead=0,copy=tma,rows=padded", "breaks a constraint"),
    ] {
        let said = s.parse(bad).unwrap_err().to_string();
        assert!(said.contains(why), "{bad}: {said}");
    }
}

#[test]
fn knobs_say_which_values_are_next_to_which() {
    let numbers = Knob::ints("n", Role::Choice, [1, 2, 4, 8]);
    assert_eq!([numbers.neighbours(0, 1), numbers.neighbours(2, 1)], [vec![1], vec![1, 3]]);
    assert_eq!([numbers.neighbours(1, 2), numbers.neighbours(3, 9)], [vec![3], vec![]]);
    let words = Knob::words("w", Role::Layout, &["a", "b", "c"]);
    assert_eq!([words.neighbours(1, 1), words.neighbours(1, 2)], [vec![0, 2], vec![]]);
    let scale = Knob::scale("s", Role::Choice, &["none", "some", "all"]);
    assert_eq!([scale.neighbours(0, 1), scale.neighbours(0, 2)], [vec![1], vec![2]]);
    assert!(numbers.is_ordered() && scale.is_ordered() && !words.is_ordered());
    assert_eq!([scale, words].map(|k| k.steps_between(0, 2)), [2, 1]);
}

#[test]
fn pairs_of_two_spaces_are_a_space() {
    let knobs = |n: i64| {
        vec![Knob::ints("a", Role::Choice, 1..=n), Knob::words("b", Role::Choice, &["x", "y", "z"])]
    };
    let few = Term::product([Term::knob("a"), Term::knob("b")]).at_most(3);
    let first = Space::new(knobs(4), &[few]).unwrap();
    let second = Space::new(knobs(3), &[Term::knob("a").divides(2)]).unwrap();
    let both = first.then(&second, ["one_", "two_"]).unwrap();
    assert_eq!(both.len(), first.len() * second.len());
    let pairs = first.iter().flat_map(|a| second.iter().map(move |b| (a.clone(), b)));
    for (rank, (c, (a, b))) in both.iter().zip(pairs).enumerate() {
        let indices: Vec<usize> = a.indices().chain(b.indices()).collect();
        assert_eq!(c.indices().collect::<Vec<_>>(), indices);
        assert_eq!(both.rank(&c), Some(rank as u128));
        assert_eq!(both.parse(&c.to_string()).unwrap(), c);
    }
    assert!(!both.contains(&[3, 2, 0, 0]) && !both.contains(&[0, 0, 2, 0]));
    assert!(both.parse("one_a=1,one_b=x,two_a=2,two_b=z").is_ok());
}
