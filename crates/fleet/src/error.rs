//! The errors of a fleet's connection and queries. Messages name the server and what the user can
//! do, never a password.

/// What went wrong between this process and the fleet's server.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum FleetError {
    #[error("`{url}` is no address of a fleet: {detail}")]
    Url { url: String, detail: String },
    #[error("cannot reach the fleet's server at {server}: {detail}")]
    Connect { server: String, detail: String },
    #[error("the connection to {server} is encrypted only with TLS: {detail}")]
    Tls { server: String, detail: String },
    #[error("there is no fleet on {server} yet")]
    NoFleet { server: String },
    #[error("the fleet on {server} has schema {found}, this program knows up to {known}")]
    Newer { server: String, found: i32, known: i32 },
    #[error("the fleet on {server} has schema {found}, this program needs {known}")]
    Older { server: String, found: i32, known: i32 },
    #[error("{server} says: {detail}")]
    Server { server: String, detail: String, lost: bool },
    #[error("a record of the fleet does not read: {0}")]
    Record(String),
    #[error("{0}")]
    Nothing(String),
}

impl FleetError {
    /// What the user can do about it.
    pub fn remedy(&self) -> String {
        match self {
            FleetError::Url { .. } => "write postgres://USER@HOST/DATABASE, or for a socket \
                                       postgres:///DATABASE?host=/run/postgresql"
                .into(),
            FleetError::Connect { .. } => "check that the server runs and that host, port, user \
                                           and password are right (PGPASSWORD, or ~/.pgpass)"
                .into(),
            FleetError::Tls { .. } => "name the server's authority with sslrootcert=FILE, or \
                                       within a trusted network say sslmode=disable"
                .into(),
            FleetError::NoFleet { .. } => "make one: squall fleet init URL".into(),
            FleetError::Newer { .. } => "use the newer Squall".into(),
            FleetError::Older { .. } => {
                "bring it to this schema, nothing is lost: squall fleet init URL".into()
            }
            FleetError::Server { lost: true, .. } => {
                "what was measured is in the own store; try again once the server is back".into()
            }
            FleetError::Server { .. } => {
                "`squall fleet init` grants roles; docs/fleet.md says which one may do what".into()
            }
            FleetError::Record(_) => "please report this: it is a fault of Squall's, or the \
                                      server's tables were changed by hand"
                .into(),
            FleetError::Nothing(_) => "`squall fleet status` shows what there is".into(),
        }
    }

    /// Whether the server cannot be reached, so that the same may work later.
    pub fn is_lost(&self) -> bool {
        matches!(self, FleetError::Connect { .. } | FleetError::Server { lost: true, .. })
    }
}
