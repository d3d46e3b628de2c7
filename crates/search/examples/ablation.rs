//! Curves of all strategies on the synthetic problems: geometric means over problems and seeds
//! of the best time, relative to code without any loss.
//!
//! `cargo run --release -p squall-search --example ablation [seeds] [trials]`

#[path = "../src/landscape.rs"]
#[allow(dead_code)]
mod landscape;

use landscape::{Problem, curve};
use squall_search::{NoModel, Setting, Strategy, strategies, strategy::Storm};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().unwrap_or(0));
    let (seeds, most) = (arguments.next().unwrap_or(5), arguments.next().unwrap_or(300));
    let budgets: Vec<usize> =
        [16, 32, 64, 100, 200, 300, 1000].into_iter().filter(|&b| b <= most).collect();
    type Make = Box<dyn Fn(&Setting) -> Box<dyn Strategy>>;
    let mut rows: Vec<(String, Make)> =
        strategies().iter().map(|s| (s.name.to_string(), Box::new(s.make) as Make)).collect();
    rows.push((
        "storm without a model".into(),
        Box::new(|s| Box::new(Storm::with_model(s, Box::new(NoModel { seed: s.seed })))),
    ));
    println!(
        "{:24}{}  ms/trial",
        "best time at trials",
        budgets.iter().map(|b| format!("{b:>9}")).collect::<String>()
    );
    for (name, make) in rows {
        let mut line = format!("{name:24}");
        let (mut spent, mut asked) = (std::time::Duration::ZERO, 0);
        for &trials in &budgets {
            let mut sums = Vec::new();
            for seed in 0..seeds as u64 {
                for (i, p) in Problem::several(seed).iter().enumerate() {
                    let mut s = make(&Setting {
                        tunables: p.tunables(),
                        seed: seed * 31 + i as u64,
                        trials,
                    });
                    let got = curve(
                        |n, told| {
                            let from = std::time::Instant::now();
                            s.tell(told);
                            let out = s.ask(n);
                            spent += from.elapsed();
                            asked += out.len();
                            out
                        },
                        p,
                        trials,
                    );
                    let floor =
                        p.landscapes.iter().map(|l| l.floor()).fold(f64::INFINITY, f64::min);
                    sums.push((got.last().copied().unwrap_or(f64::INFINITY) / floor).ln());
                }
            }
            line += &format!("{:9.4}", (sums.iter().sum::<f64>() / sums.len() as f64).exp());
        }
        println!("{line}  {:.2}", spent.as_secs_f64() * 1e3 / f64::from(asked.max(1) as u32));
    }
}
