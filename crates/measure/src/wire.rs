//! The messages between a [`PipedMeasurer`](crate::PipedMeasurer) and [`serve()`](crate::serve()):
//! lines of JSON, each with the version of the messages. The measuring end begins with
//! [`Reply::Hello`]; every request but [`Request::Stop`] is answered by any number of results and
//! one [`Reply::End`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use squall_core::measurer::{MessageVersion, read_message, write_message};
use squall_core::{CpuCost, Job, JobResult, MeasurerError, MeasurerIdentity, Rematch, TaskSetup};
use std::borrow::Cow;
use std::io::{BufRead, Write};

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: MessageVersion,
    message: T,
}

/// A request to the measuring end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request<'a> {
    SetTask(Cow<'a, TaskSetup>),
    Run(Cow<'a, [Job]>),
    Rematch {
        incumbent: Cow<'a, Job>,
        challenger: Cow<'a, Job>,
    },
    /// Stops the last run, if it still goes on.
    Stop,
}

/// A reply of the measuring end.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Hello { identity: MeasurerIdentity, needs_source: bool, overhead: CpuCost },
    Result(JobResult),
    Rematch(Box<Rematch>),
    End { error: Option<MeasurerError>, overhead: CpuCost },
}

/// Writes a line at once.
pub(crate) fn send<T: Serialize>(output: &mut impl Write, message: T) -> Result<(), MeasurerError> {
    let text = write_message(&Envelope { version: MessageVersion, message })?;
    let written = writeln!(output, "{text}").and_then(|()| output.flush());
    written.map_err(|e| MeasurerError::Connection(e.to_string()))
}

/// Reads a line; `None` where the other end has closed the connection.
pub(crate) fn receive<T: DeserializeOwned>(
    input: &mut impl BufRead,
) -> Result<Option<T>, MeasurerError> {
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => read_message::<Envelope<T>>(&line).map(|e| Some(e.message)),
        Err(e) => Err(MeasurerError::Connection(e.to_string())),
    }
}
