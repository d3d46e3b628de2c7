//! Tasks of several fused operators (attention, inverted residuals, chains of products) that no
//! operator line can express, as inputs of the tests of generated code and of task identities.

use squall_core::expr::Expr;
use squall_core::operator::{
    BACK_TO_BACK, Conv, Epilogue, LayerNorm, MatMul, Pool, PoolKind, SEPARABLE, attention, chain,
    elementwise, functions, in_format,
};
use squall_core::{DType, Task, TensorKind, Workload};

/// A convolution of an image of 28 x 28.
fn conv(c: i64, k: i64, r: i64, groups: i64) -> Workload {
    let conv = Conv {
        n: 1,
        c,
        h: 28,
        w: 28,
        k,
        r,
        s: r,
        stride: [1; 2],
        pads: [r / 2; 4],
        dilation: [1; 2],
        groups,
    };
    conv.workload().expect("a convolution")
}

/// An inverted residual, and what remains of it without its last and its first convolution.
pub fn separables() -> Vec<Task> {
    let [a, b, c] = [conv(32, 192, 1, 1), conv(192, 192, 3, 192), conv(192, 32, 1, 1)];
    let named = [
        ("inverted_residual", chain(SEPARABLE, a.clone(), &[&b, &c])),
        ("expand_and_windows", chain(SEPARABLE, a, &[&b])),
        ("windows_and_project", chain(SEPARABLE, b.clone(), &[&c])),
    ];
    named.map(|(name, w)| Task::new(name, w.expect("separable"))).to_vec()
}

/// Two operators back to back, which no operator line says.
pub fn pairs() -> Vec<Task> {
    let expanded = chain(BACK_TO_BACK, conv(32, 192, 1, 1), &[&conv(192, 192, 3, 192)]);
    let product = |n, k| MatMul::plain(64, n, k, TensorKind::Weight).workload().expect("a product");
    let products = chain(BACK_TO_BACK, product(96, 48), &[&product(32, 96)]);
    let named = [("expand_and_depthwise", expanded), ("two_products", products)];
    named.map(|(name, w)| Task::new(name, w.expect("a pair"))).to_vec()
}

/// What GPUs alone make of two operators: a convolution with its pooling, two products, a norm and
/// its product.
pub fn chunked() -> Vec<Task> {
    let pool = Pool {
        kind: PoolKind::Max,
        n: 1,
        c: 64,
        h: 28,
        w: 28,
        r: 3,
        s: 3,
        stride: [2; 2],
        pads: [1; 4],
        dilation: [1; 2],
        positions: None,
    };
    let product = |n, k| MatMul::plain(77, n, k, TensorKind::Weight).workload().expect("a product");
    let (gain, bias) = (TensorKind::Weight, Some(TensorKind::Weight));
    let norm = LayerNorm { rows: 77, cols: 96, eps: 1e-5, gain, bias };
    let (pool, norm) = (pool.workload().expect("a pooling"), norm.workload().expect("a norm"));
    let named = [
        ("pooled", chain(BACK_TO_BACK, conv(3, 64, 3, 1), &[&pool])),
        ("hidden_layer", chain(BACK_TO_BACK, product(96, 48), &[&product(32, 96)])),
        ("norm_and_product", chain(BACK_TO_BACK, norm, &[&product(64, 96)])),
    ];
    named.map(|(name, w)| Task::new(name, w.expect("a pair"))).to_vec()
}

/// A workload in a format, of which floats of 32 bits are that of all workloads here.
fn formatted(w: Workload, format: DType) -> Result<Workload, String> {
    if format == DType::F32 { Ok(w) } else { in_format(w, format) }
}

/// Attention of 12 heads of 64: 197 tokens, 1,024, 77 over 300 keys; with a mask; in each format.
pub fn attentions() -> Vec<Task> {
    let made = |rows: i64, keys: i64, is_masked: bool, format: DType| {
        let product = |m, n, k, b_transposed| {
            let plain = MatMul::plain(m, n, k, TensorKind::Data);
            MatMul { batch: vec![(12, true, true)], b_transposed, ..plain }
        };
        let mut scaled = Epilogue::none();
        scaled.body = functions::mul(scaled.body, Expr::Const(0.125));
        if is_masked {
            let mask = scaled.operand("R", TensorKind::Data, vec![1, rows, keys]);
            scaled.body = functions::add(scaled.body, mask);
        }
        let scores = product(rows, keys, 64, true).workload()?;
        let scores = scaled.attach(scores, &[12, rows, keys])?;
        formatted(attention(scores, &product(rows, 64, keys, false).workload()?)?, format)
    };
    let cases = [
        ("attention_197", 197, 197, false, DType::F32),
        ("attention_197_masked", 197, 197, true, DType::F32),
        ("attention_197_masked_bf16", 197, 197, true, DType::Bf16),
        ("attention_1024_f16", 1024, 1024, false, DType::F16),
        ("attention_1024_bf16", 1024, 1024, false, DType::Bf16),
        ("attention_300_tf32", 77, 300, false, DType::Tf32),
    ];
    let task = |(name, rows, keys, is_masked, format)| {
        Task::new(name, made(rows, keys, is_masked, format).expect("an attention"))
    };
    cases.map(task).to_vec()
}

/// Steps on elements alone, with operands that vary along some axes.
pub fn maps() -> Vec<Task> {
    let made = |shape: &[i64], other: &[i64], format| {
        let mut steps = Epilogue::none();
        let x = steps.operand("X", TensorKind::Data, shape.to_vec());
        let r = steps.operand("R", TensorKind::Data, other.to_vec());
        steps.body = functions::add(x, r);
        formatted(elementwise(&steps, shape)?, format)
    };
    let named = [
        ("sum", made(&[8, 64, 28, 28], &[8, 64, 28, 28], DType::F32)),
        ("sum_of_rows", made(&[197, 768], &[768], DType::F32)),
        ("sum_of_channels", made(&[2, 64, 28, 28], &[64, 1, 1], DType::F32)),
        ("sum_odd_bf16", made(&[7, 33, 5], &[33, 5], DType::Bf16)),
    ];
    named.map(|(name, w)| Task::new(name, w.expect("steps on elements"))).to_vec()
}
