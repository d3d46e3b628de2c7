//! The checked contents of a kernel.toml as types: arguments ([`Argument`]: type, role, shape),
//! knobs ([`TunedKnob`], and how each value reaches the kernel: as a macro, an argument or a flag),
//! and problems ([`ProblemValues`], a set of sizes). Input: tables of the document; output: these
//! types, or a fault with its place.

use super::document::{Fault, Item, Table, fault, inside, list, number, text, whole};
use super::flags;
use squall_core::DType;
use squall_core::space::{Knob, Names, Role, Term, Value, parse_values};
use squall_core::text::nearest;
use std::ops::Range;
use toml::de::DeValue;

/// Named whole numbers: the sizes of a problem.
pub type Sizes = Vec<(String, i64)>;

/// The most elements that an argument may have.
const MAX_ELEMENTS: i64 = 1 << 40;
/// The most values that a knob may have.
const MAX_VALUES: i64 = 1 << 16;

/// The role of an argument.
#[derive(Clone, Debug)]
pub enum ArgumentRole {
    Input {
        values: Values,
    },
    Output,
    /// Read, then written over.
    Inout {
        values: Values,
    },
    /// A number, which the sizes may decide.
    Scalar(Amount),
    /// The value of the knob of the same name.
    Knob,
}

/// The values of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Random: from -1 to 1, whole numbers from -8 to 8.
    Any,
    /// Random between these.
    Between(f64, f64),
    /// The numbers of a .npy file, `{}` in its name standing for the problem's.
    File(String, TextSpan),
}

/// A number that stands in the file, or an expression over sizes.
#[derive(Clone, Debug)]
pub enum Amount {
    Number(f64),
    Text(String, TextSpan),
}

/// Where an expression stands, for errors once sizes are known.
pub type TextSpan = Range<usize>;

/// One argument of the entry.
#[derive(Clone, Debug)]
pub struct Argument {
    pub name: String,
    pub dtype: DType,
    pub role: ArgumentRole,
    pub shape: Vec<(Amount, TextSpan)>,
}

impl Argument {
    /// Whether the kernel writes it.
    pub fn is_written(&self) -> bool {
        matches!(self.role, ArgumentRole::Output | ArgumentRole::Inout { .. })
    }
}

impl Values {
    /// The part of it that belongs to the identity of a kernel. The content of a file is added to
    /// the identity apart from this.
    pub fn digest(&self) -> String {
        match self {
            Values::Any => "None".into(),
            Values::Between(a, b) => format!("Some(({a:?}, {b:?}))"),
            Values::File(..) => "file".into(),
        }
    }
}

/// How a knob's value is passed to the kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum PassedAs {
    Macro,
    Argument,
    /// A compiler's argument, `{}` in it standing for the value.
    Flag(String),
    /// A parameter of the entry's template, in the order of the file.
    Template,
}

/// A knob, how its value is passed to the kernel, and the position of its default value, if the
/// file gives one.
#[derive(Clone, Debug)]
pub struct TunedKnob {
    pub knob: Knob,
    pub passed_as: PassedAs,
    pub default: Option<usize>,
    pub at: TextSpan,
}

/// A set of sizes.
#[derive(Clone, Debug)]
pub struct ProblemValues {
    pub name: String,
    pub sizes: Sizes,
    pub at: TextSpan,
}

const ARGUMENT: &[&str] = &["name", "type", "role", "shape", "range", "file", "value"];
const KNOB: &[&str] =
    &["name", "values", "range", "powers_of_two", "kind", "as", "flag", "default"];
const TYPES: &[&str] = &["f32", "f64", "i8", "u8", "i32", "i64"];

