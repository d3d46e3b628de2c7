//! Tests of [`Separable`], the normal form of chained convolutions and products: chains of
//! operators must compute the same numbers as the operators one after the other, their form must be
//! found, and workloads of another form must be refused.

use super::*;
use crate::TensorKind;
use crate::expr::{Binary, Expr};
use crate::operator::joined::examples::{conv, numbers};
use crate::operator::{BACK_TO_BACK, MatMul, Pool, PoolKind, chain};
use crate::workload::Stage;

/// The workload of a kind that joins these operators, where it has the form.
fn made(kind: &str, first: &Workload, others: &[&Workload]) -> Option<Workload> {
    chain(kind, first.clone(), others).ok().filter(|w| Separable::of(w).is_some())
}

#[test]
fn it_is_the_convolutions_one_after_the_other() {
    let (expand, depthwise) = (conv(3, 8, 1, 1, 1), conv(8, 8, 3, 8, 1));
    let project = conv(8, 5, 1, 1, 1);
    for list in
        [vec![&expand, &depthwise], vec![&depthwise, &project], vec![&expand, &depthwise, &project]]
    {
        let w = made(SEPARABLE, list[0], &list[1..]).unwrap();
        assert_eq!(Workload::parse(&w.to_string()).unwrap(), w);
        let ours = numbers(list[0], 0);
        let mut inputs = ours.clone();
        let mut want = list[0].evaluate(&ours);
        for next in &list[1..] {
            let theirs = numbers(next, 1);
            want = next.evaluate(&[vec![want], theirs.clone()].concat());
            inputs.extend(theirs);
        }
        assert_eq!(w.evaluate(&inputs), want, "{w}");
        let found = Separable::of(&w).unwrap();
        assert_eq!((found.batch, found.channels), (vec![2], 8));
        assert_eq!(found.windows[1].outputs, 6);
        assert_eq!(found.expand.is_some(), list[0] == &expand);
        assert_eq!(found.project.is_some(), list.last() == Some(&&project));
    }
}

/// A convolution of any window with its pooling, and two products, are of the same form.
#[test]
fn it_is_what_chunks_are_made_of() {
    let pool = |kind, stride| {
        let (pads, dilation) = ([1; 4], [1; 2]);
        let p = Pool {
            kind,
            n: 2,
            c: 8,
            h: 5,
            w: 6,
            r: 3,
            s: 3,
            stride,
            pads,
            dilation,
            positions: None,
        };
        p.workload().unwrap()
    };
    let product = |m, n, k| MatMul::plain(m, n, k, TensorKind::Weight).workload().unwrap();
    let mean = PoolKind::Average { count_padding: true };
    for (first, second, windows) in [
        (conv(3, 8, 3, 1, 1), pool(PoolKind::Max, [2; 2]), Some(Reducer::Max)),
        (conv(3, 8, 1, 1, 1), pool(mean, [1; 2]), Some(Reducer::Sum)),
        (product(7, 5, 4), product(7, 9, 5), None),
        (conv(3, 8, 1, 1, 1), conv(8, 4, 1, 1, 1), None),
    ] {
        let w = made(BACK_TO_BACK, &first, &[&second]).unwrap();
        assert_eq!(Workload::parse(&w.to_string()).unwrap(), w);
        let (ours, theirs) = (numbers(&first, 0), numbers(&second, 1));
        let want = second.evaluate(&[vec![first.evaluate(&ours)], theirs.clone()].concat());
        assert_eq!(w.evaluate(&[ours, theirs].concat()), want, "{w}");
        let found = Separable::of(&w).unwrap();
        assert_eq!(found.over.map(|o| (o.op, o.weight)), windows.map(|op| (op, None)));
        assert_eq!(found.project.is_some(), windows.is_none());
    }
    assert!(made(BACK_TO_BACK, &pool(mean, [1; 2]), &[&pool(mean, [1; 2])]).is_none());
    assert!(made(BACK_TO_BACK, &product(7, 5, 4), &[&product(7, 9, 4)]).is_none());
}

#[test]
fn others_are_refused() {
    let (expand, dense) = (conv(3, 8, 1, 1, 1), conv(8, 8, 3, 1, 1));
    assert!(made(SEPARABLE, &expand, &[&dense]).is_none());
    assert!(made(SEPARABLE, &conv(8, 8, 3, 8, 1), &[&conv(8, 8, 3, 8, 1)]).is_none());
    assert!(made(SEPARABLE, &expand, &[&expand]).is_none());
    assert!(made(SEPARABLE, &conv(8, 8, 3, 8, 1), &[]).is_none());
    // Half of the channels are summed, a channel is of the border, a weight is turned round.
    let text = |border: &str, sum: i64, bias: &str| {
        format!(
            "workload separable_conv2d\ndata X: f32[1, 3, 5, 6]\nweight W: f32[8, \
             3]\nweight D: f32[8, 3, 3]\nweight V: f32[6, 8]\nweight B: f32[6]\nstage E: \
             f32[n: 1, k: 8, p: 5, q: 6] = sum(c: 3) X[n, c, p, q] * W[k, c]\nstage P: \
             f32[n: 1, c: 8, h: 7, w: 8] = select(0 <= h - 1 < 5 and 0 <= w - 1 < \
             6{border}, E[n, c, h - 1, w - 1], 0)\nstage C: f32[n: 1, k: 8, p: 5, q: 6] = \
             sum(r: 3, s: 3) P[n, k, p + r, q + s] * D[k, r, s]\nstage F: f32[n: 1, k: 6, \
             p: 5, q: 6] = sum(c: {sum}) C[n, c, p, q] * V[k, c]\nstage T: f32[k: 6] = \
             B[{bias}]\nstage Y: f32[n: 1, k: 6, p: 5, q: 6] = F[n, k, p, q] + T[k]\noutput \
             Y"
        )
    };
    let of = |text: String| {
        // Without the stage that arranges a weight, where it does nothing.
        let plain = text.replace("stage T: f32[k: 6] = B[k]\n", "").replace("T[k]", "B[k]");
        let text = if text.contains("= B[k]") { plain } else { text };
        Separable::of(&Workload::parse(&text).expect("parses"))
    };
    assert!(of(text("", 8, "k")).is_some());
    assert!(of(text("", 4, "k")).is_none());
    assert!(of(text(" and 0 <= c < 4", 8, "k")).is_none());
    assert!(of(text("", 8, "5 - k")).is_none());
    // A frame around a frame.
    let framed = text("", 8, "k").replace(
        " and 0 <= w - 1 < 6, E[n, c, h - 1, w - 1]",
        ", select(0 <= w - 1 < 6, E[n, c, h - 1, w - 1], 0)",
    );
    assert!(of(framed).is_none());
    // Each stage reads the one before twice.
    let mut w = Workload::parse(&text("", 8, "k")).expect("parses");
    let again = w.stages.pop().expect("a stage");
    for i in 0..24u32 {
        let own = (0..4).map(|v| Affine::var(Var(v))).collect::<Vec<_>>();
        let last = w.stage_source(w.stages.len() - 1 - usize::from(i == 0));
        let load = || Expr::load(last, own.clone());
        let body = Expr::binary(Binary::Mul, load(), load());
        w.stages.push(Stage { name: format!("Z{i}"), body, ..again.clone() });
    }
    w.check().expect("a workload");
    assert!(Separable::of(&w).is_none());
}
