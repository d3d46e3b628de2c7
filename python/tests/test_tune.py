"""Tuning from Python: reports, stores, progress, interruption. Real kernels are built and run."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import squall
from processes import ended, program

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "gcc")) is None, reason="there is no C compiler"
)
MATMUL = "matmul m=64 n=64 k=64"


def test_a_report_says_what_was_found_and_the_store_keeps_it(tmp_path):
    store = tmp_path / "tuned.squall"
    events = []
    report = squall.tune(MATMUL, trials=6, store=store, progress=events.append)
    (task,) = report.tasks
    assert task["name"] == "matmul_64x64x64" and task["best_ns"] > 0
    assert report.save(tmp_path / "r.html").read_text().startswith("<!")
    assert "<iframe" in report._repr_html_() and "matmul" in repr(report)
    assert {e["event"] for e in events} >= {"opened", "task", "trial"}
    assert sum(e["event"] == "trial" for e in events) == sum(t["trials"] for t in report.tasks)
    known = squall.Store(store)
    columns = known.columns()
    assert len(columns["seconds"]) == len(known.records()) >= 6
    best = known.best()["matmul_64x64x64"]
    assert best["seconds"] == min(
        s
        for s, k in zip(columns["seconds"], columns["kind"])
        if s is not None and k == "trial"
    )
    # What is known is not measured again.
    again = squall.tune(MATMUL, trials=6, store=store)
    assert {c["configuration"] for c in known.records()} and again.tasks[0]["known"] >= 6


def test_errors_name_the_remedy(tmp_path):
    for source in ("no such operator m=1", str(tmp_path / "missing.onnx")):
        with pytest.raises(squall.Error) as caught:
            squall.tune(source, trials=1, store=tmp_path / "t.squall")
        assert caught.value.hint and caught.value.hint in str(caught.value)
    with pytest.raises(ValueError, match="target"):
        squall.tune(MATMUL, trials=1, target="abacus", store=tmp_path / "t.squall")
    with pytest.raises(squall.Error):
        squall.Store(tmp_path / "missing.squall").records()
    with pytest.raises(squall.Error):
        squall.predict(tmp_path / "missing.predictor", ["x"])


def test_the_interpreter_goes_on_meanwhile(tmp_path):
    ticks, done = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.01)

    ticking = threading.Thread(target=tick)
    ticking.start()
    began = time.monotonic()
    squall.tune(MATMUL, trials=4, store=tmp_path / "t.squall")
    done.set()
    ticking.join()
    assert ticks > 20 * (time.monotonic() - began)


def test_what_a_callback_raises_ends_the_run(tmp_path):
    class Enough(Exception):
        pass

    def stop(event):
        if event["event"] == "trial":
            raise Enough

    with pytest.raises(Enough) as caught:
        squall.tune(MATMUL, trials=500, store=tmp_path / "t.squall", progress=stop)
    assert 1 <= sum(t["trials"] for t in caught.value.report.tasks) < 500


def test_ctrl_c_ends_a_run_with_what_was_found(tmp_path):
    program = f"""
import os, signal, squall, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
def say(event):
    # print writes the word and the end of the line apart, and an interrupt comes between.
    if event["event"] == "trial": os.write(1, b"trial\\n")
try:
    squall.tune({MATMUL!r}, seconds=120, store={str(tmp_path / "t.squall")!r}, progress=say)
except KeyboardInterrupt as e:
    print("found", sum(t["trials"] for t in e.report.tasks), e.report.data["stop"], flush=True)
    sys.exit(7)
"""
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    for _ in range(3):
        assert run.stdout.readline().strip() == "trial"
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    rest = ended(run)
    took = time.monotonic() - began
    assert run.returncode == 7, rest
    last = rest.strip().splitlines()[-1].split()
    assert last[0] == "found" and int(last[1]) >= 3 and last[2] == "interrupted", last
    # A compiler is not waited for, and a kernel's timing takes less than this.
    assert took < 2, took


def test_two_processes_share_a_store(tmp_path):
    store = tmp_path / "shared.squall"
    program = f"import squall; squall.tune({MATMUL!r}, trials=5, seed=%d, store={str(store)!r})"
    runs = [subprocess.Popen([sys.executable, "-c", program % s]) for s in (1, 2)]
    assert [r.wait(timeout=300) for r in runs] == [0, 0]
    assert len(squall.Store(store).columns()["seconds"]) >= 6


def test_the_command_line_and_python_share_a_store(tmp_path):
    from test_docs import PROGRAM

    if PROGRAM is None:
        pytest.skip("there is no squall binary: cargo build, or set SQUALL")
    store = tmp_path / "shared.squall"
    squall.tune(MATMUL, trials=2, store=store)
    command = [PROGRAM, "tune", MATMUL, "--trials", "8", "--seed", "7", "--store", store]
    beside = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=tmp_path)
    counts = []
    while beside.poll() is None:
        squall.tune(MATMUL, trials=1, seed=len(counts), store=store)
        counts.append(len(squall.Store(store).columns()["seconds"]))
    assert beside.returncode == 0, beside.stderr.read()
    assert counts == sorted(counts) and len(squall.Store(store).columns()["seconds"]) >= 8
    assert len(squall.Store(store).best()) == 1


def test_tasks_of_an_input():
    listed = squall.tasks(MATMUL)
    assert listed["tasks"][0]["flop"] == 2 * 64**3 and listed["untuned"] == []
