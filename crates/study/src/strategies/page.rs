//! A comparison of search strategies as one HTML page: curves of the best time by the number of
//! trials, and a table of scores. Input: the runs of `run.rs`; output: the text of the page, which
//! has no script and loads nothing from elsewhere.

use super::Ablation;
use squall::report::STYLE;
use squall::report::svg::{Log, escape, open, short};
use std::fmt::Write;

/// A colour for each strategy, readable on light and dark.
const COLOURS: [&str; 8] =
    ["#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#e67700", "#1971c2", "#868e96"];

fn colour(strategy: usize) -> &'static str {
    COLOURS[strategy % COLOURS.len()]
}

/// The whole page.
pub fn page(a: &Ablation) -> String {
    let mut p = format!(
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width, initial-scale=1'>\
         <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\
         <title>Squall: search strategies</title>\n<style>{}</style></head>\n<body><main>\n\
         <h1>Search strategies on real kernels</h1>\
         <p class='sub'>{}</p>\n",
        STYLE,
        escape(&subtitle(a))
    );
    let note = "<p class='sub'>Best known time over best time found, geometric mean over tasks \
                and seeds; 1 is the best that any run found. \
                Lines: after each trial in the runs of the largest budget. Dots: the runs of each \
                budget.</p>";
    let _ = writeln!(
        p,
        "<section><h2>Share of the best known rate over trials</h2>{note}{}</section>",
        plot(a)
    );
    table(&mut p, a);
    tasks(&mut p, a);
    let _ = writeln!(
        p,
        "<section><h2>Where</h2><dl><dt>device</dt><dd class='mono'>{}</dd><dt>toolchain</dt><dd \
         class='mono'>{}</dd></dl></section>",
        escape(&a.device),
        escape(&a.toolchain)
    );
    p + "</main></body></html>\n"
}

fn subtitle(a: &Ablation) -> String {
    let ended = if a.interrupted {
        " It was ended early: only what all strategies ended is compared."
    } else {
        ""
    };
    let (runs, tasks, seeds) = (a.runs.len(), a.tasks.len(), a.comparison.seeds);
    let cache = if a.comparison.cache {
        "a candidate that several runs propose is measured once"
    } else {
        "every trial is measured"
    };
    format!("{runs} runs on {tasks} kernels with {seeds} seeds; {cache}.{ended}")
}

/// The name of a line beside the plot.
fn legend(s: &mut String, name: &str, colour: &str, lx: f64, ly: f64) {
    let _ = write!(
        s,
        "<line x1='{lx}' y1='{ly}' x2='{}' y2='{ly}' stroke='{colour}' stroke-width='3'/>",
        lx + 22.0
    );
    let (x, y) = (lx + 28.0, ly + 4.0);
    let _ = write!(s, "<text class='label' x='{x}' y='{y:.1}'>{name}</text>");
}

