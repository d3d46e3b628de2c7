//! Tests of the readers of MIOpen's files: made databases and driver lines, and, where the shared
//! folder has them, every row of the real databases against the rules of its kernel family.

use super::*;
use squall_core::forecast::{Part, Problem, Split};
use std::path::PathBuf;
use std::time::Instant;

const KEY: &str = "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F";

fn shared(file: &str) -> Option<PathBuf> {
    squall_testing::shared(&format!("miopen/{file}"))
}

fn count(d: &Database, solver: &str, precision: &str) -> usize {
    d.examples
        .iter()
        .filter(|e| e.problem.solver == solver && e.problem.word("precision") == Some(precision))
        .count()
}

const FOUR: [&str; 4] =
    ["ConvAsm1x1U", "ConvOclDirectFwd1x1", "ConvAsmBwdWrW1x1", "ConvAsmBwdWrW3x3"];

fn counts(d: &Database) -> Vec<usize> {
    FOUR.iter().flat_map(|s| ["FP32", "FP16"].map(|p| count(d, s, p))).collect()
}

/// Rows of the four kernels that were left out.
fn refused(d: &Database) -> Vec<&str> {
    d.bad
        .iter()
        .map(|b| b.what.as_str())
        .filter(|w| FOUR.iter().any(|s| w.starts_with(&format!("{s} "))))
        .collect()
}

#[test]
fn every_row_of_gfx900_2_0_0_is_legal_and_in_the_tuner_space() {
    let Some(path) = shared("gfx900_56-2.0.0.cd.pdb.txt.gz") else { return };
    let d = read(&path, None).unwrap();
    assert_eq!(counts(&d), [7490, 7390, 7587, 7520, 3544, 3699, 1161, 874]);
    assert_eq!(d.bad, []);
    let test = |split: Split| -> Vec<usize> {
        let rows = |s: &str, p: &str| {
            let of = |e: &&Example| e.problem.solver == s && e.problem.word("precision") == Some(p);
            d.examples.iter().filter(of).filter(|e| split.part(&e.problem) == Part::Test).count()
        };
        FOUR.iter().flat_map(|s| ["FP32", "FP16"].map(|p| rows(s, p))).collect()
    };
    assert_eq!(test(Split::Random), [727, 761, 737, 776, 361, 397, 116, 74]);
    assert_eq!(test(Split::Layer), [783, 801, 792, 810, 378, 402, 104, 85]);
    let rows = spaces(&d);
    assert_eq!(rows.iter().map(|r| r.outside).collect::<Vec<_>>(), [0; 8]);
    // Counted by a program of its own, written from the same words.
    assert_eq!((rows[2].twins, rows[3].twins), (3981, 3204));
    let sizes: Vec<(usize, usize)> = rows.iter().map(|r| (r.median, r.most)).collect();
    assert_eq!(sizes[2..6], [(37, 73), (67, 73), (3872, 3872), (3872, 3872)]);
    assert_eq!((sizes[0].1, sizes[1].1, sizes[6].0, sizes[7].1), (9348, 1971, 760, 992));
}

#[test]
fn gfx906_2_0_0_has_its_known_oddities_and_no_other() {
    let Some(path) = shared("gfx906_60-2.0.0.cd.pdb.txt.gz") else { return };
    let d = read(&path, None).unwrap();
    // Two rows of ConvOclDirectFwd1x1 hold the search's unset start.
    let unset = refused(&d).iter().filter(|w| w.contains("16,16,16,16,1,1,2,3,1")).count();
    assert_eq!(unset, 2);
    assert_eq!(refused(&d).iter().filter(|w| w.contains("values here")).count(), 124);
    assert_eq!(refused(&d).len(), 126, "{:?}", d.bad);
    assert_eq!(
        counts(&d).iter().sum::<usize>(),
        7500 + 6885 + 7668 + 6977 + 3970 + 3758 + 1170 + 846 - 2
    );
    // 0.8 % of ConvAsmBwdWrW3x3 FP32 limit their waves, which the tuner never tries.
    let limited =
        d.examples.iter().filter(|e| e.problem.solver == FOUR[3] && e.values[0] > 0).count();
    let outside: usize = spaces(&d).iter().map(|r| r.outside).sum();
    assert_eq!(outside, limited);
}

