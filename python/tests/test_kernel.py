"""`tune_kernel`: kernels of the user's own with Kernel Tuner's arguments, in C here, and in CUDA on
an emulated GPU.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
import squall  # noqa: E402
from processes import emulated, ended  # noqa: E402

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "gcc")) is None, reason="there is no C compiler"
)

ADD = """
#include <omp.h>
typedef float vfloat __attribute__ ((vector_size (vecsize*4)));

extern "C" float add(vfloat *c, vfloat *a, vfloat *b, int n) {
    double start = omp_get_wtime();
    int chunk = n / (vecsize * nthreads);
    #pragma omp parallel num_threads(nthreads)
    {
        int offset = omp_get_thread_num() * chunk;
        for (int i = offset; i < offset + chunk; i++) c[i] = a[i] + b[i];
    }
    return (float)((omp_get_wtime() - start) * 1e3);
}
"""
PRODUCT = """
#define WIDTH 64
void product(float *C, const float *A, const float *B) {
    for (int ii = 0; ii < WIDTH; ii += tile)
        for (int jj = 0; jj < WIDTH; jj += block_size_x)
            for (int i = ii; i < ii + tile; i++)
                for (int j = jj; j < jj + block_size_x; j++) {
                    float sum = 0;
                    for (int k = 0; k < WIDTH; k++) sum += A[i * WIDTH + k] * B[k * WIDTH + j];
                    C[i * WIDTH + j] = sum;
                }
}
"""


def vectors(n=1 << 12, seed=1):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n).astype(np.float32), rng.normal(size=n).astype(np.float32)
    return a, b, [np.zeros_like(a), a, b, np.int32(n)]


def matrices():
    rng = np.random.default_rng(2)
    return [rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2)]


def test_a_kernel_written_for_a_cpp_compiler_with_openmp():
    a, b, args = vectors()
    parameters = {"nthreads": [1, 2], "vecsize": [1, 4, 8]}
    results, env = squall.tune_kernel(
        "add", ADD, len(a), args, parameters,
        answer=[a + b, None, None], compiler_options=["-fopenmp", "-O3"], quiet=True,
    )
    found = {(r["nthreads"], r["vecsize"]) for r in results}
    assert found == {(t, v) for t in (1, 2) for v in (1, 4, 8)} and len(results) == 6
    failed = [r for r in results if not isinstance(r["time"], float) or not r["times"]]
    assert not failed, failed
    assert env["best_config"] in results and "cpu" in env["device_name"]


def test_restrictions_metrics_and_a_smaller_budget():
    A, B = matrices()
    seen = {}
    for restrictions in (
        ["block_size_x >= tile"],
        lambda p: p["block_size_x"] >= p["tile"],
        [lambda block_size_x, tile: block_size_x >= tile, "tile != 4"],
    ):
        results, env = squall.tune_kernel(
            "product", PRODUCT, (64, 64), [np.zeros_like(A), A, B],
            {"block_size_x": [4, 8, 16], "tile": [2, 4, 8, 16]}, restrictions=restrictions,
            answer=[A @ B, None, None], atol=1e-3, lang="C", quiet=True,
            metrics={"GFLOP/s": lambda p: 2 * 64**3 / (p["time"] * 1e6), "tenth": "time / 10"},
            strategy="random_sample", strategy_options={"max_fevals": 7}, seed=3,
        )
        # Without tiles of 4 there are six in all.
        assert len(results) == (6 if isinstance(restrictions, list) and len(restrictions) == 2 else 7)
        assert all(r["block_size_x"] >= r["tile"] for r in results)
        assert all(r["GFLOP/s"] > 0 and r["tenth"] == r["time"] / 10 for r in results)
        seen[str(restrictions)] = {r["tile"] for r in results}
    assert 4 not in list(seen.values())[2] and len(seen) == 3


def test_wrong_kernels_are_failures_with_a_reason():
    A, B = matrices()
    wrong = PRODUCT.replace("float sum = 0", "float sum = tile == 8").replace(
        "void product", "#if tile == 2\n#error not this one\n#endif\nvoid product"
    )
    results, env = squall.tune_kernel(
        "product", wrong, 64, [np.zeros_like(A), A, B],
        {"block_size_x": [16], "tile": [1, 2, 4, 8]}, answer=[A @ B, None, None], atol=1e-3,
        lang="C", quiet=True,
    )
    by = {r["tile"]: r for r in results}
    assert by[2]["__error__"] == by[2]["time"] == "CompilationFailedConfig"
    assert "not this one" in by[2]["why"]
    assert by[8]["__error__"] == "RuntimeFailedConfig" and by[8]["why"]
    assert isinstance(by[4]["time"], float) and env["best_config"]["tile"] in (1, 4)


def test_without_an_answer_the_first_configuration_is_the_reference():
    A, B = matrices()
    wrong = PRODUCT.replace("float sum = 0", "float sum = tile == 8")
    results, _ = squall.tune_kernel(
        "product", wrong, 64, [np.zeros_like(A), A, B], {"block_size_x": [16], "tile": [4, 8]},
        lang="C", quiet=True,
    )
    by = {r["tile"]: r["time"] for r in results}
    assert isinstance(by[4], float) and by[8] == "RuntimeFailedConfig"


def test_verify_judges_every_configuration_before_it_is_timed():
    # Which of the two orders comes out depends on the parameter: both are right, one is not.
    source = """
    void sort(float *y, int *count, const float *x) {
        for (int i = 0; i < 64; i++) y[i] = x[way == 1 ? i : way == 2 ? 63 - i : 0];
        count[0] = way;
    }"""
    x = np.random.default_rng(4).normal(size=64).astype(np.float32)
    seen = []

    def verify(answer, results, atol=None):
        assert atol == 1e-3 and results[2] is None and results[1].dtype == np.int32
        seen.append(int(results[1][0]))
        return np.allclose(np.sort(answer[0]), np.sort(results[0]), atol=atol)

    given = dict(
        kernel_name="sort", kernel_source=source, problem_size=64,
        arguments=[np.zeros_like(x), np.zeros(1, np.int32), x], tune_params={"way": [1, 2, 3]},
        answer=[x, np.zeros(1, np.int32), None], lang="C", quiet=True,
    )
    results, env = squall.tune_kernel(**given, verify=verify, atol=1e-3)
    by = {r["way"]: r for r in results}
    assert isinstance(by[1]["time"], float) and isinstance(by[2]["time"], float), by
    assert by[3]["time"] == "RuntimeFailedConfig" and "verify says" in by[3]["why"]
    assert env["best_config"]["way"] in (1, 2) and set(seen) == {1, 2, 3}

    def fails(answer, results, atol):
        raise KeyError("odd")

    with pytest.raises(KeyError, match="odd"):
        squall.tune_kernel(**given, verify=fails)


def test_words_fractions_unsigned_numbers_and_arguments_that_are_read_and_written():
    source = """
    void step(unsigned *counts, TYPE *x, double rate, unsigned char *flags, long long n) {
        for (long long i = 0; i < n; i++) {
            counts[i] += 3000000000u;
            x[i] = x[i] * (TYPE)(rate * SCALE);
            flags[i] = i % STEP == 0;
        }
    }"""
    counts, x = np.arange(100, dtype=np.uint32), np.linspace(0, 1, 100)
    flags = np.zeros(100, np.uint8)
    # Words go first in the order of the caller, and come back as they were given.
    results, env = squall.tune_kernel(
        "step", source, 100, [counts, x, np.float64(0.5), flags, np.int64(100)],
        {"TYPE": ["double", "long double"], "SCALE": [0.5], "STEP": [7]},
        answer=[
            counts + np.uint32(3000000000), x * 0.25, None,
            (np.arange(100) % 7 == 0).astype(np.uint8), None,
        ],
        lang="C", quiet=True,
    )
    assert {r["TYPE"] for r in results} == {"double", "long double"}
    double = next(r for r in results if r["TYPE"] == "double")
    assert double["SCALE"] == 0.5 and isinstance(double["time"], float), double
    # The other one takes the array for numbers of another size.
    other = next(r for r in results if r["TYPE"] == "long double")
    assert other["time"] == "RuntimeFailedConfig"


def test_a_cache_is_resumed_and_read_by_kernel_tuner(tmp_path):
    A, B = matrices()

    def run(most, **more):
        return squall.tune_kernel(
            "product", PRODUCT, (64, 64), [np.zeros_like(A), A, B],
            {"block_size_x": [8, 16], "tile": [1, 2, 4]}, answer=[A @ B, None, None], atol=1e-3,
            lang="C", quiet=True, cache=tmp_path / "product", strategy="random_sample",
            strategy_options={"max_fevals": most}, **more,
        )

    first, _ = run(2)
    kept = json.loads((tmp_path / "product.json").read_text())["cache"]
    assert len(first) == len(kept) == 2
    again, env = run(6)
    assert len(again) == 6 and [r["time"] for r in again[:2]] == [r["time"] for r in first]
    assert env["best_config"]["time"] > 0
    same, _ = run(6)
    assert [r["time"] for r in same] == [r["time"] for r in again]
    with pytest.raises(ValueError, match="another kernel"):
        squall.tune_kernel(
            "product", PRODUCT, 64, [np.zeros_like(A), A, B], {"tile": [1]},
            answer=[A @ B, None, None], lang="C", cache=tmp_path / "product.json",
        )
    (tmp_path / "odd.json").write_text("[1]")
    with pytest.raises(ValueError, match="no cache file"):
        squall.tune_kernel(
            "product", PRODUCT, 64, [np.zeros_like(A), A, B], {"tile": [1]},
            answer=[A @ B, None, None], lang="C", cache=tmp_path / "odd.json",
        )
    kernel_tuner = pytest.importorskip("kernel_tuner")
    theirs, their_env = kernel_tuner.tune_kernel(
        "product", PRODUCT, (64, 64), [np.zeros_like(A), A, B],
        {"block_size_x": [8, 16], "tile": [1, 2, 4]}, lang="C", quiet=True,
        simulation_mode=True, cache=str(tmp_path / "product.json"),
    )
    assert sorted(r["time"] for r in theirs) == sorted(r["time"] for r in again)
    from kernel_tuner.file_utils import store_output_file

    store_output_file(str(tmp_path / "t4.json"), again, {"block_size_x": [8, 16], "tile": [1, 2, 4]})
    assert len(json.loads((tmp_path / "t4.json").read_text())["results"]) == 6


def test_a_source_in_files(tmp_path):
    (tmp_path / "product.c").write_text('#include "parts/width.h"\n' + PRODUCT.replace(
        "#define WIDTH 64", ""))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "width.h").write_text('#include "deep.h"\n')
    (tmp_path / "parts" / "deep.h").write_text("#define WIDTH 64\n")
    A, B = matrices()
    results, _ = squall.tune_kernel(
        "product", str(tmp_path / "product.c"), 64, [np.zeros_like(A), A, B],
        {"block_size_x": [16], "tile": [2]}, answer=[A @ B, None, None], atol=1e-3, quiet=True,
    )
    assert isinstance(results[0]["time"], float)


def test_what_is_not_supported_is_refused_by_name():
    a, b, args = vectors(64)
    base = dict(
        kernel_name="add", kernel_source=ADD, problem_size=64, arguments=args,
        tune_params={"nthreads": [1], "vecsize": [1]}, answer=[a + b, None, None, None],
    )
    for change, error, says in [
        ({"lang": "OpenCL"}, NotImplementedError, "OpenCL"),
        ({"lang": "HIP"}, NotImplementedError, "HIP"),
        ({"verify": np.allclose, "store": "x.squall"}, ValueError, "verify or store, not both"),
        ({"observers": [1]}, NotImplementedError, "observers= is not supported"),
        ({"texmem_args": {"t": a}}, NotImplementedError, "texmem_args= is not supported"),
        ({"simulation_mode": True}, NotImplementedError, "simulation_mode= is not supported"),
        ({"objective": "GFLOP/s"}, NotImplementedError, "objective='GFLOP/s'"),
        ({"defines": {"x": "1"}}, NotImplementedError, "defines= is not supported"),
        ({"compiler": "no-such-cc"}, NotImplementedError, "environment variable CC"),
        ({"strategy": "pso"}, NotImplementedError, "not one of Squall's"),
        ({"strategy_options": {"popsize": 3}}, NotImplementedError, "popsize"),
        ({"kernel_source": lambda p: ADD}, NotImplementedError, "a function that writes code"),
        ({"kernel_source": "#include <vector>\nvoid add() {}"}, NotImplementedError, r"C\+\+"),
        ({"kernel_source": "missing.cu"}, FileNotFoundError, "missing.cu"),
        ({"smem_args": {"size": 4}}, ValueError, "kernels in CUDA"),
        ({"cmem_args": {"x": a}}, ValueError, "kernels in CUDA"),
        ({"arguments": args[:3], "answer": None}, ValueError, "4 arguments in the source"),
        ({"arguments": [*args[:3], 64]}, TypeError, "numpy.int32"),
        ({"arguments": [a.astype(np.float16), *args[1:]]}, NotImplementedError, "float16"),
        ({"answer": [a + b]}, ValueError, "1 entries for 4 arguments"),
        ({"answer": [a[:3], None, None, None]}, ValueError, "3 elements"),
        ({"tune_params": {"not a name": [1]}}, ValueError, "no name for a macro"),
        ({"restrictions": ["nthreads > 5"]}, (ValueError, squall.Error), "no "),
        ({"compiler_options": ["-fplugin=x.so"]}, squall.Error, "fplugin"),
        ({"kernel_name": "nothing"}, ValueError, "no function `nothing`"),
    ]:
        with pytest.raises(error, match=says):
            squall.tune_kernel(**{**base, **change})


def test_ctrl_c_keeps_what_was_found(tmp_path):
    program = f"""