/// Reads one `[[argument]]`.
pub fn argument(item: Item, taken: &mut Vec<String>) -> Result<Argument, Fault> {
    let t = Table::of("an argument", item, ARGUMENT)?;
    let name = t.identifier("name", taken)?;
    let role = t.word("role", &["input", "output", "inout", "scalar", "knob"], "input")?;
    let kind = t.need("type")?;
    let said = text(kind)?;
    let Some(dtype) = DType::from_name(said).filter(|_| TYPES.contains(&said)) else {
        return fault(
            kind.span(),
            format!(
                "there is no type `{said}`{}; there are {}",
                nearest(said, TYPES),
                TYPES.join(", ")
            ),
        );
    };
    let tensor = matches!(role, "input" | "output" | "inout");
    for (key, good) in [
        ("shape", tensor),
        ("range", tensor && role != "output"),
        ("file", tensor && role != "output"),
        ("value", role == "scalar"),
    ] {
        if let Some(v) = t.get(key).filter(|_| !good) {
            return fault(v.span(), format!("an argument with role = \"{role}\" has no `{key}`"));
        }
    }
    let mut shape = Vec::new();
    if tensor {
        for extent in list(t.need("shape")?)? {
            shape.push((amount(extent)?, extent.span()));
        }
    }
    let values = match (t.get("range"), t.get("file")) {
        (Some(_), Some(f)) => {
            return fault(f.span(), "its values come from a file or from a range, not from both");
        }
        (Some(r), None) => bounds(r, dtype)?,
        (None, Some(f)) => Values::File(text(f)?.into(), f.span()),
        (None, None) => Values::Any,
    };
    let argument_role = match role {
        "input" => ArgumentRole::Input { values },
        "output" => ArgumentRole::Output,
        "inout" => ArgumentRole::Inout { values },
        "scalar" => ArgumentRole::Scalar(amount(t.need("value")?)?),
        _ => ArgumentRole::Knob,
    };
    Ok(Argument { name, dtype, role: argument_role, shape })
}

/// The least and the largest value of an input.
fn bounds(item: Item, dtype: DType) -> Result<Values, Fault> {
    let [low, high] = list(item)?[..] else {
        return fault(item.span(), "a range of values is `[least, largest]`");
    };
    let (a, b) = (number(low)?, number(high)?);
    if a > b {
        return fault(item.span(), format!("the least value, {a}, is above the largest, {b}"));
    }
    if (dtype.round(a), dtype.round(b)) != (a, b) && dtype.is_integer() {
        return fault(item.span(), format!("{} does not hold these values", dtype.name()));
    }
    Ok(Values::Between(a, b))
}

fn amount(item: Item) -> Result<Amount, Fault> {
    match item.get_ref() {
        DeValue::String(s) => Ok(Amount::Text(s.to_string(), item.span())),
        _ => Ok(Amount::Number(number(item)?)),
    }
}

/// The value of an expression over sizes.
pub fn evaluate(expression: &str, at: &TextSpan, sizes: &Sizes) -> Result<i64, Fault> {
    let unknown = |message: String, column: usize| {
        let start = at.start + column.saturating_sub(1).min(at.len().saturating_sub(2));
        let names: Vec<&str> = sizes.iter().map(|s| s.0.as_str()).collect();
        let known = if names.is_empty() {
            "there are no problem sizes".into()
        } else {
            format!("the sizes are {}", names.join(", "))
        };
        Fault { at: start..start + 1, message: format!("{message}; {known}") }
    };
    match parse_values(&format!("[{expression}]"), sizes) {
        Ok(values) => match values[..] {
            [Value::Int(i)] => Ok(i),
            _ => fault(at.clone(), format!("`{expression}` is not one whole number")),
        },
        // The bracket in front takes the place of the quote.
        Err(e) => Err(unknown(e.message, e.column)),
    }
}

/// The extents of an argument.
pub fn extents(a: &Argument, sizes: &Sizes) -> Result<Vec<i64>, Fault> {
    let mut shape = Vec::new();
    for (extent, at) in &a.shape {
        let i = match extent {
            Amount::Number(x) if x.fract() == 0.0 => *x as i64,
            Amount::Number(x) => {
                return fault(at.clone(), format!("an extent is a whole number, not {x}"));
            }
            Amount::Text(e, at) => evaluate(e, at, sizes)?,
        };
        if i < 1 {
            return fault(at.clone(), format!("an extent must be 1 or more, not {i}"));
        }
        shape.push(i);
        if shape.iter().try_fold(1i64, |n, &e| n.checked_mul(e)).is_none_or(|n| n > MAX_ELEMENTS) {
            return fault(at.clone(), format!("`{}` has too many elements: {shape:?}", a.name));
        }
    }
    Ok(shape)
}

