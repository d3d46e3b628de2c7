//! Tests of host plans: they print and parse back, and both readers (Rust's and C's) survive any
//! bytes and agree: a text that is no plan is refused with a reason, without a crash or a read past
//! the end.

use proptest::prelude::*;
use squall_core::{Language, LaunchPhase, Mapped, TensorMap};
use squall_runtime::HostPlan;
use squall_runtime::plan::{
    Argument, At, Buffer, Element, Kernel, Launch, MoveAxis, Parameter, Region, Role, Step, Work,
};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn element(letter: char) -> Element {
    Element::new(letter).unwrap()
}

fn at(buffer: u32, element: u64) -> At {
    At { buffer, element }
}

/// A network in which every kind of entry occurs, with sizes that grow with `n`.
fn network(n: u64, name: &str) -> HostPlan {
    let f = Element::F32;
    let size = |role, count, place| Buffer { place, ..Buffer::own(role, f, count) };
    let own = |role, letter, count| Buffer::own(role, element(letter), count);
    let input = Buffer { range: Some((-0.5, 1e3)), ..size(Role::Data, 16 * n, Some((0, 0))) };
    let given = Buffer { file: Some("input-0-1".into()), ..own(Role::Weight, 'B', 3 * n) };
    let region = |role, bytes, file: Option<(&str, u64)>| Region {
        role,
        bytes,
        file: file.map(|(name, at)| (name.into(), at)),
    };
    let parameter = |role, letter, count| Parameter { role, element: element(letter), count };
    let map = TensorMap {
        memory: Mapped::Data(0),
        extents: vec![8, n],
        strides: vec![16],
        spanned: vec![8, 4],
        steps: vec![1, 1],
    };
    let launch = |phase, arguments| Launch {
        phase,
        entry: "_Zf".into(),
        blocks: [n as u32, 1, 2],
        threads: [32, 4, 1],
        shared: 1024,
        arguments,
        maps: Vec::new(),
    };
    let call = Launch {
        maps: vec![map],
        ..launch(
            LaunchPhase::Call,
            vec![
                Argument::Data(0),
                Argument::Restored { output: 0, data: 0 },
                Argument::Number(vec![1, 0xff, 0, 9]),
                Argument::Workspace,
                Argument::Status,
                Argument::Map(0),
            ],
        )
    };
    let prepare = launch(LaunchPhase::Prepare, vec![Argument::Weight(0), Argument::Prepared]);
    let kernel = |language, library: Option<&str>, launches| Kernel {
        language,
        symbol: format!("k{n}"),
        library: library.map(Into::into),
        prepared: 64,
        workspace: 100,
        numbers: if n == 2 { vec![0, 7, 1 << 40] } else { Vec::new() },
        parameters: vec![
            parameter(Role::Data, 'f', 16 * n),
            parameter(Role::Weight, 'B', 3 * n),
            parameter(Role::Output, 'f', 16 * n),
        ],
        launches,
    };
    let step = |work| Step { name: name.into(), when: Vec::new(), work };
    let axes = vec![
        MoveAxis { extent: 4, to: 4 * n, from: 1 },
        MoveAxis { extent: 4 * n, to: 1, from: -4 },
    ];
    HostPlan {
        regions: vec![
            region(Role::Scratch, 1024 * n, None),
            region(Role::Constant, 64 * n, Some(("constants.bin", 128))),
            region(Role::Prepared, 64, None),
        ],
        buffers: vec![
            input,
            given,
            size(Role::Scratch, 16 * n, Some((0, 64 * n))),
            size(Role::Constant, 16 * n, Some((1, 0))),
            Buffer { place: Some((2, 0)), ..own(Role::Prepared, 'u', 64) },
            Buffer { place: Some((0, 512 * n)), ..own(Role::Workspace, 'u', 100) },
            own(Role::Output, 'f', 16 * n),
            own(Role::Scratch, 'l', 2),
            own(Role::Output, 'l', 2),
            own(Role::Output, 'o', n),
            Buffer { of: Some(0), ..size(Role::Scratch, 4 * n, Some((0, 16 * n))) },
        ],
        kernels: vec![
            kernel(Language::C, None, Vec::new()),
            kernel(Language::Cuda, Some("./k.cubin"), vec![prepare, call]),
        ],
        steps: vec![
            step(Work::Call {
                kernel: 0,
                buffers: vec![3, 1, 2],
                prepared: Some(4),
                workspace: Some(5),
            }),
            step(Work::Copy { from: at(0, 16 * n - 4), to: at(2, 0), axes }),
            step(Work::Runs { from: at(2, 1), to: at(6, 2), runs: vec![[0, 1, 2], [5, 3, 1]] }),
            step(Work::Fill { to: at(6, 0), count: 3, value: vec![0, 0, 0x80, 0x3f] }),
            step(Work::Fill { to: at(7, 0), count: 2, value: vec![0xff; 8] }),
            step(Work::Copy {
                from: at(7, 0),
                to: at(8, 0),
                axes: vec![MoveAxis { extent: 2, to: 1, from: 1 }],
            }),
            step(Work::Fill { to: at(9, 0), count: n, value: vec![1] }),
            Step {
                when: vec![(9, true), (9, false)],
                ..step(Work::Fill { to: at(7, 0), count: 1, value: vec![1; 8] })
            },
        ],
    }
}

