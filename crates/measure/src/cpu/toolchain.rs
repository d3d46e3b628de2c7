//! The user's C compiler: found by `CC` or in the path, probed for the flags that it takes
//! (`findings.rs`), and run with a deadline. A [`Toolchain`] is a compiler with flags for one
//! instruction level; its name is part of each record, since another compiler makes other kernels.

use super::findings::{FORM, Findings};
use super::{level, written};
use crate::artifact::BuildSite;
use crate::folder::TemporaryFolder;
use crate::objects::{ObjectCache, Wanted};
use crate::process::{Process, bound_launcher, describe, program_file};
use squall_core::is_stopped;
use squall_core::{Isa, KernelSource, MeasurerError};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The compilers that are tried, in this order, where `CC` is not set.
const DEFAULTS: [&str; 3] = ["gcc", "cc", "clang"];

/// Optional flags that make kernels faster. `-ffast-math` is not among them: it breaks infinities,
/// which softmax and the padding of maxima need.
const WANTED: [&str; 4] = ["-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-w"];

/// Flags for kernels whose loops are tiled and vectorised already: redoing that in the compiler
/// takes a third of its time, and moving loads between iterations spills the registers that tiles
/// fill.
const TILED: [&str; 6] = [
    "-fno-tree-pre",
    "-fno-predictive-commoning",
    "-fno-tree-vectorize",
    "-fno-code-hoisting",
    "-fno-gcse",
    "-fira-region=one",
];

/// Products and sums are rounded one by one. A plain operator's text is compiled so wherever it
/// runs: it gives the same bits at every level of optimisation then, or the compiler is at fault.
/// So is a tiled kernel's, which writes its multiply-adds out: a compiler left to itself contracts
/// some sums of a tile and not others, by the code around them.
const UNCONTRACTED: &str = "-ffp-contract=off";

/// What makes another program of a text than its usual flags do, with the parts of the compiler
/// left out that went wrong before. They stand behind all others.
pub(super) const INDEPENDENT: [&str; 4] =
    ["-O1", "-fno-tree-vectorize", "-fno-tree-slp-vectorize", UNCONTRACTED];

/// Cancels no compiler run.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);

/// How long a compiler may take to build next to nothing.
const TRIVIAL_TIMEOUT: Duration = Duration::from_secs(20);

/// The message about a compiler whose time was over.
const HANGS: &str = "the compiler did not end";

/// Arguments that print the macros which the compiler predefines.
const MACROS: [&str; 5] = ["-dM", "-E", "-x", "c", "/dev/null"];

const TRIVIAL: &str = "int squall_trivial(void) { return 0; }\n";

/// A C compiler with the flags that it understands.
#[derive(Clone, Debug)]
pub struct Toolchain {
    command: Vec<String>,
    found: Findings,
    /// The cache of files that it compiled.
    pub(super) objects: ObjectCache,
    /// The level of instructions that it is held to; none for all that this machine has.
    isa: Option<Isa>,
}

/// The flags for a level of instructions, or for all that this machine has: each of these lists is
/// tried.
fn machine_flags(isa: Option<Isa>) -> Vec<Vec<&'static str>> {
    match isa {
        Some(isa) => vec![isa.level().flags().collect()],
        None => vec![vec!["-march=native"], vec!["-mcpu=native"]],
    }
}

/// The words of a command: a path, or a command with arguments as in `CC`.
fn words(cc: &str) -> Vec<String> {
    match Path::new(cc).is_file() {
        true => vec![cc.to_string()],
        false => cc.split_whitespace().map(String::from).collect(),
    }
}

/// The result of a compiler run.
pub(crate) struct Compiled {
    pub ok: bool,
    /// Its output, or how it ended.
    pub said: String,
    /// CPU seconds.
    pub cpu: f64,
    /// Whether it was ended from here: its time was over, or it was cancelled.
    pub killed: bool,
}

impl Toolchain {
    /// The compiler that `CC` names, else the first of gcc, cc and clang that works.
    pub fn detect() -> Result<Toolchain, MeasurerError> {
        Toolchain::detect_with(ObjectCache::default())
    }

