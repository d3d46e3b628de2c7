//! Tests of exported C libraries (`squall export --network`): outputs have the same bits as `squall
//! run`, compilers give no warnings, symbols have the prefix, hostile weight files are refused,
//! pools and threads work, ONNX Runtime loads the operator. Sanitizers and ONNX Runtime are used
//! where they are installed; `library/*.c` are the programs that are linked with the library.

use crate::support;

use squall_testing::samples;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use support::{Place, example};

/// The programs that are linked with the library.
const HOSTILE: &str = include_str!("library/hostile.c");
const MISUSE: &str = include_str!("library/misuse.c");
const PLACES: &str = include_str!("library/places.c");
const POOL: &str = include_str!("library/pool.c");
const POOL_THREADS: &str = include_str!("library/pool_threads.c");
const THREADS: &str = include_str!("library/threads.c");

/// A command in a folder: whether it went well, and what it printed.
fn run(folder: &Path, words: &[&str]) -> (bool, String) {
    let out = Command::new(words[0]).args(&words[1..]).current_dir(folder).output();
    let out = out.unwrap_or_else(|e| panic!("{}: {e}", words[0]));
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn succeeds(folder: &Path, words: &[&str]) -> String {
    let (fine, said) = run(folder, words);
    assert!(fine, "{}: {said}", words.join(" "));
    said
}

/// Whether a tool is there; says so where it is not.
fn there(tool: &str) -> bool {
    let is = Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success());
    if !is {
        println!("skipped: there is no {tool}");
    }
    is
}

/// The exports of the small network for one thread and for two.
struct Exports {
    place: Place,
    /// What `squall run` gives, as bytes, by threads.
    outputs: Vec<Vec<u8>>,
}

fn exports() -> &'static Exports {
    static MADE: OnceLock<Exports> = OnceLock::new();
    MADE.get_or_init(|| {
        let place = Place::new();
        let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
        let array = squall::arrays::read_array(Path::new(&x)).unwrap();
        std::fs::write(place.path().join("x.bin"), &array.bytes).unwrap();
        let mut outputs = Vec::new();
        for threads in 1..=2 {
            let threads = threads.to_string();
            let folder = format!("lib{threads}");
            let common = ["--threads", &threads];
            let export =
                ["export", &model, "--network", "net", "--out", &folder, "--ort", "--build"];
            place.squall(&[&export[..], &common].concat()).ok();
            let asked = ["run", &model, "--input", &x, "--output", "y.npy"];
            place.squall(&[&asked[..], &common].concat()).ok();
            let y = squall::arrays::read_array(&place.path().join("y.npy")).unwrap();
            outputs.push(y.bytes);
        }
        Exports { place, outputs }
    })
}

/// A copy of an export, to be built anew.
fn copy(threads: usize) -> (tempfile::TempDir, PathBuf) {
    let made = exports();
    let dir = tempfile::tempdir().unwrap();
    let from = made.place.path().join(format!("lib{threads}"));
    succeeds(dir.path(), &["cp", "-r", &from.to_string_lossy(), "lib"]);
    let folder = dir.path().join("lib");
    (dir, folder)
}

/// Whether what the example wrote is what `squall run` gave.
fn assert_same(folder: &Path, threads: usize) {
    let got = std::fs::read(folder.join("output_0.bin")).unwrap();
    assert_eq!(got, exports().outputs[threads - 1], "{threads} threads");
}

#[test]
fn the_output_has_the_bits_of_run() {
    for threads in 1..=2 {
        let (_dir, folder) = copy(threads);
        let x = exports().place.path().join("x.bin");
        for more in [&["./example"][..], &["./example", "--copy"]] {
            succeeds(&folder, &[more, &[&*x.to_string_lossy()]].concat());
            assert_same(&folder, threads);
        }
        // Without inputs it makes some.
        let said = succeeds(&folder, &["make", "check"]);
        assert!(said.contains("opened in"), "{said}");
        let half = std::fs::read_dir(&folder).unwrap().flatten();
        let half = half.filter(|f| f.file_name().to_string_lossy().ends_with(".half"));
        assert_eq!(half.count(), 0);
    }
}

