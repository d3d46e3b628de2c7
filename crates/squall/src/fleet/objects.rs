//! Objects that builders of the fleet made, for a worker that will measure them.

use super::{Fleet, FleetError};
use squall_fleet::Offered;
use squall_measure::ObjectSource;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the server is asked whether an object came.
const BETWEEN: Duration = Duration::from_millis(25);
/// An object that did not come within this time is made here: a builder may have died.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a server that did not answer is left alone.
const AGAIN: Duration = Duration::from_secs(10);

/// The fleet's objects.
pub(super) struct FleetObjects {
    server: String,
    /// Whose objects are run, beside those of the own user.
    trusted: Vec<String>,
    /// This worker's number. 0 while it has none, and where there are no builders: then nothing is
    /// asked.
    worker: AtomicU64,
    connection: Mutex<Connection>,
    fetched: AtomicU64,
}

#[derive(Default)]
struct Connection {
    fleet: Option<Fleet>,
    failed: Option<Instant>,
}

impl FleetObjects {
    pub fn new(server: &str, trusted: &[String]) -> FleetObjects {
        FleetObjects {
            server: server.into(),
            trusted: trusted.to_vec(),
            worker: AtomicU64::new(0),
            connection: Mutex::default(),
            fetched: AtomicU64::new(0),
        }
    }

    /// Says as which worker the fleet is asked from now on; none where it has no builders.
    pub fn ask_as(&self, worker: Option<i32>) {
        let number = worker.and_then(|w| u64::try_from(w).ok());
        self.worker.store(number.unwrap_or(0), Ordering::Relaxed);
    }

    /// How many objects came from builders.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Fleet) -> Result<T, FleetError>) -> Option<T> {
        let mut c = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if c.failed.is_some_and(|f| f.elapsed() < AGAIN) {
            return None;
        }
        if c.fleet.is_none() {
            c.fleet = Fleet::connect(&self.server).ok();
        }
        let answer = c.fleet.as_mut().and_then(|fleet| question(fleet).ok());
        if answer.is_none() {
            *c = Connection { fleet: None, failed: Some(Instant::now()) };
        }
        answer
    }
}

impl ObjectSource for FleetObjects {
    fn object(&self, key: &str, cancel: &AtomicBool) -> Option<Vec<u8>> {
        let start = Instant::now();
        loop {
            let worker = self.worker.load(Ordering::Relaxed) as i32;
            if worker == 0 || cancel.load(Ordering::Relaxed) || start.elapsed() > PATIENCE {
                return None;
            }
            match self.ask(|fleet| fleet.artifact(key, &self.trusted))? {
                Offered::Object(bytes) => {
                    let is_object = bytes.starts_with(b"\x7fELF");
                    self.fetched.fetch_add(u64::from(is_object), Ordering::Relaxed);
                    return Some(bytes).filter(|_| is_object);
                }
                Offered::Coming => std::thread::sleep(BETWEEN),
                Offered::Nothing => {
                    // A builder may have begun it meanwhile: then it is waited for.
                    if self.ask(|fleet| fleet.begin_artifact(worker, key, true))? {
                        return None;
                    }
                    if self.ask(|fleet| fleet.artifact(key, &self.trusted))? == Offered::Nothing {
                        return None;
                    }
                }
            }
        }
    }
}
