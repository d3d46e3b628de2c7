//! The C interface of an exported network: the prefix of its symbols ([`Name`]), its inputs and
//! outputs as fields of a C struct ([`Ports`]), and the facts of them for the header, README and
//! manifest. `mod.rs` and `gpu.rs` fill their templates with these.

use crate::base::error::Error;
use crate::inference::network::NetworkValue;
use serde_json::{Value, json};
use squall_core::graph::infer::region::GROWN;
use squall_graph::plan::BoundedOutput;
use squall_runtime::Formula;
use squall_runtime::plan::{Element, HostPlan, Role, letter};
use squall_runtime::varying::Symbol;
use std::fmt::Write as _;

/// Bytes of the record in which a run returns a tensor whose extents only the run knows.
const RECORD_BYTES: i64 = 8 * GROWN;

/// Names longer than this make symbols that some linkers cut.
const LONGEST_NAME: usize = 60;

/// The name of a network in C: the prefix of every exported symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl std::str::FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Name, Error> {
        let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if starts && plain && text.len() <= LONGEST_NAME {
            return Ok(Name(text.into()));
        }
        Err(Error::Usage {
            message: format!("`{text}` is no name for a network's symbols in C"),
            hint: format!(
                "give letters, digits and `_`, a letter first, at most {LONGEST_NAME}: for \
                 instance --network resnet18"
            ),
        })
    }
}

impl Name {
    /// As symbols have it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// As macros have it.
    pub fn upper(&self) -> String {
        self.0.to_ascii_uppercase()
    }
}

/// A tensor that goes in or comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// Its field in the struct of a run.
    pub field: String,
    /// The type of its elements.
    pub element: Element,
    /// Its extents.
    pub shape: Vec<i64>,
    /// How many elements there are.
    pub count: u64,
    /// Which of its extents only the run knows.
    pub extents: Extents,
    /// Of a network over a range: the formula of each extent; `shape` has the largest extents.
    pub axes: Vec<Formula>,
}

/// Where the extents of a tensor are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extents {
    /// All are known before the run.
    Known,
    /// The run writes them into the output of this field, from this index on; the tensor has the
    /// largest extents.
    Found(String, usize),
    /// The run returns them in a struct that also holds the memory.
    Grown,
}

/// The tensors of a network, in the model's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports {
    /// The symbols over whose ranges the network is.
    pub symbols: Vec<Symbol>,
    /// The inputs.
    pub inputs: Vec<Port>,
    /// The outputs.
    pub outputs: Vec<Port>,
}

/// How an element is spelled: in C, in ONNX's names, and by ONNX's number of the type.
pub fn spelling(element: Element) -> (&'static str, &'static str, i32) {
    match element.letter() {
        'f' => ("float", "float32", 1),
        'd' => ("double", "float64", 11),
        'h' => ("uint16_t", "float16", 10),
        'B' => ("uint16_t", "bfloat16", 16),
        'b' => ("int8_t", "int8", 3),
        'u' => ("uint8_t", "uint8", 2),
        's' => ("int16_t", "int16", 5),
        'S' => ("uint16_t", "uint16", 4),
        'i' => ("int32_t", "int32", 6),
        'I' => ("uint32_t", "uint32", 12),
        'l' => ("int64_t", "int64", 7),
        'L' => ("uint64_t", "uint64", 13),
        _ => ("uint8_t", "bool", 9),
    }
}

