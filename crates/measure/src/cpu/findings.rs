//! The results of probing a C compiler (version, flags that it takes, predefined macros), as a text
//! that the object cache keeps. Probing takes some ten compiler runs, 0.1 s, which otherwise each
//! process would pay. `toolchain.rs` probes.

use std::fmt;

/// The first line, which names the form of the text; other forms are not read.
pub const FORM: &str = "squall compiler 1";

/// The properties of a compiler. They print as text and parse back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// The first line of its version message.
    pub version: String,
    /// The wanted flags that it takes; they are part of its name in records.
    pub asked: Vec<String>,
    /// The same flags with the machine's actual name in place of `native`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Toolchain;
    use crate::objects::ObjectCache;
    use std::fs;
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
