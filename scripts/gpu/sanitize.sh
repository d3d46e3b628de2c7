#!/bin/bash
# compute-sanitizer over exported kernels: the winners of small problems, one of each sketch that multiplies, and the
# CUDA examples, in the export's own driver.
#
#   scripts/gpu/sanitize.sh SQUALL EXAMPLES [FOLDER]      a line a tool and export; exit 0 if all are clean
set -u
squall=$(realpath "$1") examples=$(realpath "$2") folder=${3:-$(mktemp -d)} bad=0
mkdir -p "$folder" && cd "$folder" || exit 2
cat > small.ops <<'O'
product:   matmul m=64 n=96 k=80
weights:   matmul m=32 n=64 k=128 weight=b epilogue=bias,gelu
vector:    matmul m=1 n=512 k=512
conv:      conv2d n=1 c=16 h=14 w=14 k=32 r=3 s=3 stride=1 pad=1 epilogue=bias,relu
stride:    conv2d n=1 c=16 h=15 w=15 k=16 r=1 s=1 stride=2
depthwise: conv2d c=32 h=14 k=32 r=3 pad=1 groups=32 epilogue=bias,relu6
tensor:    matmul m=64 n=64 k=128 dtype=tf32
window:    conv2d n=1 c=3 h=29 w=29 k=16 r=7 s=7 stride=2 pad=3 dtype=tf32
pieces:    conv2d n=1 c=64 h=14 w=14 k=64 r=3 s=3 stride=1 pad=1 dtype=tf32
half:      matmul m=128 n=128 k=256 weight=b dtype=bf16
half_conv: conv2d n=2 c=64 h=8 w=8 k=64 r=3 s=3 stride=1 pad=1 dtype=bf16
softmax:   softmax rows=16 cols=256
layernorm: layernorm rows=16 cols=192 eps=1e-05
O
one() { # NAME INPUT ONLY [SKETCH]
  $squall tune "$2" ${3:+--only "$3"} ${4:+--sketch "$4"} --trials 24 --target cuda --store "$1.squall" --json > "$1.json" 2> "$1.log" || { echo "$1: not tuned: $(tail -2 "$1.log" | tr '\n' ' ')"; bad=1; return; }
  $squall export "$2" ${3:+--only "$3"} --target cuda --store "$1.squall" --out "$1" --build > "$1.export" 2>&1 || { echo "$1: not exported: $(tail -3 "$1.export" | tr '\n' ' ')"; bad=1; return; }
  "$1/driver" || bad=1
  for tool in memcheck racecheck synccheck initcheck; do
    if timeout 60 compute-sanitizer --tool $tool --error-exitcode 9 "$1/driver" --check > "$1.$tool" 2>&1; then said=clean; else said="NOT CLEAN ($?)"; bad=1; fi
    echo "$1: $tool $said: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$1.$tool" | tail -1)"
  done
}
one sketches small.ops ""
while read -r sketch line; do
  echo "$sketch: $line" > "$sketch.ops"
  one "$sketch" "$sketch.ops" "" "$sketch"
done <<'O'
gpu_tile conv2d n=1 c=32 h=7 w=7 k=64 r=3 s=3 stride=1 pad=1
gpu_winograd conv2d n=1 c=64 h=7 w=7 k=64 r=3 s=3 stride=1 pad=1 epilogue=bias,relu
gpu_tensor conv2d n=1 c=32 h=8 w=8 k=64 r=3 s=3 stride=1 pad=1 dtype=tf32
gpu_tensor_split conv2d n=1 c=32 h=7 w=7 k=64 r=3 s=3 stride=1 pad=1
gpu_warpgroup conv2d n=2 c=64 h=8 w=8 k=64 r=3 s=3 stride=1 pad=1 dtype=bf16
O
one convolution "$examples/convolution/kernel.toml" small
one matmul "$examples/matmul/kernel.toml" 64x
one stencil "$examples/stencil/kernel.toml" small
python3 - <<'P'
import json
for f in ["sketches", "gpu_tile", "gpu_winograd", "gpu_tensor", "gpu_tensor_split", "gpu_warpgroup"]:
    for t in [json.loads(l) for l in open(f + ".json")][-1]["tasks"]:
        print(t["name"], t["best"]["tunable"], t["best"]["configuration"], "failed", t["failed"], "of", t["trials"])
P
exit $bad
