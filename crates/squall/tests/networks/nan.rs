//! Test that a NaN in a model's input reaches the output, on every path where a kernel could lose
//! it (maxima, clipping, pooling, softmax).

use super::*;

/// A NaN goes through kernels with steps behind a product or a convolution, maxima, pools, rows and
/// plain operators.
#[test]
fn what_is_no_number_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let conv = with_ints(node("Conv", &["x", "w"], &["c"]), "pads", &[1; 4]);
    let pool = with_ints(node("MaxPool", &["x"], &["pool"]), "kernel_shape", &[3, 3]);
    let nodes = vec![
        conv,
        node("Add", &["c", "r"], &["sum"]),
        node("Relu", &["sum"], &["relu"]),
        node("Clip", &["r", "low", "high"], &["clip"]),
        node("Sign", &["r"], &["sign"]),
        node("Max", &["r", "x"], &["max"]),
        pool,
        with_ints(node("ReduceMax", &["x"], &["most"]), "axes", &[3]),
        node("Softmax", &["x"], &["soft"]),
        node("ArgMax", &["r"], &["at"]),
    ];
    let nodes = nodes.into_iter().map(|n| match &n.op_type[..] {
        "ArgMax" => with_int(n, "axis", 3),
        _ => n,
    });
    let weights = vec![
        weight("w", &noise(&[3, 3, 3, 3], 1)),
        weight("low", &Array::floats(vec![], &[-0.5])),
        weight("high", &Array::floats(vec![], &[0.5])),
    ];
    let inputs = ["x", "r"].map(|n| value(n, F32, &["1", "3", "9", "17"])).to_vec();
    let outputs = ["relu", "clip", "sign", "max", "pool", "most", "soft", "at"];
    let network = model(f, nodes.collect(), weights, inputs, &outputs);
    let with_nan = |seed: u32, at: &[usize]| {
        let mut data = noise(&[1, 3, 9, 17], seed).f32s().unwrap();
        at.iter().for_each(|i| data[*i] = f32::NAN);
        data
    };
    // At the first place of a row, a middle one and the last.
    let (of_x, of_r) = ([0, 17 * 5 + 8, 17 * 27 - 1], [16, 200, 458]);
    let (x, r) = (with_nan(5, &of_x), with_nan(6, &of_r));
    let array = |d: &[f32]| Array::floats(vec![1, 3, 9, 17], d);
    let (out, _) = run(f, &network, &[("x", array(&x)), ("r", array(&r))]).unwrap();
    let of = |name: &str| out.iter().find(|(n, _)| n == name).unwrap().1.f32s().unwrap();
    let nans = |name: &str| -> Vec<usize> {
        let all = of(name).into_iter().enumerate();
        all.filter(|(_, v)| v.is_nan()).map(|(i, _)| i).collect()
    };
    let both = {
        let mut all = [of_x, of_r].concat();
        all.sort_unstable();
        all.dedup();
        all
    };
    assert_eq!((nans("clip"), nans("sign"), nans("max")), (of_r.to_vec(), of_r.to_vec(), both));
    let relu = nans("relu");
    assert!(of_r.iter().all(|i| relu.contains(i)) && relu.len() > 3, "{relu:?}");
    assert!(of("relu").iter().all(|v| v.is_nan() || *v >= 0.0));
    let rows: Vec<usize> = of_x.iter().map(|i| i / 17).collect();
    assert_eq!(nans("most"), rows);
    let in_rows: Vec<usize> = rows.iter().flat_map(|r| r * 17..(r + 1) * 17).collect();
    assert_eq!(nans("soft"), in_rows);
    // A window of three rows and columns has the elements up to two before it.
    let windows = (0..3 * 7 * 15).filter(|i| {
        let (plane, h, w) = (i / 105, i / 15 % 7, i % 15);
        of_x.iter().any(|x| {
            let (p, a, b) = (x / 153, x / 17 % 9, x % 17);
            p == plane && (h..h + 3).contains(&a) && (w..w + 3).contains(&b)
        })
    });
    assert_eq!(nans("pool"), windows.collect::<Vec<_>>());
    let at = &out.iter().find(|(n, _)| n == "at").unwrap().1;
    for i in of_r {
        assert_eq!(at.number(i / 17), Some((i % 17) as f64), "the first NaN is the largest");
    }
}
