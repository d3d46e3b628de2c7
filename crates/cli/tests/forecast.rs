//! Tests of predictors through the real binary: MIOpen's databases are imported, predictors are
//! trained on them and on Squall's records, and their answers go to user databases or into a
//! search.

use crate::support;

use serde_json::Value;
use support::Place;

const DATABASE: &str = "\
256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F=ConvAsm1x1U:2,16,4,16,2,2,1,1;Other:1,2
64-28-28-1x1-64-28-28-8-0x0-1x1-1x1-0-NCHW-FP32-F=ConvAsm1x1U:1,8,2,16,1,2,1,1;ConvAsm1x1U:1,8
64-28-28-1x1-64-28-28-8-0x0-1x1-1x1-0-NCHW-FP32-W=ConvAsmBwdWrW1x1:1,16,2,1,2,1,1,2,0,0
nonsense
";

#[test]
fn databases_are_taken_over_once() {
    let place = Place::new();
    place.file("gfx906_60.cd.pdb.txt", DATABASE);
    let import = ["import", "gfx906_60.cd.pdb.txt", "--store", "s.squall", "--json"];
    let first = place.squall(&import).ok().json();
    let file = &first["files"][0];
    assert_eq!((file["new"].as_u64(), file["known"].as_u64()), (Some(4), Some(0)), "{first}");
    assert_eq!(file["solvers"]["ConvAsm1x1U"], 2);
    let rows: Vec<u64> =
        file["left_out"].as_array().unwrap().iter().map(|b| b["row"].as_u64().unwrap()).collect();
    assert_eq!(rows, [2, 4], "{first}");
    let again: Value = place.squall(&import).ok().json();
    assert_eq!(
        (again["files"][0]["new"].as_u64(), again["files"][0]["known"].as_u64()),
        (Some(0), Some(4))
    );
    let shown = place.squall(&["import", "gfx906_60.cd.pdb.txt", "--store", "s.squall"]).ok();
    assert!(
        shown.out.contains("0 new examples, 4 known already")
            && shown.err.contains("txt:4: left out"),
        "{} {}",
        shown.out,
        shown.err
    );
}

#[test]
fn what_is_no_database_is_refused_and_nothing_is_stored() {
    let place = Place::new();
    place.file("gfx906.txt", DATABASE);
    place.file("mine.txt", DATABASE);
    place.file("gfx906_notes.txt", "the fastest kernels");
    place.file("gfx906.db", "SQLite format 3\0 and no more");
    place.file("gfx906.gz", [0x1f, 0x8b, 8, 0, 0]);
    let refused = |file: &str, says: &str| {
        let ran = place.squall(&["import", "gfx906.txt", file, "--store", "s.squall"]).fails();
        assert!(ran.err.contains(says), "{file}: {}", ran.err);
        assert!(!place.path().join("s.squall").exists());
    };
    refused("mine.txt", "--device");
    refused("gfx906_notes.txt", "not one line has the form");
    refused("gfx906.db", "damaged");
    refused("gfx906.gz", "cut short");
    refused("absent_gfx906.txt", "cannot be read");
    refused("gfx906_absent.txt", "cannot be read");
    place.squall(&["import", "mine.txt", "--device", "gfx900_56", "--store", "s.squall"]).ok();
    place.squall(&["import", "mine.txt", "--device", "mi50", "--store", "s.squall"]).fails();
}

/// Problems of one solver whose answer depends on the size of the picture.
fn database() -> String {
    let mut text = String::new();
    for c in [64, 128, 192, 256, 320, 384, 448, 512] {
        for k in [64, 128, 256] {
            for (hw, values) in
                [(14, "1,16,1,16,1,1,1,1"), (28, "1,8,2,16,1,2,1,1"), (56, "1,8,2,16,1,2,1,1")]
            {
                text += &format!(
                    "{c}-{hw}-{hw}-1x1-{k}-{hw}-{hw}-8-0x0-1x1-1x1-0-NCHW-FP32-F=\
                     ConvAsm1x1U:{values};Other:7,{}\n",
                    hw / 14
                );
            }
        }
    }
    text
}