    /// The same with a cache, which also keeps what a compiler was found to take: the next process
    /// asks the same compiler for its version alone.
    pub fn detect_with(objects: ObjectCache) -> Result<Toolchain, MeasurerError> {
        match std::env::var("CC") {
            Ok(cc) if !cc.trim().is_empty() => Toolchain::named_with(&cc, &objects),
            _ => Toolchain::first_that_works(&DEFAULTS, &objects),
        }
    }

    /// The compiler that a command names: a path, or a command with arguments as in `CC`.
    pub fn named(cc: &str) -> Result<Toolchain, MeasurerError> {
        Toolchain::named_with(cc, &ObjectCache::default())
    }

    pub(super) fn named_with(cc: &str, kept: &ObjectCache) -> Result<Toolchain, MeasurerError> {
        Toolchain::probe(words(cc), None, kept)
    }

    /// The compiler that makes code of a level of instructions: this one where it is of the level's
    /// architecture, else the one that `CC_aarch64` (by the architecture's name) or the usual name
    /// of a cross compiler gives.
    pub fn at(&self, isa: Isa) -> Result<Toolchain, MeasurerError> {
        let level = isa.level();
        let (ours, name) = (level.architecture.defined_macro(), level.architecture.name());
        let is_ours = |m: &str| m.lines().any(|l| l.split_whitespace().nth(1) == Some(ours));
        let found = if is_ours(&self.found.macros) {
            Toolchain::probe(self.command.clone(), Some(isa), &self.objects)
        } else {
            let variable = format!("CC_{name}");
            let cross = std::env::var(&variable).ok().filter(|c| !c.trim().is_empty());
            let cross = cross.unwrap_or_else(|| format!("{name}-linux-gnu-gcc"));
            let command = cross.split_whitespace().map(String::from).collect();
            Toolchain::probe(command, Some(isa), &self.objects).map_err(|e| match e {
                MeasurerError::NoCompiler { .. } => MeasurerError::Device(format!(
                    "kernels of {isa} need a C compiler for {name}, and `{cross}` is not there; \
                     `apt-get install gcc-{}-linux-gnu`, or name one by {variable}",
                    name.replace('_', "-")
                )),
                e => e,
            })
        };
        let found = found?;
        if !level.flags().all(|flag| found.found.asked.iter().any(|f| f == flag)) {
            return Err(MeasurerError::Device(format!(
                "`{}` does not know {}: GCC 11 and Clang 12 are the first that know all levels",
                found.command(),
                level.flag
            )));
        }
        Ok(found)
    }

    /// A file of its own, such as a library that it links to; none where it has none.
    pub(super) fn file(&self, name: &str) -> Result<Option<PathBuf>, MeasurerError> {
        let folder = TemporaryFolder::new("probe")?;
        let said = self.printed(folder.path(), &[&format!("-print-file-name={name}")])?;
        let path = PathBuf::from(said.trim());
        Ok(Some(path).filter(|p| p.is_absolute() && p.is_file()))
    }

    /// The level of instructions that it is held to; none for all that this machine has.
    pub fn isa(&self) -> Option<Isa> {
        self.isa
    }

    /// The first of some commands that works.
    pub fn first_of(commands: &[&str]) -> Result<Toolchain, MeasurerError> {
        Toolchain::first_that_works(commands, &ObjectCache::default())
    }

    fn first_that_works(
        commands: &[&str],
        objects: &ObjectCache,
    ) -> Result<Toolchain, MeasurerError> {
        let mut broken = None;
        for c in commands {
            match Toolchain::probe(vec![c.to_string()], None, objects) {
                Err(MeasurerError::NoCompiler { .. }) => {}
                Err(MeasurerError::Stopped) => return Err(MeasurerError::Stopped),
                // The other names are often the same compiler's, and each would hang as long.
                Err(e) if e.to_string().contains(HANGS) => return Err(e),
                Err(e) => broken = Some(e),
                found => return found,
            }
        }
        Err(broken.unwrap_or(MeasurerError::NoCompiler {
            tried: commands.iter().map(|c| c.to_string()).collect(),
        }))
    }

