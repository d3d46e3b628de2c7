//! What all pages share: the style sheet, escaped text, numbers in three digits, logarithmic scales
//! and the opening tag of a plot. Reports, replays and find modes draw their pages with it.

/// The style of all pages.
pub const STYLE: &str = include_str!("style.css");

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
    pub(crate) fn around(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Log {
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
pub(crate) fn nice(x: f64, up: bool) -> f64 {
    let base = 10f64.powf(x.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * base);
    let found = if up {
        steps.iter().find(|s| **s >= x * 0.9999)
    } else {
        steps.iter().rev().find(|s| **s <= x * 1.0001)
    };
    found.copied().unwrap_or(x)
}

/// The opening tag of a plot of this size, with a description for screen readers.
pub fn open(w: f64, h: f64, label: &str) -> String {
    format!("<svg viewBox='0 0 {w} {h}' role='img' aria-label='{}'>", escape(label))
}
