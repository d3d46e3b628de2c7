//! Reads and writes MIOpen's SQLite databases: a table `config` of problems and a table `perf_db`
//! of serialised values. Output: the same rows as of text databases ([`Rows`](super::Rows)). The
//! size of a convolution's output is not stored, so it is computed from the other sizes; backwards
//! it may be ambiguous. A stranger's file is not trusted: no views, no triggers, and a bound on the
//! steps of each statement.

use super::{BadRow, Convolution, DatabaseError, Device, Rows, fault, parameters};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use squall_core::forecast::Example;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first bytes of every SQLite database.
pub const MAGIC: &[u8] = b"SQLite format 3\0";

/// Steps of SQLite's machine between two looks at the limit.
const SLICE: i32 = 100_000;
/// The steps that any statement may take, and those for each byte of the file.
const STEPS: (u64, u64) = (200_000_000, 200);

/// The time for which a lock of another process is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The schema as MIOpen creates it.
const CREATE: &str = "
CREATE TABLE IF NOT EXISTS `config` (`id` INTEGER PRIMARY KEY ASC,`layout` TEXT NOT \
NULL,`data_type` TEXT NOT NULL,
`direction` TEXT NOT NULL,`spatial_dim` INT NOT NULL,`in_channels` INT NOT NULL,`in_h` INT NOT \
NULL,`in_w` INT NOT NULL,
`in_d` INT NOT NULL,`fil_h` INT NOT NULL,`fil_w` INT NOT NULL,`fil_d` INT NOT NULL,`out_channels` \
INT NOT NULL,
`batchsize` INT NOT NULL,`pad_h` INT NOT NULL,`pad_w` INT NOT NULL,`pad_d` INT NOT \
NULL,`conv_stride_h` INT NOT NULL,
`conv_stride_w` INT NOT NULL,`conv_stride_d` INT NOT NULL,`dilation_h` INT NOT NULL,`dilation_w` \
INT NOT NULL,
`dilation_d` INT NOT NULL,`bias` INT NOT NULL,`group_count` INT NOT NULL);
CREATE TABLE IF NOT EXISTS `perf_db` (`id` INTEGER PRIMARY KEY ASC,`solver` TEXT NOT \
NULL,`config` INTEGER NOT NULL,
`params` TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS `idx_config` ON \
config(layout,data_type,direction,spatial_dim,in_channels,in_h,in_w,
in_d,fil_h,fil_w,fil_d,out_channels,batchsize,pad_h,pad_w,pad_d,conv_stride_h,conv_stride_w,\
conv_stride_d,\
dilation_h,
dilation_w,dilation_d,bias,group_count);
CREATE UNIQUE INDEX IF NOT EXISTS `idx_perf_db` ON perf_db(solver,config);";

/// The columns of `config` that identify the problem; of each axis height, width, depth.
const COLUMNS: &str = "layout, data_type, direction, spatial_dim, in_channels, in_h, in_w, in_d, \
                       fil_h, fil_w, fil_d, \
    out_channels, batchsize, pad_h, pad_w, pad_d, conv_stride_h, conv_stride_w, conv_stride_d, \
    dilation_h, dilation_w, \
    dilation_d, bias, group_count";

/// Reads a database file, which another process may be writing.
pub(super) fn read_file(name: &str, path: &Path, device: &Device) -> Result<Rows, DatabaseError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|e| explain(name, e))?;
    connection.busy_timeout(PATIENCE).map_err(|e| explain(name, e))?;
    let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    distrusted(name, connection, bytes, device)
}

/// Reads a database of a stranger: it runs nothing of theirs, and no statement for ever.
fn distrusted(
    name: &str,
    mut connection: Connection,
    bytes: u64,
    device: &Device,
) -> Result<Rows, DatabaseError> {
    let steps = distrust(&mut connection, bytes).map_err(|e| explain(name, e))?;
    if let Some(what) = foreign(&connection).map_err(|e| explain(name, e))? {
        return Err(fault(
            name,
            format!("this database holds {what}, whose SQL would run here"),
            "give one of MIOpen's performance databases, which hold tables alone",
        ));
    }
    steps.store(0, Ordering::Relaxed);
    read(&connection, device).map_err(|e| explain(name, e))
}

/// Trusts nothing in the schema and bounds the steps of a statement; the count of steps.
fn distrust(connection: &mut Connection, bytes: u64) -> rusqlite::Result<Arc<AtomicU64>> {
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let steps = Arc::new(AtomicU64::new(0));
    let (count, most) = (Arc::clone(&steps), STEPS.0.saturating_add(STEPS.1.saturating_mul(bytes)));
    let is_over = move || count.fetch_add(SLICE as u64, Ordering::Relaxed) > most;
    connection.progress_handler(SLICE, Some(is_over))?;
    Ok(steps)
}

