//! Signals: the first Ctrl-C, SIGTERM or SIGHUP sets a flag, at which a command ends and keeps its
//! results; the second ends the process. Long waits, for a lock or a compiler, check the same flag.

use crate::failure::Failure;
use crate::terminal::note;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The flag of this process.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

fn flag() -> &'static Arc<AtomicBool> {
    STOP.get_or_init(Arc::default)
}

/// Called at the start of every command. Makes a limit on the size of files an error of writing (by
/// default the signal SIGXFSZ would end the process without a message), and prints a note while the
/// command waits for a locked store.
pub fn prepare() {
    // Where it cannot be registered, the default remains.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    squall::set_patience(squall::Patience {
        say: Arc::new(|text| note(format_args!("note: {text}; Ctrl-C ends the wait"))),
        stop: Arc::new(|| flag().load(Ordering::Relaxed)),
        ..squall::Patience::default()
    });
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP set; a second signal ends the process.
pub fn interruptible() -> Result<Arc<AtomicBool>, Failure> {
    let stop = flag();
    // Under `nohup` a hang-up is to be ignored.
    let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangs_up) {
        // In this order: the first looks at the flag before the second sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(stop))?;
        signal_hook::flag::register(signal, Arc::clone(stop))?;
    }
    squall::set_stop(Arc::clone(stop));
    Ok(Arc::clone(stop))
}

/// Whether the process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}
