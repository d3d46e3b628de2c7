#!/bin/bash
# Networks on many threads, for a machine of 16 cores: each model is tuned for so many seconds at 16, 8, 4
# and 2 threads, then timed, where every inference is compared with the first bit by bit, with both ways
# of waiting; its output is compared with that of one thread. Run in the repository root, with the release
# binary in carry/squall: scripts/many_threads.sh SECONDS MODEL[:DIM=N]..
S=$PWD/carry/squall; seconds=$1; shift
cd /tmp
cat > cmp.py <<'P'
import sys,struct,ast
def npy(p):
    b=open(p,'rb').read(); n=struct.unpack('<H',b[8:10])[0]; h=ast.literal_eval(b[10:10+n].decode())
    d=b[10+n:]; return struct.unpack('<%df'%(len(d)//4),d)
a,b=npy(sys.argv[1]),npy(sys.argv[2]); m=max(abs(x) for x in a) or 1
print('%.2e'%(max(abs(x-y) for x,y in zip(a,b))/m))
P
for spec in "$@"; do
  m=${spec%%:*}; dims=$(echo "$spec" | tr ':' '\n' | tail -n +2 | sed 's/^/--dim /' | tr '\n' ' ')
  n=$(basename $m .onnx)
  timeout 100 $S bench $OLDPWD/$m $dims --threads 1 --seconds 0.5 --output y1_$n.npy > b1.txt 2>&1 || { echo "$n 1 FAILED $(tail -n 2 b1.txt | tr '\n' ' ')"; continue; }
  for t in 16 8 4 2; do
    timeout 120 $S tune $OLDPWD/$m $dims --threads $t --seconds $seconds --store $n.$t.squall > t.txt 2>&1
    for wait in passive active; do
    if OMP_WAIT_POLICY=$wait timeout 120 $S bench $OLDPWD/$m $dims --threads $t --seconds 2.5 --store $n.$t.squall --output y_$n.npy --json > b.txt 2> e.txt; then
      echo "$n $t $wait $(python3 -c "import json;d=json.loads(open('b.txt').read().strip().splitlines()[-1]);print(d.get('inferences'),d.get('median_ns'),d.get('best_ns'))") apart $(python3 cmp.py y1_$n.npy y_$n.npy)"
    else echo "$n $t $wait FAILED $(tail -n 2 e.txt | tr '\n' ' ')"; fi
    done
  done
done
