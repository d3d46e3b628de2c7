//! What compiles and runs test programs: this machine's compiler, and a cross compiler and an
//! emulator of ARM where both are installed.
#![allow(dead_code)] // each test uses its part

use std::path::{Path, PathBuf};
use std::process::Command;

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

    /// What a program of some sources prints.
    pub fn output(&self, sources: &[PathBuf], folder: &Path) -> String {
        let exe = folder.join("main");
        let mut c = Command::new(&self.compiler);
        c.args(["-O1", "-w", "-o"]).arg(&exe).args(&self.flags).args(sources).arg("-lm");
        let o = c.output().expect("a C compiler");
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
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
