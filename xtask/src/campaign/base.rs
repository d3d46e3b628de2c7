//! The valid files that a campaign's cases damage (a model, a store, a predictor, a built network),
//! made once by the program under test, and a fake runner that answers with a file. Cases receive
//! them as a [`Base`].

use super::options::Options;
use super::sandbox::{Sandbox, wait};
use squall_fuzz::Draw;
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
    /// A predictor for all tasks: the one inside the program.
    pub general: Vec<u8>,
    /// A store with a find database.
    pub found: Vec<u8>,
    /// A chooser that learned from it.
    pub chooser: Vec<u8>,
    /// A file of a few megabytes that unpacks to more than any database has.
    pub bomb: Vec<u8>,
    /// What `squall doctor` says of this machine.
    pub machine: Vec<u8>,
    /// The model's cover.
    pub assignment: Vec<u8>,
    /// The folder of a network's program, where one could be built.
    pub network: Option<PathBuf>,
    /// The folder of an exported library, where one could be built.
    pub library: Option<PathBuf>,
    /// Compiled files of a session that tuned [`SMALL`].
    pub objects: PathBuf,
    /// The cache folder of everything else.
    pub cache: PathBuf,
    /// A compiler whose runner answers what a file says.
    pub lying_compiler: PathBuf,
}

impl Base {
    /// Makes them, or takes those of an earlier run of the same program.
    pub fn make(options: &Options) -> Result<Base, String> {
        let folder = options.folder.join("base");
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let model_path = options.root.join("examples/small_net.onnx");
        let model = model_path.to_string_lossy().into_owned();
        let made = Maker { folder: &folder, binary: &options.binary };
        let write = |name: &str, bytes: &[u8]| {
            fs::write(folder.join(name), bytes).map_err(|e| format!("{name}: {e}"))
        };
        write("recording.json", RECORDING.as_bytes())?;
        made.once("recorded.squall", &["import", "recording.json", "--store", "recorded.squall"])?;
        let tune = ["tune", SMALL, "--trials", "6", "--store", "tuned.squall"];
        made.once("tuned.squall", &tune)?;
        let export = ["records", "export", "--store", "tuned.squall", "--output", "lines.jsonl"];
        made.once("lines.jsonl", &export)?;
        let train = ["train", "--records", "--store", "tuned.squall", "--out", "base.predictor"];
        let predictor = made.once("base.predictor", &train).is_ok();
        write("gfx942130.HIP.fdb.txt", find_lines().as_bytes())?;
        let find = ["import", "gfx942130.HIP.fdb.txt", "--store", "found.squall"];
        made.once("found.squall", &find)?;
        let train = ["train", "--find", "--store", "found.squall", "--epochs", "4"];
        let train = [&train[..], &["--trainers", "1", "--out", "base.chooser"]].concat();
        made.once("base.chooser", &train)?;
        made.said("assignment.txt", &["explain", &model, "--stage", "assignment"])?;
        made.said("machine.json", &["doctor", "--json"])?;
        let input = options.root.join("examples/small_net_input.npy");
        let input = input.to_string_lossy();
        let run = ["run", &model, "--input", &input, "--output", "y.npy", "--keep", "network"];
        let network = made.once("y.npy", &run).is_ok();
        let library = ["export", &model, "--network", "net", "--out", "library", "--build"];
        let library = made.once("library/example", &library).is_ok();
        let read = |name: &str| fs::read(folder.join(name)).map_err(|e| format!("{name}: {e}"));
        let general = options.root.join("crates/squall/assets/general.predictor");
        Ok(Base {
            model: fs::read(&model_path).map_err(|e| e.to_string())?,
            model_path,
            store: read("tuned.squall")?,
            recorded: read("recorded.squall")?,
            lines: read("lines.jsonl")?,
            recording: RECORDING.as_bytes().to_vec(),
            predictor: predictor.then(|| read("base.predictor")).transpose()?,
            general: fs::read(&general).map_err(|e| format!("{}: {e}", general.display()))?,
            found: read("found.squall")?,
            chooser: read("base.chooser")?,
            bomb: super::sealed::bomb(),
            machine: read("machine.json")?,
            assignment: read("assignment.txt")?,
            network: network.then(|| folder.join("network")),
            library: library.then(|| folder.join("library")),
            objects: folder.join("tuned/squall/objects"),
            cache: folder.join("cache"),
            lying_compiler: lying_compiler(&folder)?,
        })
    }

    /// Puts the compiled files of a session into a sandbox: a case that is about what comes behind
    /// the compiler's work need not wait for it.
    pub fn warm(&self, sandbox: &Sandbox) {
        let to = sandbox.objects();
        // Without them the case compiles, as in a cold folder.
        let _ = fs::create_dir_all(&to);
        for entry in fs::read_dir(&self.objects).into_iter().flatten().flatten() {
            let _ = fs::copy(entry.path(), to.join(entry.file_name()));
        }
    }
}

/// A find database of some problems.
fn find_lines() -> String {
    let mut draw = Draw::of_seed(1);
    let mut text = String::new();
    for _ in 0..60 {
        let mut size = |of: &[u32]| of[draw.below(of.len())];
        let (c, h, k) = (size(&[16, 64, 256]), size(&[7, 14, 28, 56]), size(&[16, 64, 128]));
        let n = size(&[1, 8, 32]);
        text += &format!("{c}-{h}-{h}-1x1-{k}-{h}-{h}-{n}-0x0-1x1-1x1-0-NCHW-FP16-F=");
        let solvers =
            [("ConvAsm1x1U", "Direct"), ("GemmFwd1x1_0_1", "GEMM"), ("ConvBin3x3U", "Winograd")];
        let entry = |(solver, algorithm): (&str, &str)| {
            let time = 0.01 + draw.below(2000) as f64 * 1e-3;
            format!("{solver}:{time:.4},{},miopenConvolutionFwdAlgo{algorithm}", c * h)
        };
        text += &solvers.map(entry).join(";");
        text.push('\n');
    }
    text
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
        self.run(name, arguments, Stdio::null())
    }

    /// Makes a file of what a command prints, unless it is there.
    fn said(&self, name: &str, arguments: &[&str]) -> Result<(), String> {
        let (path, part) = (self.folder.join(name), self.folder.join("part"));
        if path.exists() {
            return Ok(());
        }
        let out = fs::File::create(&part).map_err(|e| e.to_string())?;
        self.run("part", arguments, out.into())?;
        fs::rename(part, path).map_err(|e| e.to_string())
    }

    fn run(&self, name: &str, arguments: &[&str], out: Stdio) -> Result<(), String> {
        let cache = if arguments[0] == "tune" { "tuned" } else { "cache" };
        let mut child = Command::new(self.binary)
            .args(arguments)
            .current_dir(self.folder)
            .env("XDG_CACHE_HOME", self.folder.join(cache))
            .env_remove("SQUALL_STORE")
            .stdin(Stdio::null())
            .stdout(out)
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
