"""Problem sizes and divisors, against what Kernel Tuner computes with Python's own numbers."""

import itertools
import math
import random
import re
from fractions import Fraction

import pytest

from squall._expression import amount, product
from squall._source import roles

VALUES = {"bx": [16, 32, 48], "ty": [1, 2, 5]}


def value(text, c):
    return eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(c))


def every():
    return [dict(zip(VALUES, v)) for v in itertools.product(*VALUES.values())]


@pytest.mark.parametrize(
    "size, divisors",
    [
        (1000, ["bx"]),
        (1000, ["bx", "ty"]),
        (1024, ["bx*ty/8"]),
        ("(1000 + ty) // 3", ["max(bx, 32)"]),
        ("1000 / ty", lambda p: p["bx"] / 32),
        (lambda p: 99 * p["ty"] + 1, lambda p: p["bx"] * 0.75),
        (lambda p: math.ceil(77 / p["ty"]), 7),
        ("ty**2 * 10", [3, lambda p: p["bx"] - p["ty"]]),
        (17, []),
        ("int(100 / ty) % 13 + 50", "bx"),
    ],
)
def test_blocks_are_counted_as_kernel_tuner_counts_them(size, divisors):
    names = list(VALUES)
    extent = amount(size, names, "problem_size").__floor__()
    text = extent.over(product(divisors, names, "grid_div_x"))

    def number(given, c, floor):
        if callable(given):
            return given(c)
        if isinstance(given, str):
            known = {"int": int, "max": max, "min": min}
            x = eval(given, {"__builtins__": {}, **known}, dict(c))
            return int(x) if floor else x
        if isinstance(given, list):
            return math.prod(number(g, c, True) for g in given)
        return given

    for c in every():
        expected = math.ceil(math.floor(number(size, c, True)) / number(divisors, c, True))
        assert value(text, c) == expected, (text, c)


def test_random_arithmetic_means_what_it_means_in_python():
    rng = random.Random(3)

    def fractions(c):
        return {n: Fraction(v) for n, v in c.items()}

    def term(depth):
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(["bx", "ty", f"F({rng.randint(1, 9)})"])
        return f"({term(depth - 1)} {rng.choice(['+', '*', '/', '//', '%'])} {term(depth - 1)})"

    tried = 0
    while tried < 200:
        exact = term(3)
        text = re.sub(r"F\((\d)\)", r"\1", exact)
        try:
            expected = [math.floor(eval(exact, {"F": Fraction}, fractions(c))) for c in every()]
        except ZeroDivisionError:
            continue
        tried += 1
        made = amount(text, VALUES, "it").whole()
        try:
            found = [value(made, c) for c in every()]
        except ZeroDivisionError:
            pytest.fail(f"{text} became {made}")
        assert found == expected, (text, made)


def test_what_is_no_arithmetic_is_refused():
    names = list(VALUES)
    for given, says in [
        (lambda p: 3 if p["bx"] > 16 else 4, "more than arithmetic"),
        (lambda p: int(p["bx"]), "more than arithmetic"),
        (lambda p: p["nothing"], "no tunable parameter"),
        ("bx if ty else 1", "not understood"),
        ("bz + 1", "'bz'"),
        ("__import__('os')", "not understood"),
        ("bx +", "no expression"),
        ([1], "a number, a string or a function"),
    ]:
        with pytest.raises((ValueError, TypeError), match=says):
            amount(given, names, "problem_size")


@pytest.mark.parametrize(
    "body, expected",
    [
        ("c[i] = a[i] + b[i];", ["output", "input", "input"]),
        ("c[i] += a[i] * b[i];", ["inout", "input", "input"]),
        ("if (c[i] == 0) a[i]++;", ["input", "inout", "input"]),
        ("*c = a[i] < b[0]; c[1] = a[i] == b[i];", ["output", "input", "input"]),
        ("float *q = c; q[0] = 1;", ["inout", "input", "input"]),
        ("atomicAdd(&c[i], a[i]);", ["inout", "input", "input"]),
        ("c[i] = __ldg(a + i) + __ldg(&b[i]);", ["output", "input", "input"]),
        ("c[a[i]] = LDG(b, i);", ["output", "input", "input"]),
        ("/* a[i] = 1; */ c[i] = 0; // b[i] = 2;", ["output", "input", "input"]),
        ("s.a = 1; t->b = 2; c[i] = 0;", ["output", "input", "input"]),
        ("help(c, (const float *)(a), i);", ["inout", "input", "input"]),
    ],
)
def test_what_a_kernel_does_with_its_arguments(body, expected):
    text = f"#define LDG(x, y) x[y]\nvoid f(float *c, float *a, float *b, int i);\n\
        void f(float *c, float *a,\n float *b, int i) {{ {body} }}"
    assert roles(text, "f", 4, {}) == [*expected, "input"]
