//! Helpers of the graph's tests: [`Net`] builds small models node by node, and functions run their
//! kernels by evaluating workloads, so that fused and unfused models can be compared. `alone`,
//! `cpus` and `gpus` stand in for the sketches' answer which chains of operators have a kernel.

#![allow(dead_code)] // each test file uses a part

use squall_core::graph::{Attribute, Constant, Model, Node, Value, ValueId};
use squall_core::operator::{BACK_TO_BACK, Normed, Separable, between_operators, shared_axes};
use squall_core::{DType, Task, TaskId, Workload};
use squall_graph::candidate::MakesChain;
use squall_graph::plan::Work;
use squall_graph::{Assignment, Plan};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// A device without kernels for chains of operators.
pub fn alone(_: &Workload) -> bool {
    false
}

/// A stand-in for the answer of CPU sketches: chains of two operators that share an axis have a
/// kernel.
pub fn cpus(w: &Workload) -> bool {
    let has_parts = |e: usize| !shared_axes(w, e).is_empty();
    w.kind == BACK_TO_BACK && between_operators(w).is_some_and(has_parts)
}

/// A stand-in for the answer of GPU sketches.
pub fn gpus(w: &Workload) -> bool {
    Separable::of(w).is_some() || Normed::of(w).is_some()
}

/// A model in the making.
pub struct Net(pub Model);

impl Net {
    pub fn new() -> Net {
        Net(Model {
            nodes: vec![],
            values: vec![],
            inputs: vec![],
            outputs: vec![],
            opset: 17,
            name: "net".into(),
        })
    }

    fn value(&mut self, shape: &[i64], constant: Option<Constant>, weight: bool) -> ValueId {
        let name = format!("v{}", self.0.values.len());
        self.0.values.push(Value {
            name,
            dtype: Some(DType::F32),
            shape: Some(shape.to_vec()),
            constant: constant.map(Arc::new),
            weight,
            alias: None,
        });
        self.0.values.len() - 1
    }

    pub fn input(&mut self, shape: &[i64]) -> ValueId {
        let id = self.value(shape, None, false);
        self.0.inputs.push(id);
        id
    }

    /// A weight of small positive numbers.
    pub fn weight(&mut self, shape: &[i64]) -> ValueId {
        let n: i64 = shape.iter().product();
        let seed = self.0.values.len() as u64;
        let data = (0..n as u64).map(|i| ((i * 31 + seed * 17) % 23) as f32 / 23.0 + 0.1).collect();
        self.value(shape, Some(Constant::F32 { shape: shape.to_vec(), data }), true)
    }

    /// Whole numbers that are known.
    pub fn list(&mut self, data: &[i64]) -> ValueId {
        let shape = vec![data.len() as i64];
        let id =
            self.value(&shape.clone(), Some(Constant::I64 { shape, data: data.to_vec() }), true);
        self.0.values[id].dtype = Some(DType::I64);
        id
    }

    pub fn number(&mut self, x: f32) -> ValueId {
        self.value(&[], Some(Constant::F32 { shape: vec![], data: vec![x] }), true)
    }

    pub fn node(
        &mut self,
        op: &str,
        inputs: &[ValueId],
        shape: &[i64],
        attributes: &[(&str, Attribute)],
    ) -> ValueId {
        let out = self.value(shape, None, false);
        self.0.nodes.push(Node {
            name: format!("{op}{}", self.0.nodes.len()),
            op: op.into(),
            domain: String::new(),
            inputs: inputs.iter().map(|i| Some(*i)).collect(),
            outputs: vec![out],
            attributes: attributes
                .iter()
                .map(|(k, v)| (k.to_string(), v.clone()))
                .collect::<BTreeMap<_, _>>(),
            folded: false,
            problem: None,
        });
        out
    }

    /// A 3 x 3 convolution that keeps an image of 5 x 6.
    pub fn conv(&mut self, x: ValueId, c: i64, k: i64) -> ValueId {
        let w = self.weight(&[k, c, 3, 3]);
        self.node("Conv", &[x, w], &[1, k, 5, 6], &[("pads", Attribute::Ints(vec![1; 4]))])
    }

