"""`torch.compile(model, backend="squall")`, and torch tensors in and out of networks."""

import os
import shutil
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", exc_type=ImportError)
pytest.importorskip("onnxscript")
import squall  # noqa: E402
import squall.torch  # noqa: E402

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "gcc")) is None or shutil.which("make") is None,
    reason="there is no C compiler, or no make",
)


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.normal = torch.nn.BatchNorm2d(8)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.normal(self.first(x)))
        return self.last(y.mean((2, 3))), y


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()
    squall.torch._said.clear()
    torch.manual_seed(1)
    with torch.no_grad():
        yield


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def compiled(model, **more):
    return torch.compile(model, backend="squall", dynamic=False, **more)


def test_a_model_gives_eager_results_without_a_warning():
    model, x = Small().eval(), torch.rand(2, 3, 12, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        fast = compiled(model, options={"threads": 1})
        found = fast(x)
    for e, f in zip(model(x), found):
        close(f, e)
    # It is the network that ran, with inputs that are not contiguous as well.
    turned = torch.rand(2, 3, 12, 12).transpose(2, 3)
    for e, f in zip(model(turned), fast(turned)):
        close(f, e)


def test_weights_that_change_are_seen():
    model, x = Small().eval(), torch.rand(1, 3, 8, 8)
    fast = compiled(model)
    close(fast(x)[0], model(x)[0])
    model.last.bias.add_(1.0)
    close(fast(x)[0], model(x)[0])
    other = Small().eval()
    model.load_state_dict(other.state_dict())
    close(fast(x)[0], other(x)[0])


@pytest.mark.parametrize(
    "what, says",
    [
        ("gradient", "gradients are wanted"),
        ("random", "random numbers"),
        ("in place", "in place"),
        ("operator", "runs eagerly"),
        ("dynamic", "dynamic"),
    ],
)
def test_what_does_not_fit_runs_eagerly_and_says_so_once(what, says):
    x = torch.rand(1, 3, 8, 8)
    if what == "gradient":
        model, context = Small(), torch.enable_grad()
    else:
        context = torch.no_grad()

        def model(x):
            if what == "random":
                return torch.nn.functional.dropout(x, training=True)
            if what == "in place":
                return x.add_(1)
            if what == "operator":
                return torch.linalg.eigvalsh(x[0, 0] + x[0, 0].T)
            return x * 2

    fast = torch.compile(model, backend="squall", dynamic=what == "dynamic")
    with context, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            given, same = x.clone(), x.clone()
            torch.manual_seed(3)
            found = fast(given)
            torch.manual_seed(3)
            expected = model(same)
            first = (lambda t: t[0] if isinstance(t, tuple) else t)
            close(first(found), first(expected))
            close(given, same)
    ours = [str(w.message) for w in said if "squall" in str(w.message)]
    assert len(ours) == 1 and says in ours[0], ours


def test_unknown_options_are_refused():
    with pytest.raises(Exception, match="Squall's are store"):
        compiled(Small().eval(), options={"treads": 2})(torch.rand(1, 3, 8, 8))


def test_tensors_go_in_and_out_of_a_network_by_dlpack():
    np = pytest.importorskip("numpy")
    network = squall.compile(ROOT / "examples" / "small_net.onnx")
    x = np.load(ROOT / "examples" / "small_net_input.npy")
    y = network(torch.from_numpy(x))
    assert isinstance(y, torch.Tensor) and y.numpy().tobytes() == network(x).tobytes()
    grows = torch.from_numpy(x.copy()).requires_grad_()
    assert network(grows).numpy().tobytes() == y.numpy().tobytes()
    # Our results go the other way by the same protocol.
    assert torch.equal(torch.from_dlpack(network(x)), y)


class Block(torch.nn.Module):
    """Attention of two heads over rows, whose number varies."""

    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        q, k, v = self.qkv(x).view(x.shape[0], 3, 2, 8).permute(1, 2, 0, 3)
        scores = (q @ k.transpose(1, 2) / 3).softmax(-1)
        return self.norm(x + self.out((scores @ v).transpose(0, 1).reshape(x.shape[0], 16)))


def test_one_network_serves_every_length(monkeypatch):
    made = []
    compile_network = squall.torch.compile_network
    monkeypatch.setattr(
        squall.torch, "compile_network", lambda *a, **k: made.append(k["dims"]) or compile_network(*a, **k)
    )
    model = Block().eval()
    fast = torch.compile(model, backend="squall", dynamic=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for rows in (5, 7, 33, 64, 2, 17):
            x = torch.randn(rows, 16)
            close(fast(x), model(x))
        assert [list(d.values()) for d in made] == [["2..64"]]
        # More than that is another network.
        for rows in (100, 65, 3):
            x = torch.randn(rows, 16)
            close(fast(x), model(x))
        assert [list(d.values()) for d in made] == [["2..64"], ["2..512"]]
    assert not [str(w.message) for w in said if "squall:" in str(w.message)]


def test_a_range_that_torch_is_told_is_kept():
    model = Block().eval()
    x = torch.randn(6, 16)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=20)
    fast = torch.compile(model, backend="squall")
    close(fast(x), model(x))
    for rows in (2, 19, 20):
        x = torch.randn(rows, 16)
        close(fast(x), model(x))
