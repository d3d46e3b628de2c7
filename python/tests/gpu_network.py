"""Networks on a GPU, a real one or an emulated one: run by test_gpu_network.py in a process of its own."""

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import squall
from processes import program

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "small_net.onnx"
X = np.load(ROOT / "examples" / "small_net_input.npy")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return squall.compile(MODEL, folder=tmp_path_factory.mktemp("network"), target="cuda")


def test_arrays_of_the_host_give_the_bits_of_squall_run(network, tmp_path):
    y = network(X)
    assert isinstance(network, squall.GpuNetwork) and y.dtype == np.float32
    assert np.array_equal(network(**{network.inputs[0]["name"]: X}), y)
    if program() is None:
        pytest.skip("there is no squall binary: cargo build, or set SQUALL")
    x, out = ROOT / "examples/small_net_input.npy", tmp_path / "y.npy"
    args = [program(), "run", MODEL, "--input", x, "--output", out, "--target", "cuda"]
    subprocess.run(args, check=True)
    assert np.load(out).tobytes() == y.tobytes()


def test_tensors_in_device_memory_stay_there(network, monkeypatch):
    y, x = network(X), network.to_gpu(X)
    seen = []
    run = network._run
    monkeypatch.setattr(network, "_run", lambda m, io, w: seen.append(list(io)) or run(m, io, w))
    found = network(x)
    assert isinstance(found, squall.GpuArray) and found.__dlpack_device__() == (2, 0)
    assert seen[0][1:] == [x.pointer, found.pointer, 0]
    assert found.numpy().tobytes() == y.tobytes()
    network.synchronize()
    # An output is an input of others: DLPack gives shape and type.
    assert squall._dlpack.Borrowed(found, 0).shape == y.shape


@pytest.mark.skipif("SQUALL_LIBCUDA" not in os.environ, reason="the emulated GPU counts copies")
def test_tensors_are_copied_only_where_they_must_be(network):
    driver = ctypes.CDLL(os.environ["SQUALL_LIBCUDA"])
    copies = driver.emulated_copies

    def counted(x):
        before = copies()
        found = network(x)
        return copies() - before, found if isinstance(found, np.ndarray) else found.numpy()

    none, y = counted(X)
    given = network.to_gpu(X)
    # Off the 16 bytes that kernels fetch at once.
    memory = squall._gpu._Memory(network.device, X.nbytes + 4)
    moved = squall.GpuArray(
        memory.pointer + 4, X.shape, X.dtype, network.device, memory, network._copied
    )
    at, size = ctypes.c_uint64(moved.pointer), ctypes.c_size_t(X.nbytes)
    assert driver.cuMemcpyHtoD_v2(at, squall._gpu._host(X), size) == 0
    for x, wanted in [(given, 0), (moved, 1)]:
        n, found = counted(x)
        assert (n, found.tobytes()) == (wanted, y.tobytes())
    assert none == 0


def test_what_does_not_fit_is_refused(network):
    with pytest.raises(TypeError, match="float32"):
        network(network.to_gpu(X.astype(np.int32)))
    with pytest.raises(ValueError, match="shape"):
        network(network.to_gpu(X[..., :-1]))
    with pytest.raises(TypeError, match="float64"):
        network(X.astype(np.float64))
    with pytest.raises(ValueError, match="squall.GpuNetwork"):
        squall.Network(network.folder)
    with pytest.raises(ValueError, match="nothing"):
        squall.compile(MODEL, target="cuda", precision="nothing")


def test_capsules_that_nobody_takes_let_go(network):
    x = network.to_gpu(X)
    for _ in range(10):
        x.__dlpack__()
    # The last one goes when the next is made.
    assert len(squall._dlpack._lent) == 1
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)


@pytest.mark.skipif("SQUALL_LIBCUDA" in os.environ, reason="the emulated GPU is for one thread")
def test_threads_share_a_network(network):
    inputs = [X + i for i in range(3)]
    expected = [network(x).tobytes() for x in inputs]
    wrong = []

    def work(i):
        given = network.to_gpu(inputs[i])
        for k in range(10):
            found = network(inputs[i]) if k % 2 else network(given).numpy()
            if found.tobytes() != expected[i]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_a_network_in_bf16(tmp_path):
    y = squall.compile(MODEL, folder=tmp_path / "f32", target="cuda")(X)
    half = squall.compile(MODEL, folder=tmp_path / "bf16", target="cuda", precision="bf16")
    assert half.description["precision"] == "bf16"
    found = half(X)
    assert not np.array_equal(found, y) and np.allclose(found, y, rtol=0.1, atol=0.1)


def _has_gpu(name):
    """A package that sees a real GPU; tests of it are skipped elsewhere."""
    package = pytest.importorskip(name, exc_type=ImportError)
    if name == "torch" and not package.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return package


def test_tensors_of_torch(network):
    torch = _has_gpu("torch")
    y, x = network(X), torch.from_numpy(X).cuda()
    found = network(x)
    assert found.is_cuda and found.cpu().numpy().tobytes() == y.tobytes()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        again = network(x)
    side.synchronize()
    assert torch.equal(again, found)
    on_host = network(torch.from_numpy(X))
    assert not on_host.is_cuda and torch.equal(on_host, found.cpu())


def test_arrays_of_cupy(network):
    cupy = _has_gpu("cupy")
    found = network(cupy.asarray(X))
    assert isinstance(found, cupy.ndarray)
    assert cupy.asnumpy(found).tobytes() == network(X).tobytes()


def test_arrays_of_jax(network):
    jax = _has_gpu("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax sees no GPU")
    found = network(jax.numpy.asarray(X))
    assert isinstance(found, jax.Array)
    assert np.asarray(found).tobytes() == network(X).tobytes()


def test_torch_compile_on_a_gpu(tmp_path):
    torch = _has_gpu("torch")
    pytest.importorskip("onnxscript")
    import warnings

    import squall.torch  # noqa: F401

    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.normal = torch.nn.BatchNorm2d(8)
            self.last = torch.nn.Linear(8, 5)

        def forward(self, x):
            y = torch.relu(self.normal(self.first(x)))
            return self.last(y.mean((2, 3))), y

    torch.manual_seed(1)
    model, x = Small().eval().cuda(), torch.rand(2, 3, 12, 12, device="cuda")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        found = torch.compile(model, backend="squall", dynamic=False)(x)
    for e, f in zip(model(x), found):
        assert f.is_cuda
        torch.testing.assert_close(f, e, rtol=1e-2, atol=1e-3)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-rs"]))
