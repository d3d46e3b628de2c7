"""A kernel of the user's own, with the words of Kernel Tuner's ``tune_kernel``.

What is given becomes a kernel.toml with its files in a temporary folder, which is tuned as
``squall tune kernel.toml`` does it: there is no second way to build, check or time a kernel.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from squall import _squall
from squall._expression import Amount, amount, product, traced
from squall._report import Report, tune
from squall._results import Cache, Results
from squall._search import Space
from squall._source import Source, roles

_TYPES = {
    "float32": ("f32", "float32"),
    "float64": ("f64", "float64"),
    "int8": ("i8", "int8"),
    "uint8": ("u8", "uint8"),
    "int32": ("i32", "int32"),
    "uint32": ("i32", "int32"),
    "int64": ("i64", "int64"),
    "uint64": ("i64", "int64"),
}
_BLOCK = ("block_size_x", "block_size_y", "block_size_z")
#: Kernel Tuner's arguments that change what is tuned or measured, and have nothing here.
_REFUSED = {
    "texmem_args": "textures are not supported",
    "defines": "parameters are always macros, as without it",
    "observers": "Squall measures time alone",
    "simulation_mode": "use `squall replay`, or Kernel Tuner with SquallStrategy",
    "objectives": "Squall tunes for time alone",
    "objective_higher_is_better": "Squall tunes for time alone",
}


def tune_kernel(
    kernel_name: str,
    kernel_source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    tune_params: Mapping[str, Iterable[Any]],
    grid_div_x: Any = None,
    grid_div_y: Any = None,
    grid_div_z: Any = None,
    restrictions: Any = None,
    answer: Sequence[Any] | None = None,
    atol: float = 1e-6,
    verify: Callable[..., bool] | None = None,
    verbose: bool = False,
    lang: str | None = None,
    device: int = 0,
    platform: int = 0,
    smem_args: Mapping[str, Any] | None = None,
    cmem_args: Mapping[str, Any] | None = None,
    texmem_args: Mapping[str, Any] | None = None,
    compiler: str | None = None,
    compiler_options: Sequence[str] | None = None,
    defines: Mapping[str, Any] | None = None,
    log: Any = None,
    iterations: int = 7,
    block_size_names: Sequence[str] | None = None,
    quiet: bool = False,
    strategy: Any = None,
    strategy_options: Mapping[str, Any] | None = None,
    cache: str | os.PathLike[str] | None = None,
    metrics: Mapping[str, Any] | None = None,
    simulation_mode: bool | None = None,
    parallel: bool | int | None = None,
    observers: Any = None,
    objective: str | None = None,
    objective_higher_is_better: bool | None = None,
    objectives: Any = None,
    seed: int | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    inout: Iterable[int] = (),
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tunes a kernel in C or CUDA; arguments and results are those of Kernel Tuner 1.5.

    Gives the configurations that were tried, each a dictionary of its parameters with ``time`` and
    ``times`` in milliseconds, and an environment with ``best_config``. Every configuration is
    checked before it is timed: by ``verify(answer, results, atol=atol)`` where it is given, else
    against ``answer``, else against the first one. Without ``strategy``
    or ``max_fevals`` all configurations are tried.

    Squall's own: ``store`` keeps the trials in a file of records, ``threads`` are those that a C
    kernel may use (all with OpenMP, else one), ``inout`` are positions of arguments whose first
    content must be there before every call (it is found from the source where that is plain).

    ``iterations``, ``platform`` and ``parallel`` have no effect: Squall times a kernel until its
    time is certain, and builds ahead on spare cores. What would change the result and is not
    supported is refused by name. Ctrl-C ends the run; the exception's ``results`` and ``env`` hold
    what was found.

    >>> import numpy
    >>> source = '''
    ... void scale(float *y, const float *x, int n) {
    ...     for (int i = 0; i < n; i += block)
    ...         for (int j = i; j < i + block && j < n; j++) y[j] = 2 * x[j];
    ... }'''
    >>> x = numpy.ones(1000, numpy.float32)
    >>> results, env = tune_kernel(
    ...     "scale", source, 1000, [numpy.zeros_like(x), x, numpy.int32(1000)],
    ...     {"block": [8, 64]}, answer=[2 * x, None, None], lang="C", quiet=True)
    >>> sorted(r["block"] for r in results), env["best_config"]["time"] > 0
    ([8, 64], True)
    """
    given = dict(locals())
    _refuse(given)
    if verify is not None and store is not None:
        raise ValueError("give verify or store, not both: records do not say what verify accepted")
    made = _Kernel(given)
    if log is not None:
        raise NotImplementedError("log= is not supported: use `store=` and `squall records show`")
    known = Cache.open(cache, made.identity(), made.space)
    results = Results(made.space.parameters, metrics)
    results.extend_cached(known.entries)
    budget = made.budget(strategy_options, len(known.entries))
    if budget is not None:
        made.tune(budget, results, known)
    if known.path is not None:
        known.write(results)
    results.say(verbose, quiet)
    if results.ended is not None:
        results.ended.results, results.ended.env = results.rows, results.env()  # type: ignore
        raise results.ended
    return results.rows, results.env()


