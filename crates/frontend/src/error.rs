//! The errors of files that users give (models, operator lines, kernel.toml, recordings). Each
//! message names the file and the place in it, and says what is wrong and what to do. Readers
//! return an [`ImportError`]; the crate `squall` and the command line print it as it stands.

pub(crate) use squall_core::text::shown;
use thiserror::Error;

/// Why a model or a list of operator lines cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// The bytes are no model at all.
    #[error(
        "{name}: this is not an ONNX model: {why}; export the model again, or give operator lines \
         in a `.ops` file"
    )]
    NotOnnx {
        /// The file.
        name: String,
        /// The reader's complaint.
        why: String,
    },
    /// The model contradicts itself or the specification.
    #[error("{name}: {place}: {what}; {remedy}")]
    Model {
        /// The file.
        name: String,
        /// The node, tensor, value or attribute.
        place: String,
        /// What is wrong there.
        what: String,
        /// What the user can do.
        remedy: String,
    },
    /// Dimensions that the model leaves open and the user did not give.
    #[error(
        "{name}: these dimensions have no value: {}; give each one, as in `{}`",
        quoted(missing),
        example(missing)
    )]
    Dimensions {
        /// The file.
        name: String,
        /// The names, in order of appearance.
        missing: Vec<String>,
    },
    /// A file of measured configurations, or the description of a space, is wrong.
    #[error("{name}: {what}; {remedy}")]
    Recording {
        /// The file.
        name: String,
        /// What is wrong.
        what: String,
        /// What the user can do.
        remedy: String,
    },
    /// A place in a text is wrong; the line is shown with carets below the place.
    #[error("{name}:{line}:{column}: {message}\n{excerpt}")]
    Text {
        /// The file.
        name: String,
        /// Counted from one.
        line: usize,
        /// Counted from one, in characters.
        column: usize,
        /// What is wrong and what was expected.
        message: String,
        /// The line, or the part of it around the place, and a line with carets.
        excerpt: String,
    },
    /// A line of text is wrong.
    #[error("{name}:{line}:{column}: {message}")]
    Line {
        /// The file.
        name: String,
        /// Counted from one.
        line: usize,
        /// Counted from one.
        column: usize,
        /// What is wrong and what was expected.
        message: String,
    },
}

/// A line, and below it so many carets after so many characters.
pub(crate) fn pointed(line: usize, excerpt: &str, before: usize, width: usize) -> String {
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    format!("  {number} | {excerpt}\n  {margin} | {}{}", " ".repeat(before), "^".repeat(width))
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

fn example(names: &[String]) -> String {
    names.iter().map(|n| format!("--dim {n}=1")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_dimensions_are_listed_with_the_remedy() {
        let e = ImportError::Dimensions {
            name: "m.onnx".into(),
            missing: vec!["N".into(), "seq".into()],
        };
        assert_eq!(
            e.to_string(),
            "m.onnx: these dimensions have no value: `N`, `seq`; give each one, as in `--dim N=1 \
             --dim seq=1`"
        );
    }

    #[test]
    fn hostile_names_are_tamed() {
        assert_eq!(shown("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(shown(&"x".repeat(200)).len(), 83);
    }
}
