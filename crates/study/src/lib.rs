//! Squall's own studies, behind the commands that show them: search strategies against each other
//! on real kernels ([`strategies`], `squall bench search`), and predictors of tuning databases
//! against the models of the literature ([`forecast`], `squall evaluate`). Users who tune, predict
//! and run need nothing of it.

pub mod find;
pub mod forecast;
pub mod strategies;
