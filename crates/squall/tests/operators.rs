//! Test that docs/operators.md is up to date: the page says how each ONNX operator is treated
//! (tuned, moved, folded, plain), and is generated from the code's tables here. `SQUALL_BLESS=1
//! cargo test -p squall --test all operators` writes it anew.

use squall_compiler::plain;
use squall_core::graph::is_bounded;
use squall_core::operators::{self, REFUSED, WRITTEN_OUT, standard};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "# Operators

What becomes of each operator of ONNX's standard domain (up to opset 28), for tensors of float32,
integers and booleans; models of float16 and bfloat16 become such (decision 0083). This page is
made of the code's tables by `SQUALL_BLESS=1 cargo test -p squall --test all operators`; the same
test fails where it is out of date.

- **tuned**: it becomes a tuned kernel, alone or fused with others, in the forms that sketches know.
- **move**: where it moves float32 data to places known ahead, it becomes a copy.
- **folded**: over elements that are known when the model is read it is evaluated then.
- **plain**: a generated kernel that is not tuned computes it in every run; the share of the time
  that it takes is listed.
- **written out**: the nodes that it holds or is made of stand in its place, where they are known.

An attribute or a type of elements that a row does not have is refused with an error that names
node and attribute; nothing is guessed. Operators that a file defines itself (functions) are
replaced by their bodies. Other domains but onnxruntime's are refused, as are strings, sequences,
maps, optional and sparse values, training, and other types of floats: of 8 and 4 bits also where
only weights have them. Integers of 2 and 4 bits are bytes once they are read; casts to them are
refused.

| operator | runs as | limits |
|---|---|---|
";

/// Whether the reader writes an operator out as others that it is made of.
fn is_composed(op: &str) -> bool {
    squall_frontend::onnx::composed_operators().any(|composed| composed == op)
}

fn page() -> String {
    let reasons = |list: &[(&str, &str)], op: &str| {
        list.iter().find(|(name, _)| *name == op).map(|(_, why)| (*why).to_string())
    };
    let mut names: BTreeSet<&str> = plain::operators().collect();
    names.extend(operators::standard_operators().map(|row| row.name));
    names.extend(REFUSED.iter().map(|r| r.0));
    names.extend(WRITTEN_OUT.iter().map(|r| r.0));
    let mut text = HEAD.to_string();
    for op in names {
        let ways = [
            (squall_graph::is_tuned(op), "tuned"),
            (squall_graph::candidates::moves_data(op), "move"),
            (operators::is_folded(op), "folded"),
            (plain::has("", op), "plain"),
            (reasons(WRITTEN_OUT, op).is_some() || is_composed(op), "written out"),
        ];
        let ways: Vec<&str> = ways.iter().filter(|w| w.0).map(|w| w.1).collect();
        let refused = reasons(REFUSED, op);
        let ways = match (ways.is_empty(), &refused) {
            (true, _) => "not supported".to_string(),
            (false, None) => ways.join(", "),
            (false, Some(_)) => panic!("{op} is said not to be supported, and is"),
        };
        assert!(ways != "not supported" || refused.is_some(), "{op} runs by nothing, and why?");
        let limits = reasons(WRITTEN_OUT, op)
            .or(refused)
            .or_else(|| Some(standard(op)?.limits.to_string()))
            .unwrap_or_default();
        let _ = writeln!(text, "| {op} | {ways} | {limits} |");
    }
    text.push_str(
        "\nOf onnxruntime's domain `com.microsoft` these are written out as standard ones \
         (`MatMulNBits`,\nas a product that reads packed weights: docs/low-precision.md); any \
         other use of them is refused\nwith the node's name:\n",
    );
    let limits = squall_frontend::onnx::ONNXRUNTIME_LIMITS;
    for op in squall_frontend::onnx::onnxruntime_operators() {
        let limit = reasons(limits, op).map_or(String::new(), |why| format!(": {why}"));
        let _ = writeln!(text, "- {op}{limit}");
    }
    for (op, _) in limits {
        let is_read = squall_frontend::onnx::onnxruntime_operators().any(|o| o == *op);
        assert!(is_read, "{op} has limits, but is not read");
    }
    for row in operators::standard_operators().filter(|row| !row.limits.is_empty()) {
        assert!(plain::has("", row.name), "{} has limits, but no plain kernel", row.name);
    }
    for op in plain::operators().filter(|op| is_bounded("", op)) {
        assert!(
            standard(op).is_some_and(|row| !row.limits.is_empty()),
            "{op} has extents that depend on elements"
        );
    }
    text
}

#[test]
fn the_page_of_operators_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators.md");
    let made = page();
    if std::env::var_os("SQUALL_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/operators.md is out of date: SQUALL_BLESS=1 writes it anew");
}
