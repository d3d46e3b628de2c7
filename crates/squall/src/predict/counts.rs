//! Counts of a network's or an export's kernels by origin, printed as `12 kernels: 9 tuned, 2
//! guessed, 1 plain loops`.

/// How many kernels have each origin; `choose.rs` says how kernels are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// All of them.
    pub kernels: usize,
    /// Kernels from the store's records.
    pub tuned: usize,
    /// Verified guesses for tasks that were never tuned.
    pub guessed: usize,
    /// Plain loops.
    pub plain: usize,
}

impl std::fmt::Display for KernelCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let KernelCounts { kernels, tuned, guessed, plain } = self;
        write!(f, "{kernels} kernels: {tuned} tuned, {guessed} guessed, {plain} plain loops")
    }
}
