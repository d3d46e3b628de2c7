//! Makes the documents' tables of search strategies against each other for `cargo xtask tables`, on
//! real kernels and on recorded spaces. Input: files of `benches/runs/`; output: Markdown.
//! `report.rs` lists the tables by name.

use super::run::Runs;
use super::table::{Table, bold};

/// Run files have the names that strategies had when they were written.
fn strategy(name: &str) -> &str {
    match name {
        "storm+raindrop" => "evolution+droplet",
        "storm" => "evolution",
        "raindrop" => "droplet",
        n => n,
    }
}

/// Real kernels of a CPU: the best time known over that of a run, in the mean and at worst.
pub fn kernels(runs: &Runs) -> Result<String, String> {
    let (small, large) = ("2026-11-22-search-eight-96.json", "2026-11-22-search-eight.json");
    let budgets = [(small, 64.0), (small, 128.0), (large, 300.0), (large, 1000.0)];
    let head = ["strategy", "64 trials", "128", "300", "1,000"];
    let mut table = Table::new(head, &[small, large]);
    for name in ["storm+raindrop", "storm", "raindrop"] {
        let mut cells = vec![strategy(name).to_string()];
        for (file, trials) in budgets {
            let run = runs.open(file)?;
            let mut mean = None;
            for s in run.part().list("scores")? {
                if s.text("strategy")? == name && s.number("trials")? == trials {
                    mean = Some(s.number("geomean")?);
                }
            }
            let mut worst = f64::MAX;
            for r in run.part().list("runs")? {
                if r.text("strategy")? == name && r.number("budget")? == trials {
                    worst = worst.min(r.number("share")?);
                }
            }
            let mean = mean.ok_or_else(|| format!("{file}: no score of {name} at {trials}"))?;
            cells.push(format!("{mean:.3} ({worst:.3})"));
        }
        let cells: [String; 5] = cells.try_into().map_err(|_| format!("{name}: five columns"))?;
        table.row(cells);
    }
    Ok(table.markdown())
}

/// The default on recorded spaces, one by one: columns of the report that `squall replay` printed.
pub fn spaces(runs: &Runs) -> Result<String, String> {
    let file = "2026-11-21-replay-default.txt";
    let head = ["space", "score", "at 25", "50", "100", "200", "400", "best found"];
    let mut table = Table::new(head, &[file]);
    for line in runs.text(file)?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, score, a, b, c, d, e, best, "%"] => table.row([
                format!("`{name}`"),
                plain(score),
                plain(a),
                plain(b),
                plain(c),
                plain(d),
                plain(e),
                format!("{best} %"),
            ]),
            ["storm+raindrop", score, a, b, c, d, e, _] => table.row([
                "all 11, the mean".into(),
                bold(plain(score)),
                plain(a),
                plain(b),
                plain(c),
                plain(d),
                plain(e),
                String::new(),
            ]),
            _ => {}
        }
    }
    Ok(table.markdown())
}

fn plain(number: &str) -> String {
    number.trim_start_matches('+').to_string()
}

/// All strategies on recorded spaces, each beside another tuner's of the same kind.
pub fn strategies(runs: &Runs) -> Result<String, String> {
    let file = "2026-11-22-replay-strategies.json";
    let run = runs.open(file)?;
    let head = ["strategy", "score", "at 25", "100", "400", "another tuner's", "score", "at 400"];
    let mut table = Table::new(head, &[file]);
    for row in run.part().list("rows")? {
        let at = row.get("at")?;
        let figure = |key| at.number(key).map(|v| format!("{v:.3}"));
        table.row([
            format!("`{}`", strategy(row.text("strategy")?)),
            bold(format!("{:.3}", row.number("score")?)),
            figure("25")?,
            figure("100")?,
            figure("400")?,
            row.text("namesake")?.into(),
            row.text("namesake_score")?.into(),
            row.text("namesake_at_400")?.into(),
        ]);
    }
    Ok(table.markdown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_of_strategies_are_told_by_their_new_ones() {
        assert_eq!(strategy("storm+raindrop"), "evolution+droplet");
        assert_eq!(strategy("bayes"), "bayes");
        assert_eq!(plain("+0.787"), "0.787");
    }
}
