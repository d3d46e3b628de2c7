//! How many kernels come from where.

/// How many kernels were tuned, and how many not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// All of them.
    pub kernels: usize,
    /// Those that the store knows.
    pub tuned: usize,
    /// Those that are verified guesses.
    pub guessed: usize,
    /// Those that are plain loops.
    pub plain: usize,
}

impl std::fmt::Display for KernelCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let KernelCounts { kernels, tuned, guessed, plain } = self;
        write!(f, "{kernels} kernels: {tuned} tuned, {guessed} guessed, {plain} plain loops")
    }
}
