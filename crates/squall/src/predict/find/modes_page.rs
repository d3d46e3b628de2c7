//! The result of `modes.rs` as one HTML page: a plot of each find mode's cost over the number of
//! runs, and a table. The page has no script and loads nothing from elsewhere. `api/choose.rs`
//! writes it to a file.

use super::modes::{MODES, ModeCosts, RUNS};
use crate::base::page::STYLE;
use crate::base::page::{escape, open, short};
use std::fmt::Write;

/// Colours of the modes' lines; ours stand out.
const COLOURS: [&str; 6] = ["#888", "#b08900", "#a05050", "#5b8def", "#2a6fdb", "#0b3d91"];

/// The whole page.
pub fn page(costs: &ModeCosts, device: &str) -> String {
    let mut p = String::with_capacity(16 << 10);
    let _ = write!(
        p,
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' \
         content='width=device-width, initial-scale=1'>\
         <meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\
         <title>Squall: find modes on {0}</title>\n<style>{1}</style></head>\n<body><main>\n\
         <h1>Find modes on {0}</h1><p class='sub'>{2} problems; measured times are the truth, and \
         the chooser does not see them. The cost of finding and running over that of running each \
         problem's fastest solver, by the number of runs.</p>\n",
        escape(device),
        STYLE,
        costs.problems.0
    );
    p += &plot(costs);
    table(&mut p, costs);
    p += "</main></body></html>\n";
    p
}

/// The least cost: the fastest solver from the first run on.
fn least(costs: &ModeCosts, r: usize) -> f64 {
    // Normal mode runs each problem's fastest solver after finding.
    costs.ms[0][r] - costs.finding[0][r]
}

fn plot(costs: &ModeCosts) -> String {
    let (w, h, left, top) = (760.0, 320.0, 60.0, 16.0);
    let mut svg = open(w, h, "cost over the number of runs");
    let most = costs.ms.iter().flat_map(|m| (0..RUNS.len()).map(|r| m[r] / least(costs, r)));
    let most = most.fold(1.1, f64::max).log10();
    let x = |r: usize| left + (w - left - 20.0) * r as f64 / (RUNS.len() - 1) as f64;
    let y = |ratio: f64| top + (h - top - 40.0) * (1.0 - ratio.max(1.0).log10() / most);
    for (r, runs) in RUNS.iter().enumerate() {
        let _ = write!(
            svg,
            "<text x='{:.0}' y='{:.0}' text-anchor='middle'>{}</text>",
            x(r),
            h - 18.0,
            short(*runs)
        );
    }
    for ratio in [1.0, 1.1, 2.0, 5.0, 10.0, 30.0, 100.0] {
        if f64::log10(ratio) <= most {
            let _ = write!(
                svg,
                "<line x1='{left}' x2='{:.0}' y1='{1:.1}' y2='{1:.1}' stroke='#8884'/><text \
                 x='{2}' y='{3:.1}' text-anchor='end'>{ratio}</text>",
                w - 20.0,
                y(ratio),
                left - 6.0,
                y(ratio) + 4.0
            );
        }
    }
    for (m, (_, name)) in MODES.iter().enumerate() {
        let points: Vec<String> = (0..RUNS.len())
            .map(|r| format!("{:.1},{:.1}", x(r), y(costs.ms[m][r] / least(costs, r))))
            .collect();
        let _ = write!(
            svg,
            "<polyline points='{}' fill='none' stroke='{}' stroke-width='2'><title>{}</title>\
             </polyline>",
            points.join(" "),
            COLOURS[m],
            escape(name)
        );
    }
    svg + "</svg>\n"
}

fn table(p: &mut String, costs: &ModeCosts) {
    *p += "<table><thead><tr><th>mode</th>";
    for runs in RUNS {
        let _ = write!(p, "<th>{} runs</th>", short(runs));
    }
    *p += "</tr></thead><tbody>";
    for (m, (_, name)) in MODES.iter().enumerate() {
        let colour = COLOURS[m];
        let _ =
            write!(p, "<tr><td><span style='color:{colour}'>&#9632;</span> {}</td>", escape(name));
        for r in 0..RUNS.len() {
            let _ = write!(p, "<td>{:.3}</td>", costs.ms[m][r] / least(costs, r));
        }
        *p += "</tr>";
    }
    *p += "</tbody></table>\n";
}
