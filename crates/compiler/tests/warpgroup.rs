//! Tests of warpgroup products (`wgmma` on Hopper GPUs) in the loop-nest IR (`src/nest`): which
//! misuses the interpreter and the verifier refuse, such as using sums before they were awaited,
//! and which devices have sketches with them. The nests are written as text here.

use crate::cases;

use cases::h200;
use squall_compiler::{explain, nest, sketches};
use squall_core::{TargetKind, Workload};

/// The text of a product of 64 x 64 by 64 x 8, with the given statements between its start and the
/// use of its sums.
fn product(between: &str, first: &str, quarters: u32) -> String {
    format!(
        "nest x\ndata A: bf16[64, 64]\ndata B: bf16[8, 64]\noutput Y: f32[64, 8]\nswizzled A_s: \
         bf16[1, 64, 64]\nswizzled B_s: bf16[1, 8, 64]\n\
         fragment C: f32[1, 16, 8]\nshared T: f32[64, 8]\n{{\n  block b in 1 {{\n    thread q in \
         {quarters} {{\n      thread t in 32 {{\n        \
         local A_s\n        local B_s\n        local C\n        warp_zero C[0]\n        \
         share i in 64 {{\n          share k in 64 {{\n            A_s[0, i, k] = A[i, \
         k]\n          }}\n        }}\n        \
         share j in 8 {{\n          share l in 64 {{\n            B_s[0, j, l] = B[j, \
         l]\n          }}\n        }}\n        \
         commit_copies\n        await_copies 0\n        barrier\n        \
         warpgroup_multiply rows from {first} of 64 columns from 0 of 8: C += A_s[0] * B_s[0]\n\
         {between}        \
         local T\n        warp_store row r column c: T[16*q + r, c] = C[0]\n        \
         barrier\n        \
         share m in 64 {{\n          share n in 8 {{\n            Y[m, n] = T[m, n]\n          \
         }}\n        }}\n        barrier\n      }}\n    }}\n  }}\n}}\n"
    )
}

#[test]
fn products_are_awaited_before_their_sums_and_factors_are_used() {
    let a: Vec<f64> = (0..64 * 64).map(|i| f64::from(i % 13 - 6)).collect();
    let b: Vec<f64> = (0..8 * 64).map(|i| f64::from(i % 7 - 3)).collect();
    let want: Vec<f64> =
        (0..64 * 8).map(|i| (0..64).map(|k| a[i / 8 * 64 + k] * b[i % 8 * 64 + k]).sum()).collect();
    let data = vec![a, b];
    let text = product("        await_products 0\n", "0", 4);
    let good = nest::parse(&text).expect("parses");
    assert_eq!(good.to_string(), text);
    // The former spelling of the instruction is still read.
    let former = text.replace("warpgroup_multiply", "group_multiply");
    assert_eq!(nest::parse(&former).expect("parses").to_string(), text);
    assert_eq!(nest::try_interpret(&good, &data, &[]), Ok(want));
    let write = "        share i2 in 64 {\n          A_s[0, i2, 0] = 0\n        }\n";
    for (between, what) in [
        (String::new(), "`C` is used before its products are awaited"),
        ("        await_products 1\n".into(), "`C` is used before its products are awaited"),
        (
            format!("{write}        await_products 0\n"),
            "is written while products that read it are not awaited",
        ),
        // Others may still read: a barrier tells.
        (format!("        await_products 0\n{write}"), "without a barrier between them"),
    ] {
        let bad = nest::parse(&product(&between, "0", 4)).expect("parses");
        let why = nest::try_interpret(&bad, &data, &[]).expect_err("refused");
        assert!(why.contains(what), "{between}: {why}");
    }
}

#[test]
fn warpgroups_are_four_warps_and_rows_begin_at_eights() {
    let awaited = "        await_products 0\n";
    let why = nest::parse(&product(awaited, "0", 2)).expect_err("half a warpgroup").to_string();
    assert!(why.contains("a warpgroup is not the four warps"), "{why}");
    let why = nest::parse(&product(awaited, "4", 4)).expect_err("between").to_string();
    assert!(why.contains("a multiple of 8"), "{why}");
    let why = nest::parse(&product(awaited, "8", 4)).expect_err("beyond").to_string();
    assert!(why.contains("the extent is 64"), "{why}");
    let why = nest::parse(&product(awaited, "0", 4).replace("swizzled A_s", "shared A_s"))
        .expect_err("as it lies")
        .to_string();
    assert!(why.contains("`A_s` is no factor of a warpgroup's product"), "{why}");
}

/// An address of shared memory begins with the block's number in its cluster, which is no part of a
/// descriptor: it gave wrong answers where factors lie across, whose leading stride stands there.
#[test]
fn descriptors_leave_out_the_number_in_the_cluster() {
    let text = "workload m\ndata A: bf16[64, 256]\ndata B: bf16[256, 128]\nstage Y: f32[m: 64, n: \
                128] = sum(k: 256) A[m, k] * B[k, n]\noutput Y";
    let w = Workload::parse(text).expect("parses");
    let configuration = "m_b=64,n_b=128,warpgroups_rows=1,warpgroups_columns=1,split_blocks=2,\
                         stages=2,lag=0,transpose=none,copy=threads";
    let source =
        explain(&w, &h200(), "source", Some(("gpu_warpgroup", configuration))).expect("realizes");
    assert!(
        source.contains("__cluster_dims__(2") && source.contains("group_bf16<128, 0, 1>("),
        "{source}"
    );
    assert!(
        source.contains("__cvta_generic_to_shared(first) & 0x3FFFF) >> 4) | leading << 16"),
        "{source}"
    );
}

#[test]
fn warpgroups_multiply_on_capability_9_0_only() {
    let text = "workload m\ndata A: bf16[128, 256]\ndata B: bf16[256, 128]\nstage Y: f32[m: 128, \
                n: 128] = sum(k: 256) A[m, k] * B[k, n]\noutput Y";
    let w = Workload::parse(text).expect("parses");
    for (capability, there) in [(80, false), (90, true), (100, false)] {
        let mut target = h200();
        if let TargetKind::Cuda(gpu) = &mut target.kind {
            gpu.capability = capability;
        }
        assert_eq!(
            sketches(&w, &target).iter().any(|s| s.name() == "gpu_warpgroup"),
            there,
            "{capability}"
        );
    }
    // Rounding to tf32 happens on the way to registers, which these products do not take.
    let w = Workload::parse(
        &text.replace("bf16", "f32").replace("A[m, k] * B[k, n]", "tf32(A[m, k]) * tf32(B[k, n])"),
    )
    .expect("parses");
    assert!(!sketches(&w, &h200()).iter().any(|s| s.name() == "gpu_warpgroup"));
}
