//! Tests of the reader of kernel.toml with C kernels: one good file and many changed ones. Each
//! problem is a task with its own space, knobs reach the kernel as macros, arguments and flags, and
//! errors point at their place.

use super::*;
use squall_core::space::Knob;
use squall_core::{Bytes, Workload};

const GOOD: &str = r#"name = "axpy"
source = "axpy.c"
entry = "axpy"
flop = "2 * n"
constraints = ["UNROLL * 4 <= n", "CHUNK % UNROLL == 0"]

[[argument]]
name = "n"
type = "i64"
role = "scalar"
value = "n"

[[argument]]
name = "x"
type = "f32"
shape = ["n"]

[[argument]]
name = "y"
type = "f32"
role = "inout"
shape = ["n"]
range = [0, 2]

[[argument]]
name = "CHUNK"
type = "i32"
role = "knob"

[[knob]]
name = "UNROLL"
powers_of_two = [1, 8]
default = 2

[[knob]]
name = "CHUNK"
range = [8, 24, 8]
as = "argument"

[[knob]]
name = "O"
values = [1, 2]
flag = "-O{}"
default = 2

[[problem]]
name = "small"
n = 16

[[problem]]
n = 1000

[reference]
entry = "plain"
"#;

fn read(path: &str) -> Result<Vec<u8>, String> {
    let array = |shape: Vec<i64>, n: usize| {
        crate::npy::write(&crate::npy::Array::floats(shape, &vec![0.5; n]))
    };
    match path {
        "x_small.npy" | "y_small.npy" => return Ok(array(vec![16], 16)),
        "x_n1000.npy" | "y_n1000.npy" => return Ok(array(vec![1000], 1000)),
        "square.npy" => return Ok(array(vec![4, 4], 16)),
        "bytes" => return Ok(vec![0xff, 0xfe]),
        _ => {}
    }
    let text: Result<&str, String> = match path {
        "axpy.c" => {
            Ok("#include \"more.h\"\nvoid axpy(long n, const float *x, float *y, int c) { }\n")
        }
        "more.h" => Ok("#pragma once\n#include \"axpy.h\"\nstatic int more;\n"),
        "listed.txt" => Ok("CHUNK=8,UNROLL=2,O=2\n\nUNROLL=8,CHUNK=24,O=1\n"),
        "other.txt" => Ok("UNROLL=2,CHUNK=8,O=2\n"),
        "wrong.txt" => Ok("\nUNROLL=2,CHUNK=9,O=2\n"),
        "nothing.txt" => Ok("\n \n"),
        "loop.c" => Ok("#include \"loop.c\"\n"),
        _ => Err("no such file".into()),
    };
    text.map(|t| t.as_bytes().to_vec())
}

fn said(text: &str) -> String {
    match import_kernel(text, "kernel.toml", &read) {
        Ok(_) => panic!("it is read:\n{text}"),
        Err(e) => e.to_string(),
    }
}

/// What is said once a piece of the good file is replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    said(&GOOD.replacen(from, to, 1))
}

#[test]
fn each_problem_is_a_task_with_its_own_space() {
    let all = import_kernel(GOOD, "kernel.toml", &read).unwrap();
    let names: Vec<&str> = all.iter().map(|k| k.task.name.as_str()).collect();
    assert_eq!(names, ["axpy_small", "axpy_n1000"]);
    // n = 16 forbids UNROLL = 8: 3 x 3 x 2 are left of 4 x 3 x 2.
    assert_eq!(all.iter().map(|k| k.tunable.space().len()).collect::<Vec<_>>(), [18, 24]);
    assert_ne!(all[0].task.id, all[1].task.id);
    let w = &all[0].task.workload;
    assert_eq!((w.flop(), w.tolerance(), w.bytes().0), (32, 1e-4, 3 * 64));
    assert_eq!(Workload::parse(&w.to_string()).unwrap(), *w, "it prints and parses back:\n{w}");
    assert_eq!(all[0].plain.space().nth(0).to_string(), "UNROLL=2,CHUNK=8,O=2");
    let again = import_kernel(&format!("# moved\n\n{GOOD}"), "other.toml", &read).unwrap();
    assert_eq!(again[0].task.id, all[0].task.id, "blank lines change no identity");
    let other =
        import_kernel(&GOOD.replace("range = [0, 2]", "range = [0, 3]"), "kernel.toml", &read)
            .unwrap();
    assert_ne!(other[0].task.id, all[0].task.id);
}

