//! Hostile inputs of stores and databases: a store whose bytes are damaged or whose schema was
//! changed by SQL, and MIOpen's SQLite databases with strange tables. Each function puts the file
//! into the sandbox and returns the commands that read it. `input.rs` lists them.

use super::base::Base;
use super::sandbox::Sandbox;
use super::task::Task;
use rusqlite::Connection;
use squall_fuzz::{Draw, mutate};

/// The commands that read a stranger's store.
fn commands(draw: &mut Draw<'_>) -> Task {
    Task::of(match draw.below(6) {
        0 => &["records list --store s.squall"],
        1 => &["records show --store s.squall --json"],
        2 => &["records best --store s.squall --json"],
        3 => &["records export --store s.squall --output o.jsonl"],
        4 => &["records merge s.squall --store mine.squall", "records list --store mine.squall"],
        _ => &["records export --format t4 --store s.squall --output o.json"],
    })
}

/// A store with damage.
pub fn bytes(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    let whole = if draw.once_in(3) { &base.recorded } else { &base.store };
    sandbox.put("s.squall", &mutate(draw, whole));
    commands(draw)
}

/// SQL that changes a store: what its schema promises does not hold any more.
const CHANGES: &[(&str, bool)] = &[
    (
        "DROP TABLE record; CREATE VIEW record AS WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL \
         SELECT seq + 1 FROM n) SELECT seq, 'i' identity, 'trial' kind, 'a' task, 'a' name, 'a' \
         device, 'a' toolchain, 'a' tunable, 'a' configuration, 'measured' outcome, 1.0 time_ns, \
         1.0 \
         recorded, '' body FROM n",
        true,
    ),
    (
        "CREATE TRIGGER t AFTER INSERT ON record BEGIN INSERT INTO record SELECT * FROM record; \
        END",
        true,
    ),
    ("DROP TABLE example; CREATE VIEW example AS SELECT * FROM record, record, record", true),
    ("DROP TABLE record", true),
    ("DROP TABLE record; CREATE TABLE record (seq, body)", false),
    ("DROP TRIGGER record_is_never_changed; UPDATE record SET time_ns = -1, recorded = 'x'", false),
    ("DROP TRIGGER record_is_never_changed; UPDATE record SET time_ns = 9e999", false),
    ("DROP TRIGGER record_is_never_changed; UPDATE record SET body = '{}'", false),
    ("DROP TRIGGER record_is_never_changed; UPDATE record SET task = 'zz'", false),
    (
        "DROP TRIGGER record_is_never_changed; UPDATE record SET name = char(27) || ']0;x' || \
        char(7)",
        false,
    ),
    ("DROP TRIGGER record_is_never_changed; UPDATE record SET body = zeroblob(20000000)", false),
    ("PRAGMA user_version = 99", true),
    ("PRAGMA user_version = -1", false),
    ("PRAGMA application_id = 1", true),
    ("CREATE INDEX i ON record (abs(time_ns), substr(body, 1, 3))", false),
    (
        "CREATE TABLE big (x); INSERT INTO big SELECT value FROM json_each('[' || \
         rtrim(replace(hex(zeroblob(20000)), '00', '1,'), ',') || ']')",
        false,
    ),
    ("DROP TABLE example; CREATE VIRTUAL TABLE example USING fts5(solver, device)", true),
];

/// A store that a stranger changed by SQL.
pub fn sql(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    sandbox.put("s.squall", if draw.once_in(2) { &base.recorded } else { &base.store });
    let (change, is_foreign) = CHANGES[draw.below(CHANGES.len())];
    let done = Connection::open(sandbox.inside().join("s.squall")).and_then(|c| {
        c.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA writable_schema = ON")?;
        c.execute_batch(change)
    });
    sandbox.note(&format!("{change}: {done:?}\n"));
    commands(draw).fails_if(is_foreign && done.is_ok())
}

/// MIOpen's tables, or what looks like them.
pub fn miopen_sqlite(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Task {
    const COLUMNS: &[&str] = &[
        "layout",
        "data_type",
        "direction",
        "spatial_dim",
        "in_channels",
        "in_h",
        "in_w",
        "in_d",
        "fil_h",
        "fil_w",
        "fil_d",
        "out_channels",
        "batchsize",
        "pad_h",
        "pad_w",
        "pad_d",
        "conv_stride_h",
        "conv_stride_w",
        "conv_stride_d",
        "dilation_h",
        "dilation_w",
        "dilation_d",
        "bias",
        "group_count",
    ];
    let path = sandbox.inside().join("d.db");
    let is_view = draw.once_in(6);
    let fill = |draw: &mut Draw<'_>| -> rusqlite::Result<()> {
        let c = Connection::open(&path)?;
        c.execute_batch(&format!(
            "CREATE TABLE config (id INTEGER PRIMARY KEY, {})",
            COLUMNS.join(", ")
        ))?;
        for id in 0..1 + draw.below(5) {
            let value = |draw: &mut Draw<'_>, i: usize| match i {
                0 => "'NCHW'".to_string(),
                1 => format!("'{}'", draw.one(&["FP32", "FP16", "Q"])),
                2 => format!("'{}'", draw.one(&["F", "B", "W", "X"])),
                3 => draw.one(&["2", "3", "-1", "'x'"]).to_string(),
                _ => draw.extent().to_string(),
            };
            let values: Vec<String> = (0..COLUMNS.len()).map(|i| value(draw, i)).collect();
            c.execute_batch(&format!("INSERT INTO config VALUES ({id}, {})", values.join(", ")))?;
        }
        if is_view {
            return c.execute_batch(
                "CREATE VIEW perf_db AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 \
                FROM n) \
                 SELECT x AS id, 'ConvAsm1x1U' AS solver, 1 AS config, '1,2' AS params FROM n",
            );
        }
        c.execute_batch("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver, config, params)")?;
        for id in 0..draw.below(6) {
            let (solver, parameters) = (draw.name(), draw.number() + "," + &draw.number());
            c.execute(
                "INSERT INTO perf_db VALUES (?1, ?2, ?3, ?4)",
                (id as i64, solver, draw.below(6) as i64, parameters),
            )?;
        }
        Ok(())
    };
    let done = fill(draw);
    sandbox.note(&format!("made: {done:?}\n"));
    if !is_view && draw.once_in(3) {
        let whole = std::fs::read(&path).unwrap_or_default();
        sandbox.put("d.db", &mutate(draw, &whole));
    }
    let task = Task::of(&["import d.db --device gfx906_60 --store s.squall"]);
    task.fails_if(is_view && done.is_ok())
}
