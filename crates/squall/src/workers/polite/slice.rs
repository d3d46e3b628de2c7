//! A child process of the polite worker (`mod.rs`): `squall tune` with some trials of a wish (a
//! task that was used untuned), or another command that ends by itself. The child runs at the
//! lowest priority and can be frozen, continued or ended at any time; a thread counts the trials
//! that it prints.

use super::PoliteRequest;
use crate::base::error::Error;
use squall_core::TaskId;
use squall_measure::{Gentle, TemporaryFolder};
use squall_records::Wish;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time that a child has to end when asked to; after it, the child is frozen.
const GRACE: Duration = Duration::from_millis(900);
/// The time that the worker waits for a child when the worker itself ends.
const LAST: Duration = Duration::from_secs(20);

/// A running child process.
pub(super) struct Slice {
    process: Gentle,
    /// The task of the wish that it tunes. None for another command, which is asked to end as soon
    /// as a wish is waiting.
    task: Option<TaskId>,
    what: String,
    /// The number of trials that it has printed, and the thread that counts them.
    trials: Arc<AtomicU64>,
    counter: Option<std::thread::JoinHandle<()>>,
    /// The folder with the file of the wish's workload (its tensor expression).
    _folder: Option<TemporaryFolder>,
}

impl Slice {
    /// Some trials of a wish.
    pub fn of_wish(request: &PoliteRequest, wish: &Wish, trials: u64) -> Result<Slice, Error> {
        let folder = TemporaryFolder::new("wish")?;
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        // The task's name is that of the file: records keep it.
        let name: String = wish.name.chars().map(plain).take(100).collect();
        let file = folder.path().join(format!("{name}.workload"));
        std::fs::write(&file, &wish.workload)
            .map_err(|source| Error::Write { path: file.clone(), source })?;
        let mut command = Command::new(&request.program);
        command.arg("tune").arg(&file);
        command.args(["--trials-per-task", &trials.to_string(), "--json"]);
        command.arg("--store").arg(&request.store);
        command.args(["--threads", &request.threads.to_string()]);
        command.args(["--isa", request.target.isa().map_or("native", squall_core::Isa::name)]);
        command.args(["--target", "cpu", "--runner", "here"]);
        if request.caches == squall_core::Caches::Cold {
            command.args(["--caches", "cold"]);
        }
        // A page of each slice is of no use to the user.
        command.arg("--report").arg(folder.path().join("slice.html"));
        let what = format!("{trials} trials of {}", wish.name);
        Slice::start(command, Some(wish.task), what, Some(folder))
    }

    /// Another command of the program.
    pub fn of_command(request: &PoliteRequest, words: &[String]) -> Result<Slice, Error> {
        let mut command = Command::new(&request.program);
        command.args(words).envs(request.environment.iter().cloned());
        Slice::start(command, None, words.first().cloned().unwrap_or_default(), None)
    }

    fn start(
        mut command: Command,
        task: Option<TaskId>,
        what: String,
        folder: Option<TemporaryFolder>,
    ) -> Result<Slice, Error> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let path = command.get_program().into();
        let mut process =
            Gentle::spawn(&mut command).map_err(|source| Error::Read { path, source })?;
        let trials = Arc::new(AtomicU64::new(0));
        let counter = process.output().map(|output| {
            let trials = Arc::clone(&trials);
            std::thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                for _ in lines.filter(|l| l.starts_with("{\"trial\"")) {
                    trials.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        Ok(Slice { process, task, what, trials, counter, _folder: folder })
    }

    /// The process.
    pub fn process(&self) -> &Gentle {
        &self.process
    }

    /// The task of its wish.
    pub fn task(&self) -> Option<TaskId> {
        self.task
    }

    /// A description of its work, for messages.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Whether it ended, and then whether it succeeded.
    pub fn ended(&mut self) -> Result<Option<bool>, Error> {
        let path = std::path::PathBuf::from("/proc");
        self.process.ended().map_err(|source| Error::Read { path, source })
    }

    /// Ends it where it has not; the trials that it made. Trials of a wish are in the store, so it
    /// is killed. Another command is asked to end and frozen where that takes long; it goes on once
    /// `may_go_on` says so, and ends then.
    pub fn end(mut self, stop: &AtomicBool, may_go_on: &mut dyn FnMut(&Slice) -> bool) -> u64 {
        let is_over = |slice: &mut Slice| !matches!(slice.process.ended(), Ok(None));
        if self.task.is_none() && !is_over(&mut self) {
            self.process.ask_to_end();
            let end = Instant::now() + GRACE;
            while !is_over(&mut self) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(50));
            }
            if !is_over(&mut self) {
                self.process.freeze();
                while !stop.load(Ordering::Relaxed) && !may_go_on(&self) {
                    std::thread::sleep(Duration::from_millis(500));
                }
                self.process.thaw();
                let end = Instant::now() + LAST;
                while !is_over(&mut self) && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
        self.process.end();
        // Its last lines are counted, too: with it dead they have an end.
        if let Some(counter) = self.counter.take() {
            let _ = counter.join();
        }
        self.trials.load(Ordering::Relaxed)
    }
}
