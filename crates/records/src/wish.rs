//! Wishes in a store: tasks whose kernels were used on a device without having been tuned there,
//! with the number of uses and the seconds spent in them. Programs add wishes when they export or
//! run untuned kernels; a worker that tunes while a machine is idle (`squall/src/polite`) begins
//! with the most expensive.

use crate::error::StoreError;
use crate::schema::v4;
use crate::store::Store;
use squall_core::TaskId;

/// A task that is worth tuning on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// The task.
    pub task: TaskId,
    /// Its readable name.
    pub name: String,
    /// The workload's text.
    pub workload: String,
    /// The device on which it was used.
    pub device: String,
    /// The number of times that it was asked for.
    pub uses: u64,
    /// Seconds that were spent in it, as far as they are known.
    pub seconds: f64,
    /// When it was asked for last, in seconds since 1970, UTC.
    pub last: f64,
}

impl Store {
    /// Adds the uses and the seconds of wishes to those that are known, in one transaction.
    pub fn add_wishes(&self, wishes: &[Wish]) -> Result<(), StoreError> {
        self.be_file("wishes")?;
        let transaction = self.writing()?;
        for w in wishes {
            let mut add = self.connection.prepare_cached(v4::ADD).map_err(|e| self.error(e))?;
            let seconds = if w.seconds.is_finite() { w.seconds.max(0.0) } else { 0.0 };
            let uses = i64::try_from(w.uses).unwrap_or(i64::MAX);
            let key = (w.task.to_string(), &w.device, &w.name, &w.workload);
            add.execute(rusqlite::params![key.0, key.1, key.2, key.3, uses, seconds, w.last])
                .map_err(|e| self.error(e))?;
        }
        transaction.commit().map_err(|e| self.error(e))?;
        self.confirm()
    }

    /// The wishes of a device, or of all; those that took most time first, then those that were
    /// asked for most.
    pub fn wishes(&self, device: Option<&str>) -> Result<Vec<Wish>, StoreError> {
        if !self.has_wishes()? {
            return Ok(Vec::new());
        }
        self.begin();
        let sql = "SELECT task, name, workload, device, uses, seconds, last FROM wish
                   WHERE ?1 IS NULL OR device = ?1 ORDER BY seconds DESC, uses DESC, task";
        let mut statement = self.connection.prepare(sql).map_err(|e| self.error(e))?;
        let mut rows = statement.query([device]).map_err(|e| self.error(e))?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            let (task, name, workload, device, uses, seconds, last): (
                String,
                String,
                String,
                String,
                i64,
                f64,
                f64,
            ) = row.try_into().map_err(|e| self.error(e))?;
            let task = task.parse().map_err(|_| StoreError::Damaged {
                path: self.path().into(),
                detail: format!("a wish is for `{task}`, which is no task's id"),
            })?;
            let uses = u64::try_from(uses).unwrap_or(0);
            out.push(Wish { task, name, workload, device, uses, seconds, last });
        }
        Ok(out)
    }

    /// A store of an older version that is opened for reading has no table of wishes.
    fn has_wishes(&self) -> Result<bool, StoreError> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'wish'";
        let count = self.connection.query_row(sql, [], |r| r.get::<_, i64>(0));
        count.map(|n| n == 1).map_err(|e| self.error(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::Objective;

    fn wish(text: &str, uses: u64, seconds: f64) -> Wish {
        Wish {
            task: TaskId::of_text(text, Objective::Time),
            name: text.into(),
            workload: text.into(),
            device: "cpu X, 32-byte vectors, 1 thread".into(),
            uses,
            seconds,
            last: 5.0,
        }
    }

    #[test]
    fn uses_and_seconds_add_up_and_what_costs_most_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("s.squall")).unwrap();
        assert_eq!(store.wishes(None).unwrap(), []);
        store.add_wishes(&[wish("a", 1, 0.5), wish("b", 7, 0.0)]).unwrap();
        store.add_wishes(&[wish("a", 2, 0.25), wish("c", 1, f64::NAN)]).unwrap();
        let all = store.wishes(Some("cpu X, 32-byte vectors, 1 thread")).unwrap();
        assert_eq!(all, [wish("a", 3, 0.75), wish("b", 7, 0.0), wish("c", 1, 0.0)]);
        assert_eq!(store.wishes(Some("another")).unwrap(), []);
        // Records know nothing of them.
        assert!(store.is_empty().unwrap());
        let again = Store::open_read_only(store.path()).unwrap();
        assert_eq!(again.wishes(None).unwrap().len(), 3);
    }

    #[test]
    fn a_folder_keeps_none_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(format!("{}/", folder.path().display())).unwrap();
        let why = store.add_wishes(&[wish("a", 1, 0.0)]).unwrap_err();
        assert!(why.to_string().contains("wishes"), "{why}");
        assert_eq!(store.wishes(None).unwrap(), []);
    }
}