/// Reads one `[[knob]]`.
pub fn knob(item: Item, cuda: bool, taken: &mut Vec<String>) -> Result<TunedKnob, Fault> {
    let t = Table::of("a knob", item, KNOB)?;
    let name = t.identifier("name", taken)?;
    let given: Vec<(&str, Item)> = ["values", "range", "powers_of_two"]
        .into_iter()
        .filter_map(|k| Some((k, t.get(k)?)))
        .collect();
    let [(form, v)] = given[..] else {
        let what = if given.is_empty() { "needs its values" } else { "has its values twice" };
        let at = given.get(1).map_or(t.at.clone(), |g| g.1.span());
        return fault(
            at,
            format!(
                "`{name}` {what}: one of `values = [..]`, `range = [first, last, step]`, \
                 `powers_of_two = [first, last]`"
            ),
        );
    };
    let mut values = match form {
        "values" => listed(v)?,
        "range" => range(v)?,
        _ => powers(v)?,
    };
    if values.is_empty() {
        return fault(v.span(), format!("`{name}` has no value"));
    }
    let numbers = values.iter().all(|x| matches!(x, Value::Int(_)));
    let kind = t.word(
        "kind",
        &["ordered", "categorical"],
        if numbers { "ordered" } else { "categorical" },
    )?;
    match (kind, numbers) {
        ("ordered", true) => values.sort(),
        ("ordered", false) => {
            let at = t.get("kind").map_or(v.span(), |k| k.span());
            return fault(
                at,
                "words have no order; give numbers, which a flag may hold as `flag = \"-O{}\"`",
            );
        }
        // A space takes numbers for ordered, so that unordered ones become words.
        _ => values = values.iter().map(|x| Value::Word(x.to_string())).collect(),
    }
    if let Some(i) = (1..values.len()).find(|&i| values[..i].contains(&values[i])) {
        return fault(v.span(), format!("`{name}` lists {} twice", values[i]));
    }
    let passed_as = passed_as(&t, v, &values, cuda)?;
    let default = match t.get("default") {
        None => None,
        Some(d) => {
            let said = one_value(d)?.to_string();
            let found = values.iter().position(|x| x.to_string() == said);
            match found {
                Some(i) => Some(i),
                None => return fault(d.span(), format!("`{name}` has no value {said}")),
            }
        }
    };
    Ok(TunedKnob { knob: Knob::new(name, Role::Choice, values), passed_as, default, at: t.at })
}

/// How a knob's value is passed to the kernel; `v` is where its values are given.
fn passed_as(t: &Table, v: Item, values: &[Value], cuda: bool) -> Result<PassedAs, Fault> {
    let ways: &[&str] = if cuda {
        &["macro", "argument", "flag", "template"]
    } else {
        &["macro", "argument", "flag"]
    };
    let passed_as = match (
        t.word("as", ways, if t.get("flag").is_some() { "flag" } else { "macro" })?,
        t.get("flag"),
    ) {
        ("flag", flag) => PassedAs::Flag(flag.map_or(Ok("{}"), text)?.into()),
        (_, Some(f)) => return fault(f.span(), "`flag` is for knobs with `as = \"flag\"`"),
        ("argument", None) => PassedAs::Argument,
        ("template", None) => PassedAs::Template,
        _ => PassedAs::Macro,
    };
    if let PassedAs::Flag(form) = &passed_as {
        for x in values {
            let flag = form.replace("{}", &x.to_string());
            let at = t.get("flag").unwrap_or(v).span();
            flags::check(&flag, cuda, at)?;
        }
    }
    Ok(passed_as)
}

