//! The error type of the commands: a message, its causes, a hint and an exit code, all printed to
//! stderr. Errors of the crate `squall` are converted to it; a closed output pipe ends a command
//! silently.

use crate::plain::note;
use squall::{Error, StoreError};
use std::error::Error as _;
use std::io;

/// Why a command ends early.
pub enum Failure {
    /// The reader of the output has closed its pipe: the command ends silently.
    Pipe,
    /// An error to print.
    Said { message: String, causes: Vec<String>, hint: Option<String>, code: u8 },
}

impl Failure {
    /// A wrong use of the command line that clap cannot detect.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Said {
            message: message.into(),
            causes: Vec::new(),
            hint: Some(hint.into()),
            code: 2,
        }
    }

    /// A failure with a hint.
    pub fn new(message: impl Into<String>, hint: Option<String>) -> Failure {
        Failure::Said { message: message.into(), causes: Vec::new(), hint, code: 1 }
    }

    /// Says it on stderr; the exit code.
    pub fn print(&self) -> u8 {
        let Failure::Said { message, causes, hint, code } = self else { return 0 };
        // Where stderr is closed, the exit code still tells.
        note(format_args!("error: {message}"));
        for c in causes {
            note(format_args!("  because: {c}"));
        }
        if let Some(h) = hint {
            note(format_args!("hint: {h}"));
        }
        *code
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        let message = e.to_string();
        let mut causes: Vec<String> = Vec::new();
        let mut source = e.source();
        while let Some(s) = source {
            let text = s.to_string();
            // Most messages say their cause themselves.
            if !message.contains(&text) && !causes.contains(&text) {
                causes.push(text);
            }
            source = s.source();
        }
        let code = match e {
            Error::Usage { .. } => 2,
            _ if e.is_stop() => 130,
            _ => 1,
        };
        Failure::Said { message, causes, hint: e.hint(), code }
    }
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Failure {
        match e {
            StoreError::Write(io) => io.into(),
            e => Error::from(e).into(),
        }
    }
}

/// Output that cannot be written.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        if e.kind() == io::ErrorKind::BrokenPipe {
            Failure::Pipe
        } else {
            Failure::new(format!("cannot write output: {e}"), None)
        }
    }
}
