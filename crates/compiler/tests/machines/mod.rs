//! Helpers that compile and run generated kernels in tests: on this machine by its C compiler, and
//! for ARM by a cross compiler and an emulator where both are installed. Input: kernels, cases with
//! inputs, and compiler flags; output: the kernels' results, which the helpers compare with the
//! direct evaluation of the workload (a tensor expression).

#![allow(dead_code)] // each test uses its part

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{nest, reference, sketches, untuned};
use squall_core::units::Bytes;
use squall_core::{Isa, KernelSource, Target, TensorKind, Workload};
use squall_testing::samples;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A target of a level, with caches.
pub fn at_level(isa: Isa) -> Target {
    Target::at_level(isa, &[Bytes(32 << 10), Bytes(1 << 20)])
}

/// Calls `each` with the nests of sampled configurations of the wanted sketches of a workload;
/// returns how many there were.
pub fn sampled_nests(
    w: &Workload,
    targets: &[Target],
    wanted: impl Fn(&str) -> bool,
    mut each: impl FnMut(&nest::Nest),
) -> usize {
    let mut count = 0;
    for t in targets {
        for s in sketches(w, t).iter().filter(|s| wanted(s.name())) {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
            for _ in 0..8 {
                let c = s.space().sample(&mut rng).to_string();
                let candidate = Some((s.name(), c.as_str()));
                let Ok(text) = squall_compiler::explain(w, t, "nest", candidate) else { continue };
                each(&nest::parse(&text).expect("parses back"));
                count += 1;
            }
        }
    }
    count
}

/// The values of the inputs of a kind.
pub fn of_kind(w: &Workload, all: &[Vec<f64>], kind: TensorKind) -> Vec<Vec<f64>> {
    let of = w.inputs.iter().zip(all).filter(|(i, _)| i.kind == kind);
    of.map(|(_, v)| v.clone()).collect()
}

/// A workload with the bytes of its inputs.
pub type Case = (Workload, Vec<Vec<u8>>);

/// The reference, the plain loops and sampled kernels of every case for some targets, each with the
/// number of its case.
pub fn sampled_kernels(cases: &[Case], targets: &[Target]) -> Vec<(usize, KernelSource)> {
    let mut kernels = Vec::new();
    for (c, (w, _)) in cases.iter().enumerate() {
        kernels.push((c, reference(w, &format!("c{c}_reference"))));
        let u = untuned(w, &targets[0]);
        let plain = u.realize(&u.space().nth(0), &format!("c{c}_untuned"));
        kernels.push((c, plain.expect("plain loops")));
        for (t, target) in targets.iter().enumerate() {
            for (si, s) in sketches(w, target).iter().enumerate().step_by(samples(3, 1)) {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
                for ci in 0..samples(1, 3) {
                    let symbol = format!("c{c}_t{t}_s{si}_{ci}");
                    let made = s.realize(&s.space().sample(&mut rng), &symbol);
                    kernels.extend(made.ok().map(|k| (c, k)));
                }
            }
        }
    }
    kernels
}

/// A C program that calls every kernel of every case and prints the bits of each output, one line a
/// kernel.
fn program(kernels: &[(usize, KernelSource)], cases: &[Case]) -> String {
    let mut main = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for (c, (w, raw)) in cases.iter().enumerate() {
        for (i, bytes) in raw.iter().enumerate() {
            let list = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            let _ = writeln!(
                main,
                "static unsigned char c{c}_{i}[] __attribute__((aligned(64))) = {{{list}}};"
            );
        }
        for (kind, letter) in [(TensorKind::Data, 'd'), (TensorKind::Weight, 'w')] {
            let of = w.inputs.iter().enumerate().filter(|(_, i)| i.kind == kind);
            let list = of.map(|(i, _)| format!("c{c}_{i}")).chain(["0".into()]);
            let list = list.collect::<Vec<_>>().join(",");
            let _ = writeln!(main, "static const void *c{c}_{letter}[] = {{{list}}};");
        }
    }
    main += "static void *memory(size_t n) { void *p = aligned_alloc(64, (n + 127) / 64 * 64);\n  \
             memset(p, 0xff, n); return p; }\n";
    let mut body = String::new();
    for (c, k) in kernels {
        let (s, y) = (&k.symbol, cases[*c].0.output());
        let n = y.elements();
        let element = match y.dtype.bytes() {
            1 => "unsigned char",
            2 => "unsigned short",
            _ => "unsigned",
        };
        let _ = writeln!(
            main,
            "int {s}(const void *const *, void *const *, const void *, void *);\nint {s}_prepare(\
             const void *const *, void *);"
        );
        let (p, m) = (k.prepared.0, k.workspace.0);
        let prepare = if p > 0 { format!("{s}_prepare(c{c}_w, prepared);") } else { String::new() };
        let _ = writeln!(
            body,
            "{{ {element} *y = memory({n} * sizeof *y); void *o[] = {{y}}; void *prepared = \
             memory({p}); {prepare} {s}(c{c}_d, o, prepared, memory({m})); printf(\"{c} {s}\"); \
             for (int i = 0; i < {n}; i++) printf(\" %u\", y[i]); puts(\"\"); }}"
        );
    }
    format!("{main}int main(void) {{\n{body}return 0; }}\n")
}

