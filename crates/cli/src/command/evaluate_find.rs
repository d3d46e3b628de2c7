//! `squall evaluate` of a chooser of MIOpen's solvers: prints how good its answers are for problems
//! that it did not learn from, beside simple rules, nearest neighbours and TunaNet (MIOpen's own
//! network). The study is `squall_study::find`.

use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::terminal::{note, say, table};
use serde_json::{Value, json};
use squall::files::put;
use squall::find::load;
use squall_study::find::{FindRow, FindStudy, Network, evaluate, page};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The command's options that concern a chooser.
pub struct Asked<'a> {
    /// The store.
    pub store: &'a Path,
    /// Only this GPU.
    pub device: Option<&'a str>,
    /// The folder of TunaNet's files.
    pub tunanet: Option<&'a Path>,
    /// Problems of a part, at most.
    pub most: Option<u32>,
    /// The page.
    pub html: Option<&'a PathBuf>,
    /// Whether JSON is printed.
    pub json: bool,
}

/// Runs it.
pub fn run(a: &Asked<'_>, path: &Path) -> Result<u8, Failure> {
    let stop = interruptible()?;
    let chooser = load(path)?;
    let networks = match a.tunanet {
        Some(folder) => Network::read_all(folder).map_err(|e| Failure::new(e.to_string(), None))?,
        None => Vec::new(),
    };
    for n in &networks {
        note(format_args!("TunaNet {}: its test vectors hold", n.name));
    }
    let study = FindStudy {
        device: a.device.map(String::from),
        networks,
        most: a.most.map(|n| n as usize),
    };
    let rows = evaluate(&chooser, a.store, &study, &mut |what| {
        note(what);
        !stop.load(Ordering::Relaxed)
    })?;
    let about = format!(
        "learned from {}; held out by the salt {}; left out whole: {}",
        chooser.info.learned.iter().map(|l| l.0.as_str()).collect::<Vec<_>>().join(", "),
        chooser.info.salt.as_ref().map_or("none".into(), |s| format!("`{s}`")),
        match chooser.info.left_out.as_slice() {
            [] => "none".into(),
            some => some.join(", "),
        }
    );
    if let Some(html) = a.html {
        put(html, page(&path.display().to_string(), &about, &rows).as_bytes())?;
        note(format_args!("page: {}", html.display()));
    }
    if a.json {
        let rows: Vec<Value> = rows.iter().map(row).collect();
        say(json!({"chooser": path, "about": about, "rows": rows}))?;
    } else {
        show(&rows)?;
        note(about);
    }
    Ok(if stop.load(Ordering::Relaxed) { 130 } else { 0 })
}

fn row(r: &FindRow) -> Value {
    let mut out = json!({
        "device": r.device, "part": r.part, "dimensions": r.dimensions,
        "precision": r.precision, "direction": r.direction.map(String::from),
        "method": r.method, "scores": r.scores,
    });
    if let Some(t) = &r.times {
        let (claimed, right) = t.calibration();
        out["times"] = json!({
            "error": t.error(), "best_error": t.best_error(), "inside": t.inside(),
            "claimed": claimed, "right": right,
        });
    }
    out
}

fn show(rows: &[FindRow]) -> Result<(), Failure> {
    let columns = [
        "GPU, part, dimensions",
        "who",
        "problems",
        "top-1",
        "5 %",
        "loss",
        "interval",
        "walk",
        "two",
        "covered",
        "times",
        "in range",
    ];
    let mut t = table(&columns);
    for r in rows {
        let s = &r.scores;
        let words = [r.precision.map(String::from), r.direction.map(String::from)];
        let words: Vec<String> =
            std::iter::once(r.method.clone()).chain(words.into_iter().flatten()).collect();
        let times = r.times.as_ref();
        t.add_row([
            format!("{} {} {}d", r.device, r.part, r.dimensions),
            words.join(", "),
            s.problems.to_string(),
            format!("{:.1}", 100.0 * s.top1),
            format!("{:.1}", 100.0 * s.within5),
            format!("{:.4}", s.strict),
            format!("{:.3}-{:.3}", s.interval.0, s.interval.1),
            format!("{:.4}", s.walk),
            format!("{:.4}", s.two),
            format!("{:.4}", s.coverage),
            times.map_or(String::new(), |t| format!("{:.3}", t.error())),
            times.map_or(String::new(), |t| format!("{:.1}", 100.0 * t.inside())),
        ]);
    }
    say(t)
}
