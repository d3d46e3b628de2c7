"""Squall as a backend of ``torch.compile``, for inference on CPUs and on NVIDIA GPUs.

    fast = torch.compile(model.eval(), backend="squall")
    with torch.no_grad():
        y = fast(x)

A graph leaves by torch's ONNX export (packages ``onnx`` and ``onnxscript``), is compiled as
:func:`squall.compile` does, and is compared with eager execution once. What cannot leave, or wants
gradients, runs eagerly; the reason is warned of once. ``options`` may have ``store``, ``threads``,
``predictor`` and ``precision``, as :func:`squall.compile`, and ``seconds`` for tuning first. The
network is made for the device on which the inputs lie.

Weights are constants of a network. Where a weight was changed, or the same code is called with
another module's weights, another network is compiled.
"""

from __future__ import annotations

import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from squall._gpu import GpuNetwork
from squall._network import Network, compile as compile_network
from squall._report import tune_model

#: A graph is compiled for so many sets of weights; others run eagerly.
MOST_WEIGHTS = 8
_OPTIONS = ("store", "threads", "predictor", "precision", "seconds")
_said: set[str] = set()


_AnyNetwork = Network | GpuNetwork


class _Unfit(Exception):
    """Why a graph runs eagerly."""


def _target(devices: set[torch.device]) -> str:
    """Squall's name of the device on which a graph's inputs lie."""
    if len(devices) > 1:
        raise _Unfit(f"its inputs lie on {' and '.join(sorted(map(str, devices)))}")
    device = next(iter(devices), torch.device("cpu"))
    if device.type == "cuda" and torch.version.cuda:
        return f"cuda:{device.index or 0}"
    if device.type != "cpu":
        raise _Unfit(f"a tensor is on {device.type}; networks run on CPUs and on NVIDIA GPUs")
    return "cpu"


def backend(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
    **_: Any,
) -> Callable[..., Any]:
    """Called by ``torch.compile``."""
    options = dict(options or {})
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise ValueError(f"options has {', '.join(unknown)}; Squall's are {', '.join(_OPTIONS)}")
    try:
        if torch.is_grad_enabled() and any(_wants_gradient(x) for x in inputs):
            raise _Unfit("gradients are wanted; call it under torch.no_grad()")
        compiled = _Compiled(graph, inputs, options)
        compiled.variant(inputs)
        return compiled
    except _Unfit as why:
        _say(str(why))
        return graph.forward


# An installed package is found by its entry point; a plain folder is not.
if "squall" not in torch._dynamo.list_backends(()):
    torch._dynamo.register_backend(backend, name="squall")


def _say(why: str) -> None:
    if why not in _said:
        _said.add(why)
        warnings.warn(f"squall: a graph runs eagerly: {why}", stacklevel=4)