impl Ports {
    /// The tensors of a plan, with the names and shapes that the model gives them.
    pub fn new(
        plan: &HostPlan,
        inputs: &[NetworkValue],
        outputs: &[NetworkValue],
        bounded: &[BoundedOutput],
    ) -> Result<Ports, Error> {
        let of = |role: Role, named: &[NetworkValue], prefix: &str| {
            let buffers = plan.buffers.iter().filter(|b| b.role == role);
            let mut ports: Vec<Port> = Vec::new();
            for (buffer, value) in buffers.zip(named) {
                let field = field(prefix, &value.name, &ports);
                let (name, shape) = (value.name.clone(), value.shape.clone());
                let (mut element, count) = (buffer.element, buffer.count);
                let mut extents = Extents::Known;
                if buffer.grown {
                    element = letter(value.dtype).and_then(Element::new).unwrap_or(element);
                    extents = Extents::Grown;
                }
                ports.push(Port { name, field, element, shape, count, extents, axes: Vec::new() });
            }
            ports
        };
        let inputs = of(Role::Data, inputs, "in");
        let named = outputs.len();
        let mut outputs = of(Role::Output, outputs, "out");
        // Behind all outputs stand the extents of those that have their largest ones.
        let found = plan.buffers.iter().filter(|b| b.role == Role::Output).skip(named);
        for (buffer, b) in found.zip(bounded) {
            let Some(of) = outputs.get(b.output).cloned() else { continue };
            let name = format!("extents of {}", of.name);
            let field = field("extents", &of.name, &outputs);
            outputs[b.output].extents = Extents::Found(field.clone(), b.before);
            let (element, count) = (buffer.element, buffer.count);
            let (shape, extents) = (vec![count as i64], Extents::Known);
            outputs.push(Port { name, field, element, shape, count, extents, axes: Vec::new() });
        }
        if inputs.is_empty() || outputs.is_empty() {
            return Err(Error::Nothing("the network has no input or no output".into()));
        }
        Ok(Ports { symbols: Vec::new(), inputs, outputs })
    }

    /// The same over ranges of symbols: the formulas of all extents.
    pub fn over(
        mut self,
        symbols: &[Symbol],
        inputs: &[Vec<Formula>],
        outputs: &[Vec<Formula>],
    ) -> Ports {
        self.symbols = symbols.to_vec();
        let with = |ports: &mut [Port], axes: &[Vec<Formula>]| {
            ports.iter_mut().zip(axes).for_each(|(p, axes)| p.axes.clone_from(axes));
        };
        with(&mut self.inputs, inputs);
        with(&mut self.outputs, outputs);
        self
    }

    /// The extents of a tensor for readers: numbers, and formulas of symbols.
    fn shape(&self, p: &Port) -> String {
        if p.axes.is_empty() {
            return extents(&p.shape, " x ");
        }
        let names: Vec<&str> = self.symbols.iter().map(|s| s.name.as_str()).collect();
        let one = |f: &Formula| match f.shown(&names) {
            text if text.contains(' ') => format!("({text})"),
            text => text,
        };
        plain_line(&p.axes.iter().map(one).collect::<Vec<String>>().join(" x "))
    }

    /// The fields of the struct of a run.
    pub fn fields(&self) -> String {
        let line = |p: &Port, constant: &str| {
            let (c, name, _) = spelling(p.element);
            let shape = self.shape(p);
            let c = if p.extents == Extents::Grown { "@NAME@_grown" } else { c };
            let more = match &p.extents {
                Extents::Known => String::new(),
                Extents::Found(field, before) => format!(" at most, see {field}[{before}]"),
                Extents::Grown => ", as the run says".into(),
            };
            let of = plain(&p.name);
            format!("  {constant}{c} *{}; /* {of}: {name}, {shape}{more} */\n", p.field)
        };
        let inputs = self.inputs.iter().map(|p| line(p, "const "));
        let all: String = inputs.chain(self.outputs.iter().map(|p| line(p, ""))).collect();
        all.trim_end().into()
    }

    /// The outputs of which only the run knows extents and memory.
    pub fn grown(&self) -> impl Iterator<Item = &Port> {
        self.outputs.iter().filter(|p| p.extents == Extents::Grown)
    }

    /// Whether the run says extents.
    pub fn are_open(&self) -> bool {
        self.outputs.iter().any(|p| p.extents != Extents::Known)
    }

    /// The same tensors as JSON.
    pub fn json(&self) -> (Value, Value) {
        let one = |p: &Port| {
            let mut facts = json!({
                "name": p.name,
                "field": p.field,
                "type": spelling(p.element).1,
                "shape": p.shape,
                "bytes": p.count * p.element.bytes(),
            });
            if !p.axes.is_empty() {
                facts["axes"] = p.axes.iter().map(Formula::to_string).collect();
            }
            match &p.extents {
                Extents::Known => {}
                Extents::Found(field, before) => {
                    facts["extents"] = json!({"field": field, "before": before});
                }
                Extents::Grown => {
                    facts["extents"] = json!("grown");
                    facts["bytes"] = json!(RECORD_BYTES);
                }
            }
            facts
        };
        let all = |ports: &[Port]| Value::Array(ports.iter().map(one).collect());
        (all(&self.inputs), all(&self.outputs))
    }

