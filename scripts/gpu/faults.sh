#!/bin/bash
# A run of many trials on a GPU, a part of which fault: illegal addresses, traps, endless loops, more
# shared memory than there is, wrong results, and a runner that is killed from outside. Nothing may be
# lost and the run must end with a right winner.
#
#   scripts/gpu/faults.sh SQUALL [TRIALS] [FOLDER]      prints a table; exit 0 if all is as it should be
set -u
squall=$(realpath "$1") trials=${2:-1000} folder=${3:-$(mktemp -d)}
mkdir -p "$folder" && cd "$folder" || exit 2
cat > faults.cu <<'CU'
/* y = 2 x, unless it is told to do wrong. */
extern "C" __global__ void twice(int n, const float *x, float *y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
#if FAULT == 1
  ((volatile float *)y)[((long long)(i + 1) << 36) + SALT] = 0; /* an illegal address */
#elif FAULT == 2
  if (i == SALT) __trap();
#elif FAULT == 3
  while (clock64() != 0) {} /* for ever, which the compiler cannot see */
#elif FAULT == 4
  __shared__ float much[100000]; /* no device has that */
  much[i] = x[i];
  __syncthreads();
  y[i] = much[n - 1 - i];
#elif FAULT == 5
  if (i == SALT) return; /* one element is never written */
#endif
  if (i < n) y[i] = 2 * x[i];
}
CU
cat > faults.c <<'C'
void plain(int n, const float *x, float *y) {
  for (int i = 0; i < n; i++) y[i] = 2 * x[i];
}
C
cat > faults.toml <<'T'
name = "faults"
source = "faults.cu"
entry = "twice"
grid = ["n // BLOCK"]
block = ["BLOCK"]
constraints = ["FAULT in [0, 6, 7, 8] or SALT % 8 == 0", "FAULT != 3 or (SALT % 32 == 0 and BLOCK == 64)"]
argument = [
  { name = "n", type = "i32", role = "scalar", value = "n" },
  { name = "x", type = "f32", shape = ["n"] },
  { name = "y", type = "f32", role = "output", shape = ["n"] },
]
knob = [
  { name = "FAULT", values = [0, 1, 2, 3, 4, 5, 6, 7, 8] },
  { name = "SALT", range = [0, 127] },
  { name = "BLOCK", values = [64, 128] },
]
problem = [{ n = 1024 }]
reference = { source = "faults.c", entry = "plain" }
T
$squall tune faults.toml --trials "$trials" --target cuda --strategy random --store faults.squall --json > trials.json 2> log &
pid=$!
killed=0
# The child that runs kernels, and no other, is killed a few times, once there is something to lose.
while kill -0 $pid 2>/dev/null && [ "$(wc -l < trials.json)" -lt 20 ]; do sleep 0.2; done
for i in 1 2 3 4 5 6; do
  sleep 4
  kill -0 $pid 2>/dev/null || break
  for child in $(pgrep -P $pid); do
    if tr '\0' ' ' < /proc/$child/cmdline | grep -q ' gpu:'; then kill -9 "$child" && killed=$((killed + 1)); break; fi
  done
done
wait $pid
code=$?
$squall records show --store faults.squall --kind trial --json > stored.json
python3 - "$trials" "$code" "$killed" <<'P'
import collections, json, sys
trials, code, killed = map(int, sys.argv[1:])
heard = [json.loads(l) for l in open("trials.json")]
if not heard or "tasks" not in heard[-1]:
    print(f"exit {code}: no report; {len(heard)} trials heard, {len(stored) if (stored := json.load(open('stored.json'))['records']) else 0} stored; NOT as it should be")
    sys.exit(1)
report, heard = heard[-1], [h["trial"] for h in heard if "trial" in h]
stored = json.load(open("stored.json"))["records"]
table, good = collections.Counter(), code == 0
for t in heard:
    fault = dict(kv.split("=") for kv in t["configuration"].split(","))["FAULT"]
    table[fault, t["outcome"]] += 1
# Whose first kernel in a process was under way when we killed that.
by_us = collections.Counter(dict(kv.split("=") for kv in t["configuration"].split(","))["FAULT"] for t in heard if "killed by signal 9" in (t["detail"] or ""))
expected = {"0": "measured", "6": "measured", "7": "measured", "8": "measured", "1": "launch", "2": "launch", "3": "timeout", "4": "build", "5": "wrong_answer"}
for (fault, outcome), n in sorted(table.items()):
    right = expected[fault] == outcome or outcome == "launch" and by_us[fault] == n
    print(f"fault {fault}: {outcome:13} {n:5}  {'' if right else 'UNEXPECTED, expected ' + expected[fault]}")
    good &= right
winner = report["tasks"][0]["best"] or {}
print(f"exit {code}; {len(heard)} trials heard, {len(stored)} stored, runner killed {killed} times; winner {winner.get('configuration')}, {report['seconds']:.0f} s")
good &= len(heard) == len(stored) and {t["identity"] for t in heard} == {s["identity"] for s in stored}
good &= dict(kv.split("=") for kv in (winner.get("configuration") or "FAULT=1").split(","))["FAULT"] in "0678"
for t in heard:
    if expected[dict(kv.split("=") for kv in t["configuration"].split(","))["FAULT"]] != t["outcome"]:
        print(t["configuration"], t["outcome"], t["detail"])
print("as it should be" if good else "NOT as it should be")
sys.exit(0 if good else 1)
P