/// Kernels of bf16 lie in the library, and copies that convert where a caller's floats meet.
#[test]
fn a_network_in_bf16_has_the_bits_of_run() {
    let p = Place::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let bytes = |path: &Path| squall::arrays::read_array(path).unwrap().bytes;
    std::fs::write(p.path().join("x.bin"), bytes(Path::new(&x))).unwrap();
    let half = ["--precision", "bf16"];
    let export = ["export", &model, "--network", "net", "--out", "lib", "--build"];
    p.squall(&[&export[..], &half].concat()).ok();
    let asked = ["run", &model, "--input", &x, "--output", "y.npy"];
    p.squall(&[&asked[..], &half].concat()).ok();
    p.squall(&["run", &model, "--input", &x, "--output", "f32.npy"]).ok();
    succeeds(&p.path().join("lib"), &["./example", "../x.bin"]);
    let got = std::fs::read(p.path().join("lib/output_0.bin")).unwrap();
    assert_eq!(got, bytes(&p.path().join("y.npy")));
    assert_ne!(got, bytes(&p.path().join("f32.npy")));
}

#[test]
fn compilers_have_nothing_to_say() {
    let own = std::env::var("SQUALL_CLANG").unwrap_or("clang".into());
    for compiler in ["gcc", &own].into_iter().filter(|c| there(c)) {
        for threads in 1..=2 {
            let (_dir, folder) = copy(threads);
            succeeds(&folder, &["make", "clean"]);
            let openmp = if compiler == "gcc" { "OPENMP=-fopenmp" } else { "OPENMP=" };
            let cc = format!("CC={compiler}");
            succeeds(&folder, &["make", &cc, openmp, "CFLAGS=-Werror"]);
            succeeds(&folder, &["./example"]);
        }
    }
    let (_dir, folder) = copy(1);
    std::fs::write(folder.join("h.cc"), "#include \"net.h\"\n#include \"net.h\"\n").unwrap();
    if there("c++") {
        let strict = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
        succeeds(&folder, &[&["c++"], &strict[..], &["-fsyntax-only", "h.cc"]].concat());
    }
    if there("cmake") {
        succeeds(&folder, &["cmake", "-S", ".", "-B", "cm", "-DBUILD_SHARED_LIBS=ON"]);
        succeeds(&folder, &["cmake", "--build", "cm"]);
        let x = exports().place.path().join("x.bin");
        succeeds(&folder, &["cm/example", &x.to_string_lossy()]);
        assert_same(&folder, 1);
    }
}

/// Symbols as `nm` lists them: the letter and the name.
fn symbols(folder: &Path, arguments: &[&str]) -> Vec<(char, String)> {
    let said = succeeds(folder, &[&["nm"], arguments].concat());
    let of = |l: &str| {
        let words: Vec<&str> = l.split_whitespace().collect();
        let [.., letter, name] = words[..] else { return None };
        let letter = letter.chars().next().filter(|_| letter.len() == 1)?;
        Some((letter, name.to_string()))
    };
    said.lines().filter_map(of).collect()
}

#[test]
fn symbols_begin_with_the_name() {
    for threads in 1..=2 {
        let (_dir, folder) = copy(threads);
        let of = symbols(&folder, &["-D", "--defined-only", "libnet.so"]);
        assert_eq!(of.len(), 10, "{of:?}");
        assert!(of.iter().all(|(_, n)| n.starts_with("net_")), "{of:?}");
        let of = symbols(&folder, &["-g", "--defined-only", "libnet.a"]);
        assert!(of.len() > 20 && of.iter().all(|(_, n)| n.starts_with("net_")), "{of:?}");
        let of = symbols(&folder, &["-D", "--defined-only", "libnet_ort.so"]);
        let others: Vec<_> = of.iter().filter(|(_, n)| !n.starts_with("net_")).collect();
        assert!(matches!(&others[..], [(_, n)] if n == "RegisterCustomOps"), "{others:?}");
    }
}

/// The objects that a run reaches: all but those of opening and of OpenMP.
fn run_objects(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder.join("build")).unwrap().flatten();
    let names = all.map(|f| format!("build/{}", f.file_name().to_string_lossy()));
    let opens = ["build/open.o", "build/needs.o", "build/pool.o"];
    names.filter(|n| !opens.contains(&n.as_str())).collect()
}

