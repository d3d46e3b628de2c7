//! Makes the README's results for `cargo xtask tables`: whole networks beside the better library on
//! three machines, as one Markdown table and one picture (`docs/results.svg`). Input: run files of
//! `benches/runs/`, read by `cpu.rs` and `gpu.rs`.

use super::run::Runs;
use super::table::{Against, Table, bold, milliseconds, ratio};
use super::{cpu, gpu};

/// The machines, in the order of the table's columns and of the picture's bars.
const MACHINES: [&str; 3] = ["one core of a Zen 4", "one core of a Cascade Lake", "an H200"];
/// The colours of their bars, which stand out on light and on dark pages.
const COLOURS: [&str; 3] = ["#2f7ed8", "#8bbc21", "#c8553d"];

/// A network on each machine where it was timed.
struct Row {
    name: &'static str,
    on: [Option<Against>; 3],
}

fn rows(runs: &Runs) -> Result<Vec<Row>, String> {
    let [zen_4, cascade_lake] = cpu::against(runs)?;
    let all = [zen_4, cascade_lake, gpu::against(runs)?];
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in all.iter().flatten() {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let of = |name: &str, machine: &[(&str, Against)]| {
        machine.iter().find(|(n, _)| *n == name).map(|(_, against)| *against)
    };
    let row = |name: &&'static str| Row { name, on: [0, 1, 2].map(|i| of(name, &all[i])) };
    Ok(names.iter().map(row).collect())
}

/// The table: of each network our time, and how many times the better library's it is faster.
pub fn table(runs: &Runs) -> Result<String, String> {
    let sources = [cpu::ZEN_4, cpu::CASCADE_LAKE, gpu::DAY_1, gpu::DAY_2];
    let [a, b, c] = MACHINES;
    let mut table = Table::new(["network", a, b, c], &sources);
    let cell = |on: Option<Against>| {
        on.map_or_else(String::new, |a| {
            format!("{}, {}", milliseconds(a.ours_ms), bold(ratio(a.ratio)))
        })
    };
    for row in rows(runs)? {
        let [zen_4, cascade_lake, h200] = row.on.map(cell);
        table.row([row.name.into(), zen_4, cascade_lake, h200]);
    }
    Ok(table.markdown())
}

/// Pixels of the picture: its width, where bars begin, a bar and what lies between networks.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 130.0;
const BAR: f64 = 12.0;
const GAP: f64 = 14.0;
const TOP: f64 = 44.0;

/// The picture: a bar for each network and machine, as long as the ratio; the better library ends
/// at the line.
pub fn picture(runs: &Runs) -> Result<String, String> {
    let rows = rows(runs)?;
    let ratios = rows.iter().flat_map(|r| r.on.iter().flatten()).map(|a| a.ratio);
    let scale = (WIDTH - LEFT - 60.0) / ratios.fold(1.0, f64::max);
    let mut body = String::new();
    let mut y = TOP;
    for row in &rows {
        let bars: Vec<(usize, Against)> =
            row.on.iter().enumerate().filter_map(|(i, on)| Some((i, (*on)?))).collect();
        let middle = y + bars.len() as f64 * BAR / 2.0 + 4.0;
        body += &text(LEFT - 8.0, middle, "end", row.name);
        for (machine, against) in bars {
            let length = against.ratio * scale;
            body += &format!(
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{:.1}\" \
                 fill=\"{}\"/>\n",
                BAR - 2.0,
                COLOURS[machine]
            );
            body += &text(LEFT + length + 5.0, y + BAR - 3.0, "start", &ratio(against.ratio));
            y += BAR;
        }
        y += GAP;
    }
    let mut legend = String::new();
    for (i, machine) in MACHINES.iter().enumerate() {
        let x = LEFT + 190.0 * i as f64;
        legend += &format!(
            "<rect x=\"{x}\" y=\"10\" width=\"10\" height=\"10\" fill=\"{}\"/>\n",
            COLOURS[i]
        );
        legend += &text(x + 15.0, 19.0, "start", machine);
    }
    let line = LEFT + scale;
    legend += &text(line, TOP - 11.0, "middle", "1");
    let height = y + 6.0;
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>How many times as fast as the better library</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{legend}{body}\
         <line x1=\"{line:.1}\" y1=\"{:.1}\" x2=\"{line:.1}\" y2=\"{y:.1}\" stroke=\"#333333\" \
         stroke-dasharray=\"4 3\"/>\n</svg>\n",
        TOP - 8.0
    ))
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333333\">{words}</text>\n"
    )
}