/// The reader of the C library, compiled with sanitizers where the compiler has them.
fn reader(folder: &Path) -> std::path::PathBuf {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("host");
    let program = folder.join("fuzz");
    let flags: [&[&str]; 2] = [&["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], &[]];
    for sanitize in flags {
        let built = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(sanitize)
            .arg("-o")
            .arg(&program)
            .arg(host.join("fuzz.c"))
            .args(["-ldl", "-lm"])
            .output()
            .unwrap();
        if built.status.success() {
            return program;
        }
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(!sanitize.is_empty() && said.contains("san"), "{said}");
        println!("skipped: the compiler has no sanitizers");
    }
    unreachable!("the last compilation is asserted")
}

/// What the C reader says of each text.
fn verdicts(program: &Path, texts: &[Vec<u8>]) -> Vec<String> {
    let mut child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let frames: Vec<u8> = texts
        .iter()
        .flat_map(|t| (t.len() as u32).to_le_bytes().into_iter().chain(t.iter().copied()))
        .collect();
    let writer = std::thread::spawn(move || input.write_all(&frames));
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "the reader died: {:?}", out.status);
    writer.join().unwrap().unwrap();
    String::from_utf8_lossy(&out.stdout).lines().map(Into::into).collect()
}

/// Both readers' answers to all texts.
fn agree(program: &Path, texts: &[Vec<u8>]) -> usize {
    let said = verdicts(program, texts);
    assert_eq!(said.len(), texts.len());
    let mut plans = 0;
    for (text, said) in texts.iter().zip(&said) {
        assert!(!said.is_empty());
        let Ok(text) = std::str::from_utf8(text) else { continue };
        match HostPlan::parse(text) {
            Ok(plan) => {
                assert_eq!(said, "plan", "C refuses\n{text}");
                assert_eq!(HostPlan::parse(&plan.to_string()).unwrap(), plan);
                plans += 1;
            }
            Err(e) => assert_ne!(said, "plan", "C takes what Rust refuses ({e})\n{text}"),
        }
    }
    plans
}

#[test]
fn plans_print_and_parse_back_in_both_readers() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["", "node `a` (Conv)", " two\nlines\\n and a \\", "0 1 2 -"];
    let plans: Vec<HostPlan> =
        names.iter().zip([1, 2, 7, 1000]).map(|(name, n)| network(n, name)).collect();
    for plan in &plans {
        plan.verify().unwrap();
        assert_eq!(&HostPlan::parse(&plan.to_string()).unwrap(), plan);
    }
    let texts: Vec<Vec<u8>> = plans.iter().map(|p| p.to_string().into_bytes()).collect();
    assert_eq!(agree(&reader(folder.path()), &texts), texts.len());
}

