#!/bin/bash
# compute-sanitizer over whole networks, in the program that runs them: memory, races, barriers, unwritten memory.
#
#   scripts/gpu/sanitize_networks.sh SQUALL MODEL.onnx..      a line a tool and model; exit 0 if all are clean
#
# Launches overlap and branches run on several streams where there are any, unless SQUALL_OVERLAPS=0 or
# SQUALL_BRANCHES=0; MORE is added to `squall run`, as --precision bf16.
set -u
export SQUALL_OVERLAPS=${SQUALL_OVERLAPS:-1} SQUALL_BRANCHES=${SQUALL_BRANCHES:-1}
squall=$(realpath "$1") bad=0
shift
for model in "$@"; do
  name=$(basename "$model" .onnx) folder=$(mktemp -d)
  python3 - "$squall" "$model" "$folder/x.npy" <<'P' || { echo "$name: no input"; bad=1; continue; }
import json, subprocess, sys
import numpy as np
import onnx
model = onnx.load(sys.argv[2], load_external_data=False)
known = {i.name for i in model.graph.initializer}
x = next(i for i in model.graph.input if i.name not in known).type.tensor_type
shape = [d.dim_value or 1 for d in x.shape.dim]
rng = np.random.default_rng(0)
given = rng.integers(0, 100, shape) if x.elem_type == 7 else rng.standard_normal(shape).astype(np.float32)
np.save(sys.argv[3], given)
P
  $squall run "$model" --input "$folder/x.npy" --target cuda --keep "$folder/net" ${MORE:-} > "$folder/log" 2>&1 || { echo "$name: does not run: $(tail -2 "$folder/log" | tr '\n' ' ')"; bad=1; continue; }
  cd "$folder/net" || exit 2
  for tool in memcheck racecheck synccheck initcheck; do
    # racecheck looks at shared memory, which one launch has of its own, and does not end where launches overlap.
    (
      [ $tool = racecheck ] && export SQUALL_OVERLAPS=0 SQUALL_BRANCHES=0
      timeout "${PATIENCE:-90}" compute-sanitizer --tool $tool --error-exitcode 9 ./network -1 0 > "$folder/$tool" 2>&1
    ) && said=clean || { said="NOT CLEAN ($?)"; bad=1; }
    echo "$name: $tool $said: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$folder/$tool" | tail -1)"
  done
  cd - > /dev/null || exit 2
done
exit $bad
