//! Tests of tuning on a board (a machine that only runs kernels, reached by ssh): the test starts
//! its own `sshd` on this machine, cuts connections and lets kernels hang; also `--runner qemu`.
//! Where sshd or QEMU is not installed the tests print so and are skipped.

use crate::support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Place, SMALL, reported};

/// A running `sshd` with keys of its own, and what the client needs to reach it.
struct Sshd {
    daemon: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn key(path: &Path) {
    let mut made = Command::new("ssh-keygen");
    made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path);
    assert!(made.status().unwrap().success());
}

/// Starts one on a free port of the loopback; none where it is not installed.
fn sshd() -> Option<Sshd> {
    let program = ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|p| Path::new(p).exists());
    let has_client = Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_ok();
    let (Some(program), true) = (program, has_client) else {
        println!("skipped: no sshd and ssh (apt-get install openssh-server openssh-client)");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    key(&at("host"));
    key(&at("user"));
    std::fs::copy(at("user.pub"), at("allowed")).unwrap();
    // Its separated part lives there, and only root can make it.
    let _ = std::fs::create_dir_all("/run/sshd");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let here = folder.path().display();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host\nAuthorizedKeysFile \
         {here}/allowed\nPidFile none\nStrictModes no\nPasswordAuthentication no\nUsePAM no\n"
    );
    std::fs::write(at("sshd_config"), config).unwrap();
    let client = format!(
        "Host *\n  IdentityFile {here}/user\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
         UserKnownHostsFile {here}/known\n  LogLevel ERROR\n"
    );
    std::fs::write(at("ssh_config"), client).unwrap();
    let daemon = Command::new(program)
        .arg("-D")
        .arg("-f")
        .arg(at("sshd_config"))
        .arg("-E")
        .arg(at("log"))
        .spawn()
        .unwrap();
    let mut sshd = Sshd { daemon, folder, port };
    let end = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", sshd.port)).is_err() {
        if let Some(status) = sshd.daemon.try_wait().unwrap() {
            let log = std::fs::read_to_string(sshd.folder.path().join("log")).unwrap_or_default();
            println!("skipped: sshd does not start here ({status}): {log}");
            return None;
        }
        assert!(Instant::now() < end, "sshd does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(sshd)
}

impl Sshd {
    fn runner(&self) -> String {
        format!("ssh://127.0.0.1:{}", self.port)
    }

    /// Squall, to which this board is known; the board keeps its temporary folders in `tmp`.
    fn command(&self, p: &Place, args: &[&str]) -> Command {
        let mut c = p.command(args);
        let config = self.folder.path().join("ssh_config");
        c.env("SQUALL_SSH", format!("ssh -F {}", config.display()));
        c
    }

    /// Ends every session, as a network that goes away does: the client hears nothing of it.
    fn cut(&self) {
        let of = |pid: u32| {
            let list = format!("/proc/{pid}/task/{pid}/children");
            let text = std::fs::read_to_string(list).unwrap_or_default();
            text.split_whitespace().filter_map(|t| t.parse().ok()).collect::<Vec<u32>>()
        };
        for session in of(self.daemon.id()) {
            Command::new("kill").arg("-9").arg(session.to_string()).status().unwrap();
        }
    }
}

/// Folders that keepers have on this machine, by the processes that stand in them.
fn keepers() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let cwds = processes.filter_map(|p| std::fs::read_link(p.path().join("cwd")).ok());
    cwds.filter(|c| c.to_string_lossy().contains("/squall-board-")).collect()
}

