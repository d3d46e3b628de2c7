#!/usr/bin/env python3
"""Backward data and weights of ResNet-18's convolutions: Squall's kernels beside PyTorch's, which are cuDNN's on a CUDA GPU
(fp32 without TF32) and oneDNN's on a CPU (one thread).

    backward.py SQUALL OUT.json [--target cuda|cpu] [--trials 60] [--batches 1,16] [--only PATTERNS] [--patience 420]

All layers are tuned in one session, and each winner is checked against its reference by Squall. PyTorch's time is that of
convolution_backward, the better of two layouts; on a GPU with benchmarking on, in a captured graph of twenty calls. All are
times of calls in a row, with warm caches."""
import argparse
import fnmatch
import json
import math
import platform
import signal
import statistics
import subprocess
import time

import torch

# name, channels, image, filters, filter, stride, padding, how often the network has it
LAYERS = [("conv1_7x7_s2", 3, 224, 64, 7, 2, 3, 1), ("conv2_3x3", 64, 56, 64, 3, 1, 1, 4), ("conv3_3x3_s2", 64, 56, 128, 3, 2, 1, 1)]
LAYERS += [("conv3_1x1_s2", 64, 56, 128, 1, 2, 0, 1), ("conv3_3x3", 128, 28, 128, 3, 1, 1, 3), ("conv4_3x3_s2", 128, 28, 256, 3, 2, 1, 1)]
LAYERS += [("conv4_1x1_s2", 128, 28, 256, 1, 2, 0, 1), ("conv4_3x3", 256, 14, 256, 3, 1, 1, 3), ("conv5_3x3_s2", 256, 14, 512, 3, 2, 1, 1)]
LAYERS += [("conv5_1x1_s2", 256, 14, 512, 1, 2, 0, 1), ("conv5_3x3", 512, 7, 512, 3, 1, 1, 3)]
CALLS = 20
DEVICE = "cuda"
# Others of MIOpen's problems, one of each kind: operator line, then PyTorch's shapes of image and filters (of the
# forward convolution) and its arguments: padding, dilation, groups and direction.
OTHERS = {
    "conv3d": ("conv3d n=1 c=16 d=8 h=28 w=28 k=32 t=3 r=3 s=3 stride=1 pad=1", (1, 16, 8, 28, 28), (32, 16, 3, 3, 3), (1, 1, 1, "forward")),
    "grouped_data": ("conv2d n=1 c=64 h=28 w=28 k=64 r=3 s=3 stride=1 pad=1 groups=4 direction=backward_data", (1, 64, 28, 28), (64, 16, 3, 3), (1, 1, 4, "data")),
    "dilated_weights": ("conv2d n=1 c=64 h=28 w=28 k=64 r=3 s=3 stride=1 pad=2 dilation=2 direction=backward_weights", (1, 64, 28, 28), (64, 64, 3, 3), (2, 2, 1, "weights")),
    "transposed": ("conv_transpose2d n=1 c=64 h=28 w=28 k=32 r=4 s=4 stride=2 pad=1", (1, 64, 28, 28), (64, 32, 4, 4), (1, 1, 1, "transposed")),
}


def timed_on_cpu(call):
    """Microseconds a call: the least of five medians, for these machines have slow moments."""
    call()
    began = time.perf_counter()
    call()
    calls = max(1, min(50, int(0.05 / (time.perf_counter() - began))))
    medians = []
    for _ in range(5):
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        medians.append(statistics.median(times))
    return min(medians) * 1e6


def timed(call):
    """Microseconds a call."""
    if DEVICE == "cpu":
        return timed_on_cpu(call)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(20):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b) / CALLS * 1e3)
    return statistics.median(times)


def theirs(batch, layer, direction):
    _, c, h, k, r, stride, pad, _ = layer
    out = (h + 2 * pad - r) // stride + 1
    mask = [direction == "backward_data", direction == "backward_weights", False]
    best = None
    for form in (torch.contiguous_format, torch.channels_last):
        x, w, g = (torch.randn(s, device=DEVICE).to(memory_format=form) for s in ((batch, c, h, h), (k, c, r, r), (batch, k, out, out)))
        us = timed(lambda: torch.ops.aten.convolution_backward(g, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask))
        best = us if best is None else min(best, us)
    return best


