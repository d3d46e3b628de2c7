//! The shared models.

mod support;

use squall_frontend::import_onnx;

#[test]
fn dump() {
    for (name, bytes) in support::models() {
        let t = std::time::Instant::now();
        let i = import_onnx(&bytes, &name, &[]).unwrap();
        println!("== {name}: {} tasks, {} untuned, {} folded {:?}", i.tasks.len(), i.untuned.len(), i.folded.len(), t.elapsed());
        if let Ok(v) = std::env::var("SHOW") { if v == name {
        for t in &i.tasks { println!("{} x{} {}\n{}", t.name, t.count, t.nodes.join(" "), t.workload); }
        for u in &i.untuned { println!("{u:?}"); } } }
    }
}
