"""Squall's search inside Kernel Tuner, on caches of measured spaces (simulation mode)."""

import itertools
import json
import random
import subprocess

import pytest

kernel_tuner = pytest.importorskip("kernel_tuner")
import squall  # noqa: E402
from squall.kernel_tuner import SquallStrategy  # noqa: E402

PARAMETERS = {"block_size_x": [32, 64, 128, 256, 512], "tile": [1, 2, 4, 8], "pad": [0, 1]}


def cost(block, tile, pad):
    return 1.0 + abs(block - 128) / 64 + abs(tile - 4) * 0.3 + pad * 0.1


@pytest.fixture
def cache(tmp_path):
    """A cache file in Kernel Tuner's form; a tenth of the configurations failed."""
    rng = random.Random(1)
    entries = {}
    for block in PARAMETERS["block_size_x"]:
        for tile in PARAMETERS["tile"]:
            for pad in PARAMETERS["pad"]:
                if block * tile > 2048:
                    continue
                values = {"block_size_x": block, "tile": tile, "pad": pad}
                failed = rng.random() < 0.1
                time = "RuntimeFailedConfig" if failed else cost(block, tile, pad)
                entries[f"{block},{tile},{pad}"] = {
                    **values,
                    "time": time,
                    "times": [] if failed else [time] * 7,
                    "compile_time": 10.0,
                    "verification_time": 0,
                    "benchmark_time": 5.0,
                    "strategy_time": 0,
                    "framework_time": 0,
                    "timestamp": "2026-11-23T00:00:00+00:00",
                }
    path = tmp_path / "cache.json"
    path.write_text(
        json.dumps(
            {
                "device_name": "made up",
                "kernel_name": "made_up",
                "problem_size": 1024,
                "tune_params_keys": list(PARAMETERS),
                "tune_params": PARAMETERS,
                "objective": "time",
                "cache": entries,
            }
        )
    )
    return path, entries


def test_kernel_tuner_runs_the_strategy(cache):
    path, entries = cache
    results, env = kernel_tuner.tune_kernel(
        "made_up",
        "__global__ void made_up() {}",
        1024,
        [],
        PARAMETERS,
        restrictions=["block_size_x * tile <= 2048"],
        strategy=SquallStrategy(seed=3),
        strategy_options={"max_fevals": 20},
        simulation_mode=True,
        cache=str(path),
        lang="CUDA",
        verbose=False,
        quiet=True,
    )
    keys = [",".join(str(r[k]) for k in PARAMETERS) for r in results]
    assert len(keys) == len(set(keys)) == 20
    assert all(k in entries for k in keys)
    times = [r["time"] for r in results if isinstance(r["time"], float)]
    least = min(e["time"] for e in entries.values() if isinstance(e["time"], float))
    assert min(times) == least == env["best_config"]["time"]


def test_the_search_ends_when_the_space_does(cache):
    path, entries = cache
    results, _ = kernel_tuner.tune_kernel(
        "made_up",
        "__global__ void made_up() {}",
        1024,
        [],
        PARAMETERS,
        restrictions=["block_size_x * tile <= 2048"],
        strategy=SquallStrategy(),
        simulation_mode=True,
        cache=str(path),
        lang="CUDA",
        quiet=True,
    )
    assert len(results) == len(entries)
    assert squall.strategies()


def test_rates_are_to_be_large_and_several_objectives_are_refused(cache):
    path, entries = cache
    data = json.loads(path.read_text())
    for entry in data["cache"].values():
        good = isinstance(entry["time"], float)
        entry["GFLOP/s"] = 1e3 / entry["time"] if good else entry["time"]
    path.write_text(json.dumps(data))
    given = dict(
        kernel_name="made_up", kernel_source="__global__ void made_up() {}", problem_size=1024,
        arguments=[], tune_params=PARAMETERS, restrictions=["block_size_x * tile <= 2048"],
        strategy=SquallStrategy(seed=1), strategy_options={"max_fevals": 24}, simulation_mode=True,
        cache=str(path), lang="CUDA", quiet=True,
    )
    results, env = kernel_tuner.tune_kernel(
        **given, objective="GFLOP/s", objective_higher_is_better=True
    )
    rates = [e["GFLOP/s"] for e in data["cache"].values() if isinstance(e["GFLOP/s"], float)]
    assert len(results) == 24 and env["best_config"]["GFLOP/s"] == max(rates)
    with pytest.raises(ValueError, match="one objective, not 2"):
        kernel_tuner.tune_kernel(**given, objectives={"time": False, "GFLOP/s": True})


def test_costs_of_any_sign_keep_their_order():
    from squall.kernel_tuner import _outcome

    for higher, costs in [(False, [-5.0, -1.0, 0.0, 1e-9, 3.0]), (True, [-9.0, -0.1, 0.0])]:
        told = [_outcome(c, higher) for c in costs]
        assert all(t > 0 for t in told) and told == sorted(told) and len(set(told)) == len(told)
    assert isinstance(_outcome(1.7976931348623157e308, False), squall.Failed)


def test_a_run_tries_what_squall_replay_tries(tmp_path):
    """So both score the same: neither order of values, nor failures, nor counting differ."""
    from test_docs import PROGRAM

    if PROGRAM is None:
        pytest.skip("there is no squall binary: cargo build, or set SQUALL")
    parameters = {
        "block": [256, 32, 64, 128, 16, 512, 48], "tile": [1, 2, 3, 4, 6, 8], "fixed": [7],
        "mode": ["row", "tile"], "share": [0.5, 0.25, 1.0], "pad": [0, 1],
    }
    rng, entries = random.Random(3), {}
    for values in itertools.product(*parameters.values()):
        c = dict(zip(parameters, values))
        if c["block"] * c["tile"] > 1024 or (c["mode"] == "tile" and c["pad"]):
            continue
        time = cost(c["block"], c["tile"], c["pad"]) * (1.2 if c["mode"] == "row" else c["share"])
        failed = rng.random() < 0.1
        entries[",".join(map(str, values))] = {
            **c, "time": "RuntimeFailedConfig" if failed else time, "times": [time],
            "compile_time": 10.0, "verification_time": 0, "benchmark_time": 5.0,
            "strategy_time": 0, "framework_time": 0, "timestamp": "2026-11-23T00:00:00+00:00",
        }
    path = tmp_path / "made_up.json"
    head = {
        "device_name": "made up", "kernel_name": "made_up", "problem_size": 1024,
        "tune_params_keys": list(parameters), "tune_params": parameters, "objective": "time",
    }
    path.write_text(json.dumps({**head, "cache": entries}))
    command = [PROGRAM, "replay", path, "--seeds", "3", "--evaluations", "150", "--traces", "t.jsonl"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    replayed = {line["seed"]: line["trace"] for line in lines}
    for seed in range(3):
        results, _ = kernel_tuner.tune_kernel(
            "made_up", "__global__ void made_up() {}", 1024, [], parameters,
            restrictions=["block * tile <= 1024", "mode == 'row' or pad == 0"],
            strategy=SquallStrategy(seed=seed), strategy_options={"max_fevals": 150},
            simulation_mode=True, cache=str(path), lang="CUDA", quiet=True,
        )
        assert [",".join(str(r[n]) for n in parameters) for r in results] == replayed[seed]