/// Changes that tell of one fault each, and words of the refusals.
#[test]
fn what_does_not_fit_is_refused_by_both_readers() {
    let folder = tempfile::tempdir().unwrap();
    let text = network(2, "a step").to_string();
    let changes = [
        ("squall plan 2", "squall plan 1", "another version"),
        ("region scratch 2048", "region scratch 2048 more", "a word is missing"),
        ("region scratch 2048", "region output 2048", "cannot be of output"),
        ("region scratch 2048", "region scratch 100", "does not fit its region"),
        ("constants.bin 128", "constants.bin 99999999999999999999", "too large"),
        ("in 0 128", "in 0 130", "does not fit its region"),
        ("in 0 128", "in 9 128", "a region that is not there"),
        ("range -0.5 1000.0", "range 1.0 -1.0", "is empty"),
        ("buffer output f 32 own", "buffer output f 32 own file x", "is no input"),
        ("kernel c k2 -", "kernel c 2k -", "no name in C"),
        ("kernel c k2 -", "kernel rust k2 -", "no such language"),
        ("kernel c k2 - 64", "kernel c k2 - 65", "does not fit its buffers"),
        ("numbers 0 7", "numbers 0 7\nnumbers 1", "one line of numbers"),
        ("numbers 0 7 1099511627776\n", "numbers\n", "a word is missing"),
        ("numbers 0 7", "numbers 0 x7", "number"),
        ("parameter data f 32", "parameter data f 33", "does not fit its buffers"),
        ("parameter data f 32", "parameter scratch f 32", "a parameter is"),
        ("launch call _Zf 2 1 2 32", "launch call _Zf 0 1 2 32", "launch 1 of `k2`"),
        ("launch call _Zf 2 1 2 32", "launch call _Zf 2 1 2 3200", "launch 1 of `k2`"),
        ("d0 r0,0", "d1 r0,0", "launch 1 of `k2`"),
        ("x01ff0009", "x01ff00091", "an argument is none"),
        ("map data 0 2 8 2 16", "map data 0 2 8 90 16", "launch 1 of `k2`"),
        ("map data 0 2 8 2 16", "map data 0 6 8 2 16", "too large"),
        ("call 0 3 1 2 4 5", "call 7 3 1 2 4 5", "no such kernel"),
        ("call 0 3 1 2 4 5", "call 0 3 1 3 4 5", "step 0 (a step)"),
        ("call 0 3 1 2 4 5", "call 0 3 1 2 - 5", "step 0 (a step)"),
        ("copy 0 28 2 0", "copy 0 27 2 0", "step 1 (a step)"),
        ("copy 0 28 2 0", "copy 0 28 0 0", "step 1 (a step)"),
        ("2 0 1 2 5 3 1", "2 0 1 2 5 31 1", "step 2 (a step)"),
        ("2 0 1 2 5 3 1", "9 0 1 2 5 3 1", "number"),
        ("fill 6 0 3", "fill 6 30 3", "step 3 (a step)"),
        ("x0000803f", "x0000803f00", "step 3 (a step)"),
        ("x0000803f", "x0000803", "a number is none"),
        ("x0000803f", "1065353216", "a number is none"),
        ("fill 7 0 2", "fill 7 0 3", "step 4 (a step)"),
        ("copy 7 0 8 0 1 2", "copy 7 0 6 0 1 2", "step 5 (a step)"),
        (" of 0", " of 6", "no part of its"),
        ("range -0.5 1000.0", "range -0.5 1000.0 of 10", "no part of its"),
        (" of 0", " of 3", "no part of its"),
        (" of 0", " of 77", "no part of its"),
        ("buffer scratch f 8 in 0 32 of 0", "buffer scratch f 25 in 0 32 of 0", "no part of its"),
        ("buffer scratch f 8 in 0 32 of 0", "buffer scratch l 4 in 0 32 of 0", "no part of its"),
        ("buffer scratch f 32 in 0 128", "buffer scratch f 32 in 0 0 of 0", "step 0 (a step)"),
        ("fill 6 0 3", "region scratch 1\nfill 6 0 3", "follow one another"),
    ];
    let texts: Vec<Vec<u8>> = changes
        .iter()
        .map(|(from, to, _)| {
            assert!(text.contains(from), "{from} in\n{text}");
            text.replacen(from, to, 1).into_bytes()
        })
        .collect();
    let program = reader(folder.path());
    for ((from, to, words), said) in changes.iter().zip(verdicts(&program, &texts)) {
        let changed = text.replacen(from, to, 1);
        let error = HostPlan::parse(&changed).unwrap_err().to_string();
        assert!(error.contains(words), "{to}: {error}");
        assert!(said.contains(words), "{to}: C says {said}");
    }
}