    /// Rows of a table in Markdown.
    pub fn table(&self) -> String {
        let mut rows = String::new();
        for p in self.inputs.iter().chain(&self.outputs) {
            let (field, shape) = (&p.field, self.shape(p));
            let _ = writeln!(rows, "| `{field}` | {} | {shape} |", spelling(p.element).1);
        }
        rows.trim_end().into()
    }

    /// The fields of a run's struct `io` as two lists: what goes in, and what comes out.
    pub fn arguments(&self) -> (String, String) {
        let all = |ports: &[Port]| {
            ports.iter().map(|p| format!("io->{}", p.field)).collect::<Vec<_>>().join(", ")
        };
        (all(&self.inputs), all(&self.outputs))
    }

    /// The fields of all tensors of a run, filled from arrays of pointers.
    pub fn filled(&self, input: &str, output: &str) -> String {
        let cast = |p: &Port, from: &str, i: usize, constant: &str| {
            let grown = p.extents == Extents::Grown;
            let c = if grown { "@NAME@_grown" } else { spelling(p.element).0 };
            format!("({constant}{c} *){from}[{i}]")
        };
        let inputs = self.inputs.iter().enumerate().map(|(i, p)| cast(p, input, i, "const "));
        let outputs = self.outputs.iter().enumerate().map(|(i, p)| cast(p, output, i, ""));
        inputs.chain(outputs).collect::<Vec<_>>().join(", ")
    }
}

/// Extents with something between them; a scalar has none.
pub fn extents(shape: &[i64], between: &str) -> String {
    if shape.is_empty() {
        return "scalar".into();
    }
    let one = |e: &i64| if *e < 0 { "?".into() } else { e.to_string() };
    shape.iter().map(one).collect::<Vec<String>>().join(between)
}

/// A name of the model inside a comment: nothing in it ends the comment or the line.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_graphic() && c != '*' { c } else { '_' }).collect()
}

/// A text of the model inside a comment, with its spaces.
fn plain_line(text: &str) -> String {
    text.replace("*/", "* /").chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

/// The field of a tensor: the prefix keeps it from being a keyword or a macro.
fn field(prefix: &str, name: &str, taken: &[Port]) -> String {
    let clean: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(50).collect();
    let wanted = format!("{prefix}_{}", clean.trim_matches('_'));
    let free = |f: &String| taken.iter().all(|p| p.field != *f);
    let numbered = (2..).map(|n| format!("{wanted}_{n}"));
    std::iter::once(wanted.clone()).chain(numbered).find(free).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_identifiers() {
        for good in ["resnet18", "A", "a_b"] {
            assert_eq!(good.parse::<Name>().unwrap().text(), good);
        }
        for bad in ["", "1a", "_a", "a-b", "a b", "ä", "a\n", &"a".repeat(61)] {
            let e = bad.parse::<Name>().unwrap_err().to_string();
            assert!(e.contains("no name for a network"), "{e}");
        }
    }

    #[test]
    fn fields_are_unique_and_no_keywords() {
        let mut ports = Vec::new();
        for name in ["input.1", "input:1", "int", "", "*/ int x; /*"] {
            let field = field("in", name, &ports);
            let (name, element) = (name.into(), Element::F32);
            let extents = Extents::Known;
            let (shape, axes) = (vec![1], Vec::new());
            ports.push(Port { name, field, element, shape, count: 1, extents, axes });
        }
        let fields: Vec<&str> = ports.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["in_input_1", "in_input_1_2", "in_int", "in_", "in_int_x"]);
        let ports = Ports { symbols: Vec::new(), inputs: ports, outputs: Vec::new() };
        assert!(ports.fields().lines().all(|l| l.matches("*/").count() == 1), "{}", ports.fields());
    }
}
