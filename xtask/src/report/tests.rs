//! Tests of `cargo xtask tables`, which writes the documents' tables from benchmark results: every
//! table can be made from its run files, the repository's own documents agree with them, and stale
//! or misnamed tables are found.

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn documents_of_the_repository_agree_with_their_run_files() {
    tables(&root(), &["--check"]).unwrap();
}

#[test]
fn every_table_can_be_made_and_names_its_run_files() {
    let runs = Runs::of(&root());
    for (name, make) in TABLES {
        let text = make(&runs).unwrap_or_else(|e| panic!("{name}: {e}"));
        let rows = text.lines().filter(|l| l.starts_with('|')).count();
        assert!(rows > 3, "{name} has {rows} lines:\n{text}");
        assert!(text.ends_with("in `benches/runs/`. "), "{name}:\n{text}");
    }
}

#[test]
fn means_are_those_that_the_referee_wrote_beside_its_times() {
    let runs = Runs::of(&root());
    let text = cpu::budgets(&runs).unwrap();
    let run = runs.open("2026-11-22-1442-cpu-1000.json").unwrap();
    let summary = run.part().get("referee").unwrap().get("summary").unwrap();
    let ours = summary.get("so:squall").unwrap();
    let row = text.lines().find(|l| l.contains("| 1000 |")).unwrap();
    for key in ["plain_geomean", "plain_min", "best_geomean"] {
        let figure = format!("{:.2}", ours.number(key).unwrap());
        assert!(row.contains(&figure), "{key} is {figure}, the table has {row}");
    }
}

#[test]
fn a_stale_table_is_written_anew_and_what_stands_around_it_stays() {
    let runs = Runs::of(&root());
    let text = "before\n<!-- table: cpu-budgets -->\nold\n<!-- end -->\nafter\n";
    let new = with_tables(text, &runs).unwrap();
    assert!(new.starts_with("before\n<!-- table: cpu-budgets -->\n| machine |"), "{new}");
    assert!(new.ends_with("<!-- end -->\nafter\n") && !new.contains("old"), "{new}");
    assert_eq!(with_tables(&new, &runs).unwrap(), new);
}

#[test]
fn a_wrong_name_or_a_missing_end_is_an_error_that_says_so() {
    let runs = Runs::of(&root());
    let fault = |text: &str| with_tables(text, &runs).unwrap_err();
    assert!(fault("<!-- table: nothing -->\n<!-- end -->").contains("there is no table `nothing`"));
    assert!(fault("<!-- table: cpu-budgets -->\n").contains("has no `<!-- end -->`"));
    let two = "<!-- table: cpu-budgets -->\n<!-- table: examples -->\n<!-- end -->";
    assert!(fault(two).contains("before the next table"));
    assert!(runs.open("nothing.json").is_err_and(|e| e.starts_with("nothing.json: ")));
}