def _refuse(given: Mapping[str, Any]) -> None:
    """Refuses by name what would change the result and is not supported."""
    for name, why in _REFUSED.items():
        if given[name] not in (None, False):
            raise NotImplementedError(f"{name}= is not supported: {why}")
    if given["objective"] not in (None, "time"):
        raise NotImplementedError(
            f"objective={given['objective']!r} is not supported: Squall tunes for time alone;"
            " metrics are computed for every result"
        )
    if given["compiler"] is not None and given["compiler"] != os.environ.get("CC"):
        raise NotImplementedError(
            f"compiler={given['compiler']!r} is not supported: set the environment variable CC"
        )


def _target(is_cuda: bool, device: int) -> str:
    return f"cuda:{device}" if is_cuda else "cpu"


class _Kernel:
    """A kernel as it was given, checked."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given
        self.source = Source(given["kernel_source"], given["lang"])
        if not self.source.names(given["kernel_name"]):
            raise ValueError(f"there is no function `{given['kernel_name']}` in kernel_source")
        self.is_cuda = self.source.is_cuda
        self.space = Space(given["tune_params"], given["restrictions"])
        self.names = list(self.space.parameters)
        for name in self.names:
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"{name!r} is no name for a macro: letters, digits and _")
        self.blocks = [*(given["block_size_names"] or ()), *_BLOCK][:3]
        if given["block_size_names"]:
            named = list(given["block_size_names"])
            self.blocks = [*named, *_BLOCK[len(named) :]]
        self.strategy, self.every = _strategy(given["strategy"])
        if given["cmem_args"]:
            if not self.is_cuda:
                raise ValueError("cmem_args is for kernels in CUDA")
            self.source.with_constants(given["cmem_args"])
        if given["smem_args"] and not self.is_cuda:
            raise ValueError("smem_args is for kernels in CUDA")
        options = list(given["compiler_options"] or ())
        self.openmp = not self.is_cuda and (
            "-fopenmp" in options or "#pragma omp" in self.source.text
        )
        self.options = [o for o in options if o != "-fopenmp"]
        self.arguments = _arguments(given, self.source.text, self._first())
        self.given_grid = self._grid() if self.is_cuda else []

    def _first(self) -> dict[str, Any]:
        return next(iter(self.space))

    def identity(self) -> dict[str, Any]:
        """What a cache of these results says of itself."""
        size = self.given["problem_size"]
        if callable(size):
            size = "callable"
        return {
            "kernel_name": self.given["kernel_name"],
            "problem_size": json.loads(json.dumps(size, default=_plain)),
            "tune_params_keys": self.names,
            "tune_params": json.loads(json.dumps(self.space.parameters, default=_plain)),
            "objective": "time",
        }

    def _extents(self) -> list[Amount]:
        size = self.given["problem_size"]
        if callable(size):
            size = traced(size, self.names, "problem_size")
        if not isinstance(size, (list, tuple)):
            size = [size]
        if not 1 <= len(size) <= 3:
            raise ValueError(f"problem_size has one to three extents, not {len(size)}")
        return [amount(s, self.names, "problem_size").__floor__() for s in size]

    def _grid(self) -> list[str]:
        """Blocks along x, y and z."""
        extents = self._extents() + [Amount("1")] * 3
        blocks = []
        for axis, extent, block in zip("xyz", extents, self.blocks):
            given = self.given[f"grid_div_{axis}"]
            if given is None:
                divisor = Amount(block if block in self.names else "1")
            else:
                divisor = product(given, self.names, f"grid_div_{axis}")
            blocks.append(extent.over(divisor))
        return blocks

    def _threads(self) -> list[str]:
        usual = ("256", "1", "1")
        return [b if b in self.names else u for b, u in zip(self.blocks, usual)]

    def budget(self, options: Mapping[str, Any] | None, known: int) -> dict[str, Any] | None:
        """Trials and seconds that are left, as arguments of :func:`squall.tune`."""
        options = dict(options or {})
        trials, seconds = options.pop("max_fevals", None), options.pop("time_limit", None)
        if options:
            raise NotImplementedError(
                f"strategy_options has {', '.join(map(repr, options))}: Squall's strategies have"
                " max_fevals and time_limit"
            )
        left = self.space._inner.count() - known
        if trials is not None:
            left = min(left, int(trials) - known)
        if left <= 0:
            return None
        return {"trials": left, "seconds": None if seconds is None else float(seconds)}

    def tune(self, budget: dict[str, Any], results: Results, known: Cache) -> None:
        """Tunes, and adds what was tried."""
        threads = self.given["threads"]
        if threads is None:
            threads = len(os.sched_getaffinity(0)) if self.openmp else 1
        with tempfile.TemporaryDirectory(prefix="squall-kernel-") as folder:
            path = Path(folder)
            (path / "kernel.toml").write_text(self._toml(path, known), encoding="utf-8")
            store = self.given["store"] or path / "trials.squall"
            report: Report | None = None
            try:
                report = tune(
                    path / "kernel.toml",
                    store=store,
                    target=_target(self.is_cuda, self.given["device"]),
                    threads=threads,
                    seed=self.given["seed"] or 0,
                    strategy=self.strategy,
                    progress=results.progress(self.given["verbose"]),
                    judge=self._judge(),
                    **budget,
                )
            except BaseException as e:
                report = getattr(e, "report", None)
                if report is None:
                    raise
                results.ended = e
            lines = _squall.trials(os.fspath(store), report.tasks[0]["name"])
            results.add(report, [json.loads(line) for line in lines])

    def _judge(self) -> Callable[[bytes], str | None] | None:
        """Kernel Tuner's ``verify`` as a function of the bytes of all outputs."""
        verify, atol = self.given["verify"], self.given["atol"]
        if verify is None:
            return None
        import numpy

        def judge(data: bytes) -> str | None:
            results, at = [], 0
            for a in self.arguments:
                if a.role == "input" or a.is_scalar:
                    results.append(None)
                    continue
                flat = numpy.frombuffer(data, a.value.dtype, a.value.size, at)
                results.append(flat.reshape(a.value.shape).copy())
                at += a.value.nbytes
            right = verify(self.given["answer"], results, atol=atol)
            return None if right else "verify says that the results are wrong"

        return judge

    def _toml(self, folder: Path, known: Cache) -> str:
        """The kernel.toml, its files written beside it."""
        text = json.dumps
        name = self.source.write(folder, self._prelude())
        lines = [f"source = {text(name)}", f"entry = {text(self.given['kernel_name'])}"]
        flags = list(self.options)
        if self.is_cuda:
            lines.append(f"grid = {text(self.given_grid)}")
            lines.append(f"block = {text(self._threads())}")
            if self.given["smem_args"]:
                lines.append(f"shared = {text(self._shared())}")
        else:
            # Their pointers are not const, and may be of vectors.
            quiet = ("incompatible-pointer-types", "discarded-qualifiers", "pointer-sign")
            flags += [f"-Wno-{w}" for w in quiet]
            lines.append(f"openmp = {'true' if self.openmp else 'false'}")
        lines.append(f"flags = {text(flags)}")
        if any(a.answer is not None for a in self.arguments):
            lines.append(f"tolerance = {self._tolerance()!r}")
        lines += self._legal(folder, known)
        for argument in self.arguments:
            lines += argument.toml(folder)
        for knob, values in self.space.parameters.items():
            lines += ["[[knob]]", f"name = {text(knob)}", f"values = {_knob_values(values)}"]
        answers = [a for a in self.arguments if a.answer is not None]
        if answers:
            files = [a.write_answer(folder) for a in answers]
            lines += ["[reference]", f"outputs = {text(files)}"]
        return "\n".join(lines) + "\n"

    def _prelude(self) -> str:
        """The macros that Kernel Tuner's kernels find beside their parameters."""
        lines = ["#define kernel_tuner 1"]
        defined = zip(self.blocks, self._threads())
        lines += [f"#define {b} {t}" for b, t in defined if b not in self.names and self.is_cuda]
        for axis, blocks in zip("xyz", self.given_grid):
            if f"grid_size_{axis}" in self.source.text and "min(" not in blocks + "max(":
                lines.append(f"#define grid_size_{axis} ({blocks.replace('//', '/')})")
        return "\n".join(lines) + "\n"

    def _shared(self) -> str:
        known = dict(self.given["smem_args"])
        size = known.pop("size", 0)
        if known:
            raise NotImplementedError(f"smem_args has {', '.join(known)}: only 'size' is known")
        return amount(size, self.names, "smem_args['size']").whole()

    def _tolerance(self) -> float:
        """What numpy.allclose allows at the largest element, relative to it."""
        import numpy

        largest = 0.0
        for a in self.arguments:
            if a.answer is not None and a.answer.dtype.kind == "f" and a.answer.size:
                largest = max(largest, float(numpy.max(numpy.abs(a.answer))))
        allowed = self.given["atol"] / largest if largest > 0 else 0.0
        return min(allowed + 1e-5, 0.999)

    def _legal(self, folder: Path, known: Cache) -> list[str]:
        """The restrictions, or the list of what is legal and not yet known."""
        if not self.space.evaluated and not known.entries:
            return [f"constraints = {json.dumps(self.space.compiled)}"]
        with open(folder / "legal.txt", "w", encoding="utf-8") as out:
            for c in self.space:
                if known.key(c) not in known.entries:
                    out.write(",".join(f"{n}={_word(v)}" for n, v in c.items()) + "\n")
        return ['configurations = "legal.txt"']


