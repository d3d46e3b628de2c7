//! Queries on a fleet's PostgreSQL server, each with a time limit. A server that accepts
//! connections but does not answer (a hanging disk, a stopped process) counts as lost, like one
//! that is down, and a worker goes on without it. The protocol is tokio-postgres'; its tasks run
//! only while a query is asked. `connection.rs` uses this client.

use squall_core::is_stopped;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Config, Error, Row, Socket};

/// The time limit of a query.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time that a query still has once the user wants the program to end, and the pause between
/// two looks for that.
const STOPPING: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(200);
/// The time limit of a query that changes the whole schema or reads all records.
const MUCH_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Why there is no answer.
pub(crate) enum Fault {
    /// The server answers with an error, or the connection breaks.
    Said(Box<Error>),
    /// It says nothing.
    Silent(Duration),
    /// This machine cannot begin a connection.
    Local(std::io::Error),
}

impl From<Error> for Fault {
    fn from(e: Error) -> Fault {
        Fault::Said(Box::new(e))
    }
}

/// A connection. One whose question found no answer is of no more use.
pub(crate) struct Client {
    runtime: Runtime,
    client: tokio_postgres::Client,
    /// A message for each notification; closed when the connection is.
    heard: UnboundedReceiver<()>,
    patience: Duration,
}

impl Client {
    /// Connects; the server has as long as the address says for connections.
    pub fn connect<T>(config: &Config, tls: T) -> Result<Client, Fault>
    where
        T: MakeTlsConnect<Socket> + 'static + Send,
        T::TlsConnect: Send,
        T::Stream: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Fault::Local)?;
        let patience = config.get_connect_timeout().copied().unwrap_or(PATIENCE);
        let (client, mut connection) = within(&runtime, patience, config.connect(tls))?;
        let (tell, heard) = unbounded_channel();
        runtime.spawn(async move {
            // An error of the connection is the answer to the question at hand.
            while let Some(Ok(message)) = poll_fn(|c| connection.poll_message(c)).await {
                if matches!(message, AsyncMessage::Notification(_)) && tell.send(()).is_err() {
                    break;
                }
            }
        });
        Ok(Client { runtime, client, heard, patience: PATIENCE })
    }

    /// Sets the time limit of questions.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Gives the questions that follow as long as they take, of a server that answers at all.
    pub fn with_much_patience<T>(
        &mut self,
        ask: impl FnOnce(&mut Client) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.batch_execute("")?;
        let before = std::mem::replace(&mut self.patience, MUCH_PATIENCE);
        let answer = ask(self);
        self.patience = before;
        answer
    }

    /// Runs one statement; its rows.
    pub fn query(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Fault> {
        self.within(self.client.query(sql, values))
    }

    /// The same of a statement that has one row.
    pub fn query_one(&mut self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Row, Fault> {
        self.within(self.client.query_one(sql, values))
    }

    /// The same of a statement that has one row or none.
    pub fn query_opt(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, Fault> {
        self.within(self.client.query_opt(sql, values))
    }

    /// Runs statements without values.
    pub fn batch_execute(&mut self, sql: &str) -> Result<(), Fault> {
        self.within(self.client.batch_execute(sql))
    }

    fn within<T>(&self, question: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
        within(&self.runtime, self.patience, question)
    }

    /// Waits for a notification for `at_most`; returns whether there was one.
    pub fn wait(&mut self, at_most: Duration) -> Result<bool, Fault> {
        let heard = self.runtime.block_on(async { timeout(at_most, self.heard.recv()).await });
        match heard {
            Err(_) => Ok(false),
            Ok(Some(())) => Ok(true),
            // What broke the connection is what the next statement says.
            Ok(None) => self.batch_execute("").map(|()| false),
        }
    }
}

fn within<T>(
    runtime: &Runtime,
    patience: Duration,
    question: impl Future<Output = Result<T, Error>>,
) -> Result<T, Fault> {
    let mut question = pin!(question);
    let mut end = Instant::now() + patience;
    runtime.block_on(async {
        loop {
            if let Ok(answer) = timeout(LOOK, question.as_mut()).await {
                return Ok(answer?);
            }
            if is_stopped() {
                end = end.min(Instant::now() + STOPPING);
            }
            if Instant::now() >= end {
                return Err(Fault::Silent(patience));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server that lets everybody in and then says nothing is not given a day.
    #[test]
    fn much_patience_is_for_servers_that_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut c, _) = listener.accept().unwrap();
            let _ = c.read(&mut [0; 256]);
            c.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").unwrap();
            while c.read(&mut [0; 256]).is_ok_and(|n| n > 0) {}
        });
        let config = format!("postgres://squall@127.0.0.1:{port}/squall").parse().unwrap();
        let Ok(mut client) = Client::connect(&config, tokio_postgres::NoTls) else {
            panic!("it lets everybody in")
        };
        client.set_patience(Duration::from_millis(300));
        let asked = client.with_much_patience(|c| c.batch_execute("SELECT 1"));
        assert!(matches!(asked, Err(Fault::Silent(_))));
    }
}
