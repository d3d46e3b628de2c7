//! Compiles objects and programs through the object cache (`../objects.rs`). A key is the digest of
//! everything that decides the result: source, compiler, flags, environment. A source that includes
//! files other than standard headers is not cached, since those files may change.

use super::Toolchain;
use super::toolchain::{INDEPENDENT, NEVER, first_error};
use crate::artifact::BuildSite;
use crate::objects::{ObjectCache, Wanted};
use crate::process::program_file;
use squall_core::{KernelSource, MeasurerError};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Headers of the compiler and of the C library, which change only with these.
const STANDARD: [&str; 26] = [
    "assert.h",
    "dlfcn.h",
    "errno.h",
    "fcntl.h",
    "fenv.h",
    "float.h",
    "immintrin.h",
    "inttypes.h",
    "limits.h",
    "math.h",
    "omp.h",
    "pthread.h",
    "sched.h",
    "setjmp.h",
    "signal.h",
    "stdarg.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "sys/mman.h",
    "time.h",
    "unistd.h",
    "x86intrin.h",
];

/// Variables that lead a compiler to other files.
const VARIABLES: [&str; 6] = [
    "COMPILER_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
];

/// Messages of a compiler when the machine is at fault. Any source would be refused then.
pub(super) const SYSTEM_FAULTS: [&str; 3] =
    ["No space left on device", "Read-only file system", "Disk quota exceeded"];

/// How long a compiler may take for an object of a network or an export.
const PATIENCE: Duration = Duration::from_secs(600);

/// The result of compiling a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// The file lies where it was wanted; the CPU seconds that compiling it took.
    Made(f64),
    /// The compiler refuses the source: its first complaint, and CPU seconds.
    Refused(String, f64),
    /// Compiling was cancelled.
    Cancelled,
}

impl Toolchain {
    /// The same toolchain with a cache of what it compiles.
    pub fn with_objects(mut self, objects: ObjectCache) -> Toolchain {
        self.objects = objects;
        self
    }

    /// The cache of what it compiles.
    pub fn objects(&self) -> &ObjectCache {
        &self.objects
    }

    /// The arguments that make an object of a kernel.
    pub fn object_arguments(&self, kernel: &KernelSource) -> Vec<String> {
        let mut args: Vec<String> = vec!["-c".into(), "-fPIC".into()];
        args.extend(self.optimisation(kernel).into_iter().map(String::from));
        args.extend(self.flags().iter().cloned());
        if kernel.openmp {
            args.push("-fopenmp".into());
        }
        args.extend(kernel.flags.iter().cloned());
        args
    }

    /// Puts the object of a kernel in C at `to`, in a folder that exists: the kept one, or a newly
    /// compiled one.
    ///
    /// # Errors
    /// Where the compiler cannot be run or the folder not be written.
    pub fn object(&self, kernel: &KernelSource, to: &Path) -> Result<Object, MeasurerError> {
        let folder = to.parent().unwrap_or(Path::new("."));
        self.object_at(kernel, to, BuildSite { folder, timeout: PATIENCE, cancel: &NEVER })
    }

    /// The key of a kernel's object; nothing where the source may read files that change.
    pub fn object_key(&self, kernel: &KernelSource) -> Option<String> {
        let args = self.object_arguments(kernel);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        is_kept(kernel).then(|| self.key(&args, &[&kernel.source]))
    }