    fn probe(
        command: Vec<String>,
        isa: Option<Isa>,
        objects: &ObjectCache,
    ) -> Result<Toolchain, MeasurerError> {
        let folder = TemporaryFolder::new("probe")?;
        let (found, objects) = (Findings::default(), objects.clone());
        let mut t = Toolchain { command, found, objects, isa };
        if t.objects.is_kept()
            && let version = t.printed(folder.path(), &["--version"])?
            && !version.trim().is_empty()
        {
            let asked = machine_flags(isa).concat().into_iter().chain(WANTED).chain(TILED);
            let key = t.key(&asked.collect::<Vec<_>>(), &[FORM, &version]);
            let file = folder.path().join("findings");
            let wanted = Wanted { key: &key, to: &file, executable: false, cancel: &NEVER };
            let mut made = None;
            t.objects.obtain(wanted, || {
                let mut asked = t.clone();
                asked.find_out(folder.path())?;
                let text = asked.found.to_string();
                fs::write(&file, text).map_err(|e| MeasurerError::folder(&file, &e))?;
                // A busy machine, or a stop, may be why something was not found.
                let is_sure = asked.found.is_whole() && !is_stopped();
                made = Some(asked);
                Ok::<_, MeasurerError>(((), is_sure))
            })?;
            let read = || Findings::parse(&fs::read_to_string(&file).unwrap_or_default());
            if let Some(found) = made.map(|asked| asked.found).or_else(read) {
                return Ok(Toolchain { found, ..t });
            }
        }
        t.find_out(folder.path())?;
        Ok(t)
    }

    /// Asks the compiler, in a folder.
    fn find_out(&mut self, folder: &Path) -> Result<(), MeasurerError> {
        self.check(folder, &NEVER)?;
        self.found.version = self.ask_version(folder)?;
        self.find_flags(folder)?;
        self.found.flags = self.named_flags(folder)?;
        self.found.macros = self.ask_macros(folder)?;
        Ok(())
    }

    /// Finds the flags that it takes.
    fn find_flags(&mut self, folder: &Path) -> Result<(), MeasurerError> {
        let machine = machine_flags(self.isa);
        // Current compilers take all flags at once, which saves probing them one by one.
        let first = || machine[0].iter().copied().chain(WANTED);
        let all: Vec<&str> = first().chain(TILED).chain(["-fopenmp"]).collect();
        if self.takes(folder, &all)? {
            self.found.asked = first().map(String::from).collect();
            self.found.tiled = true;
            self.found.openmp = true;
            return Ok(());
        }
        for flags in &machine {
            if self.takes(folder, flags)? {
                self.found.asked.extend(flags.iter().map(|f| f.to_string()));
                break;
            }
        }
        if self.takes(folder, &WANTED)? {
            self.found.asked.extend(WANTED.map(String::from));
        } else {
            for f in WANTED {
                if self.takes(folder, &[f])? {
                    self.found.asked.push(f.into());
                }
            }
        }
        if self.takes(folder, &TILED)? {
            self.found.tiled = true;
        }
        self.found.openmp = self.takes(folder, &["-fopenmp"])?;
        Ok(())
    }

    /// The first line that `--version` prints.
    fn ask_version(&self, folder: &Path) -> Result<String, MeasurerError> {
        let text = self.printed(folder, &["--version"])?;
        let line = text.lines().map(str::trim).find(|l| !l.is_empty());
        Ok(line.map_or_else(|| self.command.join(" "), String::from))
    }

    /// The compiler's output for some arguments; none where it fails.
    fn printed(&self, folder: &Path, args: &[&str]) -> Result<String, MeasurerError> {
        let path = folder.join(unique("printed"));
        let out = File::create(&path).map_err(|e| MeasurerError::folder(&path, &e))?;
        let mut c = self.invocation(&[]);
        c.args(args).stdout(out).stderr(Stdio::null()).env("TMPDIR", folder);
        let ended = self
            .spawn(&mut c)?
            .wait(Instant::now() + Duration::from_secs(10), None)
            .map_err(|e| self.broken(folder, e.to_string()))?;
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
        let _ = fs::remove_file(&path);
        Ok(if ended.is_some_and(|e| e.status.success()) { text } else { String::new() })
    }

