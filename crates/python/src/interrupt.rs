//! Work beside a Python interpreter that goes on: other threads of the user run, events reach a
//! callback, and Ctrl-C ends the work in good order.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a signal may wait until it is seen.
const POLL: Duration = Duration::from_millis(50);

/// The wish to stop that waits for compilers and for locked stores look at: one for the process, as
/// signals are. It is set while a run ends early.
fn hurry() -> &'static AtomicBool {
    static HURRY: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    HURRY.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        squall::set_stop(Arc::clone(&flag));
        let seen = Arc::clone(&flag);
        squall::set_patience(squall::Patience {
            stop: Arc::new(move || seen.load(Ordering::Relaxed)),
            ..squall::Patience::default()
        });
        flag
    })
}

/// Runs `work` on a thread of its own with the interpreter released. What it sends is given to
/// `listener` on the calling thread. A signal, or an exception of the listener, sets the flag that
/// `work` got; it is expected to end soon then. Returns what `work` gives and that exception.
pub fn beside<T: Send>(
    py: Python<'_>,
    listener: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&AtomicBool, Sender<String>) -> T + Send,
) -> PyResult<(T, Option<PyErr>)> {
    let (stop, hurry) = (AtomicBool::new(false), hurry());
    let (send, mut receive) = channel::<String>();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop, send));
        let mut raised: Option<PyErr> = None;
        loop {
            let message;
            (message, receive) = py.detach(move || (receive.recv_timeout(POLL), receive));
            let heard = match (&message, listener, &raised) {
                (Err(RecvTimeoutError::Disconnected), ..) => break,
                (Ok(text), Some(listener), None) => listener.call1((text,)).map(|_| ()),
                _ => Ok(()),
            };
            let signals = if raised.is_none() { py.check_signals() } else { Ok(()) };
            if let Err(e) = heard.and(signals) {
                stop.store(true, Ordering::Relaxed);
                hurry.store(true, Ordering::Relaxed);
                raised = Some(e);
            }
        }
        let joined = py.detach(|| worker.join());
        if raised.is_some() {
            hurry.store(false, Ordering::Relaxed);
        }
        let panicked = |_| pyo3::exceptions::PyRuntimeError::new_err("squall's thread panicked");
        Ok((joined.map_err(panicked)?, raised))
    })
}
