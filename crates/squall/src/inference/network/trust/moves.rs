//! Verifies that the user's compiler translates the runtime's moves of data correctly
//! (`runtime/host/moves.c`, the same text in all networks). Its usual build and an independent one
//! make the same random moves in a separate program (`compare_moves.c`). Output: the compiler
//! arguments with which networks build moves; if the builds differ, those of the independent one.

use super::{GUARDED, Verdict, keep, kept, own_arguments, with_headers};
use crate::base::error::Error;
use crate::inference::network::launch;
use crate::inference::network::units::{MOVES, compile_text, usual_arguments};
use crate::inference::objects::compile;
use crate::target::target_context::TargetContext;
use squall_measure::{TemporaryFolder, end_with_us};
use squall_runtime::host;
use std::path::Path;

const COMPARE: &str = include_str!("compare_moves.c");
/// The program that compares.
const NAME: &str = "compare_moves";
/// The compiler arguments that rename the functions of the independent build.
const RENAMED: [&str; 2] = ["-Drt_move_run=other_move_run", "-Drt_move_ready=other_move_ready"];

/// How moves are compiled.
#[derive(Default)]
pub struct MovesBuild {
    /// The compiler's arguments.
    pub arguments: Vec<String>,
    /// A sentence for the user where these are not the usual arguments, or where no comparison was
    /// possible.
    pub fallback: Option<String>,
}

/// How a network's moves are compiled.
pub fn moves_build(at: &TargetContext) -> MovesBuild {
    let usual = usual_arguments(&MOVES, at);
    let independent = [&usual[..], &at.toolchain.independent_flags()].concat();
    match verdict(&usual, &independent, at) {
        Ok(Verdict::Wrong(why)) => MovesBuild {
            fallback: Some(format!(
                "`{}` makes a wrong program of moves of data: {why}; they run as built with {}",
                at.toolchain.command(),
                at.toolchain.independent_flags().join(" ")
            )),
            arguments: independent,
        },
        Ok(_) => MovesBuild { arguments: usual, fallback: None },
        Err(e) => MovesBuild {
            arguments: usual,
            fallback: Some(format!("moves of data run unchecked: {e}")),
        },
    }
}

/// The kept verdict, or a new one, which is kept.
pub(super) fn verdict(
    usual: &[String],
    independent: &[String],
    at: &TargetContext,
) -> Result<Verdict, Error> {
    let folder = TemporaryFolder::new(NAME)?;
    let place = folder.path().join("verdict");
    let text = host::whole(host::MOVES.1);
    let joined = independent.join(" ");
    let key: Vec<&str> = usual.iter().map(String::as_str).collect();
    let key = at.toolchain.key(&key, &[&text, COMPARE, GUARDED, &joined]);
    if let Some(verdict) = kept(&key, &place, &at.toolchain) {
        return Ok(verdict);
    }
    let line = compared(folder.path(), &text, usual, independent, at)?;
    let verdict = Verdict::parse(&line).unwrap_or(Verdict::Unknown);
    if verdict != Verdict::Unknown {
        keep(&key, &line, &place, &at.toolchain);
    }
    Ok(verdict)
}

/// Builds the comparing program with both builds, and runs it: its line.
fn compared(
    folder: &Path,
    text: &str,
    usual: &[String],
    independent: &[String],
    at: &TargetContext,
) -> Result<String, Error> {
    let (text_of_ours, own) = (with_headers(COMPARE), own_arguments("-O1", &at.toolchain));
    let renamed = [independent, &RENAMED.map(String::from)].concat();
    let units = [
        (NAME, text_of_ours.as_str(), &own[..]),
        ("usual", text, usual),
        ("other", text, &renamed),
    ];
    for (name, text, arguments) in units {
        compile_text(at, text, arguments, &folder.join(format!("{name}.o")))?;
    }
    let openmp = usual.iter().find(|a| *a == "-fopenmp").map(String::as_str);
    let object = format!("{NAME}.o");
    let mut link: Vec<&str> = openmp.into_iter().collect();
    link.extend(["-o", NAME, &object, "usual.o", "other.o", "-lm"]);
    compile(folder, &at.toolchain, &link)?;
    let path = folder.join(NAME);
    let mut command = at.device.command(&path);
    command.current_dir(folder);
    let done = launch::output(end_with_us(&mut command))
        .map_err(|source| Error::Write { path, source })?;
    let said = String::from_utf8_lossy(&done.stdout).trim().to_string();
    Ok(if done.status.success() { said } else { "unknown".into() })
}
