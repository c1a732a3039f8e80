"""The packages that lz4, snappy and zstd come from: loaded on first use, named where missing.

Used by ``compression.py`` and ``inflate.py``. gzip is in the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from kclient.errors import ClientError

Bytes: TypeAlias = bytes | bytearray | memoryview

_PACKAGES = {
    "snappy": ("snappy", "python-snappy"),
    "lz4": ("lz4.frame", "lz4"),
    "zstd": ("zstandard", "zstandard"),
}


def codec_package(codec: str, error: type[ClientError]) -> Any:
    """The module that does ``codec``.

    Raises:
        ClientError: It is not installed; ``error`` is the class to raise.
    """
    name, package = _PACKAGES[codec]
    try:
        return import_module(name)
    except ImportError as cause:
        raise error(
            f"{codec} needs the package {package}, which is not installed",
            hint=f"pip install 'kclient[compression]', or {package} alone",
        ) from cause
