//! Boards: machines that only run kernels (a single-board computer, say), reached by ssh. Kernels
//! are compiled on this machine and sent over the connection. At the far end runs a small static
//! program, the keeper (`runtime/host/keeper.c`), which describes the board, starts the runner
//! there and ends it in time. The board needs nothing but a shell behind `ssh`; docs/decisions/0045
//! says why it is done so.

mod address;
mod facts;
mod link;

pub use address::BoardAddress;
pub(crate) use facts::Facts;
pub(crate) use link::{Frame, Link};

use squall_core::MeasurerError;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connected board. Everything goes over its one connection, one thing after another.
#[derive(Clone)]
pub struct Board {
    address: BoardAddress,
    facts: Arc<Facts>,
    link: Arc<Mutex<Link>>,
    /// The dynamic loader and the libraries that programs were linked to, which are sent there.
    libraries: Arc<[(String, PathBuf)]>,
}

impl Board {
    /// A board behind an open connection, whose programs run with these libraries, the loader
    /// first; with the board's own where there are none.
    pub(crate) fn new(link: Link, libraries: Vec<(String, PathBuf)>) -> Board {
        Board {
            address: link.address().clone(),
            facts: Arc::new(link.facts().clone()),
            link: Arc::new(Mutex::new(link)),
            libraries: libraries.into(),
        }
    }

    /// Where it is.
    pub fn address(&self) -> &BoardAddress {
        &self.address
    }

    /// The id of its present boot; none where it does not tell.
    pub fn boot(&self) -> Option<String> {
        self.facts.read("/proc/sys/kernel/random/boot_id")
    }

    /// The facts that it reported.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Link> {
        // After a panic in the middle of a message the other end complains of what follows.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program that lies in a folder here; one that runs there already ends.
    pub(crate) fn start(
        &self,
        program: &Path,
        arguments: &[String],
        environment: &[(String, String)],
    ) -> Result<(), MeasurerError> {
        let mut link = self.link();
        for (name, path) in self.libraries.iter() {
            link.send_file(name, path)?;
        }
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        link.send_file(&name, program)?;
        let mut words: Vec<String> = environment.iter().map(|(k, v)| format!("{k}={v}")).collect();
        if let Some((loader, _)) = self.libraries.first() {
            words.extend([format!("./{loader}"), "--library-path".into(), ".".into()]);
        }
        words.push(format!("./{name}"));
        words.extend_from_slice(arguments);
        link.start(&words)
    }
}

impl PartialEq for Board {
    fn eq(&self, other: &Board) -> bool {
        Arc::ptr_eq(&self.link, &other.link)
    }
}

impl Eq for Board {}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Board({})", self.address)
    }
}
