//! Operator lines.

use super::*;
use expect_test::expect;

fn one(line: &str) -> squall_core::Task {
    let mut i = import_ops(line, "test").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(i.tasks.len(), 1);
    i.tasks.remove(0)
}

fn error(text: &str) -> String {
    match import_ops(text, "list") {
        Ok(i) => panic!("it is read as {:?}", i.tasks),
        Err(e) => e.to_string(),
    }
}

#[test]
fn the_issues_line() {
    let t = one("conv2: conv2d n=1 c=64 h=56 w=56 k=64 r=3 s=3 stride=1 pad=1 dilation=1 groups=1 dtype=f32 epilogue=bias,relu,add");
    assert_eq!((t.name.as_str(), t.count), ("conv2", 1));
    expect![[r"
        workload conv2d
        data X: f32[1, 64, 56, 56]
        weight W: f32[64, 64, 3, 3]
        weight B: f32[64]
        data R: f32[1, 64, 56, 56]
        stage P: f32[n: 1, c: 64, h: 58, w: 58] = select(0 <= h - 1 < 56 and 0 <= w - 1 < 56, X[n, c, h - 1, w - 1], 0)
        stage C: f32[n: 1, k: 64, p: 56, q: 56] = sum(c: 64, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, c, r, s]
        stage Y: f32[n: 1, k: 64, p: 56, q: 56] = max(C[n, k, p, q] + B[k], 0) + R[n, k, p, q]
        output Y
    "]]
    .assert_eq(&t.workload.to_string());
}

#[test]
fn what_is_left_out_has_its_default() {
    let short = one("conv2d c=8 h=10 k=4 r=3 pad=1");
    let long = one("conv2d n=1 c=8 h=10 w=10 k=4 r=3 s=3 stride_h=1 stride_w=1 pad_top=1 pad_left=1 pad_bottom=1 pad_right=1 dilation=1 groups=1 dtype=f32 epilogue=none");
    assert_eq!(short.workload, long.workload);
    assert_eq!(short.name, "conv2d_8x10x10_k4_3x3");
    assert_eq!(one("depthwise_conv2d c=6 h=5 r=3").workload, one("conv2d c=6 k=6 groups=6 h=5 r=3").workload);
}

#[test]
fn every_kind_of_operator() {
    let all = "
        conv2d c=8 h=10 k=4 r=3 s=1 stride_h=2 pad_left=1 groups=2   # grouped, uneven
        depthwise_conv2d c=4 h=9 r=3 k=8 dilation=2
        matmul m=3 n=5 k=7 weight=b epilogue=bias,gelu
        matmul m=3 n=5 k=7 batch=2 trans_b=1
        softmax rows=4 cols=9
        log_softmax rows=4 cols=9
        layernorm rows=4 cols=9 eps=1e-6
        pool kind=max c=3 h=8 r=3 stride=2 pad=1
        pool kind=avg c=3 h=8 r=3 pad=1
        pool kind=avg c=3 h=8 r=3 pad=1 include_pad=1
        reduce op=mean rows=4 cols=9
        elementwise op=add,relu n=100
    ";
    let i = import_ops(all, "all").unwrap();
    assert_eq!(i.tasks.len(), 12);
    let text: String = i.tasks.iter().map(|t| format!("{}: {}", t.name, t.workload)).collect();
    expect_test::expect_file!["kinds.txt"].assert_eq(&text);
    for t in &i.tasks {
        assert_eq!(squall_core::Workload::parse(&t.workload.to_string()).as_ref(), Ok(&t.workload), "{}", t.name);
    }
}

#[test]
fn equal_lines_are_one_task() {
    let i = import_ops("matmul m=4 n=4 k=4\nsecond: matmul m=4 n=4 k=4 # again\nmatmul m=4 n=4 k=5", "x").unwrap();
    assert_eq!(i.tasks.iter().map(|t| (t.name.as_str(), t.count)).collect::<Vec<_>>(), [("matmul_4x4x4", 2), ("matmul_4x5x4", 1)]);
    assert_eq!(i.tasks[0].nodes, ["matmul_4x4x4", "second"]);
}

#[test]
fn every_step_is_a_kernel() {
    for (name, step) in steps::STEPS {
        let t = one(&format!("matmul m=2 n=3 k=4 epilogue={name}"));
        assert_eq!(t.workload.output().name, "Y", "{name}");
        if !matches!(step, steps::Step::Bias) {
            one(&format!("elementwise op={name} n=8"));
        }
    }
}

#[test]
fn errors_name_place_expectation_and_the_nearest_key() {
    expect!["list:2:23: conv2d has no key `strid` (did you mean `stride`?); its keys: n, c, h, w, k, r, s, stride, pad, dilation, groups, dtype, epilogue, stride_h, stride_w, pad_h, pad_w, pad_top, pad_left, pad_bottom, pad_right, dilation_h, dilation_w"]
        .assert_eq(&error("matmul m=1 n=1 k=1\nconv2d c=8 h=10 k=4   strid=2 r=3"));
    expect!["list:1:1: `conv3d` is no operator (did you mean `conv2d`?); operators: conv2d, depthwise_conv2d, matmul, softmax, log_softmax, layernorm, pool, reduce, elementwise"]
        .assert_eq(&error("conv3d c=8"));
    expect!["list:1:14: `n=` expects a whole number from 1 to 2147483648, found `x`"].assert_eq(&error("matmul m=4 n=x k=4"));
    expect!["list:1:1: matmul needs `k=`"].assert_eq(&error("matmul m=4 n=4"));
    expect!["list:1:7: matmul needs `k=`"].assert_eq(&error("name: matmul m=4 n=4"));
    expect!["list:1:20: `k` is given twice"].assert_eq(&error("matmul m=4 n=4 k=4 k=5"));
    expect!["list:1:12: expected `key=value`, found `n`"].assert_eq(&error("matmul m=4 n k=4"));
    expect!["list:1:27: `weight=` expects none or b or a, found `c`"].assert_eq(&error("matmul m=4 n=4 k=4 weight=c"));
    expect!["list:1:1: conv2d: groups 3 must divide the 8 channels and the 4 filters"].assert_eq(&error("conv2d c=8 h=10 k=4 r=3 groups=3"));
    expect!["list:1:1: conv2d: a kernel that spans 11 does not fit a height of 10 with its padding"].assert_eq(&error("conv2d c=8 h=10 k=4 r=11"));
    expect!["list:1:29: `dtype=` expects f32, the only format that is tuned, found `f16`"].assert_eq(&error("softmax rows=4 cols=4 dtype=f16"));
    expect!["list:2:4: the name `a` is taken by line 1"].assert_eq(&error("a: softmax rows=4 cols=4\n   a: softmax rows=5 cols=4"));
    expect!["list:1:3: expected an operator after the name"].assert_eq(&error("a: "));
    expect!["list:1:1: there is no operator line, expected for example `matmul m=64 n=64 k=64`"].assert_eq(&error("# nothing\n"));
    let e = error("matmul m=4 n=4 k=4 epilogue=bias,relo");
    assert!(e.starts_with("list:1:34: `relo` is no step (did you mean `relu`?)"), "{e}");
    assert!(error("matmul m=99999999999 n=4 k=4").starts_with("list:1:10: "));
    assert!(error("matmul m=2000000000 n=2000000000 k=2000000000").contains("too large"));
    assert!(error("softmax rows=4 cols=4\n\u{e9}\u{e9}: sofmax").starts_with("list:2:5: "));
    assert!(error("reduce op=mean rows=4 cols=4 epilogue=bias").contains("channels"));
    let many = format!("matmul m=4 n=4 k=4 epilogue={}", ["add"; 9].join(","));
    assert!(error(&many).contains("too many"), "{}", error(&many));
    let long = format!("elementwise n=4 op={}", ["mish"; 9].join(","));
    assert!(error(&long).contains("too many"), "{}", error(&long));
}

#[test]
fn names_may_touch_their_operator() {
    assert_eq!(one("a:softmax rows=4 cols=4").name, "a");
    assert_eq!(one("  b: softmax rows=2 cols=2 # why").name, "b");
}
