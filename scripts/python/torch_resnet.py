#!/usr/bin/env python3
"""ResNet-18 through torch.compile: Squall's backend against inductor and eager, on one thread.

    torch_resnet.py [--device cpu|cuda] [--seconds 300] [--store resnet18.squall] [--rounds 20]

Weights are drawn at random. The three are timed in turns, one inference each a round; the ratio is of
the medians. Results are compared with eager execution. On a GPU in 32-bit floats without TF32, in two
ways: calls as they are, waited for, and captured graphs of ten calls, by the GPU's clock.
"""

import argparse
import statistics
import time

import torch

import squall.torch  # noqa: F401


def captured(way, x, calls=10):
    """A function that replays a graph of some calls; gives milliseconds of the GPU's for one."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            way(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(calls):
            way(x)

    def replay():
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        graph.replay()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) / calls

    return replay


class Block(torch.nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        conv = torch.nn.Conv2d
        self.a = conv(before, after, 3, stride, 1, bias=False)
        self.b = conv(after, after, 3, 1, 1, bias=False)
        self.na, self.nb = torch.nn.BatchNorm2d(after), torch.nn.BatchNorm2d(after)
        self.side = None
        if stride != 1 or before != after:
            self.side = torch.nn.Sequential(
                conv(before, after, 1, stride, bias=False), torch.nn.BatchNorm2d(after)
            )

    def forward(self, x):
        y = self.nb(self.b(torch.relu(self.na(self.a(x)))))
        return torch.relu(y + (x if self.side is None else self.side(x)))


class ResNet18(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
        widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
        self.stem = torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.normal = torch.nn.BatchNorm2d(64)
        self.blocks = torch.nn.Sequential(*(Block(*w) for w in widths))
        self.last = torch.nn.Linear(512, 1000)

    def forward(self, x):
        x = torch.relu(self.normal(self.stem(x)))
        x = torch.nn.functional.max_pool2d(x, 3, 2, 1)
        return self.last(self.blocks(x).mean((2, 3)))


def main():
    said = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    said.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    said.add_argument("--seconds", type=float, default=300)
    said.add_argument("--store", default="resnet18.squall")
    said.add_argument("--rounds", type=int, default=20)
    a = said.parse_args()
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    model = ResNet18().eval().to(a.device)
    x = torch.rand(1, 3, 224, 224, device=a.device)
    options = {"store": a.store, "seconds": a.seconds, "threads": 1}
    ways = {
        "eager": model,
        "inductor": torch.compile(model, dynamic=False),
        "squall": torch.compile(model, backend="squall", dynamic=False, options=options),
    }
    with torch.no_grad():
        expected = model(x)
        for name, way in list(ways.items()):
            try:
                error = (way(x) - expected).abs().max() / expected.abs().max()
            except Exception as e:  # inductor needs a C++ compiler and headers
                print(f"{name}: {str(e).splitlines()[0]}")
                del ways[name]
                continue
            print(f"{name}: error {error:.2e} of the largest result")
        report("calls", ways, lambda way: call(way, x), a.rounds)
        if a.device == "cuda":
            graphs = {name: captured(way, x) for name, way in ways.items()}
            report("captured", graphs, lambda replay: replay(), a.rounds)


def call(way, x):
    """Milliseconds until the result of a call is there."""
    began = time.perf_counter()
    way(x)
    if x.is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3


def report(what, ways, timed, rounds):
    times = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(timed(way))
    ours = statistics.median(times["squall"])
    for name, t in times.items():
        middle = statistics.median(t)
        ratio = middle / ours
        print(f"{what}, {name}: median {middle:.3f} ms, least {min(t):.3f} ms, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
