//! Plots as SVG text: the roofline with a point for each kernel, and convergence curves (best time
//! over trials). Also the helpers that all pages use: escaping, short numbers, logarithmic axes.
//! Colours come from the page's style sheet, so that one page serves light and dark screens.

use super::{Factors, Report, Roof, TaskReport};
use crate::base::page::nice;
use std::fmt::Write;

pub use crate::base::page::{Log, escape, open, short};

/// The roofline: intensity against rate, each task an arrow from its baseline to its winner.
pub fn roofline(report: &Report, roof: &Roof) -> String {
    let (w, h, left, right, top, bottom) = (920.0, 440.0, 62.0, 20.0, 16.0, 48.0);
    // A baseline may run another algorithm than the winner: each has its own operations.
    let dots: Vec<Dot> = report
        .tasks
        .iter()
        .filter(|t| t.operations > 0 && t.bytes > 0)
        .filter_map(|task| {
            let of = |operations: u64| operations as f64 / task.bytes as f64;
            let untuned = task.untuned.filter(|_| task.flop > 0);
            Some(Dot {
                task,
                best: (of(task.operations), task.gflops()?),
                untuned: untuned.map(|u| (of(task.flop), u.giga_rate(task.flop as f64))),
            })
        })
        .collect();
    let ridge = roof.peak_gflops / roof.memory_gbs;
    let places = || dots.iter().flat_map(|d| [Some(d.best), d.untuned]).flatten();
    let intensities = places().map(|p| p.0).chain([ridge * 0.3, ridge * 4.0]);
    let x = Log::around(intensities, left, w - right);
    let rates = places().map(|p| p.1);
    let own = [("peak of bf16", Factors::Pairs), ("peak of bytes", Factors::Bytes)];
    let own = own.into_iter().filter(|(_, f)| dots.iter().any(|d| d.task.factors == *f));
    let own = own.map(|(name, f)| (name, roof.peak_gflops * roof.pace(f)));
    let peaks: Vec<(&str, f64)> = [("peak", roof.peak_gflops)].into_iter().chain(own).collect();
    let ends = peaks.iter().map(|p| p.1 * 1.1).chain([roof.memory_gbs * x.from]);
    let y = Log::around(rates.chain(ends), h - bottom, top);
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
    roofs(&mut s, roof, &peaks, &x, &y);
    dots.iter().for_each(|d| d.draw(&mut s, roof, &x, &y));
    s + "</svg>"
}

/// A task in the roofline: intensities and rates.
struct Dot<'a> {
    task: &'a TaskReport,
    best: (f64, f64),
    untuned: Option<(f64, f64)>,
}

impl Dot<'_> {
    fn draw(&self, s: &mut String, roof: &Roof, x: &Log, y: &Log) {
        let (t, (intensity, best)) = (self.task, self.best);
        let (cx, cy) = (x.at(intensity), y.at(best));
        if let Some((from, u)) = self.untuned {
            let (ux, uy) = (x.at(from), y.at(u));
            let _ = write!(
                s,
                "<line class='rise' x1='{ux:.1}' y1='{uy:.1}' x2='{cx:.1}' y2='{cy:.1}'/>"
            );
            let _ = write!(
                s,
                "<circle class='plain' cx='{ux:.1}' cy='{uy:.1}' r='3.5'><title>{}: {}, {} \
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
}

/// The bandwidths of a roof as slopes up to the highest of its peaks, and these as flat lines.
fn roofs(s: &mut String, roof: &Roof, peaks: &[(&str, f64)], x: &Log, y: &Log) {
    let highest = peaks.iter().map(|p| p.1).fold(0.0, f64::max);
    let memory = [("memory".to_string(), roof.memory_gbs)];
    let lines = roof
        .levels
        .iter()
        .map(|l| (l.name.clone(), l.gbs))
        .filter(|l| l.1 > roof.memory_gbs)
        .chain(memory);
    for (i, (name, gbs)) in lines.enumerate() {
        let start = x.from.max(y.from / gbs);
        let end = (highest / gbs).min(x.to);
        if start >= end {
            continue;
        }
        let class = if name == "memory" { "roof" } else { "cache" };
        let (x1, y1, x2, y2) = (x.at(start), y.at(start * gbs), x.at(end), y.at(end * gbs));
        let _ = write!(
            s,
            "<line class='{class}' x1='{x1:.1}' y1='{y1:.1}' x2='{x2:.1}' y2='{y2:.1}'/>"
        );
        let text = format!("{name} {} GB/s", short(gbs));
        slope_label(s, &text, ((x1, y1), (x2, y2)), 0.08 + 0.16 * (i % 5) as f64);
    }
    let fastest = roof.levels.iter().map(|l| l.gbs).fold(roof.memory_gbs, f64::max);
    for (name, peak) in peaks {
        let (flat, py) = ((peak / fastest).max(x.from), y.at(*peak));
        let _ = write!(
            s,
            "<line class='roof' x1='{:.1}' y1='{py:.1}' x2='{:.1}' y2='{py:.1}'/>",
            x.at(flat),
            x.end
        );
        let _ = write!(
            s,
            "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>{name} {} GFLOP/s</text>",
            x.end - 4.0,
            py - 6.0,
            short(*peak)
        );
    }
}

/// A label along a line, a share of it from its start, moved so that it ends before the line does.
fn slope_label(s: &mut String, text: &str, line: ((f64, f64), (f64, f64)), share: f64) {
    let ((x1, y1), (x2, y2)) = line;
    let length = (x2 - x1).hypot(y2 - y1);
    let width = 6.2 * text.chars().count() as f64;
    let at = share.min(1.0 - width / length);
    // A line shorter than its label carries it at its end, where the plot lies to the left.
    let (at, anchor) = if at > 0.0 { (at, "start") } else { (1.0, "end") };
    let angle = (y2 - y1).atan2(x2 - x1).to_degrees();
    let (x, y) = (x1 + at * (x2 - x1), y1 + at * (y2 - y1) - 5.0);
    let _ = write!(
        s,
        "<text class='tick' transform='translate({x:.1} {y:.1}) rotate({angle:.1})' \
         text-anchor='{anchor}'>{}</text>",
        escape(text)
    );
}

/// Three lines of a scale of rates.
fn rate_grid(s: &mut String, ceiling: f64, left: f64, right: f64, py: &dyn Fn(f64) -> f64) {
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
    let amount = if t.flop > 0 { t.operations } else { t.bytes } as f64;
    let points: Vec<(f64, f64)> =
        t.curve.iter().map(|(n, ns)| (*n as f64, ns.giga_rate(amount))).collect();
    let plain = t.untuned.map(|u| u.giga_rate(amount));
    let last = (t.trials + t.known).max(1) as f64;
    let most = points.iter().map(|p| p.1).chain(plain).fold(f64::MIN_POSITIVE, f64::max);
    let ceiling = nice(most, true);
    let px = |n: f64| left + n / last * (w - left - right);
    let py = |v: f64| h - bottom - v / ceiling * (h - top - bottom);
    let mut s = open(w, h, &format!("Best rate over trials of {}", t.name));
    rate_grid(&mut s, ceiling, left, w - right, &py);
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