/// Shares over trials, one line a strategy.
fn plot(a: &Ablation) -> String {
    let (w, h, left, right, top, bottom) = (920.0, 420.0, 52.0, 200.0, 14.0, 44.0);
    let curves: Vec<Vec<(usize, f64)>> =
        (0..a.comparison.strategies.len()).map(|s| a.curve(s)).collect();
    let most = a.comparison.trials.iter().copied().max().unwrap_or(1).max(2) as f64;
    let first = curves.iter().flatten().map(|c| c.0).min().unwrap_or(1).max(1) as f64;
    let x = Log { from: first.min(most / 2.0), to: most, start: left, end: w - right };
    let least = curves.iter().flatten().map(|c| c.1).fold(1.0, f64::min);
    let floor = (least * 10.0).floor().min(9.0) / 10.0;
    let y = |v: f64| h - bottom - (v - floor) / (1.0 - floor) * (h - top - bottom);
    let mut s = open(w, h, "Share of the best known rate over trials");
    // The budgets and the first trial have ticks of their own; others keep clear of them.
    let own: Vec<f64> = a.comparison.trials.iter().map(|t| *t as f64).chain([first]).collect();
    let others = x.ticks().into_iter().filter(|t| own.iter().all(|o| (t / o).ln().abs() > 0.2));
    for t in others.chain(own.iter().copied()) {
        let p = x.at(t);
        let _ = write!(
            s,
            "<line class='grid' x1='{p:.1}' y1='{top}' x2='{p:.1}' y2='{:.1}'/>",
            h - bottom
        );
        let _ = write!(
            s,
            "<text class='tick' x='{p:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            h - bottom + 16.0,
            short(t)
        );
    }
    for i in 0..=5 {
        let v = floor + (1.0 - floor) * f64::from(i) / 5.0;
        let _ = write!(
            s,
            "<line class='grid' x1='{left}' y1='{0:.1}' x2='{1}' y2='{0:.1}'/>",
            y(v),
            w - right
        );
        let _ = write!(
            s,
            "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>{v:.2}</text>",
            left - 6.0,
            y(v) + 4.0
        );
    }
    let middle = (left + w - right) / 2.0;
    let _ = write!(
        s,
        "<text class='axis' x='{middle}' y='{}' text-anchor='middle'>trials</text>",
        h - 8.0
    );
    for (i, (name, curve)) in a.comparison.strategies.iter().zip(&curves).enumerate() {
        let colour = colour(i);
        let points: Vec<String> =
            curve.iter().map(|c| format!("{:.1},{:.1}", x.at(c.0 as f64), y(c.1))).collect();
        let name = escape(name);
        let line = "fill='none' stroke-width='2' stroke-linejoin='round'";
        let _ = write!(
            s,
            "<polyline {line} stroke='{colour}' points='{}'><title>{name}</title></polyline>",
            points.join(" ")
        );
        for &budget in &a.comparison.trials {
            if let Some(score) = a.score(i, budget) {
                let (cx, cy) = (x.at(budget as f64), y(score.mean.max(floor)));
                let title = format!(
                    "{name}, {budget} trials: {:.3} ({:.3} to {:.3} by seed)",
                    score.mean, score.worst_seed, score.best_seed
                );
                let _ = write!(
                    s,
                    "<circle cx='{cx:.1}' cy='{cy:.1}' r='4' \
                     fill='{colour}'><title>{title}</title></circle>"
                );
            }
        }
        legend(&mut s, &name, colour, w - right + 18.0, top + 12.0 + 22.0 * i as f64);
    }
    s + "</svg>"
}

fn table(p: &mut String, a: &Ablation) {
    let _ = write!(p, "<section><h2>Means</h2><table><thead><tr><th class='l'>strategy</th>");
    for b in &a.comparison.trials {
        let _ = write!(p, "<th>{b} trials</th><th>by seed</th>");
    }
    let _ = write!(p, "<th>search a trial</th></tr></thead><tbody>");
    for (i, name) in a.comparison.strategies.iter().enumerate() {
        let _ = write!(p, "<tr><td class='l'>{}</td>", escape(name));
        let mut search = None;
        for &b in &a.comparison.trials {
            match a.score(i, b) {
                Some(s) => {
                    let _ = write!(
                        p,
                        "<td>{:.3}</td><td><small>{:.3} .. {:.3}</small></td>",
                        s.mean, s.worst_seed, s.best_seed
                    );
                    search = Some(s.search_seconds);
                }
                None => p.push_str("<td>\u{2013}</td><td></td>"),
            }
        }
        let _ = write!(
            p,
            "<td>{}</td></tr>",
            search.map_or("\u{2013}".into(), |s| format!("{:.1} ms", 1e3 * s))
        );
    }
    let counts: Vec<String> =
        a.comparison.trials.iter().map(|b| format!("{} with {b} trials", a.compared(*b))).collect();
    let _ = writeln!(
        p,
        "</tbody></table><p class='sub'>Kernels compared: {}.</p></section>",
        counts.join(", ")
    );
}

/// Each task with its shares at the largest budget.
fn tasks(p: &mut String, a: &Ablation) {
    let budget = a.comparison.trials.iter().copied().max().unwrap_or(0);
    let _ = write!(
        p,
        "<section><h2>Kernel by kernel, {budget} trials</h2><table><thead><tr><th \
         class='l'>kernel</th><th>best settled</th>"
    );
    for name in &a.comparison.strategies {
        let _ = write!(p, "<th>{}</th>", escape(name));
    }
    p.push_str("</tr></thead><tbody>");
    for (t, task) in a.tasks.iter().enumerate() {
        let best = task.settled.map_or("\u{2013}".into(), |b| b.to_string());
        let _ = write!(p, "<tr><td class='l name'>{}</td><td>{best}</td>", escape(&task.name));
        for s in 0..a.comparison.strategies.len() {
            let runs =
                a.runs.iter().filter(|r| r.task == t && r.strategy == s && r.budget == budget);
            let share = super::geometric(runs.filter_map(|r| a.share(r)));
            let _ =
                write!(p, "<td>{}</td>", share.map_or("\u{2013}".into(), |x| format!("{x:.3}")));
        }
        p.push_str("</tr>");
    }
    p.push_str("</tbody></table></section>\n");
}
