//! Test of the number of copies in the plans of real networks: reshapes, slices and other moves of
//! data should become places in memory (a view of another tensor) and not copies in each inference.

use squall::{InputRequest, TargetRequest};
use squall_core::graph::Weights;
use squall_graph::plan::Work;

/// Steps of a model's plan for a CPU that only move data.
fn copies(path: &std::path::Path) -> usize {
    let request = InputRequest::new(path.to_string_lossy());
    let input = request.load(TargetRequest::Cpu).unwrap();
    let plan = input.graph().unwrap().plan(Weights::default()).unwrap();
    let moves = |w: &Work| matches!(w, Work::Copy { .. } | Work::Runs { .. } | Work::Fill { .. });
    plan.steps.iter().filter(|s| moves(&s.work)).count()
}

#[test]
fn moves_of_data_become_places_in_memory() {
    let Some(folder) = squall_testing::shared("models") else { return };
    for (model, most) in [("vit_b_16", 1), ("densenet121", 0), ("shufflenet_v2_x1_0", 0)] {
        let found = copies(&folder.join(format!("{model}.onnx")));
        assert!(found <= most, "{model}: {found} copies, {most} are known to do");
    }
}
