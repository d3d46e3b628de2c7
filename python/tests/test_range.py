"""Networks over a range of extents: one library takes arrays of every length inside."""

import os
import shutil
import struct
import threading

import pytest

numpy = pytest.importorskip("numpy")
import squall  # noqa: E402

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "gcc")) is None or shutil.which("make") is None,
    reason="there is no C compiler, or no make",
)


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def message(*fields):
    """A protobuf message of (number, value) pairs."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def floats(name, array):
    dims = [(1, n) for n in array.shape]
    return message(*dims, (2, 1), (9, struct.pack(f"<{array.size}f", *array.flat)), (8, name))


def value(name, *dims):
    shape = [(1, message((1, d) if isinstance(d, int) else (2, d))) for d in dims]
    return message((1, name), (2, message((1, message((1, 1), (2, message(*shape)))))))


def node(op, inputs, output):
    return message(*[(1, i) for i in inputs], (2, output), (4, op))


WEIGHTS = numpy.random.default_rng(7).normal(size=(8, 6)).astype("float32")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """softmax(relu(x) w), over rows."""
    graph = message(
        (1, node("Relu", ["x"], "r")),
        (1, node("MatMul", ["r", "w"], "m")),
        (1, node("Softmax", ["m"], "y")),
        (2, "rows"),
        (5, floats("w", WEIGHTS)),
        (11, value("x", "rows", 8)),
        (12, value("y", "rows", 6)),
    )
    path = tmp_path_factory.mktemp("range") / "rows.onnx"
    path.write_bytes(message((1, 8), (7, graph), (8, message((1, ""), (2, 17)))))
    return path


@pytest.fixture(scope="module")
def network(model):
    return squall.compile(model, dims={"rows": range(1, 41)})


def expected(x):
    e = numpy.maximum(x, 0).astype("float64") @ WEIGHTS
    e = numpy.exp(e - e.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_every_length_is_right(network):
    draw = numpy.random.default_rng(3)
    for n in draw.permutation(numpy.arange(1, 41)):
        x = draw.normal(size=(n, 8)).astype("float32")
        y = network(x)
        assert y.shape == (n, 6)
        assert numpy.abs(y - expected(x)).max() < 1e-5, n


def test_threads_call_it_at_different_lengths(network):
    wrong = []

    def calls(seed):
        draw = numpy.random.default_rng(seed)
        for n in draw.integers(1, 41, 200):
            x = draw.normal(size=(n, 8)).astype("float32")
            if numpy.abs(network(x) - expected(x)).max() > 1e-5:
                wrong.append(n)

    threads = [threading.Thread(target=calls, args=[i]) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_what_lies_outside_is_refused(network):
    with pytest.raises(ValueError, match="rows is 41, and the network takes 1 to 40"):
        network(numpy.zeros((41, 8), "float32"))
    with pytest.raises(ValueError, match="rows is 0"):
        network(numpy.zeros((0, 8), "float32"))
    with pytest.raises(ValueError, match=r"has shape \(3, 8\) at rows=3"):
        network(numpy.zeros((3, 7), "float32"))
    with pytest.raises(ValueError, match=r"has shape \[rows, 8\]"):
        network(numpy.zeros(8, "float32"))
    assert "x: float32[rows, 8] -> y: float32[rows, 6]" in repr(network)
    # It still runs.
    assert network(numpy.zeros((5, 8), "float32")).shape == (5, 6)


def test_multiples_are_kept_to(model):
    network = squall.compile(model, dims={"rows": "8..64:8"})
    x = numpy.ones((24, 8), "float32")
    assert numpy.abs(network(x) - expected(x)).max() < 1e-5
    with pytest.raises(ValueError, match="in multiples of 8"):
        network(x[:23])


def test_ranges_that_hold_nothing_are_refused(model):
    for dims in (range(0, 0), range(9, 2, -1), range(3, 30, 2), "9..2", "a..b", "0..4"):
        with pytest.raises(ValueError, match="rows"):
            squall.compile(model, dims={"rows": dims})


def test_a_range_is_tuned(model, tmp_path):
    store = tmp_path / "tuned.squall"
    report = squall.tune(model, dims={"rows": "1..40"}, trials=4, store=store)
    assert report.data
    network = squall.compile(model, dims={"rows": "1..40"}, store=store)
    x = numpy.ones((17, 8), "float32")
    assert numpy.abs(network(x) - expected(x)).max() < 1e-5
