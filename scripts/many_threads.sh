#!/bin/bash
# Networks on many threads, for a machine of 32 cores: each model is tuned for SECONDS at 16, 8, 4
# and 2 threads, each number on cores of its own, then timed until 100 inferences were made, all of which
# are compared with the first bit by bit, with both ways of waiting; the output is compared with that of
# one thread. Run in the repository root, with the release binary in carry/squall:
#   scripts/many_threads.sh SECONDS MODEL[:DIM=N]..
S=$PWD/carry/squall; root=$PWD; seconds=$1; shift
cd "$(mktemp -d)" || exit 1
cat > apart.py <<'P'
import ast, struct, sys
def npy(path):
    b = open(path, 'rb').read()
    n = struct.unpack('<H', b[8:10])[0]
    return struct.unpack('<%df' % ((len(b) - 10 - n) // 4), b[10 + n:])
a, b = npy(sys.argv[1]), npy(sys.argv[2])
largest = max(abs(x) for x in a)
print('%.2e of %.3g' % (max(abs(x - y) for x, y in zip(a, b)) / (largest or 1), largest))
P
dims() { echo "$1" | tr ':' '\n' | tail -n +2 | sed 's/^/--dim /' | tr '\n' ' '; }
number() { python3 -c "import json,sys;d=json.loads(open(sys.argv[1]).read().strip().splitlines()[-1]);print(d['$2'])" "$1"; }
# one CORES MODEL: the output of one thread.
one() {
  local m=${2%%:*} n; n=$(basename "$m" .onnx)
  taskset -c "$1" timeout 120 "$S" bench "$root/$m" $(dims "$2") --threads 1 --seconds 0.5 \
    --output "y1_$n.npy" > "b1_$n.txt" 2>&1 || echo "$n 1 FAILED $(tail -n 2 "b1_$n.txt" | tr '\n' ' ')"
}
# many CORES THREADS MODELS: the others.
many() {
  local cores=$1 t=$2 spec m n wait x; shift 2
  for spec in "$@"; do
    m=${spec%%:*}; n=$(basename "$m" .onnx); x=$n.$t
    taskset -c "$cores" timeout 90 "$S" tune "$root/$m" $(dims "$spec") --threads "$t" --seconds "$seconds" \
      --store "$x.squall" > "$x.tune" 2>&1
    for wait in passive active; do
      bench() {
        OMP_WAIT_POLICY=$wait taskset -c "$cores" timeout 120 "$S" bench "$root/$m" $(dims "$spec") --threads "$t" \
          --seconds "$1" --store "$x.squall" --output "y_$x.npy" --json > "$x.txt" 2> "$x.err"
      }
      bench 3; local code=$?
      if [ $code = 0 ] && [ "$(number "$x.txt" inferences)" -lt 100 ]; then
        bench "$(( 1 + 320 / $(number "$x.txt" inferences) ))"; code=$?
      fi
      if [ $code = 0 ]; then
        echo "$n $t $wait $(number "$x.txt" inferences) $(number "$x.txt" median_ns) apart $(python3 apart.py "y1_$n.npy" "y_$x.npy")"
      else echo "$n $t $wait FAILED $(tail -n 2 "$x.err" | tr '\n' ' ')"; fi
    done
  done
}
core=0
for spec in "$@"; do one $core "$spec" & core=$((core + 1)); done
wait
half=$((($# + 1) / 2))
many 0-15 16 "$@" & many 16-23 8 "$@" & many 24-27 4 "$@" &
many 28-29 2 "${@:1:half}" & many 30-31 2 "${@:half+1}" &
wait
