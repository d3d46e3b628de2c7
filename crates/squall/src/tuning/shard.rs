//! Shards: parts of one tuning job for several processes that work without a server, such as the
//! tasks of a batch scheduler. Input: `--shard 2/8` or the scheduler's environment variables, and
//! the tasks; output: this process's tasks, seed and budget. Tasks are dealt out so that the work
//! is balanced; where there are more processes than tasks, the processes of one task divide its
//! trials.

use crate::base::error::Error;
use crate::tuning::settings::Budget;
use squall_core::Task;
use squall_search::TaskWeight;
use std::fmt;
use std::str::FromStr;

/// The `index`-th of `count` processes; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u64,
    count: u64,
}

/// What a process does: which tasks, with which seed, and what it may spend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work<'t> {
    pub tasks: Vec<&'t Task>,
    /// Mixed into the session's seed, so that processes with one task try different candidates.
    pub seed: u64,
    pub budget: Budget,
}

impl<'t> Work<'t> {
    /// The work of a process that shares it with no other.
    pub fn whole(tasks: Vec<&'t Task>, budget: Budget) -> Work<'t> {
        Work { tasks, seed: 0, budget }
    }
}

impl Shard {
    /// The `index`-th of `count`, from 1.
    pub fn new(index: u64, count: u64) -> Result<Shard, String> {
        if index == 0 || index > count {
            return Err(format!("shards are numbered from 1/{count} to {count}/{count}"));
        }
        Ok(Shard { index, count })
    }

    /// The shard that a cluster's scheduler gave to this process: of a Slurm array job, of Slurm's
    /// tasks, or of MPI's ranks.
    ///
    /// # Errors
    /// Where no such variable is set, or one is no number.
    pub fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Result<Shard, Error> {
        // The variables of a number, of the first one's number, and of how many there are.
        const KNOWN: [(&str, &str, &str); 4] = [
            ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT"),
            ("SLURM_PROCID", "", "SLURM_NTASKS"),
            ("OMPI_COMM_WORLD_RANK", "", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "", "PMI_SIZE"),
        ];
        let hint = "say which one it is, for instance --shard 3/16";
        let number = |name: &str| -> Result<Option<u64>, Error> {
            let Some(text) = variable(name) else { return Ok(None) };
            let parsed = text.trim().parse().map(Some);
            parsed.map_err(|_| Error::Usage {
                message: format!("{name}={text} is no whole number"),
                hint: hint.into(),
            })
        };
        for (index, first, count) in KNOWN {
            let (Some(i), Some(n)) = (number(index)?, number(count)?) else { continue };
            let first = number(first)?.unwrap_or(0);
            return Shard::new(i.wrapping_sub(first).wrapping_add(1), n).map_err(|e| {
                // Arrays with gaps, as `--array=1,5,9`, have no order that their numbers say.
                let message = format!("{index}={i} and {count}={n} are no shard: {e}");
                Error::Usage { message, hint: hint.into() }
            });
        }
        let names: Vec<&str> = KNOWN.iter().map(|k| k.0).collect();
        let message = format!("--shard auto, but none of {} is set", names.join(", "));
        Err(Error::Usage { message, hint: hint.into() })
    }

    /// This shard's part of the tasks and of the budget: trials that all tasks share are divided,
    /// those of a task where several shards have it; seconds are each process's own.
    pub(crate) fn part<'t>(&self, tasks: &[&'t Task], budget: Budget) -> Work<'t> {
        let all = tasks.len() as u64;
        if self.count <= all {
            let mine = self.balanced(tasks);
            let share = |n: u64| divided(n, self.index, self.count);
            let budget = Budget { trials: budget.trials.map(share), ..budget };
            return Work { tasks: mine, seed: 0, budget };
        }
        // Process i has task i mod T; those with one task divide its trials.
        let place = (self.index - 1) % all;
        let (nth, sharers) = ((self.index - 1) / all + 1, (self.count - place).div_ceil(all));
        let share = |n: u64| divided(n, nth, sharers);
        let budget = Budget {
            trials: budget.trials.map(|n| divided(n, self.index, self.count)),
            task_trials: budget.task_trials.map(share),
            ..budget
        };
        Work { tasks: vec![tasks[place as usize]], seed: self.index, budget }
    }

    /// This shard's tasks where each has one or more: the heaviest first, each to the shard that
    /// has least. The order of tasks stays.
    fn balanced<'t>(&self, tasks: &[&'t Task]) -> Vec<&'t Task> {
        let weight = |t: &Task| weight(t).expected_time();
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        order.sort_by(|a, b| weight(tasks[*b]).total_cmp(&weight(tasks[*a])).then(a.cmp(b)));
        let mut loads = vec![(0.0f64, 0usize); self.count as usize];
        let mut mine = Vec::new();
        for t in order {
            // While there are shards without a task, they come first.
            let least = (0..loads.len())
                .min_by(|a, b| {
                    let empty = |s: &usize| loads[*s].1 > 0;
                    empty(a).cmp(&empty(b)).then(loads[*a].0.total_cmp(&loads[*b].0))
                })
                .unwrap_or(0);
            loads[least].0 += weight(tasks[t]);
            loads[least].1 += 1;
            if least as u64 + 1 == self.index {
                mine.push(t);
            }
        }
        mine.sort_unstable();
        mine.into_iter().map(|t| tasks[t]).collect()
    }
}

