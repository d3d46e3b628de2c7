//! The text of a model, printed and parsed back (`squall explain --stage model`). Floats beyond the
//! first 64 of a tensor's elements stay in the model's file: the text names the weight and leaves
//! its elements out.
//!
//! ```text
//! model "net" opset 17
//! input "x" f32 [1,3,8,8]
//! weight "w" f32 [4,3,3,3]
//! node "conv" "Conv"
//!   reads "x" "w"
//!   attribute "pads" ints 1 1 1 1
//!   gives "y" f32 [1,4,8,8]
//! output "y"
//! ```

use super::words::{Words, at_end, lines, quote, shape_word};
use super::{Attribute, Constant, Model, Node, Tensor, Value, ValueId};
use crate::DType;
use crate::text::TextError;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// The most floats of a constant that its text holds.
const MOST_FLOATS: usize = 64;

impl Model {
    /// The model as its text has it: without the elements of large weights.
    pub fn without_large_constants(&self) -> Model {
        let mut m = self.clone();
        let large = |c: &Constant| c.dtype().is_float() && c.len() > MOST_FLOATS;
        for v in &mut m.values {
            v.constant = v.constant.take().filter(|c| !large(c));
        }
        for a in m.nodes.iter_mut().flat_map(|n| n.attributes.values_mut()) {
            if let Attribute::Tensor(t) = a {
                t.constant = t.constant.take().filter(|c| !large(c));
            }
        }
        m
    }

    /// Reads a model's text, and checks it.
    pub fn parse(text: &str) -> Result<Model, TextError> {
        let model = Model::parse_body(text)?;
        match model.verify() {
            Ok(()) => Ok(model),
            Err(e) => at_end(text, e),
        }
    }

    /// Reads the text of a region's body, where extents may be open.
    fn parse_body(text: &str) -> Result<Model, TextError> {
        let mut reader = Reader { model: None, ids: HashMap::new() };
        for mut line in lines(text) {
            reader.line(&mut line)?;
            line.end()?;
        }
        reader.model.map_or_else(|| at_end(text, "expected `model`"), Ok)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model {} opset {}", quote(&self.name), self.opset)?;
        let made: std::collections::HashSet<ValueId> =
            self.nodes.iter().flat_map(|n| n.outputs.iter().copied()).collect();
        // Values are numbered as they are named: those that no node gives come before the first
        // node whose results have larger numbers.
        let mut next = 0;
        let given = |f: &mut fmt::Formatter<'_>, next: &mut usize, end: usize| {
            for id in *next..end {
                if !made.contains(&id) {
                    let what = if self.inputs.contains(&id) { "input" } else { "weight" };
                    writeln!(f, "{what} {}", self.value(id))?;
                }
            }
            *next = end;
            Ok(())
        };
        for n in &self.nodes {
            let end = n.outputs.first().copied().unwrap_or(next);
            given(f, &mut next, end)?;
            self.node(f, n)?;
            next = n.outputs.last().map_or(next, |id| id + 1);
        }
        given(f, &mut next, self.values.len())?;
        for &id in &self.outputs {
            writeln!(f, "output {}", quote(&self.values[id].name))?;
        }
        Ok(())
    }
}

impl Model {
    fn value(&self, id: ValueId) -> String {
        let v = &self.values[id];
        let mut s = format!("{} {}", quote(&v.name), typed(v.dtype, v.shape.as_deref()));
        if let Some(of) = v.alias {
            let _ = write!(s, " alias {}", quote(&self.values[of].name));
        }
        s + &elements_of(v.constant.as_deref())
    }

    fn node(&self, f: &mut fmt::Formatter<'_>, n: &Node) -> fmt::Result {
        writeln!(f, "node {} {}", quote(&n.name), quote(&n.op))?;
        if !n.domain.is_empty() {
            writeln!(f, "  domain {}", quote(&n.domain))?;
        }
        if !n.inputs.is_empty() {
            let name = |i: &Option<ValueId>| i.map_or("_".into(), |i| quote(&self.values[i].name));
            let names: Vec<String> = n.inputs.iter().map(name).collect();
            writeln!(f, "  reads {}", names.join(" "))?;
        }
        for (name, a) in &n.attributes {
            writeln!(f, "  attribute {} {}", quote(name), attribute(a))?;
        }
        for &id in &n.outputs {
            let weight = if self.values[id].weight { "gives_weight" } else { "gives" };
            writeln!(f, "  {weight} {}", self.value(id))?;
        }
        if n.folded {
            writeln!(f, "  folded")?;
        }
        match &n.problem {
            Some(p) => writeln!(f, "  problem {}", quote(p)),
            None => Ok(()),
        }
    }
}

fn typed(dtype: Option<DType>, shape: Option<&[i64]>) -> String {
    format!("{} {}", dtype.map_or("?", DType::name), shape.map_or("?".into(), shape_word))
}

fn list<T: fmt::Debug>(data: &[T]) -> String {
    data.iter().fold(String::new(), |mut s, x| {
        let _ = write!(s, " {x:?}");
        s
    })
}