#[test]
fn a_run_reaches_nothing_of_the_system() {
    for threads in 1..=2 {
        let (_dir, folder) = copy(threads);
        if threads == 2 {
            // OpenMP is the only thing beside the run that two threads need.
            succeeds(&folder, &["make", "clean"]);
            succeeds(&folder, &["make", "OPENMP="]);
        }
        let objects = run_objects(&folder);
        let list: Vec<&str> = objects.iter().map(String::as_str).collect();
        assert!(list.len() > 5 && list.contains(&"build/run.o"), "{list:?}");
        for (letter, name) in symbols(&folder, &list) {
            assert!(!"bBdDcCsSgG".contains(letter), "{name} can be written");
        }
        // Freestanding: what compilers ask of any environment, and the pool of `pool.o`.
        let stub = "#include <stddef.h>
void *memcpy(void *to, const void *from, size_t n) { (void)from, (void)n; return to; }
void *memset(void *to, int x, size_t n) { (void)x, (void)n; return to; }
void *memmove(void *to, const void *from, size_t n) { (void)from, (void)n; return to; }
int memcmp(const void *a, const void *b, size_t n) { (void)a, (void)b, (void)n; return 0; }
int net_rt_pool_of(size_t n, void *p) { (void)n, (void)p; return 0; }
";
        std::fs::write(folder.join("stub.c"), stub).unwrap();
        let link = ["cc", "-ffreestanding", "-fno-builtin", "-nostdlib", "-shared", "-fPIC"];
        let end = ["-Wl,-z,defs", "-o", "free.so", "stub.c"];
        // Functions of numbers come from the library of mathematics, which reaches nothing else.
        succeeds(&folder, &[&link[..], &end, &list, &["-lm"]].concat());
        // Opening does reach the system: the same link must fail with it.
        let more = ["build/open.o", "build/needs.o", "-lm"];
        let (linked, _) = run(&folder, &[&link[..], &end, &list, &more].concat());
        assert!(!linked, "the link finds what is not there");
    }
}

/// Compiles and runs a program over a library that is built with certain flags.
fn program(folder: &Path, name: &str, text: &str, flags: &str, make: &[&str]) -> (bool, String) {
    std::fs::write(folder.join(format!("{name}.c")), text).unwrap();
    succeeds(folder, &["make", "clean"]);
    let cflags = format!("CFLAGS={flags}");
    succeeds(folder, &[&["make", "libnet.a", &cflags], make].concat());
    let source = format!("{name}.c");
    let start = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", name, &source];
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let end = ["libnet.a", "-I.", "-lpthread", "-lm"];
    succeeds(folder, &[&start[..], &flags, &end].concat());
    run(folder, &[&format!("./{name}")])
}

/// Whether programs run with a sanitizer here.
fn sanitizes(flag: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.c"), "int main(void) { return 0; }\n").unwrap();
    let (built, _) = run(dir.path(), &["cc", flag, "-o", "a", "a.c"]);
    let works = built && run(dir.path(), &["./a"]).0;
    if !works {
        println!("skipped: {flag} does not work here");
    }
    works
}

#[test]
fn threads_share_a_model() {
    if squall_testing::is_left_to_full("library::threads_share_a_model") {
        return;
    }
    if !sanitizes("-fsanitize=thread") {
        return;
    }
    let (_dir, folder) = copy(1);
    let (fine, said) = program(&folder, "threads", THREADS, "-fsanitize=thread -g", &[]);
    assert!(fine && said == "equal\n", "{said}");
    // The tool sees what it is there for: one workspace for both is a race.
    let one = "static void *one_workspace(void) {\n  static char all[NET_WORKSPACE_BYTES + 64] \
               __attribute__((aligned(64)));\n  return all;\n}\n\nstatic void *work";
    let racing = THREADS
        .replace(
            "aligned_alloc(64, (net_workspace_bytes(model) + 63) / 64 * 64)",
            "one_workspace()",
        )
        .replace("free(workspace)", "(void)workspace")
        .replacen("static void *work", one, 1);
    let (fine, said) = program(&folder, "racing", &racing, "-fsanitize=thread -g", &[]);
    assert!(!fine && said.contains("data race"), "{said}");
}

/// Steps read and write a caller's tensors where they lie, if they may, with the bits of copies.
#[test]
fn tensors_may_lie_anywhere() {
    let (_dir, folder) = copy(1);
    let (fine, said) = program(&folder, "places", PLACES, "-g", &[]);
    assert!(fine && said == "128 equal\n", "{said}");
}

/// No two threads of a run touch an element that one of them writes, and all runs give one result.
#[test]
fn threads_of_a_run_do_not_meet() {
    if !sanitizes("-fsanitize=thread") {
        return;
    }
    // More threads than most machines of tests have cores.
    let place = Place::new();
    let words = ["export", &example("small_net.onnx"), "--network", "net", "--out", "lib"];
    place.squall(&[&words[..], &["--threads", "4"]].concat()).ok();
    let folder = place.path().join("lib");
    let text = POOL_THREADS.replace("RUNS", &samples(100, 1000).to_string());
    let flags = "-fsanitize=thread -g";
    let (fine, said) = program(&folder, "pool_threads", &text, flags, &["OPENMP="]);
    let loops: u32 = said.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(fine && loops > 0 && said.ends_with(" loops, 0 others\n"), "{said}");
}

