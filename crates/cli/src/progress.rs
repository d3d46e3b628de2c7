//! Shows the progress of a command from the events that the crate `squall` sends: a bar on a
//! terminal, an occasional line elsewhere (both on stderr), and with `--json` a line of JSON for
//! each trial.

use crate::failure::Failure;
use crate::terminal::{note, percent, say, three};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use squall::report::html::duration;
use squall::{Event, Outcome, Progress, Record};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The pause between two lines where no bar can be drawn.
const PAUSE: Duration = Duration::from_secs(5);

/// Prints the notes and warnings of a command that draws no bar.
pub fn listen(e: Event) {
    match e {
        Event::Note(text) => note(format_args!("note: {text}")),
        Event::Trouble(text) => note(format_args!("warning: {text}")),
        _ => {}
    }
}

/// A session as it is shown: on stderr, and with `--json` each trial as a line on stdout.
pub struct Shown<'s> {
    display: Display,
    is_json: bool,
    stop: &'s AtomicBool,
    /// The reader of stdout is gone.
    pipe: Option<Failure>,
}

impl<'s> Shown<'s> {
    /// A session that ends once `stop` is set.
    pub fn new(is_json: bool, stop: &'s AtomicBool) -> Shown<'s> {
        Shown { display: Display::new(), is_json, stop, pipe: None }
    }

    /// Shows an event. Where the reader is gone the session ends as by Ctrl-C: what was found so
    /// far is in the store.
    pub fn event(&mut self, event: &Event) {
        if let (Event::Trial { record, .. }, true, None) = (event, self.is_json, &self.pipe)
            && let Err(f) = say(trial(record))
        {
            self.pipe = Some(f);
            self.stop.store(true, Ordering::Relaxed);
        }
        self.display.event(event);
    }

    /// Takes the bar away and gives what the session gave.
    pub fn finish<T>(self, result: Result<T, squall::Error>) -> Result<T, Failure> {
        self.display.finish();
        let result = result?;
        self.pipe.map_or(Ok(result), Err)
    }
}

/// A trial that stands in the store, for scripts that follow.
fn trial(r: &Record) -> serde_json::Value {
    let (outcome, detail) = match &r.outcome {
        Outcome::Measured(_) => ("measured", None),
        Outcome::Right { .. } => ("right", None),
        Outcome::Infeasible(why) => ("infeasible", Some(why)),
        Outcome::Failed { stage, detail } => (stage.name(), Some(detail)),
    };
    json!({"trial": {
        "identity": r.identity(), "task": r.task.to_string(), "name": r.name, "tunable": r.tunable,
        "configuration": r.configuration,
        "outcome": outcome,
        "detail": detail,
        "time_ns": r.outcome.time().map(|t| t.0),
    }})
}

/// Shows how a session stands.
pub struct Display {
    bar: Option<ProgressBar>,
    last: Option<Instant>,
}

impl Display {
    /// A bar if stderr is a terminal.
    pub fn new() -> Display {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            let style =
                ProgressStyle::with_template("{spinner} {wide_bar:.cyan/dim} {pos}/{len}\n  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(150));
            bar
        });
        Display { bar, last: None }
    }

    /// Says a line beside the bar.
    pub fn line(&self, text: impl std::fmt::Display) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note(text)),
            None => note(text),
        }
    }

    /// Shows an event.
    pub fn event(&mut self, e: &Event) {
        match e {
            Event::Opened { device, toolchain, gpus, roof } => {
                let several =
                    if *gpus > 1 { format!(", {gpus} side by side") } else { String::new() };
                self.line(format_args!("{device}{several}\n{toolchain}"));
                if let Some(r) = roof {
                    self.line(format_args!(
                        "roof: {} GFLOP/s, {} GB/s from memory",
                        three(r.peak_gflops),
                        three(r.memory_gbs)
                    ));
                }
            }
            Event::Task { task, known, untuned } => {
                let known =
                    if *known > 0 { format!(", {known} trials known") } else { String::new() };
                let plain = untuned.map_or(String::new(), |u| {
                    format!(", {} {u}", squall::report::baseline(&task.workload))
                });
                self.line(format_args!(
                    "{} ({} x {:.3} GFLOP{known}{plain})",
                    task.name,
                    task.count,
                    task.workload.flop() as f64 * 1e-9
                ));
            }
            Event::Batch { .. } => {}
            Event::Trial { progress, .. } => self.show(progress),
            Event::Rematch { task, challenger, incumbent, faster } => {
                let verdict =
                    if *faster { "it takes over" } else { "no clear gain, the incumbent stays" };
                self.line(format_args!(
                    "{}: measured side by side, {challenger} against {incumbent}: {verdict}",
                    task.name
                ));
            }
            Event::Note(text) => self.line(format_args!("note: {text}")),
            Event::Trouble(text) => self.line(format_args!("warning: {text}")),
        }
    }

    fn show(&mut self, p: &Progress) {
        let mut text = format!("{}: ", p.name);
        text += &p.best.map_or("nothing ran yet".into(), |b| format!("best {b}"));
        if let Some(g) = p.gflops {
            text += &format!(", {} GFLOP/s", three(g));
        }
        if let Some(s) = p.share {
            text += &format!(", {} of its bound", percent(s));
        }
        text += &format!("; {} trials/s", three(p.rate));
        if let Some(left) = p.left {
            text += &format!(", {} left", duration(left));
        }
        match &self.bar {
            Some(bar) => {
                if let Some(n) = p.trials.1 {
                    bar.set_length(n);
                }
                bar.set_position(p.trials.0);
                bar.set_message(text);
            }
            None if self.last.is_none_or(|t| t.elapsed() >= PAUSE) => {
                self.last = Some(Instant::now());
                let of = p.trials.1.map_or(String::new(), |n| format!("/{n}"));
                note(format_args!("[{}{of}] {text}", p.trials.0));
            }
            None => {}
        }
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
