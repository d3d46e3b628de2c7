//! Tests that references of different sizes share one library, and that each task still gets the
//! outputs of its own size, whichever was set before it.

use crate::support::{measured, outcomes};
use squall_core::{Bytes, KernelSource, Language, Measurer, Outcome, TaskSetup, Workload};
use squall_measure::cpu::{Device, SharedSource, Toolchain};
use squall_measure::{LocalMeasurer, ObjectCache};

/// y = 7 x for `rows` rows of 100 elements.
fn workload(rows: u64) -> Workload {
    let text = format!(
        "workload seven\ndata X: f32[{rows}, 100]\n\
         stage Y: f32[i: {rows}, j: 100] = X[i, j] * 7.0\noutput Y\n"
    );
    Workload::parse(&text).unwrap()
}

const TEXT: &str = "OF
#include <stddef.h>

size_t SYMBOL_workspace_bytes(void) { return BYTES; }

int SYMBOL(const void *const *data, void *const *outputs, const void *prepared, void *workspace) {
  const float *x = data[0];
  float *y = outputs[0];
  float *kept = workspace;
  for (long i = 0; i < WRITTEN; i++) {
    for (long j = 0; j < 100; j++) {
      kept[100*i + j] = 7.0 * x[100*i + j];
      y[100*i + j] = kept[100*i + j];
    }
  }
  (void)prepared;
  return 0;
}
";

/// A kernel of `rows` rows that writes the first `written` of them. `of` comes first in the text;
/// its name holds its size, as generated ones do.
fn kernel(of: &str, rows: u64, written: u64) -> KernelSource {
    let symbol = format!("k{rows}");
    let bytes = 400 * rows;
    let source = TEXT
        .replace("OF", of)
        .replace("SYMBOL", &symbol)
        .replace("BYTES", &bytes.to_string())
        .replace("WRITTEN", &written.to_string());
    KernelSource {
        language: Language::C,
        source,
        symbol,
        prepared: Bytes(0),
        workspace: Bytes(bytes),
        openmp: false,
        full_optimisation: false,
        flags: Vec::new(),
        launches: Vec::new(),
    }
}

#[test]
fn references_of_two_sizes_share_a_library() {
    let folder = tempfile::tempdir().unwrap();
    let objects = ObjectCache::open(&folder.path().join("objects")).unwrap();
    let toolchain = Toolchain::detect().unwrap().with_objects(objects);
    let device = Device::detect(1, &toolchain).unwrap();
    let mut measurer = LocalMeasurer::on_cpu(device, toolchain.clone()).unwrap();
    let setup = |rows| {
        let of = "/* seven, made by Squall */";
        TaskSetup::new(workload(rows), kernel(of, rows, rows), 3)
    };
    let shared = |rows: u64| {
        let kernel = setup(rows).reference.kernel.unwrap();
        toolchain.object_key(&SharedSource::of(&kernel).unwrap().source).unwrap()
    };
    assert_eq!(shared(6), shared(60));
    for rows in [6, 60, 6, 35] {
        measurer.set_task(&setup(rows)).unwrap();
        let jobs = [kernel("", rows, rows), kernel("", rows, rows - 1)];
        let all = outcomes(&mut measurer, &jobs).unwrap();
        assert!(!measured(&all[0].0).samples.is_empty());
        assert!(matches!(all[1].0, Outcome::Failed { .. }), "{rows}: {:?}", all[1].0);
    }
}
