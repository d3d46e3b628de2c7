//! The report's bar charts, as SVG text: which tasks take the time of a model, and how much faster
//! each became than its untuned loops. `html.rs` puts them into the page. Names are never cut; they
//! take as many lines as they need.

use super::Report;
use crate::base::page::{Log, escape, nice, open, short};
use std::fmt::Write;

/// The most characters of a line of a name.
const LINE: usize = 54;
/// An estimate of a character's width in labels, on the wide side, in pixels.
const CHARACTER: f64 = 7.0;
/// Pixels of a chart, of a line of text, and of the room behind a bar's end.
const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 16.0;
const BEHIND: f64 = 150.0;

/// A row of a chart.
struct Bar {
    name: String,
    value: f64,
    /// The part of the bar that is drawn in a stronger colour, if any.
    part: Option<f64>,
    /// The text behind its end.
    text: String,
    /// The text that is shown while the mouse is over it.
    note: String,
    class: &'static str,
}

/// A name in lines of at most [`LINE`] characters, broken where words end.
fn lines(name: &str) -> Vec<String> {
    let (mut all, mut line) = (Vec::new(), String::new());
    for word in name.split_inclusive([' ', '_', '/']) {
        for piece in word.chars().collect::<Vec<_>>().chunks(LINE) {
            if !line.is_empty() && line.chars().count() + piece.len() > LINE {
                all.push(std::mem::take(&mut line));
            }
            line.extend(piece);
        }
    }
    all.push(line);
    all
}

/// Rows from a scale's start on, with the scale below.
fn chart(label: &str, rows: &[Bar], ticks: &dyn Fn(f64) -> Vec<(f64, String)>) -> String {
    let named: Vec<Vec<String>> = rows.iter().map(|r| lines(&r.name)).collect();
    let longest = named.iter().flatten().map(|l| l.chars().count()).max().unwrap_or(0);
    let left = 12.0 + CHARACTER * longest as f64;
    let most = WIDTH - BEHIND - left;
    let heights = named.iter().map(|l| 8.0 + HEIGHT * l.len() as f64);
    let h = 6.0 + heights.sum::<f64>() + 26.0;
    let mut s = open(WIDTH, h, label);
    for (share, text) in ticks(most) {
        let p = left + share * most;
        let _ = write!(
            s,
            "<line class='grid' x1='{p:.1}' y1='6' x2='{p:.1}' y2='{:.1}'/><text class='tick' \
             x='{p:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            h - 24.0,
            h - 8.0,
            escape(&text)
        );
    }
    let mut y = 6.0;
    for (row, name) in rows.iter().zip(&named) {
        let title = format!("<title>{}: {}</title>", escape(&row.name), escape(&row.note));
        for (i, line) in name.iter().enumerate() {
            let _ = write!(
                s,
                "<text class='label' x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>",
                left - 8.0,
                y + 14.0 + HEIGHT * i as f64,
                escape(line)
            );
        }
        let height = HEIGHT * name.len() as f64;
        for (class, share) in [(row.class, Some(row.value)), ("bar part", row.part)] {
            let Some(share) = share else { continue };
            let _ = write!(
                s,
                "<rect class='{class}' x='{left:.1}' y='{:.1}' width='{:.1}' height='{height:.1}' \
                 rx='2'>{title}</rect>",
                y + 2.0,
                (share.clamp(0.0, 1.0) * most).max(1.5)
            );
        }
        let _ = write!(
            s,
            "<text class='label' x='{:.1}' y='{:.1}'>{}</text>",
            left + row.value.clamp(0.0, 1.0) * most + 6.0,
            y + 6.0 + height / 2.0,
            escape(&row.text)
        );
        y += height + 8.0;
    }
    s + "</svg>"
}

/// The tasks' times by count, the longest first; the part that the roof would allow stands out.
pub fn times(report: &Report) -> String {
    let mut timed: Vec<_> =
        report.tasks.iter().filter_map(|t| Some((t, t.count as f64 * t.best?.0))).collect();
    timed.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all: f64 = timed.iter().map(|t| t.1).sum();
    let longest = timed.first().map_or(1.0, |t| t.1).max(f64::MIN_POSITIVE);
    let rows: Vec<Bar> = timed
        .iter()
        .map(|(t, time)| {
            let share = report.roof.as_ref().and_then(|roof| t.share(roof));
            let of_bound =
                share.map_or(String::new(), |s| format!(", {:.0} % of bound", s * 100.0));
            let best = t.best.map_or(String::new(), |b| b.to_string());
            Bar {
                name: t.name.clone(),
                value: time / longest,
                part: share.map(|s| s.min(1.0) * time / longest),
                text: format!("{:.1} %", time / all * 100.0),
                note: format!("{best}, called {} times{of_bound}", t.count),
                class: "bar",
            }
        })
        .collect();
    // As many values as the scale has room for.
    chart("Time of the tasks by count", &rows, &|room| {
        let steps = (room / 90.0).floor().clamp(1.0, 5.0) as usize;
        (0..=steps)
            .map(|k| {
                let share = k as f64 / steps as f64;
                (share, squall_core::Nanos(share * longest).to_string())
            })
            .collect()
    })
}

/// The tasks' gains over their baselines on a logarithmic scale from 1, and the whole input's
/// where there are several tasks.
pub fn gains(report: &Report) -> String {
    let mut gained: Vec<(String, f64, String, &'static str)> = report
        .tasks
        .iter()
        .filter_map(|t| {
            let note = format!("{} instead of {}, called {} times", t.best?, t.untuned?, t.count);
            Some((t.name.clone(), t.gain()?, note, "bar"))
        })
        .collect();
    gained.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let Some(g) = report.gain().filter(|_| gained.len() > 1) {
        let (best, untuned) = report.totals();
        let note = format!("{best} instead of {untuned} a pass");
        gained.insert(0, ("all, by count".into(), g, note, "bar model"));
    }
    let most = gained.iter().map(|r| r.1).fold(2.0, f64::max);
    let x = Log { from: 1.0, to: nice(most, true), start: 0.0, end: 1.0 };
    let rows: Vec<Bar> = gained
        .into_iter()
        .map(|(name, gain, note, class)| Bar {
            name,
            value: x.at(gain.max(1.0)),
            part: None,
            text: format!("{}x", short(gain)),
            note,
            class,
        })
        .collect();
    let ticks = |_| x.ticks().into_iter().map(|t| (x.at(t), format!("{}x", short(t)))).collect();
    chart(&format!("Gain over {}", report.baseline()), &rows, &ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_broken_and_not_cut() {
        let name = "conv2d_64x56x56_k64_3x3 + bias + relu, channels last, of a block ".repeat(4)
            + &"long".repeat(40);
        let broken = lines(&name);
        assert!(broken.len() > 4 && broken.iter().all(|l| l.chars().count() <= LINE), "{broken:?}");
        assert_eq!(broken.concat(), name);
        assert_eq!(lines("short"), ["short"]);
        assert_eq!(lines(""), [""]);
    }
}
