//! A worker's source of object files that the fleet's builders compiled. The worker's object cache
//! asks here for a key (the digest of a kernel's source, compiler and flags); the answer is the
//! object file, or none after a short wait, and then the worker compiles it itself. Only objects of
//! the worker's own user and of builders that it trusts are run.

use super::{Fleet, FleetError};
use squall_fleet::Offered;
use squall_measure::ObjectSource;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// The pause between two looks for an object, or for a free connection.
const BETWEEN: Duration = Duration::from_millis(25);
/// After this time the worker compiles an object itself, since the builder may have died.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause after a question that the server did not answer.
const AGAIN: Duration = Duration::from_secs(10);
/// The number of a worker that asks for nothing.
const NONE: i32 = -1;

/// The objects of a fleet, asked for over one connection.
pub(super) struct FleetObjects {
    server: String,
    /// The users whose objects are run beside those of the worker's own user.
    trusted: Vec<String>,
    /// This worker's number, or [`NONE`] where there are no builders.
    worker: AtomicI32,
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
            worker: AtomicI32::new(NONE),
            connection: Mutex::default(),
            fetched: AtomicU64::new(0),
        }
    }

    /// Says as which worker the fleet is asked from now on; none where it has no builders.
    pub fn ask_as(&self, worker: Option<i32>) {
        self.worker.store(worker.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// How many objects came from builders.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// The connection, once no other thread uses it; none where `is_over` comes first.
    fn connection(&self, is_over: &dyn Fn() -> bool) -> Option<MutexGuard<'_, Connection>> {
        loop {
            match self.connection.try_lock() {
                Ok(connection) => return Some(connection),
                Err(TryLockError::Poisoned(p)) => return Some(p.into_inner()),
                Err(TryLockError::WouldBlock) if is_over() => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN / 5),
            }
        }
    }

    /// The fleet's answer; none where it gives none, which is not asked again for a while.
    fn ask<T>(
        &self,
        is_over: &dyn Fn() -> bool,
        question: impl FnOnce(&mut Fleet) -> Result<T, FleetError>,
    ) -> Option<T> {
        let mut c = self.connection(is_over)?;
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
        let is_over = || cancel.load(Ordering::Relaxed) || start.elapsed() > PATIENCE;
        loop {
            let worker = self.worker.load(Ordering::Relaxed);
            if worker == NONE || is_over() {
                return None;
            }
            match self.ask(&is_over, |fleet| fleet.object(key, &self.trusted))? {
                Offered::Object(bytes) => {
                    self.fetched.fetch_add(1, Ordering::Relaxed);
                    return Some(bytes);
                }
                Offered::Coming => std::thread::sleep(BETWEEN),
                Offered::Nothing => {
                    if self.ask(&is_over, |fleet| fleet.begin_object(worker, key, true))? {
                        return None;
                    }
                    // A builder may have begun it meanwhile: then it is waited for.
                    let now = self.ask(&is_over, |fleet| fleet.object(key, &self.trusted))?;
                    if now == Offered::Nothing {
                        return None;
                    }
                }
            }
        }
    }
}
