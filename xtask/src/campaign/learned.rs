//! Hostile inputs of learned files and of the files that they are learned from: predictors,
//! choosers of solvers, find databases, machine models. Each function puts damaged files into the
//! sandbox and returns the commands that read them. `input.rs` lists them.

use super::base::{Base, SMALL};
use super::sandbox::Sandbox;
use super::sealed;
use super::task::Task;
use squall_fuzz::{Draw, generate, mutate};

/// A problem that the chooser's examples do not hold.
const KEY: &str = "96-14-14-1x1-96-14-14-8-0x0-1x1-1x1-0-NCHW-FP16-F";

/// A predictor of tuned values: damage to the packed file, and under what packs it.
pub fn predictor(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let bytes = match (&base.predictor, draw.below(6)) {
        (Some(whole), 0) => mutate(draw, whole),
        (Some(whole), 1 | 2) => sealed::predictor(draw, whole),
        _ => generate::predictor(draw),
    };
    sandbox.put("p.predictor", &bytes);
    let mut task = Task::of(&["predict p.predictor"]);
    task.commands[0].push(SMALL.into());
    task
}

/// A general predictor: damaged bytes, which its digest gives away, and damage under a right one.
pub fn general(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let is_seen = draw.once_in(3);
    let bytes = match is_seen {
        true => mutate(draw, &base.general),
        false => sealed::general(draw, &base.general),
    };
    sandbox.put("g.predictor", &bytes);
    sandbox.put("s.squall", &base.store);
    let task = Task::of(&["evaluate g.predictor --store s.squall --json"]);
    task.fails_if(is_seen && bytes != base.general)
}

/// A chooser of solvers: damaged bytes, and a damaged body that is packed again.
pub fn chooser(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let bytes = match draw.below(4) {
        0 => mutate(draw, &base.chooser),
        _ => sealed::chooser(draw, &base.chooser),
    };
    sandbox.put("c.chooser", &bytes);
    let mut task = Task::of(&["choose c.chooser --device gfx942_304 --json"]);
    task.commands[0].push(KEY.into());
    if draw.once_in(3) {
        sandbox.put("f.squall", &base.found);
        let words = "evaluate c.chooser --store f.squall --json".split(' ');
        task.commands.push(words.map(String::from).collect());
    }
    task
}

/// A find database, plain or packed, and at times more of it than fits any machine.
pub fn find_database(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::find_database(draw);
    if draw.once_in(3) {
        bytes = mutate(draw, &bytes);
    }
    let is_bomb = draw.once_in(100);
    if is_bomb {
        bytes = base.bomb.clone();
    } else if draw.once_in(4) {
        bytes = sealed::packed(draw, &bytes);
    }
    let name = draw.one(&["gfx942130.HIP.fdb.txt", "gfx942130.HIP.ufdb.txt", "d.txt"]);
    sandbox.put(name, &bytes);
    let import = format!("import {name} --device gfx942_304 --store s.squall");
    let mut all = vec![import];
    match draw.below(4) {
        0 => all[0] += " --json",
        1 => all.push("records list --store s.squall".into()),
        2 => {
            all.push("train --find --store s.squall --epochs 2 --trainers 1 --out c.chooser".into())
        }
        _ => {}
    }
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    Task::of(&all).fails_if(is_bomb)
}

/// A user find database that answers are added to, and hostile problems.
pub fn user_database(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let mut bytes = generate::find_database(draw);
    if draw.once_in(3) {
        bytes = mutate(draw, &bytes);
    }
    sandbox.put("c.chooser", &base.chooser);
    sandbox.put("u.ufdb.txt", &bytes);
    sandbox.put("p.txt", &generate::problems(draw));
    sandbox.traps();
    // A link that leads nowhere would be made a file outside; the others are no files of text.
    let target = draw.one(&["u.ufdb.txt", "u.ufdb.txt", "new.ufdb.txt", "pipe"]);
    let words = format!(
        "choose c.chooser --problems p.txt --device gfx942_304 --json --write-user-db {target}"
    );
    Task::of(&[&words]).fails_if(target == "pipe")
}

/// The description of a machine, as `squall doctor --json` prints it.
pub fn machine(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    sandbox.put("m.json", &mutate(draw, &base.machine));
    sandbox.put("s.squall", &base.store);
    Task::of(&[
        "train --records --general --store s.squall --machine Another=m.json --out g.predictor",
    ])
}