    /// Puts the kept program of a key at `to`, or has it made there and keeps it.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn kept_program<E>(
        &self,
        key: &str,
        to: &Path,
        make: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let wanted = Wanted { key, to, executable: true, cancel: &NEVER };
        self.objects.obtain(wanted, || make().map(|()| ((), true))).map(|_| ())
    }

    /// Like [`Toolchain::object`], with a time limit for the compiler and a flag that cancels it.
    ///
    /// # Errors
    /// As of [`Toolchain::object`].
    pub fn object_within(
        &self,
        kernel: &KernelSource,
        to: &Path,
        timeout: Duration,
        cancel: &AtomicBool,
    ) -> Result<Object, MeasurerError> {
        let folder = to.parent().unwrap_or(Path::new("."));
        self.object_at(kernel, to, BuildSite { folder, timeout, cancel })
    }

    /// The same under a deadline.
    pub(crate) fn object_at(
        &self,
        kernel: &KernelSource,
        to: &Path,
        site: BuildSite,
    ) -> Result<Object, MeasurerError> {
        let args = self.object_arguments(kernel);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if !is_kept(kernel) {
            return self.compile_text(&kernel.source, &args, to, site);
        }
        self.compiled(&kernel.source, &args, to, site)
    }

    /// Puts what the arguments make of a text in C at `to`: an object, or a whole program where
    /// they do not say `-c`. The text includes nothing but standard headers.
    ///
    /// # Errors
    /// As of [`Toolchain::object`].
    pub fn compiled_text(
        &self,
        text: &str,
        args: &[&str],
        to: &Path,
    ) -> Result<Object, MeasurerError> {
        let folder = to.parent().unwrap_or(Path::new("."));
        self.compiled(text, args, to, BuildSite { folder, timeout: PATIENCE, cancel: &NEVER })
    }

    fn compiled(
        &self,
        text: &str,
        args: &[&str],
        to: &Path,
        site: BuildSite,
    ) -> Result<Object, MeasurerError> {
        let key = self.key(args, &[text]);
        let executable = !args.contains(&"-c");
        let wanted = Wanted { key: &key, to, executable, cancel: site.cancel };
        let made = self.objects.obtain(wanted, || {
            let object = self.compile_text(text, args, to, site)?;
            let is_made = matches!(object, Object::Made(_));
            Ok((object, is_made))
        });
        Ok(made?.unwrap_or(Object::Made(0.0)))
    }

    /// Compiles a text beside what it becomes.
    fn compile_text(
        &self,
        text: &str,
        args: &[&str],
        to: &Path,
        site: BuildSite,
    ) -> Result<Object, MeasurerError> {
        let source = site.folder.join(format!("{}.c", super::toolchain::unique("source")));
        fs::write(&source, text).map_err(|e| MeasurerError::folder(&source, &e))?;
        // What lies there may be the text of a program that runs.
        let _ = fs::remove_file(to);
        let compiled = self.compile(site, args, &source, to);
        let _ = fs::remove_file(&source);
        let c = compiled?;
        Ok(if c.killed && site.cancel.load(Ordering::Relaxed) {
            Object::Cancelled
        } else if c.ok && to.is_file() {
            Object::Made(c.cpu)
        } else {
            Object::Refused(refusal(&c.said), c.cpu)
        })
    }

    /// The digest of what decides what a text becomes: compiler, machine, arguments and the text.
    pub fn key(&self, args: &[&str], texts: &[&str]) -> String {
        let command = self.command();
        let first = program_stamp(command.split(' ').next().unwrap_or_default());
        // Words behind the first may be compilers, too, as in `ccache gcc`.
        let rest = command.split(' ').skip(1).map(program_stamp).filter(|s| !s.is_empty());
        let mut own: Vec<String> = [first].into_iter().chain(rest).collect();
        own.insert(0, command.clone());
        own.extend(VARIABLES.map(|v| std::env::var(v).unwrap_or_default()));
        self.digest(&own, args, texts)
    }

    /// The key under which other machines know a kernel's object: the same wherever
    /// [`Toolchain::shared_code`] is. Nothing where the source may read files that change.
    pub fn shared_object_key(&self, kernel: &KernelSource) -> Option<String> {
        let args = self.object_arguments(kernel);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let code = self.shared_code()?;
        is_kept(kernel).then(|| self.digest(&[code], &args, &[&kernel.source]))
    }

    /// Which machine code it makes, as one line that is the same on other machines where they make
    /// the same: version, what its command says, flags, architecture and, for `native`, the
    /// machine. Nothing where variables lead the compiler to files of this machine's.
    pub fn shared_code(&self) -> Option<String> {
        // Where the loader finds the compiler's own libraries does not tell what it writes.
        let leads =
            |v: &str| v != "LD_LIBRARY_PATH" && std::env::var_os(v).is_some_and(|x| !x.is_empty());
        if VARIABLES.into_iter().any(leads) {
            return None;
        }
        let command = self.command();
        let told: Vec<&str> = command.split(' ').skip(1).collect();
        let level = self.isa().map_or(std::env::consts::ARCH, |isa| isa.name());
        let is_native = self.flags().iter().any(|a| a.contains("native"));
        let native = if is_native {
            blake3::hash(machine().as_bytes()).to_hex()[..16].to_string()
        } else {
            String::new()
        };
        let flags = self.flags().join(" ");
        Some(format!("{} {} {flags}; {level} {native}", self.version(), told.join(" ")))
    }

    fn digest(&self, own: &[String], args: &[&str], texts: &[&str]) -> String {
        let mut h = blake3::Hasher::new();
        let mut add = |part: &str| {
            h.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        };
        add(self.version());
        own.iter().for_each(|o| add(o));
        if args.iter().any(|a| a.contains("native")) {
            add(machine());
        }
        for list in [args, texts] {
            add(&list.len().to_string());
            list.iter().for_each(|a| add(a));
        }
        h.finalize().to_hex()[..40].to_string()
    }
}

/// The line that says what is wrong; all of it where the machine is at fault.
fn refusal(said: &str) -> String {
    let fault = SYSTEM_FAULTS.into_iter().find(|f| said.contains(f));
    fault.map_or_else(|| first_error(said), String::from)
}

/// Whether a kernel's object is kept. A user's flags may lead the compiler to files that change.
fn is_kept(kernel: &KernelSource) -> bool {
    let is_ours = |flag: &String| INDEPENDENT.contains(&flag.as_str());
    kernel.flags.iter().all(is_ours) && is_closed(&kernel.source)
}

