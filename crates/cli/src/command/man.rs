//! `squall man`: manual pages, from the command line's own definition.

use crate::failure::Failure;
use crate::terminal::note;
use clap::CommandFactory;
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
    let Some(folder) = &a.out else {
        let mut whole = crate::Cli::command();
        whole.build();
        let mut text = Vec::new();
        Man::new(whole).render(&mut text)?;
        std::io::stdout().write_all(&text)?;
        return Ok(0);
    };
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(crate::Cli::command(), folder)?;
    let count = std::fs::read_dir(folder)?.count();
    note(format_args!("{}: {count} pages", folder.display()));
    Ok(0)
}
