//! `squall completions`: what a shell completes, from the command line's own definition.

use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Print the completions of a shell
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall completions bash > ~/.local/share/bash-completion/completions/squall
  squall completions zsh > ~/.zfunc/_squall
  squall completions fish > ~/.config/fish/completions/squall.fish")]
pub struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(a.shell, &mut crate::Cli::command(), "squall", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(0)
}
