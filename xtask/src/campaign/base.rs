//! Files that are right, made once by the program under test: what the cases damage.

use super::options::Options;
use super::sandbox::wait;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A task that builds and runs in a blink.
pub const SMALL: &str = "matmul m=16 n=16 k=16";

/// A runner that answers with a file instead of running kernels.
const FAKE_RUNNER: &str = "\
#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
int main(void) {\n    char line[4096];\n    const char *name = getenv(\"FAKE_REPLY\");\n    \
FILE *f = fopen(name ? name : \"/nonexistent\", \"rb\");\n    int c;\n    \
if (!f) return 3;\n    puts(\"0.1 ready version=1\");\n    fflush(stdout);\n    \
while (fgets(line, sizeof line, stdin)) {\n        while ((c = getc(f)) != EOF) {\n            \
putchar(c);\n            if (c == '\\n') break;\n        }\n        if (c == EOF) rewind(f);\n    \
    \
fflush(stdout);\n    }\n    return 0;\n}\n";

/// The files.
pub struct Base {
    /// A model.
    pub model: Vec<u8>,
    /// The model's file.
    pub model_path: PathBuf,
    /// A store with trials of [`SMALL`].
    pub store: Vec<u8>,
    /// A store with a recording.
    pub recorded: Vec<u8>,
    /// Lines of a store.
    pub lines: Vec<u8>,
    /// A recording.
    pub recording: Vec<u8>,
    /// A predictor, where one could be trained.
    pub predictor: Option<Vec<u8>>,
    /// The folder of a network's program, where one could be built.
    pub network: Option<PathBuf>,
    /// A compiler whose runner answers what a file says.
    pub lying_compiler: PathBuf,
}

impl Base {
    /// Makes them, or takes those of an earlier run of the same program.
    pub fn make(options: &Options) -> Result<Base, String> {
        let folder = options.folder.join("base");
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let model_path = options.root.join("examples/small_net.onnx");
        let made = Maker { folder: &folder, binary: &options.binary };
        let recording = RECORDING.as_bytes().to_vec();
        fs::write(folder.join("recording.json"), &recording).map_err(|e| e.to_string())?;
        made.once("recorded.squall", &["import", "recording.json", "--store", "recorded.squall"])?;
        let tune = ["tune", SMALL, "--trials", "6", "--store", "tuned.squall"];
        made.once("tuned.squall", &tune)?;
        let export = ["records", "export", "--store", "tuned.squall", "--output", "lines.jsonl"];
        made.once("lines.jsonl", &export)?;
        let train = ["train", "--records", "--store", "tuned.squall", "--out", "base.predictor"];
        let predictor = made.once("base.predictor", &train).is_ok();
        let model = model_path.to_string_lossy().into_owned();
        let input = options.root.join("examples/small_net_input.npy");
        let input = input.to_string_lossy();
        let run = ["run", &model, "--input", &input, "--output", "y.npy", "--keep", "network"];
        let network = made.once("y.npy", &run).is_ok();
        let read = |name: &str| fs::read(folder.join(name)).map_err(|e| format!("{name}: {e}"));
        Ok(Base {
            model: fs::read(&model_path).map_err(|e| e.to_string())?,
            model_path,
            store: read("tuned.squall")?,
            recorded: read("recorded.squall")?,
            lines: read("lines.jsonl")?,
            recording,
            predictor: predictor.then(|| read("base.predictor")).transpose()?,
            network: network.then(|| folder.join("network")),
            lying_compiler: lying_compiler(&folder)?,
        })
    }
}

struct Maker<'a> {
    folder: &'a Path,
    binary: &'a Path,
}

impl Maker<'_> {
    /// Makes a file by a command, unless it is there.
    fn once(&self, name: &str, arguments: &[&str]) -> Result<(), String> {
        if self.folder.join(name).exists() {
            return Ok(());
        }
        let mut child = Command::new(self.binary)
            .args(arguments)
            .current_dir(self.folder)
            .env("XDG_CACHE_HOME", self.folder.join("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(self.folder.join("err")).map_err(|e| e.to_string())?)
            .spawn()
            .map_err(|e| e.to_string())?;
        let status = wait(&mut child, Duration::from_secs(600));
        if status.is_some_and(|s| s.success()) && self.folder.join(name).exists() {
            return Ok(());
        }
        let said = fs::read_to_string(self.folder.join("err")).unwrap_or_default();
        println!("note: no {name}: {}", said.lines().next().unwrap_or("its time was over"));
        Err(format!("squall {arguments:?} made no {name}: {said}"))
    }
}

/// A compiler that builds everything but the runner, for which it gives a fake.
fn lying_compiler(folder: &Path) -> Result<PathBuf, String> {
    let fail = |e: std::io::Error| e.to_string();
    let (source, program) = (folder.join("fake.c"), folder.join("fake"));
    fs::write(&source, FAKE_RUNNER).map_err(fail)?;
    let made = Command::new("cc").arg("-o").arg(&program).arg(&source).status().map_err(fail)?;
    if !made.success() {
        return Err("cc cannot build the fake runner".into());
    }
    let path = folder.join("lying-cc");
    let text = format!(
        "#!/bin/sh\nout=; lie=\nfor a in \"$@\"; do\n  case \"$a\" in */runner.c) lie=1;; esac\n  \
        [ \
         \"$last\" = -o ] && out=$a\n  last=$a\ndone\nif [ -n \"$lie\" ]; then cp '{}' \"$out\"; \
         exit 0; fi\nexec cc \"$@\"\n",
        program.display()
    );
    script(&path, &text)?;
    Ok(path)
}

/// Writes a program of the shell's.
pub fn script(path: &Path, text: &str) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).map_err(|e| e.to_string())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())
}

const RECORDING: &str = r#"{"device_name": "A GPU", "kernel_name": "k", "problem_size": 4096,
"objective": "time", "tune_params_keys": ["a", "b"], "tune_params": {"a": [1, 2, 4], "b": [8, 16]},
"cache": {"1,8": {"a": 1, "b": 8, "time": 2.5}, "2,8": {"a": 2, "b": 8, "time": 1.5},
"4,8": {"a": 4, "b": 8, "time": "RuntimeFailedConfig"}, "1,16": {"a": 1, "b": 16, "time": 3.25},
"2,16": {"a": 2, "b": 16, "time": 1.25}}}"#;
