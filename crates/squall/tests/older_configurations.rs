//! Test that configurations in records of older builds are still read. The list has winners of runs
//! on an H200 in `benches/runs/`, from before some knobs' numbers became words and sketches were
//! renamed. Each must be found, and make the kernel that its spelling of today makes.

use crate::machine;

use machine::h200;
use squall::Input;
use squall_compiler::sketches;
use squall_core::{Bytes, Target, Tunable, find_candidate, find_tunable};
use std::sync::Arc;

fn tunables(operator: &str, target: &Target) -> Vec<Arc<dyn Tunable>> {
    let input = Input::load(operator, &[]).unwrap_or_else(|e| panic!("{operator}: {e}"));
    sketches(&input.tasks()[0].workload, target)
}

/// An operator line; the sketch's name in the record; the configuration's unchanged part; its
/// changed part in the older and in today's spelling.
const WINNERS: &[(&str, &str, &str, &str, &str)] = &[
    (
        "matmul m=4096 n=4096 k=4096 dtype=bf16",
        "gpu_tensor",
        "m_b=128,n_b=128,warps_rows=2,warps_columns=2,chunk=64,split_warps=1,split_blocks=1,\
         stages=3,",
        "ahead=2,pad=2",
        "ahead=step,copy=tma,rows=dense",
    ),
    (
        "matmul m=4096 n=4096 k=4096 dtype=bf16",
        "gpu_tensor",
        "m_b=128,n_b=128,warps_rows=2,warps_columns=2,chunk=64,split_warps=1,split_blocks=1,\
         stages=3,",
        "pad=1,ahead=0",
        "ahead=none,copy=threads,rows=padded",
    ),
    (
        "matmul m=4096 n=4096 k=4096 dtype=bf16",
        "gpu_group",
        "m_b=128,n_b=256,",
        "groups_rows=2,groups_columns=1,split_blocks=1,stages=4,lag=1,turn=0,boxes=1",
        "warpgroups_rows=2,warpgroups_columns=1,split_blocks=1,stages=4,lag=1,transpose=none,\
         copy=tma",
    ),
    (
        "conv2d n=16 c=64 h=56 k=64 r=3 pad=1 dtype=bf16",
        "gpu_group",
        "k_b=64,n_b=1,p_b=4,q_b=56,",
        "groups_rows=1,groups_columns=2,split_blocks=1,stages=3,lag=0,boxes=0",
        "warpgroups_rows=1,warpgroups_columns=2,split_blocks=1,stages=3,lag=0,copy=threads",
    ),
    (
        "conv2d n=16 c=64 h=56 k=64 r=3 pad=1 dtype=bf16",
        "gpu_tensor",
        "k_b=64,n_b=1,p_b=7,q_b=56,warps_rows=2,warps_columns=4,chunk=64,split_warps=1,\
         split_blocks=1,stages=1,",
        "turn=0,ahead=0,pad=1,unroll=1,piecewise=1,run=7",
        "transpose=copy,ahead=none,rows=padded,unroll=1,weights=pieces,run=7",
    ),
    (
        "conv2d n=1 c=64 h=56 k=128 r=3 stride=2 pad=1",
        "gpu_tensor_split",
        "k_b=32,p_b=4,q_b=28,warps_rows=1,warps_columns=4,chunk=8,split_warps=2,split_blocks=4,\
         stages=1,",
        "turn=0,ahead=1,pad=1,unroll=2,piecewise=1,run=1",
        "transpose=copy,ahead=slice,rows=padded,unroll=2,weights=pieces,run=1",
    ),
    (
        "conv2d n=1 c=128 h=28 k=128 r=3 pad=1 dtype=tf32",
        "gpu_tensor",
        "k_b=32,p_b=4,q_b=28,warps_rows=1,warps_columns=2,chunk=8,split_warps=2,split_blocks=4,\
         stages=1,",
        "pad=1,turn=2,ahead=1,unroll=2,piecewise=1,run=1",
        "transpose=gather,ahead=slice,rows=padded,unroll=2,weights=pieces,run=1",
    ),
    (
        "matmul m=1024 n=1024 k=1024",
        "gpu_tile",
        "m_t=2,m_v=4,m_i=4,n_t=32,n_v=2,n_i=4,chunk=4,split_threads=4,split_blocks=1,unroll=4,\
         vector=4,pad=0,stages=2",
        "",
        "",
    ),
];

#[test]
fn winners_of_older_records_make_the_same_kernels() {
    for (operator, name, same, then, now) in WINNERS {
        let all = tunables(operator, &h200());
        let old = format!("{same}{then}");
        let candidate = find_candidate(&all, name, &old).unwrap_or_else(|| {
            let t = find_tunable(&all, name).unwrap_or_else(|| panic!("{operator}: {name}"));
            panic!("{operator} {name}: {:?}", t.space().parse(&old))
        });
        let t = find_tunable(&all, &candidate.tunable).expect("the candidate's own");
        let new = t.space().parse(&format!("{same}{now}")).expect("the text of today");
        assert_eq!(candidate.configuration, new, "{operator} {name} {old}");
        assert_eq!(t.space().nearest(&old).as_ref(), Some(&new), "{operator} {name} {old}");
        let source = |c| {
            let made = t.realize(c, "squall_kernel");
            made.unwrap_or_else(|e| panic!("{operator} {name} {new}: {e}")).source
        };
        assert_eq!(source(&candidate.configuration), source(&new));
        assert_eq!(new.to_string(), format!("{same}{now}"), "{operator}");
    }
}

#[test]
fn configurations_from_before_steps_could_load_anew_mean_what_they_meant() {
    let target = Target::cpu(32, 16, &[Bytes(32 << 10), Bytes(1 << 20), Bytes(32 << 20)]);
    let all = tunables("conv2d n=1 c=64 h=56 w=56 k=64 r=3 pad=1", &target);
    let old = "lanes=8,k3=2,p3=1,q3=7,k1=1,p1=1,q1=8,unroll=3,order=k_p_q,\
               reduce=first_outside,pack_Wp=yes,prefetch=0";
    let found = find_candidate(&all, "tile@k,pad=copy", old).expect("it is read");
    assert_eq!(found.configuration.to_string(), format!("{old},hold=shared,form=vectors"));
    let t = find_tunable(&all, "tile@k,pad=copy").expect("a sketch");
    assert_eq!(t.space().nearest(old).as_ref(), Some(&found.configuration));
    let source = |c| t.realize(c, "squall_kernel").expect("a kernel").source;
    let anew =
        t.space().parse(&format!("{old},hold=step,form=elements")).expect("a value of the knob");
    let (then, now) = (source(&found.configuration), source(&anew));
    assert!(then.contains("v16") && !then.contains("__asm__ volatile"), "{then}");
    assert!(!now.contains("v16") && now.contains("__asm__ volatile"), "{now}");
}

#[test]
fn configurations_for_a_cpu_from_before_deal_was_renamed_are_read() {
    let caches = [Bytes(32 << 10), Bytes(1 << 20), Bytes(32 << 20)];
    let target = Target { threads: 2, ..Target::cpu(32, 16, &caches) };
    let all = tunables("conv2d n=1 c=64 h=28 k=64 r=3 pad=1", &target);
    let t = find_tunable(&all, "winograd").expect("a sketch");
    for (old, new) in [("deal=0", "parallel_over=phases"), ("deal=1", "parallel_over=blocks")] {
        let c = t.space().iter().find(|c| c.to_string().contains(new)).expect("one of them");
        let text = c.to_string().replace(new, old);
        assert_eq!(t.space().parse(&text).as_ref(), Ok(&c));
    }
}