def other(image, filters, arguments):
    pad, dilation, groups, direction = arguments
    spatial = len(image) - 2
    x, w = (torch.randn(s, device=DEVICE) for s in (image, filters))
    if direction == "transposed":
        return timed(lambda: torch.nn.functional.conv_transpose2d(x, w, stride=2, padding=pad))
    forward = lambda: torch.ops.aten.convolution(x, w, None, [1] * spatial, [pad] * spatial, [dilation] * spatial, False, [0] * spatial, groups)
    if direction == "forward":
        return timed(forward)
    g, mask = torch.randn_like(forward()), [direction == "data", direction == "weights", False]
    return timed(lambda: torch.ops.aten.convolution_backward(g, x, w, None, [1] * spatial, [pad] * spatial, [dilation] * spatial, False, [0] * spatial, groups, mask))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("squall")
    p.add_argument("out")
    p.add_argument("--target", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--trials", type=int, default=60, help="of each of the 48 kernels; some eight are made in a second")
    p.add_argument("--batches", default="1,16")
    p.add_argument("--only", default="*", help="patterns of names, with commas between them")
    p.add_argument("--layout", default="nchw", choices=["nchw", "nhwc"], help="of Squall's images; PyTorch has the better of both")
    p.add_argument("--patience", type=float, default=420, help="seconds of tuning at most")
    a = p.parse_args()
    global DEVICE
    DEVICE = a.target
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    wanted = lambda name: any(fnmatch.fnmatch(name, p) for p in a.only.split(","))
    lines, rows = [], []
    for batch in map(int, a.batches.split(",")):
        for layer in LAYERS:
            for direction in ("backward_data", "backward_weights"):
                name, c, h, k, r, stride, pad, _ = layer
                called = f"{name}_n{batch}_{direction}"
                if not wanted(called):
                    continue
                lines.append(f"{called}: conv2d n={batch} c={c} h={h} w={h} k={k} r={r} s={r} stride={stride} pad={pad} direction={direction}" + (" layout=nhwc" if a.layout == "nhwc" else ""))
                rows.append({"name": called, "batch": batch, "direction": direction, "torch_us": theirs(batch, layer, direction)})
    for name, (line, *said) in OTHERS.items():
        if wanted(name):
            lines.append(f"{name}: {line}")
            rows.append({"name": name, "torch_us": other(*said)})
    about = {"device": torch.cuda.get_device_name() if DEVICE == "cuda" else platform.processor(), "torch": torch.__version__}
    # What was measured so far is kept: the time of a lent machine may end.
    json.dump({**about, "rows": rows}, open(a.out, "w"))
    open(a.out + ".ops", "w").write("\n".join(lines) + "\n")
    command = [a.squall, "tune", a.out + ".ops", "--target", DEVICE, "--store", a.out + ".squall", "--json"]
    command += ["--trials", str(a.trials)]
    tuning = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        out, _ = tuning.communicate(timeout=a.patience)
    except subprocess.TimeoutExpired:
        # As Ctrl-C: the report of what was found comes.
        tuning.send_signal(signal.SIGINT)
        out, _ = tuning.communicate()
    said = [json.loads(l) for l in out.splitlines() if l.startswith("{")]
    tasks = {t["name"]: t for t in said[-1]["tasks"]} if said else {}
    for row in rows:
        t = tasks.get(row["name"], {})
        row["trials"], row["failed"] = t.get("trials"), t.get("failed")
        row["best"] = t.get("best")
        if t.get("best_ns"):
            row["squall_us"] = t["best_ns"] / 1e3
            if "torch_us" in row:
                row["ratio"] = row["torch_us"] / row["squall_us"]
        print(json.dumps({k: v for k, v in row.items() if k != "best"}), flush=True)
    means = {}
    for batch in sorted({r["batch"] for r in rows if "batch" in r}):
        for direction in ("backward_data", "backward_weights"):
            ratios = [r["ratio"] for r in rows if r.get("batch") == batch and r["direction"] == direction and "ratio" in r]
            if ratios:
                means[f"n{batch} {direction}"] = round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 3)
    print("PyTorch's time over Squall's, geometric means:", means, "exit", tuning.returncode)
    json.dump({**about, "means": means, "rows": rows}, open(a.out, "w"))


if __name__ == "__main__":
    main()