/// What in the schema is no plain table or index: a view, a trigger, or a table that computes what
/// it holds.
fn foreign(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare("SELECT type, name, sql FROM sqlite_schema")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text = |i: usize| row.get::<_, Option<String>>(i).map(Option::unwrap_or_default);
        let (kind, name, sql) = (text(0)?, text(1)?, text(2)?.to_ascii_uppercase());
        let name = crate::error::shown(&name);
        let is_plain = sql.starts_with("CREATE TABLE")
            && !sql.contains("GENERATED")
            && !sql.contains(" AS (")
            && !sql.contains(" AS(");
        match kind.as_str() {
            "view" | "trigger" => return Ok(Some(format!("a {kind} `{name}`"))),
            "table" if !is_plain => return Ok(Some(format!("a table `{name}` that computes"))),
            _ => {}
        }
    }
    Ok(None)
}

/// Reads a database that was unpacked.
pub(super) fn read_bytes(name: &str, bytes: &[u8], device: &Device) -> Result<Rows, DatabaseError> {
    let open = || {
        let mut connection = Connection::open_in_memory()?;
        connection.deserialize_read_exact("main", bytes, bytes.len(), true)?;
        Ok(connection)
    };
    let connection = open().map_err(|e| explain(name, e))?;
    distrusted(name, connection, bytes.len() as u64, device)
}

fn read(connection: &Connection, device: &Device) -> rusqlite::Result<Rows> {
    let mut rows = Rows::default();
    let sql = format!(
        "SELECT p.id, p.solver, p.params, {COLUMNS} FROM perf_db p LEFT JOIN config c ON p.config \
         = c.id ORDER BY p.id"
    );
    let mut statement = connection.prepare(&sql)?;
    let mut all = statement.query([])?;
    while let Some(r) = all.next()? {
        let id: i64 = r.get(0)?;
        let read = || -> Result<(Example, bool), String> {
            let shape = |e: rusqlite::Error| {
                format!("its problem is missing or not as MIOpen writes it ({e})")
            };
            let word = |i: usize| r.get::<_, String>(i).map_err(shape);
            let number = |i: usize| r.get::<_, i64>(i).map_err(shape);
            let (solver, values) = (word(1)?, parameters(&word(2)?)?);
            let dimensions = number(6)?;
            if !(2..=3).contains(&dimensions) {
                return Err(format!("a convolution in {dimensions} dimensions is not read"));
            }
            // Height and width stand first, depth last.
            let axes = |i: usize| -> Result<Vec<i64>, String> {
                let mut v = vec![number(i)?, number(i + 1)?];
                if dimensions == 3 {
                    v.insert(0, number(i + 2)?);
                }
                Ok(v)
            };
            let direction = match word(5)?.as_str() {
                "F" => 'F',
                "B" => 'B',
                "W" => 'W',
                other => {
                    return Err(format!(
                        "`{}` is no direction (F, B or W)",
                        crate::error::shown(other)
                    ));
                }
            };
            let mut c = Convolution {
                a: number(7)?,
                input: axes(8)?,
                filter: axes(11)?,
                b: number(14)?,
                output: Vec::new(),
                n: number(15)?,
                padding: axes(16)?,
                stride: axes(19)?,
                dilation: axes(22)?,
                bias: number(25)?,
                layout: word(3)?,
                precision: word(4)?,
                direction,
                groups: number(26)?,
            };
            let least = |v: &[i64], least: i64| {
                v.iter().all(|&x| (least..=i64::from(i32::MAX)).contains(&x))
            };
            let sizes = [c.a, c.b, c.n, c.groups];
            let positive = [&sizes[..], &c.input, &c.filter, &c.stride, &c.dilation];
            if !positive.iter().all(|v| least(v, 1)) || !least(&c.padding, 0) {
                return Err("one of its problem's sizes is not positive".into());
            }
            let assumed = complete(&mut c)?;
            // Only what has a key can be told from others.
            let c = Convolution::parse(&c.key())?;
            Ok((Example { problem: c.problem(&solver, device), values }, assumed))
        };
        match read() {
            Ok((example, assumed)) => {
                rows.examples.push((id as u64, example));
                rows.assumed += u64::from(assumed);
            }
            Err(what) => rows.bad.push(BadRow { row: id as u64, what }),
        }
    }
    Ok(rows)
}

