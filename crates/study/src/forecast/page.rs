//! An evaluation of predictors as one HTML page: the paper's tables with ours beside them, learning
//! curves, reliability. Input: an evaluation and timings; output: the text of the page, which has
//! no script, loads nothing from elsewhere, and suits light and dark screens.

use super::evaluate::Row;
use super::{AT, Evaluation, Published, ROWS, RowReport, Timing, pooled, published};
use squall::report::STYLE;
use squall::report::svg::{escape, open, short};
use squall_predict::Epoch;
use squall_predict::metrics::{Reliability, Share};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The origin of a page's numbers, as the page states it.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The name of what was evaluated.
    pub title: String,
    /// The split or fold, and which rows.
    pub held: String,
    /// Seeds of training.
    pub seeds: Vec<u64>,
    /// The digest that identifies the data.
    pub data: String,
}

/// The whole page.
pub fn page(about: &About, e: &Evaluation, timings: &[Timing]) -> String {
    let mut p = String::with_capacity(64 << 10);
    let seeds: Vec<String> = about.seeds.iter().map(u64::to_string).collect();
    let _ = write!(
        p,
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width, initial-scale=1'>\
         <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\
         <title>Squall forecast: {0}</title>\n<style>{1}</style></head>\n<body><main>\n<h1>{0}</h1>\
         <p class='sub'>{2}; seed {3}; data <span class='mono'>{4}</span></p>\n",
        escape(&about.title),
        STYLE,
        escape(&about.held),
        seeds.join(", "),
        escape(&about.data)
    );
    let models = models(e);
    tiles(&mut p, e, &models);
    section(&mut p, "Table II: problems with a tuned vector", SAMPLES, &samples(e));
    section(
        &mut p,
        "Table III: the tuned vector is the first prediction (P@1, %)",
        FIRST,
        &matrix(e, &models, &[0]),
    );
    section(
        &mut p,
        "Table IV: it is among the first 10 and 100 (P@10 / P@100, %)",
        AMONG,
        &matrix(e, &models, &[1, 4]),
    );
    section(&mut p, "All figures", DETAILS, &details(&e.rows));
    if !e.curves.is_empty() {
        let figures: String = e.curves.iter().map(|(name, curve)| figure(name, curve)).collect();
        let note = "Loss over epochs, as in the paper's Figures 8-11: solid while learning, \
                    dashed on validation; the dot is the epoch that was kept.";
        section(&mut p, "Learning curves", note, &format!("<div class='curves'>{figures}</div>"));
    }
    let mut diagrams = String::new();
    for m in &models {
        let lines = pooled(e.rows.iter().filter(|r| r.method == *m));
        diagrams += &format!(
            "<figure>{}<figcaption>{}</figcaption></figure>",
            reliability(m, &lines),
            escape(m)
        );
    }
    let note = "First predictions by the probability that they got: how often they were right, \
                with Wilson's interval at 95 %. An honest model lies on the diagonal.";
    section(&mut p, "Reliability", note, &format!("<div class='curves'>{diagrams}</div>"));
    if !timings.is_empty() {
        section(
            &mut p,
            "Time of a prediction",
            "The best 100 of the whole tuner space, on one thread; each problem's best of three.",
            &times(timings),
        );
    }
    let _ = write!(
        p,
        "<footer>Made by Squall {}.</footer>\n</main></body></html>\n",
        env!("CARGO_PKG_VERSION")
    );
    p
}

/// The table of times.
fn times(timings: &[Timing]) -> String {
    let mut t = String::from(
        "<table><thead><tr><th class='l'>solver</th><th>problems</th><th>median</th><th>90 \
         %</th><th>worst</th></tr></thead><tbody>",
    );
    for x in timings {
        let _ = write!(
            t,
            "<tr><td class='l'>{}</td><td>{}</td><td>{:.2} ms</td><td>{:.2} ms</td><td>{:.2} \
             ms</td></tr>",
            escape(&x.solver),
            x.problems,
            x.median,
            x.ninety,
            x.worst
        );
    }
    t + "</tbody></table>"
}

