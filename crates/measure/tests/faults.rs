//! Fault injection for the local measurer: kernels that crash, hang, exit, write outside of their
//! buffers, keep results between calls or give wrong answers. Each must become the outcome of its
//! own trial, and the next kernel must be measured as usual ([`support::outcome`] checks that after
//! every fault).

use crate::support;

use squall_core::{Bytes, FailStage, KernelSource, Outcome};
use std::time::{Duration, Instant};
use support::*;

#[test]
fn crashes_are_launch_failures() {
    let mut measurer = measurer();
    fails(
        &mut measurer,
        kernel("", "*(volatile int *)8 = 1;", ""),
        FailStage::Launch,
        &["SIGSEGV", "the kernel", "outside its buffers"],
    );
    fails(&mut measurer, kernel("", "abort();", ""), FailStage::Launch, &["SIGABRT"]);
    fails(
        &mut measurer,
        kernel("", "__builtin_trap();", ""),
        FailStage::Launch,
        &["killed by signal"],
    );
    fails(
        &mut measurer,
        kernel("", "raise(9);", "").with_include("signal.h"),
        FailStage::Launch,
        &["signal 9"],
    );
    let deep = kernel(
        "int deep(volatile char *p) { volatile char a[4096]; a[0] = p[0]; return deep(a) + a[1]; }",
        "char c = 0; deep(&c);",
        "",
    );
    fails(&mut measurer, deep, FailStage::Launch, &["SIGSEGV"]);
    let constructor = kernel("__attribute__((constructor)) void start(void) { abort(); }", "", "");
    fails(&mut measurer, constructor, FailStage::Launch, &["its loading"]);
}

#[test]
fn ending_the_process_is_a_launch_failure() {
    let mut measurer = measurer();
    fails(
        &mut measurer,
        kernel("", "exit(3);", ""),
        FailStage::Launch,
        &["ended the process", "exit status 3"],
    );
    fails(&mut measurer, kernel("", "_exit(0);", ""), FailStage::Launch, &["exit status 0"]);
}

#[test]
fn an_error_code_is_a_launch_failure() {
    let mut measurer = measurer();
    fails(&mut measurer, kernel("", "return 5;", ""), FailStage::Launch, &["returned 5"]);
    // Only the tenth call fails: the timed ones count too.
    fails(
        &mut measurer,
        kernel("static int n;", "if (++n == 10) return 6;", ""),
        FailStage::Launch,
        &["returned 6"],
    );
}

#[test]
fn a_hanging_kernel_is_killed() {
    let mut measurer = measurer();
    measurer.set_timeout(Duration::from_millis(700));
    let start = Instant::now();
    let all = outcomes(&mut measurer, &[kernel("", "for (volatile int a = 1; a;);", ""), right()])
        .unwrap();
    assert!(
        matches!(
            &all[0].0,
            Outcome::Failed { stage: FailStage::Timeout, detail } if detail.contains("0.7 s")
        ),
        "{:?}",
        all[0]
    );
    assert!(all[0].1.measure > 0.1, "the time it burnt is accounted: {:?}", all[0].1);
    measured(&all[1].0);
    assert!(start.elapsed() < Duration::from_secs(20));
    // One that sleeps burns nothing and is killed all the same.
    fails(&mut measurer, kernel("", "for (;;) sleep(1);", ""), FailStage::Timeout, &[]);
    // Ignoring signals does not help.
    let stubborn =
        kernel("", "signal(15, SIG_IGN); for (;;) sleep(1);", "").with_include("signal.h");
    fails(&mut measurer, stubborn, FailStage::Timeout, &[]);
}

#[test]
fn writes_beside_the_output_are_found() {
    let mut measurer = measurer();
    // In the last bytes before the guard page: the canary sees it.
    fails(
        &mut measurer,
        kernel("", "y[1000] = 1;", ""),
        FailStage::WrongAnswer,
        &["behind the end of the output", "byte 4000 of 4000"],
    );
    fails(
        &mut measurer,
        kernel("", "y[-1] = 1;", ""),
        FailStage::WrongAnswer,
        &["in front of the output"],
    );
    // Beyond: the page that cannot be touched.
    fails(
        &mut measurer,
        kernel("", "y[1008] = 1;", ""),
        FailStage::Launch,
        &["SIGSEGV", "32 bytes behind the end of the output (4000 bytes)"],
    );
    fails(
        &mut measurer,
        kernel("", "y[-1024] = 1;", ""),
        FailStage::Launch,
        &["SIGSEGV", "in front of the output"],
    );
}

