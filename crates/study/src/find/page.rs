//! The study of choosers of MIOpen's solvers as one HTML page: tables of the time lost by each
//! method, by GPU and part of the data. Input: rows of `mod.rs`; output: the text of the page,
//! which has no script and loads nothing from elsewhere.

use super::FindRow;
use squall::report::STYLE;
use squall::report::svg::escape;
use std::fmt::Write;

/// The whole page.
pub fn page(title: &str, about: &str, rows: &[FindRow]) -> String {
    let mut p = String::with_capacity(64 << 10);
    let _ = write!(
        p,
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width, initial-scale=1'>\
         <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\
         <title>Squall: {0}</title>\n<style>{1}</style></head>\n<body><main>\n<h1>{0}</h1><p \
         class='sub'>{2}</p><p class='sub'>Loss: the time of the first solver of an answer over \
         the least, geometric mean; where a list that is cut to four lacks it, the fourth's time \
         counts (strict). The interval is of 95 %.</p>\n",
        escape(title),
        STYLE,
        escape(about)
    );
    let mut i = 0;
    while i < rows.len() {
        let first = &rows[i];
        let same = |r: &FindRow| {
            (&r.device, r.part, r.dimensions) == (&first.device, first.part, first.dimensions)
        };
        let end = i + rows[i..].iter().take_while(|r| same(r)).count();
        let _ = write!(
            p,
            "<h2>{}, {}, {}d</h2>\n<table><thead><tr><th>who</th><th>problems</th><th>top-1 %</th>\
             <th>within 5 %</th><th>loss</th><th>interval</th><th>p95</th><th>walk</th><th>first \
             two</th><th>coverage</th><th>times</th><th>in range %</th></tr></thead><tbody>",
            escape(&first.device),
            first.part,
            first.dimensions
        );
        rows[i..end].iter().for_each(|r| row(&mut p, r));
        p += "</tbody></table>\n";
        i = end;
    }
    p + "</main></body></html>\n"
}

fn row(p: &mut String, r: &FindRow) {
    let s = &r.scores;
    let mut name = r.method.clone();
    if let Some(x) = r.precision {
        name = format!("{name}, {x}");
    }
    if let Some(x) = r.direction {
        name = format!("{name}, {x}");
    }
    let (times, inside) = match &r.times {
        Some(t) => (format!("x {:.3}", t.error()), format!("{:.1}", 100.0 * t.inside())),
        None => ("".into(), "".into()),
    };
    let _ = write!(
        p,
        "<tr><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.4}</td><td>{:.3} - {:.3}\
         </td><td>{:.2}</td><td>{:.4}</td><td>{:.4}</td><td>{:.4}</td><td>{times}</td>\
         <td>{inside}</td></tr>",
        escape(&name),
        s.problems,
        100.0 * s.top1,
        100.0 * s.within5,
        s.strict,
        s.interval.0,
        s.interval.1,
        s.p95,
        s.walk,
        s.two,
        s.coverage
    );
}
