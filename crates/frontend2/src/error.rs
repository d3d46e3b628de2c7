//! Why an input cannot be imported.

/// What is wrong with what a user handed in, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// An operator line.
    #[error("{name}:{line}:{column}: {message}")]
    #[allow(missing_docs)] // the message says what the fields are
    Line { name: String, line: usize, column: usize, message: String },
}
