//! The integration tests of the crate `squall` as one program: a program is linked once.

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
mod report;
mod traces;
mod written;
