//! The specification of a kernel family as files hold it: knobs with their values, definitions, and
//! rules as text in the language of constraints (`core/src/space/language.rs`), such as `tile <= a`
//! or `b % x == 0`. `family.rs` compiles it; `frontend/src/miopen/family/*.toml` are such files,
//! and predictor files contain them. The errors of a wrong specification are here, too.

use crate::space::SpaceError;
use crate::text::TextError;
use serde::{Deserialize, Serialize};

/// A knob of a family, in the solver's serialised order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyKnob {
    /// Its name in expressions.
    pub name: String,
    /// The values that the kernel accepts, ascending.
    pub values: Vec<i64>,
    /// The values that the tuner tries.
    pub main: Vec<i64>,
    /// The values that it tries where no vector of the main set is legal; may be empty for all
    /// knobs.
    #[serde(default)]
    pub spare: Vec<i64>,
}

/// A family as text and numbers: the form that files hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilySpec {
    /// The name of the solver.
    pub solver: String,
    /// The words that matter, each with all it may be; in expressions `direction == 'F'`.
    #[serde(default)]
    pub words: Vec<(String, Vec<String>)>,
    /// The numbers that matter, each with its value for problems that lack it.
    #[serde(default)]
    pub numbers: Vec<(String, Option<i64>)>,
    /// The knobs, in serialised order.
    pub knobs: Vec<FamilyKnob>,
    /// Names for expressions, which later ones may use.
    #[serde(default)]
    pub definitions: Vec<(String, String)>,
    /// Each must hold of a legal vector.
    #[serde(default)]
    pub legal: Vec<String>,
    /// Each must also hold of the vectors that the tuner tries.
    #[serde(default)]
    pub tuned: Vec<String>,
    /// Derived features of a vector on the hardware. Ratios are in thousandths.
    #[serde(default)]
    pub features: Vec<(String, String)>,
    /// The part of a vector that reaches the compiler: vectors with equal numbers are the same
    /// kernel. Empty where all of it does.
    #[serde(default)]
    pub kernel: Vec<String>,
    /// The only vectors, for a solver whose constraints are unknown; of `legal` only the conditions
    /// on the problem count then.
    #[serde(default)]
    pub listed: Vec<Vec<i64>>,
}

/// A family that cannot be used, or a problem that a family does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum FamilyError {
    #[error("{solver}: `{text}`: {error}")]
    Expression { solver: String, text: String, error: Box<TextError> },
    #[error("{solver}: knob `{knob}`: {why}")]
    Knob { solver: String, knob: String, why: String },
    #[error("{solver} takes no problem without `{name}`")]
    Lacks { solver: String, name: String },
    #[error("{solver} knows no {name} `{word}`; it knows {known}")]
    Word { solver: String, name: String, word: String, known: String },
    #[error("{solver}: there is no example to learn its values from")]
    NoExamples { solver: String },
}

/// Why there is no space for a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceOfError {
    /// The family does not take the problem.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// Nothing is legal for it.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Checks what every family needs of its values and names.
pub(super) fn check(spec: &FamilySpec) -> Result<(), FamilyError> {
    let fault = |knob: &str, why: &str| {
        Err(FamilyError::Knob { solver: spec.solver.clone(), knob: knob.into(), why: why.into() })
    };
    if spec.knobs.is_empty() {
        return fault("", "a family needs a knob");
    }
    for k in &spec.knobs {
        if k.values.is_empty()
            || k.values.len() > usize::from(u16::MAX)
            || !k.values.windows(2).all(|w| w[0] < w[1])
        {
            return fault(&k.name, "its values must ascend, and there must be some");
        }
        for set in [&k.main, &k.spare] {
            if !set.windows(2).all(|w| w[0] < w[1])
                || set.iter().any(|v| k.values.binary_search(v).is_err())
            {
                return fault(&k.name, "what the tuner tries must ascend and be among its values");
            }
        }
    }
    let mut names: Vec<&String> = spec.words.iter().map(|(n, _)| n).collect();
    names.extend(spec.numbers.iter().map(|(n, _)| n));
    names.extend(spec.knobs.iter().map(|k| &k.name));
    names.extend(spec.definitions.iter().map(|(n, _)| n));
    names.sort_unstable();
    if let Some(w) = names.windows(2).find(|w| w[0] == w[1]) {
        return fault(w[0], "the name is taken twice");
    }
    if let Some(v) = spec.listed.iter().find(|v| v.len() != spec.knobs.len()) {
        return fault("", &format!("the listed vector {v:?} has not one value for each knob"));
    }
    let fits =
        |v: &Vec<i64>| v.iter().zip(&spec.knobs).all(|(v, k)| k.values.binary_search(v).is_ok());
    if let Some(v) = spec.listed.iter().find(|v| !fits(v)) {
        return fault("", &format!("the listed vector {v:?} has a value that its knob lacks"));
    }
    if !spec.listed.windows(2).all(|w| w[0] < w[1]) {
        return fault("", "listed vectors must ascend without duplicates");
    }
    Ok(())
}
