//! A connection to a fleet's server ([`Fleet`]), and the versions of the schema on it: `init`
//! creates or upgrades the schema (`v1.sql` and on), `connect` refuses a server whose schema
//! differs. The other files of the crate add queries to [`Fleet`].

use crate::client::{Client, Fault};
use crate::error::FleetError;
use crate::url::{Address, Protection};
use std::time::Duration;
use tokio_postgres::NoTls;

/// The schema that this program writes.
pub const VERSION: i32 = 3;

/// The scripts that make each version of the schema from the previous one.
const UPGRADES: [&str; VERSION as usize] =
    [include_str!("v1.sql"), include_str!("v2.sql"), include_str!("v3.sql")];
const ROLES: &str = include_str!("roles.sql");
/// The advisory lock that is held while the schema is made, so that only one of two programs makes
/// it.
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
        // What goes wrong ends the connection, and with it the transaction.
        let found = fleet.client.with_much_patience(|client| {
            client.batch_execute("BEGIN")?;
            client.query_one("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
            let found = version(client)?;
            let known = usize::try_from(found.unwrap_or(0)).unwrap_or(0);
            for upgrade in UPGRADES.iter().skip(known) {
                client.batch_execute(upgrade)?;
            }
            client.batch_execute("COMMIT")?;
            Ok(found)
        });
        let found = found.map_err(|e| server_error(&server, &e))?;
        if let Some(found) = found.filter(|f| *f > VERSION) {
            return Err(FleetError::Newer { server, found, known: VERSION });
        }
        let without_roles = fleet.client.batch_execute(ROLES).err().map(|e| said(&e));
        Ok((fleet, found.is_none(), without_roles))
    }

    fn open(url: &str) -> Result<Fleet, FleetError> {
        let address = Address::read(url)?;
        let connected = match &address.protection {
            Protection::Plain => Client::connect(&address.config, NoTls),
            Protection::Verified(authority) => {
                let tls = crate::tls::connector(authority.as_deref())
                    .map_err(|detail| FleetError::Tls { server: address.server.clone(), detail })?;
                Client::connect(&address.config, tls)
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

    /// Sets the time that the server has to answer a question (half a minute by default).
    pub fn set_patience(&mut self, patience: Duration) {
        self.client.set_patience(patience);
    }

    fn version(&mut self) -> Result<Option<i32>, FleetError> {
        version(&mut self.client).map_err(|e| self.error(&e))
    }

    pub(crate) fn error(&self, e: &Fault) -> FleetError {
        server_error(&self.server, e)
    }
}

/// The schema's version; none where there is no fleet.
fn version(client: &mut Client) -> Result<Option<i32>, Fault> {
    let there = client.query_one("SELECT to_regclass('squall.version') IS NOT NULL", &[])?;
    if !there.get::<_, bool>(0) {
        return Ok(None);
    }
    let row = client.query_opt("SELECT max(number) FROM squall.version", &[])?;
    Ok(row.and_then(|r| r.get::<_, Option<i32>>(0)))
}

fn server_error(server: &str, e: &Fault) -> FleetError {
    let database = match e {
        Fault::Said(e) => e.as_db_error(),
        _ => None,
    };
    // Class 57 is an operator's intervention: the server stops or starts. In class 53 it lacks
    // disk, memory or connections, which it may have again.
    let lost = database.is_none_or(|db| {
        ["57", "53", "08"].iter().any(|class| db.code().code().starts_with(class))
    });
    FleetError::Server { server: server.into(), detail: said(e), lost }
}

/// A server's or a connection's error message, in one line.
fn said(e: &Fault) -> String {
    let e = match e {
        Fault::Said(e) => e,
        Fault::Silent(patience) => {
            return format!("it did not answer within {:.0} s", patience.as_secs_f64());
        }
        Fault::Local(e) => return e.to_string(),
    };
    let mut text = match e.as_db_error() {
        Some(db) => db.message().to_string(),
        None => {
            let mut text = e.to_string();
            let mut source = std::error::Error::source(&**e);
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
