#!/usr/bin/env bash
# Wheels for x86-64 and aarch64 Linux in target/wheels, one for every Python from 3.10. Linked by
# zig (from PyPI) against an old C library, so that they install on distributions from 2014 on.
# Needs Rust with rustup, Python and the package index. An argument chooses one: wheels.sh aarch64.
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$PWD/target/wheel-tools
[ -x "$folder/bin/python" ] || python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'maturin>=1.16,<2' ziglang
for machine in ${1:-x86_64 aarch64}; do
  target=$machine-unknown-linux-gnu
  rustup target add "$target"
  PATH="$folder/bin:$PATH" "$folder/bin/maturin" build --release --locked --zig --target "$target" \
    --out target/wheels
done
ls -l target/wheels