#[test]
fn the_sqlite_database_reads_and_its_plain_rows_are_legal() {
    let Some(path) = shared("gfx900_56-HEAD.db.bz2") else { return };
    let d = read(&path, None).unwrap();
    println!(
        "{} examples, {} bad, {} assumed: {:?}",
        d.examples.len(),
        d.bad.len(),
        d.assumed,
        d.counts()
    );
    assert_eq!(d.examples.len() + d.bad.len(), 85_572);
    // All three have a stride of 2 backwards, where the size of the output had to be assumed.
    assert_eq!(refused(&d).len(), 3, "{:?}", d.bad);
    assert_eq!(counts(&d), [8928, 8215, 9185, 8397 - 1, 4600, 4094, 1391 - 1, 938]);
    assert_eq!(count(&d, FOUR[1], "BF16"), 2722 - 1);
    // The others are of solvers and problems without rules here, with filters larger than inputs.
    assert_eq!(d.bad.len(), 17);
}

/// The tuner spaces of a row's problems.
struct Spaces {
    /// Sizes.
    median: usize,
    most: usize,
    /// Examples that are outside.
    outside: usize,
    /// Examples with another candidate that is the same kernel.
    twins: usize,
}

/// The spaces of each row of the table; `most` is the 90th percentile. Of ConvAsm1x1U, whose spaces
/// cost milliseconds each, every seventh problem.
fn spaces(d: &Database) -> Vec<Spaces> {
    let mut out = Vec::new();
    for solver in FOUR {
        let f = family(solver).unwrap();
        for precision in ["FP32", "FP16"] {
            let (mut sizes, mut times, mut outside, mut twins) = (Vec::new(), Vec::new(), 0, 0);
            let of = |e: &&Example| {
                e.problem.solver == solver && e.problem.word("precision") == Some(precision)
            };
            let step = if solver == "ConvAsm1x1U" { 7 } else { 1 };
            for e in d.examples.iter().filter(of).step_by(step) {
                let instance = f.instance(&e.problem).unwrap();
                let began = Instant::now();
                let c = instance.candidates();
                times.push(began.elapsed());
                sizes.push(c.len());
                match f.positions(&e.values).and_then(|p| c.find(&p)) {
                    None => outside += 1,
                    Some(at) if solver == FOUR[1] => {
                        let mine = instance.kernel(c.row(at));
                        twins += usize::from(
                            (0..c.len()).any(|i| i != at && instance.kernel(c.row(i)) == mine),
                        );
                    }
                    Some(_) => {}
                }
            }
            sizes.sort_unstable();
            times.sort_unstable();
            let n = sizes.len();
            let (median, most) = (sizes[n / 2], sizes[n * 9 / 10]);
            println!(
                "{solver} {precision}: {n} spaces of {median} to {most}, made in {:?} to {:?}, at \
                 worst {:?}; {outside} outside, {twins} with twins",
                times[n / 2],
                times[n * 9 / 10],
                times[n - 1]
            );
            out.push(Spaces { median, most, outside, twins });
        }
    }
    out
}

#[test]
fn keys_read_and_write() {
    let keys = [
        KEY,
        "3-230-230-7x7-64-112-112-8-0x0-2x2-1x1-0-NCHW-FP32-W_g3",
        "64-16-56-56-3x3x3-32-16-56-56-8-1x1x1-1x1x1-1x1x1-0-NCDHW-BF16-B",
        "576-4-4-1x1-192-4-4-8-1x1-2x2-3x3-0-NHWC-NCHW-NCHW-FP32-F",
    ];
    for key in keys {
        assert_eq!(Convolution::parse(key).unwrap().key(), key);
    }
    for bad in [
        "",
        "-",
        "1x1",
        "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16",
        "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-Q",
    ] {
        assert!(Convolution::parse(bad).is_err(), "{bad}");
    }
    for (from, to) in [
        ("256-", "0-"),
        ("-64-", "-6 4-"),
        ("0x0", "0x-1"),
        ("1x1-128", "1x1x1-128"),
        ("F", "F_g0"),
        ("56", "99999999999"),
    ] {
        assert!(Convolution::parse(&KEY.replacen(from, to, 1)).is_err(), "{from} {to}");
    }
    let p = problem(KEY);
    assert_eq!(p.layer, "256-56-56-128-1-1-0-0-1-1-1-1-1");
    assert_eq!(
        (p.number("a"), p.number("ow"), p.number("gfx"), p.number("cu")),
        (Some(256), Some(56), Some(0x906), Some(60))
    );
    assert_eq!(
        Convolution::parse("128-28-28-1x1-256-55-56-8-0x0-2x2-1x1-0-NCHW-FP32-W").unwrap().layer(),
        "256-55-56-128-1-1-0-0-2-2-1-1-1"
    );
}

fn problem(key: &str) -> Problem {
    Convolution::parse(key).unwrap().problem("ConvAsm1x1U", &Device::parse("gfx906_60").unwrap())
}

