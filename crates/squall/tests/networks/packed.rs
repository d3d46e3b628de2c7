//! Test that a plain operator (C generated for a node without a kernel) computes the same bits
//! whether its weights are constants, which a network packs when it is opened, or inputs, which
//! each call packs.

use super::*;

/// A model of a recurrence over these weights of its file; the others of `W` and `R` are inputs,
/// which are given, too.
fn recurrent(
    folder: &Path,
    op: &str,
    gates: i64,
    constants: &[&str],
) -> (NetworkRequest, Vec<(&'static str, Array)>) {
    let [steps, batch, features, hidden] = [12, 3, 9, 20];
    let operands = [
        ("X", noise(&[steps, batch, features], 1)),
        ("W", noise(&[1, gates * hidden, features], 2)),
        ("R", noise(&[1, gates * hidden, hidden], 3)),
    ];
    let of_file = |n: &&str| constants.contains(n);
    let weights = operands.iter().filter(|(n, _)| of_file(n)).map(|(n, a)| weight(n, a)).collect();
    let given: Vec<(&str, Array)> = operands.into_iter().filter(|(n, _)| !of_file(n)).collect();
    let inputs = given.iter().map(|(name, array)| {
        let extents: Vec<String> = array.shape.iter().map(i64::to_string).collect();
        let extents: Vec<&str> = extents.iter().map(String::as_str).collect();
        value(name, F32, &extents)
    });
    let node = with_int(node(op, &["X", "W", "R"], &["Y"]), "hidden_size", hidden);
    (model(folder, vec![node], weights, inputs.collect(), &["Y"]), given)
}

/// The result of such a model, and the bytes that its network packs when it is opened.
fn recurrence(folder: &Path, op: &str, gates: i64, constants: &[&str]) -> (Array, u64) {
    let (network, given) = recurrent(folder, op, gates, constants);
    let kept = folder.join("network");
    let network = NetworkRequest { keep: Some(kept.clone()), ..network };
    let (out, _) = run(folder, &network, &given).unwrap();
    let plan = std::fs::read_to_string(kept.join("plan.txt")).unwrap();
    let prepared = plan.lines().find_map(|l| l.strip_prefix("region prepared "));
    (out[0].1.clone(), prepared.and_then(|n| n.parse().ok()).unwrap())
}

#[test]
fn weights_are_packed_when_the_network_is_opened() {
    // GPUs read weights as they are; an emulator takes half a minute for each of these networks.
    if target() != TargetRequest::Cpu {
        return;
    }
    for (op, gates) in [("LSTM", 4), ("GRU", 3)] {
        let all = [&["W", "R"][..], &["R"], &["W"], &[]];
        let made = all.map(|constants| {
            let folder = tempfile::tempdir().unwrap();
            recurrence(folder.path(), op, gates, constants)
        });
        for ((array, prepared), constants) in made.iter().zip(all) {
            assert_eq!(array.bytes, made[3].0.bytes, "{op} over constants {constants:?}");
            assert_eq!(*prepared > 0, !constants.is_empty(), "{op} over constants {constants:?}");
        }
    }
}

/// Exported sources may be compiled anew for other processors, which want panels of other extents.
#[test]
fn exported_sources_pack_in_each_call() {
    if target() != TargetRequest::Cpu {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (network, _) = recurrent(folder.path(), "LSTM", 4, &["W", "R"]);
    let options = squall::library::LibraryOptions {
        name: "lstm".parse().unwrap(),
        onnxruntime: false,
        build: false,
    };
    let out = folder.path().join("out");
    let request = squall::LibraryRequest { network, options, out: out.clone() };
    squall::export_network(&context(), &request, &mut |_| {}).unwrap();
    let sources = std::fs::read_dir(out.join("src")).unwrap().map(|e| e.unwrap().path());
    let texts: Vec<String> = sources.filter_map(|p| std::fs::read_to_string(p).ok()).collect();
    assert!(texts.iter().any(|t| t.contains("gate_tanh")), "no text has the recurrence");
    assert!(texts.iter().all(|t| !t.contains("PACKED_BY")), "a call reads panels of another build");
}
