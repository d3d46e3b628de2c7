//! Bytes to [`Model`]: decoding, names to numbers, symbolic dimensions, and every check of the
//! file's form. Nothing is allocated by a size that the file merely states.

use super::model::{Attr, MAX_ELEMENTS, MAX_EXTENT, Model, Node, TensorFact, Value, ValueId};
use super::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto};
use crate::error::{ImportError, Place, shown};
use crate::tensor::{Data, Elem, Tensor, elements};
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A fault with its place; the file's name is added at the door.
pub(crate) type Fault = (Place, String);

struct Reader<'a> {
    dims: HashMap<&'a str, i64>,
    model: Model,
    names: HashMap<String, ValueId>,
    versions: HashMap<String, i64>,
}

/// Reads a model; `dims` gives symbolic dimensions their extents.
pub(crate) fn read(bytes: &[u8], dims: &[(String, i64)]) -> Result<Model, Fault> {
    let file = |m: String| (Place::File, m);
    if bytes.is_empty() {
        return Err(file("the file is empty, expected an ONNX model".into()));
    }
    let proto = ModelProto::decode(bytes)
        .map_err(|e| file(format!("it is no ONNX model, or it is damaged or cut off ({e}); {} bytes", bytes.len())))?;
    let Some(graph) = proto.graph else {
        return Err(file("it is no ONNX model: it has no graph".into()));
    };
    if let Some((name, extent)) = dims.iter().find(|(_, e)| !(1..=MAX_EXTENT).contains(e)) {
        return Err(file(format!("dimension `{}` cannot be {extent}, expected 1 to {MAX_EXTENT}", shown(name))));
    }
    let mut versions: HashMap<String, i64> = HashMap::new();
    for o in &proto.opset_import {
        if o.version < 1 {
            return Err(file(format!("operator set `{}` has version {}", shown(&o.domain), o.version)));
        }
        versions.insert(canonical_domain(&o.domain).into(), o.version);
    }
    let dims = dims.iter().map(|(n, e)| (n.as_str(), *e)).collect();
    let mut r = Reader { dims, model: Model::default(), names: HashMap::new(), versions };
    r.graph(graph)?;
    Ok(r.model)
}

/// ONNX's own operators have two spellings of their domain.
fn canonical_domain(d: &str) -> &str {
    if d == "ai.onnx" { "" } else { d }
}

