//! A connection to a fleet's server that reconnects by itself. While the server cannot be reached,
//! calls give no result and the caller goes on without it; attempts are spaced out. The user is
//! told once when the server is lost and once when it is back. Workers (`work.rs`) and builders
//! (`build.rs`) talk to the server through it.

use super::{Fleet, FleetError};
use crate::task::event::{Event, Listen};
use std::time::{Duration, Instant};

/// The least pause before a lost server is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// The pause is at least this many times the duration of the last attempt, so that a server that
/// does not answer costs a tenth of the time at most.
const REST: u32 = 10;

/// The first exchange on a new connection, in which the process says who it is. Its result is valid
/// as long as the connection.
pub(super) type Join<'a, J> = Box<dyn Fn(&mut Fleet) -> Result<J, FleetError> + 'a>;

/// The connection, and the result of the first exchange.
pub(super) struct FleetLine<'a, J> {
    server: String,
    join: Join<'a, J>,
    /// For messages: what the process does without the server.
    meanwhile: &'static str,
    /// None while the server cannot be reached.
    joined: Option<(Fleet, J)>,
    /// The time before which no new attempt is made.
    rests_until: Option<Instant>,
    /// Whether the user knows that the server cannot be reached.
    has_said: bool,
}

impl<'a, J> FleetLine<'a, J> {
    /// The first connection: an address that is wrong shows here.
    ///
    /// # Errors
    /// Where the server cannot be reached or refuses the process.
    pub fn open(
        server: &str,
        meanwhile: &'static str,
        join: Join<'a, J>,
    ) -> Result<FleetLine<'a, J>, FleetError> {
        let server = server.to_string();
        let (joined, rests_until, has_said) = (None, None, false);
        let mut line = FleetLine { server, join, meanwhile, joined, rests_until, has_said };
        line.connect()?;
        Ok(line)
    }

    fn connect(&mut self) -> Result<(), FleetError> {
        let mut fleet = Fleet::connect(&self.server)?;
        let given = (self.join)(&mut fleet)?;
        self.joined = Some((fleet, given));
        Ok(())
    }

    /// The connection, where there is one now.
    pub fn joined(&mut self) -> Option<&mut (Fleet, J)> {
        self.joined.as_mut()
    }

    /// Asks the server; none where it cannot be reached now.
    ///
    /// # Errors
    /// The server's errors that asking again would not mend.
    pub fn ask<T>(
        &mut self,
        listen: &mut Listen<'_>,
        question: impl FnOnce(&mut Fleet, &mut J) -> Result<T, FleetError>,
    ) -> Result<Option<T>, FleetError> {
        let begin = Instant::now();
        if self.joined.is_none() && self.rests_until.is_none_or(|end| begin >= end) {
            let connected = self.connect();
            self.rest_after(begin);
            match connected {
                Ok(()) if self.has_said => {
                    self.has_said = false;
                    listen(Event::Note("the fleet's server is back".into()));
                }
                Err(e) if !e.is_lost() => return Err(e),
                _ => {}
            }
        }
        let Some((fleet, given)) = &mut self.joined else { return Ok(None) };
        match question(fleet, given) {
            Err(e) if e.is_lost() => {
                self.joined = None;
                self.rest_after(begin);
                if !std::mem::replace(&mut self.has_said, true) {
                    listen(Event::Trouble(format!("{e}; {}", self.meanwhile)));
                }
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    fn rest_after(&mut self, begin: Instant) {
        self.rests_until = Some(Instant::now() + AGAIN.max(REST * begin.elapsed()));
    }
}
