"""A kernel's source as Kernel Tuner's scripts give it: where it is, in which language, and which of
its arguments it reads and writes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CUDA = {"cuda", "cupy", "nvcuda"}
_REFUSED = {
    "opencl": "OpenCL",
    "hip": "HIP",
    "hypertuner": "hyperparameter tuning",
    "fortran": "Fortran",
    "julia": "Julia",
}
_SUFFIXES = (".c", ".cc", ".cpp", ".cu", ".cl", ".h", ".f90", ".hip")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


class Source:
    """A kernel's source: its text, the folder of what it includes, and further files."""

    def __init__(self, given: Any, lang: str | None) -> None:
        if callable(given):
            raise NotImplementedError(
                "kernel_source is a function that writes code: squall.tune_kernel takes a text or"
                " files, with the parameters as macros"
            )
        files = list(given) if isinstance(given, (list, tuple)) else [given]
        if not files:
            raise ValueError("kernel_source is empty")
        self.folder: Path | None = None
        first = os.fspath(files[0])
        if isinstance(given, (list, tuple)) or _is_file_name(first):
            path = Path(first)
            if not path.is_file():
                raise FileNotFoundError(f"kernel_source names {first}, which is not there")
            self.text = path.read_text(encoding="utf-8")
            self.folder = path.parent
        else:
            self.text = first
        self.more = [Path(os.fspath(f)) for f in files[1:]]
        self.is_cuda = _is_cuda(lang, self.text)
        if not self.is_cuda:
            self.text = _as_c(self.text)

    def names(self, function: str) -> bool:
        """Whether the source may have this function: included files and macros may make its name."""
        named = re.search(rf"(?<!\w){re.escape(function)}(?!\w)", self.text)
        return bool(named) or "##" in self.text or bool(_INCLUDE.search(self.text))

    def write(self, folder: Path, prelude: str) -> str:
        """Writes the source and what it includes by quotes into a folder; gives its name there."""
        name = "kernel.cu" if self.is_cuda else "kernel.c"
        line = '#line 1 "kernel"\n' if prelude else ""
        (folder / name).write_text(prelude + line + self.text, encoding="utf-8")
        for path in self.more:
            shutil.copy(path, folder / path.name)
        if self.folder is not None:
            self._copy_includes(self.text, self.folder, folder, set())
        return name

    def _copy_includes(self, text: str, origin: Path, folder: Path, seen: set[Path]) -> None:
        for name in _INCLUDE.findall(text):
            path = (origin / name).resolve()
            if path in seen or not path.is_file() or ".." in Path(name).parts:
                continue
            seen.add(path)
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            inner = path.read_text(encoding="utf-8", errors="replace")
            self._copy_includes(inner, path.parent, target.parent, seen)

    def with_constants(self, constants: Mapping[str, Any]) -> None:
        """Gives ``__constant__`` arrays their values, which Kernel Tuner copies to the device."""
        import numpy

        for symbol, given in constants.items():
            array = numpy.atleast_1d(numpy.asarray(given))
            form = rf"(__constant__[^;=]*?\b{re.escape(symbol)}\s*)(\[[^;=]*\])?(\s*);"
            found = re.search(form, self.text)
            if found is None:
                raise ValueError(
                    f"cmem_args has {symbol!r}, which is declared nowhere as `__constant__` without"
                    " a value"
                )
            # The shortest text that reads back as the same number.
            values = ", ".join(_literal(v, array.dtype.name) for v in array.ravel())
            extents = found.group(2) or ""
            initial = f"{{{values}}}" if extents else values
            declared = f"{found.group(1)}{extents} = {initial};"
            self.text = self.text[: found.start()] + declared + self.text[found.end() :]


def _literal(value: Any, dtype: str) -> str:
    if dtype.startswith(("int", "uint")):
        return str(int(value))
    number = float(value)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("cmem_args has a value that is not finite, which C has no literal for")
    suffix = "f" if dtype == "float32" else ""
    return (number.hex() if number else "0.0") + suffix


def _is_file_name(text: str) -> bool:
    return "\n" not in text and len(text) < 250 and text.lower().endswith(_SUFFIXES)


def _is_cuda(lang: str | None, text: str) -> bool:
    lower = text.lower()
    if lang is None:
        lang = "cuda" if "__global__" in lower else "opencl" if "__kernel" in lower else "c"
    said = lang.lower()
    if said in _CUDA:
        return True
    if said != "c":
        known = _REFUSED.get(said, lang)
        raise NotImplementedError(
            f"lang is {lang!r}: Squall tunes kernels in C and CUDA, not in {known}"
        )
    if "__global__" in lower:
        raise NotImplementedError(
            "lang is 'C' and the source has device code: host code around CUDA kernels is not"
            " supported; give the kernel itself with lang='CUDA'"
        )
    return False


_CPP = re.compile(
    r"^\s*#\s*include\s*<(?:[a-z_]+|c(?:math|stdio|stdlib|string|stdint))>|\bstd::|\btemplate\s*<"
    r"|^\s*namespace\b|^\s*using\s+namespace\b",
    re.M,
)