/// ` = f32 0.5 1.0`, or nothing where the text leaves elements out.
fn elements_of(c: Option<&Constant>) -> String {
    match c {
        Some(Constant::F32 { data, .. }) if data.len() <= MOST_FLOATS => {
            format!(" = f32{}", list(data))
        }
        Some(Constant::F64 { data, .. }) if data.len() <= MOST_FLOATS => {
            format!(" = f64{}", list(data))
        }
        Some(Constant::I64 { data, .. }) => format!(" = i64{}", list(data)),
        Some(Constant::Bool { data, .. }) => format!(" = bool{}", list(data)),
        _ => String::new(),
    }
}

fn attribute(a: &Attribute) -> String {
    match a {
        Attribute::Int(i) => format!("int {i}"),
        Attribute::Float(x) => format!("float {x:?}"),
        Attribute::String(s) => format!("string {}", quote(s)),
        Attribute::Ints(v) => format!("ints{}", list(v)),
        Attribute::Floats(v) => format!("floats{}", list(v)),
        Attribute::Strings(v) => v.iter().fold("strings".into(), |text, s| text + " " + &quote(s)),
        Attribute::Tensor(t) => {
            let of = elements_of(t.constant.as_ref());
            format!("tensor {}{of}", typed(t.dtype, Some(&t.shape)))
        }
        Attribute::Body(m) => format!("body {}", quote(&m.to_string())),
        Attribute::Graph => "graph".into(),
        Attribute::Other => "other".into(),
    }
}

/// A model while its text is read.
struct Reader {
    model: Option<Model>,
    ids: HashMap<String, ValueId>,
}

impl Reader {
    fn line(&mut self, w: &mut Words<'_>) -> Result<(), TextError> {
        if self.model.is_none() {
            w.expect("model")?;
            let name = w.quoted()?;
            w.expect("opset")?;
            let opset = w.value("a version")?;
            let (nodes, values, inputs, outputs) = Default::default();
            self.model = Some(Model { nodes, values, inputs, outputs, opset, name });
            return Ok(());
        }
        let start = w.clone();
        match w.bare()? {
            "input" => {
                let id = self.value(w, false)?;
                self.model(w)?.inputs.push(id);
            }
            "weight" => _ = self.value(w, true)?,
            "output" => {
                let id = self.known(w)?;
                self.model(w)?.outputs.push(id);
            }
            "node" => {
                let (name, op) = (w.quoted()?, w.quoted()?);
                let (domain, inputs, outputs) = Default::default();
                let (attributes, folded, problem) = (BTreeMap::new(), false, None);
                let node = Node { name, op, domain, inputs, outputs, attributes, folded, problem };
                self.model(w)?.nodes.push(node);
            }
            what @ ("gives" | "gives_weight") => {
                let id = self.value(w, what == "gives_weight")?;
                self.node(&start)?.outputs.push(id);
            }
            "reads" => {
                while !w.is_done() {
                    let id = if w.accept("_") { None } else { Some(self.known(w)?) };
                    self.node(&start)?.inputs.push(id);
                }
            }
            "domain" => self.node(&start)?.domain = w.quoted()?,
            "folded" => self.node(&start)?.folded = true,
            "problem" => self.node(&start)?.problem = Some(w.quoted()?),
            "attribute" => {
                let name = w.quoted()?;
                let value = read_attribute(w)?;
                self.node(&start)?.attributes.insert(name, value);
            }
            other => return start.error(format!("`{other}` is nothing that a model has")),
        }
        Ok(())
    }

    fn model(&mut self, w: &Words<'_>) -> Result<&mut Model, TextError> {
        match &mut self.model {
            Some(m) => Ok(m),
            None => w.error("expected `model` before this"),
        }
    }

    fn node(&mut self, w: &Words<'_>) -> Result<&mut Node, TextError> {
        match self.model(w)?.nodes.last_mut() {
            Some(n) => Ok(n),
            None => w.error("expected `node` before this"),
        }
    }

    /// The value that a name stands for.
    fn known(&self, w: &mut Words<'_>) -> Result<ValueId, TextError> {
        let start = w.clone();
        let name = w.quoted()?;
        match self.ids.get(&name) {
            Some(&id) => Ok(id),
            None => start.error("no value before has this name"),
        }
    }

    /// A new value.
    fn value(&mut self, w: &mut Words<'_>, weight: bool) -> Result<ValueId, TextError> {
        let start = w.clone();
        let name = w.quoted()?;
        let (dtype, shape) = (w.dtype()?, w.shape()?);
        let alias = if w.accept("alias") { Some(self.known(w)?) } else { None };
        let constant = read_elements(w, shape.as_deref())?;
        let model = self.model(w)?;
        let id = model.values.len();
        model.values.push(Value {
            name: name.clone(),
            dtype,
            shape,
            constant: constant.map(Arc::new),
            weight,
            alias,
        });
        match self.ids.insert(name, id) {
            None => Ok(id),
            Some(_) => start.error("another value has this name"),
        }
    }
}

