//! Generator of hostile ONNX models: graphs of a few nodes, written by hand as protocol buffers, so
//! that files can be drawn that no exporter writes, such as operators with too few inputs or
//! weights in strange places. Input: a [`Draw`]; output: the bytes of a file.

use crate::draw::Draw;

/// A message of protocol buffers in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn int(mut self, tag: u64, n: i64) -> Message {
        self.varint(tag << 3);
        self.varint(n as u64);
        self
    }

    fn bytes(mut self, tag: u64, bytes: &[u8]) -> Message {
        self.varint(tag << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, tag: u64, text: &str) -> Message {
        self.bytes(tag, text.as_bytes())
    }

    fn message(self, tag: u64, inner: Message) -> Message {
        self.bytes(tag, &inner.0)
    }

    fn float(mut self, tag: u64, x: f32) -> Message {
        self.varint(tag << 3 | 5);
        self.0.extend_from_slice(&x.to_le_bytes());
        self
    }
}

/// Operators of every family, their numbers of inputs, and one that there is not.
const OPERATORS: &[(&str, usize)] = &[
    ("Conv", 2),
    ("ConvTranspose", 2),
    ("Gemm", 3),
    ("MatMul", 2),
    ("Add", 2),
    ("Mul", 2),
    ("Relu", 1),
    ("Clip", 3),
    ("Softmax", 1),
    ("LayerNormalization", 3),
    ("BatchNormalization", 5),
    ("MaxPool", 1),
    ("AveragePool", 1),
    ("GlobalAveragePool", 1),
    ("ReduceMean", 2),
    ("Reshape", 2),
    ("Transpose", 1),
    ("Slice", 4),
    ("Concat", 3),
    ("Split", 2),
    ("Gather", 2),
    ("Pad", 3),
    ("Expand", 2),
    ("Tile", 2),
    ("Resize", 4),
    ("Squeeze", 2),
    ("Unsqueeze", 2),
    ("Flatten", 1),
    ("Cast", 1),
    ("Shape", 1),
    ("Range", 3),
    ("ConstantOfShape", 1),
    ("Where", 3),
    ("Einsum", 2),
    ("TopK", 2),
    ("Loop", 3),
    ("If", 1),
    ("LSTM", 4),
    ("QuantizeLinear", 3),
    ("DequantizeLinear", 3),
    ("NoSuchOperator", 2),
];

const ATTRIBUTES: &[&str] = &[
    "kernel_shape",
    "strides",
    "pads",
    "dilations",
    "group",
    "axis",
    "axes",
    "perm",
    "epsilon",
    "alpha",
    "beta",
    "transA",
    "transB",
    "keepdims",
    "to",
    "auto_pad",
    "ceil_mode",
    "mode",
    "allowzero",
    "equation",
    "value",
    "output_padding",
    "num_outputs",
    "noop_with_empty_axes",
];

/// A model of a few nodes, most of whose shapes fit.
pub fn model(draw: &mut Draw<'_>) -> Vec<u8> {
    graph(draw, None)
}

/// A model whose weight lies in another file, whose name and place a stranger chose.
pub fn external(draw: &mut Draw<'_>) -> Vec<u8> {
    const PLACES: &[&str] = &[
        "../outside/secret",
        "/etc/passwd",
        "link",
        "pipe",
        "w.data",
        "./w.data",
        "a/../../outside/secret",
        "/dev/zero",
        "",
        ".",
        "..",
        "w.data\u{0}x",
        "dangling",
    ];
    let place = draw.one(PLACES);
    graph(draw, Some(place))
}

fn graph(draw: &mut Draw<'_>, location: Option<&str>) -> Vec<u8> {
    let mut names = vec!["x".to_string()];
    let mut graph = Message::default().text(2, &draw.name());
    let rank = 1 + draw.below(5);
    let shape: Vec<i64> = (0..rank).map(|_| draw.extent()).collect();
    graph = graph.message(11, value(draw, "x", &shape));
    for i in 0..1 + draw.below(4) {
        let name = format!("w{i}");
        graph = graph.message(5, tensor(draw, &name, location));
        names.push(name);
    }
    for i in 0..1 + draw.below(8) {
        let (operator, inputs) = OPERATORS[draw.below(OPERATORS.len())];
        let mut node = Message::default();
        let inputs = if draw.once_in(10) { draw.below(8) } else { inputs };
        for _ in 0..inputs {
            let known = names[draw.below(names.len())].clone();
            node = node.text(1, if draw.once_in(30) { "" } else { &known });
        }
        let output = if draw.once_in(40) { "x".into() } else { format!("v{i}") };
        node = node.text(2, &output).text(3, &draw.name()).text(4, operator);
        for _ in 0..draw.below(4) {
            let attribute = attribute(draw);
            node = node.message(5, attribute);
        }
        graph = graph.message(1, node);
        names.push(output);
    }
    let last = names[names.len() - 1].clone();
    graph = graph.message(12, value(draw, &last, &[]));
    let version = if draw.once_in(10) { draw.integer() } else { 17 };
    let opset = Message::default().text(1, "").int(2, version);
    Message::default().int(1, 8).message(7, graph).message(8, opset).0
}

