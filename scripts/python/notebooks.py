#!/usr/bin/env python3
"""Runs the notebooks of examples/notebooks and keeps their output in them.

    notebooks.py [NOTEBOOK.ipynb ..]      needs: pip install nbclient ipykernel matplotlib

Each runs in a folder of its own with the repository's small model in it. Output that differs from
machine to machine (times) is what this machine says.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]


def main():
    named = [Path(a) for a in sys.argv[1:]]
    for path in named or sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("small_net.onnx", "small_net_input.npy"):
                shutil.copy(ROOT / "examples" / name, folder)
            client = NotebookClient(
                notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}
            )
            client.execute()
        for cell in notebook.cells:
            # When a cell ran says nothing of the example.
            cell.metadata.pop("execution", None)
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)
        print(f"{path}: {sum(c.cell_type == 'code' for c in notebook.cells)} cells")


if __name__ == "__main__":
    main()