fn read_elements(w: &mut Words<'_>, shape: Option<&[i64]>) -> Result<Option<Constant>, TextError> {
    if !w.accept("=") {
        return Ok(None);
    }
    let start = w.clone();
    let Some(shape) = shape.map(<[i64]>::to_vec) else {
        return start.error("elements need a known shape");
    };
    Ok(Some(match w.bare()? {
        "f32" => Constant::F32 { shape, data: w.values("a number")? },
        "f64" => Constant::F64 { shape, data: w.values("a number")? },
        "i64" => Constant::I64 { shape, data: w.values("a whole number")? },
        "bool" => Constant::Bool { shape, data: w.values("`true` or `false`")? },
        _ => return start.error("elements are of f32, f64, i64 or bool"),
    }))
}

fn read_attribute(w: &mut Words<'_>) -> Result<Attribute, TextError> {
    let start = w.clone();
    Ok(match w.bare()? {
        "int" => Attribute::Int(w.value("a whole number")?),
        "float" => Attribute::Float(w.value("a number")?),
        "string" => Attribute::String(w.quoted()?),
        "ints" => Attribute::Ints(w.values("a whole number")?),
        "floats" => Attribute::Floats(w.values("a number")?),
        "strings" => {
            let mut strings = Vec::new();
            while !w.is_done() {
                strings.push(w.quoted()?);
            }
            Attribute::Strings(strings)
        }
        "body" => {
            let start = w.clone();
            match Model::parse_body(&w.quoted()?) {
                Ok(m) => Attribute::Body(Box::new(m)),
                Err(e) => return start.error(format!("in the body, {e}")),
            }
        }
        "graph" => Attribute::Graph,
        "other" => Attribute::Other,
        "tensor" => {
            let dtype = w.dtype()?;
            let Some(shape) = w.shape()? else { return start.error("a tensor has a shape") };
            let constant = read_elements(w, Some(&shape))?;
            Attribute::Tensor(Tensor { dtype, shape, constant })
        }
        _ => return start.error("this kind of attribute is not known"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NET: &str = "model \"net\" opset 17\n\
                       input \"x\" f32 [1,2]\n\
                       weight \"w\" f32 [2] = f32 0.5 -1e-7\n\
                       node \"add\" \"Add\"\n  reads \"x\" \"w\" _\n  \
                       attribute \"axis\" int -1\n  gives \"y\" f32 [1,2]\n\
                       output \"y\"\n";

    #[test]
    fn a_model_is_its_text() {
        let m = Model::parse(NET).unwrap();
        assert_eq!(m.to_string(), NET);
        assert_eq!((m.inputs.as_slice(), m.outputs.as_slice()), (&[0][..], &[2][..]));
        assert_eq!(m.nodes[0].inputs, [Some(0), Some(1), None]);
    }

    #[test]
    fn large_weights_stay_in_the_file() {
        let mut m = Model::parse(NET).unwrap();
        let shape = vec![65];
        m.values[1].constant =
            Some(Arc::new(Constant::F32 { shape: shape.clone(), data: vec![1.0; 65] }));
        m.values[1].shape = Some(shape);
        let read = Model::parse(&m.to_string()).unwrap();
        assert_eq!((&read, &read.values[1].constant), (&m.without_large_constants(), &None));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (from, to, want) in [
            ("model", "madel", "line 1, column 1: expected `model`"),
            ("opset 17", "opset x", "expected a version"),
            ("[1,2]\noutput", "[1,2\noutput", "expected extents like"),
            ("gives \"y\"", "gives \"x\"", "another value has this name"),
            ("reads \"x\"", "reads \"z\"", "line 5, column 9: no value before has this name"),
            (
                "f32 [2] =",
                "f32 [3] =",
                "value `w`: it is Some([3]), but holds 2 elements of shape [3]",
            ),
            ("f32 0.5", "f16 0.5", "elements are of f32, f64, i64 or bool"),
            ("int -1", "whole -1", "this kind of attribute is not known"),
            ("  gives", "  takes", "`takes` is nothing that a model has"),
            ("input", "output \"x\" input", "no value before has this name"),
            ("node", "folded\nnode", "expected `node` before this"),
            ("model \"net\" opset 17\n", "", "expected `model`"),
        ] {
            let e = Model::parse(&NET.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(e.contains(want), "{e}\ninstead of {want}");
        }
    }

    #[test]
    fn what_no_model_may_be_is_refused() {
        let read = || Model::parse(NET).unwrap();
        let refused = |m: Model, want: &str| {
            let e = m.verify().unwrap_err();
            assert!(e.contains(want), "{e}\ninstead of {want}");
        };
        let mut m = read();
        m.nodes[0].inputs[0] = Some(2);
        refused(m, "node `add`: it reads value 2, which is not known by then");
        let mut m = read();
        m.nodes[0].outputs = vec![9];
        refused(m, "nothing gives the value `y`");
        let mut m = read();
        m.outputs = vec![7];
        refused(m, "output 7 is no value");
        let mut m = read();
        m.values[0].alias = Some(2);
        refused(m, "alias of a later value");
        let mut m = read();
        m.inputs.push(2);
        refused(m, "input 2 is a weight, or a node's result, or no value");
        let mut m = read();
        m.nodes.push(m.nodes[0].clone());
        refused(m, "node `add`: its name is empty or taken");
    }
}
