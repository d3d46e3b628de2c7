"""PyTorch's side of `gpu_operators.py`: two processes that it starts, one that times operators and
one of several that compile them ahead. Their arrays lie in files, and so does the result in 64-bit
floats that both sides are compared with.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

import numpy as np

# How far a result may lie from that of 64-bit floats, by the norm of the difference over the norm.
# 32-bit floats lie far below it, and TF32 above.
LIMIT = 1e-4
# Windows are as Squall's: 100 replays of short ones, and of others as many as fill 2 ms.
WINDOW_S = 2e-3
REPLAYS = 100
# One replay that takes less may wait for the host's next launch.
SHORT_S = 20e-6


# ---- cases and results ---------------------------------------------------------------------------


def constants_of(model):
    """The arrays of a model's constants in the order of its node; None where an operand is left
    out."""
    from onnx import numpy_helper

    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    names = model.graph.node[0].input
    return [known.get(n) for n in names if n in known or not n]


def read_case(work, name):
    """A model's inputs and constants."""
    import onnx

    model = onnx.load(work / name / "model.onnx")
    inputs = [np.load(work / name / f"{v.name}.npy") for v in model.graph.input]
    return inputs, constants_of(model)


def distance(name, y, want, inputs):
    """How far a result lies from the right one, and whether that is right."""
    if y.shape != want.shape:
        return f"shape {list(y.shape)} for {list(want.shape)}", False
    if name == "scatter_nd":
        # A row that is written several times may have any of its updates.
        rows, times = np.unique(inputs[1][:, 0], return_counts=True)
        kept = np.setdiff1d(np.arange(len(y)), rows[times > 1])
        y, want = y[kept], want[kept]
    if want.dtype.kind in "iub":
        apart = np.abs(y.astype(np.float64) - want.astype(np.float64))
        share = float((apart > 0).mean()) if apart.size else 0.0
        # A value halfway between two bytes in 64-bit floats may lie beside it in 32-bit floats.
        if name == "dynamic_quantize":
            return share, share < 1e-3 and float(apart.max()) <= 1
        return share, share == 0
    y, want = y.astype(np.float64), want.astype(np.float64)
    far = float(np.linalg.norm((y - want).ravel()) / max(np.linalg.norm(want.ravel()), 1e-30))
    return (far, far < LIMIT) if math.isfinite(far) else ("not a number", False)


# ---- timing --------------------------------------------------------------------------------------


def set_up(device):
    """PyTorch with 32-bit floats that are none of TF32, and with cuDNN's own comparison."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    # Which of Triton's configurations is fastest is measured where nothing else runs, and so may
    # not be taken from the processes that compile ahead.
    torch._inductor.config.autotune_local_cache = False
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")


def compiled(fn, mode):
    import torch

    torch._dynamo.reset()
    return torch.compile(fn, dynamic=False, mode=None if mode == "default" else mode)


def ways_of(name, modes):
    """The ways to run an operator: a label, which variant, the layout and how it is compiled."""
    from torch_operators import CHANNELS_LAST, WAYS

    for variant in WAYS[name]:
        tail = f" {variant}" if variant else ""
        yield f"eager{tail}", variant, False, None
        # Inputs and results have their channels last, too: no copy is counted against PyTorch.
        if name in CHANNELS_LAST and not variant:
            yield "eager channels last", variant, True, None
        for mode in modes:
            short = "compiled" if mode == "default" else mode
            yield f"{short}{tail}", variant, False, mode


def built(name, variant, last, arrays, device):
    """A way's function and its arguments."""
    import torch
    from torch_operators import WAYS, placed

    x, w = (placed(a, device, torch.float32, last) for a in arrays)
    return WAYS[name][variant](x, w)


