//! Tests of the C host library: it compiles without a warning in all of its forms, and its runner
//! refuses a host with another version of the protocol.

use squall_runtime::host::{DRIVER, GPU_NETWORK, LAUNCH, MOVES, NETWORK, RUNNER, whole};
use squall_runtime::protocol::{Clock, Failure, Line, Place, Reply, Start, VERSION};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiles a program in a folder, in which warnings are errors.
fn compile(folder: &Path, name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&source, text).unwrap();
    let out = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .args(["-lm", "-ldl"])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    program
}

/// A kernel.
const ONE: &str = "static int one(const void *const *d, void *const *o, const void *p, \
                   void *w) {\n  (void)p, (void)w;\n  memcpy(o[0], d[0], 4);\n  return 0;\n}\n";

/// What a generated `kernels.c` holds at least.
fn kernels(head: &str, tables: &str) -> String {
    let library = whole("#include \"runtime.c\"");
    format!(
        "{head}{library}{ONE}static const rt_symbol rt_symbols[] = {{{{\"one\", (void \
         (*)(void))one, NULL}}}};\n{tables}"
    )
}

#[test]
fn all_programs_compile_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    compile(f, "runner", &whole(RUNNER.1), &[]);
    compile(f, "runner_cuda", &whole(RUNNER.1), &["-DSQUALL_CUDA"]);
    compile(f, "gpu_network", &whole(GPU_NETWORK.1), &[]);
    let plan = "squall plan 2\\nbuffer data f 1 own\\nbuffer output f 1 own\\nkernel c one - 0 \
                0\\nparameter data f 1\\nparameter output f 1\\ncall 0 0 1 - - one\\n";
    let table = format!(
        "static const rt_export rt_exported[] = {{{{\"first\", \"one\", \"{plan}\", \"{plan}\", \
         1, 1e-6}}}};\n"
    );
    for head in ["", "#define SQUALL_CUDA\n"] {
        std::fs::write(f.join("kernels.c"), kernels(head, &table)).unwrap();
        compile(f, "driver", DRIVER.1, &[]);
    }
    std::fs::write(f.join("kernels.c"), kernels("", &table)).unwrap();
    let driver = compile(f, "driver", DRIVER.1, &[]);
    let said = Command::new(driver).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(
        said.status.success() && text.starts_with("first ") && text.contains("right"),
        "{text}"
    );

    let table = whole("#include \"host.h\"\n#include <string.h>\n")
        + ONE
        + "const rt_symbol rt_symbols[] = {{\"one\", (void (*)(void))one, NULL}};\nconst size_t \
           rt_symbol_count = 1;\nconst int rt_threads = 1;\n";
    std::fs::write(f.join("kernels.c"), table).unwrap();
    std::fs::write(f.join("moves.c"), whole(MOVES.1)).unwrap();
    let with = ["-fopenmp", "moves.c", "kernels.c"];
    let network = compile(f, "network", &whole(NETWORK.1), &with);
    std::fs::write(f.join("plan.txt"), plan.replace("\\n", "\n")).unwrap();
    std::fs::write(f.join("input_0.bin"), [1, 2, 3, 4]).unwrap();
    let said = Command::new(&network).arg("0.01").current_dir(f).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.starts_with("inferences ") && text.contains("\nstep 0 "));
    assert_eq!(std::fs::read(f.join("output_0.bin")).unwrap(), [1, 2, 3, 4]);
    std::fs::write(f.join("plan.txt"), "squall plan 7\n").unwrap();
    let said = Command::new(&network).current_dir(f).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(
        !said.status.success() && text.contains("line 1") && text.contains("version"),
        "{text}"
    );
}

/// The library that launchers share with the runner is C++ too.
#[test]
fn launches_bind_in_cpp_too() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("launch.cc");
    std::fs::write(&source, LAUNCH).unwrap();
    let works = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .arg(&source)
        .output();
    let Ok(out) = works else {
        println!("skipped: there is no c++");
        return;
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_runner_says_its_version_and_refuses_another() {
    let folder = tempfile::tempdir().unwrap();
    let runner = compile(folder.path(), "runner", &whole(RUNNER.1), &[]);
    let first = |arguments: &[String]| {
        let out = Command::new(&runner).args(arguments).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        Line::parse(text.lines().next().unwrap_or(""))
    };
    let start = Start::Kernels { cores: vec![first_core()], on: Clock::Wall };
    let mut arguments = start.arguments();
    assert!(matches!(first(&arguments), Line::Reply(Reply::Ready(VERSION), _)));
    arguments[0] = "99".into();
    match first(&arguments) {
        Line::Reply(Reply::Failed(Failure { place: Place::Version, message, .. }), _) => {
            assert!(message.contains("99"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    // Without CUDA there is no GPU to use.
    let describe = Start::Describe(0).arguments();
    assert!(matches!(
        first(&describe),
        Line::Reply(Reply::Failed(Failure { place: Place::Device, .. }), _)
    ));
}

/// A core that this process may use.
fn first_core() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
    let list = list.unwrap_or("0").trim();
    list.split(['-', ',']).next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The digest of files of weights is XXH64, whose published results it gives.
#[test]
fn the_digest_is_xxh64() {
    let folder = tempfile::tempdir().unwrap();
    let text = whole("#include \"digest.c\"")
        + "#include <stdio.h>\n#include <string.h>\nint main(int argc, char **argv) {\n  for \
           (int i = 1; i < argc; i++)\n    printf(\"%016llx\\n\", \
           (unsigned long long)rt_digest(argv[i], strlen(argv[i])));\n  return 0;\n}\n";
    let program = compile(folder.path(), "digest", &text, &[]);
    let texts = ["", "a", "abc", "Nobody inspects the spammish repetition"];
    let said = Command::new(program).args(texts).output().unwrap();
    let want = "ef46db3751d8e999\nd24ec4f1a98c6e5b\n44bc2cf5ad770999\nfbcea83c8a378bf1\n";
    assert_eq!(String::from_utf8_lossy(&said.stdout), want);
}
