//! The folder of a campaign's case and the processes in it: limits of time and memory, their
//! output, and checks whether a file outside of the folder was touched. A case puts files here and
//! runs commands; the verdict follows from a [`Ran`].

use super::verdict::Verdict;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Memory that a case may address, in KiB: 4 GiB.
const MEMORY: u64 = 4 << 20;
/// The contents of a file outside of the folder in which a case runs.
const SECRET: &str = "mine";

/// A case's folder: `in` is where it runs, `outside` is not to be touched, `tmp` and `home` are its
/// own.
pub struct Sandbox {
    folder: PathBuf,
    binary: PathBuf,
}

/// The end of a process.
pub struct Ran {
    /// None where its time was over.
    pub status: Option<ExitStatus>,
    /// The first of what it printed.
    pub out: String,
    /// The first of what it wrote to its error stream.
    pub err: String,
}

impl Sandbox {
    /// A fresh one.
    pub fn make(folder: &Path, binary: &Path) -> Result<Sandbox, String> {
        let fail = |e: std::io::Error| format!("{}: {e}", folder.display());
        if folder.exists() {
            // What a case made unwritable can be removed all the same.
            let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(folder).output();
            fs::remove_dir_all(folder).map_err(fail)?;
        }
        for name in ["in", "outside", "tmp", "home"] {
            fs::create_dir_all(folder.join(name)).map_err(fail)?;
        }
        fs::write(folder.join("outside/secret"), SECRET).map_err(fail)?;
        Ok(Sandbox { folder: folder.into(), binary: binary.into() })
    }

    /// Where the case runs.
    pub fn inside(&self) -> PathBuf {
        self.folder.join("in")
    }

    /// The program under test.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Writes a file where the case runs.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        // A case that lacks its file fails, and is seen.
        let _ = fs::write(self.inside().join(name), bytes);
    }

    /// Links and pipes as a stranger's archive may bring them.
    pub fn traps(&self) {
        let _ = std::os::unix::fs::symlink("../outside/secret", self.inside().join("link"));
        let _ = std::os::unix::fs::symlink("/nonexistent", self.inside().join("dangling"));
        let _ = Command::new("mkfifo").arg(self.inside().join("pipe")).output();
    }

    /// The program under test with some arguments, under limits: `limits` are commands of a shell.
    pub fn command(&self, arguments: &[&str], limits: &str) -> Command {
        let mut c = Command::new("sh");
        c.args(["-c", &format!("{limits}\nexec \"$@\""), "sh"]).arg(&self.binary).args(arguments);
        self.prepared(c)
    }

    /// Any program in the case's folder and environment.
    pub fn prepared(&self, mut c: Command) -> Command {
        c.current_dir(self.inside())
            .stdin(Stdio::null())
            .env("TMPDIR", self.folder.join("tmp"))
            .env("HOME", self.folder.join("home"))
            .env("XDG_CACHE_HOME", self.folder.join("home/cache"))
            .env_remove("SQUALL_STORE")
            .env_remove("SQUALL_THREADS")
            .env_remove("CC")
            .process_group(0);
        c
    }

    /// The usual limits.
    pub fn limits() -> String {
        format!("ulimit -v {MEMORY}")
    }

    /// Runs the program under test to its end.
    pub fn squall(&self, arguments: &[&str], seconds: u64) -> Ran {
        let said = format!("squall {arguments:?}\n");
        self.note(&said);
        self.run(self.command(arguments, &Sandbox::limits()), seconds)
    }

    /// Remembers what was done, for the folder of a bad case.
    pub fn note(&self, text: &str) {
        let path = self.folder.join("log");
        if let Ok(mut f) = File::options().append(true).create(true).open(path) {
            let _ = std::io::Write::write_all(&mut f, text.as_bytes());
        }
    }

    /// Runs a process to its end, or kills it and all that it started.
    pub fn run(&self, mut command: Command, seconds: u64) -> Ran {
        let (out, err) = (self.folder.join("out"), self.folder.join("err"));
        let (Ok(o), Ok(e)) = (File::create(&out), File::create(&err)) else {
            return Ran { status: None, out: String::new(), err: "no file for output".into() };
        };
        let child = command.stdout(o).stderr(e).spawn();
        let status = child.ok().and_then(|mut c| wait(&mut c, Duration::from_secs(seconds)));
        let ran = Ran { status, out: head(&out), err: head(&err) };
        self.note(&format!("{:?}\n{}\n{}\n", ran.status, ran.out, ran.err));
        ran
    }

    /// Whether nothing outside of `in` was changed and nothing temporary is left.
    pub fn left_as_it_was(&self) -> Verdict {
        let names = |p: &Path| -> Vec<String> {
            let all = fs::read_dir(p).into_iter().flatten().flatten();
            let mut all: Vec<String> =
                all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            all.sort();
            all
        };
        let secret = fs::read_to_string(self.folder.join("outside/secret")).unwrap_or_default();
        if secret != SECRET || names(&self.folder.join("outside")) != ["secret"] {
            return Verdict::Escape("the folder beside was written to".into());
        }
        let known = ["err", "home", "in", "log", "out", "outside", "tmp"];
        if let Some(n) = names(&self.folder).iter().find(|n| !known.contains(&n.as_str())) {
            return Verdict::Escape(format!("`{n}` was written outside of its folder"));
        }
        if self.inside().join("pwned").exists() {
            return Verdict::Escape("a name was run as a command".into());
        }
        match names(&self.folder.join("tmp")).first() {
            Some(left) => Verdict::Wrong(format!("`{left}` stays in the temporary folder")),
            None => Verdict::Right,
        }
    }

    /// Where the program under test keeps compiled files.
    pub fn objects(&self) -> PathBuf {
        self.folder.join("home/cache/squall/objects")
    }

    /// Which of the cases that run at once it belongs to.
    pub fn number(&self) -> u32 {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// The temporary folder, which faults leave things in.
    pub fn temporary(&self) -> PathBuf {
        self.folder.join("tmp")
    }

    /// Keeps the folder of a bad case.
    pub fn keep(&self, place: &Path, verdict: &Verdict) {
        self.note(&format!("verdict: {verdict}\n"));
        let _ = fs::remove_dir_all(place);
        let _ = fs::rename(&self.folder, place);
    }
}

