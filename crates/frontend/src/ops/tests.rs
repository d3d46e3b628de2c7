//! Tests of the reader of operator lines such as `conv2d c=64 h=56 k=64 r=3` (`ops.rs`): defaults,
//! names of tasks, merged lines, formats, convolutions of all directions, and errors that name the
//! place and the nearest known word.

use super::*;

fn one(line: &str) -> squall_core::Task {
    let mut import = import_ops(line, "test").unwrap();
    assert_eq!(import.tasks.len(), 1);
    import.tasks.remove(0)
}

#[test]
fn defaults_and_names() {
    let t =
        one("conv2: conv2d n=1 c=64 h=56 w=56 k=64 r=3 s=3 stride=1 pad=1 dilation=1 groups=1 \
         dtype=f32 epilogue=bias,relu # as in the issue");
    assert_eq!((t.name.as_str(), t.count), ("conv2", 1));
    let short = one("conv2d c=64 h=56 k=64 r=3 pad=1 epilogue=bias,relu");
    assert_eq!(short.id, t.id);
    assert_eq!(short.name, "conv2d_64x56x56_k64_3x3_bias_relu");
    assert_eq!(one("conv2d c=8 h=9 k=8 r=3 groups=8 stride_h=2").name, "depthwise_8x9x9_3x3_s2x1");
    assert_eq!(one("matmul m=2 n=3 k=4 batch=5 weight=none").name, "batch_matmul_5x2x4x3");
    assert_eq!(one("pool kind=max c=3 h=8 r=2 stride=2").name, "maxpool_3x8x8_2x2_s2");
    assert_eq!(one("reduce op=mean rows=4 cols=9").name, "mean_4x9");
    assert_eq!(one("elementwise op=gelu n=100").name, "gelu_100");
    assert_eq!(one("layernorm rows=2 cols=8").id, one("layernorm rows=2 cols=8 eps=1e-5").id);
}

#[test]
fn products_come_in_other_formats() {
    let plain = one("matmul m=64 n=64 k=64");
    let allowed = one("matmul m=64 n=64 k=64 dtype=tf32");
    assert!(
        allowed.workload.to_string().contains("tf32(A[m, k]) * tf32(B[k, n])"),
        "{}",
        allowed.workload
    );
    assert!(
        allowed.id != plain.id
            && allowed.name == "matmul_64x64x64_tf32"
            && allowed.workload.tolerance() > plain.workload.tolerance()
    );
    let bytes = one("conv2d c=64 h=56 k=64 r=3 pad=1 dtype=u8");
    assert_eq!(
        (bytes.name.as_str(), bytes.workload.output().dtype.name()),
        ("conv2d_64x56x56_k64_3x3_u8", "u8")
    );
    let half = one("conv2d c=64 h=56 k=64 r=3 pad=1 dtype=bf16 epilogue=bias,relu").workload;
    assert!(half.inputs.iter().all(|i| i.dtype == squall_core::DType::Bf16));
    // The border and the result are as the inputs, the sum is not.
    let formats: Vec<&str> = half.stages.iter().map(|s| s.dtype.name()).collect();
    assert_eq!(formats, ["bf16", "f32", "bf16"]);
    assert_eq!(squall_core::Workload::parse(&half.to_string()).unwrap(), half);
}

#[test]
fn every_step_and_operator_parses() {
    for (step, _) in functions::NAMED {
        let t = one(&format!("matmul m=4 n=4 k=4 weight=b epilogue=bias,{step}"));
        assert!(t.name.ends_with(&format!("_bias_{step}")), "{}", t.name);
        one(&format!("elementwise op={step} n=16"));
    }
    for (op, _) in ReduceOp::ALL {
        one(&format!("reduce op={} rows=2 cols=3", op.name()));
    }
    one("pool kind=avg c=3 h=8 r=3 pad=1 epilogue=relu");
    one("conv2d c=4 h=5 k=4 r=1 epilogue=add,mul");
    one("elementwise op=add n=9");
}

