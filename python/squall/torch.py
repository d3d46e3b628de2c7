"""Squall as a backend of ``torch.compile``, for inference on CPUs and on NVIDIA GPUs.

    fast = torch.compile(model.eval(), backend="squall")
    with torch.no_grad():
        y = fast(x)

A graph leaves by torch's ONNX export (packages ``onnx`` and ``onnxscript``), is compiled as
:func:`squall.compile` does, and is compared with eager execution once. What cannot leave, or wants
gradients, runs eagerly; the reason is warned of once. ``options`` may have ``store``, ``threads``,
``predictor`` and ``precision``, as :func:`squall.compile`, and ``seconds`` for tuning first. The
network is made for the device on which the inputs lie.

Where one dimension varies (``dynamic=True``, or torch sees another extent of it), a graph on a CPU
becomes one network over a range of extents: the one of ``torch._dynamo.mark_dynamic``, or up to four
times the first extent. A larger extent later makes another network, over a larger range.

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
from torch._guards import tracing

from squall._gpu import GpuNetwork
from squall._network import Network, compile as compile_network
from squall._report import tune_model

#: A graph is compiled for so many sets of weights; others run eagerly.
MOST_WEIGHTS = 8
#: A range of extents without an end is made this many times as long as the first extent ..
_AHEAD = 4
#: .. and at least this long.
_LEAST_RANGE = 64
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


class _Varying:
    """The dimension of a graph that varies, as torch traced it."""

    def __init__(self, places: list[torch.fx.Node]) -> None:
        examples: list[Any] = [node.meta.get("example_value") for node in places]
        # Torch may learn while it traces that an extent is one number.
        numbers: dict[int, Any] = {
            i: x.node.expr for i, x in enumerate(examples) if isinstance(x, torch.SymInt)
        }
        #: The inputs that are extents, and those that are one number.
        self.numbers = [i for i, e in numbers.items() if not e.is_number]
        self.constants = {i: int(e) for i, e in numbers.items() if e.is_number}
        #: Input and axis whose extent varies.
        self.axes: list[tuple[int, int]] = []
        names = {str(examples[i].node.expr) for i in self.numbers}
        for i, x in enumerate(examples):
            for axis, extent in enumerate(x.shape if isinstance(x, torch.Tensor) else ()):
                if isinstance(extent, torch.SymInt) and not extent.node.expr.is_number:
                    if not extent.node.expr.is_symbol:
                        raise _Unfit(f"an extent is {extent.node.expr}")
                    names.add(str(extent.node.expr))
                    self.axes.append((i, axis))
        if len(names) > 1:
            raise _Unfit(f"{len(names)} dimensions vary; say torch.compile(.., dynamic=False)")
        self.least, self.most = 1, None
        if self.numbers and not self.axes:
            raise _Unfit("a number varies that is no extent of an input")
        if self.axes:
            i, axis = self.axes[0]
            node = examples[i].shape[axis].node
            bounds = node.shape_env.bound_sympy(node.expr)
            self.least = max(1, int(bounds.lower))
            # Without a bound the end is infinite, or the largest number.
            self.most = int(bounds.upper) if bounds.upper < 2**40 else None

    def __bool__(self) -> bool:
        return bool(self.axes)

    def extent(self, inputs: Sequence[Any]) -> int:
        i, axis = self.axes[0]
        return inputs[i].shape[axis]

    def last(self, extent: int) -> int:
        """The end of the range for which a network is made where this extent was met."""
        if self.most is not None:
            return self.most
        return max(_LEAST_RANGE, 1 << (_AHEAD * extent - 1).bit_length())


class _Frozen(torch.nn.Module):
    """A graph with its weights and the numbers that are extents of its inputs filled in."""

    def __init__(
        self, graph: torch.fx.GraphModule, weights: dict[int, torch.Tensor], varying: _Varying
    ) -> None:
        super().__init__()
        self.graph_module = graph
        self.places = sorted(weights)
        self.numbers, self.constants = set(varying.numbers), varying.constants
        self.total = sum(n.op == "placeholder" for n in graph.graph.nodes)
        held = self.numbers | set(weights) | set(self.constants)
        self.free = [i for i in range(self.total) if i not in held]
        # Of the tensors that are given, the one whose axis tells the numbers.
        self.teller = None
        if varying:
            i, axis = varying.axes[0]
            self.teller = self.free.index(i), axis
        for i, weight in weights.items():
            self.register_buffer(f"weight_{i}", weight.detach())

    def forward(self, *inputs: Any) -> Any:
        rest = list(inputs)
        held = {i: getattr(self, f"weight_{i}") for i in self.places} | self.constants
        if self.teller is not None:
            given, axis = self.teller
            held |= {i: inputs[given].shape[axis] for i in self.numbers}
        return self.graph_module(
            *(held[i] if i in held else rest.pop(0) for i in range(self.total))
        )


def _is_float(node: torch.fx.Node, x: Any) -> bool:
    """Whether an input is a Python float that torch gives as a tensor, of which only the number
    is wanted."""
    is_given = getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False)
    is_number = isinstance(x, torch.Tensor) and x.dim() == 0
    return is_given and is_number and all(_asks(user) for user in node.users)


def _asks(node: torch.fx.Node) -> bool:
    return node.op == "call_method" and node.target == "item"


def _with_floats(graph: torch.fx.GraphModule, floats: dict[int, float]) -> torch.fx.GraphModule:
    """A graph that has the numbers of these inputs where it asks for them."""
    copy = torch.fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    places = [n for n in copy.nodes if n.op == "placeholder"]
    for i, number in floats.items():
        for user in list(places[i].users):
            user.replace_all_uses_with(number)  # type: ignore[arg-type]
            copy.erase_node(user)
    return torch.fx.GraphModule(graph, copy)


class _Variant:
    """A network for some weights, and for extents up to one; none where they run eagerly."""

    def __init__(
        self,
        weights: list[torch.Tensor],
        floats: list[float],
        most: int,
        network: _AnyNetwork | None,
    ) -> None:
        self.weights, self.floats, self.most, self.network = weights, floats, most, network
        self.versions = [w._version for w in weights]

    def serves(self, weights: list[torch.Tensor], floats: list[float], extent: int) -> bool:
        if extent > self.most or self.floats != floats:
            return False
        if not all(a is b for a, b in zip(self.weights, weights)):
            return False
        return all(w._version == v for w, v in zip(weights, self.versions))


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
        self._varying = _Varying(places)
        # Where shapes vary torch gives Python's floats as tensors, which the graph asks for their
        # numbers; they are constants of a network, as weights are.
        self._floats = [
            i
            for i, (node, x) in enumerate(zip(places, inputs))
            if i not in set(static) and _is_float(node, x)
        ]
        held = set(static) | set(self._varying.numbers) | set(self._varying.constants)
        held |= set(self._floats)
        self._free = [i for i in range(len(places)) if i not in held]
        for i in self._free:
            if not isinstance(inputs[i], torch.Tensor):
                raise _Unfit("an input is no tensor")
        self._target = _target({x.device for x in inputs if isinstance(x, torch.Tensor)})
        if self._varying and self._target != "cpu":
            raise _Unfit("a shape is dynamic on a GPU; say torch.compile(.., dynamic=False)")
        self._variants: list[_Variant] = []
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
        floats = [inputs[i].item() for i in self._floats]
        extent = self._varying.extent(inputs) if self._varying else 0
        with self._lock:
            for known in self._variants:
                if known.serves(weights, floats, extent):
                    return known.network
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
            most = self._varying.last(extent)
            self._variants.append(_Variant(weights, floats, most, network))
            return network

    def _make(self, inputs: Sequence[Any], weights: list[torch.Tensor]) -> _AnyNetwork:
        graph = self._graph
        if self._floats:
            graph = _with_floats(graph, {i: inputs[i].item() for i in self._floats})
        weights_at = dict(zip(self._static, weights))
        # What still stands for a float is read by nothing.
        weights_at |= {i: inputs[i] for i in self._floats}
        frozen = _Frozen(graph, weights_at, self._varying)
        free = [inputs[i].detach() for i in self._free]
        options = dict(self._options)
        seconds = options.pop("seconds", None)
        # Exporting is another trace than the one that called; what it assumes is not its guard.
        apart = tracing(None)
        with apart, torch.no_grad(), tempfile.TemporaryDirectory(prefix="squall-torch-") as folder:
            model = Path(folder) / "model.onnx"
            options["dims"] = self._write(frozen, free, model)
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

    def _write(self, frozen: _Frozen, free: list[torch.Tensor], path: Path) -> dict[str, str]:
        """Writes the graph as ONNX; gives the range of the dimension that varies."""
        if not self._varying:
            _export(frozen, free, path, None)
            return {}
        i, axis = self._varying.axes[0]
        extent = free[self._free.index(i)].shape[axis]
        least, most = self._varying.least, self._varying.last(extent)
        varies = torch.export.Dim("extent", min=least, max=most)
        shapes: list[dict[int, Any] | None] = [None] * len(free)
        for i, axis in self._varying.axes:
            at = self._free.index(i)
            shapes[at] = (shapes[at] or {}) | {axis: varies}
        _export(frozen, free, path, (tuple(shapes),))
        import onnx

        model = onnx.load(os.fspath(path), load_external_data=False)
        axes = (d for i in model.graph.input for d in i.type.tensor_type.shape.dim)
        names = {d.dim_param for d in axes if d.dim_param}
        if len(names) != 1:
            raise _Unfit("the exported model has other dimensions that vary than the graph")
        return {names.pop(): f"{least}..{most}"}


def _export(frozen: _Frozen, free: list[torch.Tensor], path: Path, shapes: Any) -> None:
    """Writes a graph as ONNX; it must depend on its inputs alone, and change nothing."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as e:
        raise _Unfit(f"{e.name} is not installed, which torch exports by: pip install {e.name}")
    try:
        program = torch.export.export(
            frozen, tuple(free), strict=False, dynamic_shapes=shapes
        )
    except Exception as e:
        raise _Unfit(f"torch.export refuses it: {_first_line(e)}") from e
    # What a graph changes in place shows once its operators are functions.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signature = program.run_decompositions({}).graph_signature
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