import signal, sys, numpy as np, squall
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_kernel import PRODUCT, matrices
A, B = matrices()
print("ready", flush=True)
try:
    squall.tune_kernel("product", PRODUCT, 64, [np.zeros_like(A), A, B],
        {{"block_size_x": [1, 2, 4, 8, 16, 32, 64], "tile": [1, 2, 4, 8, 16, 32, 64],
          "pad": list(range(100))}},
        answer=[A @ B, None, None], atol=1e-3, lang="C", quiet=True,
        cache={str(tmp_path / "c.json")!r})
except KeyboardInterrupt as e:
    print("found", len(e.results), e.env["best_config"]["time"], flush=True)
    sys.exit(7)
"""
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline().strip() == "ready"
    time.sleep(8)
    began = time.monotonic()
    run.send_signal(signal.SIGINT)
    rest = ended(run)
    assert run.returncode == 7 and time.monotonic() - began < 3, rest
    count = int(rest.split()[1])
    assert count >= 1 and len(json.loads((tmp_path / "c.json").read_text())["cache"]) == count


@pytest.fixture(scope="session")
def gpu(tmp_path_factory):
    """The variables with which an emulated GPU is there, for the processes of a test."""
    return emulated(tmp_path_factory.mktemp("emulator"))


def on(gpu, program):
    """Runs a program with the emulated GPU; gives what it prints."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{program}"
    env = {**os.environ, **gpu}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


