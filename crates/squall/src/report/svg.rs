//! Plots as SVG text: the roofline, convergence curves, bars. Colours come from the page's style
//! sheet, so that one page serves light and dark screens.

use super::{Report, Roof, TaskReport};
use std::fmt::Write;

/// Text with the characters escaped that HTML and SVG reserve.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Neither HTML nor XML can express a control character, not even escaped.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number in about three digits, for axes and labels.
pub fn short(x: f64) -> String {
    match x.abs() {
        a if a >= 1e6 => format!("{:.1e}", x),
        a if a >= 100.0 => format!("{x:.0}"),
        a if a >= 10.0 => format!("{x:.1}").trim_end_matches(".0").into(),
        a if a >= 1.0 => format!("{x:.2}").trim_end_matches('0').trim_end_matches('.').into(),
        0.0 => "0".into(),
        a if a >= 0.001 => format!("{x:.3}").trim_end_matches('0').into(),
        _ => format!("{x:.1e}"),
    }
}

/// A logarithmic scale from values to pixels.
pub struct Log {
    /// The least value.
    pub from: f64,
    /// The greatest value.
    pub to: f64,
    /// The pixel of the least value.
    pub start: f64,
    /// The pixel of the greatest value.
    pub end: f64,
}

impl Log {
    /// A scale that spans all values and ends at 1, 2 or 5 times a power of ten.
    fn around(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Log {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values.filter(|v| v.is_finite() && *v > 0.0) {
            from = from.min(v);
            to = to.max(v);
        }
        if from > to {
            (from, to) = (1.0, 10.0);
        }
        Log { from: nice(from * 0.999, false), to: nice(to * 1.1, true), start, end }
    }

    /// The pixel of a value.
    pub fn at(&self, v: f64) -> f64 {
        let x = (v.max(f64::MIN_POSITIVE).ln() - self.from.ln()) / (self.to.ln() - self.from.ln());
        self.start + x * (self.end - self.start)
    }

    /// The values that an axis names.
    pub fn ticks(&self) -> Vec<f64> {
        let decades = (self.to / self.from).log10();
        let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.from.log10().floor() as i32;
        let all = (first..first + 40).flat_map(|e| steps.iter().map(move |s| s * 10f64.powi(e)));
        all.filter(|t| *t >= self.from * 0.999 && *t <= self.to * 1.001).collect()
    }
}

/// The nearest of 1, 2, 5 times a power of ten that is not below (or not above) `x`.
fn nice(x: f64, up: bool) -> f64 {
    let base = 10f64.powf(x.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * base);
    let found = if up {
        steps.iter().find(|s| **s >= x * 0.9999)
    } else {
        steps.iter().rev().find(|s| **s <= x * 1.0001)
    };
    found.copied().unwrap_or(x)
}

/// The roofline: intensity against rate, each task an arrow from its baseline to its winner.
pub fn roofline(report: &Report, roof: &Roof) -> String {
    let (w, h, left, right, top, bottom) = (920.0, 440.0, 62.0, 20.0, 16.0, 48.0);
    let dots: Vec<(&TaskReport, f64, f64, Option<f64>)> = report
        .tasks
        .iter()
        .filter(|t| t.flop > 0 && t.bytes > 0)
        .filter_map(|t| {
            let intensity = t.flop as f64 / t.bytes as f64;
            Some((t, intensity, t.gflops()?, t.untuned.map(|u| u.giga_rate(t.flop as f64))))
        })
        .collect();
    let ridge = roof.peak_gflops / roof.memory_gbs;
    let x =
        Log::around(dots.iter().map(|d| d.1).chain([ridge * 0.3, ridge * 4.0]), left, w - right);
    let rates = dots.iter().flat_map(|d| [Some(d.2), d.3]).flatten();
    let y = Log::around(
        rates.chain([roof.peak_gflops * 1.1, roof.memory_gbs * x.from]),
        h - bottom,
        top,
    );
    let mut s = open(w, h, "Roofline: arithmetic intensity against rate");
    grid(&mut s, &x, &y, w - right, h - bottom);
    let _ = write!(
        s,
        "<text class='axis' x='{}' y='{}' text-anchor='middle'>operations a byte</text>",
        (left + w - right) / 2.0,
        h - 10.0
    );
    let _ = write!(
        s,
        "<text class='axis' transform='translate(16 {}) rotate(-90)' \
         text-anchor='middle'>GFLOP/s</text>",
        (top + h - bottom) / 2.0
    );
    roofs(&mut s, roof, &x, &y);
    for (t, intensity, best, untuned) in dots {
        let (cx, cy) = (x.at(intensity), y.at(best));
        if let Some(u) = untuned {
            let uy = y.at(u);
            let _ = write!(
                s,
                "<line class='rise' x1='{cx:.1}' y1='{uy:.1}' x2='{cx:.1}' y2='{cy:.1}'/>"
            );
            let _ = write!(
                s,
                "<circle class='plain' cx='{cx:.1}' cy='{uy:.1}' r='3.5'><title>{}: {}, {} \
                 GFLOP/s</title></circle>",
                escape(&t.name),
                escape(t.baseline),
                short(u)
            );
        }
        let share =
            t.share(roof).map_or(String::new(), |v| format!(", {:.0} % of its bound", v * 100.0));
        let _ = write!(
            s,
            "<circle class='dot' cx='{cx:.1}' cy='{cy:.1}' r='5.5'><title>{} (x{}): {} \
             GFLOP/s{share}, {} operations a byte</title></circle>",
            escape(&t.name),
            t.count,
            short(best),
            short(intensity)
        );
    }
    s + "</svg>"
}

/// The bandwidths of a roof as slopes, and its peak as a flat line.
fn roofs(s: &mut String, roof: &Roof, x: &Log, y: &Log) {
    let memory = [("memory".to_string(), roof.memory_gbs)];
    let lines = roof
        .levels
        .iter()
        .map(|l| (l.name.clone(), l.gbs))
        .filter(|l| l.1 > roof.memory_gbs)
        .chain(memory);
    for (i, (name, gbs)) in lines.enumerate() {
        let start = x.from.max(y.from / gbs);
        let end = (roof.peak_gflops / gbs).min(x.to);
        if start >= end {
            continue;
        }
        let class = if name == "memory" { "roof" } else { "cache" };
        let (x1, y1, x2, y2) = (x.at(start), y.at(start * gbs), x.at(end), y.at(end * gbs));
        let _ = write!(
            s,
            "<line class='{class}' x1='{x1:.1}' y1='{y1:.1}' x2='{x2:.1}' y2='{y2:.1}'/>"
        );
        let at = 0.08 + 0.16 * (i % 5) as f64;
        let angle = (y2 - y1).atan2(x2 - x1).to_degrees();
        let (tx, ty) = (x1 + at * (x2 - x1), y1 + at * (y2 - y1) - 5.0);
        let _ = write!(
            s,
            "<text class='tick' transform='translate({tx:.1} {ty:.1}) rotate({angle:.1})'>{} {} \
             GB/s</text>",
            escape(&name),
            short(gbs)
        );
    }
    let fastest = roof.levels.iter().map(|l| l.gbs).fold(roof.memory_gbs, f64::max);
    let flat = (roof.peak_gflops / fastest).max(x.from);
    let py = y.at(roof.peak_gflops);
    let _ = write!(
        s,
        "<line class='roof' x1='{:.1}' y1='{py:.1}' x2='{:.1}' y2='{py:.1}'/>",
        x.at(flat),
        x.end
    );
    let _ = write!(
        s,
        "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>peak {} GFLOP/s</text>",
        x.end - 4.0,
        py - 6.0,
        short(roof.peak_gflops)
    );
}

/// Three lines of a scale of rates.
fn rate_grid(s: &mut String, ceiling: f64, (left, right): (f64, f64), py: &dyn Fn(f64) -> f64) {
    for k in 0..=2 {
        let v = ceiling * f64::from(k) / 2.0;
        let _ = write!(
            s,
            "<line class='grid' x1='{left}' y1='{0:.1}' x2='{1}' y2='{0:.1}'/>",
            py(v),
            right
        );
        let _ = write!(
            s,
            "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>{}</text>",
            left - 5.0,
            py(v) + 4.0,
            short(v)
        );
    }
}

/// The opening tag of a plot of this size, with a description for screen readers.
pub fn open(w: f64, h: f64, label: &str) -> String {
    format!("<svg viewBox='0 0 {w} {h}' role='img' aria-label='{}'>", escape(label))
}

fn grid(s: &mut String, x: &Log, y: &Log, right: f64, floor: f64) {
    for t in x.ticks() {
        let p = x.at(t);
        let _ = write!(
            s,
            "<line class='grid' x1='{p:.1}' y1='{:.1}' x2='{p:.1}' y2='{floor:.1}'/>",
            y.end
        );
        let _ = write!(
            s,
            "<text class='tick' x='{p:.1}' y='{:.1}' text-anchor='middle'>{}</text>",
            floor + 16.0,
            short(t)
        );
    }
    for t in y.ticks() {
        let p = y.at(t);
        let _ = write!(
            s,
            "<line class='grid' x1='{:.1}' y1='{p:.1}' x2='{right:.1}' y2='{p:.1}'/>",
            x.start
        );
        let _ = write!(
            s,
            "<text class='tick' x='{:.1}' y='{:.1}' text-anchor='end'>{}</text>",
            x.start - 6.0,
            p + 4.0,
            short(t)
        );
    }
}

/// Best rate (or, without operations, best speed) over trials, as a staircase.
pub fn curve(t: &TaskReport) -> String {
    let (w, h, left, right, top, bottom) = (300.0, 130.0, 44.0, 10.0, 10.0, 22.0);
    let amount = if t.flop > 0 { t.flop } else { t.bytes } as f64;
    let points: Vec<(f64, f64)> =
        t.curve.iter().map(|(n, ns)| (*n as f64, ns.giga_rate(amount))).collect();
    let plain = t.untuned.map(|u| u.giga_rate(amount));
    let last = (t.trials + t.known).max(1) as f64;
    let most = points.iter().map(|p| p.1).chain(plain).fold(f64::MIN_POSITIVE, f64::max);
    let ceiling = nice(most, true);
    let px = |n: f64| left + n / last * (w - left - right);
    let py = |v: f64| h - bottom - v / ceiling * (h - top - bottom);
    let mut s = open(w, h, &format!("Best rate over trials of {}", t.name));
    rate_grid(&mut s, ceiling, (left, w - right), &py);
    let _ = write!(s, "<text class='tick' x='{left}' y='{}'>0</text>", h - 7.0);
    let _ = write!(
        s,
        "<text class='tick' x='{}' y='{}' text-anchor='end'>{last} trials</text>",
        w - right,
        h - 7.0
    );
    if t.known > 0 && t.trials > 0 {
        let p = px(t.known as f64);
        let _ = write!(
            s,
            "<rect class='known' x='{left}' y='{top}' width='{:.1}' height='{}'><title>{} trials \
             were known</title></rect>",
            p - left,
            h - top - bottom,
            t.known
        );
    }
    if let Some(u) = plain {
        let _ = write!(
            s,
            "<line class='plainline' x1='{left}' y1='{0:.1}' x2='{1}' y2='{0:.1}'><title>{3}: \
             {2}</title></line>",
            py(u),
            w - right,
            short(u),
            escape(t.baseline)
        );
    }
    let places: Vec<(f64, f64)> = points.iter().map(|p| (px(p.0), py(p.1))).collect();
    match places.as_slice() {
        [] => {
            let _ = write!(
                s,
                "<text class='axis' x='{}' y='{}' text-anchor='middle'>nothing ran</text>",
                w / 2.0,
                h / 2.0
            );
        }
        [first, rest @ ..] => {
            let mut path = format!("M{:.1} {:.1}", first.0, first.1);
            for (x, y) in rest {
                let _ = write!(path, "H{x:.1}V{y:.1}");
            }
            let _ = write!(s, "<path class='curve' d='{path}H{:.1}'/>", px(last));
        }
    }
    for ((x, y), (n, rate)) in places.iter().zip(&points) {
        let _ = write!(
            s,
            "<circle class='step' cx='{x:.1}' cy='{y:.1}' r='2.2'><title>trial {n}: \
             {}</title></circle>",
            short(*rate)
        );
    }
    s + "</svg>"
}

/// Bars of the tasks' gains over their baselines on a logarithmic scale from 1, and of the whole
/// model's gain where there are several tasks.
pub fn gains(report: &Report) -> String {
    let mut rows: Vec<(String, f64, String, bool)> = report
        .tasks
        .iter()
        .filter_map(|t| {
            let note = format!("{} instead of {}, called {} times", t.best?, t.untuned?, t.count);
            Some((t.name.clone(), t.gain()?, note, false))
        })
        .collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    if let Some(g) = report.gain().filter(|_| rows.len() > 1) {
        let (best, untuned) = report.totals();
        rows.insert(
            0,
            (
                "whole model, by count".into(),
                g,
                format!("{best} instead of {untuned} a pass"),
                true,
            ),
        );
    }
    let (w, left, line, top) = (920.0, 310.0, 22.0, 6.0);
    let h = top + line * rows.len() as f64 + 28.0;
    let most = rows.iter().map(|r| r.1).fold(2.0, f64::max);
    let x = Log { from: 1.0, to: nice(most, true), start: left, end: w - 70.0 };
    let mut s = open(w, h, &format!("Gain over {}", report.baseline()));
    for t in x.ticks() {
        let p = x.at(t);
        let _ = write!(
            s,
            "<line class='grid' x1='{p:.1}' y1='{top}' x2='{p:.1}' y2='{:.1}'/>",
            h - 24.0
        );
        let _ = write!(
            s,
            "<text class='tick' x='{p:.1}' y='{:.1}' text-anchor='middle'>{}x</text>",
            h - 8.0,
            short(t)
        );
    }
    for (i, (name, gain, note, model)) in rows.iter().enumerate() {
        let y = top + line * i as f64;
        let class = if *model { "bar model" } else { "bar" };
        let shown: String = if name.chars().count() > 44 {
            name.chars().take(43).chain(['\u{2026}']).collect()
        } else {
            name.clone()
        };
        let end = x.at(gain.max(1.0));
        let _ = write!(
            s,
            "<text class='label' x='{}' y='{:.1}' text-anchor='end'>{}<title>{}</title></text>",
            left - 8.0,
            y + 15.0,
            escape(&shown),
            escape(name)
        );
        let _ = write!(
            s,
            "<rect class='{class}' x='{left}' y='{:.1}' width='{:.1}' height='{}' \
             rx='2'><title>{}: {}</title></rect>",
            y + 3.0,
            (end - left).max(1.5),
            line - 6.0,
            escape(name),
            escape(note)
        );
        let _ = write!(
            s,
            "<text class='label' x='{:.1}' y='{:.1}'>{}x</text>",
            end + 6.0,
            y + 15.0,
            short(*gain)
        );
    }
    s + "</svg>"
}
