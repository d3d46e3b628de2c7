//! The commands of `squall`, one module each. `Command` is the list that clap parses, and `run`
//! calls the module. A module defines its options (`Args`, whose comments are the text of
//! `--help`), fills in a request of the crate `squall`, and prints the answer; it holds no policy.

mod advise;
mod bench;
mod bench_search;
mod check;
mod choose;
mod completions;
mod doctor;
mod evaluate;
mod evaluate_find;
mod explain;
mod export;
#[cfg(feature = "fleet")]
mod fleet;
mod import;
mod import_database;
mod import_find;
mod import_recording;
mod init;
mod man;
mod predict;
mod records;
mod records_verify;
mod replay;
mod run;
mod tasks;
mod train;
mod train_find;
mod tune;
mod worker;

use crate::failure::Failure;
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    Init(init::Args),
    Tasks(tasks::Args),
    Tune(tune::Args),
    Export(export::Args),
    Advise(advise::Args),
    Explain(explain::Args),
    Import(import::Args),
    Train(train::Args),
    Predict(predict::Args),
    Choose(choose::Args),
    Evaluate(evaluate::Args),
    Records(records::Args),
    #[cfg(feature = "fleet")]
    Fleet(fleet::Args),
    Worker(worker::Args),
    Replay(replay::Args),
    Check(check::Args),
    Run(run::Args),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Runs a command; its exit code.
pub fn run(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Init(a) => init::run(&a),
        Command::Tasks(a) => tasks::run(&a),
        Command::Tune(a) => tune::run(&a),
        Command::Advise(a) => advise::run(&a),
        Command::Export(a) => export::run(&a),
        Command::Explain(a) => explain::run(&a),
        Command::Import(a) => import::run(&a),
        Command::Train(a) => train::run(&a),
        Command::Predict(a) => predict::run(&a),
        Command::Choose(a) => choose::run(&a),
        Command::Evaluate(a) => evaluate::run(&a),
        Command::Records(a) => records::run(&a),
        #[cfg(feature = "fleet")]
        Command::Fleet(a) => fleet::run(&a),
        Command::Worker(a) => worker::run(&a),
        Command::Replay(a) => replay::run(&a),
        Command::Check(a) => check::run(&a),
        Command::Run(a) => run::run(&a),
        Command::Bench(a) => bench::run(&a),
        Command::Doctor(a) => doctor::run(&a),
        Command::Completions(a) => completions::run(&a),
        Command::Man(a) => man::run(&a),
    }
}