#[test]
fn devices_by_name() {
    let name = |t: &str| Device::parse(t).map(|d| (d.name, d.gfx, d.units));
    assert_eq!(name("gfx906_60"), Ok(("gfx906_60".into(), 0x906, Some(60))));
    assert_eq!(name("gfx90a6e"), Ok(("gfx90a_110".into(), 0x90a, Some(110))));
    assert_eq!(name("gfx1030"), Ok(("gfx1030".into(), 0x1030, None)));
    assert_eq!(
        Device::of_file(Path::new("x/gfx900_56-2.0.0.cd.pdb.txt.gz")).unwrap().name,
        "gfx900_56"
    );
    assert_eq!(Device::of_file(Path::new("gfx90878.HIP.3_5.updb.txt")).unwrap().name, "gfx908_120");
    assert_eq!(Device::of_file(Path::new("gfx906_absent.txt")).unwrap().name, "gfx906");
    assert_eq!(Device::of_file(Path::new("my_gfx906.txt")), None);
    for bad in ["", "gfx", "gfx9", "gfx906_", "gfx906_x", "mi50", "gfx906_60_1", "gfx90a6e_3"] {
        assert!(Device::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn driver_lines() {
    let log = "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convfp16 -n 64 -c 256 \
               -H 56 -W 56 -k 128 -y 1 -x 1 -p 0 -q 0 \
               -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1";
    assert_eq!(driver::read(log).unwrap().iter().map(Convolution::key).collect::<Vec<_>>(), [KEY]);
    let keys = |line: &str| {
        driver::read(line).map(|all| all.iter().map(Convolution::key).collect::<Vec<_>>())
    };
    assert_eq!(
        keys("conv --batchsize 8 -c 3 -H 224 -W 224 -k 64 -y 7 -x 7 -p 3 -q 3 -u 2 -v 2 -F 0")
            .unwrap(),
        [
            "3-224-224-7x7-64-112-112-8-3x3-2x2-1x1-0-NCHW-FP32-F",
            "64-112-112-7x7-3-224-224-8-3x3-2x2-1x1-0-NCHW-FP32-B",
            "64-112-112-7x7-3-224-224-8-3x3-2x2-1x1-0-NCHW-FP32-W"
        ]
    );
    assert_eq!(keys("convbfp16 -F 6 -g 4 -c 8 -k 8 -y 3 -p 1 -q 1").unwrap().len(), 2);
    assert_eq!(
        keys("MIOpenDriver conv --spatial_dim 3 -! 8 -H 8 -W 8 -F 1 -I NCDHW").unwrap(),
        ["3-8-8-8-3x3x3-32-6-6-6-100-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F"]
    );
    assert_eq!(
        keys("conv -I NHWC -O NHWC -f NHWC -F 1").unwrap(),
        ["3-32-32-3x3-32-30-30-100-0x0-1x1-1x1-0-NHWC-FP32-F"]
    );
    let wrong = [
        "pool -n 1",
        "conv -n",
        "conv -n x",
        "conv -q -1",
        "conv -Q 3",
        "conv -m trans",
        "conv -z same",
        "conv -H 1",
        "conv -g 2",
        "conv -F 8",
        "conv -n 0",
    ];
    for bad in wrong {
        assert!(driver::read(bad).is_err(), "{bad}");
    }
    assert!(
        driver::is_driver_line(log)
            && driver::is_driver_line("conv -n 1")
            && !driver::is_driver_line(KEY)
    );
}

#[test]
fn rows_that_are_none_are_reported_with_their_line() {
    let text = format!(
        "{KEY}=ConvAsm1x1U:1,8,2,16,1,2,1,1;ConvAsm1x1U:1,8;Other:1,2\n\nnonsense\n{KEY}x=A:1\n\
         {}=ConvAsm1x1U:9,8,2,16,1,2,1,1;B:1,x;C;Other:1,2;Other:3\n",
        KEY.replace("256-", "128-")
    );
    let d = check(text::read("t", &text, &Device::parse("gfx900").unwrap()).unwrap()).unwrap();
    assert_eq!(d.counts().into_iter().collect::<Vec<_>>(), [("ConvAsm1x1U", 1), ("Other", 2)]);
    let bad: Vec<(u64, &str)> =
        d.bad.iter().map(|b| (b.row, b.what.split(' ').next().unwrap())).collect();
    assert_eq!(
        bad,
        [
            (1, "ConvAsm1x1U"),
            (3, "`nonsense`"),
            (4, "`FP16-Fx`"),
            (5, "`x`"),
            (5, "`C`"),
            (5, "ConvAsm1x1U"),
            (5, "Other")
        ]
        .map(|(r, w)| match w {
            "`FP16-Fx`" => (r, "`Fx`"),
            "`x`" => (r, "`1,x`"),
            w => (r, w),
        })
    );
    assert!(text::read("t", "{\"json\": 1}\n", &Device::parse("gfx900").unwrap()).is_err());
}

#[test]
fn text_databases_are_merged_by_key_and_solver() {
    let row = |k: &str, s: &str, v: &str| (k.to_string(), s.to_string(), v.to_string());
    let old = "K1=A:1,2;B:3\n# a note\nK2=A:4";
    let new = text::merge(
        old,
        &[
            row("K1", "A", "9"),
            row("K3", "C", "7"),
            row("K3", "D", "8"),
            row("K3", "C", "6"),
            row("K2", "B", "5"),
        ],
    );
    assert_eq!(new, "K1=B:3;A:9\n# a note\nK2=A:4;B:5\nK3=D:8;C:6\n");
    assert_eq!(text::merge(&new, &[row("K3", "D", "8")]), new.replace("D:8;C:6", "C:6;D:8"));
}

#[test]
fn sqlite_databases_are_written_and_read() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("gfx906_60.db");
    let c = |key: &str| Convolution::parse(key).unwrap();
    let deep = "64-16-56-56-3x3x3-32-16-56-56-8-1x1x1-1x1x1-1x1x1-0-NCDHW-BF16-B_g2";
    let rows = [
        (c(KEY), "ConvAsm1x1U".to_string(), "1,8,2,16,1,2,1,1".to_string()),
        (c(deep), "Other".into(), "1,2".into()),
    ];
    sqlite::write(&path, &rows).unwrap();
    let d = read(&path, None).unwrap();
    assert_eq!(d.examples.iter().map(|e| e.problem.key.as_str()).collect::<Vec<_>>(), [KEY, deep]);
    assert_eq!(d.examples[0].problem.device, "gfx906_60");
    // Again, with one replaced: nothing is doubled and the rest stays.
    sqlite::write(&path, &[(c(KEY), "ConvAsm1x1U".into(), "2,8,4,16,1,2,1,1".into())]).unwrap();
    let d = read(&path, None).unwrap();
    assert_eq!((d.examples.len(), d.examples[0].values[0]), (2, 2));

    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let e = read(&path, None).unwrap_err().to_string();
    assert!(e.contains("another program is writing"), "{e}");
    drop(writer);

    let bytes = std::fs::read(&path).unwrap();
    let cut = place.path().join("gfx906_cut.db");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    assert!(read(&cut, Some("gfx906")).unwrap_err().to_string().contains("damaged or cut short"));
    let other = place.path().join("gfx906.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(read(&other, None).unwrap_err().to_string().contains("none of MIOpen's"));
}

#[test]
fn archives_that_are_cut_short_are_refused() {
    use std::io::Write;
    let text = format!("{KEY}=ConvAsm1x1U:1,8,2,16,1,2,1,1\n").repeat(1000);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), Default::default());
    gz.write_all(text.as_bytes()).unwrap();
    let mut bz = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    bz.write_all(text.as_bytes()).unwrap();
    for packed in [gz.finish().unwrap(), bz.finish().unwrap()] {
        let (form, out) = unpack("t", packed.clone()).unwrap();
        assert_eq!((form, out.len()), (Form::Text, text.len()));
        let e = unpack("t", packed[..packed.len() - 9].to_vec()).unwrap_err().to_string();
        assert!(e.contains("damaged or cut short"), "{e}");
    }
}

#[test]
fn views_in_the_place_of_tables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.db");
    let c = rusqlite::Connection::open(&path).unwrap();
    c.execute_batch(
        "CREATE TABLE config (id INTEGER PRIMARY KEY, layout);
         CREATE VIEW perf_db AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
         SELECT x AS id, 'ConvAsm1x1U' AS solver, 1 AS config, '1,2' AS params FROM n;",
    )
    .unwrap();
    drop(c);
    let start = Instant::now();
    let e = read(&path, Some("gfx906_60")).unwrap_err().to_string();
    assert!(e.contains("a view `perf_db`"), "{e}");
    assert!(start.elapsed().as_secs_f64() < 10.0);
    // The same from memory, unpacked.
    let bytes = std::fs::read(&path).unwrap();
    let packed = folder.path().join("d.db.gz");
    std::fs::write(&packed, crate::recording::gzip(&bytes).unwrap()).unwrap();
    let e = read(&packed, Some("gfx906_60")).unwrap_err().to_string();
    assert!(e.contains("a view `perf_db`"), "{e}");
}
