//! Makes an exported network a custom operator of ONNX Runtime. Input: the network's C interface;
//! output: the C source of a library that registers the operator (from `text/ort.c`), and a
//! one-node ONNX model that calls it, encoded by hand as protocol buffers.

use super::interface::{Name, Port, Ports, spelling};
use super::sources::{filled, onnx_tensors};

/// The C text that is added where the session's threads run the loops.
const POOL: &str = "  const session_threads threads = {table, context};
  const @NAME@_pool session = {(void *)(uintptr_t)&threads, by_session}, *pool = &session;";

const HUGE: &str = "#ifdef MADV_HUGEPAGE
    if (bytes >= large) madvise(m->workspace, bytes, MADV_HUGEPAGE);
#endif";

/// The domain of the operator.
pub fn domain(name: &Name) -> String {
    format!("squall.{}", name.text())
}

/// The source of the library that registers the operator.
pub fn source(name: &Name, ports: &Ports, threads: usize) -> String {
    let several = threads > 1;
    let declared = if several { include_str!("text/ort_pool.c") } else { "" };
    let text = filled(
        include_str!("text/ort.c"),
        &[
            ("TENSORS", &onnx_tensors(ports)),
            ("IO", &ports.filled("in", "out")),
            ("DOMAIN", &domain(name)),
            ("PARALLEL", declared),
            ("POOL", if several { POOL } else { "  const @NAME@_pool *pool = NULL;" }),
            ("HUGE", HUGE),
        ],
    );
    filled(&text, &[("NAME", name.text()), ("UPPER", &name.upper())])
}

/// Numbers of ONNX's messages, as its `onnx.proto` has them since IR version 3.
mod field {
    pub const MODEL_IR: u32 = 1;
    pub const MODEL_PRODUCER: u32 = 2;
    pub const MODEL_GRAPH: u32 = 7;
    pub const MODEL_OPSET: u32 = 8;
    pub const GRAPH_NODE: u32 = 1;
    pub const GRAPH_NAME: u32 = 2;
    pub const GRAPH_INPUT: u32 = 11;
    pub const GRAPH_OUTPUT: u32 = 12;
    pub const NODE_INPUT: u32 = 1;
    pub const NODE_OUTPUT: u32 = 2;
    pub const NODE_NAME: u32 = 3;
    pub const NODE_OP: u32 = 4;
    pub const NODE_DOMAIN: u32 = 7;
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field << 3));
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.varint(u64::from(field << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(self, field: u32, m: Message) -> Message {
        self.bytes(field, &m.0)
    }
}

/// A tensor of the graph by name, type and shape.
fn value(p: &Port) -> Message {
    let extent = |s: Message, e: &i64| s.message(1, Message::default().number(1, *e as u64));
    let shape = p.shape.iter().fold(Message::default(), extent);
    let tensor = Message::default().number(1, spelling(p.element).2 as u64).message(2, shape);
    let kind = Message::default().message(1, tensor);
    Message::default().bytes(1, p.name.as_bytes()).message(2, kind)
}

/// The model whose one node is the network.
pub fn model(name: &Name, ports: &Ports) -> Vec<u8> {
    let domain = domain(name);
    let mut node = Message::default();
    for p in &ports.inputs {
        node = node.bytes(field::NODE_INPUT, p.name.as_bytes());
    }
    for p in &ports.outputs {
        node = node.bytes(field::NODE_OUTPUT, p.name.as_bytes());
    }
    let node = node
        .bytes(field::NODE_NAME, name.text().as_bytes())
        .bytes(field::NODE_OP, name.text().as_bytes())
        .bytes(field::NODE_DOMAIN, domain.as_bytes());
    let mut graph = Message::default()
        .message(field::GRAPH_NODE, node)
        .bytes(field::GRAPH_NAME, name.text().as_bytes());
    for p in &ports.inputs {
        graph = graph.message(field::GRAPH_INPUT, value(p));
    }
    for p in &ports.outputs {
        graph = graph.message(field::GRAPH_OUTPUT, value(p));
    }
    let opset =
        |domain: &str, version| Message::default().bytes(1, domain.as_bytes()).number(2, version);
    Message::default()
        .number(field::MODEL_IR, 8)
        .bytes(field::MODEL_PRODUCER, b"squall")
        .message(field::MODEL_GRAPH, graph)
        .message(field::MODEL_OPSET, opset("", 17))
        .message(field::MODEL_OPSET, opset(&domain, 1))
        .0
}