/// Shows what kernels, each with the number of its case, give on a machine: the case, the kernel
/// and the bits of its output. The sources stay in a folder.
pub fn given(
    cases: &[Case],
    kernels: &[(usize, KernelSource)],
    machine: &Machine,
    folder: &Path,
    each: &mut dyn FnMut(usize, &str, &[u32]),
) {
    let path = |name: &str| folder.join(format!("{name}.c"));
    let mut files = vec![path("main")];
    std::fs::write(&files[0], program(kernels, cases)).expect("written");
    for (_, k) in kernels {
        files.push(path(&k.symbol));
        std::fs::write(path(&k.symbol), &k.source).expect("written");
    }
    let text = machine.output(&files, folder);
    assert_eq!(text.lines().count(), kernels.len());
    for line in text.lines() {
        let mut words = line.split(' ');
        let case = words.next().and_then(|w| w.parse().ok()).expect("a case");
        let symbol = words.next().expect("a kernel");
        let bits: Vec<u32> = words.map(|w| w.parse().expect("bits")).collect();
        each(case, symbol, &bits);
    }
}

/// Shows what sampled kernels of every case for some targets give on some machines: the case, the
/// kernel and the bits of its output. The instruction that multiplies is in the code of a kernel of
/// the last target, compiled for a machine that has it.
pub fn compiled(
    cases: &[Case],
    targets: &[Target],
    machines: &[Machine],
    best: &Machine,
    instruction: &str,
    mut each: impl FnMut(usize, &str, &[u32]),
) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let kernels = sampled_kernels(cases, targets);
    for machine in machines {
        given(cases, &kernels, machine, dir.path(), &mut each);
    }
    let path = |name: &str| dir.path().join(format!("{name}.c"));
    let last = format!("_t{}_", targets.len() - 1);
    let one = kernels.iter().find(|(c, k)| *c == 0 && k.symbol.contains(&last));
    match best.assembly(&path(&one.expect("a kernel").1.symbol)) {
        Some(text) => assert!(text.contains(instruction), "{text}"),
        None => println!("skipped: the compiler knows no {instruction}"),
    }
}

/// A way to compile for a machine and to run there.
pub struct Machine {
    pub compiler: String,
    pub flags: Vec<&'static str>,
    /// The command before a program, if any.
    pub emulator: Option<&'static str>,
}

impl Machine {
    /// This machine's, with some flags.
    pub fn here(flags: &[&'static str]) -> Machine {
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        Machine { compiler, flags: flags.to_vec(), emulator: None }
    }

    /// This machine's twice: with all that it has, and in portable C.
    pub fn both() -> [Machine; 2] {
        [&["-march=native"][..], &[]].map(Machine::here)
    }

    /// Emulated ARM machines of each level that multiplies in its own way, the highest last.
    pub fn arms() -> Vec<Machine> {
        let all = [Isa::Armv8A, Isa::Armv82Dotprod, Isa::Armv86A];
        let flags = all.map(|isa| isa.level().flags().collect::<Vec<_>>());
        flags.iter().filter_map(|f| Machine::arm(f)).collect()
    }

    /// An emulated ARM machine; none, with the reason printed, where it cannot be had.
    pub fn arm(flags: &[&'static str]) -> Option<Machine> {
        let (compiler, emulator) = ("aarch64-linux-gnu-gcc", "qemu-aarch64");
        for program in [compiler, emulator] {
            let asked = Command::new(program).arg("--version").output();
            if !asked.is_ok_and(|o| o.status.success()) {
                println!("skipped: there is no {program}");
                return None;
            }
        }
        let flags = flags.iter().copied().chain(["-static"]).collect();
        Some(Machine { compiler: compiler.into(), flags, emulator: Some(emulator) })
    }

    /// The assembly of a source.
    pub fn assembly(&self, source: &Path) -> Option<String> {
        let mut c = Command::new(&self.compiler);
        let o = c.args(["-O1", "-w", "-S", "-o", "-"]).args(&self.flags).arg(source).output();
        o.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).into())
    }

    /// Runs the compiler, which must succeed.
    fn compile(&self, args: &[&OsStr]) {
        let mut c = Command::new(&self.compiler);
        let o = c.args(["-O1", "-w"]).args(&self.flags).args(args).output().expect("a C compiler");
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    }

    /// The output of a program compiled of some sources, on all cores.
    pub fn output(&self, sources: &[PathBuf], folder: &Path) -> String {
        let objects: Vec<PathBuf> = sources.iter().map(|s| s.with_extension("o")).collect();
        let (next, cores) = (AtomicUsize::new(0), std::thread::available_parallelism());
        let compile = || {
            while let Some(i) = Some(next.fetch_add(1, Relaxed)).filter(|i| *i < sources.len()) {
                let args: [&OsStr; 4] =
                    ["-c".as_ref(), "-o".as_ref(), objects[i].as_ref(), sources[i].as_ref()];
                self.compile(&args);
            }
        };
        std::thread::scope(|s| {
            (0..cores.map_or(1, usize::from)).for_each(|_| _ = s.spawn(compile));
        });
        let exe = folder.join("main");
        let link: [&OsStr; 3] = ["-o".as_ref(), exe.as_ref(), "-lm".as_ref()];
        let objects = objects.iter().map(|o| o.as_os_str());
        self.compile(
            &link[..2].iter().copied().chain(objects).chain([link[2]]).collect::<Vec<_>>(),
        );
        let mut command = match self.emulator {
            Some(e) => {
                let mut c = Command::new(e);
                c.arg(&exe);
                c
            }
            None => Command::new(&exe),
        };
        let o = command.output().expect("it runs");
        assert!(o.status.success(), "{:?}", o.status);
        String::from_utf8_lossy(&o.stdout).into()
    }
}
