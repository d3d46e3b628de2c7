//! A connection to a fleet's server that is made anew where it was lost. The user is told once when
//! the server cannot be reached, and once when it is back.

use super::{Fleet, FleetError};
use crate::event::{Event, Listen};
use std::time::{Duration, Instant};

/// How often a server that cannot be reached is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// What a connection begins with: the process says who it is. What it gives lasts as long as the
/// connection.
pub(super) type Join<'a, J> = Box<dyn Fn(&mut Fleet) -> Result<J, FleetError> + 'a>;

/// The connection, and what joining gave.
pub(super) struct FleetLine<'a, J> {
    server: String,
    join: Join<'a, J>,
    /// What goes on without the server, for messages.
    meanwhile: &'static str,
    /// None while the server cannot be reached.
    joined: Option<(Fleet, J)>,
    tried: Option<Instant>,
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
        let (server, joined) = (server.to_string(), None);
        let mut line = FleetLine { server, join, meanwhile, joined, tried: None, has_said: false };
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
    /// Those of the server that asking again would not mend.
    pub fn ask<T>(
        &mut self,
        listen: &mut Listen<'_>,
        question: impl FnOnce(&mut Fleet, &mut J) -> Result<T, FleetError>,
    ) -> Result<Option<T>, FleetError> {
        if self.joined.is_none() && self.tried.is_none_or(|t| t.elapsed() >= AGAIN) {
            self.tried = Some(Instant::now());
            match self.connect() {
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
                self.tried = Some(Instant::now());
                if !std::mem::replace(&mut self.has_said, true) {
                    listen(Event::Trouble(format!("{e}; {}", self.meanwhile)));
                }
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }
}