fn one_value(item: Item) -> Result<Value, Fault> {
    match item.get_ref() {
        DeValue::Boolean(b) => Ok(Value::Int(i64::from(*b))),
        DeValue::String(s) => {
            if s.contains([',', '\n', '\r']) || s.trim() != &**s {
                return fault(
                    item.span(),
                    "a value has no comma, no line break and no space at its ends",
                );
            }
            Ok(Value::Word(s.to_string()))
        }
        _ => match whole(item) {
            Some(i) => Ok(Value::Int(i)),
            None => fault(
                item.span(),
                format!(
                    "a value is a whole number, a word or a truth, not a {}",
                    item.get_ref().type_str()
                ),
            ),
        },
    }
}

/// `[1, 2, 4]`, or such a list as the constraint language writes it, in quotes.
fn listed(v: Item) -> Result<Vec<Value>, Fault> {
    if let DeValue::String(s) = v.get_ref() {
        return parse_values(s, &[]).map_err(|e| inside(v, 0, e));
    }
    let mut values: Vec<Value> = list(v)?.into_iter().map(one_value).collect::<Result<_, _>>()?;
    if values.iter().any(|x| matches!(x, Value::Word(_))) {
        values = values.iter().map(|x| Value::Word(x.to_string())).collect();
    }
    Ok(values)
}

fn numbers(v: Item, form: &str) -> Result<Vec<i64>, Fault> {
    let read: Option<Vec<i64>> = list(v)?.into_iter().map(whole).collect();
    read.map_or_else(|| fault(v.span(), format!("expected whole numbers: {form}")), Ok)
}

fn range(v: Item) -> Result<Vec<Value>, Fault> {
    let form = "`[first, last]` or `[first, last, step]`, the last included";
    let (first, last, step) = match numbers(v, form)?[..] {
        [first, last] => (first, last, 1),
        [first, last, step] if step > 0 => (first, last, step),
        _ => return fault(v.span(), format!("a range is {form}; the step is 1 or more")),
    };
    if last < first || last.abs_diff(first) / step.unsigned_abs() >= MAX_VALUES as u64 {
        return fault(
            v.span(),
            format!("from {first} to {last} by {step} are none, or over {MAX_VALUES} values"),
        );
    }
    Ok((0..=(last - first) / step).map(|i| Value::Int(first + i * step)).collect())
}

fn powers(v: Item) -> Result<Vec<Value>, Fault> {
    let form = "`[first, last]`, both powers of two";
    match numbers(v, form)?[..] {
        [first, last]
            if first > 0 && first.count_ones() == 1 && last.count_ones() == 1 && first <= last =>
        {
            Ok((first.trailing_zeros()..=last.trailing_zeros())
                .map(|p| Value::Int(1 << p))
                .collect())
        }
        _ => fault(v.span(), format!("expected {form}")),
    }
}

/// Reads `[[problem]]`: a name if there is one, else sizes.
pub fn problem(item: Item, first: Option<&ProblemValues>) -> Result<ProblemValues, Fault> {
    let t = Table::of("a problem", item, &[])?;
    let mut p = ProblemValues { name: String::new(), sizes: Vec::new(), at: t.at.clone() };
    for (key, at, v) in t.entries() {
        if key == "name" {
            p.name = text(v)?.into();
            continue;
        }
        let name = super::document::identifier(key, at)?;
        match whole(v) {
            Some(i) => p.sizes.push((name, i)),
            None => {
                return fault(
                    v.span(),
                    format!("the size `{key}` is a whole number, not a {}", v.get_ref().type_str()),
                );
            }
        }
    }
    if let Some(f) = first {
        let names = |p: &ProblemValues| {
            let mut n: Vec<String> = p.sizes.iter().map(|s| s.0.clone()).collect();
            n.sort();
            n
        };
        if names(f) != names(&p) {
            return fault(
                t.at,
                format!("every problem has the same sizes; the first has {}", names(f).join(", ")),
            );
        }
    }
    if p.name.is_empty() {
        p.name = p.sizes.iter().map(|(n, v)| format!("{n}{v}")).collect::<Vec<_>>().join("_");
    }
    Ok(p)
}

/// A constraint over knobs and the sizes of a problem.
pub fn constraint(item: Item, knobs: &[Knob], sizes: &Sizes) -> Result<Term, Fault> {
    Term::parse(text(item)?, Names { knobs, constants: sizes }).map_err(|e| inside(item, 0, e))
}
