"""Processes that tests start: none outlives its test."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def program():
    """The command line's binary; none where nothing was built."""
    known = [os.environ.get("SQUALL"), ROOT / "target/debug/squall", ROOT / "target/release/squall"]
    return next((Path(p) for p in known if p and Path(p).exists()), None)


def ended(run, seconds=60):
    """The rest of what a process prints, once it has ended; one that does not end is killed."""
    try:
        return run.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
        raise


def emulated(folder):
    """The variables with which an emulated GPU is there, whose library is built in a folder."""
    source = ROOT / "crates/measure/tests/emulator"
    if not source.is_dir() or shutil.which("g++") is None:
        pytest.skip("kernels in CUDA are emulated by g++, which is not there")
    library = folder / "emulated.so"
    cc = ["cc", "-shared", "-fPIC", "-O1", "-w", "-o", library, source / "driver.c", "-ldl"]
    subprocess.run(cc, check=True)
    names = ("SQUALL_LIBCUDA", "SQUALL_NVML", "SQUALL_NVRTC")
    return {**{n: str(library) for n in names}, "EMULATED_HEADER": str(source / "device.h")}
