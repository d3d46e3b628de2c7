//! Runs the targets of cargo-fuzz without cargo-fuzz: over the stored corpus, over damaged copies
//! of it, and over files drawn from seeds. No target may panic. `SQUALL_FUZZ_CASES` says how many
//! files of each kind (300 by default).

use squall_fuzz::targets::TARGETS;
use squall_fuzz::{Draw, generate, mutate};
use std::path::{Path, PathBuf};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

fn files(name: &str) -> Vec<Vec<u8>> {
    let all = std::fs::read_dir(corpus(name)).into_iter().flatten().flatten();
    all.filter_map(|e| std::fs::read(e.path()).ok()).collect()
}

fn cases() -> u64 {
    std::env::var("SQUALL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(300)
}

#[test]
fn every_target_has_a_corpus_and_a_program() {
    for t in TARGETS {
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../fuzz/fuzz_targets/{}.rs", t.name));
        let text = std::fs::read_to_string(&program).unwrap_or_default();
        assert!(text.contains(&format!("\"{}\"", t.name)), "{} is missing", program.display());
        assert!(!files(t.name).is_empty(), "{} is empty", corpus(t.name).display());
    }
}

#[test]
fn no_target_panics_on_its_corpus_or_on_damage_to_it() {
    for t in TARGETS {
        let known = files(t.name);
        known.iter().for_each(|bytes| (t.run)(bytes));
        for seed in 0..cases() {
            let mut draw = Draw::of_seed(seed);
            let whole = &known[draw.below(known.len())];
            let bytes = mutate(&mut draw, whole);
            let ran = std::panic::catch_unwind(|| (t.run)(&bytes));
            assert!(ran.is_ok(), "{} panics on damage of seed {seed}", t.name);
        }
    }
}

#[test]
fn no_target_panics_on_what_is_drawn() {
    for t in TARGETS {
        let own = generate::ALL.iter().find(|g| g.0 == t.name);
        for seed in 0..cases() {
            let mut draw = Draw::of_seed(seed);
            let bytes = match own {
                Some((_, generator)) => generator(&mut draw),
                None if t.name.starts_with("structure_") => {
                    (0..512).map(|_| draw.bits() as u8).collect()
                }
                None => generate::ALL[draw.below(generate::ALL.len())].1(&mut draw),
            };
            let ran = std::panic::catch_unwind(|| (t.run)(&bytes));
            assert!(ran.is_ok(), "{} panics on what is drawn from seed {seed}", t.name);
        }
    }
}

/// Writes the first files of each corpus:
/// `cargo test -p squall-fuzz -- --ignored write_the_corpus`.
#[test]
#[ignore = "writes files that lie in the repository"]
fn write_the_corpus() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let real: &[(&str, &str)] = &[("onnx", "small_net.onnx"), ("operators", "kernels.ops")];
    for t in TARGETS {
        let folder = corpus(t.name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let generators: Vec<&str> = match t.name {
            "recording" => vec!["kernel_tuner", "t4"],
            "space" => vec!["t1"],
            "record" => vec!["exported_lines"],
            "miopen_packing" => vec!["miopen"],
            name => vec![name],
        };
        for (g, make) in generate::ALL.iter().filter(|g| generators.contains(&g.0)) {
            for seed in 0..4 {
                let bytes = make(&mut Draw::of_seed(seed));
                std::fs::write(folder.join(format!("{g}-{seed}")), bytes).expect("written");
            }
        }
        for (_, file) in real.iter().filter(|r| r.0 == t.name) {
            std::fs::copy(examples.join(file), folder.join(file)).expect("copied");
        }
        if t.name.starts_with("structure_") {
            for seed in 0..4 {
                let mut draw = Draw::of_seed(seed);
                let bytes: Vec<u8> = (0..512).map(|_| draw.bits() as u8).collect();
                std::fs::write(folder.join(format!("choices-{seed}")), bytes).expect("written");
            }
        }
    }
}
