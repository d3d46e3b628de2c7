//! Runs long work (tuning, exporting) beside a Python interpreter that goes on: the work has a
//! thread of its own and the interpreter is released, so other threads of the user run, events
//! reach a Python callback, and Ctrl-C ends the work in good order.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time for which a signal may wait until it is seen.
const POLL: Duration = Duration::from_millis(50);

/// The flag by which waits for compilers and for locked stores end: one for the process, as signals
/// are. It is set while a run ends early.
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

/// A request of the work to the calling thread.
pub enum Message {
    /// The listener is told a line of JSON.
    Event(String),
    /// The judge is shown outputs; the answer says why they are wrong, if they are.
    Look(Vec<u8>, Sender<Result<(), String>>),
}

/// The caller's functions.
#[derive(Clone, Copy, Default)]
pub struct Callers<'a, 'py> {
    /// Is called with a line of JSON per event.
    pub listener: Option<&'a Bound<'py, PyAny>>,
    /// Is called with the bytes of outputs; gives None, or why they are wrong.
    pub judge: Option<&'a Bound<'py, PyAny>>,
}

impl Callers<'_, '_> {
    /// Does what a message asks; where `ended`, nothing is called any more.
    fn hear(self, message: Message, ended: bool) -> PyResult<()> {
        match (message, self.listener, self.judge) {
            (Message::Event(text), Some(listener), _) if !ended => {
                listener.call1((text,)).map(|_| ())
            }
            (Message::Look(outputs, answer), _, Some(judge)) if !ended => {
                let bytes = PyBytes::new(judge.py(), &outputs);
                let said = judge.call1((bytes,)).and_then(|s| s.extract::<Option<String>>());
                let found = match &said {
                    Ok(None) => Ok(()),
                    Ok(Some(why)) => Err(why.clone()),
                    Err(_) => Err("the function that judges results failed".into()),
                };
                // The work may have ended meanwhile: then the answer is not waited for.
                let _ = answer.send(found);
                said.map(|_| ())
            }
            (Message::Look(_, answer), ..) => {
                let _ = answer.send(Err("the run was ended".into()));
                Ok(())
            }
            (Message::Event(_), ..) => Ok(()),
        }
    }
}

/// Runs `work` on a thread of its own with the interpreter released. What it sends is given to the
/// caller's functions on the calling thread. A signal, or an exception of theirs, sets the flag
/// that `work` got; it is expected to end soon then. Returns what `work` gives and that exception.
pub fn beside<T: Send>(
    py: Python<'_>,
    callers: Callers<'_, '_>,
    work: impl FnOnce(&AtomicBool, Sender<Message>) -> T + Send,
) -> PyResult<(T, Option<PyErr>)> {
    let (stop, hurry) = (AtomicBool::new(false), hurry());
    let (send, mut receive) = channel::<Message>();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop, send));
        let mut raised: Option<PyErr> = None;
        loop {
            let message;
            (message, receive) = py.detach(move || (receive.recv_timeout(POLL), receive));
            let heard = match message {
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Ok(message) => callers.hear(message, raised.is_some()),
            };
            let signals = if raised.is_none() { py.check_signals() } else { Ok(()) };
            if let Err(e) = heard.and(signals)
                && raised.is_none()
            {
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