    pub fn norm(&mut self, x: ValueId, c: i64, shape: &[i64]) -> ValueId {
        let p: Vec<ValueId> = (0..4).map(|_| self.weight(&[c])).collect();
        self.node(
            "BatchNormalization",
            &[x, p[0], p[1], p[2], p[3]],
            shape,
            &[("epsilon", Attribute::Float(1e-3))],
        )
    }

    pub fn lower(&self) -> Assignment {
        self.lower_for(alone)
    }

    /// The greedy assignment for a device that makes these chains of operators one kernel.
    pub fn lower_for(&self, makes_chain: MakesChain) -> Assignment {
        Assignment::of(Arc::new(self.0.clone()), makes_chain).unwrap()
    }

    /// Checks that fusing changes nothing: the model with all values as outputs fuses nothing.
    /// Gives the names of the fused tasks.
    pub fn fused(&self) -> Vec<String> {
        let mut apart = Net(self.0.clone());
        apart.0.outputs = self.0.nodes.iter().flat_map(|n| n.outputs.clone()).collect();
        let (import, plain) = (self.lower(), apart.lower());
        assert_eq!(
            plain.tasks().iter().map(|t| t.count).sum::<u64>(),
            self.0.nodes.len() as u64 - plain.untuned().len() as u64
        );
        let inputs: Vec<Vec<f32>> = self
            .0
            .inputs
            .iter()
            .map(|&i| some_numbers(self.0.values[i].shape.as_ref().unwrap()))
            .collect();
        let got = run(&import, &inputs).unwrap();
        let all = run(&plain, &inputs).unwrap();
        for (out, got) in self.0.outputs.iter().zip(got) {
            let at = apart.0.outputs.iter().position(|o| o == out).unwrap();
            for (a, b) in got.iter().zip(&all[at]) {
                assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b}");
            }
        }
        import.tasks().iter().map(|t| t.name.clone()).collect()
    }
}

pub fn some_numbers(shape: &[i64]) -> Vec<f32> {
    let n: i64 = shape.iter().product();
    (0..n).map(|i| ((i * 7919) % 41) as f32 / 20.0 - 1.0).collect()
}

/// Runs with the meaning of each workload.
pub fn run(graph: &Assignment, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, String> {
    let by_id: HashMap<TaskId, &Task> = graph.tasks().iter().map(|t| (t.id, t)).collect();
    graph.run(inputs, &mut |id, feeds| {
        let w: &Workload = &by_id[&id].workload;
        assert_eq!(feeds.len(), w.inputs.len());
        for (f, i) in feeds.iter().zip(&w.inputs) {
            assert_eq!(f.len() as i64, i.shape.iter().product::<i64>(), "{} of {w}", i.name);
        }
        let feeds: Vec<Vec<f64>> =
            feeds.iter().map(|f| f.iter().map(|x| f64::from(*x)).collect()).collect();
        Ok(w.evaluate(&feeds).into_iter().map(|x| x as f32).collect())
    })
}

/// Holds what two covers of a model compute of an input against each other.
pub fn assert_alike(want: &Assignment, got: &Assignment, shape: &[i64], most: f32) {
    let input = some_numbers(shape);
    let want = run(want, std::slice::from_ref(&input)).unwrap();
    let got = run(got, &[input]).unwrap();
    assert_eq!(got[0].len(), want[0].len());
    for (a, b) in got[0].iter().zip(&want[0]) {
        assert!((a - b).abs() <= most, "{a} instead of {b}");
    }
}

/// A named list of whole numbers.
pub fn ints(name: &'static str, all: &[i64]) -> (&'static str, Attribute) {
    (name, Attribute::Ints(all.to_vec()))
}

/// Steps of a plan that move data, or fill it.
pub fn moves(plan: &Plan) -> usize {
    let moves = |w: &Work| matches!(w, Work::Copy { .. } | Work::Runs { .. } | Work::Fill { .. });
    plan.steps.iter().filter(|s| moves(&s.work)).count()
}

pub fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// All models at hand, by name.
pub fn models() -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for folder in squall_testing::shared("models").into_iter().chain([examples()]) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == "onnx") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                out.push((name, std::fs::read(path).unwrap()));
            }
        }
    }
    out.sort();
    out
}
