//! The address of a fleet's server, `postgres://user@host/database?..`, and how the connection is
//! protected: none for a local socket or this machine, TLS with a certificate that names the host
//! for every other (`sslmode=verify-full`), unless the address says `sslmode=disable`.

use crate::error::FleetError;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long a server may take to answer a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a connection is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// It is not: a socket, this machine, or a network that the user trusts.
    Plain,
    /// TLS; the server's certificate is signed by this file's authority, or by the system's.
    Verified(Option<String>),
}

/// A parsed address.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub config: Config,
    pub protection: Protection,
    /// Hosts and database, for messages.
    pub server: String,
}

/// Whether a text is the address of a fleet and no file.
pub fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

impl Address {
    /// Reads `postgres://USER@HOST:PORT/DATABASE?KEY=VALUE&..`.
    pub fn read(url: &str) -> Result<Address, FleetError> {
        // No password is ever printed.
        let fail = |detail: String| FleetError::Url { url: without_password(url), detail };
        if !is_url(url) {
            return Err(fail("it does not begin with postgres://".into()));
        }
        let (front, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut authority, mut rest) = (None, None, Vec::new());
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value.to_string()),
                Some(("sslrootcert", value)) => authority = Some(value.to_string()),
                _ => rest.push(pair),
            }
        }
        let plain_url =
            if rest.is_empty() { front.into() } else { format!("{front}?{}", rest.join("&")) };
        let mut config = Config::from_str(&plain_url).map_err(|e| fail(e.to_string()))?;
        let local = |h: &Host| match h {
            Host::Tcp(name) => ["localhost", "127.0.0.1", "::1"].contains(&name.as_str()),
            Host::Unix(_) => true,
        };
        let is_local = config.get_hosts().iter().all(local);
        let protection = match mode.as_deref() {
            Some("disable") => Protection::Plain,
            None if is_local => Protection::Plain,
            None | Some("verify-full") => Protection::Verified(authority),
            Some(other) => {
                return Err(fail(format!(
                    "sslmode={other} leaves room for another server; say verify-full or disable"
                )));
            }
        };
        config.ssl_mode(match protection {
            Protection::Plain => SslMode::Disable,
            Protection::Verified(_) => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(PATIENCE);
        }
        if config.get_tcp_user_timeout().is_none() {
            // A server whose host lost its power says nothing, for a quarter of an hour.
            config.tcp_user_timeout(2 * PATIENCE);
        }
        if config.get_user().is_none() {
            // As libpq does.
            if let Some(name) = std::env::var("PGUSER").ok().or_else(|| std::env::var("USER").ok())
            {
                config.user(&name);
            }
        }
        if config.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            config.password(password);
        }
        config.application_name("squall");
        let hosts: Vec<String> = config
            .get_hosts()
            .iter()
            .map(|h| match h {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let database = config.get_dbname().unwrap_or("its user's database");
        let server = format!("{} ({database})", hosts.join(", "));
        Ok(Address { config, protection, server })
    }
}

/// An address whose password is hidden.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    match rest.split_once('@') {
        Some((who, rest)) => {
            let user = who.split(':').next().unwrap_or("");
            format!("{scheme}://{user}@{rest}")
        }
        None => url.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_protected_unless_they_stay_on_this_machine() {
        let of = |url: &str| Address::read(url).map(|a| a.protection);
        let plain = Protection::Plain;
        assert_eq!(of("postgres:///fleet?host=/run/postgresql").expect("an address"), plain);
        assert_eq!(of("postgres://u@localhost/fleet").expect("an address"), plain);
        assert_eq!(of("postgres://u@db/fleet?sslmode=disable").expect("an address"), plain);
        let verified = Protection::Verified(None);
        assert_eq!(of("postgres://u@db.example/fleet").expect("an address"), verified);
        let file = Protection::Verified(Some("/ca.pem".into()));
        let url = "postgresql://u@db/fleet?sslmode=verify-full&sslrootcert=/ca.pem";
        assert_eq!(of(url).expect("an address"), file);
        for mode in ["allow", "prefer", "require", "verify-ca", ""] {
            assert!(of(&format!("postgres://u@db/fleet?sslmode={mode}")).is_err(), "{mode}");
        }
    }

    #[test]
    fn no_message_holds_a_password() {
        let error = Address::read("postgres://u:secret@db/fleet?nonsense=1").expect_err("no");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(Address::read("tuned.squall").is_err());
    }
}
