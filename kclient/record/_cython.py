"""The replacement for ``cython`` when the compiled sources run as plain Python.

``record.py``, ``builder.py`` and similar modules are one source for two builds. Cython replaces the
name ``cython`` at compile time; the pure build imports it from here, so that Cython is not needed
(nor its import time spent) at run time. This module may contain nothing but no-ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_C = TypeVar("_C", bound=type)

compiled = False


def cclass(cls: _C) -> _C:
    return cls


def final(cls: _C) -> _C:
    return cls


def no_gc(cls: _C) -> _C:
    return cls


def freelist(size: int) -> Callable[[_C], _C]:
    return cclass
