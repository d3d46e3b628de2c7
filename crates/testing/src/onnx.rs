//! Builds small ONNX models in memory for tests of several crates: `Build::new(17).input("x",
//! &[2]).node("Neg", &["x"], &["y"], &[]).output("y")`. Output: the bytes of a file, or the model
//! that the reader (`frontend/src/onnx`) makes of it.
#![allow(missing_docs)] // functions are named after the parts of a file that they make

use prost::Message;
use squall_core::DType;
use squall_core::graph::{Constant, Model};
use squall_frontend::ImportError;
use squall_frontend::onnx;
use squall_frontend::onnx::proto::*;
pub use squall_frontend::onnx::proto::{AttributeProto, TensorProto};

/// A model under construction.
pub struct Build {
    pub model: ModelProto,
}

/// Element types by their numbers in files.
pub const F32: i32 = 1;
pub const I32: i32 = 6;
pub const I64: i32 = 7;
pub const BOOL: i32 = 9;
pub const F64: i32 = 11;

pub fn info(name: &str, elem_type: i32, dims: &[i64]) -> ValueInfoProto {
    let dim =
        dims.iter().map(|d| DimensionProto { dim_value: Some(*d), dim_param: None }).collect();
    let tensor_type = TensorTypeProto { elem_type, shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

/// An input whose dimensions are names, numbers (as text) or `?` for neither.
pub fn symbolic(name: &str, dims: &[&str]) -> ValueInfoProto {
    let one = |d: &&str| match d.parse() {
        Ok(n) => DimensionProto { dim_value: Some(n), dim_param: None },
        Err(_) if *d == "?" => DimensionProto { dim_value: None, dim_param: None },
        Err(_) => DimensionProto { dim_value: None, dim_param: Some(d.to_string()) },
    };
    let tensor_type = TensorTypeProto {
        elem_type: F32,
        shape: Some(TensorShapeProto { dim: dims.iter().map(one).collect() }),
    };
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type: Some(tensor_type) }) }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i: Some(i), r#type: attribute::INT, ..Default::default() }
}

pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), f: Some(f), r#type: attribute::FLOAT, ..Default::default() }
}

pub fn ints(name: &str, v: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        ints: v.to_vec(),
        r#type: attribute::INTS,
        ..Default::default()
    }
}

pub fn floats(name: &str, v: &[f32]) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        floats: v.to_vec(),
        r#type: attribute::FLOATS,
        ..Default::default()
    }
}

pub fn text(name: &str, s: &str) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        s: Some(s.as_bytes().to_vec()),
        r#type: attribute::STRING,
        ..Default::default()
    }
}

pub fn tensor(name: &str, t: TensorProto) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        t: Some(t),
        r#type: attribute::TENSOR,
        ..Default::default()
    }
}

pub fn i64s(dims: &[i64], data: &[i64]) -> TensorProto {
    TensorProto {
        dims: dims.to_vec(),
        data_type: I64,
        int64_data: data.to_vec(),
        ..Default::default()
    }
}

pub fn f32s(dims: &[i64], data: &[f32]) -> TensorProto {
    let raw_data = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    TensorProto { dims: dims.to_vec(), data_type: F32, raw_data, ..Default::default() }
}

pub fn f64s(dims: &[i64], data: &[f64]) -> TensorProto {
    let raw_data = data.iter().flat_map(|x| x.to_le_bytes()).collect();
    TensorProto { dims: dims.to_vec(), data_type: F64, raw_data, ..Default::default() }
}