def _word(value: Any) -> str:
    """A parameter's value as a macro has it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _knob_values(values: Sequence[Any]) -> str:
    if all(isinstance(_plain(v), int) for v in values):
        return json.dumps([int(v) for v in values])
    return json.dumps([_word(v) for v in values])


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's own."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "shape", None) == () else value


def _strategy(given: Any) -> tuple[str | None, bool]:
    """Squall's name of a strategy, and whether every configuration is wanted."""
    name = getattr(given, "strategy", given)
    if given is None or name == "brute_force":
        return None, True
    if name is None:
        return None, False
    known = dict(_squall.strategies())
    alike = {"random_sample": "random"}.get(name, name)
    if alike in known:
        return alike, False
    raise NotImplementedError(
        f"strategy={given!r} is not one of Squall's: {', '.join(known)}; or leave it away"
    )


class _Argument:
    """One argument of the kernel."""

    def __init__(self, position: int, value: Any, role: str, answer: Any) -> None:
        import numpy

        self.name, self.role = f"argument_{position}", role
        if not isinstance(value, (numpy.ndarray, numpy.generic)):
            raise TypeError(
                f"argument {position} is a {type(value).__name__}: arguments are numpy arrays, and"
                " numbers as numpy.int32(n) or numpy.float32(x)"
            )
        if value.dtype.name not in _TYPES:
            raise NotImplementedError(
                f"argument {position} is {value.dtype.name}: there are {', '.join(_TYPES)}"
            )
        self.type, self.same = _TYPES[value.dtype.name]
        self.is_scalar = not isinstance(value, numpy.ndarray)
        self.value = numpy.asarray(value)
        self.answer = None
        if answer is None:
            return
        if self.is_scalar:
            raise ValueError(f"answer has a value for argument {position}, which is a number")
        self.answer = numpy.asarray(answer)
        if self.answer.size != self.value.size:
            raise ValueError(
                f"answer {position} has {self.answer.size} elements, the argument {value.size}"
            )

    def toml(self, folder: Path) -> list[str]:
        import numpy

        lines = ["[[argument]]", f'name = "{self.name}"', f'type = "{self.type}"']
        if self.is_scalar:
            same = self.value.view(self.same)
            shown = repr(float(same)) if self.type[0] == "f" else f'"{int(same)}"'
            return [*lines, 'role = "scalar"', f"value = {shown}"]
        shape = list(self.value.shape) or [1]
        lines += [f'role = "{self.role}"', f"shape = {shape}"]
        if self.role != "output":
            array = numpy.ascontiguousarray(self.value).view(self.same).reshape(shape)
            numpy.save(folder / f"{self.name}.npy", array)
            lines.append(f'file = "{self.name}.npy"')
        return lines

    def write_answer(self, folder: Path) -> str:
        import numpy

        shape = self.value.shape or (1,)
        answer = self.answer.astype(self.value.dtype, copy=False)  # type: ignore[union-attr]
        same = numpy.ascontiguousarray(answer.reshape(shape)).view(self.same)
        numpy.save(folder / f"{self.name}_answer.npy", same)
        return f"{self.name}_answer.npy"


