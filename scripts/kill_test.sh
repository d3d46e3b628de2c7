#!/usr/bin/env bash
# Kills `squall tune` at random moments and checks that no trial it reported is missing from the
# store, that the store opens each time, and that no resumed run repeats a trial.
#   scripts/kill_test.sh [KILLS=50] [OPERATOR LINE] ; SQUALL names the binary.
set -euo pipefail
kills=${1:-50}
line=${2:-"matmul m=64 n=64 k=64"}
root=$(cd "$(dirname "$0")/.." && pwd)
squall=${SQUALL:-$root/target/release/squall}
[ -x "$squall" ] || { echo "error: no binary $squall (cargo build --release, or set SQUALL)" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
identities() { grep -o '"identity":"[0-9a-f]*"' "$1" | cut -d'"' -f4 || true; }
: > "$work/reported"
for i in $(seq "$kills"); do
  "$squall" tune "$line" --trials 1000000 --store "$work/store" --report "$work/report.html" --json > "$work/out" 2> "$work/err" &
  pid=$!
  # From "while it starts" to "well into the search".
  sleep "$(awk -v r=$RANDOM 'BEGIN { printf "%.3f", 0.05 + r / 32768 * 8 }')"
  kill -9 "$pid" 2> /dev/null || { echo "error: it ended by itself:" >&2; cat "$work/err" >&2; exit 1; }
  wait "$pid" 2> /dev/null || true
  identities "$work/out" >> "$work/reported"
  if [ -e "$work/store" ]; then
    "$squall" records show --kind trial --json --store "$work/store" > "$work/shown"
    identities "$work/shown" | sort > "$work/kept"
  else
    : > "$work/kept"
  fi
  missing=$(sort -u "$work/reported" | comm -23 - "$work/kept" | wc -l)
  echo "kill $i: $(wc -l < "$work/reported") reported, $(wc -l < "$work/kept") kept, $missing missing"
  [ "$missing" -eq 0 ] || exit 1
done
repeated=$(sort "$work/reported" | uniq -d | wc -l)
[ "$repeated" -eq 0 ] || { echo "error: $repeated trials were made twice" >&2; exit 1; }
echo "$kills kills, $(wc -l < "$work/reported") trials reported, none missing, none repeated"