/// Whether a text reads no files but standard headers. Words that could read a file count wherever
/// they stand.
fn is_closed(text: &str) -> bool {
    let standard = |line: &&str| {
        let Some(name) = line.strip_prefix("#include <").and_then(|l| l.strip_suffix('>')) else {
            return false;
        };
        STANDARD.contains(&name)
    };
    ["include", "embed", "import", "incbin", "??", "__TIME", "__DATE"].iter().all(|word| {
        let known = if *word == "include" { text.lines().filter(standard).count() } else { 0 };
        text.matches(word).count() == known
    })
}

/// Size and time of a program's file: another build of it has another of them.
fn program_stamp(name: &str) -> String {
    match program_file(name).and_then(|path| fs::metadata(path).ok()) {
        Some(m) => format!("{} {}.{:09}", m.len(), m.mtime(), m.mtime_nsec()),
        None => String::new(),
    }
}

/// What a compiler may learn of the machine: its first processor, as the system describes it. The
/// same folder may serve several machines.
fn machine() -> &'static str {
    static MACHINE: OnceLock<String> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        // Frequencies change from moment to moment, and from core to core and host to host what
        // follows; none of it decides which code is made.
        let of_a_host = [
            "processor",
            "core id",
            "apicid",
            "initial apicid",
            "microcode",
            "siblings",
            "cpu cores",
            "physical id",
        ];
        let lasting = |l: &&str| {
            let name = l.split(':').next().unwrap_or_default().trim();
            !of_a_host.contains(&name)
                && !name.contains("MHz")
                && !name.to_ascii_lowercase().contains("bogomips")
        };
        let first = text.split("\n\n").next().unwrap_or_default();
        first.lines().filter(lasting).collect::<Vec<_>>().join("\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::{Bytes, Language};

    fn kernel(source: &str) -> KernelSource {
        let body = format!(
            "{source}\nint k(const void *const *d, void *const *o, const void *p, void *w) {{ \
             return 0; }}\n"
        );
        KernelSource {
            language: Language::C,
            source: body,
            symbol: "k".into(),
            prepared: Bytes(0),
            workspace: Bytes(0),
            openmp: false,
            full_optimisation: false,
            flags: Vec::new(),
            launches: Vec::new(),
        }
    }

    #[test]
    fn an_object_is_compiled_once_for_all_who_want_it() {
        let (cache, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let to = |name: &str| out.path().join(name);
        let open = || ObjectCache::open(cache.path()).unwrap();
        let t = Toolchain::detect().unwrap().with_objects(open());
        let k = kernel("#include <math.h>");
        assert!(matches!(t.object(&k, &to("a.o")).unwrap(), Object::Made(s) if s > 0.0));
        assert_eq!(t.object(&k, &to("b.o")).unwrap(), Object::Made(0.0));
        let t = t.with_objects(open());
        assert_eq!(t.object(&k, &to("c.o")).unwrap(), Object::Made(0.0));
        let bytes = |name: &str| fs::read(to(name)).unwrap();
        assert_eq!(bytes("a.o"), bytes("c.o"));
        // Other flags, other objects; a file that is included may change.
        let fast = KernelSource { full_optimisation: !k.full_optimisation, ..k.clone() };
        assert!(matches!(t.object(&fast, &to("d.o")).unwrap(), Object::Made(s) if s > 0.0));
        fs::write(to("mine.h"), "static int x;").unwrap();
        let own = kernel(&format!("#include \"{}\"", to("mine.h").display()));
        for _ in 0..2 {
            assert!(matches!(t.object(&own, &to("e.o")).unwrap(), Object::Made(s) if s > 0.0));
        }
        // What is refused is refused again, and nothing of it is kept.
        let broken = kernel("int x = ;");
        for _ in 0..2 {
            assert!(matches!(t.object(&broken, &to("f.o")).unwrap(), Object::Refused(..)));
        }
        assert!(!to("f.o").exists());
    }

    #[test]
    fn only_standard_headers_are_taken_for_unchanging() {
        let reads = [
            "#include \"x.h\"",
            " # include <mine.h>",
            "#include X",
            "#embed \"x\"",
            "/* */ #include \"x\"",
            "#inc\\\nlude <x.h>\n#include <x.h>",
            "asm(\".incbin \\\"x\\\"\");",
        ];
        for open in reads {
            assert!(!is_closed(open), "{open}");
        }
        assert!(is_closed("#include <math.h>\n#define X 1\nint x;"));
    }

    #[test]
    fn a_key_tells_arguments_and_texts_apart() {
        let t = Toolchain::detect().unwrap();
        let keys = [
            t.key(&["-O2"], &["a"]),
            t.key(&["-O3"], &["a"]),
            t.key(&["-O2"], &["b"]),
            t.key(&["-O2", "a"], &[]),
            t.key(&["-O2"], &["a", ""]),
            t.key(&["-O2", "-march=native"], &["a"]),
        ];
        let mut distinct = keys.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), keys.len());
        assert!(!machine().contains("MHz"));
    }
}
