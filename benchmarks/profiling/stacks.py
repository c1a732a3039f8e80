"""Folded stacks of py-spy, read and counted per hop.

A sample is attributed to its innermost frame in kclient, so time in CPython, asyncio or a codec
counts for the function of kclient that called it. Compiled functions have frames like others, as
py-spy reads the native stack. Pure: text in, counts out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.profiling.hops import BENCH, COLLECTOR, LOOP, OTHER, READS, hop_of

_FRAME = re.compile(r"^(?P<function>.*) \((?P<path>[^()]*?)(?::\d+)?\)$")
_OURS = re.compile(r"kclient/(?P<module>(?:\w+/)*)(?P<name>\w+)\.[\w.-]*$")
_ONCE = (
    "_find_and_load",
    "pool (",
    "checksum (",
    "Producer.__init__",
    "Consumer.__init__",
    "TcpDialer.",
)
_HELPER = re.compile(r"^__Pyx|^_?_?Py_")
"""Cython's and CPython's helpers are inlined anywhere: the file that they name is arbitrary."""


@dataclass
class Tally:
    """Samples per hop and per function."""

    hops: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.hops.total()


def count(lines: Iterable[str], out: bool) -> Tally:
    """Count the samples of the measured window: those inside ``run_on_loop``, except imports."""
    tally = Tally()
    for line in lines:
        text, _, samples = line.rstrip().rpartition(" ")
        frames = text.split(";")
        if not samples.isdigit() or not _is_measured(frames):
            continue
        hop, function = place(frames, out)
        tally.hops[hop] += int(samples)
        tally.functions[function] += int(samples)
    return tally


def _is_measured(frames: list[str]) -> bool:
    """Whether it is inside ``run_on_loop``, and not an import, the values' pool or the set-up."""
    if not any(frame.startswith("run_on_loop ") for frame in frames):
        return False
    return not any(frame.startswith(_ONCE) for frame in frames)


def place(frames: list[str], out: bool) -> tuple[str, str]:
    """Return hop and function of a stack, whose outermost frame is first.

    A function without a hop, such as the clock, counts for the hop of its caller.
    """
    if any(frame.startswith("gc_collect_main") for frame in frames):
        return COLLECTOR, COLLECTOR
    unknown = ""
    for frame in reversed(frames):
        found = _FRAME.match(frame)
        if found is None or _HELPER.match(found["function"]):
            continue
        module = module_of(found["path"])
        if module is not None:
            function = found["function"]
            name, hop = f"{module}: {_plain(function)}", hop_of(module, function, out)
            if hop != OTHER:
                return hop, unknown or name
            unknown = unknown or name
            continue
        if unknown and "benchmarks/" in found["path"]:
            return OTHER, unknown
        if found["path"].endswith("benchmarks/clients/loops.py"):
            return LOOP, "asyncio: the loop itself"
        if "benchmarks/" in found["path"]:
            return BENCH, f"{BENCH}: {function_name(found['function'])}"
        if READS.search(found["function"]):
            return ("11" if out else "4"), "asyncio: reading the socket"
    return (OTHER, unknown) if unknown else (LOOP, LOOP)


def module_of(path: str) -> str | None:
    """Return ``producer/append`` for a source, generated source or compiled module, else None."""
    found = _OURS.search(path)
    if found is None:
        return None
    name = found["name"]
    if name.startswith("_") and name.endswith("_c"):
        name = name[1:-2]
    return f"{found['module']}{name}"


def function_name(function: str) -> str:
    return function.rpartition(".")[2]


def _plain(function: str) -> str:
    """Return a readable name for those of Cython's mangled names that carry information."""
    if function.startswith("__pyx_tp_new"):
        return f"new {function.rpartition('_')[2]}"
    if function.startswith("__pyx_tp_dealloc"):
        return f"end of {function.rpartition('_')[2]}"
    if function.startswith("__pyx_gb"):
        return "generator"
    return function
