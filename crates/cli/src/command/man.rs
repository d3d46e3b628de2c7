//! `squall man`: manual pages, from the command line's own definition.

use crate::failure::Failure;
use crate::terminal::note;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;

/// Print the manual page, or write those of all commands
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall man | man -l -                       the page of squall itself
  squall man --out ~/.local/share/man/man1    squall.1, squall-tune.1, ..")]
pub struct Args {
    /// Write the page of every command to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let mut whole = crate::Cli::command();
    whole.build();
    let Some(folder) = &a.out else {
        std::io::stdout().write_all(&page(whole)?)?;
        return Ok(0);
    };
    std::fs::create_dir_all(folder)?;
    let commands: Vec<Command> = whole.get_subcommands().cloned().collect();
    let own = |c: Command| {
        let name = format!("squall-{}", c.get_name());
        (c.name(name.clone()).bin_name(name.clone()), name)
    };
    let all: Vec<(Command, String)> = [(whole, "squall".to_string())]
        .into_iter()
        .chain(commands.into_iter().filter(|c| c.get_name() != "help").map(own))
        .collect();
    let count = all.len();
    for (command, name) in all {
        std::fs::write(folder.join(format!("{name}.1")), page(command)?)?;
    }
    note(format_args!("{}: {count} pages written", folder.display()));
    Ok(0)
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    Man::new(command).render(&mut text)?;
    Ok(text)
}
