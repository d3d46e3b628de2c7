"""Writes 40 lists of 16 random operators each, of no known network, for benches/general/gather.sh.

    python benches/general/operators.py FOLDER

Lines of examples/workloads.ops are left out: the predictor is judged by those.
"""
import sys
from pathlib import Path

import numpy as np

KINDS = """conv3 conv3s2 conv1 conv1 conv1s2 conv5 conv7 depthwise3 depthwise3 depthwise5
depthwise3s2 grouped dilated product product product1 batched softmax layernorm pool reduce
elementwise stem""".split()
SIDE = {"conv3": 3, "conv3s2": 3, "conv1": 1, "conv1s2": 1, "conv5": 5, "conv7": 7, "grouped": 3,
        "dilated": 3}
ROOT = Path(__file__).resolve().parents[2]


def shape_of(line):
    """What makes two lines one shape, whatever their epilogue."""
    leave = ("pad", "dilation", "epilogue", "weight")
    return tuple(sorted(w for w in line.split() if not w.startswith(leave)))


def draw(r, low, high):
    """A whole number, evenly by its logarithm."""
    return int(np.exp(r.uniform(np.log(low), np.log(high))))


def channels(r, low=8, high=640):
    c, q = draw(r, low, high), int(r.choice([1, 4, 8, 8, 16]))
    return max(q, c // q * q)


def convolution(r, kind, after):
    stride = 2 if kind.endswith("s2") or kind == "stem" else 1
    stem = int(r.choice([3, 5, 7]))
    side = SIDE.get(kind, stem)
    groups, dilation, c, k = 1, 1, channels(r), channels(r)
    if kind == "stem":
        c, k = 3, channels(r, 12, 100)
    if kind == "grouped":
        groups = int(r.choice([2, 4, 8, 16, 32]))
        c, k = (max(groups, x // groups * groups) for x in (c, k))
    if kind == "dilated":
        dilation = int(r.choice([2, 3, 4]))
    h = draw(r, 60, 260) if kind == "stem" else draw(r, 5, 130)
    w = h if r.random() < 0.8 else draw(r, 5, 130)
    pad = dilation * (side // 2) if r.random() < 0.9 else 0
    reach = dilation * (side - 1) + 1
    flop = 2 * h * w * c * k * side * side / groups / stride**2
    if min(h, w) + 2 * pad < reach or not 3e5 < flop < 4e8:
        return None
    return (f"conv2d n=1 c={c} h={h} w={w} k={k} r={side} s={side} stride={stride} pad={pad} "
            f"dilation={dilation} groups={groups} epilogue={after}")


def depthwise(r, kind, after):
    c, h = channels(r, 16, 1200), draw(r, 5, 130)
    side = 5 if "5" in kind else 3
    stride = 2 if "s2" in kind or r.random() < 0.2 else 1
    if not 1e5 < 2 * c * h * h * side * side < 2e8:
        return None
    return (f"conv2d n=1 c={c} h={h} w={h} k={c} r={side} s={side} stride={stride} "
            f"pad={side // 2} dilation=1 groups={c} epilogue={after}")


def product(r, kind):
    m = 1 if kind == "product1" else draw(r, 2, 700)
    n, k = channels(r, 16, 3500), channels(r, 16, 3500)
    if not 3e5 < 2 * m * n * k < 5e8:
        return None
    weight = "b" if kind == "product1" else r.choice(["b", "b", "none"])
    after = r.choice(["none", "bias", "bias,relu"])
    return f"matmul m={m} n={n} k={k} weight={weight} epilogue={after}"


def batched(r):
    b, m, n = int(r.choice([2, 3, 4, 6, 10, 12, 16, 20])), draw(r, 8, 300), draw(r, 8, 300)
    k = int(r.choice([24, 32, 40, 48, 64, 80, 96, 128])) if r.random() < 0.5 else draw(r, 16, 300)
    if not 3e5 < 2 * b * m * n * k < 3e8:
        return None
    return f"matmul batch={b} m={m} n={n} k={k} weight=none"


def line(r):
    """One operator, or nothing where the drawn one is too small or too large."""
    kind = r.choice(KINDS)
    after = r.choice(["none", "bias", "bias,relu", "bias,relu", "bias,add,relu"])
    if kind == "stem" or kind in SIDE:
        return convolution(r, kind, after)
    if kind.startswith("depthwise"):
        return depthwise(r, kind, after)
    if kind.startswith("product"):
        return product(r, kind)
    if kind == "batched":
        return batched(r)
    rows, cols = draw(r, 8, 3000), draw(r, 16, 2500)
    if rows * cols > 2e6:
        return None
    if kind == "pool":
        side, stride, h = int(r.choice([2, 3, 3, 5])), int(r.choice([1, 2, 2])), draw(r, 8, 130)
        return (f"pool kind={r.choice(['max', 'avg'])} n=1 c={channels(r, 16, 512)} h={h} w={h} "
                f"r={side} s={side} stride={stride} pad={side // 2}")
    if kind == "softmax":
        return f"softmax rows={rows} cols={cols}"
    if kind == "layernorm":
        return f"layernorm rows={rows} cols={cols} eps=1e-05"
    if kind == "reduce":
        return f"reduce op={r.choice(['sum', 'mean', 'max'])} rows={rows} cols={cols}"
    op = r.choice(["relu", "add", "mul", "sigmoid", "tanh", "gelu"])
    return f"elementwise op={op} n={rows * cols}"


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    judged = (ROOT / "examples/workloads.ops").read_text().splitlines()
    judged = {shape_of(l.split(":", 1)[1]) for l in judged if ":" in l and l[0] != "#"}
    r, seen = np.random.default_rng(20261123), set()
    for file in range(40):
        lines = []
        while len(lines) < 16:
            found = line(r)
            if found is None or found in seen or shape_of(found) in judged:
                continue
            seen.add(found)
            lines.append(f"o{file:02}_{len(lines)}: {found}\n")
        (folder / f"o{file:02}.ops").write_text("".join(lines))


if __name__ == "__main__":
    main()
