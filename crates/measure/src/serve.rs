//! The measuring end of a connection: a loop in which any [`Measurer`] answers the requests that a
//! [`PipedMeasurer`](crate::PipedMeasurer) in another process or on another machine sends
//! (`wire.rs` has the messages).

use crate::wire::{Reply, Request, receive, send};
use squall_core::{Measurer, MeasurerError};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};

/// A request and the flag that stops it; an error where the line is no request.
type Received = (Result<Request<'static>, MeasurerError>, Arc<AtomicBool>);

/// Answers requests until the input ends. Errors of measuring, and requests that cannot be read,
/// are told to the other end; an error here means that the connection is lost.
pub fn serve(
    measurer: &mut dyn Measurer,
    input: impl BufRead + Send,
    mut output: impl Write,
) -> Result<(), MeasurerError> {
    let hello = Reply::Hello {
        identity: measurer.identity().clone(),
        needs_source: measurer.needs_source(),
        overhead: measurer.overhead(),
    };
    send(&mut output, hello)?;
    let (sender, requests) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || read_requests(input, &sender));
        for (request, stop) in requests {
            let end = request.and_then(|r| answer(measurer, &r, &stop, &mut output));
            send(&mut output, Reply::End { error: end.err(), overhead: measurer.overhead() })?;
        }
        Ok(())
    })
}

/// Reads requests while others are being answered, since one of them may be to stop. The end of
/// the input stops the last one too: its results would reach no reader.
fn read_requests(mut input: impl BufRead, sender: &Sender<Received>) {
    let mut latest = Arc::new(AtomicBool::new(false));
    loop {
        let request = match receive::<Request<'static>>(&mut input) {
            Ok(Some(Request::Stop)) => {
                latest.store(true, Ordering::Relaxed);
                continue;
            }
            Ok(Some(request)) => Ok(request),
            Ok(None) => break,
            Err(e) => Err(e),
        };
        latest = Arc::new(AtomicBool::new(false));
        if sender.send((request, latest.clone())).is_err() {
            break;
        }
    }
    latest.store(true, Ordering::Relaxed);
}

/// Does what was asked for; results are sent as they are made.
fn answer(
    measurer: &mut dyn Measurer,
    request: &Request,
    stop: &AtomicBool,
    output: &mut impl Write,
) -> Result<(), MeasurerError> {
    match request {
        Request::SetTask(task) => measurer.set_task(task),
        Request::Run(jobs) => measurer.run(jobs, stop, &mut |result| {
            // Where the connection is lost, the end of the run cannot be sent either.
            if send(output, Reply::Result(result)).is_err() {
                stop.store(true, Ordering::Relaxed);
            }
        }),
        Request::Rematch { incumbent, challenger } => {
            let rematch = measurer.rematch(incumbent, challenger)?;
            send(output, Reply::Rematch(Box::new(rematch)))
        }
        // Heard where requests are read.
        Request::Stop => Ok(()),
    }
}