def _as_c(text: str) -> str:
    """C that was written for a C++ compiler: without ``extern "C"``, lines kept."""
    plain = _without_comments(text)
    found = _CPP.search(plain)
    if found:
        raise NotImplementedError(
            f"the source is C++ ({found.group(0).strip()!r}): Squall compiles lang='C' as C"
        )
    while (block := re.search(r'extern\s+"C"\s*\{', text)) is not None:
        end = _closing(text, block.end() - 1)
        inner = text[block.end() : end]
        text = text[: block.start()] + inner + text[end + 1 :]
    return re.sub(r'extern\s+"C"\s+', "", text)


def _closing(text: str, start: int) -> int:
    """The place of the bracket that closes the one at ``start``; the end where there is none."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    opening, closing = text[start], pairs[text[start]]
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == opening) - (text[i] == closing)
        if depth == 0:
            return i
    return len(text)


def _without_comments(text: str) -> str:
    form = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(m: re.Match[str]) -> str:
        return m.group(0) if m.group(0)[0] in "\"'" else "\n" * m.group(0).count("\n") + " "

    return re.sub(form, blank, text, flags=re.S)


def _expanded(text: str, macros: Mapping[str, Any]) -> str:
    """The source with its macros expanded where a preprocessor is there, without its includes."""
    plain = re.sub(r"^[ \t]*#[ \t]*include[^\n]*", "", text, flags=re.M)
    command = [os.environ.get("CC", "cc"), "-E", "-P", "-x", "c", "-w", "-"]
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    try:
        ran = subprocess.run(
            [*command[:-1], *defined, "-"], input=plain, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return plain
    return ran.stdout if ran.returncode == 0 and ran.stdout.strip() else plain


def roles(text: str, entry: str, count: int, macros: Mapping[str, Any]) -> list[str]:
    """What a function does with each of its arguments: ``input``, ``output`` or ``inout``.

    Judged by the text: a pointer to const, or one of which elements are only read, is an input; of
    which elements are only assigned, an output; anything else counts as read and written.

    >>> roles("void f(float *c, const float *a, int n) { c[0] += a[n]; }", "f", 3, {})
    ['inout', 'input', 'input']
    """
    plain = _without_comments(_expanded(_without_comments(text), macros))
    name = re.escape(entry.rsplit("::", 1)[-1].split("<", 1)[0])
    for found in re.finditer(rf"\b{name}\s*\(", plain):
        end = _closing(plain, found.end() - 1)
        behind = plain[end + 1 :].lstrip()
        if not behind.startswith("{"):
            continue
        parameters = _split(plain[found.end() : end])
        if len(parameters) != count:
            raise ValueError(
                f"{entry} has {len(parameters)} arguments in the source, and {count} are given"
            )
        start = plain.index("{", end)
        body = plain[start : _closing(plain, start)]
        return [_role(p, body) for p in parameters]
    return ["inout"] * count


def _split(parameters: str) -> list[str]:
    parts, depth = [""], 0
    for c in parameters:
        depth += (c in "([<") - (c in ")]>")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    parts = [p.strip() for p in parts]
    return [] if parts == [""] or parts == ["void"] else parts


_READS = re.compile(r"(__ldg|__ldca|__ldcg|__ldcs|__ldlu|__ldcv)\s*\(\s*&?\s*$")
_CONST_CAST = re.compile(r"(\(\s*const\b[^()]*\*\s*\)|_cast\s*<\s*const\b[^<>]*>\s*\()\s*\(?\s*$")


def _role(parameter: str, body: str) -> str:
    if "*" not in parameter and "[" not in parameter:
        return "input"
    pointee = parameter.rsplit("*", 1)[0]
    if re.search(r"\bconst\b", pointee):
        return "input"
    name = re.search(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$", parameter)
    if name is None:
        return "inout"
    read = written = False
    for use in re.finditer(rf"(?<![\w.>])\b{re.escape(name.group(1))}\b", body):
        before, after = body[: use.start()], body[use.end() :]
        r, w = _use(before.rstrip(), after.lstrip())
        read, written = read or r, written or w
    if not written:
        return "input"
    return "inout" if read else "output"


def _use(before: str, after: str) -> tuple[bool, bool]:
    """Whether a use of a pointer reads and whether it writes; both where it cannot be judged."""
    if _READS.search(before) or _CONST_CAST.search(before):
        return True, False
    if after.startswith("["):
        rest = after[_closing(after, 0) + 1 :].lstrip()
        if before.endswith("&") and not before.endswith("&&"):
            return True, True
    elif before.endswith("*") and re.search(r"[;{}(]\s*\*$", before):
        rest = after
    else:
        return True, True
    if before.endswith(("++", "--")) or rest.startswith(("++", "--", ".", "->", "[")):
        return True, True
    if re.match(r"(\+|-|\*|/|%|&|\||\^|<<|>>)=", rest):
        return True, True
    if re.match(r"=(?!=)", rest):
        return False, True
    return True, False

