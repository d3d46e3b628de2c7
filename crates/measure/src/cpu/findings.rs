//! What a compiler was found to take, as a text that the cache of compiled files keeps: asking the
//! compiler costs some ten runs of it, 0.1 s, which each process would pay.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Names the form of the text: one of another form is not read.
const FORM: &str = "squall compiler 1";

/// Variables that lead a compiler to other files.
pub(super) const VARIABLES: [&str; 6] = [
    "COMPILER_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
];

/// What a compiler takes. It prints and parses back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The first line of what it says of its version.
    pub version: String,
    /// The flags that it was asked for and takes; they name it in records.
    pub asked: Vec<String>,
    /// The same with this machine by its name, where it was asked for as `native`.
    pub flags: Vec<String>,
    /// Whether it takes the flags of tiled kernels.
    pub tiled: bool,
    /// Whether it compiles OpenMP.
    pub openmp: bool,
    /// The macros that it predefines for this machine or level: `NAME VALUE` lines.
    pub macros: String,
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FORM}\nversion {}", self.version)?;
        self.asked.iter().try_for_each(|flag| writeln!(f, "asked {flag}"))?;
        self.flags.iter().try_for_each(|flag| writeln!(f, "flag {flag}"))?;
        writeln!(f, "tiled {}\nopenmp {}", self.tiled, self.openmp)?;
        self.macros.lines().try_for_each(|line| writeln!(f, "macro {line}"))?;
        writeln!(f, "end")
    }
}

impl Findings {
    /// Whether the compiler takes all that it was asked for and answered each question: nothing
    /// else is kept, for the next answer may be another.
    pub fn is_whole(&self) -> bool {
        let is_said = !self.version.is_empty() && !self.macros.is_empty();
        let is_named = self.flags.iter().all(|flag| !flag.ends_with("=native"));
        self.tiled && self.openmp && is_said && is_named
    }

    /// The findings that a text tells; none where it is not whole.
    pub fn parse(text: &str) -> Option<Findings> {
        let mut found = Findings::default();
        let mut lines = text.strip_suffix("end\n")?.lines();
        (lines.next()? == FORM).then_some(())?;
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "version" => found.version = rest.into(),
                "asked" => found.asked.push(rest.into()),
                "flag" => found.flags.push(rest.into()),
                "tiled" => found.tiled = rest.parse().ok()?,
                "openmp" => found.openmp = rest.parse().ok()?,
                "macro" => found.macros = found.macros + rest + "\n",
                _ => return None,
            }
        }
        Some(found)
    }
}

/// The digest of all that decides what a compiler takes: the files that its command names, all that
/// it says of its version, this machine's processor, the variables that lead it to other files, and
/// what it is asked for. None where one of these is not known.
pub fn key(command: &[String], version: &str, asked: &[&str]) -> Option<String> {
    if version.trim().is_empty() {
        return None;
    }
    let mut h = blake3::Hasher::new();
    let mut add = |text: &str| _ = h.update(text.as_bytes()).update(b"\0");
    [FORM, env!("CARGO_PKG_VERSION"), version, &processor()?].into_iter().for_each(&mut add);
    asked.iter().copied().for_each(&mut add);
    VARIABLES.iter().for_each(|name| add(&format!("{name}={:?}", std::env::var_os(name))));
    for (i, word) in command.iter().enumerate() {
        add(word);
        // Words behind the first may be compilers, too, as in `ccache gcc`.
        match file_of(word) {
            Some(file) => {
                let m = fs::metadata(&file).ok()?;
                let changed = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()];
                add(&format!("{file:?} {} {} {} {changed:?}", m.dev(), m.ino(), m.size()));
            }
            None if i == 0 => return None,
            None => {}
        }
    }
    Some(h.finalize().to_hex().to_string())
}

/// The file that a word of a command names, by its path or in one of the folders of `PATH`, behind
/// all links.
fn file_of(word: &str) -> Option<PathBuf> {
    if word.contains('/') {
        return fs::canonicalize(word).ok();
    }
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(word));
    files.find(|f| f.is_file()).and_then(|f| fs::canonicalize(f).ok())
}

/// What the system says of the first processor, but for what changes as it runs.
fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let stays = |l: &&str| !l.contains("MHz") && !l.to_ascii_lowercase().contains("bogomips");
    let first = text.split("\n\n").next()?.lines().filter(stays);
    Some(first.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Toolchain;
    use crate::objects::ObjectCache;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn findings_are_read_back_and_a_part_of_them_is_not() {
        let found = Findings {
            version: "gcc 12 (a b)".into(),
            asked: vec!["-march=native".into(), "-w".into()],
            flags: vec!["-march=x86-64-v3".into()],
            tiled: true,
            openmp: false,
            macros: "#define A 1\n#define B\n".into(),
        };
        let text = found.to_string();
        assert_eq!(Findings::parse(&text), Some(found));
        for cut in 0..text.len() {
            assert_eq!(Findings::parse(&text[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_compiler_is_asked_once_and_again_when_it_changed() {
        let dir = tempfile::tempdir().unwrap();
        let objects = ObjectCache::open(&dir.path().join("objects")).unwrap();
        let (script, log) = (dir.path().join("cc.sh"), dir.path().join("log"));
        let write = |comment: &str| {
            let log = log.display();
            let text = format!("#!/bin/sh\n# {comment}\necho >> {log}\nexec cc \"$@\"\n");
            fs::write(&script, text).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let asked = || {
            let _ = fs::remove_file(&log);
            let t = Toolchain::named_with(&script.display().to_string(), &objects).unwrap();
            let runs = fs::read_to_string(&log).unwrap().lines().count();
            (runs, t.id(), t.flags().to_vec(), t.macros().to_string())
        };
        write("one");
        let first = asked();
        assert!(first.0 > 3, "{}", first.0);
        assert_eq!(asked(), (1, first.1, first.2, first.3));
        write("another");
        assert!(asked().0 > 3);
    }
}
