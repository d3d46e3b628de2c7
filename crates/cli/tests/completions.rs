//! Tests of `squall completions` and `squall man`: every command is in them, and shells that are
//! installed can load the scripts.

use crate::support;

use std::process::Command;
use support::Place;

#[test]
fn completions_name_every_command_and_load_where_the_shell_is() {
    let p = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = p.squall(&["completions", shell]).ok().out;
        for word in ["tune", "records", "trials-per-task", "completions"] {
            assert!(said.contains(word), "{word} in the completions of {shell}");
        }
        let file = p.path().join(format!("squall.{shell}"));
        std::fs::write(&file, &said).unwrap();
        let check = if shell == "fish" { "--no-execute" } else { "-n" };
        if !matches!(shell, "bash" | "zsh" | "fish") {
            continue;
        }
        match Command::new(shell).arg(check).arg(&file).output() {
            Ok(o) => assert!(o.status.success(), "{shell}: {}", String::from_utf8_lossy(&o.stderr)),
            Err(_) => println!("not loaded: there is no {shell}"),
        }
    }
    let fails = p.squall(&["completions", "tcsh"]);
    assert_eq!(fails.code, Some(2));
    assert!(fails.err.contains("possible values"), "{}", fails.err);
}

#[test]
fn every_command_has_a_page() {
    let p = Place::new();
    let page = p.squall(&["man"]).ok().out;
    assert!(page.contains(".TH squall 1") && page.contains("squall\\-tune"), "{page}");
    p.squall(&["man", "--out", "pages"]).ok();
    let mut names: Vec<String> = std::fs::read_dir(p.path().join("pages"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 15 && names.contains(&"squall.1".to_string()), "{names:?}");
    let tune = std::fs::read_to_string(p.path().join("pages/squall-tune.1")).unwrap();
    assert!(tune.contains("trials") && tune.contains("squall tune model.onnx"), "{tune}");
    let fails = p.squall(&["man", "--out", "pages/squall.1/x"]).fails();
    assert!(fails.err.starts_with("error:"), "{}", fails.err);
}
