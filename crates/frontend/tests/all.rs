//! The integration tests of the crate `squall-frontend` as one program: a program is linked once.

mod branches;
mod contrib;
mod models;
mod nasty;
mod opsets;
mod quantised;
