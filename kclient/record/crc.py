"""CRC-32C, as batches v2 carry it. The one place that knows the ``crc32c`` package.

Table code in plain Python costs 6 to 9 us per record, so the package (C, with the CPU's own
instruction) is a dependency of both builds.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any


def _package() -> Any:
    """The package's C module alone; the package, where that can't be had.

    The package's ``__init__`` looks up its version in installed metadata and loads a command line:
    a sixth of what importing a client costs.
    """
    package = None if "crc32c" in sys.modules else find_spec("crc32c")
    if package is not None:
        inside = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if inside is not None and inside.loader is not None:
            module = module_from_spec(inside)
            inside.loader.exec_module(module)
            if hasattr(module, "crc32c"):
                return module
    import crc32c

    return crc32c


_crc32c = _package().crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, continuing from ``value``, as an unsigned int."""
    checksum: int = _crc32c(data, value)
    return checksum
