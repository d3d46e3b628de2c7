//! Tests of kernel.toml files (users' own kernels) in CUDA: grid and block follow from the file's
//! expressions, the device's limits decide which configurations are legal, and errors point at
//! their place in the file.

use super::*;
use squall_core::{Gpu, LaunchArgument};

const GOOD: &str = r#"source = "blur.cu"
entry = "image::blur"
grid = ["(w + BX * TILE - 1) // (BX * TILE)", "h"]
block = ["BX", "BY"]
shared = "4 * BX * BY"
constraints = ["BX * BY <= max_threads // 2"]

[[argument]]
name = "w"
type = "i32"
role = "scalar"
value = "w"

[[argument]]
name = "rate"
type = "f32"
role = "scalar"
value = 0.5

[[argument]]
name = "x"
type = "f32"
shape = ["h", "w"]

[[argument]]
name = "y"
type = "f32"
role = "inout"
shape = ["h", "w"]

[[argument]]
name = "STEP"
type = "i64"
role = "knob"

[[knob]]
name = "BX"
powers_of_two = [16, 1024]
default = 32

[[knob]]
name = "BY"
values = [1, 2, 4]

[[knob]]
name = "TILE"
values = [1, 2]
as = "template"

[[knob]]
name = "STEP"
values = [3, 5]
as = "argument"

[[knob]]
name = "MATH"
values = ["", "--use_fast_math"]
as = "flag"

[[problem]]
w = 100
h = 7

[reference]
entry = "plain"
grid = 1
block = ["w"]
"#;

fn read(path: &str) -> Result<Vec<u8>, String> {
    let text = match path {
        "blur.cu" => {
            "namespace image { template <int T> __global__ void __launch_bounds__(BX * BY) \
             blur(int w, float r, const float *x, float *y, long long s) {} }\n\
             __global__ void plain(int w, float r, const float *x, float *y) {}\n"
        }
        "listed.txt" => "BX=16,BY=4,TILE=1,STEP=3,MATH=\nBX=1024,BY=1,TILE=1,STEP=3,MATH=\n",
        "plain.c" => "void plain(int w, float r, const float *x, float *y) {}\n",
        "none.cu" => "int nothing;\n",
        _ => return Err("no such file".into()),
    };
    Ok(text.as_bytes().to_vec())
}

