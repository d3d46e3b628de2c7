//! The reference of the campaign of graphs: a process of Python that runs onnxruntime with its
//! optimisations off, or onnx's evaluator, on folders of models. Input: cases; output: for each
//! case all values that its nodes make, or the reason why there are none. A process that dies or
//! hangs is started again.

use super::case::Case;
use super::compare::Arrays;
use super::graph::model_of;
use prost::Message as _;
use squall_core::DType;
use squall_core::graph::Constant;
use squall_frontend::npy::{self, Array};
use squall_frontend::onnx;
use squall_frontend::onnx::proto::{ModelProto, NodeProto, TensorProto};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A process of Python that answers for folders of models.
pub struct Peer {
    python: PathBuf,
    script: PathBuf,
    process: Process,
}

struct Process {
    child: Child,
    to: ChildStdin,
    lines: Receiver<String>,
}

/// Seconds that the models of a batch may take; the first answer waits for Python's libraries.
const PATIENCE: Duration = Duration::from_secs(180);

impl Peer {
    /// Starts it; none where Python, onnx or onnxruntime is not there.
    pub fn start(python: &Path, root: &Path) -> Option<Peer> {
        let script = root.join("scripts/onnx/peer_of_graphs.py");
        let process = Process::start(python, &script)?;
        Some(Peer { python: python.into(), script, process })
    }

    /// All values that the nodes of some cases make, or why there are none, case by case. A model
    /// that it dies or hangs of has none.
    pub fn answer(&mut self, cases: &[Case], folder: &Path) -> Vec<Answer> {
        let places: Vec<PathBuf> =
            (0..cases.len()).map(|i| folder.join(format!("peer-{i}"))).collect();
        for (place, case) in places.iter().zip(cases) {
            // What could not be written is seen as no answer.
            let _ = std::fs::remove_dir_all(place);
            let _ = std::fs::create_dir_all(place.join("out"));
            let _ = std::fs::create_dir_all(place.join("sizes"));
            let _ = std::fs::write(place.join("m.onnx"), case.model(&case.made()).encode_to_vec());
            for (name, array) in &case.inputs {
                let ending = if array.dtype == DType::Bf16 { "bf16.npy" } else { "npy" };
                let _ = std::fs::write(place.join(format!("{name}.{ending}")), written(array));
            }
        }
        if self.process.ask(&places).is_none() {
            self.start_again();
            for place in &places {
                if self.process.ask(std::slice::from_ref(place)).is_none() {
                    let _ = std::fs::write(place.join("error"), "the peer died or hung");
                    self.start_again();
                }
            }
        }
        places.iter().zip(cases).map(|(place, case)| read_answer(place, case)).collect()
    }

    fn start_again(&mut self) {
        if let Some(p) = Process::start(&self.python, &self.script) {
            self.process = p;
        }
    }
}

impl Process {
    fn start(python: &Path, script: &Path) -> Option<Process> {
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let (to, from) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let (tell, lines) = channel();
        // A thread of its own reads, so that an answer is waited for no longer than it may take.
        std::thread::spawn(move || {
            from.lines().map_while(Result::ok).try_for_each(|l| tell.send(l.trim().to_string()))
        });
        let process = Process { child, to, lines };
        (process.lines.recv_timeout(PATIENCE).ok()? == "ready").then_some(process)
    }

