//! Tests of a chooser of solvers on made tables whose fastest solver follows a rule: the rule is
//! learned, measured problems are recalled, damaged files are refused, and a seed gives the same
//! file on any number of threads.

use super::chooser::{Asked, Chooser, ChooserSource};
use super::train::{FindTraining, train};
use squall_core::find::{ChannelOrder, FindProblem, FindSolver, FindTable, Found, ListEnd};

/// On this GPU `small` wins up to 64 channels and `large` above; `slow` always loses. `large` needs
/// the image's bytes as workspace.
fn table(device: &str, speed: f32) -> FindTable {
    let solver = |n: &str| FindSolver { name: n.into(), algorithm: "FwdAlgoDirect".into() };
    let mut t = FindTable {
        device: device.into(),
        solvers: vec![solver("small"), solver("large"), solver("slow")],
        starts: vec![0],
        ..FindTable::default()
    };
    for c in [8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256] {
        for h in [7, 14, 28, 56] {
            for n in [1, 2, 4, 8] {
                let p = problem(c, h, n);
                let time = |per: f64| (p.flop() * 1e-9 * per + 0.01) as f32 / speed;
                let (small, large) = if c <= 64 { (1.0, 3.0) } else { (4.0, 1.0) };
                let image = (p.elements()[0] * 4.0) as u64;
                let mut rows = vec![
                    Found { solver: 0, ms: time(small), workspace: 0 },
                    Found { solver: 1, ms: time(large), workspace: image },
                    Found { solver: 2, ms: time(20.0), workspace: 0 },
                ];
                rows.sort_by(|a, b| a.ms.total_cmp(&b.ms));
                t.rows.extend(rows);
                t.starts.push(t.rows.len() as u32);
                t.ends.push(ListEnd::Whole);
                t.problems.push(p);
            }
        }
    }
    t
}

