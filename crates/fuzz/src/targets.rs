//! The readers under test: for each format a [`Target`], a function that reads arbitrary bytes and
//! panics only where the reader has a fault or its result breaks a promise (it does not print and
//! parse back, for example). cargo-fuzz and `tests/corpus.rs` run them.

use crate::{Draw, generate};
use squall_core::Workload;
use squall_frontend::{import_kernel, import_ops, miopen, npy, onnx, read_weights, recording};
use squall_graph::bytes::in_bytes;
use squall_predict::Predictor;
use squall_records::{fault, wire};
use squall_runtime::{HostPlan, protocol};

/// A name and what it runs.
pub struct Target {
    /// The name of its corpus and of its program for cargo-fuzz.
    pub name: &'static str,
    /// Reads some bytes.
    pub run: fn(&[u8]),
}

/// All targets. Targets whose names begin with `structure_` take the bytes as choices of a
/// generator.
pub const TARGETS: &[Target] = &[
    Target { name: "onnx", run: read_onnx },
    Target { name: "operators", run: |b| _ = import_ops(&text(b), "fuzz") },
    Target { name: "workload", run: read_workload },
    Target { name: "kernel_toml", run: read_kernel },
    Target { name: "npy", run: |b| _ = npy::read(b) },
    Target { name: "recording", run: |b| _ = recording::read_any("fuzz", b) },
    Target { name: "space", run: |b| _ = recording::read_space("fuzz", b) },
    Target { name: "miopen_packing", run: |b| _ = miopen::unpack("fuzz", b.to_vec()) },
    Target { name: "find_database", run: read_find_database },
    Target { name: "tensor", run: |b| _ = onnx::read_tensor(b) },
    Target { name: "chooser", run: read_chooser },
    Target { name: "record", run: read_record },
    Target { name: "plan", run: read_plan },
    Target { name: "reply", run: |b| _ = protocol::Line::parse(&text(b)) },
    Target { name: "predictor", run: |b| _ = Predictor::from_bytes(b) },
    Target { name: "structure_onnx", run: |b| read_onnx(&generate::model(&mut Draw::of_bytes(b))) },
    Target {
        name: "structure_recording",
        run: |b| {
            let mut draw = Draw::of_bytes(b);
            let _ = recording::read_any("fuzz", &generate::kernel_tuner(&mut draw));
            let _ = recording::read_any("fuzz", &generate::t4(&mut draw));
        },
    },
    Target {
        name: "structure_kernel_toml",
        run: |b| read_kernel(&generate::kernel_toml(&mut Draw::of_bytes(b))),
    },
    Target {
        name: "structure_operators",
        run: |b| _ = import_ops(&text(&generate::operators(&mut Draw::of_bytes(b))), "fuzz"),
    },
    Target {
        name: "structure_record",
        run: |b| read_record(&generate::exported_lines(&mut Draw::of_bytes(b))),
    },
];

/// Runs the target of a name; nothing where there is none.
pub fn run(name: &str, bytes: &[u8]) {
    TARGETS.iter().filter(|t| t.name == name).for_each(|t| (t.run)(bytes));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read_onnx(bytes: &[u8]) {
    if let Ok(model) = onnx::read(bytes, "fuzz", &[]) {
        // What a reader gives has one text.
        assert_eq!(model.to_string(), model.to_string());
        // Over bytes it is a model that holds together, or none.
        assert!(in_bytes(&model).is_none_or(|m| m.verify().is_ok()));
    }
    let _ = read_weights(bytes, "fuzz", &mut |_| Ok(None));
}

fn read_workload(bytes: &[u8]) {
    if let Ok(w) = Workload::parse(&text(bytes)) {
        let again = Workload::parse(&w.to_string());
        assert_eq!(again.as_ref().map(Workload::to_string), Ok(w.to_string()));
    }
}

fn read_kernel(bytes: &[u8]) {
    let source = b"void axpy(long n, const float *x, float *y) { }\n";
    let read = |name: &str| match name {
        "kernel.c" => Ok(source.to_vec()),
        other => Err(format!("there is no `{other}`")),
    };
    let _ = import_kernel(&text(bytes), "fuzz.toml", &read);
}

fn read_record(bytes: &[u8]) {
    for line in text(bytes).lines() {
        if let Ok(r) = wire::decode(line)
            && fault(&r).is_none()
        {
            let again = wire::decode(&wire::encode(&r).expect("a right record has a text"));
            assert_eq!(again.as_ref().map(squall_core::Record::identity), Ok(r.identity()));
        }
    }
}

fn read_find_database(bytes: &[u8]) {
    let text = text(bytes);
    let database = miopen::find::read_text(&text, "gfx942_304");
    let mut table = miopen::find::TableBuilder::new("gfx942_304");
    let timed = database.lines.iter().filter(|l| table.add(l)).count() as u64;
    let table = table.finish();
    assert_eq!(table.problems.len() as u64, timed);
}

fn read_chooser(bytes: &[u8]) {
    if let Ok(chooser) = squall_predict::find::Chooser::from_bytes(bytes) {
        let again = chooser.to_bytes().expect("a chooser has a file");
        squall_predict::find::Chooser::from_bytes(&again).expect("what is written is read");
    }
}

fn read_plan(bytes: &[u8]) {
    if let Ok(plan) = HostPlan::parse(&text(bytes))
        && plan.verify().is_ok()
    {
        assert_eq!(HostPlan::parse(&plan.to_string()).as_ref(), Ok(&plan));
    }
}