const SAMPLES: &str = "The paper's databases were not published, and no public version of MIOpen \
                       has its rows: its figures are for other problems than ours.";
const FIRST: &str = "The paper's is Hybrid-2, its best. Ours with Wilson's interval at 95 %.";
const AMONG: &str = "The paper's are Hybrid-2 with a plain beam search and with its constrained \
                     one (OPCS). Ours score the whole tuner space, but for encoder-decoder and \
                     attention, which search it with a beam of 100.";
const DETAILS: &str = "By kernel: vectors that compile to the same code count as one. NLL: mean \
                       negative log-likelihood. Calibration: mean difference between the \
                       probability given and the share that was right.";

fn section(p: &mut String, title: &str, note: &str, body: &str) {
    let _ = writeln!(
        p,
        "<section><h2>{}</h2><p class='sub'>{}</p>{body}</section>",
        escape(title),
        escape(note)
    );
}

/// Models in the order in which they come.
fn models(e: &Evaluation) -> Vec<&'static str> {
    let mut all: Vec<&'static str> = Vec::new();
    for r in &e.rows {
        if !all.contains(&r.method) {
            all.push(r.method);
        }
    }
    all
}

/// Rows of a table, the paper's order first.
fn keys(e: &Evaluation) -> Vec<Row<'_>> {
    let place = |s: &str, p: &str| ROWS.iter().position(|r| *r == (s, p)).unwrap_or(ROWS.len());
    let mut all: Vec<Row<'_>> = Vec::new();
    for r in &e.rows {
        if !all.contains(&r.row()) {
            all.push(r.row());
        }
    }
    all.sort_by_key(|r| (place(r.solver, r.precision), *r));
    all
}

fn find<'a>(e: &'a Evaluation, row: Row<'_>, model: &str) -> Option<&'a RowReport> {
    e.rows.iter().find(|r| r.row() == row && r.method == model)
}

fn tiles(p: &mut String, e: &Evaluation, models: &[&str]) {
    let Some(first) = models.first() else { return };
    let rows: Vec<&RowReport> = e.rows.iter().filter(|r| r.method == *first).collect();
    let mut all = String::new();
    for (i, k) in [(0, 1), (1, 10), (4, 100)] {
        let mean = rows.iter().map(|r| r.at[i].value()).sum::<f64>() / rows.len() as f64;
        let _ = write!(
            all,
            "<div class='tile'><b>{:.1} %</b><span>{first}: P@{k}, mean of {} rows</span></div>",
            100.0 * mean,
            rows.len()
        );
    }
    let problems: usize = rows.iter().map(|r| r.at[0].of).sum();
    let _ = write!(
        all,
        "<div class='tile'><b>{problems}</b><span>problems that were held out</span></div>"
    );
    let _ = writeln!(p, "<div class='tiles'>{all}</div>");
}

fn samples(e: &Evaluation) -> String {
    let mut t = String::from(
        "<table><thead><tr><th class='l'>solver</th><th class='l'>device</th><th \
         class='l'>precision</th><th>paper</th><th>here</th><th>asked for</th></tr></thead><tbody>",
    );
    for key in keys(e) {
        let Some(r) = e.rows.iter().find(|r| r.row() == key) else { continue };
        let theirs = published(key.solver, key.precision);
        let theirs = theirs.map_or(DASH.into(), |x| x.samples.to_string());
        let _ = write!(
            t,
            "<tr><td class='l'>{}</td><td class='l'>{}</td><td \
             class='l'>{}</td><td>{theirs}</td><td>{}</td><td>{}</td></tr>",
            escape(key.solver),
            escape(key.device),
            escape(key.precision),
            r.samples,
            r.at[0].of
        );
    }
    t + "</tbody></table>"
}

const DASH: &str = "\u{2013}";

