//! The kernel families of MIOpen's solvers that Squall knows: knobs, rules of legality and tuner
//! space of each, read from the TOML files in `family/` (which are part of the binary). Output:
//! compiled [`Family`]s for the predictors (`predict/`) and for checks of databases
//! (`miopen/mod.rs`).

use serde::Deserialize;
use squall_core::forecast::{Family, FamilyError, FamilyKnob, FamilySpec};
use squall_core::space::{Value, parse_values};
use squall_core::text::TextError;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

const FILES: [&str; 4] = [
    include_str!("family/ConvAsm1x1U.toml"),
    include_str!("family/ConvOclDirectFwd1x1.toml"),
    include_str!("family/ConvAsmBwdWrW1x1.toml"),
    include_str!("family/ConvAsmBwdWrW3x3.toml"),
];

/// A file of the folder `family/`. `definitions` and `features` are lists of `name = expression`,
/// since their order counts; `numbers` are names, `name = N` where a problem may lack it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    solver: String,
    words: BTreeMap<String, Vec<String>>,
    numbers: Vec<String>,
    #[serde(default)]
    definitions: Vec<String>,
    legal: Vec<String>,
    #[serde(default)]
    tuned: Vec<String>,
    #[serde(default)]
    features: Vec<String>,
    #[serde(default)]
    kernel: Vec<String>,
    knob: Vec<KnobDocument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnobDocument {
    name: String,
    values: String,
    main: String,
    #[serde(default)]
    spare: Option<String>,
}

/// The families of ConvAsm1x1U, ConvOclDirectFwd1x1, ConvAsmBwdWrW1x1 and ConvAsmBwdWrW3x3. Made
/// once; an error is a fault of our files.
pub fn families() -> Result<Vec<Arc<Family>>, FamilyError> {
    static ALL: OnceLock<Result<Vec<Arc<Family>>, FamilyError>> = OnceLock::new();
    ALL.get_or_init(|| FILES.iter().map(|text| Ok(Arc::new(Family::new(spec(text)?)?))).collect())
        .clone()
}

/// The family of a solver, if we know it.
pub fn family(solver: &str) -> Option<Arc<Family>> {
    families().ok()?.into_iter().find(|f| f.solver() == solver)
}

fn spec(text: &str) -> Result<FamilySpec, FamilyError> {
    let fault = |text: &str, message: String| FamilyError::Expression {
        solver: "a family's file".into(),
        text: text.into(),
        error: Box::new(TextError { line: 1, column: 1, message }),
    };
    let d: Document = toml::from_str(text).map_err(|e| fault("", e.to_string()))?;
    let named = |line: &String| match line.split_once(" = ") {
        Some((name, expression)) => Ok((name.trim().to_string(), expression.trim().to_string())),
        None => Err(fault(line, "expected `name = expression`".into())),
    };
    let number = |line: &String| {
        let Some((name, default)) = line.split_once(" = ") else { return Ok((line.clone(), None)) };
        let value = match default.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => default.parse(),
        };
        Ok((name.to_string(), Some(value.map_err(|e| fault(line, e.to_string()))?)))
    };
    let list = |text: &String| -> Result<Vec<i64>, FamilyError> {
        let whole = |v: Value| match v {
            Value::Int(i) => Ok(i),
            Value::Word(w) => Err(fault(text, format!("`{w}` is no number"))),
        };
        let values = parse_values(text, &[]).map_err(|e| fault(text, e.to_string()))?;
        values.into_iter().map(whole).collect()
    };
    let knob = |k: &KnobDocument| {
        Ok(FamilyKnob {
            name: k.name.clone(),
            values: list(&k.values)?,
            main: list(&k.main)?,
            spare: k.spare.as_ref().map_or(Ok(Vec::new()), list)?,
        })
    };
    Ok(FamilySpec {
        solver: d.solver,
        words: d.words.into_iter().collect(),
        numbers: d.numbers.iter().map(number).collect::<Result<_, _>>()?,
        knobs: d.knob.iter().map(knob).collect::<Result<_, _>>()?,
        definitions: d.definitions.iter().map(named).collect::<Result<_, _>>()?,
        legal: d.legal,
        tuned: d.tuned,
        features: d.features.iter().map(named).collect::<Result<_, _>>()?,
        kernel: d.kernel,
        listed: Vec::new(),
    })
}
