//! Squall's own studies, behind the commands that show them: search strategies against each other
//! on real kernels ([`strategies`], `squall bench search`), predictors of tuning databases against
//! the models of the literature ([`forecast`], `squall evaluate`), and choosers of MIOpen's solvers
//! ([`find`]). Users who tune, predict and run do not need this crate.

pub mod find;
pub mod forecast;
pub mod strategies;