def _arguments(given: Mapping[str, Any], text: str, first: Mapping[str, Any]) -> list[_Argument]:
    """The arguments with what the kernel does with each."""
    values, answers = list(given["arguments"]), given["answer"]
    if answers is None:
        answers = [None] * len(values)
    answers = list(answers)
    # Their examples leave the numbers at the end out.
    while len(answers) < len(values) and not getattr(values[len(answers)], "shape", (1,)):
        answers.append(None)
    if len(answers) != len(values):
        raise ValueError(f"answer has {len(answers)} entries for {len(values)} arguments")
    macros = {n: _word(v) for n, v in first.items()}
    found = roles(text, given["kernel_name"], len(values), macros)
    checked = any(a is not None for a in answers)
    made = []
    for i, (value, answer, role) in enumerate(zip(values, answers, found)):
        if checked:
            # What has no answer is an input: Kernel Tuner's words for it.
            role = "input" if answer is None else ("output" if role == "output" else "inout")
        if i in set(given["inout"]) and role != "input":
            role = "inout"
        made.append(_Argument(i, value, role, answer))
    if not any(a.role != "input" and not a.is_scalar for a in made):
        raise ValueError(
            f"{given['kernel_name']} writes to none of its arguments: give `answer` with the"
            " results that are expected"
        )
    return made

