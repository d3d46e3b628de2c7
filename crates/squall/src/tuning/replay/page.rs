//! Draws a replay as one HTML page: for each strategy the best value found over the number of
//! trials, beside random search without repetition, whose expectation is exact. The page has no
//! script and loads nothing from elsewhere.

use super::score::{even, score};
use super::{Replay, Run, Score};
use crate::base::page::{Log, escape, open, short};
use std::fmt::Write;

/// A colour for each strategy, readable on light and dark; from the ninth strategy on they repeat,
/// dashed.
const COLOURS: [&str; 8] =
    ["#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#e67700", "#1971c2", "#a61e4d"];
/// The number of points of a curve.
const PLACES: i32 = 40;

/// A line of a plot.
struct Line {
    name: String,
    style: String,
    /// Mean of optimum / best at each place.
    values: Vec<f64>,
}

fn style(strategy: usize) -> String {
    let dashes = if strategy >= COLOURS.len() { " stroke-dasharray='7 3'" } else { "" };
    format!("stroke='{}'{dashes}", COLOURS[strategy % COLOURS.len()])
}

fn of(runs: &[Run], strategy: usize, space: usize) -> Vec<&Run> {
    runs.iter().filter(|r| r.strategy == strategy && r.space == space).collect()
}

fn means(all: &[Vec<f64>]) -> Vec<f64> {
    let n = all.len().max(1) as f64;
    (0..all.first().map_or(0, Vec::len))
        .map(|i| all.iter().map(|v| v[i]).sum::<f64>() / n)
        .collect()
}

/// The whole page, of the strategies whose positions are `shown`.
pub fn page(replay: &Replay, runs: &[Run], shown: &[usize], budgets: &[usize]) -> String {
    let most = replay.evaluations.max(2);
    let first = (most / 80).max(1);
    let ratio = most as f64 / first as f64;
    let mut places: Vec<usize> = (0..=PLACES)
        .map(|i| (first as f64 * ratio.powf(f64::from(i) / f64::from(PLACES))).round() as usize)
        .collect();
    places.dedup();
    let spaces = 0..replay.spaces.len();
    let curves: Vec<Vec<Line>> = spaces.map(|c| lines(replay, runs, shown, c, &places)).collect();
    let together = (0..=shown.len()).map(|l| {
        let all: Vec<Vec<f64>> = curves.iter().map(|c| c[l].values.clone()).collect();
        Line {
            name: curves[0][l].name.clone(),
            style: curves[0][l].style.clone(),
            values: means(&all),
        }
    });
    let together: Vec<Line> = together.collect();
    let within = replay
        .seconds
        .map_or(String::new(), |s| format!(", or until they had cost {} s as recorded", short(s)));
    let mut p = format!(
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width, initial-scale=1'>\
         <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\
         <title>Squall: replayed searches</title>\n<style>{}</style></head>\n<body><main>\n\
         <h1>Searches replayed on measured spaces</h1>\
         <p class='sub'>{} spaces, {} seeds, {} trials each{within}. Every outcome was looked up \
         in a recording.</p>\n",
        crate::base::page::STYLE,
        replay.spaces.len(),
        replay.seeds,
        replay.evaluations,
    );
    let note = "<p class='sub'>Optimum / best so far, mean over spaces and seeds; nothing found \
                counts 0. \
                Grey: the exact expectation of even draws without repetition.</p>";
    let _ = writeln!(
        p,
        "<section><h2>All spaces</h2>{note}{}</section>",
        plot(&together, &places, true)
    );
    table(&mut p, replay, runs, shown, budgets);
    p.push_str("<section><h2>Space by space</h2><div class='curves'>");
    for (space, lines) in replay.spaces.iter().zip(&curves) {
        let size = space.recording.rows.len();
        let _ = write!(
            p,
            "<figure><figcaption>{} <small>{size} configurations</small></figcaption>{}</figure>",
            escape(&space.name),
            plot(lines, &places, false)
        );
    }
    p + "</div></section></main></body></html>\n"
}

/// Of the space with number `c` even draws, then the strategies.
fn lines(replay: &Replay, runs: &[Run], shown: &[usize], c: usize, places: &[usize]) -> Vec<Line> {
    let space = &replay.spaces[c];
    let mut all = vec![Line {
        name: "even draws".into(),
        style: "stroke='#868e96' stroke-dasharray='3 3'".into(),
        values: even(space, places),
    }];
    for (i, &s) in shown.iter().enumerate() {
        let name = replay.strategies[s].name.to_string();
        all.push(Line {
            name,
            style: style(i),
            values: score(space, &of(runs, s, c), places).value,
        });
    }
    all
}

