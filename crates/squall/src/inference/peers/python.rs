//! Finds a Python that has a library, starts `peer.py` in it, and converses with the process: one
//! JSON question and one JSON answer a line, with time limits.

use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The script that runs in the process.
const SCRIPT: &str = include_str!("peer.py");
/// The environment variable that names the Python with the libraries.
const VARIABLE: &str = "SQUALL_PYTHON";
/// The places where a Python is looked for without the variable, in this order.
const PLACES: [&str; 3] = [".venv/bin/python", "../peers-venv/bin/python", "python3"];

/// The first Python that has the package and numpy; the error names the Pythons that were asked.
pub fn find(package: &str) -> Result<PathBuf, String> {
    let named = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
    let places = match &named {
        Some(python) => vec![python.clone()],
        None => PLACES.iter().map(PathBuf::from).collect(),
    };
    let has = |python: &PathBuf| {
        // A package is found without being loaded, which takes seconds.
        let check = format!(
            "import importlib.util as u, sys; sys.exit(not all(u.find_spec(p) for p in \
             ('numpy', '{package}')))"
        );
        let mut command = Command::new(python);
        command.args(["-c", &check]).stdin(Stdio::null());
        let ran = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        ran.is_ok_and(|s| s.success())
    };
    if let Some(found) = places.iter().find(|p| has(p)) {
        return Ok(found.clone());
    }
    let asked: Vec<String> = places.iter().map(|p| format!("`{}`", p.display())).collect();
    Err(format!(
        "no Python with {package} and numpy was found (asked {}); `python3 -m venv .venv && \
         .venv/bin/pip install numpy {package}` makes one here, {VARIABLE} names another",
        asked.join(", ")
    ))
}

/// A process that answers line by line; it is ended with this.
pub struct Conversation {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Conversation {
    /// Starts it in a folder, which it writes its script to.
    pub fn start(python: &Path, folder: &Path, threads: usize) -> Result<Conversation, String> {
        let script = folder.join("peer.py");
        std::fs::write(&script, SCRIPT).map_err(|e| format!("{}: {e}", script.display()))?;
        let mut command = Command::new(python);
        command
            .arg(&script)
            .env("OMP_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let fail = |why: String| format!("`{}` does not start: {why}", python.display());
        let mut child = command.spawn().map_err(|e| fail(e.to_string()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(fail("it has no pipes".into()));
        };
        let (send, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Conversation { child, input, answers })
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, question: &Value, patience: Duration) -> Result<Value, String> {
        // A process that died cannot be written to; that shows when the answer is read.
        let _ = writeln!(self.input, "{question}");
        let _ = self.input.flush();
        loop {
            let line = match self.answers.recv_timeout(patience) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("it did not answer within {} s", patience.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let how = self.child.wait().map_or_else(|e| e.to_string(), |s| s.to_string());
                    return Err(format!("its process ended ({how})"));
                }
            };
            let Some(answer) = line.strip_prefix('@') else { continue };
            let said: Value =
                serde_json::from_str(answer).map_err(|e| format!("its answer is no JSON: {e}"))?;
            return match said["error"].as_str() {
                Some(error) => Err(error.to_string()),
                None => Ok(said),
            };
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_dies_or_lacks_the_library_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let dead = Conversation::start(Path::new("/bin/false"), folder.path(), 1);
        let why = dead.unwrap().ask(&Value::Null, Duration::from_secs(10)).unwrap_err();
        assert!(why.contains("ended"), "{why}");
        assert!(Conversation::start(Path::new("/no/python"), folder.path(), 1).is_err());
        let why = find("a_package_that_is_nowhere").unwrap_err();
        assert!(why.contains("pip install") && why.contains(VARIABLE), "{why}");
    }
}