#[test]
fn other_buffers_are_guarded_too() {
    let mut measurer = measurer();
    fails(
        &mut measurer,
        kernel("", "((float *)x)[3] = 1;", ""),
        FailStage::Launch,
        &["data input 0, which is read-only (byte 12)"],
    );
    fails(
        &mut measurer,
        kernel("", "((float *)w)[3] = 1;", ""),
        FailStage::Launch,
        &["the prepared weights, which is read-only"],
    );
    fails(
        &mut measurer,
        kernel("", "scratch[100] = 1;", ""),
        FailStage::WrongAnswer,
        &["behind the end of the workspace", "byte 400 of 400"],
    );
    fails(
        &mut measurer,
        kernel("", "memset(scratch, 0, 4096);", ""),
        FailStage::Launch,
        &["behind the end of the workspace"],
    );
    fails(
        &mut measurer,
        kernel("", "volatile float far = x[1010]; (void)far;", ""),
        FailStage::Launch,
        &["behind the end of data input 0"],
    );
}

#[test]
fn a_kernel_that_needs_no_workspace_gets_none() {
    let mut measurer = measurer();
    let mut k = kernel("", "scratch[0] = 1;", "");
    k.workspace = Bytes(0);
    k.source = k.source.replace("return 400;", "return 0;");
    fails(&mut measurer, k, FailStage::Launch, &["behind the end of the workspace (0 bytes)"]);
}

#[test]
fn wrong_values_are_found_and_shown() {
    let mut measurer = measurer();
    fails(
        &mut measurer,
        kernel("", "", "y[37] += 0.5f;"),
        FailStage::WrongAnswer,
        &["output[37]", "expected", "1 of 1000"],
    );
    fails(
        &mut measurer,
        kernel("", "return 0;", ""),
        FailStage::WrongAnswer,
        &["output[0]", "never written", "1000 of 1000"],
    );
    fails(
        &mut measurer,
        kernel("", "", "y[999] = NAN;"),
        FailStage::WrongAnswer,
        &["output[999]", "nan"],
    );
    fails(
        &mut measurer,
        kernel("", "", "y[0] = INFINITY;"),
        FailStage::WrongAnswer,
        &["output[0] is inf"],
    );
    // A part left out: the poison there is no result.
    fails(
        &mut measurer,
        kernel("", "float old = y[500];", "y[500] = old;"),
        FailStage::WrongAnswer,
        &["output[500]", "never written"],
    );
    // Just beyond the tolerance.
    fails(&mut measurer, kernel("", "", "y[1] += 0.01f;"), FailStage::WrongAnswer, &["output[1]"]);
    // What lies in the workspace before the call is garbage.
    fails(
        &mut measurer,
        kernel("", "float old = scratch[5];", "y[3] += old;"),
        FailStage::WrongAnswer,
        &["output[3]", "nan"],
    );
}

#[test]
fn results_kept_between_calls_are_found() {
    let mut measurer = measurer();
    let keeps = kernel(
        "static float kept[1000]; static int have;",
        "if (have) { memcpy(y, kept, 4000); return 0; }",
        "memcpy(kept, y, 4000); have = 1;",
    );
    fails(&mut measurer, keeps, FailStage::WrongAnswer, &["keep results between calls"]);
    // State in the workspace is no better: the second call finds it dirty.
    let counts = kernel("", "float old = scratch[0]; scratch[0] = 1;", "if (old == 1) y[0] = 0;");
    fails(&mut measurer, counts, FailStage::WrongAnswer, &["output[0]"]);
}

#[test]
fn results_of_others_are_not_taken_for_its_own() {
    let lazy = kernel("static int calls;", "if (calls++ > 0) return 0;", "");
    fails(&mut measurer(), lazy, FailStage::WrongAnswer, &["output[0]"]);
}