/// The name of a line beside a plot.
fn legend(s: &mut String, l: &Line, lx: f64, ly: f64) {
    let _ = write!(
        s,
        "<line x1='{lx}' y1='{ly}' x2='{}' y2='{ly}' {} stroke-width='3'/>",
        lx + 22.0,
        l.style
    );
    let _ = write!(
        s,
        "<text class='label' x='{}' y='{:.1}'>{}</text>",
        lx + 28.0,
        ly + 4.0,
        escape(&l.name)
    );
}

fn plot(lines: &[Line], places: &[usize], large: bool) -> String {
    let (w, h, left, right, top, bottom) = if large {
        (920.0, 420.0, 52.0, 190.0, 14.0, 44.0)
    } else {
        (300.0, 170.0, 34.0, 14.0, 8.0, 22.0)
    };
    let (from, to) = (places[0] as f64, places[places.len() - 1] as f64);
    let x = Log { from, to: to.max(from + 1.0), start: left, end: w - right };
    let least = lines.iter().flat_map(|l| &l.values).copied().fold(1.0, f64::min);
    let floor = ((least * 10.0).floor() / 10.0).clamp(0.0, 0.9);
    let y = |v: f64| h - bottom - (v.max(floor) - floor) / (1.0 - floor) * (h - top - bottom);
    let mut s = open(w, h, "Optimum over best found, by trials");
    // The ends have ticks of their own; others keep clear of them.
    let clear = |t: &f64| (t / from).ln().abs() > 0.3 && (t / to).ln().abs() > 0.3;
    for t in x.ticks().into_iter().filter(clear).chain([from, to]) {
        let p = x.at(t);
        let _ = write!(
            s,
            "<line class='grid' x1='{p:.1}' y1='{top}' x2='{p:.1}' y2='{:.1}'/>",
            h - bottom
        );
        let _ = write!(
            s,
            "<text class='tick' x='{p:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            h - bottom + 15.0,
            short(t)
        );
    }
    let steps = if large { 5 } else { 2 };
    for i in 0..=steps {
        let v = floor + (1.0 - floor) * f64::from(i) / f64::from(steps);
        let _ = write!(
            s,
            "<line class='grid' x1='{left}' y1='{0:.1}' x2='{1}' y2='{0:.1}'/>",
            y(v),
            w - right
        );
        let _ = write!(
            s,
            "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>{v:.2}</text>",
            left - 5.0,
            y(v) + 4.0
        );
    }
    if large {
        let _ = write!(
            s,
            "<text class='axis' x='{}' y='{}' text-anchor='middle'>trials</text>",
            (left + w - right) / 2.0,
            h - 8.0
        );
    }
    for (i, l) in lines.iter().enumerate() {
        let points: Vec<String> = places
            .iter()
            .zip(&l.values)
            .map(|(&k, &v)| format!("{:.1},{:.1}", x.at(k as f64), y(v)))
            .collect();
        let (name, width) = (escape(&l.name), if large { 2.0 } else { 1.4 });
        let last = l.values.last().map_or(String::new(), |v| format!(": {v:.3} in the end"));
        let _ = write!(
            s,
            "<polyline fill='none' stroke-width='{width}' stroke-linejoin='round' {} \
             points='{}'><title>{name}{last}</title></polyline>",
            l.style,
            points.join(" ")
        );
        if large {
            legend(&mut s, l, w - right + 18.0, top + 12.0 + 22.0 * i as f64);
        }
    }
    s + "</svg>"
}

fn table(p: &mut String, replay: &Replay, runs: &[Run], shown: &[usize], budgets: &[usize]) {
    let _ = write!(
        p,
        "<section><h2>Scores</h2><p class='sub'>0 is as even draws, 1 the optimum at once; mean \
         over spaces.</p>"
    );
    let _ = write!(p, "<table><thead><tr><th class='l'>strategy</th><th>all</th>");
    for b in budgets {
        let _ = write!(p, "<th>at {b}</th>");
    }
    p.push_str("</tr></thead><tbody>");
    for &s in shown {
        let scores: Vec<Score> = replay
            .spaces
            .iter()
            .enumerate()
            .map(|(c, space)| score(space, &of(runs, s, c), budgets))
            .collect();
        let each = means(&scores.iter().map(|s| s.score.clone()).collect::<Vec<_>>());
        let all = each.iter().sum::<f64>() / each.len().max(1) as f64;
        let _ = write!(
            p,
            "<tr><td class='l'>{}</td><td><b>{all:+.3}</b></td>",
            escape(replay.strategies[s].name)
        );
        for x in each {
            let _ = write!(p, "<td>{x:+.3}</td>");
        }
        p.push_str("</tr>");
    }
    p.push_str("</tbody></table></section>\n");
}