def windows(once, run_many, seconds):
    """Medians and least of windows of replays, in microseconds a replay."""
    replays = REPLAYS if once * REPLAYS <= WINDOW_S else int(WINDOW_S / once) + 1
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        times.append(run_many(replays) * 1e6)
    times.sort()
    return round(times[len(times) // 2], 3), round(times[0], 3), len(times)


def on_gpu(fn, arguments, seconds, is_captured):
    """Times a function by replays of its graph. Gives the row of the way and its result."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            y = fn(*arguments)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    replay = lambda: fn(*arguments)
    if is_captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = fn(*arguments)
        replay = graph.replay
        # Elements that the graph does not write stay 0 or false, and the comparison finds them.
        y.zero_()
        replay()
        torch.cuda.synchronize()
    result = y.detach().cpu().numpy()

    def run_many(replays, waits=False):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if waits:
            # Some 6 us of waiting a launch, at 2 GHz.
            torch.cuda._sleep(int(replays * 12_000))
        began.record()
        for _ in range(replays):
            replay()
        ended.record()
        torch.cuda.synchronize()
        return began.elapsed_time(ended) / replays * 1e-3

    run_many(10)
    once = run_many(10)
    median, least, count = windows(once, run_many, seconds)
    row = {"us": median, "best_us": least, "windows": count}
    if is_captured and once < SHORT_S:
        median, least, _ = windows(once, lambda n: run_many(n, True), seconds)
        row |= {"queued_us": median, "queued_best_us": least}
    if not is_captured:
        row["note"] = "not captured: calls from Python"
    return row, result


def on_cpu(fn, arguments, seconds):
    """The same by the clock, for trying this script on a machine without a GPU."""
    y = fn(*arguments)

    def run_many(calls):
        began = time.perf_counter()
        for _ in range(calls):
            fn(*arguments)
        return (time.perf_counter() - began) / calls

    median, least, count = windows(max(run_many(1), WINDOW_S / 3), run_many, seconds)
    return {"us": median, "best_us": least, "windows": count}, y.detach().cpu().numpy()


def worker(a):
    """Answers names of operators on standard input: a line of JSON for each way, and one at the
    end. The output of libraries goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    from torch_operators import LENGTH_BY_DATA, reference

    def say(**row):
        answers.write(json.dumps(row) + "\n")
        answers.flush()

    set_up(a.device)
    about = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if a.device == "cuda":
        about["gpu"] = torch.cuda.get_device_name()
    say(about=about)
    work, modes = Path(a.work), a.modes.split(",") if a.modes else []
    for name in map(str.strip, sys.stdin):
        arrays = read_case(work, name)
        try:
            want = reference(name, *arrays, a.device)
            np.save(work / name / "reference.npy", want)
        except Exception as e:  # an operator that cannot be written is said, not hidden
            say(end=True, error=f"reference: {type(e).__name__}: {e}"[:300])
            continue
        is_broken = False
        for label, variant, last, mode in ways_of(name, modes):
            began = time.perf_counter()
            try:
                with torch.inference_mode():
                    fn, arguments = built(name, variant, last, arrays, a.device)
                    fn = compiled(fn, mode) if mode else fn
                    if a.device == "cuda":
                        graph = name not in LENGTH_BY_DATA
                        row, y = on_gpu(fn, arguments, a.seconds, graph)
                    else:
                        row, y = on_cpu(fn, arguments, a.seconds)
                row["differs"], row["right"] = distance(name, y, want, arrays[0])
            except Exception as e:  # a way that fails is said, and the others go on
                row = {"error": f"{type(e).__name__}: {e}"[:300]}
                is_broken = a.device == "cuda"
            row["took_s"] = round(time.perf_counter() - began, 1)
            say(way=label, row=row)
        # A capture that failed can leave the allocator in its middle.
        say(end=True, note=LENGTH_BY_DATA.get(name), broken=is_broken)


def warm(a):
    """Compiles operators and runs each once, so that the timing process finds the programs. Modes
    that choose between programs by their times wait for a GPU that does nothing else."""
    import torch

    set_up(a.device)
    for name in a.names:
        arrays = read_case(Path(a.work), name)
        for label, variant, last, mode in ways_of(name, a.modes.split(",")):
            if mode != "default":
                continue
            try:
                with torch.inference_mode():
                    fn, arguments = built(name, variant, last, arrays, a.device)
                    compiled(fn, mode)(*arguments)
                if a.device == "cuda":
                    torch.cuda.synchronize()
            except Exception as e:  # the timing process says it, too
                print(f"{name} {label}: {type(e).__name__}: {e}"[:300], flush=True)
