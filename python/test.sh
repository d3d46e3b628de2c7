#!/usr/bin/env bash
# The Python package's tests, in a virtual environment below target/: installs what tests use, builds
# the extension module, runs pytest. Where Python, its venv module or the package index is
# missing it says so and passes: nothing of Squall needs Python. SQUALL_REQUIRE_PYTHON=1 makes that
# a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
  echo "python tests skipped: $1"
  [ "${SQUALL_REQUIRE_PYTHON:-}" != 1 ]
  exit
}

command -v cargo >/dev/null || skip "there is no cargo"
command -v python3 >/dev/null || skip "there is no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "python3 is older than 3.10"
folder=$PWD/target/python-tests
[ -x "$folder/bin/python" ] || python3 -m venv "$folder" 2>/dev/null || {
  rm -rf "$folder"
  skip "python3 cannot make a virtual environment (on Debian: apt-get install python3-venv)"
}
pip() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip pytest numpy || skip "pip reaches no package index"
# Tests of what needs these skip themselves where they cannot be had. torch is used where it is
# there already: it has gigabytes.
pip kernel_tuner optuna || echo "python tests: without Kernel Tuner and Optuna"
pip pandas matplotlib tqdm || echo "python tests: without pandas, matplotlib and tqdm"

# The extension as the workspace's tests build it: of what `cargo test --workspace` has built nothing
# is built again. (maturin would build every dependency with features of its own.)
PYO3_BUILD_EXTENSION_MODULE=1 cargo build --quiet --workspace --locked --lib --bins --tests
cp "${CARGO_TARGET_DIR:-target}/debug/lib_squall.so" python/squall/_squall.abi3.so
export PYTHONPATH=$PWD/python
exec "$folder/bin/python" -m pytest -q -rs python "$@"
