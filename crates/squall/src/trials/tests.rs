//! Conformance of the trial loop.
