"""Networks on a GPU: on a real one where there is one, else on the emulated one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
from processes import emulated  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "gcc")) is None or shutil.which("make") is None,
    reason="there is no C compiler, or no make",
)


def test_networks_on_a_gpu(tmp_path):
    # A process of its own, for an emulated driver is one of the whole process.
    gpu = {} if shutil.which("nvidia-smi") else emulated(tmp_path)
    program = Path(__file__).with_name("gpu_network.py")
    ran = subprocess.run(
        [sys.executable, program], env={**os.environ, **gpu}, capture_output=True, text=True
    )
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