impl Reader<'_> {
    fn add(&mut self, v: Value) -> Result<ValueId, Fault> {
        let id = self.model.values.len();
        if self.names.insert(v.name.clone(), id).is_some() {
            return Err((Place::Tensor(v.name), "two things define it".into()));
        }
        self.model.values.push(v);
        Ok(id)
    }

    fn graph(&mut self, graph: GraphProto) -> Result<(), Fault> {
        if graph.output.is_empty() {
            return Err((Place::File, "the graph has no outputs".into()));
        }
        for t in graph.initializer {
            let name = t.name.clone();
            let fact = tensor(t).map_err(|m| (Place::Tensor(name.clone()), m))?;
            self.add(Value { name, elem: Some(fact.elem), shape: Some(fact.shape), data: fact.data, constant: true, ..Value::default() })?;
        }
        for t in graph.sparse_initializer {
            let Some(values) = t.values else { continue };
            let shape = checked_shape(&t.dims).map_err(|m| (Place::Tensor(values.name.clone()), m))?;
            let elem = Some(Elem(values.data_type));
            self.add(Value { name: values.name, elem, shape: Some(shape), constant: true, ..Value::default() })?;
        }
        self.inputs(&graph.input)?;
        let declared: HashMap<&str, (Elem, Vec<i64>)> = graph
            .value_info
            .iter()
            .chain(&graph.output)
            .filter_map(|v| Some((v.name.as_str(), (elem_of(v)?, self.known_shape(v.r#type.as_ref()?)?))))
            .collect();
        let later: HashSet<&str> = graph.node.iter().flat_map(|n| &n.output).map(String::as_str).collect();
        let mut labels = HashSet::new();
        for (i, n) in graph.node.iter().enumerate() {
            let mut label = if n.name.is_empty() { format!("{}_{i}", n.op_type) } else { n.name.clone() };
            if !labels.insert(label.clone()) {
                label = format!("{label}#{i}");
                labels.insert(label.clone());
            }
            self.node(i, n, label, &later, &declared)?;
        }
        for o in &graph.output {
            let Some(&id) = self.names.get(&o.name) else {
                return Err((Place::Tensor(o.name.clone()), "it is an output of the graph, but nothing computes it".into()));
            };
            self.model.outputs.push(id);
        }
        Ok(())
    }

    fn inputs(&mut self, inputs: &[ValueInfoProto]) -> Result<(), Fault> {
        let mut open: Vec<String> = Vec::new();
        let mut seen = HashSet::new();
        for v in inputs {
            if !seen.insert(&v.name) {
                return Err((Place::Tensor(v.name.clone()), "it is an input of the graph twice".into()));
            }
            // Old files list initializers among the inputs.
            if self.names.contains_key(&v.name) {
                continue;
            }
            let mut value = Value { name: v.name.clone(), elem: elem_of(v), ..Value::default() };
            if let Some(shape) = v.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()?.shape.as_ref()) {
                let mut extents = Vec::with_capacity(shape.dim.len().min(64));
                for (i, d) in shape.dim.iter().enumerate() {
                    // Some exporters write an open batch as 0 or -1.
                    let stated = d.dim_value.filter(|&e| e > 0);
                    let name = match &d.dim_param {
                        Some(p) if !p.is_empty() => p.clone(),
                        _ => format!("{}:{i}", v.name),
                    };
                    match stated.or_else(|| self.dims.get(name.as_str()).copied()) {
                        Some(e) => extents.push(e),
                        None if open.contains(&name) => {}
                        None => open.push(name),
                    }
                }
                if extents.len() == shape.dim.len() {
                    value.shape = Some(checked_shape(&extents).map_err(|m| (Place::Tensor(v.name.clone()), m))?);
                }
            }
            let id = self.add(value)?;
            self.model.inputs.push(id);
        }
        if open.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = open.iter().map(|n| format!("`{}`", shown(n))).collect();
        let flags: Vec<String> = open.iter().map(|n| format!("--dim {}=1", shown(n))).collect();
        let (s, v) = if open.len() == 1 { ("", "its value") } else { ("s", "their values") };
        Err((Place::File, format!("the model's inputs have the symbolic dimension{s} {}: give {v}, such as `{}`", names.join(", "), flags.join(" "))))
    }

    /// A static shape, or one whose names all have values.
    fn known_shape(&self, t: &TypeProto) -> Option<Vec<i64>> {
        let shape = t.tensor_type.as_ref()?.shape.as_ref()?;
        let extents = shape.dim.iter().map(|d| match (&d.dim_value, &d.dim_param) {
            (Some(e), _) if *e > 0 => Some(*e),
            (_, Some(p)) => self.dims.get(p.as_str()).copied(),
            _ => None,
        });
        checked_shape(&extents.collect::<Option<Vec<_>>>()?).ok()
    }

    fn node(
        &mut self,
        i: usize,
        n: &NodeProto,
        name: String,
        later: &HashSet<&str>,
        declared: &HashMap<&str, (Elem, Vec<i64>)>,
    ) -> Result<(), Fault> {
        let place = || Place::Node { name: name.clone(), op: n.op_type.clone() };
        let domain = canonical_domain(&n.domain).to_string();
        // Before the third format version, files did not state versions: they mean the first.
        let version = self.versions.get(&domain).copied().unwrap_or(1);
        let mut inputs = Vec::with_capacity(n.input.len());
        for v in &n.input {
            inputs.push(match self.names.get(v) {
                _ if v.is_empty() => None,
                Some(&id) => Some(id),
                None => {
                    let why = if later.contains(v.as_str()) { "which is computed after it (nodes must be in order, without cycles)" } else { "which nothing computes" };
                    return Err((place(), format!("it reads `{}`, {why}", shown(v))));
                }
            });
        }
        let mut attrs = Vec::with_capacity(n.attribute.len());
        let mut captures = Vec::new();
        for a in &n.attribute {
            for g in a.g.iter().chain(&a.graphs) {
                self.captures(g, &mut captures);
            }
            let value = attribute(a).map_err(|m| (place(), format!("attribute `{}`: {m}", shown(&a.name))))?;
            attrs.push((a.name.clone(), value));
        }
        captures.sort_unstable();
        captures.dedup();
        let mut outputs = Vec::with_capacity(n.output.len());
        for v in &n.output {
            outputs.push(match v.is_empty() {
                true => None,
                false => {
                    let value = Value { name: v.clone(), declared: declared.get(v.as_str()).cloned(), producer: Some(i), ..Value::default() };
                    Some(self.add(value).map_err(|_| (place(), format!("it computes `{}`, which something before it defines", shown(v))))?)
                }
            });
        }
        self.model.nodes.push(Node { name, op: n.op_type.clone(), domain, version, inputs, captures, outputs, attrs });
        Ok(())
    }

    /// Every name in a subgraph that means a value outside of it. A name that the subgraph
    /// defines itself may be taken along: that only keeps a value from being fused away.
    fn captures(&self, g: &GraphProto, out: &mut Vec<ValueId>) {
        let read = g.node.iter().flat_map(|n| &n.input).chain(g.output.iter().map(|o| &o.name));
        out.extend(read.filter_map(|v| self.names.get(v).copied()));
        for a in g.node.iter().flat_map(|n| &n.attribute) {
            for g in a.g.iter().chain(&a.graphs) {
                self.captures(g, out);
            }
        }
    }
}

fn elem_of(v: &ValueInfoProto) -> Option<Elem> {
    v.r#type.as_ref()?.tensor_type.as_ref().map(|t| Elem(t.elem_type)).filter(|e| e.0 != 0)
}

/// A shape whose extents and product are in range.
pub(crate) fn checked_shape(dims: &[i64]) -> Result<Vec<i64>, String> {
    let shown = |d: &[i64]| if d.len() > 12 { format!("of {} dimensions", d.len()) } else { format!("{d:?}") };
    if dims.iter().any(|&d| d < 0) {
        return Err(format!("the shape {} has a negative extent", shown(dims)));
    }
    if dims.len() > 64 || dims.iter().any(|&d| d > MAX_EXTENT) || dims.iter().map(|&d| d.max(1) as f64).product::<f64>() > MAX_ELEMENTS as f64 {
        return Err(format!("the shape {} is too large", shown(dims)));
    }
    Ok(dims.to_vec())
}

fn attribute(a: &AttributeProto) -> Result<Attr, String> {
    Ok(match a.r#type {
        1 => Attr::Float(a.f.unwrap_or(0.0)),
        2 => Attr::Int(a.i.unwrap_or(0)),
        3 => Attr::Str(String::from_utf8_lossy(a.s.as_deref().unwrap_or(&[])).into_owned()),
        4 => match &a.t {
            Some(t) => Attr::Tensor(tensor(t.clone())?),
            None => return Err("it says that it is a tensor, but holds none".into()),
        },
        6 => Attr::Floats(a.floats.clone()),
        7 => Attr::Ints(a.ints.clone()),
        // Files before format version 3 leave the type out: what is there decides.
        0 => match a {
            AttributeProto { f: Some(f), .. } => Attr::Float(*f),
            AttributeProto { i: Some(i), .. } => Attr::Int(*i),
            AttributeProto { s: Some(s), .. } => Attr::Str(String::from_utf8_lossy(s).into_owned()),
            AttributeProto { t: Some(t), .. } => Attr::Tensor(tensor(t.clone())?),
            AttributeProto { ints, .. } if !ints.is_empty() => Attr::Ints(ints.clone()),
            AttributeProto { floats, .. } if !floats.is_empty() => Attr::Floats(floats.clone()),
            _ => Attr::Other,
        },
        _ => Attr::Other,
    })
}

/// A tensor of the file; its values are absent where they lie in another file or are of a type
/// that nothing here computes with.
fn tensor(t: TensorProto) -> Result<TensorFact, String> {
    let shape = checked_shape(&t.dims)?;
    let elem = Elem(t.data_type);
    let count = elements(&shape).unwrap_or(0);
    if t.data_location != 0 || !(elem.is_float() || elem.is_int()) {
        return Ok(TensorFact { elem, shape, data: None });
    }
    let data = match &t.raw_data {
        Some(raw) => raw_values(elem, raw, count)?,
        None => typed_values(elem, &t),
    };
    if data.len() as u64 != count {
        return Err(format!("it has {} values, but its shape {shape:?} says {count}", data.len()));
    }
    let data = Some(Arc::new(Tensor { elem, shape: shape.clone(), data }));
    Ok(TensorFact { elem, shape, data })
}

fn raw_values(elem: Elem, raw: &[u8], count: u64) -> Result<Data, String> {
    let width = match elem.0 {
        2 | 3 | 9 => 1,
        4 | 5 | 10 | 16 => 2,
        1 | 6 | 12 => 4,
        _ => 8,
    };
    if count.checked_mul(width) != Some(raw.len() as u64) {
        return Err(format!("it has {} bytes of data, but its shape says {count} values of {width} bytes", raw.len()));
    }
    let ints = |f: &dyn Fn(&[u8]) -> i64| Data::Int(raw.chunks_exact(width as usize).map(f).collect());
    let floats = |f: &dyn Fn(&[u8]) -> f32| Data::Float(raw.chunks_exact(width as usize).map(f).collect());
    let two = |b: &[u8]| [b[0], b[1]];
    let four = |b: &[u8]| [b[0], b[1], b[2], b[3]];
    let eight = |b: &[u8]| [b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]];
    Ok(match elem.0 {
        1 => floats(&|b| f32::from_le_bytes(four(b))),
        10 => floats(&|b| half(u16::from_le_bytes(two(b)))),
        11 => floats(&|b| f64::from_le_bytes(eight(b)) as f32),
        16 => floats(&|b| bfloat(u16::from_le_bytes(two(b)))),
        2 => ints(&|b| i64::from(b[0])),
        3 => ints(&|b| i64::from(b[0] as i8)),
        9 => ints(&|b| i64::from(b[0] != 0)),
        4 => ints(&|b| i64::from(u16::from_le_bytes(two(b)))),
        5 => ints(&|b| i64::from(i16::from_le_bytes(two(b)))),
        6 => ints(&|b| i64::from(i32::from_le_bytes(four(b)))),
        12 => ints(&|b| i64::from(u32::from_le_bytes(four(b)))),
        _ => ints(&|b| i64::from_le_bytes(eight(b))),
    })
}

fn typed_values(elem: Elem, t: &TensorProto) -> Data {
    match elem.0 {
        1 => Data::Float(t.float_data.clone()),
        11 => Data::Float(t.double_data.iter().map(|&x| x as f32).collect()),
        10 => Data::Float(t.int32_data.iter().map(|&x| half(x as u16)).collect()),
        16 => Data::Float(t.int32_data.iter().map(|&x| bfloat(x as u16)).collect()),
        7 => Data::Int(t.int64_data.clone()),
        12 | 13 => Data::Int(t.uint64_data.iter().map(|&x| x as i64).collect()),
        _ => Data::Int(t.int32_data.iter().map(|&x| i64::from(x)).collect()),
    }
}

fn bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        e => (1.0 + fraction / 1024.0) * 2f32.powi(e - 15),
    }
}

impl From<(Fault, &str)> for ImportError {
    fn from(((place, message), file): (Fault, &str)) -> ImportError {
        ImportError { file: file.into(), place, message }
    }
}
