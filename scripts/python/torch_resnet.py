#!/usr/bin/env python3
"""ResNet-18 through torch.compile: Squall's backend against inductor and eager, on one thread.

    torch_resnet.py [--seconds 300] [--store resnet18.squall] [--rounds 20]

Weights are drawn at random. The three are timed in turns, one inference each a round; the ratio is of
the medians. Results are compared with eager execution.
"""

import argparse
import statistics
import time

import torch

import squall.torch  # noqa: F401


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
    said.add_argument("--seconds", type=float, default=300)
    said.add_argument("--store", default="resnet18.squall")
    said.add_argument("--rounds", type=int, default=20)
    a = said.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x = ResNet18().eval(), torch.rand(1, 3, 224, 224)
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
        times = {name: [] for name in ways}
        for _ in range(a.rounds):
            for name, way in ways.items():
                began = time.perf_counter()
                way(x)
                times[name].append((time.perf_counter() - began) * 1e3)
    ours = statistics.median(times["squall"])
    for name, t in times.items():
        middle = statistics.median(t)
        print(f"{name}: median {middle:.2f} ms, least {min(t):.2f} ms, ratio {middle / ours:.2f}")


if __name__ == "__main__":
    main()