/// The paper's cells of a row, for the places in [`AT`] that a table shows.
fn theirs(x: Option<Published>, places: &[usize]) -> Vec<String> {
    match places {
        [0] => vec![x.map_or(DASH.into(), |x| format!("{:.1}", x.top_1))],
        _ => {
            let pair = |p: (f64, f64)| format!("{:.1} / {:.1}", p.0, p.1);
            vec![
                x.map_or(DASH.into(), |x| pair(x.beam)),
                x.and_then(|x| x.opcs).map_or(DASH.into(), pair),
            ]
        }
    }
}

/// A line for each row, a column for each model.
fn matrix(e: &Evaluation, models: &[&'static str], places: &[usize]) -> String {
    let heads = if places == [0] { vec!["paper"] } else { vec!["paper, beam", "paper, OPCS"] };
    let mut t = String::from("<table><thead><tr><th class='l'>row</th>");
    heads.iter().for_each(|h| {
        let _ = write!(t, "<th>{h}</th>");
    });
    models.iter().for_each(|m| {
        let _ = write!(t, "<th>{}</th>", escape(m));
    });
    t += "</tr></thead><tbody>";
    let mut sums: BTreeMap<&str, (Vec<f64>, usize)> = BTreeMap::new();
    let all = keys(e);
    for key in &all {
        let x = published(key.solver, key.precision);
        let _ = write!(
            t,
            "<tr><td class='l'>{} {} {}</td>",
            escape(key.solver),
            escape(key.device),
            escape(key.precision)
        );
        theirs(x, places).iter().for_each(|c| {
            let _ = write!(t, "<td>{c}</td>");
        });
        for m in models {
            let Some(r) = find(e, *key, m) else {
                let _ = write!(t, "<td>{DASH}</td>");
                continue;
            };
            let cells: Vec<String> =
                places.iter().map(|&i| format!("{:.1}", 100.0 * r.at[i].value())).collect();
            let small: Vec<String> = places.iter().map(|&i| interval(r.at[i])).collect();
            let _ =
                write!(t, "<td>{}<br><small>{}</small></td>", cells.join(" / "), small.join(" / "));
            let s = sums.entry(m).or_insert_with(|| (vec![0.0; places.len()], 0));
            s.1 += 1;
            places.iter().zip(&mut s.0).for_each(|(&i, sum)| *sum += r.at[i].value());
        }
        t += "</tr>";
    }
    t += "</tbody>";
    if all.len() > 1 {
        let _ = write!(
            t,
            "<tfoot><tr><td class='l'>mean</td>{}<td></td>",
            "<td></td>".repeat(heads.len())
        );
        for m in models {
            let cell = sums.get(m).map_or(DASH.into(), |(sum, n)| {
                let mean: Vec<String> =
                    sum.iter().map(|s| format!("{:.1}", 100.0 * s / *n as f64)).collect();
                let of =
                    if *n == all.len() { String::new() } else { format!(" <small>of {n}</small>") };
                mean.join(" / ") + &of
            });
            let _ = write!(t, "<td>{cell}</td>");
        }
        t += "</tr></tfoot>";
    }
    t + "</table>"
}

fn interval(s: Share) -> String {
    let (low, high) = s.interval();
    format!("{:.1}\u{2013}{:.1}", 100.0 * low, 100.0 * high)
}

fn details(rows: &[RowReport]) -> String {
    let mut t = String::from("<table><thead><tr><th class='l'>row</th><th class='l'>model</th>");
    AT.iter().for_each(|k| {
        let _ = write!(t, "<th>P@{k}</th>");
    });
    t += "<th>by kernel at 1 / 10</th><th>NLL</th><th>calibration</th></tr></thead><tbody>";
    for r in rows {
        let _ = write!(
            t,
            "<tr><td class='l'>{} {} {}</td><td class='l'>{}</td>",
            escape(&r.solver),
            escape(&r.device),
            escape(&r.precision),
            r.method
        );
        for (i, s) in r.at.iter().enumerate() {
            let spread = r
                .spread
                .as_ref()
                .map_or(String::new(), |d| format!(" <small>\u{b1} {:.1}</small>", 100.0 * d[i]));
            let _ = write!(t, "<td>{:.1}{spread}</td>", 100.0 * s.value());
        }
        let _ = write!(
            t,
            "<td>{:.1} / {:.1}</td><td>{:.3}</td><td>{:.3}</td></tr>",
            100.0 * r.kernel_at[0].value(),
            100.0 * r.kernel_at[1].value(),
            r.negative_log_likelihood,
            r.calibration_error
        );
    }
    t + "</tbody></table>"
}

/// A network's losses over its epochs.
fn figure(name: &str, curve: &[Epoch]) -> String {
    let (w, h, left, right, top, bottom) = (300.0, 150.0, 38.0, 10.0, 10.0, 22.0);
    let mut s = open(w, h, &format!("Loss over epochs of {name}"));
    let finite: Vec<f64> = curve
        .iter()
        .flat_map(|e| [e.train, e.validation])
        .filter(|x| x.is_finite() && *x > 0.0)
        .collect();
    let (low, high) =
        finite.iter().fold((f64::INFINITY, 0.0f64), |(a, b), x| (a.min(*x), b.max(*x)));
    if finite.is_empty() {
        let _ = write!(
            s,
            "<text class='axis' x='{}' y='{}' text-anchor='middle'>no epoch</text>",
            w / 2.0,
            h / 2.0
        );
        return format!("<figure>{s}</svg><figcaption>{}</figcaption></figure>", escape(name));
    }
    let span = (high - low).max(1e-9);
    let px = |i: usize| left + i as f64 / (curve.len().max(2) - 1) as f64 * (w - left - right);
    let py = |v: f64| h - bottom - (v - low) / span * (h - top - bottom);
    for k in 0..=2 {
        let v = low + span * f64::from(k) / 2.0;
        let _ = write!(
            s,
            "<line class='grid' x1='{left}' y1='{0:.1}' x2='{1}' y2='{0:.1}'/>",
            py(v),
            w - right
        );
        let _ = write!(
            s,
            "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>{}</text>",
            left - 5.0,
            py(v) + 4.0,
            short(v)
        );
    }
    let _ = write!(s, "<text class='tick' x='{left}' y='{}'>1</text>", h - 7.0);
    let _ = write!(
        s,
        "<text class='tick' x='{}' y='{}' text-anchor='end'>{} epochs</text>",
        w - right,
        h - 7.0,
        curve.len()
    );
    let path = |f: fn(&Epoch) -> f64| {
        let points = curve.iter().enumerate().filter(|(_, e)| f(e).is_finite() && f(e) > 0.0);
        points
            .enumerate()
            .map(|(n, (i, e))| {
                format!("{}{:.1} {:.1}", if n == 0 { "M" } else { "L" }, px(i), py(f(e)))
            })
            .collect::<String>()
    };
    let _ = write!(s, "<path class='curve' d='{}'/>", path(|e| e.train));
    let held = path(|e| e.validation);
    if !held.is_empty() {
        let _ = write!(s, "<path class='curve plainline' d='{held}'/>");
        let best = (0..curve.len())
            .min_by(|&a, &b| curve[a].validation.total_cmp(&curve[b].validation))
            .unwrap_or(0);
        let _ = write!(
            s,
            "<circle class='step' cx='{:.1}' cy='{:.1}' r='3'><title>epoch {}: \
             {:.3}</title></circle>",
            px(best),
            py(curve[best].validation),
            best + 1,
            curve[best].validation
        );
    }
    format!("<figure>{s}</svg><figcaption>{}</figcaption></figure>", escape(name))
}

/// Probability given against share that was right.
fn reliability(name: &str, lines: &[Reliability]) -> String {
    let (w, h, left, right, top, bottom) = (300.0, 240.0, 38.0, 10.0, 10.0, 36.0);
    let mut s = open(w, h, &format!("Reliability of {name}"));
    let px = |v: f64| left + v * (w - left - right);
    let py = |v: f64| h - bottom - v * (h - top - bottom);
    for k in 0..=4 {
        let v = f64::from(k) / 4.0;
        let _ = write!(
            s,
            "<line class='grid' x1='{left}' y1='{0:.1}' x2='{1}' y2='{0:.1}'/>",
            py(v),
            w - right
        );
        let _ = write!(
            s,
            "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>{:.0}</text>",
            left - 5.0,
            py(v) + 4.0,
            100.0 * v
        );
        let _ = write!(
            s,
            "<text class='tick' x='{:.1}' y='{}' text-anchor='middle'>{:.0}</text>",
            px(v),
            h - bottom + 14.0,
            100.0 * v
        );
    }
    let _ = write!(
        s,
        "<line class='cache' x1='{:.1}' y1='{:.1}' x2='{:.1}' y2='{:.1}'/>",
        px(0.0),
        py(0.0),
        px(1.0),
        py(1.0)
    );
    let _ = write!(
        s,
        "<text class='axis' x='{:.1}' y='{}' text-anchor='middle'>probability given, %</text>",
        px(0.5),
        h - 6.0
    );
    for l in lines {
        let (low, high) = l.observed.interval();
        let x = px(l.predicted);
        let _ = write!(
            s,
            "<line class='rise' x1='{x:.1}' y1='{:.1}' x2='{x:.1}' y2='{:.1}'/>",
            py(low),
            py(high)
        );
        let _ = write!(
            s,
            "<circle class='dot' cx='{x:.1}' cy='{:.1}' r='4.5'><title>given {:.1} %, right {:.1} \
             % of {}</title></circle>",
            py(l.observed.value()),
            100.0 * l.predicted,
            100.0 * l.observed.value(),
            l.observed.of
        );
    }
    s + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: &'static str) -> RowReport {
        let share = |hits| Share { hits, of: 40 };
        RowReport {
            solver: "ConvAsm1x1U".into(),
            device: "gfx900_56".into(),
            precision: "FP32".into(),
            method,
            samples: 400,
            at: vec![share(10), share(20), share(25), share(28), share(30)],
            spread: None,
            kernel_at: vec![share(10), share(20), share(25), share(28), share(30)],
            negative_log_likelihood: 2.5,
            calibration_error: 0.04,
            reliability: vec![Reliability {
                from: 0.2,
                to: 0.3,
                predicted: 0.25,
                observed: share(10),
            }],
        }
    }

    #[test]
    fn a_page_holds_the_tables_and_escapes_what_it_is_given() {
        let curve =
            vec![Epoch { train: 4.0, validation: 3.5 }, Epoch { train: 3.0, validation: 3.2 }];
        let mut other = row("hybrid-2");
        other.precision = "FP16".into();
        let e = Evaluation {
            rows: vec![row("pair"), row("neighbours"), other],
            curves: vec![("<x> ranker 1".into(), curve)],
        };
        let about = About {
            title: "a & b".into(),
            held: "split random".into(),
            seeds: vec![1, 2],
            data: "d".into(),
        };
        let timing = Timing {
            solver: "ConvAsm1x1U".into(),
            problems: 40,
            median: 1.25,
            ninety: 2.0,
            worst: 3.0,
        };
        let p = page(&about, &e, &[timing]);
        for part in [
            "a &amp; b",
            "seed 1, 2",
            "Table II:",
            "Table III:",
            "Table IV:",
            "19.9 / 40.9",
            "25.0",
            "50.0 / 75.0",
            "1.25 ms",
            "&lt;x&gt; ranker 1",
        ] {
            assert!(p.contains(part), "{part} is missing");
        }
        assert!(
            !p.contains("<x>")
                && p.matches("<svg").count() == 4
                && p.matches("</svg>").count() == 4
        );
        assert_eq!(p.matches("<tr>").count(), p.matches("</tr>").count());
        // Nothing is divided by nothing.
        let empty = page(&About::default(), &Evaluation::default(), &[]);
        assert!(!empty.contains("NaN"));
        let one = Evaluation { rows: vec![row("pair")], curves: vec![("c".into(), Vec::new())] };
        assert!(!page(&about, &one, &[]).contains("NaN"));
    }
}