fn kernel(text: &str) -> UserKernel {
    match import_kernel(text, "kernel.toml", &read) {
        Ok(mut all) => all.remove(0),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_kernel_is_launched_as_its_expressions_say() {
    let k = kernel(GOOD);
    assert!(k.is_cuda());
    assert_eq!(k.plain.space().nth(0).to_string(), "BX=32,BY=1,TILE=1,STEP=3,MATH=");
    let c = k.tunable.space().parse("BX=16,BY=4,TILE=2,STEP=5,MATH=--use_fast_math").unwrap();
    let s = k.tunable.realize(&c, "sym").unwrap();
    let l = &s.launches[0];
    assert_eq!(
        (l.entry.as_str(), l.blocks, l.threads, l.shared),
        ("image::sym_own<2>", [4, 7, 1], [16, 4, 1], 256)
    );
    let number = |bytes: &[u8]| LaunchArgument::Number(bytes.to_vec());
    let expected = vec![
        number(&100i32.to_le_bytes()),
        number(&0.5f32.to_le_bytes()),
        LaunchArgument::Data(0),
        LaunchArgument::Restored { output: 0, data: 1 },
        number(&5i64.to_le_bytes()),
    ];
    assert_eq!(l.arguments, Some(expected));
    assert_eq!(s.flags, ["--use_fast_math"]);
    assert!(
        s.source.contains("#define BX 16\n#define BY 4\n") && !s.source.contains("define TILE"),
        "{}",
        s.source
    );
    assert!(
        s.source.contains("#define blur sym_own\n")
            && s.source.contains("#define plain sym_own_plain\n"),
        "{}",
        s.source
    );
    let r = k.reference("ref").kernel.unwrap();
    assert_eq!(
        (r.launches[0].entry.as_str(), r.launches[0].blocks, r.launches[0].threads),
        ("ref_own", [1, 1, 1], [100, 1, 1])
    );
    assert_eq!(r.launches[0].arguments.as_ref().unwrap().len(), 4, "it takes no knobs");
    // In C it is called as ever.
    let c = kernel(&GOOD.replace(
        "entry = \"plain\"\ngrid = 1\nblock = [\"w\"]",
        "source = \"plain.c\"\nentry = \"plain\"",
    ));
    let r = c.reference("ref").kernel.unwrap();
    assert!(
        r.launches.is_empty()
            && r.source.contains(
                "ref_call((100), (float)(0.5), (const float *)data[0], (float *)outputs[0])"
            ),
        "{}",
        r.source
    );
    assert_ne!(c.task.id, k.task.id);
}

#[test]
fn the_device_decides_what_is_legal() {
    let k = kernel(GOOD);
    // Half of 1024 threads and no more: 1024 never, 512 with one row, 256 with two.
    let shapes = 7 * 3 - 3 - 2 - 1;
    assert_eq!(k.tunable.space().len(), shapes * 2 * 2 * 2);
    let small = Gpu { threads_per_block: 256, shared_per_block: 4 * 100, ..launching::LARGEST };
    let on = k.on(&small).unwrap();
    assert_eq!(on.task.id, k.task.id, "the task is the same everywhere");
    for c in on.tunable.space().iter() {
        let (x, y) = (c.int("BX").unwrap(), c.int("BY").unwrap());
        assert!(x * y <= 100, "{c}");
    }
    let listed = "configurations = \"listed.txt\"\n[[argument]]";
    let few = kernel(&GOOD.replacen("[[argument]]", listed, 1).replace("default = 32\n", ""));
    // The other one has more threads than the constraint allows.
    let all: Vec<String> = few.tunable.space().iter().map(|c| c.to_string()).collect();
    assert_eq!(all, ["BX=16,BY=4,TILE=1,STEP=3,MATH="]);
    let none = Gpu { shared_per_block: 10, ..launching::LARGEST };
    let why = k.on(&none).err().expect("nothing fits");
    assert!(why.contains("more than 10 bytes of shared memory"), "{why}");
}

#[test]
fn what_is_wrong_is_pointed_at() {
    for (from, to, words) in [
        (
            "entry = \"image::blur\"",
            "entry = \"image::blurr\"",
            &[
                "kernel.toml:2:",
                "has no function `blurr`",
                "did you mean `blur`",
                "it has blur, plain",
            ][..],
        ),
        ("source = \"blur.cu\"", "source = \"none.cu\"", &["no `__global__` function at all"]),
        ("block = [\"BX\", \"BY\"]\n", "", &["needs `block = [..]`", "for instance"]),
        ("grid = [\"(w", "grid = [\"(v", &["kernel.toml:3:", "no knob `v`"]),
        ("// (BX * TILE)", "/ (BX * TILE)", &["kernel.toml:3:", "`//` rounds down"]),
        ("\"h\"]\nblock", "\"h\", 1, 1]\nblock", &["one to three extents", "not 4"]),
        (
            "block = [\"BX\", \"BY\"]",
            "block = [\"BX * 200\", \"BY\"]",
            &["kernel.toml:4:", "more than 1024 threads", "smaller values"],
        ),
        (
            "block = [\"BX\", \"BY\"]",
            "block = [\"BX\", \"MATH\"]",
            &["kernel.toml:4:", "are words"],
        ),
        (
            "block = [\"BX\", \"BY\"]",
            "block = [\"BX\", \"BY - 1\"]",
            &["at the defaults", "extent y would be 0"],
        ),
        (
            "shared = \"4 * BX * BY\"",
            "shared = \"40000 * BX * BY\"",
            &["kernel.toml:5:", "bytes of shared memory"],
        ),
        (
            "BX * BY <= max_threads // 2",
            "BX * BY <= max_thread",
            &["kernel.toml:6:", "did you mean `max_threads`"],
        ),
        ("values = [\"\", \"--use_fast_math\"]", "values = [\"\", \"-O3\"]", &["no flag of NVRTC"]),
        ("h = 7", "h = 7\nmultiprocessors = 3", &["is a limit of the device"]),
        ("as = \"template\"", "as = \"templat\"", &["macro, argument, flag, template"]),
        ("grid = 1\n", "", &["a reference in CUDA needs `grid = [..]`"]),
        ("[[argument]]\nname = \"w\"", "openmp = true\n[[argument]]\nname = \"w\"", &["openmp"]),
        ("source = \"blur.cu\"", "source = \"blur.cu\"\nlanguage = \"c\"", &["this is C"]),
    ] {
        assert!(GOOD.contains(from), "{from}");
        match import_kernel(&GOOD.replacen(from, to, 1), "kernel.toml", &read) {
            Ok(_) => panic!("it is read with {to}"),
            Err(e) => {
                let e = e.to_string();
                words
                    .iter()
                    .for_each(|w| assert!(e.contains(w), "`{w}` is missing for {to}:\n{e}"));
            }
        }
    }
}
