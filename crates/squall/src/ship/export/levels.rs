//! One export for CPUs of several instruction levels, such as AVX2 and AVX-512 (function
//! multiversioning). Input: the kernels chosen for each level; output: the kernels renamed
//! `SYMBOL_LEVEL`, and for each kernel a dispatcher `SYMBOL` that calls the one of the highest
//! level that the CPU has. The CPU is asked once, when the library is loaded.

use crate::base::error::Error;
use crate::predict::choose::Chosen;
use crate::target::target_context::TargetContext;
use squall_core::{
    Architecture, Bytes, CpuidRegister, Feature, Isa, KernelSource, Language, Level, Reported,
};
use squall_measure::cpu::Toolchain;
use std::fmt::Write as _;

/// The name of the C source that finds the level, of its function and of its result.
const CHOICE: &str = "squall_level";

/// The kernels of one level, each under a name of its own.
#[derive(Clone, Debug)]
pub struct LevelKernels {
    /// The level.
    pub isa: Isa,
    /// The compiler with the flags of this level.
    pub toolchain: Toolchain,
    /// The sources: `SYMBOL_LEVEL`.
    pub sources: Vec<KernelSource>,
    /// How each kernel was chosen, in the order of the sources.
    pub chosen: Vec<Chosen>,
}

/// The kernels of several levels, and what must be built beside the joined list of them.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// The levels, the lowest first; none where kernels are of one level.
    pub levels: Vec<LevelKernels>,
    /// The C source that finds the level of a CPU.
    pub choice: Option<KernelSource>,
}

impl Levels {
    /// The sources beside the kernels, each with what makes code of it; `own` is the toolchain of
    /// the kernels themselves.
    pub(crate) fn sources<'a>(
        &'a self,
        own: &'a Toolchain,
    ) -> impl Iterator<Item = (&'a KernelSource, &'a Toolchain)> {
        let of_levels =
            self.levels.iter().flat_map(|l| l.sources.iter().map(|s| (s, &l.toolchain)));
        of_levels.chain(self.choice.iter().map(move |s| (s, own)))
    }

    /// Where a level's source comes from.
    pub(crate) fn origin(&self, source: &KernelSource) -> Option<&Chosen> {
        let mut all = self.levels.iter().flat_map(|l| l.sources.iter().zip(&l.chosen));
        all.find(|(s, _)| s.symbol == source.symbol).map(|(_, k)| k)
    }
}

/// Joins the kernels of the same tasks at several levels of one architecture. Each joined kernel
/// calls that of the level which the CPU has; its buffers are large enough for all of them.
pub fn join(mut all: Vec<(TargetContext, Vec<Chosen>)>) -> Result<(Vec<Chosen>, Levels), Error> {
    let isa = |at: &TargetContext| at.target.isa;
    all.sort_by_key(|(at, _)| isa(at));
    let usage = |message: String| Error::Usage {
        message,
        hint: "name levels of one architecture, each once, as `--isa x86-64-v3,x86-64-v4`".into(),
    };
    let mut levels: Vec<LevelKernels> = Vec::new();
    for (at, chosen) in &all {
        let Some(isa) = isa(at) else {
            return Err(usage("`native` is no level that other machines have".into()));
        };
        if let Some(other) = levels.last() {
            let (a, b) = (isa.level().architecture, other.isa.level().architecture);
            if a != b {
                return Err(usage(format!("one library cannot hold {isa} and {}", other.isa)));
            } else if isa == other.isa {
                return Err(usage(format!("{isa} is named twice")));
            }
        }
        let sources = chosen.iter().map(|k| renamed(&k.source, isa)).collect();
        let (toolchain, chosen) = (at.toolchain.clone(), chosen.clone());
        levels.push(LevelKernels { isa, toolchain, sources, chosen });
    }
    let Some((_, first)) = all.first() else {
        return Err(usage("no level is named".into()));
    };
    let names: Vec<&'static Level> = levels.iter().map(|l| l.isa.level()).collect();
    let kernels = first.iter().enumerate().map(|(i, k)| {
        let of_levels: Vec<&KernelSource> =
            all.iter().map(|(_, chosen)| &chosen[i].source).collect();
        Chosen {
            source: dispatcher(&of_levels, &names),
            reference: anywhere(k.reference.clone(), names[0]),
            ..k.clone()
        }
    });
    let kernels = kernels.collect();
    let choice = KernelSource { source: choice(&names), ..bare(CHOICE, names[0]) };
    Ok((kernels, Levels { levels, choice: Some(choice) }))
}

