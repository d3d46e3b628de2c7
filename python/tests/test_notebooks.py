"""The notebooks' cells run, in order, in a folder with the small model."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 3 or not (ROOT / "examples").is_dir()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[p.stem for p in NOTEBOOKS])
def test_a_notebook_runs_and_has_its_output(path, tmp_path):
    if shutil.which(os.environ.get("CC", "gcc")) is None:
        pytest.skip("there is no C compiler")
    pytest.importorskip("numpy")
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    # What a cell ends with is shown by notebooks; it was shown when the notebook was kept.
    ends = [isinstance(ast.parse("".join(c["source"])).body[-1], ast.Expr) for c in cells]
    assert all(c["outputs"] for c, shown in zip(cells, ends) if shown), "run scripts/python/notebooks.py"
    if any("squall.plots" in "".join(c["source"]) for c in cells):
        pytest.importorskip("matplotlib")
    for name in ("small_net.onnx", "small_net_input.npy"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    program = "\n".join("".join(c["source"]) for c in cells)
    env = {**os.environ, "MPLBACKEND": "Agg"}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
