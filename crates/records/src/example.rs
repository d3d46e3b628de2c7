//! Examples in a store: problems that others tuned, with the values that they found
//! (`core/src/forecast`). `squall import` adds them from MIOpen's databases, and the predictors'
//! training reads them. Of a problem that was tuned several times the newest answer is valid.

use crate::error::StoreError;
use crate::schema::v2;
use crate::store::Store;
use squall_core::forecast::{Example, serialised};

impl Store {
    /// Adds examples in one transaction; how many were new and how many known.
    pub fn add_examples(&self, examples: &[Example]) -> Result<(u64, u64), StoreError> {
        self.be_file("examples")?;
        let transaction = self.writing()?;
        let mut new = 0;
        for e in examples {
            let problem = serde_json::to_string(&e.problem)
                .map_err(|e| StoreError::Unstorable(e.to_string()))?;
            let p = &e.problem;
            let mut insert =
                self.connection.prepare_cached(v2::INSERT).map_err(|e| self.error(e))?;
            let changed =
                insert.execute((&p.solver, &p.device, &p.key, serialised(&e.values), problem));
            new += changed.map_err(|e| self.error(e))? as u64;
        }
        transaction.commit().map_err(|e| self.error(e))?;
        self.confirm()?;
        Ok((new, examples.len() as u64 - new))
    }

    /// The examples of a solver and a device, or of all; of a problem that was tuned several times
    /// the answer that was added last. They come in the order in which they were added.
    pub fn examples(
        &self,
        solver: Option<&str>,
        device: Option<&str>,
    ) -> Result<Vec<Example>, StoreError> {
        self.select(
            "SELECT answer, problem FROM example WHERE seq IN (
                SELECT max(seq) FROM example
                WHERE (?1 IS NULL OR solver = ?1) AND (?2 IS NULL OR device = ?2) GROUP BY \
             solver, device, key
            ) ORDER BY seq",
            solver,
            device,
        )
    }

    /// As [`Store::examples`], with all answers to a problem that was tuned several times.
    pub fn all_examples(
        &self,
        solver: Option<&str>,
        device: Option<&str>,
    ) -> Result<Vec<Example>, StoreError> {
        self.select(
            "SELECT answer, problem FROM example
                WHERE (?1 IS NULL OR solver = ?1) AND (?2 IS NULL OR device = ?2) ORDER BY seq",
            solver,
            device,
        )
    }

    /// The examples that a query of answers and problems finds.
    fn select(
        &self,
        sql: &str,
        solver: Option<&str>,
        device: Option<&str>,
    ) -> Result<Vec<Example>, StoreError> {
        if !self.has_examples()? {
            return Ok(Vec::new());
        }
        self.begin();
        let mut statement = self.connection.prepare(sql).map_err(|e| self.error(e))?;
        let mut rows = statement.query((solver, device)).map_err(|e| self.error(e))?;
        let mut out = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            let (answer, problem): (String, String) = row.try_into().map_err(|e| self.error(e))?;
            let damaged = |detail: String| StoreError::Damaged { path: self.path().into(), detail };
            let values: Result<Vec<i64>, _> = answer.split(',').map(str::parse).collect();
            let values = values.map_err(|_| {
                damaged(format!("the answer `{answer}` of an example does not read"))
            })?;
            let problem = serde_json::from_str(&problem)
                .map_err(|e| damaged(format!("an example does not read: {e}")))?;
            out.push(Example { problem, values });
        }
        Ok(out)
    }

    /// Examples by solver and device, counted, each problem once.
    pub fn example_counts(&self) -> Result<Vec<(String, String, u64)>, StoreError> {
        if !self.has_examples()? {
            return Ok(Vec::new());
        }
        self.begin();
        let sql = "SELECT solver, device, count(DISTINCT key) FROM example GROUP BY solver, \
                   device ORDER BY solver, device";
        let mut statement = self.connection.prepare(sql).map_err(|e| self.error(e))?;
        let rows = statement
            .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get::<_, i64>(2)? as u64)))
            .map_err(|e| self.error(e))?;
        rows.collect::<Result<_, _>>().map_err(|e| self.error(e))
    }

    /// A store of version 1 that is opened for reading has no table of examples.
    fn has_examples(&self) -> Result<bool, StoreError> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'example'";
        self.connection
            .query_row(sql, [], |r| r.get::<_, i64>(0))
            .map(|n| n == 1)
            .map_err(|e| self.error(e))
    }
}