#[test]
fn faults_of_the_preparation_are_found() {
    let mut measurer = measurer();
    let change = |from: &str, to: &str| {
        let mut k = right();
        assert!(k.source.contains(from));
        k.source = k.source.replace(from, to);
        k
    };
    fails(
        &mut measurer,
        change("weights[0], 4000); return 0", "weights[0], 4000); return 9"),
        FailStage::Launch,
        &["k_prepare returned 9"],
    );
    fails(
        &mut measurer,
        change("weights[0], 4000)", "weights[0], 4004)"),
        FailStage::WrongAnswer,
        &["the prepared weights"],
    );
    fails(
        &mut measurer,
        change("weights[0], 4000)", "weights[0], 3996)"),
        FailStage::WrongAnswer,
        &["output[999]"],
    );
    fails(
        &mut measurer,
        change("weights[0], 4000)", "(void *)8, 4000)"),
        FailStage::Launch,
        &["SIGSEGV", "preparation of weights"],
    );
    fails(
        &mut measurer,
        change("return 4000;", "return 8000;"),
        FailStage::Launch,
        &["k_prepared_bytes() says 8000, 4000 was announced"],
    );
    fails(
        &mut measurer,
        change("int k_prepare(", "int other_prepare("),
        FailStage::Launch,
        &["no symbol `k_prepare`"],
    );
}

#[test]
fn what_cannot_be_loaded_is_a_launch_failure() {
    let mut measurer = measurer();
    fails(
        &mut measurer,
        kernel("void nowhere_at_all(void);", "nowhere_at_all();", ""),
        FailStage::Launch,
        &["nowhere_at_all"],
    );
    let mut k = right();
    k.symbol = "other".into();
    fails(&mut measurer, k, FailStage::Launch, &["no symbol `other`"]);
    let mut k = right();
    k.workspace = Bytes(1 << 60);
    k.source = k.source.replace("return 400;", "return 1ull << 60;");
    fails(&mut measurer, k, FailStage::Launch, &["cannot allocate"]);
}

#[test]
fn what_a_kernel_prints_goes_nowhere() {
    let mut measurer = measurer();
    let chatty = kernel(
        "",
        "printf(\"0.1 measured 0 1 1 1 1\\n\"); fflush(stdout); fprintf(stderr, \"noise\\n\"); \
         puts(\"7\");",
        "",
    );
    measured(&outcome(&mut measurer, chatty));
}

#[test]
fn compile_errors_are_build_failures() {
    let mut measurer = measurer();
    fails(&mut measurer, kernel("", "int = 3;", ""), FailStage::Build, &["error", "expected"]);
    fails(
        &mut measurer,
        kernel("#include \"no_such_header.h\"", "", ""),
        FailStage::Build,
        &["no_such_header.h"],
    );
    let all = outcomes(&mut measurer, &[kernel("", "int = 4;", "")]).unwrap();
    assert!(all[0].1.build > 0.0 && all[0].1.measure == 0.0, "{:?}", all[0].1);
    fails(
        &mut measurer,
        KernelSource { source: "\0\u{1}garbage".into(), ..right() },
        FailStage::Build,
        &[],
    );
}

#[test]
fn a_compiler_that_takes_too_long_is_killed() {
    let mut measurer = measurer();
    measurer.set_build_timeout(Duration::from_millis(300));
    // Each level doubles: the preprocessor is busy for ages.
    let mut globals = String::from("#define A0 1,1,1,1,1,1,1,1\n");
    for i in 1..40 {
        globals += &format!("#define A{i} A{},A{}\n", i - 1, i - 1);
    }
    let start = Instant::now();
    let all = outcomes(&mut measurer, &[kernel(&(globals + "static int big[] = {A28};"), "", "")])
        .unwrap();
    assert!(
        matches!(
            &all[0].0,
            Outcome::Failed { stage: FailStage::Build, detail } if detail.contains("within 0.3 s")
        ),
        "{:?}",
        all[0]
    );
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(all[0].1.build >= 0.3);
}

trait WithInclude {
    fn with_include(self, header: &str) -> KernelSource;
}

impl WithInclude for KernelSource {
    fn with_include(mut self, header: &str) -> KernelSource {
        self.source = format!("#include <{header}>\n{}", self.source);
        self
    }
}