/// The level's name as a part of names in C.
fn suffix(level: &Level) -> String {
    level.name.replace(['-', '.'], "_")
}

/// A kernel whose functions have names of the level's own: the preprocessor renames them, so that
/// the code is that of the level's own export.
fn renamed(s: &KernelSource, isa: Isa) -> KernelSource {
    let (symbol, suffix) = (&s.symbol, suffix(isa.level()));
    let of_kernel = ["", "_workspace_bytes", "_prepared_bytes", "_prepare"];
    let names = of_kernel.map(|end| format!("#define {symbol}{end} {symbol}_{suffix}{end}\n"));
    KernelSource {
        symbol: format!("{symbol}_{suffix}"),
        source: format!("/* Held to {isa}. */\n{}{}", names.concat(), s.source),
        ..s.clone()
    }
}

/// A source that any CPU of a level's architecture runs.
fn anywhere(mut s: KernelSource, level: &Level) -> KernelSource {
    let flag = match level.architecture {
        Architecture::X86_64 => "-march=x86-64",
        Architecture::Aarch64 => "-march=armv8-a",
    };
    s.flags.push(flag.into());
    s
}

/// A source without text that any CPU of a level's architecture runs.
fn bare(symbol: &str, level: &Level) -> KernelSource {
    let source = KernelSource {
        language: Language::C,
        source: String::new(),
        symbol: symbol.into(),
        prepared: Bytes(0),
        workspace: Bytes(0),
        openmp: false,
        full_optimisation: false,
        flags: Vec::new(),
        launches: Vec::new(),
    };
    anywhere(source, level)
}

/// The function that calls the kernel of the CPU's level. Without a level that the CPU has, it
/// fails as kernels do, by another result than 0.
fn dispatcher(of_levels: &[&KernelSource], levels: &[&Level]) -> KernelSource {
    let symbol = &of_levels[0].symbol;
    let most = |of: &dyn Fn(&KernelSource) -> Bytes| {
        Bytes(of_levels.iter().map(|s| of(s).0).max().unwrap_or(0))
    };
    let (prepared, workspace) = (most(&|s| s.prepared), most(&|s| s.workspace));
    let packs: Vec<&&Level> =
        levels.iter().zip(of_levels).filter(|(_, s)| s.prepared.0 > 0).map(|(l, _)| l).collect();
    let all: Vec<&&Level> = levels.iter().collect();
    let function = |end: &str,
                    (returns, parameters, arguments, none): Signature<'_>,
                    having: &[&&Level]| {
        let mut c = String::new();
        for l in having {
            let _ = writeln!(c, "{returns} {symbol}_{}{end}({parameters});", suffix(l));
        }
        let _ = writeln!(c, "{returns} {symbol}{end}({parameters}) {{\n  switch ({CHOICE}()) {{");
        for l in having {
            let at = levels.iter().position(|x| x.isa == l.isa).unwrap_or(0) + 1;
            let name = format!("{symbol}_{}{end}", suffix(l));
            let _ = writeln!(c, "  case {at}: return {name}({arguments});");
        }
        c + &format!("  default: return {none};\n  }}\n}}\n\n")
    };
    let mut c = format!(
        "/* Calls the kernel of the highest level of instructions that the CPU has. */\n#include \
         <stddef.h>\nint {CHOICE}(void);\n\n"
    );
    c += &function("", CALL, &all);
    c += &function("_workspace_bytes", ("size_t", "void", "", "0"), &all);
    if prepared.0 > 0 {
        c += &function("_prepared_bytes", ("size_t", "void", "", "0"), &packs);
        // Where a level packs nothing, there is nothing to do.
        c += &function("_prepare", PREPARE, &packs);
    }
    KernelSource {
        source: c,
        prepared,
        workspace,
        openmp: of_levels.iter().any(|s| s.openmp),
        ..bare(symbol, levels[0])
    }
}

/// What a function returns, its parameters, their names, and what it returns without a level.
type Signature<'a> = (&'a str, &'a str, &'a str, &'a str);

const CALL: Signature<'static> = (
    "int",
    "const void *const *data, void *const *outputs, const void *prepared, void *workspace",
    "data, outputs, prepared, workspace",
    "1",
);

const PREPARE: Signature<'static> = (
    "int",
    "const void *const *weights, void *prepared",
    "weights, prepared",
    "squall_level() == 0",
);