fn problem(c: i32, h: i32, n: i32) -> FindProblem {
    FindProblem {
        deep: false,
        precision: 0,
        direction: 0,
        order: ChannelOrder::First,
        sizes: [c, 1, h, h, c, 1, h, h, n, 1, 3, 3, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    }
}

fn trained() -> Chooser {
    let t = FindTraining { rounds: 30, ..FindTraining::default() };
    let tables = vec![table("gfx900_56", 1.0), table("gfx906_60", 2.0)];
    train(tables, &t, &|| true, &mut |_| ()).unwrap()
}

fn asked<'a>(problem: &'a FindProblem, device: &'a str) -> Asked<'a> {
    Asked { problem, device, workspace: None, without: &[], recall: true }
}

#[test]
fn the_rule_is_learned_and_the_file_answers_the_same() {
    let c = trained();
    let bytes = c.to_bytes().unwrap();
    let again = Chooser::from_bytes(&bytes).unwrap();
    assert!(again.to_bytes().unwrap() == bytes);
    for (channels, best) in [(12, "small"), (40, "small"), (112, "large"), (224, "large")] {
        let p = problem(channels, 20, 3);
        for device in ["gfx900_56", "gfx906_60", "gfx90a_104"] {
            let answer = c.choose(&asked(&p, device));
            let first = &answer.choices[0];
            assert_eq!(c.solver(first.solver).name, best, "{channels} on {device}");
            assert_eq!(answer.source, ChooserSource::Model);
            let sum: f64 = answer.choices.iter().map(|x| x.probability).sum();
            assert!((sum - 1.0).abs() < 1e-6);
            assert!(answer.choices.iter().all(|x| x.range.0 <= x.ms && x.ms <= x.range.1));
            let same = again.choose(&asked(&p, device));
            let names = |a: &[super::Choice]| a.iter().map(|x| x.solver).collect::<Vec<_>>();
            assert_eq!(names(&same.choices), names(&answer.choices));
        }
    }
}

#[test]
fn what_was_measured_is_recalled_and_what_does_not_fit_is_left_out() {
    let c = trained();
    let p = problem(128, 28, 4);
    let answer = c.choose(&asked(&p, "gfx900_56"));
    assert_eq!(answer.source, ChooserSource::Database);
    let best = &answer.choices[0];
    assert_eq!(c.solver(best.solver).name, "large");
    assert_eq!(best.workspace, (p.elements()[0] * 4.0) as u64);
    let new = problem(128, 21, 4);
    let told = c.choose(&asked(&new, "gfx900_56"));
    assert_eq!(told.choices[0].workspace, (new.elements()[0] * 4.0) as u64);
    let poor = c.choose(&Asked { workspace: Some(0), ..asked(&new, "gfx900_56") });
    assert_eq!(c.solver(poor.choices[0].solver).name, "small");
    let without = ["small".to_string()];
    let rest = c.choose(&Asked { without: &without, ..asked(&new, "gfx900_56") });
    assert!(rest.choices.iter().all(|x| c.solver(x.solver).name != "small"));
    let other = FindProblem { direction: 2, ..new };
    assert!(c.choose(&asked(&other, "gfx900_56")).choices.is_empty());
}

#[test]
fn solvers_that_no_neighbour_lists_stand_last_without_a_probability() {
    // One solver serves a single problem, far from the one that is asked for.
    let mut rare = table("gfx900_56", 1.0);
    rare.solvers.push(FindSolver { name: "rare".into(), algorithm: "FwdAlgoDirect".into() });
    rare.rows[2].solver = 3;
    let t = FindTraining { rounds: 5, ..FindTraining::default() };
    let c = train(vec![rare], &t, &|| true, &mut |_| ()).unwrap();
    let answer = c.choose(&asked(&problem(256, 50, 7), "gfx900_56"));
    let last = answer.choices.last().unwrap();
    assert_eq!(c.solver(last.solver).name, "rare");
    assert!(last.probability == 0.0 && answer.choices[0].probability > 0.0);
    let without: Vec<String> = ["small", "large", "slow"].map(String::from).to_vec();
    let only = c.choose(&Asked { without: &without, ..asked(&problem(256, 50, 7), "gfx900_56") });
    assert_eq!(only.choices.len(), 1);
}

#[test]
fn a_solver_that_only_few_problems_of_a_new_gpu_list_is_chosen_there() {
    let mut few = table("gfx942_304", 4.0);
    few.solvers.push(FindSolver { name: "new".into(), algorithm: "FwdAlgoDirect".into() });
    few.problems.truncate(40);
    few.ends.truncate(40);
    few.starts.truncate(41);
    few.rows.truncate(few.starts[40] as usize);
    for p in 0..40 {
        let row = few.starts[p] as usize;
        few.rows[row].solver = 3;
        few.rows[row].ms *= 0.2;
    }
    let t = FindTraining { rounds: 10, ..FindTraining::default() };
    let tables = vec![table("gfx900_56", 1.0), table("gfx906_60", 2.0), few];
    let c = train(tables, &t, &|| true, &mut |_| ()).unwrap();
    let answer = c.choose(&asked(&problem(20, 20, 3), "gfx942_304"));
    let names: Vec<&str> =
        answer.choices.iter().map(|x| c.solver(x.solver).name.as_str()).take(2).collect();
    assert!(names.contains(&"new"), "{names:?}");
    let elsewhere = c.choose(&asked(&problem(20, 20, 3), "gfx906_60"));
    assert!(elsewhere.choices.iter().all(|x| c.solver(x.solver).name != "new"));
}

#[test]
fn a_damaged_file_is_refused() {
    let bytes = trained().to_bytes().unwrap();
    // What a stranger's file says of its trees is not believed: any byte may be any other.
    let Ok(body) =
        crate::tensors::read_at_most(flate2::read::ZlibDecoder::new(&bytes[12..]), 1 << 24)
            .map(Option::unwrap)
    else {
        panic!("it does not unpack")
    };
    for at in (0..body.len()).step_by(body.len() / 400) {
        let mut other = body.clone();
        other[at] ^= 0x5b;
        let mut file = bytes[..12].to_vec();
        let mut packed = flate2::read::ZlibEncoder::new(&other[..], flate2::Compression::fast());
        std::io::Read::read_to_end(&mut packed, &mut file).unwrap();
        if let Ok(c) = Chooser::from_bytes(&file) {
            c.choose(&asked(&problem(12, 20, 3), "gfx900_56"));
        }
    }
    for cut in [0, 4, 11, 40, bytes.len() / 2, bytes.len() - 1] {
        assert!(Chooser::from_bytes(&bytes[..cut]).is_err(), "{cut}");
    }
    let mut wrong = bytes.clone();
    wrong[8] = 99;
    assert!(Chooser::from_bytes(&wrong).err().unwrap().to_string().contains("version 99"));
}

#[test]
fn equal_seeds_give_equal_files_on_any_number_of_threads() {
    let of = |threads| {
        let t = FindTraining { rounds: 5, threads, ..FindTraining::default() };
        let tables = vec![table("gfx900_56", 1.0), table("gfx906_60", 2.0)];
        train(tables, &t, &|| true, &mut |_| ()).unwrap().to_bytes().unwrap()
    };
    assert_eq!(of(1), of(3));
}
