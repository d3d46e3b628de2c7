"""Processes that tests start: none outlives its test."""

import os
import subprocess
from pathlib import Path

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
