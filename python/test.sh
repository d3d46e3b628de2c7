#!/usr/bin/env bash
# The Python package's tests, in a virtual environment below target/: builds the extension module,
# installs what tests use, runs pytest. Where Python, its venv module or the package index is
# missing it says so and passes: nothing of Squall needs Python. SQUALL_REQUIRE_PYTHON=1 makes that
# a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
  echo "python tests skipped: $1"
  [ "${SQUALL_REQUIRE_PYTHON:-}" != 1 ]
  exit
}

command -v python3 >/dev/null || skip "there is no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "python3 is older than 3.10"
folder=$PWD/target/python-tests
[ -x "$folder/bin/python" ] || python3 -m venv "$folder" 2>/dev/null || {
  rm -rf "$folder"
  skip "python3 cannot make a virtual environment (on Debian: apt-get install python3-venv)"
}
pip() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
pip 'maturin>=1.16,<2' pytest numpy || skip "pip reaches no package index"
# The adapters' tests skip themselves where these cannot be had.
pip kernel_tuner optuna || echo "python tests: without Kernel Tuner and Optuna"

PATH="$folder/bin:$PATH" VIRTUAL_ENV=$folder "$folder/bin/maturin" develop --quiet --locked
exec "$folder/bin/python" -m pytest -q python
