//! The chooser of solvers: which of MIOpen's solvers computes a convolution fastest on a GPU, how
//! long it takes and with how much workspace. It learns from find databases of some GPUs and
//! answers for any problem on any GPU, measured or not (docs/solver-choice.md). Neighbours on the
//! GPU (or, where it has none, on the GPUs whose facts are most like its own) name the solvers that
//! may serve; trees order them and say how long each takes.

mod bytes;
mod candidates;
mod chooser;
mod file;
mod forest_file;
mod gpu;
mod memory;
mod models;
mod problem;
#[cfg(test)]
mod tests;
mod train;
mod trees;
mod workspace;

pub use chooser::{Asked, Choice, Chooser, ChooserInfo, ChooserSource, FindAnswer};
pub use gpu::GpuFacts;
pub use memory::{Memory, Without};
pub use train::{FindStep, FindTraining, is_known_gpu, train};
