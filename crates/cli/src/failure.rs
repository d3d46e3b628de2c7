//! How a command fails: what is said, the hint below it, the exit code.

use squall::Error;
use squall::core::MeasurerError as MeasureError;
use squall::records::StoreError;
use std::error::Error as _;
use std::io::{self, Write};

/// Why a command ends early.
pub enum Failure {
    /// Somebody stopped reading our output: no error of ours, and nobody to tell.
    Pipe,
    /// Something is wrong.
    Said { message: String, causes: Vec<String>, hint: Option<String>, code: u8 },
}

impl Failure {
    /// A wrong use of the command line that only we can see.
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
        let mut err = io::stderr().lock();
        // Nobody reads it: the exit code still tells.
        let _ = writeln!(err, "error: {message}");
        for c in causes {
            let _ = writeln!(err, "  because: {c}");
        }
        if let Some(h) = hint {
            let _ = writeln!(err, "hint: {h}");
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
        Failure::Said { message, causes, hint: e.hint(), code: 1 }
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

impl From<MeasureError> for Failure {
    fn from(e: MeasureError) -> Failure {
        Error::from(e).into()
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