#[test]
fn convolutions_of_all_directions_are_lines_and_problems_of_miopen() {
    let texts = |line: &str| -> Vec<(String, String)> {
        let import = import_ops(line, "test").unwrap_or_else(|e| panic!("{line}: {e}"));
        import.tasks.iter().map(|t| (t.name.clone(), t.workload.to_string())).collect()
    };
    let driver = "./bin/MIOpenDriver conv -n 2 -c 64 -H 56 -W 56 -k 128 -y 3 -x 3 -p 1 -q 1 -u 2 \
                  -v 2 -F 0";
    let size = "n=2 c=64 h=56 k=128 r=3 pad=1 stride=2";
    let lines: Vec<(String, String)> = ["forward", "backward_data", "backward_weights"]
        .iter()
        .flat_map(|d| texts(&format!("conv2d {size} direction={d}")))
        .collect();
    assert_eq!(texts(driver), lines);
    assert_eq!(lines[1].0, "conv2d_backward_data_n2_64x56x56_k128_3x3_s2");
    // A transposed convolution is the backward pass to the data of one that goes the other way.
    let up = texts("conv_transpose2d n=2 c=128 h=28 k=64 r=3 pad=1 stride=2 output_pad=1");
    assert_eq!(
        (up[0].0.as_str(), &up[0].1),
        ("conv2d_transposed_n2_64x56x56_k128_3x3_s2", &lines[1].1)
    );
    // Keys are of a direction, and see the gradient of the output as the input of backward passes.
    let key = "128-28-28-3x3-64-56-56-2-1x1-2x2-1x1-0-NCHW-FP32-W";
    assert_eq!(texts(key), lines[2..]);
    let half = texts("64-8-16-16-3x3x3-32-8-16-16-1-1x1x1-1x1x1-1x1x1-0-NCDHW-FP16-F");
    assert!(half[0].0 == "conv3d_64x8x16x16_k32_3x3x3_f16" && half[0].1.contains("X: f16"));
    assert_eq!(texts("conv3d c=64 d=8 h=16 w=16 k=32 t=3 pad=1 dtype=f16"), half);
    let last = texts("conv2d c=8 h=9 k=4 r=3 groups=2 dilation=2 layout=nhwc epilogue=bias,relu");
    assert!(last[0].1.contains("Y: f32[n: 1, p: 5, q: 5, g: 2, k: 2] = max("), "{last:?}");
    for (line, want) in [
        ("64-8-8-3x3-32-9-9-1-1x1-1x1-1x1-0-NCHW-FP32-F", "not of [9, 9]"),
        ("64-8-8-3x3-32-8-8-1-1x1-1x1-1x1-0-NCHW-INT8-F", "a precision of INT8 has no workload"),
        ("64-8-8-3x3-32-8-8-1-1x1-1x1-1x1-0-NHWC-NCHW-NCHW-FP32-F", "NHWC-NCHW-NCHW"),
        ("MIOpenDriver conv -F 8", "asks for no direction"),
        ("conv2d c=4 h=9 k=4 r=3 stride=2 dilation=2 direction=backward_data", "with a dilation"),
        ("conv_transpose2d c=4 h=9 k=4 r=3 stride=2 pad=1", "with output_pad= it can be made"),
        ("conv2d c=4 h=9 k=4 r=3 direction=backwards", "`direction` is one of forward"),
        ("conv2d c=4 h=9 k=4 r=3 direction=backward_weights epilogue=bias", "no step `bias`"),
    ] {
        let e = import_ops(line, "test").unwrap_err().to_string();
        assert!(e.contains(want), "{line}: {e}");
    }
}

#[test]
fn equal_lines_merge_and_names_stay_unique() {
    let import = import_ops(
        "softmax rows=2 cols=3\n\nsoftmax rows=2 cols=3\nlayernorm rows=2 cols=4\n\
                    layernorm rows=2 cols=4 eps=0.1\n",
        "x",
    )
    .unwrap();
    let seen: Vec<(&str, u64)> = import.tasks.iter().map(|t| (t.name.as_str(), t.count)).collect();
    assert_eq!(seen, [("softmax_2x3", 2), ("layernorm_2x4", 1), ("layernorm_2x4_2", 1)]);
}