#[test]
fn knobs_arrive_as_macros_arguments_and_flags() {
    let all = import_kernel(GOOD, "kernel.toml", &read).unwrap();
    let c = all[0].tunable.space().parse("UNROLL=4,CHUNK=16,O=1").unwrap();
    let k = all[0].tunable.realize(&c, "sym").unwrap();
    assert_eq!(k.flags, ["-O1"]);
    for part in [
        "#define UNROLL 4\n",
        "#define axpy sym_own\n",
        "#line 1 \"more.h\"\n\n#include \"axpy.h\"\nstatic int more;\n#line 2 \"axpy.c\"\n",
        "memcpy(outputs[0], data[1], 64);",
        "sym_call((int64_t)(16LL), (const float *)data[0], (float *)outputs[0], (int32_t)(16));",
    ] {
        assert!(k.source.contains(part), "{part}\n{}", k.source);
    }
    assert!(!k.source.contains("#define CHUNK") && !k.source.contains("#define O "));
    let r = all[0].reference("ref").kernel.unwrap();
    assert!(
        r.source.contains("#define plain ref_own") && r.source.contains("(float *)outputs[0]);"),
        "{}",
        r.source
    );
    assert!(r.flags.is_empty());
    // It stands in the same source, which needs the macros.
    assert!(r.source.contains("#define UNROLL 2\n#define axpy ref_own_axpy\n"), "{}", r.source);
}

#[test]
fn without_a_reference_the_defaults_are_it() {
    let all =
        import_kernel(&GOOD.replace("[reference]\nentry = \"plain\"\n", ""), "kernel.toml", &read)
            .unwrap();
    let c = all[0].plain.space().nth(0);
    assert_eq!(all[0].reference("s").kernel.unwrap(), all[0].plain.realize(&c, "s").unwrap());
}

#[test]
fn configurations_may_be_listed() {
    let with = |file: &str| {
        let line = format!("configurations = \"{file}\"\n[[argument]]");
        GOOD.replacen("[[argument]]", &line, 1)
    };
    let read = |text: &str| import_kernel(text, "kernel.toml", &read).unwrap();
    let all = read(&with("listed.txt"));
    let shown =
        |k: &UserKernel| k.tunable.space().iter().map(|c| c.to_string()).collect::<Vec<_>>();
    // The constraints hold as well: n = 16 forbids UNROLL = 8.
    assert_eq!(shown(&all[0]), ["UNROLL=2,CHUNK=8,O=2"]);
    assert_eq!(shown(&all[1]), ["UNROLL=2,CHUNK=8,O=2", "UNROLL=8,CHUNK=24,O=1"]);
    let (other, without) = (read(&with("other.txt")), read(GOOD));
    assert!(all[1].task.id != other[1].task.id && all[1].task.id != without[1].task.id);
    for (file, words) in [
        ("missing.txt", "`missing.txt` cannot be read: no such file"),
        ("wrong.txt", "line 2 of `wrong.txt`: `UNROLL=2,CHUNK=9,O=2`"),
        ("nothing.txt", "lists no configuration"),
    ] {
        let said = said(&with(file));
        assert!(said.contains(words) && said.contains("kernel.toml:7:18"), "{said}");
    }
}

#[test]
fn errors_point_at_their_place() {
    assert_eq!(
        changed("values = [1, 2]", "vaules = [1, 2]"),
        "kernel.toml:42:1: a knob has no key `vaules` (did you mean `values`?); its keys are \
         name, values, range, powers_of_two, kind, as, flag, default\n  \
         42 | vaules = [1, 2]\n     | ^^^^^^"
    );
    assert_eq!(
        changed("CHUNK % UNROLL", "CHUNK % UNROL"),
        "kernel.toml:5:44: there is no knob `UNROL` (did you mean `UNROLL`?)\n  \
         5 | constraints = [\"UNROLL * 4 <= n\", \"CHUNK % UNROL == 0\"]\n    \
         |                                            ^"
    );
}

