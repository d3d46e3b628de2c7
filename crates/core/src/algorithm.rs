//! The names of tunables: a tunable is one way to make a task's kernel with its knobs left open,
//! and its name says which algorithm it is and which variant of that algorithm. The variant begins
//! at the first `@` or comma: `tile@n` and `tile@m,packed` are two variants of `tile`. A search
//! shares its trials between algorithms by the first part (`search/src/ledger.rs`). The name
//! `untuned` is kept for plain loops, the baseline from which gains are counted.

use std::fmt;

/// The name of the tunable that makes a task's baseline: plain loops, or a user kernel where its
/// knobs stand by default.
pub const UNTUNED: &str = "untuned";

/// Whether a tunable of this name makes the baseline of its task.
pub fn is_untuned(tunable: &str) -> bool {
    tunable == UNTUNED
}

/// A tunable's name in its two parts. Every text is a name, and printing the parts gives the text
/// back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TunableName<'a> {
    /// The algorithm that the tunable varies.
    pub algorithm: &'a str,
    /// The text that tells variants of the algorithm apart, with the sign that it begins with; may
    /// be empty.
    pub variant: &'a str,
}

impl<'a> TunableName<'a> {
    /// Takes a name apart.
    pub fn parse(name: &'a str) -> TunableName<'a> {
        let (algorithm, variant) = name.split_at(name.find(['@', ',']).unwrap_or(name.len()));
        TunableName { algorithm, variant }
    }
}

impl fmt::Display for TunableName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.algorithm, self.variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_at_the_first_sign_and_printed_again() {
        for (name, algorithm) in [
            ("tile@n,packed", "tile"),
            ("rows,rfactor", "rows"),
            ("gpu_tensor", "gpu_tensor"),
            ("untuned", UNTUNED),
            ("@x", ""),
            ("", ""),
            ("größe@ä", "größe"),
        ] {
            let parsed = TunableName::parse(name);
            assert_eq!((parsed.algorithm, parsed.to_string().as_str()), (algorithm, name));
        }
        assert!(is_untuned("untuned") && !is_untuned("untuned@x"));
    }
}
