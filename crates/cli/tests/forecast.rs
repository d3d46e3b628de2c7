//! Tuning databases through the real binary.

mod support;

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
    let rows: Vec<u64> = file["left_out"].as_array().unwrap().iter().map(|b| b["row"].as_u64().unwrap()).collect();
    assert_eq!(rows, [2, 4], "{first}");
    let again: Value = place.squall(&import).ok().json();
    assert_eq!((again["files"][0]["new"].as_u64(), again["files"][0]["known"].as_u64()), (Some(0), Some(4)));
    let shown = place.squall(&["import", "gfx906_60.cd.pdb.txt", "--store", "s.squall"]).ok();
    assert!(shown.out.contains("0 new examples, 4 known already") && shown.err.contains("txt:4: left out"), "{} {}", shown.out, shown.err);
}

#[test]
fn what_is_no_database_is_refused_and_nothing_is_stored() {
    let place = Place::new();
    place.file("gfx906.txt", DATABASE);
    place.file("mine.txt", DATABASE);
    place.file("gfx906.json", "{\"cache\": {}}");
    place.file("gfx906.db", "SQLite format 3\0 and no more");
    place.file("gfx906.gz", [0x1f, 0x8b, 8, 0, 0]);
    let refused = |file: &str, says: &str| {
        let ran = place.squall(&["import", "gfx906.txt", file, "--store", "s.squall"]).fails();
        assert!(ran.err.contains(says), "{file}: {}", ran.err);
        assert!(!place.path().join("s.squall").exists());
    };
    refused("mine.txt", "--device");
    refused("gfx906.json", "not one line has the form");
    refused("gfx906.db", "damaged");
    refused("gfx906.gz", "cut short");
    refused("absent_gfx906.txt", "--device");
    refused("gfx906_absent.txt", "cannot be read");
    place.squall(&["import", "mine.txt", "--device", "gfx900_56", "--store", "s.squall"]).ok();
    place.squall(&["import", "mine.txt", "--device", "mi50", "--store", "s.squall"]).fails();
}