/// Waits for a process; kills its group and gives none where that takes too long.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if start.elapsed() >= limit {
            kill_group(child);
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills a process and its group.
pub fn kill_group(child: &mut Child) {
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).output();
    let _ = child.kill();
}

/// The beginning of a file as text.
fn head(path: &Path) -> String {
    let mut bytes = fs::read(path).unwrap_or_default();
    bytes.truncate(1 << 20);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What is wrong with the way a process ended that was given something bad; `must_fail` where it is
/// certain that it is bad, and `says_error` where the word stands before what it says.
pub fn judge(ran: &Ran, must_fail: bool, says_error: bool) -> Verdict {
    let said: String = ran.err.chars().take(400).collect();
    if ran.err.contains("panicked at") || ran.out.contains("panicked at") {
        return Verdict::Panic(said);
    }
    if ran.err.contains("memory allocation of") {
        return Verdict::Memory(said);
    }
    let Some(status) = ran.status else { return Verdict::Hang(said) };
    if let Some(signal) = status.signal() {
        return Verdict::Panic(format!("signal {signal}: {said}"));
    }
    if ran.out.contains('\u{1b}') || ran.err.contains('\u{1b}') {
        return Verdict::Escape("a name speaks to the terminal".into());
    }
    match status.code() {
        Some(0) if must_fail => Verdict::Garbage(ran.out.chars().take(200).collect()),
        // Ended by a signal of the case's own, as it should be.
        Some(0 | 130) => Verdict::Right,
        _ if says_error && !ran.err.contains("error: ") => Verdict::Silent(said),
        _ if ran.err.trim().is_empty() => Verdict::Silent(said),
        _ => Verdict::Right,
    }
}