def _wants_gradient(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


class _Frozen(torch.nn.Module):
    """A graph with its weights filled in."""

    def __init__(self, graph: torch.fx.GraphModule, weights: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self.graph_module = graph
        self.places = sorted(weights)
        for i, weight in weights.items():
            self.register_buffer(f"weight_{i}", weight.detach())

    def forward(self, *inputs: Any) -> Any:
        rest, total = list(inputs), len(inputs) + len(self.places)
        held = {i: getattr(self, f"weight_{i}") for i in self.places}
        return self.graph_module(*(held[i] if i in held else rest.pop(0) for i in range(total)))


class _Compiled:
    """A graph that is called through networks, one for each set of weights."""

    def __init__(
        self, graph: torch.fx.GraphModule, inputs: Sequence[Any], options: dict[str, Any]
    ) -> None:
        self._graph, self._options = graph, options
        places = [n for n in graph.graph.nodes if n.op == "placeholder"]
        static = [
            i
            for i, (node, x) in enumerate(zip(places, inputs))
            if isinstance(x, torch.nn.Parameter)
            or "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})
        ]
        self._static = static
        self._free = [i for i in range(len(places)) if i not in set(static)]
        for i in self._free:
            if not isinstance(inputs[i], torch.Tensor):
                raise _Unfit("a shape is dynamic; say torch.compile(.., dynamic=False)")
        self._target = _target({x.device for x in inputs if isinstance(x, torch.Tensor)})
        self._variants: list[tuple[list[torch.Tensor], list[int], _AnyNetwork | None]] = []
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        network = self.variant(inputs)
        if network is None:
            return self._graph(*inputs)
        given = [inputs[i].detach().contiguous() for i in self._free]
        found = network(*given)
        return list(found.values()) if isinstance(found, dict) else [found]

    def variant(self, inputs: Sequence[Any]) -> _AnyNetwork | None:
        """The network for these weights; none where they run eagerly."""
        weights = [inputs[i] for i in self._static]
        with self._lock:
            for known, versions, network in self._variants:
                same = all(a is b for a, b in zip(known, weights))
                if same and all(w._version == v for w, v in zip(weights, versions)):
                    return network
            network = None
            if len(self._variants) < MOST_WEIGHTS:
                first = not self._variants
                try:
                    network = self._make(inputs, weights)
                except _Unfit as why:
                    if first:
                        raise
                    _say(str(why))
            else:
                _say(f"it was called with more than {MOST_WEIGHTS} sets of weights")
                return None
            self._variants.append((weights, [w._version for w in weights], network))
            return network

    def _make(self, inputs: Sequence[Any], weights: list[torch.Tensor]) -> _AnyNetwork:
        frozen = _Frozen(self._graph, dict(zip(self._static, weights)))
        free = [inputs[i].detach() for i in self._free]
        options = dict(self._options)
        seconds = options.pop("seconds", None)
        with torch.no_grad(), tempfile.TemporaryDirectory(prefix="squall-torch-") as folder:
            model = Path(folder) / "model.onnx"
            _export(frozen, free, model)
            try:
                if seconds is not None:
                    options.setdefault("store", os.fspath(Path(folder) / "tuned.squall"))
                    tuning = {k: v for k, v in options.items() if k != "predictor"}
                    tune_model(model, seconds=seconds, target=self._target, **tuning)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    network = compile_network(model, target=self._target, **options)
            except Exception as e:
                raise _Unfit(str(e)) from e
            format = network.description.get("precision") or options.get("precision")
            _compare(network, frozen, free, format or "f32")
        return network


def _export(frozen: _Frozen, free: list[torch.Tensor], path: Path) -> None:
    """Writes a graph as ONNX; it must depend on its inputs alone, and change nothing."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as e:
        raise _Unfit(f"{e.name} is not installed, which torch exports by: pip install {e.name}")
    try:
        program = torch.export.export(frozen, tuple(free), strict=False)
    except Exception as e:
        raise _Unfit(f"torch.export refuses it: {_first_line(e)}") from e
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        raise _Unfit("it changes its inputs or buffers in place")
    for node in program.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            raise _Unfit(f"it draws random numbers ({node.target}): is the model in eval()?")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                program, (), os.fspath(path), dynamo=True, verbose=False, external_data=False
            )
    except Exception as e:
        raise _Unfit(f"torch.onnx refuses it: {_first_line(e)}") from e


def _first_line(e: BaseException) -> str:
    lines = [line for line in str(e).splitlines() if line.strip()]
    return (lines or [type(e).__name__])[0][:300]


#: How far results may be from eager ones, relative and in parts of the largest value.
_TOLERANCES = {"f32": (1e-3, 1e-4), "tf32": (2e-2, 2e-2), "f16": (2e-2, 2e-2), "bf16": (1e-1, 1e-1)}


def _compare(
    network: _AnyNetwork, frozen: _Frozen, free: list[torch.Tensor], precision: str
) -> None:
    """Refuses a network whose results are not those of eager execution, or of another form."""
    # Eager execution may round factors to tf32 unless told not to.
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    allowed = convolutions.allow_tf32, products.allow_tf32
    convolutions.allow_tf32 = products.allow_tf32 = False
    try:
        expected = frozen(*free)
    finally:
        convolutions.allow_tf32, products.allow_tf32 = allowed
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    if not all(isinstance(e, torch.Tensor) for e in expected):
        raise _Unfit("it returns what is no tensor")
    if len(expected) != len(network.outputs):
        raise _Unfit("the exported model has other outputs than the graph")
    given = [x.contiguous() for x in free]
    found = network(*given)
    relative, of_largest = _TOLERANCES[precision]
    for e, f in zip(expected, list(found.values()) if isinstance(found, dict) else [found]):
        if e.dtype != f.dtype or e.shape != f.shape or e.device != f.device:
            raise _Unfit("the exported model has results of another type, shape or device")
        if not e.is_floating_point():
            same = torch.equal(e, f)
        else:
            finite = e.isfinite()
            largest = e[finite].abs().max().item() if finite.any() else 0.0
            atol = of_largest * largest + 1e-12
            same = torch.allclose(e, f, rtol=relative, atol=atol, equal_nan=True)
        if not same:
            raise _Unfit("its results are not those of eager execution within rounding")
