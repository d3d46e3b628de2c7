//! Hostile inputs of built networks: damaged plans, constants and weights beside a network's
//! program, weights of an exported library, arrays, test data, assignments. Each function puts the
//! files into the sandbox and returns the commands that read them. `input.rs` lists them.

use super::base::Base;
use super::sandbox::Sandbox;
use super::sealed;
use super::task::Task;
use squall_fuzz::{Draw, generate, mutate};

/// The program of a network in a folder of its own, over a plan and weights that were changed.
fn network(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox, file: &str) -> Task {
    let Some(folder) = &base.network else { return Task::of(&[]) };
    for name in ["plan.txt", "constants.bin", "input.bin", "input_0.bin"] {
        if let Ok(bytes) = std::fs::read(folder.join(name)) {
            let bytes = if name == file { mutate(draw, &bytes) } else { bytes };
            sandbox.put(name, &bytes);
        }
    }
    let mut task = Task::of(&["0"]);
    task.program = Some((folder.join("network"), Vec::new()));
    task
}

/// A plan in the plan format.
pub fn plan(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    network(base, draw, sandbox, "plan.txt")
}

/// The constants beside it.
pub fn constants(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    network(base, draw, sandbox, "constants.bin")
}

/// The file of weights of an exported library, `NAME.weights`: damaged, and damaged under a seal
/// that fits.
pub fn weights(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let Some(folder) = &base.library else { return Task::of(&[]) };
    let whole = std::fs::read(folder.join("net.weights")).unwrap_or_default();
    let bytes = match draw.below(3) {
        0 => mutate(draw, &whole),
        1 => whole[..draw.below(whole.len())].to_vec(),
        _ => sealed::weights(draw, &whole),
    };
    sandbox.put("net.weights", &bytes);
    let is_cut = bytes.len() < whole.len();
    let words = draw.one(&["--runs 1", "--copy"]);
    let mut task = Task::of(&[words]).fails_if(is_cut);
    task.program = Some((folder.join("example"), Vec::new()));
    task.says_error = false;
    task
}

/// An array in NumPy's form as a network's input.
pub fn npy(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::npy(draw);
    if draw.once_in(3) {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("x.npy", &bytes);
    on_model(base, "run MODEL --input x.npy --output y.npy").fails_if(true)
}

/// ONNX's test data: what a network is given, or what it shall compute. None of them fits.
pub fn test_data(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::test_data(draw);
    if draw.once_in(3) {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("input_0.pb", &bytes);
    sandbox.put("output_0.pb", &bytes);
    sandbox.traps();
    let words = match draw.below(3) {
        0 => "run MODEL --input input_0.pb --output y.npy",
        1 => "check MODEL --test-data .",
        _ => "check MODEL --input input_0.pb --expect output_0.pb",
    };
    on_model(base, words).fails_if(true)
}

/// A cover of a model, as a user may write it.
pub fn assignment(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    sandbox.put("a.txt", &mutate(draw, &base.assignment));
    on_model(
        base,
        draw.one(&[
            "explain MODEL --stage plan --assignment a.txt",
            "explain MODEL --stage assignment --assignment a.txt",
            "tasks MODEL --assignment a.txt",
        ]),
    )
}

/// A command over the example's model.
fn on_model(base: &Base, words: &str) -> Task {
    let mut task = Task::of(&[words]);
    for word in task.commands.iter_mut().flatten().filter(|w| *w == "MODEL") {
        *word = base.model_path.to_string_lossy().into_owned();
    }
    task
}
