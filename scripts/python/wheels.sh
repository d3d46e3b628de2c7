#!/usr/bin/env bash
# Wheels for x86-64 and aarch64 Linux in target/wheels, one for every Python from 3.10. Linked by
# zig (from PyPI) against an old C library, so that they install on distributions from 2014 on.
# Each is then imported and searches a space: in a fresh environment, the other machine's under
# qemu-aarch64 with a Python of Debian's. Needs Rust with rustup, Python and the package index;
# what cannot be tried is named. An argument chooses one: wheels.sh aarch64.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$PWD/target/wheel-tools
wheels=$PWD/target/wheels
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'maturin>=1.16,<2' ziglang

try='
import platform, squall
space = squall.Space({"x": range(1, 65), "y": [1, 2, 4]}, ["x * y <= 64"])
best = squall.Study(space, trials=60, seed=1).optimize(lambda c: 1.0 + abs(c["x"] - 16) + c["y"], 60)
assert best[1] <= 4.0, best
print("imported on", platform.machine(), platform.python_version(), squall.__version__, best)
'

here() {
  rm -rf "$folder/try" && python3 -m venv "$folder/try"
  "$folder/try/bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$1"
  "$folder/try/bin/python" -c "$try"
}

# Packages of Debian's for ARM, unpacked beside the tools; nothing of the system is changed.
arm_root() {
  local apt=$folder/arm root=$folder/arm/root all python
  [ -e "$root/done" ] && return
  rm -rf "$apt" && mkdir -p "$apt"/{state/lists/partial,cache/archives/partial} "$root"
  : >"$apt/state/status"
  local o=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::Cache=$apt/cache"
    -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/state/status" -o APT::Sandbox::User=root)
  apt-get -qq "${o[@]}" update || return 1
  python=$(apt-cache "${o[@]}" depends python3-minimal | grep -o 'python3\.[0-9]*-minimal' | head -n 1)
  all=$(apt-cache "${o[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts \
    --no-breaks --no-replaces --no-enhances "${python%-minimal}" | grep -E '^[a-z]')
  # Of a package that others stand for, there is none: each is asked for alone.
  (cd "$apt" && for p in $all; do apt-get -qq "${o[@]}" download "$p" 2>/dev/null || true; done)
  for deb in "$apt"/*.deb; do dpkg -x "$deb" "$root"; done
  ln -s "usr/bin/${python%-minimal}" "$root/python" && touch "$root/done"
}

on_arm() {
  local qemu
  qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) ||
    { echo "not imported: there is no qemu-aarch64 (on Debian: apt-get install qemu-user)"; return; }
  { command -v apt-get && command -v dpkg && arm_root; } >/dev/null 2>&1 ||
    { echo "not imported: apt-get gets no Python for ARM"; return; }
  rm -rf "$folder/arm/site" && "$folder/bin/python" -m zipfile -e "$1" "$folder/arm/site"
  local root=$folder/arm/root
  PYTHONPATH=$folder/arm/site PYTHONHOME=$root/usr "$qemu" -L "$root" "$root/python" -c "$try"
}

for machine in ${1:-x86_64 aarch64}; do
  target=$machine-unknown-linux-gnu
  rustup target add "$target"
  PATH="$folder/bin:$PATH" "$folder/bin/maturin" build --release --locked --zig --target "$target" \
    --out "$wheels"
  wheel=$(ls -t "$wheels"/*_"$machine".whl | head -n 1)
  if [ "$machine" = "$(uname -m)" ]; then here "$wheel"; elif [ "$machine" = aarch64 ]; then on_arm "$wheel"; fi
done
ls -l "$wheels"