/// The source that finds the CPU's level: 1 for the lowest, 0 for none of them.
fn choice(levels: &[&Level]) -> String {
    let names: Vec<String> = levels.iter().map(|l| format!("\"{}\"", l.name)).collect();
    let asked = levels.iter().any(|l| l.needs().next().is_some());
    let mut tests = String::new();
    for (i, l) in levels.iter().enumerate() {
        let mut has: Vec<String> = l.needs().map(test).collect();
        if l.xcr0 != 0 {
            has.push(format!("kept(0x{:x})", l.xcr0));
        }
        let test = if has.is_empty() { "1".into() } else { has.join(" &&\n         ") };
        let _ = writeln!(tests, "  if (most >= {n} && {test})\n    found = {n};", n = i + 1);
    }
    format!(
        "/* Finds the highest level of instructions that the CPU and its operating system have, \
         once, when\n * this is loaded. SQUALL_MAX_ISA names the highest that may be used, for \
         tests. */\n#include <stdlib.h>\n#include <string.h>\n{}\nstatic int level = -1;\n\
         static const char *const names[] = {{\"none\", {}}};\n\n__attribute__((constructor)) \
         static void find(void) {{\n  int most = {}, found = 0;\n  const char *asked = \
         getenv(\"SQUALL_MAX_ISA\");\n  for (int i = 1; asked && i <= {}; i++)\n    if \
         (strcmp(asked, names[i]) == 0) most = i;\n{tests}  level = found;\n}}\n\n/* The level's \
         number: 1 for the lowest of this library, 0 where the CPU has none of them. */\nint \
         {CHOICE}(void) {{\n  if (level < 0) find();\n  return level;\n}}\n\n/* Its name, or \
         `none`. */\nconst char *{CHOICE}_name(void) {{ return names[{CHOICE}()]; }}\n",
        match levels.first().map(|l| l.architecture).filter(|_| asked) {
            Some(Architecture::X86_64) => CPUID,
            Some(Architecture::Aarch64) => HWCAP,
            None => "",
        },
        names.join(", "),
        levels.len(),
        levels.len(),
    )
}

/// The test in C whether the CPU has a feature.
fn test(f: &Feature) -> String {
    match f.at {
        Reported::Cpuid { leaf, subleaf, register, bit } => {
            let register = match register {
                CpuidRegister::Eax => "eax",
                CpuidRegister::Ebx => "ebx",
                CpuidRegister::Ecx => "ecx",
                CpuidRegister::Edx => "edx",
            };
            format!("has(0x{leaf:x}, {subleaf}, {register}, {bit})")
        }
        Reported::Hwcap { second, bit } => {
            format!("has({}, {bit})", if second { "AT_HWCAP2" } else { "AT_HWCAP" })
        }
    }
}

/// How Linux is asked what an ARM CPU has.
const HWCAP: &str = "#include <sys/auxv.h>

static int has(unsigned long word, int bit) { return getauxval(word) >> bit & 1; }
";

/// How x86 CPUs are asked. Registers that the operating system does not keep are not there.
const CPUID: &str = "#include <cpuid.h>

enum { eax, ebx, ecx, edx };

static int has(unsigned leaf, unsigned subleaf, int which, int bit) {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(leaf, subleaf, &a, &b, &c, &d)) return 0;
  return (which == eax ? a : which == ebx ? b : which == ecx ? c : d) >> bit & 1;
}

static int kept(unsigned mask) {
  unsigned low, high;
  if (!has(1, 0, ecx, 27)) return 0;
  __asm__ volatile(\"xgetbv\" : \"=a\"(low), \"=d\"(high) : \"c\"(0));
  if ((low & mask) != mask) return 0;
#if defined(__x86_64__) && defined(__linux__)
  /* Linux has to be asked for the registers of tiles. */
  if (mask & 0x60000) {
    long answer = 158;
    __asm__ volatile(\"syscall\"
                     : \"+a\"(answer)
                     : \"D\"(0x1023L), \"S\"(18L)
                     : \"rcx\", \"r11\", \"memory\");
    return answer == 0;
  }
#endif
  return 1;
}
";

/// The header's text about levels.
pub(super) fn declarations(levels: &Levels) -> String {
    if levels.choice.is_none() {
        return String::new();
    }
    let names: Vec<&str> = levels.levels.iter().map(|l| l.isa.name()).collect();
    format!(
        "\n/* The level of instructions that this CPU runs, of {}: its number, 1 for the lowest, \
         or 0\n * where the CPU has none of them and kernels fail; and its name, or `none`. */\n\
         int {CHOICE}(void);\nconst char *{CHOICE}_name(void);\n",
        names.join(", ")
    )
}