#[test]
fn errors_name_the_place_and_the_nearest_thing() {
    for (text, want) in [
        ("# nothing\n\n", "a.ops:1:1: no operator line is there"),
        ("", "a.ops:1:1: no operator line is there"),
        ("\n  conv c=1", "a.ops:2:3: there is no operator `conv` (did you mean `conv2d`?)"),
        (
            "conv2d c=1 h=8 k=4 r=3 strid=2",
            "a.ops:1:24: conv2d has no key `strid` (did you mean `stride`?)",
        ),
        ("conv2d c=1 h=8 k=4 r=x", "a.ops:1:22: expected a whole number for `r`, found `x`"),
        ("conv2d c=1 h=8 k=4 r=0", "a.ops:1:22: `r` must be 1 or more, not 0"),
        ("conv2d c=1 h=8 k=4", "a.ops:1:1: conv2d needs `r=`"),
        ("conv2d c=1 h=8 k=4 r=3 c=2", "a.ops:1:24: `c` is given twice"),
        ("conv2d c=1 h=8 k=4 r=9", "a.ops:1:1: a window of 9 does not fit"),
        (
            "conv2d c=1 h=8 k=4 r=3 dtype=f64",
            "a.ops:1:30: dtype=f64: conv2d kernels are made for f32, tf32, f16, bf16, u8 today",
        ),
        (
            "softmax rows=2 cols=4 dtype=bf16",
            "a.ops:1:29: dtype=bf16: softmax kernels are made for f32 today",
        ),
        (
            "conv2d c=1 h=8 k=4 r=3 epilogue=bias,rely",
            "a.ops:1:38: there is no step `rely` (did you mean `relu`?)",
        ),
        ("matmul m=1 n=1 k=1 weight=a", "a.ops:1:27: `weight` is one of b, none, not `a`"),
        ("x: matmul m=1 n=1 k=1\nx: matmul m=2 n=1 k=1", "a.ops:2:1: the name `x` is taken"),
        ("x:", "a.ops:1:3: expected an operator"),
        (": matmul", "a.ops:1:1: expected a name before `:`"),
        ("matmul m", "a.ops:1:8: expected `key=value`, found `m`"),
        ("matmul m=99999999999999999999 n=1 k=1", "expected a whole number"),
        ("matmul m=9999999999 n=1 k=1", "`m` is too large"),
        ("layernorm rows=1 cols=1 eps=nan", "a.ops:1:29: expected a number of 0 or more"),
        ("élan=1", "a.ops:1:1: there is no operator"),
        ("reduce op=mean rows=4 cols=4 epilogue=hardswish", "more than once"),
        ("pool kind=max c=1 h=4 r=2 epilogue=bias", "there is no step `bias`"),
    ] {
        let e = import_ops(text, "a.ops").unwrap_err().to_string();
        assert!(e.contains(want), "{text}: {e}");
    }
}

fn text_of(path: &str) -> Option<String> {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).ok()
}

/// The value of `"key": ` in one object of a JSON file whose shape is known.
fn number(object: &str, key: &str) -> Option<u64> {
    let rest = &object[object.find(&format!("\"{key}\": "))? + key.len() + 4..];
    rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

#[test]
fn the_shared_workloads_are_these_lines() {
    let import =
        import_ops(&text_of("../../examples/workloads.ops").unwrap(), "workloads.ops").unwrap();
    assert_eq!(import.tasks.len(), 21);
    let Some(path) = squall_testing::shared("workloads.json") else { return };
    let json = std::fs::read_to_string(path).unwrap();
    let objects: Vec<&str> =
        json.split("{\"name\": \"").filter(|o| o.contains("\"op\": ")).collect();
    let named = |o: &&&str, name: &str| o.split('"').next() == Some(name);
    let mut compared = 0;
    for task in &import.tasks {
        // An object's inner objects begin like it does: its numbers stand in later pieces.
        let at = objects
            .iter()
            .find(|o| named(o, &task.name))
            .unwrap_or_else(|| panic!("{} is not in the file", task.name));
        let rest = &json[at.as_ptr() as usize - json.as_ptr() as usize..];
        if matches!(task.workload.kind.as_str(), "conv2d" | "depthwise_conv2d" | "matmul") {
            assert_eq!(Some(task.workload.flop()), number(rest, "flops"), "{}", task.name);
            compared += 1;
        }
        assert_eq!(Some(task.workload.bytes().0), number(rest, "bytes_min"), "{}", task.name);
    }
    assert_eq!(compared, 19);
}

#[test]
fn the_small_example_parses() {
    let import =
        import_ops(&text_of("../../examples/kernels.ops").unwrap(), "kernels.ops").unwrap();
    assert_eq!(
        import.tasks.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(),
        ["conv", "depthwise", "matmul", "softmax"]
    );
}
