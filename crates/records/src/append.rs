//! Adds records to a store: those that this process has just made, and those of other stores and
//! files, which are checked first (`check.rs`). Each record has an identity (a hash of candidate,
//! device and toolchain), and a store keeps one trial of each; `append` returns whether a record
//! was new. Tuning sessions append each trial (`squall/src/base/recorder.rs`) before the search
//! hears of it.

use crate::check::{Other, Taken, fault};
use crate::error::StoreError;
use crate::schema::v1;
use crate::store::Store;
use crate::wire;
use rusqlite::{OptionalExtension, TransactionBehavior};
use squall_core::{Outcome, Record};

/// The seconds by which a record that is made now is dated after every other record of its task.
const LATER: f64 = 1e-6;

impl Store {
    /// Adds a record in a transaction of its own; returns false where the store has its identity.
    pub fn append(&self, record: &Record) -> Result<bool, StoreError> {
        let transaction = self.writing()?;
        let is_new = self.insert(record)?;
        self.commit(transaction)?;
        self.confirm()?;
        Ok(is_new)
    }

    /// Adds a record that was made just now, and returns it as it is kept: its date is later than
    /// that of every other record of its task, device and toolchain, even where a clock was put
    /// back or others were made by a clock ahead of this one. So what is appended last counts last.
    pub fn append_latest(&self, mut record: Record) -> Result<Record, StoreError> {
        let transaction = self.writing()?;
        let newest: Option<f64> = self
            .connection
            .prepare_cached(
                "SELECT max(recorded) FROM record WHERE task = ?1 AND device = ?2 AND toolchain \
                 = ?3",
            )
            .and_then(|mut s| {
                let place = (record.task.to_string(), &record.device, &record.toolchain);
                s.query_row(place, |r| r.get(0))
            })
            .map_err(|e| self.error(e))?;
        if let Some(newest) = newest.filter(|n| record.time < n + LATER) {
            // Of a far future even the smallest step is more than a microsecond.
            record.time = (newest + LATER).max(newest.next_up());
        }
        let identity = record.identity();
        self.insert(&record)?;
        self.commit(transaction)?;
        self.confirm()?;
        *self.last.borrow_mut() = Some(identity);
        Ok(record)
    }

    /// A transaction that writes, once others are done.
    pub(crate) fn writing(&self) -> Result<rusqlite::Transaction<'_>, StoreError> {
        self.steps.restart();
        if let Some(own) = &self.own {
            own.forget();
        }
        rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
            .map_err(|e| self.error(e))
    }

    /// Ends a transaction of records: they stand in the file from now on.
    fn commit(&self, transaction: rusqlite::Transaction<'_>) -> Result<(), StoreError> {
        if let Some(own) = &self.own {
            own.flush()?;
        }
        transaction.commit().map_err(|e| self.error(e))
    }

    /// Refuses what a folder of records has no place for.
    pub(crate) fn be_file(&self, what: &'static str) -> Result<(), StoreError> {
        match self.own {
            Some(_) => Err(StoreError::InFolder { path: self.path().to_path_buf(), what }),
            None => Ok(()),
        }
    }

    /// Adds records in one transaction; returns how many were new and how many known.
    pub fn append_all(
        &self,
        records: impl IntoIterator<Item = Result<Record, StoreError>>,
    ) -> Result<(u64, u64), StoreError> {
        let transaction = self.writing()?;
        let (mut new, mut known) = (0, 0);
        for r in records {
            if self.insert(&r?)? {
                new += 1;
            } else {
                known += 1;
            }
        }
        self.commit(transaction)?;
        self.confirm()?;
        Ok((new, known))
    }

    /// Adds records of others in one transaction, without those that cannot be right ([`fault`]).
    /// Of a trial that the store knows nothing is added.
    pub fn append_checked(
        &self,
        records: impl IntoIterator<Item = Other>,
    ) -> Result<Taken, StoreError> {
        self.take(records, &|r| self.insert(r))
    }

    /// The same with records of other stores. A trial that was made there too is kept beside the
    /// one that is known: of both the newer counts, so that stores that were merged in any order
    /// name the same winners.
    pub fn append_merged(
        &self,
        records: impl IntoIterator<Item = Other>,
    ) -> Result<Taken, StoreError> {
        self.take(records, &|r| Ok(self.insert(r)? || self.insert_again(r)?))
    }

    fn take(
        &self,
        records: impl IntoIterator<Item = Other>,
        insert: &dyn Fn(&Record) -> Result<bool, StoreError>,
    ) -> Result<Taken, StoreError> {
        let transaction = self.writing()?;
        let mut taken = Taken::default();
        for r in records {
            let r = r?;
            match fault(&r) {
                Some(why) => taken.refuse(&r, &why),
                None => taken.count(insert(&r)?),
            }
        }
        self.commit(transaction)?;
        self.confirm()?;
        Ok(taken)
    }

    fn insert(&self, r: &Record) -> Result<bool, StoreError> {
        let body = wire::encode(r).map_err(StoreError::Unstorable)?;
        self.insert_as(&r.identity(), r, &body)
    }

    /// Adds a record whose identity is known, where the known one is of another making: its own
    /// identity holds the whole record.
    fn insert_again(&self, r: &Record) -> Result<bool, StoreError> {
        let body = wire::encode(r).map_err(StoreError::Unstorable)?;
        let identity = r.identity();
        let known: Option<String> = self
            .connection
            .prepare_cached("SELECT body FROM record WHERE identity = ?1")
            .and_then(|mut s| s.query_row([&identity], |row| row.get(0)).optional())
            .map_err(|e| self.error(e))?;
        if known.is_none_or(|known| known == body) {
            return Ok(false);
        }
        let whole = blake3::hash(body.as_bytes()).to_hex();
        self.insert_as(&format!("{identity}+{}", &whole[..16]), r, &body)
    }

    fn insert_as(&self, identity: &str, r: &Record, body: &str) -> Result<bool, StoreError> {
        let outcome = match r.outcome {
            Outcome::Measured(_) => "measured",
            Outcome::Right { .. } => "right",
            Outcome::Infeasible(_) => "infeasible",
            Outcome::Failed { .. } => "failed",
        };
        let run = || {
            self.connection.prepare_cached(v1::INSERT)?.execute(rusqlite::params![
                identity,
                r.kind.name(),
                r.task.to_string(),
                r.name,
                r.device,
                r.toolchain,
                r.tunable,
                r.configuration,
                outcome,
                r.outcome.time().map(|t| t.0),
                r.time,
                body
            ])
        };
        let is_new = run().map(|changed| changed == 1).map_err(|e| self.error(e))?;
        if let Some(own) = self.own.as_ref().filter(|_| is_new) {
            own.add(body);
        }
        Ok(is_new)
    }
}
