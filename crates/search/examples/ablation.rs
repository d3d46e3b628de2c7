//! Prints curves of all search strategies, and of variants that lack a part, on the synthetic
//! problems of `landscape.rs`: geometric means over problems and seeds of the best time over that
//! of perfect code, by the number of trials.
//!
//! `cargo run --release -p squall-search --example ablation [seeds] [trials]`

#[path = "../src/landscape.rs"]
#[allow(dead_code)]
mod landscape;

use landscape::{TestProblem, curve};
use squall_search::{Setting, ablations, strategies};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().unwrap_or(0));
    let (seeds, most) = (arguments.next().unwrap_or(5), arguments.next().unwrap_or(300));
    let budgets: Vec<usize> =
        [16, 32, 64, 100, 200, 300, 1000].into_iter().filter(|&b| b <= most).collect();
    println!(
        "{:26}{}  ms/trial",
        "best time at trials",
        budgets.iter().map(|b| format!("{b:>9}")).collect::<String>()
    );
    for info in strategies().iter().chain(ablations()) {
        let mut line = format!("{:26}", info.name);
        let (mut spent, mut asked) = (std::time::Duration::ZERO, 0);
        for &trials in &budgets {
            let mut sums = Vec::new();
            for seed in 0..seeds as u64 {
                for (i, p) in TestProblem::several(seed).iter().enumerate() {
                    let mut s =
                        (info.make)(&Setting::new(p.tunables(), seed * 31 + i as u64, trials));
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
