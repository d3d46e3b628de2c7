//! A Markdown table of N columns with the run files that it was made from, and the ways in which
//! numbers are written (ratios, three digits, milliseconds). The files that make the documents'
//! tables use it.

pub struct Table<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[String; N]>,
    sources: Vec<&'static str>,
}

impl<const N: usize> Table<N> {
    pub fn new(head: [&'static str; N], sources: &[&'static str]) -> Table<N> {
        Table { head, rows: Vec::new(), sources: sources.to_vec() }
    }

    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    pub fn markdown(&self) -> String {
        let rows = self.rows.iter().map(|r| r.join(" | ")).collect();
        self.page(&self.head.join(" | "), N, rows)
    }

    /// The same with its rows in two columns of the page, the first half on the left.
    pub fn markdown_in_two(&self) -> String {
        let half = self.rows.len().div_ceil(2);
        let (left, right) = self.rows.split_at(half);
        let blank = vec![""; N].join(" | ");
        let row = |(i, l): (usize, &[String; N])| {
            let r = right.get(i).map_or_else(|| blank.clone(), |r| r.join(" | "));
            format!("{} | {r}", l.join(" | "))
        };
        let head = self.head.join(" | ");
        self.page(&format!("{head} | {head}"), 2 * N, left.iter().enumerate().map(row).collect())
    }

    fn page(&self, head: &str, columns: usize, rows: Vec<String>) -> String {
        let mut out = format!("| {head} |\n|{}\n", "---|".repeat(columns));
        for row in rows {
            out.push_str(&format!("| {row} |\n"));
        }
        let sources: Vec<String> = self.sources.iter().map(|s| format!("`{s}`")).collect();
        out.push_str(&format!("\nFrom {} in `benches/runs/`. ", sources.join(", ")));
        out
    }
}

/// A network's time in milliseconds on a machine, and how many times the better library's it is
/// faster.
#[derive(Clone, Copy)]
pub struct Against {
    pub ours_ms: f64,
    pub ratio: f64,
}

/// The geometric mean; 0 of no numbers.
pub fn geometric_mean(numbers: &[f64]) -> f64 {
    if numbers.is_empty() {
        return 0.0;
    }
    (numbers.iter().map(|n| n.ln()).sum::<f64>() / numbers.len() as f64).exp()
}

/// Three significant digits.
pub fn three_digits(v: f64) -> String {
    match v.abs() {
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    }
}

pub fn ratio(v: f64) -> String {
    format!("{v:.2}")
}

pub fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A number of milliseconds with its unit, microseconds below one.
pub fn milliseconds(ms: f64) -> String {
    if ms < 1.0 { format!("{} us", three_digits(1e3 * ms)) } else { three_digits(ms) + " ms" }
}

pub fn minutes(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    format!("{} min {} s", whole / 60, whole % 60)
}

pub fn bold(text: String) -> String {
    format!("**{text}**")
}