CONVOLUTION = """
#define HEIGHT 24
#define WIDTH 40
#ifndef filter_size
  #define filter_size 3
#endif
#define BORDER (filter_size - 1)
#if read_only
  #define LOAD(x, i) __ldg(x + i)
#else
  #define LOAD(x, i) x[i]
#endif
__constant__ float weights[9 * 9];

__global__ void convolve(float *output, float *input, float *filter) {
    int x0 = blockIdx.x * block_size_x * tile_size_x + threadIdx.x;
    int y = blockIdx.y * block_size_y + threadIdx.y;
    for (int t = 0; t < tile_size_x; t++) {
        int x = x0 + t * block_size_x;
        if (x >= WIDTH || y >= HEIGHT || grid_size_x < 1) return;
        float sum = 0;
        for (int i = 0; i < filter_size; i++)
            for (int j = 0; j < filter_size; j++)
                sum += LOAD(input, (y + i) * (WIDTH + BORDER) + x + j) * weights[i * filter_size + j];
        output[y * WIDTH + x] = sum;
    }
}
"""


def convolution(read_only=(0, 1), **more):
    rng = np.random.default_rng(4)
    image = rng.normal(size=(26, 42)).astype(np.float32)
    weights = rng.normal(size=(3, 3)).astype(np.float32)
    expected = sum(
        image[i : i + 24, j : j + 40] * weights[i, j] for i in range(3) for j in range(3)
    )
    padded = np.zeros(81, np.float32)
    padded[:9] = weights.ravel()
    return squall.tune_kernel(
        "convolve", CONVOLUTION, (40, 24), [np.zeros(24 * 40, np.float32), image.ravel(), weights],
        {
            "block_size_x": [8, 16], "block_size_y": [1, 4], "tile_size_x": [1, 2],
            "read_only": list(read_only), "filter_size": [3],
        },
        grid_div_x=["block_size_x", "tile_size_x"], grid_div_y=["block_size_y"],
        restrictions=["block_size_x * block_size_y >= 16"], cmem_args={"weights": padded},
        answer=[expected.ravel(), None, None], atol=1e-4, quiet=True, **more,
    )


