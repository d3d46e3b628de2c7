//! Tuning: the fastest kernels of an input, found by trials that are all kept.

use crate::error::Error;
use crate::event::{Event, Listen};
use crate::report::Report;
use crate::request::TuneRequest;
use crate::session::Session;
use crate::target_context::Context;
use squall_records::Store;
use std::sync::atomic::AtomicBool;

/// Tunes an input's tasks until the budget ends or `stop` is set; either way the store is complete.
pub fn tune(
    context: &Context,
    request: &TuneRequest,
    stop: &AtomicBool,
    listen: &mut Listen<'_>,
) -> Result<Report, Error> {
    let input = request.input.load(request.target)?;
    for k in input.own.iter().filter(|k| k.restored.0 > 0) {
        listen(Event::Note(format!(
            "{} writes over its input: a fresh copy of {} is part of each timed call",
            k.task.name, k.restored
        )));
    }
    let store = Store::open(&request.store)?;
    Session { request, store: &store, stop }.tune(&input, context, listen)
}
