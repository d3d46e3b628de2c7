//! Development harness: trains and scores solvers on examples in JSON lines.
//! `forecast FAMILIES.json EXAMPLES.jsonl SOLVER[,SOLVER..] [key=value ..]`

use squall_core::forecast::{Example, Family, FamilySpec, Part, Problem, Split, fnv1a};
use squall_predict::classical::{self, Classical};
use squall_predict::metrics::{Outcome, calibration_error, kernel_precision_at, negative_log_likelihood, precision_at};
use squall_predict::paper::{PaperModel, PaperOptions, Trained};
use squall_predict::{Method, Options, Predictor, Room, Solver};
use std::sync::Arc;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a: Vec<String> = std::env::args().collect();
    let option = |k: &str| a.iter().find_map(|x| x.strip_prefix(&format!("{k}=")));
    let number = |k: &str, d: f64| option(k).and_then(|v| v.parse().ok()).unwrap_or(d);
    let families: Vec<FamilySpec> = serde_json::from_str(&std::fs::read_to_string(&a[1])?)?;
    let examples: Vec<Example> = std::fs::read_to_string(&a[2])?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let devices = option("train").unwrap_or("gfx900_56").to_owned();
    let test_device = option("test").unwrap_or("gfx900_56").to_owned();
    let split = if option("split") == Some("layer") { Split::Layer } else { Split::Random };
    let mut options = Options { seed: number("seed", 1.0) as u64, threads: number("threads", 2.0) as usize, ..Options::default() };
    options.epochs = (number("repochs", options.epochs.0 as f64) as usize, number("cepochs", options.epochs.1 as f64) as usize);
    options.members = (number("rmembers", options.members.0 as f64) as usize, number("cmembers", options.members.1 as f64) as usize);
    options.ranker.negatives = number("neg", options.ranker.negatives as f64) as usize;
    options.ranker.hidden = number("hidden", options.ranker.hidden as f64) as usize;
    options.ranker.dropout = number("drop", f64::from(options.ranker.dropout)) as f32;
    options.chain.dropout = number("cdrop", f64::from(options.chain.dropout)) as f32;
    for solver in a[3].split(',') {
        let spec = families.iter().find(|f| f.solver == solver).ok_or("unknown solver")?;
        let family = Arc::new(Family::new(spec.clone())?);
        let t = Instant::now();
        let inside = |e: &&Example| {
            let legal = family.instance(&e.problem).ok().and_then(|i| i.candidates().find(&family.positions(&e.values)?));
            legal.is_some()
        };
        let mine: Vec<&Example> =
            examples.iter().filter(|e| e.problem.solver == solver && devices.contains(&e.problem.device)).filter(inside).collect();
        let mine: Vec<&Example> = mine.iter().step_by((mine.len() / number("limit", 1e9) as usize).max(1)).copied().collect();
        println!("# {solver}: {} examples of {devices}, checked in {:.1} s, {a:?}", mine.len(), t.elapsed().as_secs_f64());
        for model in option("paper").unwrap_or("").split(',').filter(|m| !m.is_empty()) {
            let kind: PaperModel = serde_json::from_str(&format!("\"{model}\""))?;
            for precision in ["FP32", "FP16"] {
                let row: Vec<&Example> = mine.iter().filter(|e| e.problem.word("precision") == Some(precision)).copied().collect();
                let t = Instant::now();
                let options = PaperOptions {
                    hidden: number("width", 128.0) as usize,
                    epochs: number("pepochs", 25.0) as usize,
                    seed: options.seed,
                    threads: options.threads,
                };
                let trained = Trained::train(family.clone(), &row, &|p| split.part(p), kind, &options, &mut |_, _| true)?;
                let seconds = t.elapsed().as_secs_f64();
                let test: Vec<&Example> = row.iter().filter(|e| split.part(&e.problem) == Part::Test).copied().collect();
                let o = trained.evaluate(&test, options.threads)?;
                let p: Vec<String> = [1, 10, 30, 50, 100].iter().map(|&k| format!("{:5.1}", 100.0 * precision_at(k, &o).value())).collect();
                println!(
                    "{solver:20} {precision} n={} {model:16} {} {} epochs {seconds:.0} s",
                    test.len(),
                    p.join(" "),
                    trained.curve.len()
                );
            }
        }
        for model in option("classical").unwrap_or("").split(',').filter(|m| !m.is_empty()) {
            let kind: Classical = serde_json::from_str(&format!("\"{model}\""))?;
            for precision in ["FP32", "FP16"] {
                let row: Vec<&Example> = mine.iter().filter(|e| e.problem.word("precision") == Some(precision)).copied().collect();
                let t = Instant::now();
                let trained = classical::Trained::train(family.clone(), &row, &|p| split.part(p), kind, options.seed, options.threads)?;
                let seconds = t.elapsed().as_secs_f64();
                let test: Vec<&Example> = row.iter().filter(|e| split.part(&e.problem) == Part::Test).copied().collect();
                let o = trained.evaluate(&test, options.threads)?;
                let p: Vec<String> = [1, 10, 30, 50, 100].iter().map(|&k| format!("{:5.1}", 100.0 * precision_at(k, &o).value())).collect();
                println!("{solver:20} {precision} n={} {model:16} {} {seconds:.0} s", test.len(), p.join(" "));
            }
        }
        if option("paper").or(option("classical")).is_some() {
            continue;
        }
        if let Some(folds) = option("folds").and_then(|f| f.parse::<u64>().ok()) {
            let mut all: [Vec<Outcome>; 2] = Default::default();
            for fold in 0..folds {
                let part = |p: &Problem| match (fnv1a(p.key.as_bytes()) / 100 % folds == fold, Split::Random.part(p)) {
                    (true, _) => Part::Test,
                    (false, Part::Validation) => Part::Validation,
                    _ => Part::Train,
                };
                let trained = Solver::learn(family.clone(), &mine, &part, &options, &mut |_| true)?;
                for (precision, all) in ["FP32", "FP16"].iter().zip(&mut all) {
                    let test = |e: &&&Example| {
                        part(&e.problem) == Part::Test && e.problem.device == test_device && e.problem.word("precision") == Some(precision)
                    };
                    let test: Vec<&Example> = mine.iter().filter(test).copied().collect();
                    all.extend(trained.evaluate(&test, Method::Pair, options.threads)?);
                }
            }
            for (precision, o) in ["FP32", "FP16"].iter().zip(&all) {
                let p: Vec<String> = [1, 10, 30, 50, 100].iter().map(|&k| format!("{:5.1}", 100.0 * precision_at(k, o).value())).collect();
                println!("{solver:20} {precision} n={} Pair, {folds} folds {} nll {:.3}", o.len(), p.join(" "), negative_log_likelihood(o));
            }
            continue;
        }
        let t = Instant::now();
        let owned: Vec<Example> = mine.iter().map(|e| (*e).clone()).collect();
        let predictor = Predictor::train(std::slice::from_ref(&family), &owned, Some(split), &options, &mut |p| {
            if p.within == 0.0
                && let Some(l) = p.last
            {
                eprintln!(
                    "{:7.1} s {} {:?} {}/{} train {:.4} validation {:.4}",
                    t.elapsed().as_secs_f64(),
                    p.network,
                    p.member,
                    p.epochs.0,
                    p.epochs.1,
                    l.train,
                    l.validation
                );
            }
            true
        })?;
        let trained = predictor.solver(solver)?;
        if let Some(path) = option("out") {
            let path = format!("{path}.{solver}");
            predictor.save(path.as_ref())?;
            let t = Instant::now();
            squall_predict::Predictor::load(path.as_ref())?;
            println!("# {} bytes, loaded in {:.1} ms", std::fs::metadata(&path)?.len(), 1e3 * t.elapsed().as_secs_f64());
        }
        println!("# trained in {:.1} s, mix {:?}", t.elapsed().as_secs_f64(), trained.mix());
        if option("time").is_some() {
            let mut room = Room::default();
            for method in [Method::Frequency, Method::Neighbours, Method::Ranker, Method::Chain, Method::Pair] {
                let mut all = Vec::new();
                for e in examples
                    .iter()
                    .filter(|e| e.problem.solver == solver && e.problem.device == test_device)
                    .filter(|e| split.part(&e.problem) == Part::Test)
                {
                    let t = Instant::now();
                    trained.predict(&e.problem, 100, method, &mut room)?;
                    all.push(1e3 * t.elapsed().as_secs_f64());
                }
                all.sort_by(f64::total_cmp);
                println!(
                    "{solver:20} {method:?} k=100 one thread: median {:.2} ms, 90 % {:.2}, worst {:.2}",
                    all[all.len() / 2],
                    all[all.len() * 9 / 10],
                    all[all.len() - 1]
                );
            }
            continue;
        }
        for precision in ["FP32", "FP16"] {
            let test: Vec<&Example> = examples
                .iter()
                .filter(|e| e.problem.solver == solver && e.problem.device == test_device && e.problem.word("precision") == Some(precision))
                .filter(|e| split.part(&e.problem) == Part::Test)
                .collect();
            for method in [Method::Frequency, Method::Neighbours, Method::Ranker, Method::Chain, Method::Pair] {
                let t = Instant::now();
                let o = trained.evaluate(&test, method, options.threads)?;
                let p: Vec<String> = [1, 10, 30, 50, 100].iter().map(|&k| format!("{:5.1}", 100.0 * precision_at(k, &o).value())).collect();
                println!(
                    "{solver:20} {precision} n={} {:11} {} same kernel {:.1}/{:.1} nll {:.3} ece {:.3} {:.2} ms",
                    test.len(),
                    format!("{method:?}"),
                    p.join(" "),
                    100.0 * kernel_precision_at(1, &o).value(),
                    100.0 * kernel_precision_at(10, &o).value(),
                    negative_log_likelihood(&o),
                    calibration_error(&o),
                    1e3 * t.elapsed().as_secs_f64() * options.threads as f64 / test.len() as f64
                );
            }
        }
    }
    Ok(())
}
