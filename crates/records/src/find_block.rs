//! The lines of MIOpen's find databases in a store (which solvers others timed for a problem): each
//! import adds one packed block with the lines that the store lacks. Of a key that occurs in
//! several blocks the newest line is valid. `squall/src/find` trains choosers of solvers on them.

use crate::error::StoreError;
use crate::schema::v3;
use crate::store::Store;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rusqlite::TransactionBehavior;
use std::collections::HashMap;
use std::io::{Read, Write};

/// The result of an import of find lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FindAdded {
    /// Keys that the store did not have on this device.
    pub new: u64,
    /// Keys that it had with another line; the new line is valid now.
    pub changed: u64,
    /// Lines that it had.
    pub known: u64,
}

/// The most bytes of a block; a larger one is damaged, since no import makes it.
const MOST_BYTES: u64 = 4 << 30;

impl Store {
    /// Adds lines `KEY=..` of a find database of a device, those that the store lacks, in one
    /// transaction. `rows` counts the entries of a line.
    pub fn add_find_lines(
        &self,
        device: &str,
        origin: &str,
        lines: &[String],
        rows: &dyn Fn(&str) -> u64,
    ) -> Result<FindAdded, StoreError> {
        self.be_file("find databases")?;
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate);
        let transaction = transaction.map_err(|e| self.error(e))?;
        let blocks = self.find_texts(device)?;
        let old = valid_lines(&blocks);
        let mut added = FindAdded::default();
        let (mut fresh, mut entries) = (Vec::new(), 0);
        for line in lines {
            match old.get(key(line)) {
                Some(l) if *l == line => {
                    added.known += 1;
                    continue;
                }
                Some(_) => added.changed += 1,
                None => added.new += 1,
            }
            entries += rows(line);
            fresh.push(line.as_str());
        }
        if !fresh.is_empty() {
            let body = pack(&fresh).map_err(|e| StoreError::Unstorable(e.to_string()))?;
            let counts = (fresh.len() as i64, entries as i64);
            self.connection
                .execute(v3::INSERT, (device, origin, counts.0, counts.1, body))
                .map_err(|e| self.error(e))?;
        }
        transaction.commit().map_err(|e| self.error(e))?;
        Ok(added)
    }

    /// The valid lines of a device's find databases, each key once, ordered by key.
    pub fn find_lines(&self, device: &str) -> Result<Vec<String>, StoreError> {
        let blocks = self.find_texts(device)?;
        let mut lines: Vec<&str> = valid_lines(&blocks).into_values().collect();
        lines.sort_unstable();
        Ok(lines.into_iter().map(String::from).collect())
    }

    /// Devices that find databases were imported for, with the number of lines.
    pub fn find_devices(&self) -> Result<Vec<(String, u64)>, StoreError> {
        if !self.has_find()? {
            return Ok(Vec::new());
        }
        let sql = "SELECT device, sum(problems) FROM find_block GROUP BY device ORDER BY device";
        let mut statement = self.connection.prepare(sql).map_err(|e| self.error(e))?;
        let rows = statement
            .query_map([], |r| Ok((r.get(0)?, r.get::<_, i64>(1)? as u64)))
            .map_err(|e| self.error(e))?;
        rows.collect::<Result<_, _>>().map_err(|e| self.error(e))
    }

    /// The texts of a device's blocks, oldest first.
    fn find_texts(&self, device: &str) -> Result<Vec<String>, StoreError> {
        if !self.has_find()? {
            return Ok(Vec::new());
        }
        let sql = "SELECT body FROM find_block WHERE device = ?1 ORDER BY seq";
        let mut statement = self.connection.prepare(sql).map_err(|e| self.error(e))?;
        let bodies =
            statement.query_map([device], |r| r.get::<_, Vec<u8>>(0)).map_err(|e| self.error(e))?;
        let mut out = Vec::new();
        for body in bodies {
            let body = body.map_err(|e| self.error(e))?;
            let mut text = String::new();
            ZlibDecoder::new(&body[..]).take(MOST_BYTES).read_to_string(&mut text).map_err(
                |e| StoreError::Damaged {
                    path: self.path().into(),
                    detail: format!("a block of a find database does not unpack: {e}"),
                },
            )?;
            out.push(text);
        }
        Ok(out)
    }

    /// A store of an older version that is opened for reading has no table of blocks.
    fn has_find(&self) -> Result<bool, StoreError> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'find_block'";
        self.connection
            .query_row(sql, [], |r| r.get::<_, i64>(0))
            .map(|n| n == 1)
            .map_err(|e| self.error(e))
    }
}

fn key(line: &str) -> &str {
    line.split_once('=').map_or(line, |(k, _)| k.trim())
}

fn valid_lines(blocks: &[String]) -> HashMap<&str, &str> {
    blocks.iter().flat_map(|t| t.lines()).map(|l| (key(l), l)).collect()
}

fn pack(lines: &[&str]) -> std::io::Result<Vec<u8>> {
    let mut out = ZlibEncoder::new(Vec::new(), Compression::new(6));
    for line in lines {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")?;
    }
    out.finish()
}