    /// Asks for the answers of some folders; none where it died or takes too long.
    fn ask(&mut self, places: &[PathBuf]) -> Option<()> {
        let all: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        writeln!(self.to, "{}", all.join("\t")).and_then(|()| self.to.flush()).ok()?;
        (self.lines.recv_timeout(PATIENCE).ok()? == "done").then_some(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends by itself where its input ends; where it hangs it is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the peer says of a case: values of its nodes, as far as it could compute them.
#[derive(Default)]
pub struct Answer {
    /// The values.
    pub values: Arrays,
    /// Sums of the sizes of what sums are made of, by the names of these.
    pub sizes: Arrays,
    /// Why some values are not there.
    pub silence: Option<String>,
}

fn read_answer(place: &Path, case: &Case) -> Answer {
    let of = |folder: &str| read_arrays(&place.join(folder), &case.made());
    let silence = std::fs::read_to_string(place.join("error")).ok();
    match of("out") {
        Ok(values) => Answer { values, sizes: of("sizes").unwrap_or_default(), silence },
        Err(e) => Answer { silence: Some(e), ..Default::default() },
    }
}

/// Arrays of these names from a folder; those that are there. The bits of bf16 lie beside.
pub fn read_arrays(folder: &Path, names: &[String]) -> Result<Arrays, String> {
    let mut all = Arrays::new();
    for name in names {
        for (ending, is_bf16) in [("npy", false), ("bf16.npy", true)] {
            let Ok(bytes) = std::fs::read(folder.join(format!("{name}.{ending}"))) else {
                continue;
            };
            let mut array = npy::read(&bytes).map_err(|e| e.to_string())?;
            if is_bf16 {
                array.dtype = DType::Bf16;
            }
            all.insert(name.clone(), array);
        }
    }
    Ok(all)
}

/// An input as programs take it: of bf16 there are bits.
pub fn written(array: &Array) -> Vec<u8> {
    let dtype = if array.dtype == DType::Bf16 { DType::U16 } else { array.dtype };
    npy::write(&Array { dtype, ..array.clone() })
}

/// What the reader itself evaluates of a case when all its inputs are known: the evaluators of
/// `core/src/graph/fold`, which share no line with generated kernels.
pub fn folded(case: &Case) -> Arrays {
    known(&case.known(), &case.made())
}

/// The results of one node over known operands, as far as the reader evaluates them.
pub fn evaluated(opset: i64, node: &NodeProto, operands: &[TensorProto]) -> Arrays {
    let nodes = std::slice::from_ref(node);
    known(&model_of(opset, nodes, &[], operands, &node.output), &node.output)
}

/// What of a model's values the reader knows.
fn known(model: &ModelProto, names: &[String]) -> Arrays {
    let mut all = Arrays::new();
    let Ok(model) = onnx::read(&model.encode_to_vec(), "known.onnx", &[]) else {
        return all;
    };
    for name in names {
        let Some(v) = model.values.iter().find(|v| v.name == *name) else { continue };
        let (Some(constant), Some(dtype)) = (&v.constant, v.dtype) else { continue };
        if let Some(array) = array_of(constant, dtype) {
            all.insert(name.clone(), array);
        }
    }
    all
}

/// A constant as an array of its value's type; none of types that constants do not hold.
fn array_of(constant: &Constant, dtype: DType) -> Option<Array> {
    let shape = constant.shape().to_vec();
    let bytes: Vec<u8> = match (constant, dtype) {
        (Constant::F32 { data, .. }, DType::F32) => {
            data.iter().flat_map(|x| x.to_ne_bytes()).collect()
        }
        (Constant::F32 { data, .. }, DType::F16 | DType::Bf16) => {
            data.iter().flat_map(|x| dtype.half_bits(*x).unwrap_or(0).to_ne_bytes()).collect()
        }
        (Constant::F64 { data, .. }, DType::F64) => {
            data.iter().flat_map(|x| x.to_ne_bytes()).collect()
        }
        (Constant::Bool { data, .. }, DType::Bool) => data.iter().map(|x| u8::from(*x)).collect(),
        (Constant::I64 { data, .. }, t) if !t.is_float() && t != DType::Bool => {
            let size = t.bytes() as usize;
            data.iter().flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect()
        }
        _ => return None,
    };
    Some(Array { dtype, shape, bytes })
}

/// Where Python with onnxruntime lies: what was named, else what runs by that name.
pub fn python(named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| "python3".into(), Path::to_path_buf)
}
