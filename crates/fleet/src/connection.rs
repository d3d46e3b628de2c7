//! A connection to a fleet's server, and the schema on it.

use crate::error::FleetError;
use crate::url::{Address, Protection};
use postgres::{Client, NoTls};

/// The schema that this program writes.
pub const VERSION: i32 = 2;

/// The schema's versions, each made from the one before.
const UPGRADES: [&str; VERSION as usize] = [include_str!("v1.sql"), include_str!("v2.sql")];
const ROLES: &str = include_str!("roles.sql");
/// Held while the schema is made, so that of two programs one makes it.
const LOCK: i64 = 0x5351_4c4c;

/// A connection to a fleet.
pub struct Fleet {
    pub(crate) client: Client,
    pub(crate) server: String,
}

impl Fleet {
    /// Connects to a server that has a fleet.
    ///
    /// # Errors
    /// Where the address is none, the server does not answer or refuses the user, there is no fleet
    /// on it, or one of another Squall's schema.
    pub fn connect(url: &str) -> Result<Fleet, FleetError> {
        let mut fleet = Fleet::open(url)?;
        match fleet.version()? {
            None => Err(FleetError::NoFleet { server: fleet.server }),
            Some(found) if found > VERSION => {
                Err(FleetError::Newer { server: fleet.server, found, known: VERSION })
            }
            Some(found) if found < VERSION => {
                Err(FleetError::Older { server: fleet.server, found, known: VERSION })
            }
            Some(_) => Ok(fleet),
        }
    }

    /// Makes a fleet, or brings it to the newest schema, and grants its roles where the user may
    /// make roles. Whether it was new, and why there are no roles where there are none.
    pub fn init(url: &str) -> Result<(Fleet, bool, Option<String>), FleetError> {
        let mut fleet = Fleet::open(url)?;
        let server = fleet.server.clone();
        let fail = |e: postgres::Error| server_error(&server, &e);
        let mut transaction = fleet.client.transaction().map_err(fail)?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).map_err(fail)?;
        let found = version(&mut transaction).map_err(fail)?;
        if let Some(found) = found.filter(|f| *f > VERSION) {
            return Err(FleetError::Newer { server: server.clone(), found, known: VERSION });
        }
        for upgrade in &UPGRADES[found.unwrap_or(0).max(0) as usize..] {
            transaction.batch_execute(upgrade).map_err(fail)?;
        }
        transaction.commit().map_err(fail)?;
        let without_roles = fleet.client.batch_execute(ROLES).err().map(|e| said(&e));
        Ok((fleet, found.is_none(), without_roles))
    }

    fn open(url: &str) -> Result<Fleet, FleetError> {
        let address = Address::read(url)?;
        let connected = match &address.protection {
            Protection::Plain => address.config.connect(NoTls),
            Protection::Verified(authority) => {
                let tls = crate::tls::connector(authority.as_deref())
                    .map_err(|detail| FleetError::Tls { server: address.server.clone(), detail })?;
                address.config.connect(tls)
            }
        };
        match connected {
            Ok(client) => Ok(Fleet { client, server: address.server }),
            Err(e) => {
                let detail = said(&e);
                Err(FleetError::Connect { server: address.server, detail })
            }
        }
    }

    /// The server and its database, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    fn version(&mut self) -> Result<Option<i32>, FleetError> {
        version(&mut self.client).map_err(|e| self.error(&e))
    }

    pub(crate) fn error(&self, e: &postgres::Error) -> FleetError {
        server_error(&self.server, e)
    }
}

/// The schema's version; none where there is no fleet.
fn version(client: &mut impl postgres::GenericClient) -> Result<Option<i32>, postgres::Error> {
    let there = client.query_one("SELECT to_regclass('squall.version') IS NOT NULL", &[])?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_opt("SELECT max(number) FROM squall.version", &[])?;
    Ok(row.and_then(|r| r.get::<_, Option<i32>>(0)))
}

fn server_error(server: &str, e: &postgres::Error) -> FleetError {
    // Class 57 is an operator's intervention: the server stops or starts. In class 53 it lacks
    // disk, memory or connections, which it may have again.
    let lost = match e.as_db_error() {
        Some(db) => ["57", "53", "08"].iter().any(|class| db.code().code().starts_with(class)),
        None => true,
    };
    FleetError::Server { server: server.into(), detail: said(e), lost }
}

/// What a server or a connection said, in one line.
fn said(e: &postgres::Error) -> String {
    let mut text = match e.as_db_error() {
        Some(db) => db.message().to_string(),
        None => {
            let mut text = e.to_string();
            let mut source = std::error::Error::source(e);
            while let Some(s) = source {
                text.push_str(": ");
                text.push_str(&s.to_string());
                source = s.source();
            }
            text
        }
    };
    text.retain(|c| !c.is_control());
    text
}