fn no_keeper_is_left() {
    let end = Instant::now() + Duration::from_secs(20);
    while !keepers().is_empty() {
        assert!(Instant::now() < end, "{:?}", keepers());
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn shown(p: &Place, store: &str) -> Vec<Value> {
    let shown = p.squall(&["records", "show", "--store", store, "--json"]).ok().json();
    shown["records"].as_array().unwrap().clone()
}

/// One test, since each looks whether keepers are left on this machine.
#[test]
fn a_board_over_ssh() {
    if squall_testing::is_left_to_full("boards::a_board_over_ssh") {
        return;
    }
    let Some(sshd) = sshd() else { return };
    is_tuned_and_described(&sshd);
    loses_nothing_when_cut(&sshd);
    kills_kernels_that_hang(&sshd);
    is_named_when_it_cannot_be_reached();
}

fn is_tuned_and_described(sshd: &Sshd) {
    let p = Place::new();
    let words = ["tune", SMALL, "--trials", "12", "--runner", &sshd.runner(), "--json"];
    let report = support::Ran::from(sshd.command(&p, &words).output().unwrap()).ok().json();
    let task = &report["tasks"][0];
    assert_eq!((&task["trials"], &task["failed"]), (&12.into(), &0.into()), "{task}");
    assert!(task["best_ns"].as_f64().unwrap() > 0.0 && report["roof"].is_object(), "{report}");
    // The board is this machine, and says so itself; what its kernels may use has a name.
    let here = p.squall(&["tune", SMALL, "--trials", "1", "--json", "--store", "here"]).ok().json();
    assert_eq!(report["device"], here["device"]);
    let toolchain = report["toolchain"].as_str().unwrap();
    assert!(toolchain.contains("-march=") && !toolchain.contains("native"), "{toolchain}");
    let words = ["records", "verify", "--runner", &sshd.runner(), "--json"];
    let verified = support::Ran::from(sshd.command(&p, &words).output().unwrap()).json();
    let round = &verified["tasks"][0]["rounds"][0];
    assert!(round["pairs"].as_u64().unwrap() > 0, "{verified}");
    let words = ["tune", SMALL, "--trials", "1", "--runner", &sshd.runner(), "--isa", "armv8-a"];
    let other = support::Ran::from(sshd.command(&p, &words).output().unwrap());
    if cfg!(target_arch = "x86_64") {
        assert!(other.fails().err.contains("its levels are x86-64-v2"));
    }
    no_keeper_is_left();
}

fn loses_nothing_when_cut(sshd: &Sshd) {
    let p = Place::new();
    for after in [1, 9, 20] {
        let words = ["tune", SMALL, "--trials", "400", "--runner", &sshd.runner(), "--json"];
        let mut tune = sshd.command(&p, &words);
        let mut tune = tune.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(tune.stdout.take().unwrap()).lines();
        let mut told = Vec::new();
        for line in lines.map_while(Result::ok) {
            told.extend(reported(&line));
            if told.len() == after {
                sshd.cut();
            }
        }
        let ran = support::Ran::from(tune.wait_with_output().unwrap()).fails();
        assert!(ran.err.contains("is lost") && ran.err.contains("goes on"), "{}", ran.err);
        assert!(told.len() >= after);
        let kept = p.identities();
        assert!(told.iter().all(|t| kept.contains(t)), "{} of {}", kept.len(), told.len());
        let records = shown(&p, "tuned.squall");
        let failed = records.iter().filter(|r| r["outcome"].get("failed").is_some()).count();
        assert_eq!(failed, 0, "a cut connection is no fault of a kernel");
        no_keeper_is_left();
    }
    let known = p.identities().len();
    let words = ["tune", SMALL, "--trials", "2", "--runner", &sshd.runner(), "--json"];
    let report = support::Ran::from(sshd.command(&p, &words).output().unwrap()).ok().json();
    assert_eq!(report["tasks"][0]["known"], known, "it goes on where it was cut");
}

fn kills_kernels_that_hang(sshd: &Sshd) {
    let p = Place::new();
    p.file(
        "k.c",
        "void twice(const float *x, float *y) {\n  for (int i = 0; i < 64; i++) y[i] = \
         2 * x[i];\n#if HANG\n  for (volatile int i = 0;;) i++;\n#endif\n}\n",
    );
    p.file(
        "k.toml",
        "source = \"k.c\"\nentry = \"twice\"\n\
         [[argument]]\nname = \"x\"\ntype = \"f32\"\nshape = [64]\n\
         [[argument]]\nname = \"y\"\ntype = \"f32\"\nrole = \"output\"\nshape = [64]\n\
         [[knob]]\nname = \"HANG\"\nvalues = [0, 1]\n",
    );
    let words = ["tune", "k.toml", "--trials", "2", "--runner", &sshd.runner(), "--json"];
    let report = support::Ran::from(sshd.command(&p, &words).output().unwrap()).ok().json();
    let task = &report["tasks"][0];
    assert_eq!((&task["trials"], &task["failed"]), (&2.into(), &1.into()), "{task}");
    assert_eq!(task["failures"][0]["stage"], "timeout", "{task}");
    no_keeper_is_left();
}

fn is_named_when_it_cannot_be_reached() {
    let p = Place::new();
    let words = ["tune", SMALL, "--trials", "1", "--runner", "ssh://127.0.0.1:1"];
    let ran = p.squall(&words).fails();
    assert!(ran.err.contains("ssh://127.0.0.1:1 cannot be used"), "{}", ran.err);
    assert!(ran.err.contains("`ssh -p 1 127.0.0.1 true`"), "{}", ran.err);
    let ran = p.squall(&["tune", SMALL, "--trials", "1", "--runner", "ssh://-x"]);
    assert!(ran.code == Some(2) && ran.err.contains("ssh://[user@]HOST"), "{}", ran.err);
}

#[test]
fn under_an_emulator_kernels_are_right_or_wrong_and_never_timed() {
    let p = Place::new();
    let words = ["tune", SMALL, "--trials", "6", "--isa", "armv8-a", "--json"];
    let asked = p.squall(&[&words[..], &["--runner", "qemu"]].concat());
    if cfg!(target_arch = "aarch64") || asked.err.contains("apt-get install") {
        return println!("skipped: {}", asked.err);
    }
    let report = asked.ok().json();
    let task = &report["tasks"][0];
    assert_eq!((&task["right"], &task["failed"]), (&6.into(), &0.into()), "{task}");
    assert!(task["best_ns"].is_null() && report["roof"].is_null(), "{report}");
    let records = shown(&p, "tuned.squall");
    assert_eq!(records.len(), 6);
    for r in &records {
        assert!(r["time_ns"].is_null() && r["outcome"]["right"]["error"].is_number(), "{r}");
        assert!(r["device"].as_str().unwrap().contains("under emulation"), "{r}");
    }
    // None of them holds its task, so nothing that is chosen by time can rest on them.
    let best = p.squall(&["records", "best", "--json"]);
    assert!(!best.out.contains("tile"), "{}", best.out);
    let refused = p.squall(&words).fails();
    assert!(refused.err.contains("--runner qemu"), "{}", refused.err);
    let verify = ["records", "verify", "--isa", "armv8-a", "--runner", "qemu"];
    assert!(p.squall(&verify).err.contains("under qemu there are none"));
    // What a stranger says of an emulated device is no time.
    let timed = serde_json::to_string(&records[0]).unwrap();
    assert!(!timed.contains("samples"), "{timed}");
}

#[test]
fn a_wrong_kernel_is_found_under_an_emulator() {
    let p = Place::new();
    p.file(
        "k.c",
        "void twice(const float *x, float *y) {\n  for (int i = 0; i < 64 - LESS; i++) \
         y[i] = 2 * x[i];\n}\n",
    );
    p.file(
        "k.toml",
        "source = \"k.c\"\nentry = \"twice\"\n\
         [[argument]]\nname = \"x\"\ntype = \"f32\"\nshape = [64]\n\
         [[argument]]\nname = \"y\"\ntype = \"f32\"\nrole = \"output\"\nshape = [64]\n\
         [[knob]]\nname = \"LESS\"\nvalues = [0, 1]\n",
    );
    let words = ["tune", "k.toml", "--trials", "2", "--isa", "armv8-a", "--runner", "qemu"];
    let ran = p.squall(&words);
    if cfg!(target_arch = "aarch64") || ran.err.contains("apt-get install") {
        return println!("skipped: {}", ran.err);
    }
    let ran = ran.fails();
    assert!(ran.err.contains("wrong under the emulator"), "{}", ran.err);
    assert!(ran.out.contains("1 of 2 kernels were right"), "{}", ran.out);
}