    /// Whether a library builds with the flags so far and these.
    fn takes(&self, folder: &Path, extra: &[&str]) -> Result<bool, MeasurerError> {
        let source = folder.join("probe.c");
        fs::write(&source, TRIVIAL).map_err(|e| MeasurerError::folder(&source, &e))?;
        let mut args: Vec<&str> = self.found.asked.iter().map(String::as_str).collect();
        args.extend(["-fPIC", "-shared", "-O2"]);
        args.extend(extra);
        let site = BuildSite { folder, timeout: TRIVIAL_TIMEOUT, cancel: &NEVER };
        let c = self.compile(site, &args, &source, &folder.join("probe.so"))?;
        // clang only warns of flags that it ignores.
        Ok(c.ok && !c.said.contains("unknown") && !c.said.contains("unused"))
    }

    /// Builds a trivial library in `folder` and gives the CPU seconds that took. An error means
    /// that the compiler does not work there.
    pub(crate) fn check(&self, folder: &Path, cancel: &AtomicBool) -> Result<f64, MeasurerError> {
        let name = unique("trivial");
        let (source, library) =
            (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
        fs::write(&source, TRIVIAL).map_err(|e| MeasurerError::folder(&source, &e))?;
        let site = BuildSite { folder, timeout: TRIVIAL_TIMEOUT, cancel };
        let c = self.compile(site, &["-fPIC", "-shared"], &source, &library)?;
        let wrote = library.is_file();
        let fault = written::fault(&library, self.isa);
        let _ = fs::remove_file(&source);
        let _ = fs::remove_file(&library);
        match c {
            c if c.ok && wrote => match fault {
                Some(why) => Err(self.broken(folder, why)),
                None => Ok(c.cpu),
            },
            // A cancelled run says nothing of the compiler.
            c if c.killed && cancel.load(Ordering::Relaxed) => Ok(c.cpu),
            c if c.ok => Err(self.broken(folder, "it reports success and writes nothing".into())),
            c => Err(self.broken(folder, first_error(&c.said))),
        }
    }

    fn broken(&self, folder: &Path, detail: String) -> MeasurerError {
        MeasurerError::BrokenCompiler {
            command: self.command.join(" "),
            folder: folder.into(),
            detail,
        }
    }

    /// The compiler behind a launcher, a command line that runs the rest of its arguments.
    fn invocation(&self, launcher: &[&str]) -> Command {
        let compiler = self.command.iter().map(String::as_str);
        let mut words = launcher.iter().copied().chain(compiler);
        let mut c = Command::new(words.next().unwrap_or("cc"));
        c.args(words).stdin(Stdio::null()).stdout(Stdio::null()).env("LC_ALL", "C");
        c
    }

    fn spawn(&self, command: &mut Command) -> Result<Process, MeasurerError> {
        self.started(Process::spawn_bound(command))
    }

    fn started(&self, process: io::Result<Process>) -> Result<Process, MeasurerError> {
        process.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                MeasurerError::NoCompiler { tried: vec![self.command.join(" ")] }
            }
            _ => self.broken(Path::new("."), format!("it cannot be started: {e}")),
        })
    }

    /// Runs the compiler: `args`, then the source, then what links it.
    pub(crate) fn compile(
        &self,
        site: BuildSite,
        args: &[&str],
        source: &Path,
        output: &Path,
    ) -> Result<Compiled, MeasurerError> {
        let folder = site.folder;
        let errors = folder.join(unique("said"));
        let file = File::create(&errors).map_err(|e| MeasurerError::folder(&errors, &e))?;
        // A launcher would hide that there is no such compiler.
        let compiler = self.command.first().map_or("cc", String::as_str);
        let launcher = bound_launcher().filter(|_| program_file(compiler).is_some());
        let mut c = self.invocation(launcher.unwrap_or_default());
        // The compiler's temporary files go into the folder, which is removed with all in it: a
        // killed compiler leaves some behind.
        c.args(args).arg(source).arg("-o").arg(output).env("TMPDIR", folder).stderr(file);
        c.arg("-lm");
        let start = Instant::now();
        let mut process = match launcher {
            Some(_) => self.started(Process::spawn(&mut c))?,
            None => self.spawn(&mut c)?,
        };
        let failed = |e: io::Error| self.broken(folder, e.to_string());
        let ended = process.wait(start + site.timeout, Some(site.cancel)).map_err(failed)?;
        let said = String::from_utf8_lossy(&fs::read(&errors).unwrap_or_default()).into_owned();
        let _ = fs::remove_file(&errors);
        Ok(match ended {
            Some(e) if said.trim().is_empty() => Compiled {
                ok: e.status.success(),
                said: describe(e.status),
                cpu: e.cpu,
                killed: false,
            },
            Some(e) => Compiled { ok: e.status.success(), said, cpu: e.cpu, killed: false },
            None if is_stopped() => {
                process.kill().map_err(failed)?;
                return Err(MeasurerError::Stopped);
            }
            None => {
                // The CPU time of a killed driver lacks that of its children, which the wall time
                // bounds.
                let cpu = process.kill().map_err(failed)?.cpu.max(start.elapsed().as_secs_f64());
                Compiled {
                    ok: false,
                    said: format!("{HANGS} within {} s", site.timeout.as_secs_f64()),
                    cpu,
                    killed: true,
                }
            }
        })
    }

    /// The macros that the compiler predefines for this machine: `NAME VALUE` lines.
    pub(crate) fn macros(&self) -> &str {
        &self.found.macros
    }

    fn ask_macros(&self, folder: &Path) -> Result<String, MeasurerError> {
        let machine = self.found.asked.iter().map(String::as_str).filter(|f| f.starts_with("-m"));
        self.printed(folder, &machine.chain(MACROS).collect::<Vec<_>>())
    }

    /// The flags with this machine by its name in the place of `native`. `native` is another
    /// machine wherever a library is built, and allows instructions that another of the same level
    /// lacks; so that a network computes the same bits here and as a library, both are compiled
    /// for the level. Instructions stay in the order that is best for this machine.
    fn named_flags(&self, folder: &Path) -> Result<Vec<String>, MeasurerError> {
        let Some(at) = self.found.asked.iter().position(|f| f == "-march=native") else {
            return Ok(self.found.asked.clone());
        };
        let native = self.found.asked[at].as_str();
        let macros = std::iter::once(native).chain(MACROS).collect::<Vec<_>>();
        let macros = self.printed(folder, &macros)?;
        let Some(level) = level::allowed(&macros) else { return Ok(self.found.asked.clone()) };
        let help = self.printed(folder, &[native, "-Q", "--help=target"])?;
        let tune = help.lines().find_map(|l| l.trim().strip_prefix("-mtune=")).map(str::trim);
        let tune = tune.filter(|t| !t.is_empty() && *t != "native").map(|t| format!("-mtune={t}"));
        let named: Vec<String> = level.flags().map(String::from).chain(tune).collect();
        // Compilers that are older than the level's name are asked for `native`.
        let known: Vec<&str> = named.iter().map(String::as_str).chain(MACROS).collect();
        let mut flags = self.found.asked.clone();
        if !self.printed(folder, &known)?.is_empty() {
            flags.splice(at..=at, named);
        }
        Ok(flags)
    }

    /// Compiler, version and the flags that decide which machine code a source becomes.
    pub fn id(&self) -> String {
        let deciding: Vec<&str> =
            self.found.asked.iter().map(String::as_str).filter(|f| *f != "-w").collect();
        let tiled: &[&str] = if self.found.tiled { &TILED } else { &[] };
        format!("{} -O2 {} {}", self.found.version, deciding.join(" "), tiled.join(" "))
            .trim_end()
            .to_string()
    }

    /// The command that is run, as in `CC`.
    pub fn command(&self) -> String {
        self.command.join(" ")
    }

    /// The first line of what `--version` says.
    pub fn version(&self) -> &str {
        &self.found.version
    }

    /// The flags that every kernel is compiled with, beside `-O2` (or `-O3`), `-fPIC` and
    /// `-shared`.
    pub fn flags(&self) -> &[String] {
        &self.found.flags
    }

    /// The flags that decide how hard it works on a kernel, before [`Toolchain::flags`].
    pub fn optimisation(&self, kernel: &KernelSource) -> Vec<&str> {
        if kernel.full_optimisation {
            vec!["-O3"]
        } else {
            let tiled = TILED.into_iter().filter(|_| self.found.tiled);
            std::iter::once("-O2").chain(tiled).chain(self.uncontracted()).collect()
        }
    }

    /// The flags that plain operators have beside those of every kernel.
    pub fn plain_flags(&self) -> Vec<String> {
        self.uncontracted().map(String::from).into_iter().collect()
    }

    /// The flag that keeps products and sums apart, where the compiler has one.
    fn uncontracted(&self) -> Option<&'static str> {
        self.found.flags.iter().any(|f| f == WANTED[0]).then_some(UNCONTRACTED)
    }

    /// The flags of a build that shares little with the usual one of the same text, to hold that
    /// one against; they stand behind those of every kernel.
    pub fn independent_flags(&self) -> Vec<String> {
        let is_known = |flag: &&str| match *flag {
            "-O1" => true,
            UNCONTRACTED => self.uncontracted().is_some(),
            _ => self.found.tiled,
        };
        INDEPENDENT.into_iter().filter(is_known).map(String::from).collect()
    }

    /// Whether it compiles OpenMP: kernels of several threads need it.
    pub fn openmp(&self) -> bool {
        self.found.openmp
    }
}

