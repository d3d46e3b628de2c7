//! The `squall` command: parses the command line and calls the command's module in `command/`, each
//! of which calls one function of the crate `squall` and prints the result.

mod command;
mod failure;
mod interrupt;
mod option;
mod plain;
mod progress;
mod terminal;

use clap::Parser;
use std::process::ExitCode;

/// Finds the fastest implementation of tensor kernels on the hardware in front of you.
#[derive(Parser)]
#[command(
    name = "squall",
    version,
    max_term_width = 110,
    after_help = "\
Examples:
  squall doctor                                    what this machine offers and what is missing
  squall tasks model.onnx --dim N=1                the distinct kernels of a network
  squall tune model.onnx --seconds 120             tune them for two minutes
  squall tune 'matmul m=512 n=512 k=512' --trials 200
  squall export model.onnx --out kernels --build   the best kernels as C sources and a library

Exit codes: 0 done, 1 error, 2 wrong usage, 130 ended by Ctrl-C with what was found."
)]
struct Cli {
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    interrupt::prepare();
    let cli = Cli::parse();
    match command::run(cli.command) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => ExitCode::from(failure.print()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_defined_and_every_command_shows_examples() {
        let cli = super::Cli::command();
        cli.clone().debug_assert();
        for c in cli.get_subcommands() {
            let help = c.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "`squall {}` has no examples", c.get_name());
        }
    }
}
