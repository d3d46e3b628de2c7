#!/usr/bin/env python3
"""ONNX's own backend tests through `squall check --test-data`, and onnxruntime's share beside it.

    python3 backend_tests.py SQUALL [--folder DIR] [--only PATTERN] [--jobs N] [--json OUT]
                             [--peer]       needs numpy and onnx; --peer onnxruntime too

The cases are those that the `onnx` package generates (onnx.backend.test.case.node). A case is in
scope if its operators are of the default domain and its tensors are float32, integers or booleans,
without training, strings, sequences, optional values, random outputs or other float types. A case
passes if `squall check` exits with 0, is wrong if it exits with 1 (outputs differ), and is refused
otherwise; the first line of the reason is kept. Exit code 1 if any answer in scope is wrong.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

PLAIN = {
    getattr(TensorProto, n)
    for n in "FLOAT BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64".split()
}
RANDOM = {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
RANDOM |= {"RandomUniformLike"}


def out_of_scope(case):
    """Why a case is out of scope; None where it is in scope."""
    graph = case.model.graph
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            return f"domain {node.domain}"
        if node.op_type in RANDOM and "seed" not in case.name:
            return f"random or training: {node.op_type}"
    if "training" in case.name or "gradient" in case.name.lower():
        return "training"
    for value in list(graph.input) + list(graph.output):
        if not value.type.HasField("tensor_type"):
            return "sequence, map or optional"
        if value.type.tensor_type.elem_type not in PLAIN:
            return "type " + TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    return None


def write(case, folder):
    """Writes a case in the form that ONNX publishes: model.onnx and test_data_set_0."""
    data = folder / case.name / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model, folder / case.name / "model.onnx")
    inputs, outputs = case.data_sets[0]
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, array in enumerate(arrays):
            tensor = array
            if not isinstance(array, TensorProto):
                tensor = numpy_helper.from_array(np.asarray(array), f"{kind}_{i}")
            (data / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


def ours(squall, case, folder):
    """(verdict, reason) of a case by `squall check`."""
    place = folder / case.name
    command = [squall, "check", place / "model.onnx", "--test-data", place / "test_data_set_0"]
    command += ["--rtol", str(case.rtol), "--atol", str(case.atol)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "refused", "no answer within 120 s"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    verdict = {0: "passed", 1: "wrong"}.get(done.returncode, "refused")
    if done.returncode < 0 or done.returncode == 101 or "panicked" in done.stderr:
        verdict = "crashed"
    return verdict, lines[0] if lines and verdict != "passed" else ""


def peer(case):
    """The same by onnxruntime."""
    import onnxruntime

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        inputs, outputs = case.data_sets[0]
        feed = {i.name: np.asarray(a) for i, a in zip(session.get_inputs(), inputs)}
        got = session.run(None, feed)
        for g, o in zip(got, outputs):
            np.testing.assert_allclose(g, o, rtol=case.rtol, atol=case.atol)
        return "passed", ""
    except AssertionError:
        return "wrong", "outputs differ"
    except Exception as e:  # whatever the library raises is its answer
        return "refused", str(e).splitlines()[0][:150]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("squall")
    parser.add_argument("--folder", type=Path, help="where the cases are written [default: temporary]")
    parser.add_argument("--only", default="*", help="cases whose name matches")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write every verdict there")
    parser.add_argument("--peer", action="store_true", help="run onnxruntime, too")
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    cases = [c for c in collect_testcases(None) if fnmatch.fnmatch(c.name, a.only)]
    scope = {c.name: out_of_scope(c) for c in cases}
    inside = [c for c in cases if scope[c.name] is None]
    print(f"{len(cases)} cases, {len(inside)} in scope")
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or Path(temporary)
        for c in inside:
            write(c, folder)
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            work = {pool.submit(ours, a.squall, c, folder): c for c in inside}
            for done in concurrent.futures.as_completed(work):
                results[work[done].name] = {"squall": done.result()}
    if a.peer:
        for c in inside:
            results[c.name]["onnxruntime"] = peer(c)
    for who in ("squall", "onnxruntime") if a.peer else ("squall",):
        count = collections.Counter(r[who][0] for r in results.values())
        share = 100 * count["passed"] / max(1, len(inside))
        print(f"{who}: {share:.1f} % pass;", ", ".join(f"{n} {k}" for k, n in count.most_common()))
    reasons = collections.Counter(r["squall"][1] for r in results.values() if r["squall"][0] == "refused")
    for reason, n in reasons.most_common(40):
        print(f"  {n:4} {reason[:150]}")
    bad = sorted(n for n, r in results.items() if r["squall"][0] in ("wrong", "crashed"))
    for name in bad:
        print(f"  {results[name]['squall'][0]}: {name}: {results[name]['squall'][1][:120]}")
    if a.json:
        table = {"scope": scope, "results": {n: results[n] for n in sorted(results)}}
        a.json.write_text(json.dumps(table, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