/// A file name that no other thread of this process uses.
pub(crate) fn unique(stem: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{stem}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The line that says what is wrong, without the path of our temporary file.
pub(crate) fn first_error(said: &str) -> String {
    let line = said
        .lines()
        .find(|l| l.contains("error"))
        .or_else(|| said.lines().find(|l| !l.trim().is_empty()))
        .unwrap_or("no reason given");
    let line = match line.split_once(".c:") {
        Some((path, rest)) if path.starts_with('/') => rest,
        _ => line,
    };
    line.trim().chars().take(300).collect()
}

impl std::fmt::Display for Toolchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_compiler_is_described() {
        let t = Toolchain::first_of(&DEFAULTS).unwrap();
        assert!(t.id().contains("-O2") && t.id().starts_with(t.version()), "{}", t.id());
        assert!(t.version().chars().any(|c| c.is_ascii_digit()), "{}", t.version());
        assert!(t.macros().contains("__STDC__"));
    }

    #[test]
    fn commands_with_arguments_work() {
        assert!(Toolchain::named("cc -DX=1").unwrap().command().ends_with("-DX=1"));
    }

    #[test]
    fn a_compiler_that_is_missing_or_fails_is_named() {
        let missing =
            Toolchain::first_of(&["squall-no-cc", "squall-none"]).unwrap_err().to_string();
        assert!(
            missing.contains("squall-no-cc, squall-none") && missing.contains("install"),
            "{missing}"
        );
        let missing = Toolchain::named("/no/such/compiler -O").unwrap_err();
        assert!(matches!(missing, MeasurerError::NoCompiler { .. }), "{missing}");
        let fails = Toolchain::named("/bin/false").unwrap_err().to_string();
        assert!(fails.contains("/bin/false") && fails.contains("exit status 1"), "{fails}");
        let lies = Toolchain::named("/bin/true").unwrap_err().to_string();
        assert!(lies.contains("writes nothing"), "{lies}");
    }

    #[test]
    fn the_first_error_line_is_found() {
        assert_eq!(
            first_error(
                "/tmp/x/k.c: In function 'f':\n/tmp/x/k.c:3:5: error: 'y' undeclared\nmore"
            ),
            "3:5: error: 'y' undeclared"
        );
        assert_eq!(first_error(""), "no reason given");
        assert_eq!(first_error("\nexit status 3"), "exit status 3");
    }
}