/// The weight of a task before anything of it was measured.
pub(crate) fn weight(task: &Task) -> TaskWeight {
    let (flop, bytes) = (task.workload.flop(), task.workload.bytes().0);
    TaskWeight { count: task.count, flop, bytes }
}

/// The `index`-th of `count` parts of `n`, which differ by one at most; none is empty.
fn divided(n: u64, index: u64, count: u64) -> u64 {
    (n / count + u64::from(index <= n % count)).max(1)
}

impl FromStr for Shard {
    type Err = String;
    fn from_str(text: &str) -> Result<Shard, String> {
        let hint = "expected I/N, for instance 3/16, or auto";
        let (index, count) = text.split_once('/').ok_or(hint)?;
        let number = |t: &str| t.trim().parse::<u64>().map_err(|_| hint.to_string());
        Shard::new(number(index)?, number(count)?)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::user_input::Input;

    fn input(sizes: &[i64]) -> Input {
        let lines: Vec<String> =
            sizes.iter().map(|n| format!("matmul m={n} n={n} k={n}")).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.ops");
        std::fs::write(&path, lines.join("\n")).expect("a file");
        Input::load(&path.display().to_string(), &[]).expect("an input")
    }

    #[test]
    fn shards_have_each_task_once_and_about_the_same_work() {
        let input = input(&[512, 16, 16, 256, 256, 256, 400]);
        let tasks: Vec<&Task> = input.tasks().iter().collect();
        let budget = Budget { trials: Some(100), ..Budget::default() };
        for count in 1..=tasks.len() as u64 {
            let parts: Vec<Work> = (1..=count)
                .map(|i| Shard::new(i, count).expect("a shard").part(&tasks, budget))
                .collect();
            let mut names: Vec<&str> =
                parts.iter().flat_map(|p| &p.tasks).map(|t| t.name.as_str()).collect();
            names.sort_unstable();
            let mut all: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
            all.sort_unstable();
            assert_eq!(names, all);
            assert!(parts.iter().all(|p| !p.tasks.is_empty()));
            assert_eq!(parts.iter().filter_map(|p| p.budget.trials).sum::<u64>(), 100);
        }
    }

    #[test]
    fn more_shards_than_tasks_divide_the_trials_of_a_task() {
        let input = input(&[16, 32]);
        let tasks: Vec<&Task> = input.tasks().iter().collect();
        let budget = Budget { task_trials: Some(64), ..Budget::default() };
        let mut trials = [0; 2];
        let mut seeds = Vec::new();
        for i in 1..=5 {
            let part = Shard::new(i, 5).expect("a shard").part(&tasks, budget);
            let place = tasks.iter().position(|t| t.id == part.tasks[0].id).expect("a task");
            trials[place] += part.budget.task_trials.expect("trials");
            seeds.push(part.seed);
        }
        assert_eq!(trials, [64, 64]);
        seeds.dedup();
        assert_eq!(seeds.len(), 5);
    }

    #[test]
    fn shards_are_read_and_those_of_schedulers_found() {
        assert_eq!("3/16".parse::<Shard>().expect("a shard").to_string(), "3/16");
        for bad in ["0/4", "5/4", "3", "a/b", "1/0", "/", "-1/3"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
        let of = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            Shard::of_environment(&move |name| {
                pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone())
            })
        };
        let array = [
            ("SLURM_ARRAY_TASK_ID", "7"),
            ("SLURM_ARRAY_TASK_MIN", "5"),
            ("SLURM_ARRAY_TASK_COUNT", "4"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
        ];
        assert_eq!(of(&array).expect("a shard").to_string(), "3/4");
        let tasks = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(of(&tasks).expect("a shard").to_string(), "1/8");
        assert!(of(&[]).is_err());
        assert!(of(&[("SLURM_PROCID", "x"), ("SLURM_NTASKS", "8")]).is_err());
        let gaps = [("SLURM_ARRAY_TASK_ID", "9"), ("SLURM_ARRAY_TASK_COUNT", "3")];
        assert!(of(&gaps).is_err());
    }
}