/// Thousands of texts that are nearly plans.
#[test]
fn mutated_plans_are_read_or_refused_by_both_readers_alike() {
    use rand::{RngExt, SeedableRng};
    let mut chance = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(5);
    let folder = tempfile::tempdir().unwrap();
    let program = reader(folder.path());
    let plans = [network(1, "x").to_string(), network(3, "node").to_string()];
    let words = [
        "-1",
        "0",
        "1",
        "2",
        "4294967295",
        "4294967294",
        "70368744177664",
        "70368744177665",
        "18446744073709551615",
        "18446744073709551616",
        "-",
        "",
        "own",
        "in",
        "file",
        "range",
        "x00",
        "m0",
        "r0,0",
        "nan",
        "inf",
        "0x1",
        "1e400",
        "+5",
        "007",
        "d512",
        "data",
        "cuda",
    ];
    let mut texts = Vec::new();
    for _ in 0..8000 {
        let mut text = plans[chance.random_range(0..2)].clone().into_bytes();
        for _ in 0..chance.random_range(1..4) {
            let place = chance.random_range(0..text.len());
            let lines: Vec<usize> = (0..text.len()).filter(|&i| text[i] == b'\n').collect();
            let line = lines[chance.random_range(0..lines.len() - 1)];
            let end = line + 1 + text[line + 1..].iter().position(|&b| b == b'\n').unwrap();
            let spaces: Vec<usize> =
                (line..end).filter(|&i| text[i] == b' ' || text[i] == b'\n').collect();
            match chance.random_range(0..7) {
                0 => text[place] = chance.random_range(0..=255),
                1 => text.truncate(place.max(40)),
                2 => _ = text.drain(line..end),
                3 => text.splice(line..line, text[line..end].to_vec()).for_each(drop),
                4 => text.insert(place, b" \n0-9"[chance.random_range(0..5)]),
                // A word becomes another one.
                _ => {
                    let start = spaces[chance.random_range(0..spaces.len())] + 1;
                    let length = text[start..].iter().position(|&b| b == b' ' || b == b'\n');
                    let word = words[chance.random_range(0..words.len())];
                    let stop = start + length.unwrap_or(0);
                    text.splice(start..stop, word.bytes()).for_each(drop);
                }
            }
            if text.iter().filter(|&&b| b == b'\n').count() < 2 || !text.ends_with(b"\n") {
                break;
            }
        }
        texts.push(text);
    }
    let plans = agree(&program, &texts);
    assert!(plans > 200 && plans < 4000, "{plans} of 8000 are plans still");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        text in "(squall plan 2\n)?([a-z]{1,9}( -?[0-9a-z,]{1,6}){0,9}\n){0,9}",
    ) {
        if let Ok(plan) = HostPlan::parse(&text) {
            prop_assert_eq!(HostPlan::parse(&plan.to_string()).unwrap(), plan);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = HostPlan::parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn sizes_never_overflow(n in 1u64..=u64::MAX, m in 0u64..=u64::MAX) {
        let mut plan = network(2, "");
        plan.buffers[0].count = n;
        plan.regions[0].bytes = m;
        let axes = vec![MoveAxis { extent: n, to: m, from: -1 }];
        plan.steps[1].work = Work::Copy { from: at(0, m), to: at(2, n), axes };
        let _ = plan.verify();
        plan.kernels[1].launches[1].maps[0].extents = vec![n, m];
        plan.kernels[1].launches[1].maps[0].strides = vec![m];
        let _ = plan.verify();
    }
}
