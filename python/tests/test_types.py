"""The stub of the extension module says what is there, and the package's types hold."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import squall
from squall import _squall

PACKAGE = Path(squall.__file__).parent


def test_the_stub_names_what_the_module_has():
    tree = ast.parse((PACKAGE / "_squall.pyi").read_text())
    stub = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            stub[node.name] = [a.arg for a in node.args.args]
        elif isinstance(node, ast.ClassDef):
            stub[node.name] = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
    has = {n for n in dir(_squall) if not n.startswith("_")}
    assert has == {n for n in stub if not n.startswith("_")}
    for name, said in stub.items():
        found = getattr(_squall, name)
        if isinstance(said, list):
            text = found.__text_signature__
            given = [p.split("=")[0].strip() for p in text.strip("()").split(",")]
            assert [p for p in given if p] == said, name
        else:
            methods = {m for m in vars(found) if not m.startswith("_")}
            assert methods == {m for m in said if not m.startswith("_")}, name


def test_every_public_name_is_documented():
    for name in squall.__all__:
        thing = getattr(squall, name)
        assert name.startswith("__") or (thing.__doc__ or "").strip(), name


def test_pyright_accepts_the_package():
    pytest.importorskip("pyright")
    pyright = [sys.executable, "-m", "pyright"]
    if subprocess.run([*pyright, "--version"], capture_output=True).returncode:
        pytest.skip("pyright cannot fetch its program")
    # A file is checked where what it imports is there.
    needs = {"torch": "torch", "optuna": "optuna", "kernel_tuner": "kernel_tuner"}
    needs |= {"plots": "matplotlib", "_store": "pyarrow"}
    files = [*PACKAGE.glob("*.py"), *PACKAGE.glob("*.pyi")]
    there = [str(f) for f in files if f.stem not in needs or find_spec(needs[f.stem])]
    assert len(there) >= 9
    command = [*pyright, "--pythonpath", sys.executable, *there]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