/// A branch of an `If`: nodes that read the graph around them, and its only result.
pub fn branch(name: &str, nodes: &[NodeProto], output: &str) -> AttributeProto {
    let output = vec![ValueInfoProto { name: output.into(), r#type: None }];
    let graph = GraphProto { node: nodes.to_vec(), output, ..Default::default() };
    AttributeProto {
        name: name.into(),
        g: Some(graph.encode_to_vec()),
        r#type: attribute::GRAPH,
        ..Default::default()
    }
}

pub fn node(
    op: &str,
    inputs: &[&str],
    outputs: &[&str],
    attribute: &[AttributeProto],
) -> NodeProto {
    NodeProto {
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        op_type: op.into(),
        attribute: attribute.to_vec(),
        ..Default::default()
    }
}

/// A boolean that is true.
pub fn truth() -> TensorProto {
    TensorProto { data_type: BOOL, raw_data: vec![1], ..Default::default() }
}

/// The body of a loop.
pub fn body(
    nodes: Vec<NodeProto>,
    inputs: &[(&str, i32, &[i64])],
    outputs: &[&str],
) -> AttributeProto {
    let g = GraphProto {
        node: nodes,
        input: inputs.iter().map(|(name, ty, dims)| info(name, *ty, dims)).collect(),
        output: outputs.iter().map(|name| info(name, F32, &[])).collect(),
        ..Default::default()
    };
    AttributeProto {
        name: "body".into(),
        g: Some(g.encode_to_vec()),
        r#type: attribute::GRAPH,
        ..Default::default()
    }
}

/// A tensor as a file of test data.
pub fn stored(name: &str, t: &TensorProto) -> Vec<u8> {
    TensorProto { name: name.into(), ..t.clone() }.encode_to_vec()
}

impl Build {
    /// The name of an output.
    pub fn output_name(&self, i: usize) -> String {
        let graph = self.model.graph.as_ref();
        graph.and_then(|g| g.output.get(i)).map_or(String::new(), |o| o.name.clone())
    }

    pub fn new(opset: i64) -> Build {
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: opset }];
        Build {
            model: ModelProto {
                ir_version: 8,
                graph: Some(GraphProto::default()),
                opset_import,
                ..Default::default()
            },
        }
    }

    pub fn graph(&mut self) -> &mut GraphProto {
        self.model.graph.as_mut().unwrap()
    }

    /// An input of floats.
    pub fn input(self, name: &str, dims: &[i64]) -> Build {
        self.input_of(name, F32, dims)
    }

    pub fn input_of(mut self, name: &str, dtype: i32, dims: &[i64]) -> Build {
        self.graph().input.push(info(name, dtype, dims));
        self
    }

    /// Weights whose data lies elsewhere.
    pub fn absent(self, name: &str, dims: &[i64]) -> Build {
        self.init(
            name,
            TensorProto {
                dims: dims.to_vec(),
                data_type: F32,
                data_location: 1,
                ..Default::default()
            },
        )
    }

    pub fn init(mut self, name: &str, t: TensorProto) -> Build {
        self.graph().initializer.push(TensorProto { name: name.into(), ..t });
        self
    }

    pub fn node(
        mut self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[AttributeProto],
    ) -> Build {
        self.graph().node.push(node(op, inputs, outputs, attributes));
        self
    }

    pub fn output(mut self, name: &str) -> Build {
        self.graph().output.push(ValueInfoProto { name: name.into(), r#type: None });
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.model.encode_to_vec()
    }

    pub fn read(&self) -> Result<Model, ImportError> {
        onnx::read(&self.bytes(), "hand.onnx", &[])
    }

    /// The message of a refusal.
    pub fn refused(&self) -> String {
        self.read().unwrap_err().to_string()
    }

    /// The problem of the last node.
    pub fn problem(&self) -> String {
        let model = self.read().unwrap();
        model.nodes.last().unwrap().problem.clone().unwrap_or_else(|| "no problem".into())
    }

    /// Type and shape of a value; panics with the node's problem where there is none.
    pub fn typed(&self, value: &str) -> (Option<DType>, Vec<i64>) {
        let model = self.read().unwrap();
        let problems: Vec<_> = model.nodes.iter().filter_map(|n| n.problem.as_ref()).collect();
        let v = model
            .values
            .iter()
            .find(|v| v.name == value)
            .unwrap_or_else(|| panic!("no value {value}"));
        (v.dtype, v.shape.clone().unwrap_or_else(|| panic!("{value} has no shape: {problems:?}")))
    }

    pub fn shape(&self, value: &str) -> Vec<i64> {
        self.typed(value).1
    }

    /// The folded constant of a value.
    pub fn constant(&self, value: &str) -> Constant {
        let model = self.read().unwrap();
        let problems: Vec<_> = model.nodes.iter().filter_map(|n| n.problem.as_ref()).collect();
        let v = model.values.iter().find(|v| v.name == value).unwrap();
        v.constant
            .as_deref()
            .cloned()
            .unwrap_or_else(|| panic!("{value} is not known: {problems:?}"))
    }

    pub fn constant_ints(&self, value: &str) -> Vec<i64> {
        let c = self.constant(value);
        c.as_i64().unwrap_or_else(|| panic!("{value} is {c:?}")).to_vec()
    }
}
