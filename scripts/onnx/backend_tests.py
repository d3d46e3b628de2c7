#!/usr/bin/env python3
"""ONNX's own backend tests through `squall check --test-data`, and onnxruntime's share beside it.

    python3 scripts/onnx/backend_tests.py target/release/squall --peer
    python3 scripts/onnx/backend_tests.py SQUALL --only 'test_gather*' --jobs 4 --json verdicts.json
    python3 scripts/onnx/backend_tests.py SQUALL --stored --only 'test_operator_*'

Needs numpy and onnx; --peer onnxruntime too. The cases are those that the `onnx` package generates
(onnx.backend.test.case.node); --stored adds the small models that it brings along as files, exports
of older versions among them (pytorch-converted, pytorch-operator, simple). A case is in scope if its operators are of the default domain and its
tensors are float32, integers or booleans (of quantisation also integers of 4 and 2 bits), without training, strings, sequences, optional values,
random outputs or other float types. A case passes if `squall check` says so, is wrong if it says
that outputs differ, crashed if it died of a signal or panicked, and is refused otherwise; the first
line of the reason is kept. The exit code is 1 if any answer in scope is wrong or crashed,
or if fewer than --least percent pass.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, numpy_helper

TYPES = "FLOAT BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64".split()
IN_SCOPE = {getattr(TensorProto, name) for name in TYPES}
# Integers of less than a byte are those of quantised tensors.
PACKED = {getattr(TensorProto, n) for n in "INT4 UINT4 INT2 UINT2".split() if hasattr(TensorProto, n)}
OF_PACKED = {"QuantizeLinear", "DequantizeLinear"}
RANDOM = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
# Longer than any case takes, the first compilation of the runtime included.
PATIENCE = 120


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
    for value in [*graph.input, *graph.output]:
        if not value.type.HasField("tensor_type"):
            return "sequence, map or optional"
        kind = value.type.tensor_type.elem_type
        is_packed = kind in PACKED and all(n.op_type in OF_PACKED for n in graph.node)
        if kind not in IN_SCOPE and not is_packed:
            return "type " + TensorProto.DataType.Name(kind)
    return None


def stored():
    """The small models that the package brings along as files, in the form of generated cases."""
    from onnx.backend.test.loader import load_model_tests

    def tensors(folder, kind):
        files = [folder / f"{kind}_{i}.pb" for i in range(len(list(folder.glob(f"{kind}_*.pb"))))]
        return [TensorProto.FromString(f.read_bytes()) for f in files]

    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for case in load_model_tests(kind=kind):
            place = Path(case.model_dir)
            case.model = onnx.load(place / "model.onnx")
            data = place / "test_data_set_0"
            try:
                case.data_sets = [(tensors(data, "input"), tensors(data, "output"))]
            except DecodeError:  # a sequence or an optional value
                continue
            yield case


def write(case, folder):
    """Writes a case in the form that ONNX publishes: model.onnx and test_data_set_0."""
    data = folder / case.name / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    onnx.save(case.model, folder / case.name / "model.onnx")
    inputs, outputs = case.data_sets[0]
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for i, array in enumerate(arrays):
            if not isinstance(array, TensorProto):
                array = numpy_helper.from_array(np.asarray(array), f"{kind}_{i}")
            (data / f"{kind}_{i}.pb").write_bytes(array.SerializeToString())


def ours(squall, case, folder):
    """(verdict, reason) of a case by `squall check`."""
    place = folder / case.name
    command = [squall, "check", place / "model.onnx", "--test-data", place / "test_data_set_0"]
    command += ["--rtol", str(case.rtol), "--atol", str(case.atol), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "refused", f"no answer within {PATIENCE} s"
    if done.returncode == 0:
        return "passed", ""
    said = [line for line in done.stderr.splitlines() if line.startswith("error")]
    reason = (said or done.stderr.splitlines() or [""])[0]
    if done.returncode < 0 or done.returncode == 101 or "panicked" in done.stderr:
        return "crashed", reason
    # Without an answer on stdout it is an error, with one a comparison.
    answer = json.loads(done.stdout) if done.stdout.strip() else {"right": None}
    if answer["right"] is not False:
        return "refused", reason
    return "wrong", "; ".join(answer["differences"]) or f"{answer['wrong']} elements differ"


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
        array = lambda a: numpy_helper.to_array(a) if isinstance(a, TensorProto) else np.asarray(a)
        feed = {i.name: array(a) for i, a in zip(session.get_inputs(), inputs)}
        for got, want in zip(session.run(None, feed), map(array, outputs)):
            np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol)
        return "passed", ""
    except AssertionError:
        return "wrong", "outputs differ"
    except Exception as e:  # whatever the library raises is its answer
        return "refused", str(e).splitlines()[0][:150]


def run(cases, a, folder):
    """The verdicts of all cases, by name and by who gave them."""
    for case in cases:
        write(case, folder)
    results, start = {}, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        work = {pool.submit(ours, a.squall, case, folder): case for case in cases}
        for n, done in enumerate(concurrent.futures.as_completed(work), 1):
            results[work[done].name] = {"squall": done.result()}
            if n % 100 == 0:
                print(f"{n} of {len(cases)} in {time.monotonic() - start:.0f} s", file=sys.stderr)
    if a.peer:
        for case in cases:
            results[case.name]["onnxruntime"] = peer(case)
    return results


def shares(results, who):
    """Prints who passed how many; the share in percent."""
    count = collections.Counter(r[who][0] for r in results.values())
    share = 100 * count["passed"] / max(1, len(results))
    kinds = ", ".join(f"{n} {kind}" for kind, n in count.most_common())
    print(f"{who}: {share:.1f} % pass; {kinds}")
    return share


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("squall", help="the program")
    parser.add_argument("--folder", type=Path, help="where the cases are written [temporary]")
    parser.add_argument("--only", default="*", help="cases whose name matches")
    parser.add_argument("--every", type=int, default=1, help="only each N-th of them")
    parser.add_argument("--jobs", type=int, default=2, help="cases at once [2]")
    parser.add_argument("--json", type=Path, help="write every verdict there")
    parser.add_argument("--peer", action="store_true", help="run onnxruntime, too")
    parser.add_argument("--stored", action="store_true", help="the models that lie as files, too")
    parser.add_argument("--least", type=float, default=0, help="percent that must pass [0]")
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases

    cases = [*collect_testcases(None), *(stored() if a.stored else [])]
    cases = [c for c in cases if fnmatch.fnmatch(c.name, a.only)]
    scope = {c.name: out_of_scope(c) for c in cases}
    inside = [c for c in cases if scope[c.name] is None][:: a.every]
    print(f"{len(cases)} cases, {len(inside)} in scope are run")
    with tempfile.TemporaryDirectory() as temporary:
        results = run(inside, a, a.folder or Path(temporary))
    share = shares(results, "squall")
    if a.peer:
        shares(results, "onnxruntime")
    refused = [r["squall"][1] for r in results.values() if r["squall"][0] == "refused"]
    for reason, n in collections.Counter(refused).most_common(40):
        print(f"  {n:4} {reason[:150]}")
    bad = sorted(n for n, r in results.items() if r["squall"][0] in ("wrong", "crashed"))
    for name in bad:
        verdict, reason = results[name]["squall"]
        print(f"  {verdict}: {name}: {reason[:120]}")
    if a.json:
        table = {"scope": scope, "results": {n: results[n] for n in sorted(results)}}
        a.json.write_text(json.dumps(table, indent=1) + "\n")
    return 1 if bad or share < a.least else 0


if __name__ == "__main__":
    sys.exit(main())
