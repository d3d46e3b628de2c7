//! Faults of a fleet's server (PostgreSQL, with which many machines share records): it dies, stops,
//! comes back, or another program answers at its address. A program that was built without fleets,
//! and a machine without PostgreSQL, leave these cases out. `fault.rs` lists them.

use super::base::{Base, SMALL};
use super::sandbox::{Sandbox, judge};
use super::tuning::{LONG, STORE, Tuning, ended, signal_of, stopped, swept};
use super::verdict::{Verdict, first};
use squall_fuzz::Draw;
use squall_testing::postgres;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Whether the program under test knows fleets.
fn knows_fleets(sandbox: &Sandbox) -> bool {
    sandbox.squall(&["fleet", "--help"], 20).status.is_some_and(|s| s.success())
}

/// A worker whose server crashes, stops or hangs while it makes trials, and comes back or does not:
/// it ends as it should, and its own store has every trial that it reported.
pub fn dead_server(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    if !knows_fleets(sandbox) {
        return Verdict::Unrun("the program was built without fleets".into());
    }
    let Some(server) = postgres::server() else {
        return Verdict::Unrun("PostgreSQL is not installed here".into());
    };
    base.warm(sandbox);
    server.sql("postgres", "CREATE DATABASE squall");
    let url = server.url("squall", "squall");
    for words in [
        &["fleet", "init", &url][..],
        &["fleet", "submit", SMALL, "--server", &url, "--trials-per-task", "10", "--slice", "5"],
    ] {
        let ran = sandbox.squall(words, LONG.as_secs());
        if !ran.status.is_some_and(|s| s.success()) {
            return Verdict::Wrong(format!("{words:?}: {}", ran.err));
        }
    }
    let words = ["worker", "--server", &url, "--store", STORE, "--json", "--until-idle"];
    let mut t = match Tuning::of(sandbox.command(&words, &Sandbox::limits()), sandbox) {
        Ok(t) => t,
        Err(v) => return v,
    };
    // A worker that finds no server at its start says so and ends: this one has begun.
    t.until(1 + draw.below(5), LONG);
    let how = draw.one(&["immediate", "fast", "stopped"]);
    let comes_back = draw.once_in(2);
    let after = Duration::from_millis(draw.below(3000) as u64);
    sandbox.note(&format!("server {how}, after {after:?} back: {comes_back}\n"));
    match how {
        "stopped" => server.signal_all("-STOP"),
        how => server.stop(how),
    }
    std::thread::sleep(after);
    if comes_back {
        match how {
            "stopped" => server.signal_all("-CONT"),
            _ => server.start(),
        }
        let (outcome, verdict) = ended(t, sandbox, STORE);
        let went_on = match outcome.code {
            Some(0) => Verdict::Right,
            other => {
                Verdict::Wrong(format!("its server's rest ends it: {other:?} {}", outcome.err))
            }
        };
        return first([verdict, went_on]);
    }
    let signal = signal_of(draw);
    t.signal(signal);
    let (outcome, verdict) = ended(t, sandbox, STORE);
    server.signal_all("-CONT");
    first([verdict, stopped(&outcome, signal), swept(sandbox)])
}

/// What is at the address of a fleet and is no server.
const STRANGERS: &[Option<&[u8]>] = &[
    None,
    Some(b""),
    Some(b"N"),
    Some(b"S"),
    Some(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    Some(&[0xff; 4096]),
    // An authentication that has no end, and a message that is longer than memory.
    Some(b"R\0\0\0\x08\0\0\0\x05"),
    Some(b"R\x7f\xff\xff\xff"),
    Some(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I"),
];

/// Commands that are given another's address: they say so, soon.
pub fn strange_server(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    if !knows_fleets(sandbox) {
        return Verdict::Unrun("the program was built without fleets".into());
    }
    let Ok(listener) = TcpListener::bind("127.0.0.1:0") else {
        return Verdict::Unrun("this machine gives no port".into());
    };
    let Ok(address) = listener.local_addr() else {
        return Verdict::Unrun("this machine gives no port".into());
    };
    let answer = STRANGERS[draw.below(STRANGERS.len())];
    let is_there = !draw.once_in(8);
    if is_there {
        std::thread::spawn(move || serve(&listener, answer));
    } else {
        drop(listener);
    }
    let url = format!("postgres://squall@{address}/squall?connect_timeout=2");
    sandbox.note(&format!("there: {is_there}, answers {answer:?}\n"));
    let commands: [&[&str]; 6] = [
        &["fleet", "status", "--server", &url],
        &["fleet", "init", &url],
        &["fleet", "submit", SMALL, "--server", &url],
        &["fleet", "pull", "--server", &url, "--store", STORE],
        &["worker", "--server", &url, "--store", STORE, "--until-idle"],
        &["worker", "--build", "--server", &url],
    ];
    let ran = sandbox.squall(commands[draw.below(commands.len())], 60);
    judge(&ran, true, true)
}

/// Answers connections until the process ends.
fn serve(listener: &TcpListener, answer: Option<&[u8]>) {
    let mut kept: Vec<TcpStream> = Vec::new();
    for connection in listener.incoming() {
        let Ok(mut c) = connection else { return };
        if let Some(text) = answer {
            let _ = c.read(&mut [0; 256]);
            let _ = c.write_all(text);
            if text.is_empty() {
                continue;
            }
        }
        kept.push(c);
    }
}
