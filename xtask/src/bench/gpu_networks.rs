//! `cargo xtask bench gpu-networks`: makes a folder with everything that a machine with a GPU needs
//! to time whole networks, Squall's beside PyTorch's, and to compare their outputs, in one call:
//! the release build, the script `gpu_networks.py`, and the script of the other libraries. With
//! `--here` it runs on this machine and keeps the result in `benches/runs/`.

use super::{circumstances, keep, read, run, text};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USAGE: &str =
    "usage: cargo xtask bench gpu-networks [NETWORK,..] [--out FOLDER] [--here] [-- ARGUMENT..]

  NETWORK,..    torchvision's names, or bert [default: resnet18,mobilenet_v2,squeezenet1_1,\
  resnet50,densenet121,vit_b_16,bert]
  --out FOLDER  what is made [default: carry/gpu-networks]
  --here        run it on this machine's GPU, and keep the result in benches/runs/
  ARGUMENT..    of the script: --tune SECONDS, --compile none, --batch N, --precision f32,bf16 ..";

const NETWORKS: &str = "resnet18,mobilenet_v2,squeezenet1_1,resnet50,densenet121,vit_b_16,bert";
/// The script that runs on the machine with the GPU.
const SCRIPT: &str = include_str!("gpu_networks.py");

struct Settings {
    networks: String,
    out: PathBuf,
    here: bool,
    more: Vec<String>,
}

/// Reads the arguments, makes the folder and says how it is run, or runs it.
pub fn gpu_networks(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let s = settings(root, arguments)?;
    let peers = root.join("../shared/peers/gpu_networks.py");
    if !peers.exists() {
        return Err(format!(
            "{} is not there: without it there is nothing to compare with",
            peers.display()
        ));
    }
    run(Command::new("cargo").current_dir(root).args([
        "build",
        "--release",
        "--locked",
        "-p",
        "squall-cli",
    ]))?;
    let fail = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(&s.out).map_err(|e| fail(&s.out, e))?;
    for (from, name) in [(root.join("target/release/squall"), "squall"), (peers, "peers.py")] {
        fs::copy(&from, s.out.join(name)).map_err(|e| fail(&from, e))?;
    }
    let script = s.out.join("run.py");
    fs::write(&script, SCRIPT).map_err(|e| fail(&script, e))?;
    let result = s.out.join("result.json");
    let place = |name: &str| s.out.join(name).display().to_string();
    let mut command = Command::new("python3");
    command.arg(&script).arg(&s.networks).args(["--squall", &place("squall")]);
    command.args(["--peers", &place("peers.py"), "--out"]).arg(&result).args(&s.more);
    if !s.here {
        println!("on the machine with the GPU:\n  {}", words(&command));
        return Ok(());
    }
    run(&mut command)?;
    let result = json!({
        "what": "whole networks on a GPU beside PyTorch, one run",
        "circumstances": circumstances(root),
        "command": words(&command),
        "result": read(&result)?,
    });
    let date = text(Command::new("date").arg("+%Y-%m-%d-%H%M"));
    keep(root, &format!("{date}-gpu-networks.json"), &result)
}

/// A command as a shell takes it.
fn words(command: &Command) -> String {
    let all = std::iter::once(command.get_program()).chain(command.get_args());
    all.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn settings(root: &Path, arguments: &[&str]) -> Result<Settings, String> {
    let mut s = Settings {
        networks: NETWORKS.into(),
        out: root.join("carry/gpu-networks"),
        here: false,
        more: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(a) = rest.next() {
        match *a {
            "--" => s.more = rest.by_ref().map(|w| (*w).to_string()).collect(),
            "--here" => s.here = true,
            "--out" => {
                let out = rest.next().ok_or(USAGE)?;
                s.out = std::path::absolute(out).map_err(|e| format!("{out}: {e}"))?;
            }
            names if !names.starts_with('-') => s.networks = names.into(),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_told_apart() {
        let root = Path::new("/r");
        let s = settings(root, &["resnet18", "--here", "--", "--tune", "150"]).unwrap();
        assert_eq!((s.networks.as_str(), s.here), ("resnet18", true));
        assert_eq!(s.more, ["--tune", "150"]);
        assert_eq!(s.out, Path::new("/r/carry/gpu-networks"));
        assert!(settings(root, &["--hear"]).is_err());
    }
}
