"""Squall's search inside Kernel Tuner, on caches of measured spaces (simulation mode)."""

import json
import random

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
