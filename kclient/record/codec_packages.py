"""The packages that lz4, snappy and zstd come from: loaded on first use, named where missing.

Used by ``compression.py`` and ``inflate.py``. gzip is in the standard library.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

from kclient.errors import CodecUnavailable

Bytes: TypeAlias = bytes | bytearray | memoryview

_PACKAGES = {
    "snappy": ("snappy", "python-snappy"),
    "lz4": ("lz4.frame", "lz4"),
    "zstd": ("zstandard", "zstandard"),
}


def codec_package(codec: str) -> Any:
    """Import the module that does ``codec``.

    Raises:
        CodecUnavailable: It is not installed, or can't be loaded.
    """
    name, package = _PACKAGES[codec]
    try:
        return import_module(name)
    except (ImportError, OSError) as cause:  # also a shared library that doesn't load
        if isinstance(cause, ModuleNotFoundError) and cause.name in (name, name.split(".")[0]):
            raise CodecUnavailable(
                f"{codec} needs the package {package}, which is not installed",
                hint=f"pip install 'kclient[compression]', or {package} alone",
            ) from cause
        raise CodecUnavailable(
            f"{codec} needs the package {package}, which fails to load: {cause}",
            hint=f"pip install --force-reinstall {package}",
        ) from cause
