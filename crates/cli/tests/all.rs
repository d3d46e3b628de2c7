//! The integration tests of the crate `squall-cli`, all in one program, because each test program
//! takes time to link. They run the real `squall` binary; `support` has the helpers.

mod advise;
mod beside;
mod boards;
mod branches;
mod check;
mod completions;
mod composed;
mod crowded;
mod exchange;
mod export;
#[cfg(feature = "fleet")]
mod fleet;
mod forecast;
mod gpu;
mod halves;
mod hostile;
mod inputs;
mod kept;
mod levels;
mod library;
mod own;
mod own_cuda;
mod records;
mod regions;
mod replay;
mod run;
mod search;
mod stages;
mod support;
mod tune;
