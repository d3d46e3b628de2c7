//! Keeps a worker's lease alive while its measuring thread makes no trial, because it computes a
//! reference or waits for a compiler. Both end by themselves, so the lease is renewed until
//! [`SILENCE`] has passed without a sign of the thread; after that it is taken to hang and the
//! lease is left to expire. `work.rs` calls this from a thread of its own.

use super::Fleet;
use squall_fleet::Lease;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest silence of the measuring thread: longer than any work between two trials takes.
const SILENCE: Duration = Duration::from_secs(900);

/// Renews a lease over a connection of its own.
pub(super) struct LeaseRenewal<'s> {
    server: &'s str,
    lease: &'s Lease,
    /// How long the lease holds without being renewed.
    patience: Duration,
    /// When the measuring thread last gave a sign.
    heard_at: &'s Mutex<Instant>,
    renewed_at: Instant,
    fleet: Option<Fleet>,
}

impl<'s> LeaseRenewal<'s> {
    pub fn new(
        server: &'s str,
        lease: &'s Lease,
        patience: Duration,
        heard_at: &'s Mutex<Instant>,
    ) -> LeaseRenewal<'s> {
        LeaseRenewal { server, lease, patience, heard_at, renewed_at: Instant::now(), fleet: None }
    }

    /// Renews the lease where a third of it is over. A server that is down is asked again after
    /// another third; whose the lease is by then is what the next trial hears.
    pub fn renew_where_due(&mut self) {
        let heard_at = *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner);
        let patience = self.patience;
        if heard_at.max(self.renewed_at).elapsed() < patience / 3 || heard_at.elapsed() > SILENCE {
            return;
        }
        self.renewed_at = Instant::now();
        if self.fleet.is_none() {
            self.fleet = Fleet::connect(self.server).ok();
        }
        let renewed = self.fleet.as_mut().map(|f| f.renew(self.lease, None, patience));
        if renewed.is_some_and(|r| r.is_err()) {
            self.fleet = None;
        }
    }
}
