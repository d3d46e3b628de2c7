//! The hostile inputs of a campaign: for each format a function that draws files into a sandbox
//! (from `crates/fuzz`'s generators, or by damaging valid files) and returns the commands to run
//! over them, with the rule whether they must fail. The list of formats is here.

use super::base::Base;
use super::sandbox::{Sandbox, judge};
use super::task::Task;
use super::verdict::Verdict;
use super::{learned, network, store};
use squall_fuzz::{Draw, generate, mutate};

/// A format, and how its files are tried.
pub struct Input {
    /// Its name.
    pub name: &'static str,
    /// The weight with which it is drawn.
    pub weight: usize,
    /// Puts the files into the sandbox; what to do with them.
    pub make: fn(&Base, &mut Draw<'_>, &Sandbox) -> Task,
}

/// All formats. Weights go by cost: what starts a compiler comes less often.
pub const ALL: &[Input] = &[
    Input { name: "onnx_bytes", weight: 12, make: onnx_bytes },
    Input { name: "onnx_structure", weight: 16, make: onnx_structure },
    Input { name: "onnx_external", weight: 2, make: external },
    Input { name: "operators", weight: 10, make: operators },
    Input { name: "workload", weight: 6, make: workload },
    Input { name: "kernel_toml", weight: 10, make: kernel_toml },
    Input { name: "npy", weight: 4, make: network::npy },
    Input { name: "onnx_test_data", weight: 5, make: network::test_data },
    Input { name: "assignment", weight: 4, make: network::assignment },
    Input { name: "kernel_tuner", weight: 8, make: kernel_tuner },
    Input { name: "t1_t4", weight: 8, make: t1_t4 },
    Input { name: "miopen_text", weight: 6, make: miopen_text },
    Input { name: "miopen_sqlite", weight: 5, make: store::miopen_sqlite },
    Input { name: "find_database", weight: 8, make: learned::find_database },
    Input { name: "user_find_database", weight: 4, make: learned::user_database },
    Input { name: "store_bytes", weight: 8, make: store::bytes },
    Input { name: "store_sql", weight: 6, make: store::sql },
    Input { name: "exported_lines", weight: 8, make: exported_lines },
    Input { name: "predictor", weight: 6, make: learned::predictor },
    Input { name: "general_predictor", weight: 4, make: learned::general },
    Input { name: "chooser", weight: 6, make: learned::chooser },
    Input { name: "machine_model", weight: 2, make: learned::machine },
    Input { name: "network_plan", weight: 6, make: network::plan },
    Input { name: "network_constants", weight: 2, make: network::constants },
    Input { name: "library_weights", weight: 6, make: network::weights },
    Input { name: "worker_messages", weight: 1, make: messages },
];

/// Runs a case.
pub fn run(input: &Input, base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let task = (input.make)(base, draw, sandbox);
    for (i, words) in task.commands.iter().enumerate() {
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = match &task.program {
            Some((program, environment)) => {
                let mut c = std::process::Command::new(program);
                c.args(&arguments);
                let mut c = sandbox.prepared(c);
                c.envs(environment.iter().map(|(k, v)| (k, v)));
                sandbox.note(&format!("{program:?} {arguments:?} {environment:?}\n"));
                sandbox.run(c, task.seconds)
            }
            None => sandbox.squall(&arguments, task.seconds),
        };
        let verdict = judge(&ran, task.must_fail && i == 0, task.says_error);
        if !verdict.is_right() {
            return verdict;
        }
        if task.checks_times && i + 1 == task.commands.len() {
            let no_time = ["\"time_ns\":-", "\"time_ns\":0,", "\"best_ns\":-"];
            if let Some(n) = no_time.iter().find(|n| ran.out.contains(**n)) {
                return Verdict::Garbage(format!("{n} is the best"));
            }
        }
    }
    Verdict::Right
}

fn onnx_bytes(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    sandbox.put("m.onnx", &mutate(draw, &base.model));
    model_command(draw)
}

fn onnx_structure(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::model(draw);
    if draw.once_in(5) {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("m.onnx", &bytes);
    model_command(draw)
}

fn model_command(draw: &mut Draw<'_>) -> Task {
    Task::of(match draw.below(4) {
        0 => &["explain m.onnx --stage assignment"],
        1 => &["explain m.onnx --stage plan"],
        2 => &["tasks m.onnx --json"],
        _ => &["tasks m.onnx"],
    })
}

fn external(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let bytes = generate::external(draw);
    let has = |word: &str| bytes.windows(word.len()).any(|w| w == word.as_bytes());
    let is_outside =
        ["outside/secret", "/etc/passwd", "link", "pipe", "/dev/zero"].iter().any(|w| has(w));
    sandbox.put("m.onnx", &bytes);
    sandbox.put("w.data", &[0; 4096]);
    sandbox.traps();
    Task::of(&["bench m.onnx --seconds 0.1"]).fails_if(is_outside)
}

fn operators(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::operators(draw);
    if draw.once_in(4) {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("l.ops", &bytes);
    Task::of(&["tasks l.ops"])
}

fn workload(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::workload(draw);
    if draw.once_in(4) {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("w.workload", &bytes);
    Task::of(&["tasks w.workload"])
}

fn kernel_toml(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::kernel_toml(draw);
    let refused =
        ["-fplugin", "-Wl,", "-Wp,", "-Wa,", "-fdump", "-fuse-ld", "\"-o\"", "@x", "-specs"];
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let is_bad = refused.iter().any(|f| text.contains(f));
    let is_damaged = draw.once_in(4);
    if is_damaged {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("k.toml", &bytes);
    sandbox.put(
        "kernel.c",
        b"void axpy(long n, const float *x, float *y) { }\n\
          void axpy_reference(long n, const float *x, float *y) { }\n",
    );
    sandbox.traps();
    Task::of(&["tasks k.toml"]).fails_if(is_bad && !is_damaged)
}

fn kernel_tuner(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let bytes = match draw.below(3) {
        0 => mutate(draw, &base.recording),
        _ => generate::kernel_tuner(draw),
    };
    sandbox.put("r.json", &bytes);
    let mut task =
        Task::of(&["import r.json --store s.squall", "import r.json --store s.squall --json"]);
    if draw.once_in(4) {
        task.commands.truncate(1);
        task.commands.push("replay r.json --seeds 1".split(' ').map(String::from).collect());
    }
    task
}

fn t1_t4(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    sandbox.put("t1.json", &generate::t1(draw));
    sandbox.put("t4.json", &generate::t4(draw));
    Task::of(match draw.below(3) {
        0 => &["import t4.json t1.json --store s.squall"],
        1 => &["import t1.json --store s.squall"],
        _ => &["import t4.json --store s.squall --json"],
    })
}

fn miopen_text(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::miopen(draw);
    if draw.once_in(3) {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("d.txt", &bytes);
    Task::of(&["import d.txt --device gfx906_60 --store s.squall"])
}

/// Lines whose task ids are those of their workloads are made of lines of a real store.
fn exported_lines(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let bytes = match draw.below(3) {
        0 => mutate(draw, &base.lines),
        1 => {
            let text = String::from_utf8_lossy(&base.lines).into_owned();
            let samples = format!("\"samples\":[{}]", draw.number());
            let parts: Vec<&str> = text.split("\"samples\":[").collect();
            let again = |p: &&str| p.split_once(']').map_or(String::new(), |r| r.1.into());
            let rest: Vec<String> = parts.iter().skip(1).map(again).collect();
            (parts[0].to_string() + &samples + &rest.join(&samples)).into_bytes()
        }
        _ => generate::exported_lines(draw),
    };
    sandbox.put("l.jsonl", &bytes);
    let mut task = Task::of(&[
        "records merge l.jsonl --store s.squall",
        "records list --store s.squall",
        "records best --json --store s.squall",
    ]);
    task.checks_times = true;
    task
}

fn messages(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    sandbox.put("reply", &generate::reply(draw));
    // In the foreground `timeout` signals the program alone: two signals would end it at once.
    let reply = sandbox.inside().join("reply");
    let mut task = Task::of(&["-c"]);
    let limits = Sandbox::limits();
    task.commands[0].push(format!(
        "{limits}; exec timeout --foreground --preserve-status -s INT 60 '{}' tune '{}' --trials 1 \
        --store s.squall",
        sandbox.binary().display(),
        super::base::SMALL
    ));
    task.seconds = 150;
    let environment = [
        ("CC", base.lying_compiler.to_string_lossy().into_owned()),
        ("FAKE_REPLY", reply.to_string_lossy().into_owned()),
    ];
    let environment = environment.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    task.program = Some(("/bin/sh".into(), environment));
    task
}