def test_a_convolution_in_cuda_with_constant_memory(gpu):
    said = on(gpu, """
import json
from test_kernel import convolution
results, env = convolution(strategy="random_sample", strategy_options={"max_fevals": 6})
print(json.dumps([results, env]))
""")
    results, env = json.loads(said)
    assert len(results) == 6 and all(isinstance(r["time"], float) for r in results), results
    assert env["best_config"]["filter_size"] == 3
    assert all(r["block_size_x"] * r["block_size_y"] >= 16 for r in results)


def test_a_vector_addition_in_cuda_without_an_answer(gpu):
    said = on(gpu, """
import json, numpy as np, squall
source = '''
__global__ void add(float *c, float *a, float *b, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}'''
a = np.arange(1000, dtype=np.float32)
results, env = squall.tune_kernel("add", source, 1000, [np.zeros_like(a), a, a, np.int32(1000)],
    {"block_size_x": [64, 128, 192]}, quiet=True, grid_div_x=lambda p: p["block_size_x"])
print(json.dumps(results))
""")
    results = json.loads(said)
    assert {r["block_size_x"] for r in results} == {64, 128, 192}
    assert all(isinstance(r["time"], float) for r in results), results


def test_without_a_gpu_cuda_is_refused():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SQUALL_", "EMULATED"))}
    env["SQUALL_LIBCUDA"] = "/nonexistent/libcuda.so"
    program = "from test_kernel import convolution; convolution()"
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{program}"
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.returncode != 0 and "squall.Error" in ran.stderr and "hint" in ran.stderr
