//! The integration tests of the crate `squall`, all in one program, because each test program takes
//! time to link. Each module is one area; `machine`, `written` and `fused_tasks` are shared by
//! others.

mod arm;
mod copies;
mod covers;
mod dynamic;
mod examples;
mod fused_tasks;
mod generated_code;
mod halves;
mod hostile;
mod identities;
mod machine;
mod model_digests;
mod networks;
mod older_configurations;
mod operators;
mod placed;
mod quantised;
mod ranges;
mod report;
mod traces;
mod written;