#[test]
fn what_is_wrong_is_said() {
    let mut wrong = Vec::new();
    for (from, to, place, words) in [
        ("entry = \"axpy\"", "entry = axpy", "3:9", "string values must be quoted"),
        ("entry = \"axpy\"\n", "", "1:1", "needs `entry = ..`"),
        ("\"axpy.c\"", "\"axpi.c\"", "2:10", "`axpi.c` cannot be read: no such file"),
        ("\"axpy.c\"", "\"loop.c\"", "2:10", "include each other"),
        ("type = \"i64\"", "type = \"int64\"", "9:8", "did you mean `i64`?"),
        ("role = \"inout\"", "role = \"in_out\"", "21:8", "(did you mean `inout`?)"),
        (
            "role = \"inout\"",
            "role = \"input\"",
            "7:1",
            "no argument is written: one or more have role",
        ),
        ("shape = [\"n\"]", "shape = [\"m\"]", "16:11", "the sizes are n"),
        ("shape = [\"n\"]", "shape = [\"n - 16\"]", "16:10", "must be 1 or more, not 0"),
        ("shape = [\"n\"]", "shape = [\"n * 1000000000000\"]", "16:10", "too many elements"),
        ("range = [0, 2]", "range = [2, 0]", "23:9", "the least value, 2, is above the largest, 0"),
        ("powers_of_two = [1, 8]", "powers_of_two = [1, 9]", "32:17", "both powers of two"),
        ("powers_of_two = [1, 8]", "values = []", "32:10", "has no value"),
        ("powers_of_two = [1, 8]", "values = [2, 2]", "32:10", "lists 2 twice"),
        ("powers_of_two = [1, 8]", "range = [1, 1000000000]", "32:9", "over 65536 values"),
        (
            "powers_of_two = [1, 8]",
            "values = [2, 4]\nrange = [1, 2]",
            "33:9",
            "has its values twice",
        ),
        ("default = 2", "default = 3", "33:11", "`UNROLL` has no value 3"),
        ("flag = \"-O{}\"", "flag = \"-o x{}\"", "43:8", "no flag for one kernel"),
        ("as = \"argument\"", "as = \"macro\"", "35:1", "role = \"knob\""),
        ("n = 1000", "m = 1000", "50:1", "every problem has the same sizes; the first has n"),
        ("n = 1000", "n = 1.5", "51:5", "the size `n` is a whole number, not a float"),
        ("n = 1000", "name = \"small\"\nn = 3", "50:1", "called `small` too"),
        ("n = 16", "n = 3", "5:15", "no configuration satisfies all constraints (problem `small`)"),
        ("\"UNROLL * 4 <= n\"", "\"UNROLL / 0 <= n\"", "5:15", "no configuration satisfies"),
        ("\"UNROLL * 4 <= n\"", "\"UNROLL = 1\"", "5:24", "equality is `==`"),
        (
            "\"UNROLL * 4 <= n\"",
            "\"UNROLL != 2\"",
            "30:1",
            "defaults of the knobs break a constraint",
        ),
        ("entry = \"plain\"", "entry = \"2nd\"", "54:9", "`2nd` is no name"),
    ] {
        let m = changed(from, to);
        if !m.starts_with(&format!("kernel.toml:{place}: ")) || !m.contains(words) {
            wrong.push(format!("{from} -> {to}: {place} {words}\n{m}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The good file with inputs and results from files.
fn from_files() -> String {
    let x = GOOD.replacen("shape = [\"n\"]", "shape = [\"n\"]\nfile = \"x_{}.npy\"", 1);
    let y = x.replace("range = [0, 2]", "file = \"y_{}.npy\"");
    y.replace("entry = \"plain\"", "outputs = [\"y_{}.npy\"]")
}

#[test]
fn inputs_and_results_may_stand_in_files() {
    let all = import_kernel(&from_files(), "kernel.toml", &read).unwrap();
    for (k, n) in all.iter().zip([16, 1000]) {
        let r = k.reference("r");
        assert!(r.kernel.is_none() && r.outputs.len() == 4 * n);
        assert_eq!(
            r.inputs.iter().map(|i| i.as_ref().map_or(0, |b| b.len())).collect::<Vec<_>>(),
            [4 * n, 4 * n]
        );
        assert_eq!(k.restored, Bytes(4 * n as u64));
    }
    let other = import_kernel(GOOD, "kernel.toml", &read).unwrap();
    assert_ne!(
        all[0].task.id, other[0].task.id,
        "what is in a file is part of the kernel's identity"
    );
    for (from, to, words) in [
        (
            "file = \"x_{}.npy\"\n",
            "",
            "results from files need inputs from files: `x` has no `file`",
        ),
        ("x_{}", "z_{}", "`z_small.npy` cannot be read: no such file"),
        ("x_{}", "square", "holds f32 of shape [4, 4], expected f32 of shape [16]"),
        ("x_{}.npy", "bytes", "`bytes`: it is no .npy file"),
        ("[\"y_{}.npy\"]", "[]", "there are 0 files for what is written: y"),
        ("outputs = [", "entry = \"plain\"\noutputs = [", "not from both"),
        ("file = \"x_{}.npy\"", "file = \"x_{}.npy\"\nrange = [0, 1]", "not from both"),
    ] {
        let text = from_files();
        assert!(text.contains(from), "{from}");
        let m = said(&text.replacen(from, to, 1));
        assert!(m.contains(words) && m.contains('^'), "{from} -> {to}: {m}");
    }
    assert!(said(&GOOD.replace("axpy.c", "bytes")).contains("it is not UTF-8 text"));
}

#[test]
fn several_arguments_may_be_written() {
    let more = "[[argument]]\nname = \"count\"\ntype = \"i32\"\nrole = \"output\"\nshape = [4]\n\n\
                [[knob]]\nname = \"UNROLL\"";
    let text = GOOD.replacen("[[knob]]\nname = \"UNROLL\"", more, 1);
    let all = import_kernel(&text, "kernel.toml", &read).unwrap();
    let w = &all[0].task.workload;
    assert_eq!(
        w.outputs().iter().map(|o| o.name.as_str()).collect::<Vec<_>>(),
        ["y_after", "count"]
    );
    assert_eq!((w.tolerance(), w.bytes()), (1e-4, Bytes(3 * 64 + 16)));
    assert_eq!(Workload::parse(&w.to_string()).unwrap(), *w);
    let k = all[0].plain.realize(&all[0].plain.space().nth(0), "s").unwrap();
    assert!(
        k.source.contains("(float *)outputs[0]") && k.source.contains("(int32_t *)outputs[1]"),
        "{}",
        k.source
    );
}

#[test]
fn knobs_are_ordered_or_categorical_and_reach_the_kernel_in_three_ways() {
    let text = GOOD
        .replace("powers_of_two = [1, 8]", "values = [8, 1, 2]\nkind = \"ordered\"")
        .replace("range = [8, 24, 8]", "values = [16, 8]\nkind = \"categorical\"")
        .replace(
            "values = [1, 2]\nflag = \"-O{}\"\ndefault = 2",
            "values = [\"\", \"-ffast-math\"]\nas = \"flag\"",
        );
    let all = import_kernel(&text, "kernel.toml", &read).unwrap();
    let space = all[0].tunable.space();
    assert_eq!(
        space.knobs().iter().map(Knob::is_ordered).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert_eq!(space.knobs()[0].values, [1, 2, 8].map(squall_core::space::Value::Int));
    let c = space.parse("UNROLL=2,CHUNK=16,O=-ffast-math").unwrap();
    let k = all[0].tunable.realize(&c, "s").unwrap();
    assert_eq!(k.flags, ["-ffast-math"]);
    assert!(
        k.source.contains("#define UNROLL 2\n") && k.source.contains("(int32_t)(16)"),
        "{}",
        k.source
    );
    assert!(
        changed("powers_of_two = [1, 8]", "values = [\"a\", \"b\"]\nkind = \"ordered\"")
            .contains("words have no order")
    );
}

#[test]
fn hostile_files_end_in_a_message() {
    for text in [
        "",
        "\u{0}",
        "[[argument]]",
        "entry = \"é",
        "knob = 1",
        "argument = [1]",
        "entry='a'\nargument=[{name='é'}]",
        "a = [[[[[[",
    ] {
        assert!(said(text).starts_with("kernel.toml:"), "{text:?}");
    }
    let deep = format!("entry = {}", "[".repeat(20_000));
    assert!(said(&deep).len() < 2000);
}