/// Finds the size of the output; whether more than one would do. Backwards, several sizes of the
/// forward input give the same forward output where there is a stride; the one that the stride
/// divides is taken.
fn complete(c: &mut Convolution) -> Result<bool, String> {
    let mut assumed = false;
    c.output = Vec::new();
    for i in 0..c.input.len() {
        let (size, pad, stride) = (c.input[i], c.padding[i], c.stride[i]);
        let reach = (c.filter[i] - 1) * c.dilation[i] + 1;
        let out = if c.direction == 'F' {
            (size + 2 * pad - reach).div_euclid(stride) + 1
        } else {
            let least = (size - 1) * stride + reach - 2 * pad;
            assumed |= stride > 1;
            least + (stride - least.rem_euclid(stride)) % stride
        };
        if out < 1 {
            return Err("its filter is larger than its input".into());
        }
        c.output.push(out);
    }
    Ok(assumed)
}

/// Adds or replaces rows in one transaction: all of them or none. The database is made if there is
/// none. `rows` are a problem, a solver and its serialised values.
pub fn write(path: &Path, rows: &[(Convolution, String, String)]) -> Result<(), DatabaseError> {
    let name = path.display().to_string();
    if let Some((c, ..)) = rows.iter().find(|(c, ..)| c.layout.contains('-')) {
        let remedy = "write these to a text database instead";
        return Err(fault(
            &name,
            format!("SQLite databases have no room for the three layouts {}", c.layout),
            remedy,
        ));
    }
    let run = || -> rusqlite::Result<()> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(CREATE)?;
        let marks: Vec<String> = (1..=24).map(|i| format!("?{i}")).collect();
        let equal: Vec<String> = COLUMNS
            .split(", ")
            .enumerate()
            .map(|(i, c)| format!("{} = ?{}", c.trim(), i + 1))
            .collect();
        let add = format!("INSERT OR IGNORE INTO config ({COLUMNS}) VALUES ({})", marks.join(", "));
        let find = format!("SELECT id FROM config WHERE {}", equal.join(" AND "));
        let set = "INSERT INTO perf_db (solver, config, params) VALUES (?1, ?2, ?3)
            ON CONFLICT (solver, config) DO UPDATE SET params = excluded.params";
        for (c, solver, values) in rows {
            let direction = c.direction.to_string();
            let dimensions = c.input.len() as i64;
            let mut p: Vec<&dyn rusqlite::ToSql> =
                vec![&c.layout, &c.precision, &direction, &dimensions, &c.a];
            let (none, one) = (0i64, 1i64);
            let axes = |v: &'_ [i64], flat: i64| {
                let depth = if v.len() == 3 { v[0] } else { flat };
                [v[v.len() - 2], v[v.len() - 1], depth]
            };
            let (input, filter, pads) =
                (axes(&c.input, one), axes(&c.filter, one), axes(&c.padding, none));
            // As the databases have it, a flat problem's stride and dilation in depth are 0.
            let (strides, dilations) = (axes(&c.stride, none), axes(&c.dilation, none));
            p.extend(input.iter().chain(&filter).map(|v| v as &dyn rusqlite::ToSql));
            p.extend([&c.b as &dyn rusqlite::ToSql, &c.n]);
            p.extend(
                pads.iter().chain(&strides).chain(&dilations).map(|v| v as &dyn rusqlite::ToSql),
            );
            p.extend([&c.bias as &dyn rusqlite::ToSql, &c.groups]);
            transaction.prepare_cached(&add)?.execute(&p[..])?;
            let id: i64 = transaction.prepare_cached(&find)?.query_row(&p[..], |r| r.get(0))?;
            transaction.prepare_cached(set)?.execute((solver, id, values))?;
        }
        transaction.commit()
    };
    run().map_err(|e| explain(&name, e))
}

/// What SQLite complains about, for people.
fn explain(name: &str, e: rusqlite::Error) -> DatabaseError {
    match e.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => fault(
            name,
            "another program is writing this database",
            "wait until it has finished and try again",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => fault(
            name,
            "this database cannot be written: the file or its folder is read-only",
            "give a file that you may write",
        ),
        Some(ErrorCode::CannotOpen) => fault(
            name,
            "this database cannot be opened",
            "check that it or its folder exists and that you may read and write there",
        ),
        Some(ErrorCode::OperationInterrupted) => fault(
            name,
            "reading this database takes more steps than its size explains",
            "give one of MIOpen's performance databases",
        ),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            fault(name, format!("this database is damaged or cut short ({e})"), "fetch it again")
        }
        _ => {
            let message = e.to_string();
            if message.contains("no such table") || message.contains("no such column") {
                let remedy = "give one of MIOpen's performance databases";
                return fault(
                    name,
                    format!("this is a SQLite database, but none of MIOpen's ({message})"),
                    remedy,
                );
            }
            fault(name, message, "give one of MIOpen's performance databases")
        }
    }
}