#[test]
fn what_was_imported_trains_a_predictor_that_answers() {
    let place = Place::new();
    place.file("gfx906_60.cd.pdb.txt", database());
    place.squall(&["import", "gfx906_60.cd.pdb.txt", "--store", "s.squall"]).ok();
    let trained = place
        .squall(&[
            "train",
            "--store",
            "s.squall",
            "--solver",
            "ConvAsm1x1U",
            "--epochs",
            "2",
            "--members",
            "1",
            "--out",
            "p",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(trained["rows"][0]["outside"], 0, "{trained}");
    assert!(!place.path().join("p.checkpoint").exists());
    let key = "96-28-28-1x1-96-28-28-8-0x0-1x1-1x1-0-NCHW-FP32-F";
    place.file("keys.txt", format!("# asked\n{key}\n"));
    let predict = [
        "predict",
        "p",
        "--problems",
        "keys.txt",
        "--device",
        "gfx906",
        "--top",
        "5",
        "--json",
        "--write-user-db",
        "gfx906_60.u.txt",
    ];
    let said = place.squall(&predict).ok().json();
    assert_eq!(
        (said["problem"].as_str(), said["solver"].as_str()),
        (Some(key), Some("ConvAsm1x1U")),
        "{said}"
    );
    let values: Vec<&str> =
        said["predictions"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    assert_eq!(values.len(), 5);
    assert!(values.iter().all(|v| v.split(',').count() == 8));
    // The user database holds the best of them, and reads as one: its rows are legal.
    assert_eq!(
        std::fs::read_to_string(place.path().join("gfx906_60.u.txt")).unwrap(),
        format!("{key}=ConvAsm1x1U:{}\n", values[0])
    );
    let back = place
        .squall(&["import", "gfx906_60.u.txt", "--store", "back.squall", "--json"])
        .ok()
        .json();
    assert_eq!(
        (back["files"][0]["new"].as_u64(), back["files"][0]["left_out"].as_array().unwrap().len()),
        (Some(1), 0)
    );

    // A log's line asks for all directions; the kernel has no answer for the weights.
    let line = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n 8 -c 96 -H 28 \
                -W 28 -k 96 -y 1 -x 1";
    let all =
        place.squall(&["predict", "p", line, "--device", "gfx900", "--top", "3", "--json"]).ok();
    let counts: Vec<usize> = all
        .out
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap()["predictions"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [3, 3, 0], "{}", all.out);
    assert!(all.err.contains("no solver of this predictor takes this problem"), "{}", all.err);

    let scored = place
        .squall(&["evaluate", "p", "--store", "s.squall", "--models", "all", "--json"])
        .ok()
        .json();
    assert_eq!(scored["rows"].as_array().unwrap().len(), 5, "{scored}");
    let others = [
        "evaluate",
        "--models",
        "naive-bayes,hybrid-2",
        "--epochs",
        "1",
        "--solver",
        "ConvAsm1x1U",
        "--store",
        "s.squall",
        "--json",
    ];
    let others = place.squall(&others).ok().json();
    assert_eq!(others["rows"][0]["model"], "hybrid-2", "{others}");
    assert_eq!(others["rows"][1]["at"].as_array().unwrap().len(), 5);
    assert_eq!(
        place.squall(&["evaluate", "p", "--models", "svm", "--store", "s.squall"]).code,
        Some(2)
    );
    assert_eq!(place.squall(&["evaluate", "--store", "s.squall"]).code, Some(2));
    // Folds, seeds and another device are trained here; the page holds the tables and the curves.
    let study = [
        "evaluate",
        "--models",
        "hybrid-2,neighbours",
        "--folds",
        "2",
        "--seeds",
        "1,2",
        "--epochs",
        "1",
        "--solver",
        "ConvAsm1x1U",
        "--store",
        "s.squall",
        "--html",
        "page.html",
        "--json",
    ];
    let study = place.squall(&study).ok().json();
    let rows = study["rows"].as_array().unwrap();
    assert_eq!(
        rows.iter().map(|r| r["model"].as_str().unwrap()).collect::<Vec<_>>(),
        ["neighbours", "hybrid-2"]
    );
    // Every problem is held out once.
    assert!(
        rows.iter().all(|r| r["problems"] == 72 && r["samples"] == 72 && r["spread"].is_array()),
        "{study}"
    );
    assert_eq!(rows[0]["spread"][0], 0.0, "neighbours do not depend on the seed");
    let page = std::fs::read_to_string(place.path().join("page.html")).unwrap();
    assert!(
        page.contains("Table III")
            && page.contains("hybrid-2 gfx906_60 FP32")
            && page.contains("seed 1, 2"),
        "{page}"
    );

    // Rows of another database: those of keys that the predictor's data lacked, and no others.
    place.file("gfx906_60.newer.txt", database().replace("-8-0x0-", "-16-0x0-") + &database());
    place.squall(&["import", "gfx906_60.newer.txt", "--store", "newer.squall"]).ok();
    let unseen = place
        .squall(&[
            "evaluate",
            "p",
            "--store",
            "newer.squall",
            "--rows",
            "unseen",
            "--time",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(
        (unseen["rows"][0]["problems"].as_u64(), unseen["rows"][0]["samples"].as_u64()),
        (Some(72), Some(144)),
        "{unseen}"
    );
    assert!(unseen["time"][0]["median_ms"].as_f64().unwrap() > 0.0);

    let refused = |args: &[&str], says: &str| {
        let ran = place.squall(args).fails();
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    };
    refused(
        &["evaluate", "p", "--store", "s.squall", "--split", "layer"],
        "learned from test rows",
    );
    refused(
        &["predict", "p", key, "--device", "gfx906", "--solver", "Other"],
        "it knows ConvAsm1x1U",
    );
    refused(&["predict", "p", key, "--device", "mi50"], "is no device");
    refused(
        &["tune", "matmul m=8 n=8 k=8", "--trials", "1", "--predictor", "p", "--store", "t.squall"],
        "trained for ConvAsm1x1U",
    );
    refused(&["predict", "p", "nonsense", "--device", "gfx906"], "line:1");
    refused(&["predict", "keys.txt", key, "--device", "gfx906"], "cannot use the predictor");
    refused(
        &["train", "--store", "s.squall", "--solver", "None", "--out", "q"],
        "it has ConvAsm1x1U on gfx906_60",
    );
    refused(&["evaluate", "p", "--store", "s.squall", "--rows", "unseen"], "no such row");
    for (args, says) in [
        (
            ["evaluate", "--models", "pair", "--store", "s.squall", "--learn-from", "gfx900_56"],
            "no example is of the device",
        ),
        (
            ["evaluate", "p", "--store", "s.squall", "--html", "no/such/page.html", "--json"],
            "there is no folder",
        ),
    ] {
        let ran = place.squall(&args);
        assert!(ran.code == Some(2) && ran.err.contains(says), "{args:?}: {}", ran.err);
    }
    // Another version, and a file that was cut short.
    let bytes = std::fs::read(place.path().join("p")).unwrap();
    let plain = std::process::Command::new("gzip")
        .arg("-dc")
        .stdin(std::fs::File::open(place.path().join("p")).unwrap())
        .output()
        .expect("gzip is there")
        .stdout;
    let text = b"\\\"version\\\":5";
    let at =
        plain.windows(text.len()).position(|w| w == text).expect("the header says its version");
    let mut other = plain.clone();
    other[at + text.len() - 1] = b'9';
    place.file("other", &other);
    place.file("cut", &bytes[..bytes.len() / 2]);
    refused(
        &["predict", "other", key, "--device", "gfx906"],
        "version 9, this build reads versions 4 to 5",
    );
    refused(&["predict", "cut", key, "--device", "gfx906"], "cannot use the predictor");
    assert!(!place.path().join("q").exists());
}

#[test]
fn a_solver_without_rules_is_learned_from_its_rows() {
    let place = Place::new();
    place.file("gfx906_60.cd.pdb.txt", database());
    place.squall(&["import", "gfx906_60.cd.pdb.txt", "--store", "s.squall"]).ok();
    place
        .squall(&[
            "train", "--store", "s.squall", "--solver", "Other", "--epochs", "1", "--out", "p",
        ])
        .ok();
    let key = "97-29-29-1x1-13-29-29-5-0x0-1x1-1x1-0-NCHW-BF16-F";
    let said = place
        .squall(&[
            "predict", "p", key, "--device", "gfx90a", "--solver", "Other", "--top", "10", "--json",
        ])
        .ok()
        .json();
    let mut values: Vec<&str> =
        said["predictions"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    values.sort_unstable();
    assert_eq!(values, ["7,1", "7,2", "7,4"], "only what was seen, and all of it");
    let back = place
        .squall(&["predict", "p", &key.replace("-F", "-B"), "--device", "gfx90a", "--json"])
        .ok()
        .json();
    assert_eq!(back["predictions"].as_array().unwrap().len(), 0, "its rows are all forward");
}

#[test]
fn every_model_can_be_trained_and_answers_from_its_file() {
    let place = Place::new();
    place.file("gfx906_60.cd.pdb.txt", database());
    place.squall(&["import", "gfx906_60.cd.pdb.txt", "--store", "s.squall"]).ok();
    let key = "96-28-28-1x1-96-28-28-8-0x0-1x1-1x1-0-NCHW-FP32-F";
    for model in ["neighbours", "hybrid-2", "random-forest"] {
        let train = [
            "train",
            "--store",
            "s.squall",
            "--solver",
            "ConvAsm1x1U",
            "--model",
            model,
            "--epochs",
            "1",
            "--out",
            "p",
            "--json",
        ];
        let trained = place.squall(&train).ok().json();
        assert_eq!(trained["scores"].as_array().unwrap().len(), 1, "{trained}");
        let said = place
            .squall(&["predict", "p", key, "--device", "gfx906", "--top", "3", "--json"])
            .ok()
            .json();
        assert_eq!(said["predictions"].as_array().unwrap().len(), 3, "{model}: {said}");
        let scored = place.squall(&["evaluate", "p", "--store", "s.squall", "--json"]).ok().json();
        assert_eq!(scored["rows"][0]["model"], model, "{scored}");
    }
    let members =
        ["train", "--store", "s.squall", "--model", "svm", "--members", "2", "--out", "q"];
    assert_eq!(place.squall(&members).code, Some(2));
}

#[test]
fn records_train_a_predictor_whose_candidates_are_tried_first() {
    if squall_testing::is_left_to_full(
        "forecast::records_train_a_predictor_whose_candidates_are_tried_first",
    ) {
        return;
    }
    let place = Place::new();
    place.file("known.ops", "matmul m=32 n=32 k=32\nmatmul m=48 n=32 k=32\n");
    place.squall(&["tune", "known.ops", "--trials", "6", "--store", "known.squall"]).ok();
    let train = [
        "train",
        "--records",
        "--store",
        "known.squall",
        "--epochs",
        "50",
        "--members",
        "2",
        "--out",
        "p",
        "--json",
    ];
    let trained = place.squall(&train).ok().json();
    assert_eq!(
        (trained["tasks"].as_array().unwrap().len(), trained["rows"][0]["train"].as_u64()),
        (2, Some(2)),
        "{trained}"
    );

    let asked = "matmul m=40 n=24 k=32";
    let said = place.squall(&["predict", "p", asked, "--top", "4", "--json"]).ok().json();
    let foretold: Vec<(&str, &str)> = said["predictions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["tunable"].as_str().unwrap(), p["configuration"].as_str().unwrap()))
        .collect();
    assert_eq!(foretold.len(), 4, "{said}");
    let ran = place
        .squall(&[
            "tune",
            asked,
            "--trials",
            "6",
            "--predictor",
            "p",
            "--store",
            "new.squall",
            "--json",
        ])
        .ok();
    let lines: Vec<Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let tried: Vec<(&str, &str)> = lines[..4]
        .iter()
        .map(|l| {
            (l["trial"]["tunable"].as_str().unwrap(), l["trial"]["configuration"].as_str().unwrap())
        })
        .collect();
    assert!(foretold.iter().all(|f| tried.contains(f)), "{foretold:?} {tried:?}");
    let task = &ran.json()["tasks"][0];
    assert_eq!(
        (task["trials"].as_u64(), task["predicted"].as_u64(), task["failed"].as_u64()),
        (Some(6), Some(4), Some(0))
    );
    // What is known is not tried again, nor counted as the predictor's.
    let more = place
        .squall(&[
            "tune",
            asked,
            "--trials",
            "2",
            "--predictor",
            "p",
            "--store",
            "new.squall",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(
        (more["tasks"][0]["known"].as_u64(), more["tasks"][0]["predicted"].as_u64()),
        (Some(6), Some(0))
    );

    let worth = place
        .squall(&["evaluate", "p", "--store", "new.squall", "--rounds", "1", "--json"])
        .ok()
        .json();
    let shares = worth["tasks"][0]["ways"][0]["at"].as_array().unwrap();
    assert!(
        shares.len() == 3 && shares.iter().all(|s| s["share"].as_f64().unwrap() > 0.0),
        "{worth}"
    );

    let softmax = place
        .squall(&[
            "tune",
            "softmax rows=4 cols=64",
            "--trials",
            "1",
            "--predictor",
            "p",
            "--store",
            "new.squall",
        ])
        .ok();
    assert!(
        softmax.err.contains("searched without the predictor")
            && softmax.err.contains("it knows matmul"),
        "{}",
        softmax.err
    );
    let refused = |args: &[&str], says: &str| {
        let ran = place.squall(args).fails();
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    };
    refused(
        &["tune", asked, "--trials", "1", "--predictor", "p", "--threads", "2"],
        "this predictor learned what is fast on",
    );
    refused(
        &["tune", asked, "--trials", "1", "--predictor", "known.ops"],
        "cannot use the predictor",
    );
    refused(&["evaluate", "p", "--store", "known.squall"], "the predictor learned from every task");
    refused(
        &["train", "--records", "--store", "known.squall", "--threads", "2", "--out", "q"],
        "holds no tuned task of this device",
    );
    assert!(!place.path().join("q").exists());
}
