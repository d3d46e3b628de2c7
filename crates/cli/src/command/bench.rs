//! `squall bench`: benchmarks.

use crate::command::bench_search;
use crate::failure::Failure;
use clap::Subcommand;

/// Benchmarks of Squall itself
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  squall bench search --trials 64,128 --seeds 3     what each search strategy is worth here"
)]
pub struct Args {
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Subcommand)]
enum Part {
    Search(bench_search::Args),
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    match &a.part {
        Some(Part::Search(s)) => bench_search::run(s),
        None => Err(Failure::usage("nothing to benchmark", "`squall bench search` compares search strategies")),
    }
}