fn value(draw: &mut Draw<'_>, name: &str, shape: &[i64]) -> Message {
    let mut dimensions = Message::default();
    for &extent in shape {
        let dimension = match draw.below(16) {
            0 => Message::default().text(2, &draw.name()),
            1 => Message::default(),
            _ => Message::default().int(1, extent),
        };
        dimensions = dimensions.message(1, dimension);
    }
    let element = if draw.once_in(10) { draw.integer() } else { 1 };
    let mut tensor = Message::default().int(1, element);
    if !shape.is_empty() {
        tensor = tensor.message(2, dimensions);
    }
    Message::default().text(1, name).message(2, Message::default().message(1, tensor))
}

fn tensor(draw: &mut Draw<'_>, name: &str, location: Option<&str>) -> Message {
    let rank = draw.below(5);
    let mut elements: i64 = 1;
    let mut t = Message::default();
    for _ in 0..rank {
        let extent = draw.extent();
        elements = elements.saturating_mul(extent.max(0));
        t = t.int(1, extent);
    }
    let kind = [1, 1, 1, 7, 6, 11, 9, 10, 2][draw.below(9)];
    t = t.int(2, kind).text(8, name);
    if let Some(location) = location {
        let entry = |key: &str, value: &str| Message::default().text(1, key).text(2, value);
        t = t.message(13, entry("location", location));
        if draw.once_in(3) {
            t = t.message(13, entry("offset", &draw.number()));
        }
        if draw.once_in(3) {
            t = t.message(13, entry("length", &draw.number()));
        }
        return t.int(14, 1);
    }
    // Bytes that fit, too few of them, or none.
    let bytes = match kind {
        7 | 11 => 8,
        9 | 2 => 1,
        10 => 2,
        _ => 4,
    };
    let size = (elements.min(4096) as usize) * bytes;
    let size = if draw.once_in(8) { draw.below(64) } else { size };
    t.bytes(9, &vec![draw.below(256) as u8; size])
}

/// A tensor in a file of its own, as ONNX's test data are: its elements as bytes or as numbers,
/// which its type and its shape may not fit.
pub fn test_data(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut t = match draw.below(4) {
        0 => tensor(draw, "x", None),
        1 => {
            let place = draw.one(&["../outside/secret", "/etc/passwd", "pipe", "w.data"]);
            tensor(draw, "x", Some(place))
        }
        _ => Message::default().int(2, [1, 1, 1, 7, 10, 11, 9, 16][draw.below(8)]).text(8, "x"),
    };
    if draw.once_in(2) {
        for _ in 0..1 + draw.below(5) {
            t = t.int(1, draw.extent());
        }
    }
    // The fields of numbers, packed or one by one: floats, int32, int64, doubles.
    for _ in 0..draw.below(3) {
        let tag = [4, 5, 7, 10][draw.below(4)];
        t = match draw.below(3) {
            0 => t.float(tag, f32::from_bits(draw.bits() as u32)),
            1 => t.int(tag, draw.integer()),
            _ => {
                let bytes: Vec<u8> = (0..draw.below(200)).map(|_| draw.bits() as u8).collect();
                t.bytes(tag, &bytes)
            }
        };
    }
    if draw.once_in(2) {
        t = t.bytes(9, &vec![draw.below(256) as u8; draw.below(20_000)]);
    }
    t.0
}

fn attribute(draw: &mut Draw<'_>) -> Message {
    let name = draw.one(ATTRIBUTES);
    let a = Message::default().text(1, name);
    match draw.below(6) {
        0 => a.int(3, draw.integer()).int(20, 2),
        1 => a.float(2, f32::from_bits(draw.bits() as u32)).int(20, 1),
        2 => a.text(4, &draw.name()).int(20, 3),
        3 => {
            let t = tensor(draw, "", None);
            a.message(5, t).int(20, 4)
        }
        4 => a.message(6, Message::default().text(2, "inner")).int(20, 5),
        _ => {
            let mut a = a;
            for _ in 0..draw.below(6) {
                a = a.int(8, draw.extent());
            }
            a.int(20, 7)
        }
    }
}