#[test]
fn hostile_weights_never_crash() {
    if squall_testing::is_left_to_full("library::hostile_weights_never_crash") {
        return;
    }
    let flags = "-fsanitize=address,undefined -fno-sanitize-recover=all -g";
    if !sanitizes("-fsanitize=address,undefined") {
        return;
    }
    let (_dir, folder) = copy(1);
    let (fine, said) = program(&folder, "hostile", HOSTILE, flags, &[]);
    assert!(fine, "{said}");
    let numbers: Vec<u32> = said.split(' ').filter_map(|w| w.trim().parse().ok()).collect();
    let [refused, ran, intact] = numbers[..] else { panic!("{said}") };
    assert_eq!(refused + ran, 10_000);
    assert!(refused > 3000 && ran > 500 && intact < ran, "{said}");
    let (fine, said) = program(&folder, "misuse", MISUSE, flags, &[]);
    assert!(fine && said == "fine\n", "{said}");
}

#[test]
fn a_callers_pool_runs_the_loops() {
    let (_dir, folder) = copy(2);
    let (fine, said) = program(&folder, "pool", POOL, "-g", &["OPENMP="]);
    let loops: u32 = said.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    // Which kernels have a parallel loop depends on the guesses for this machine.
    assert!(fine && loops > 0 && said.ends_with(" loops, equal\n"), "{said}");
}

#[test]
fn a_processor_that_lacks_an_instruction_set_is_told() {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !cfg!(target_arch = "x86_64") || cpu.contains("avx512_fp16") {
        println!("skipped: this processor has all that compilers know");
        return;
    }
    let (_dir, folder) = copy(1);
    succeeds(&folder, &["make", "clean"]);
    let (built, _) = run(&folder, &["make", "MACHINE=-march=x86-64-v2 -mavx512fp16"]);
    if !built {
        println!("skipped: the compiler does not know AVX512-FP16");
        return;
    }
    let (fine, said) = run(&folder, &["./example"]);
    assert!(!fine && said.contains("lacks an instruction set"), "{said}");
    // A lower level than this processor's runs.
    succeeds(&folder, &["make", "clean"]);
    succeeds(&folder, &["make", "MACHINE=-march=x86-64"]);
    succeeds(&folder, &["./example"]);
}

#[test]
fn onnxruntime_runs_it_as_an_operator() {
    let candidates = [std::env::var("SQUALL_PYTHON").unwrap_or("python3".into())];
    let more = ["/work/peers-venv/bin/python".to_string()];
    let has = |p: &&String| {
        let asked = Command::new(p).args(["-c", "import onnxruntime, numpy"]).output();
        asked.is_ok_and(|o| o.status.success())
    };
    let Some(python) = candidates.iter().chain(&more).find(has) else {
        println!("skipped: there is no Python with onnxruntime");
        return;
    };
    let script = "
import numpy as np, onnxruntime as ort, sys
x = np.load(sys.argv[1])
options = ort.SessionOptions()
options.register_custom_ops_library('./libnet_ort.so')
session = ort.InferenceSession('net_ort.onnx', options, providers=['CPUExecutionProvider'])
name = session.get_inputs()[0].name
for _ in range(3):
    y, = session.run(None, {name: x})
y.tofile('output_0.bin')
try:
    session.run(None, {name: x.astype(np.float64)})
    sys.exit('doubles were taken')
except Exception as e:
    print('refused:', e)
";
    for threads in 1..=2 {
        let (_dir, folder) = copy(threads);
        std::fs::write(folder.join("ort.py"), script).unwrap();
        let said = succeeds(&folder, &[python, "ort.py", &example("small_net_input.npy")]);
        assert!(said.contains("refused:"), "{said}");
        assert_same(&folder, threads);
        // Weights that are not there are named.
        std::fs::remove_file(folder.join("net.weights")).unwrap();
        let (fine, said) = run(&folder, &[python, "ort.py", &example("small_net_input.npy")]);
        assert!(!fine && said.contains("net.weights"), "{said}");
    }
}

#[test]
fn wrong_requests_are_refused() {
    let p = Place::new();
    let model = example("small_net.onnx");
    let bad = p.squall(&["export", &model, "--network", "1 net", "--out", "lib"]);
    assert_eq!(bad.code, Some(2), "{}", bad.err);
    assert!(bad.err.contains("no name for a network"), "{}", bad.err);
    let kernel = ["export", "matmul m=8 n=8 k=8", "--network", "net", "--out", "lib"];
    let bad = p.squall(&kernel).fails();
    assert!(bad.err.contains("no model that can be run"), "{}", bad.err);
    assert!(!p.path().join("lib/net.weights").exists());
}
