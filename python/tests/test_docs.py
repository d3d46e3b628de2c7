"""The pages for users: every command and every Python block in them runs, in the order of the page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import program

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
PROGRAM = program()
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.M | re.S)

pytestmark = [
    pytest.mark.skipif(not GUIDE.is_dir(), reason="the pages are not there"),
    pytest.mark.skipif(
        shutil.which(os.environ.get("CC", "gcc")) is None or shutil.which("make") is None,
        reason="there is no C compiler, or no make",
    ),
]


@pytest.mark.parametrize("page", sorted(p.name for p in GUIDE.glob("*.md")))
def test_blocks_of_a_page_run(page, tmp_path):
    pytest.importorskip("numpy")
    blocks = BLOCK.findall((GUIDE / page).read_text())
    if any(kind == "sh" for kind, _ in blocks) and PROGRAM is None:
        pytest.skip("there is no squall binary: cargo build, or set SQUALL")
    for name in ("small_net.onnx", "small_net_input.npy"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    path = f"{PROGRAM.parent if PROGRAM else ''}{os.pathsep}{os.environ['PATH']}"
    for kind, text in blocks:
        command = ["bash", "-euo", "pipefail", "-c"] if kind == "sh" else [sys.executable, "-c"]
        ran = subprocess.run(
            [*command, text], cwd=tmp_path, env={**os.environ, "PATH": path}, text=True,
            capture_output=True,
        )
        assert ran.returncode == 0, f"{page}:\n{text}\n{ran.stdout}\n{ran.stderr}"


def test_every_page_is_in_the_book_and_links_lead_somewhere():
    docs = ROOT / "docs"
    summary = (docs / "SUMMARY.md").read_text()
    listed = set(re.findall(r"\]\(([^)]+\.md)\)", summary))
    there = {str(p.relative_to(docs)) for p in docs.rglob("*.md") if "decisions" not in p.parts}
    assert listed == there - {"SUMMARY.md"}
    for page in [docs / name for name in listed]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_book_is_built_where_mdbook_is_there(tmp_path):
    if shutil.which("mdbook") is None:
        pytest.skip("there is no mdbook")
    ran = subprocess.run(
        ["mdbook", "build", str(ROOT / "docs"), "-d", str(tmp_path)], capture_output=True, text=True
    )
    assert ran.returncode == 0 and "ERROR" not in ran.stderr, ran.stderr
    assert (tmp_path / "guide" / "kernel.html").exists()


def test_the_citation_has_the_version_of_the_package():
    text = (ROOT / "CITATION.cff").read_text()
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
    assert re.search(rf"^version: {re.escape(version)}$", text, re.M)
