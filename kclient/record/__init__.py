"""Records and batches: the codec for the contents of produce requests and fetch responses.

The package's public names, and nothing else. ``IMPLEMENTATION`` is the name of the build in use:
"cython", or "pure" where nothing was compiled or ``KCLIENT_PURE=1`` is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.record.compression import (
    DEFAULT_CAP,
    Compression,
    compress,
    decompress,
    predicted_cost,
)
from kclient.record.implementation import codec as _codec
from kclient.record.layout import crc32c
from kclient.record.message_set import read_batches
from kclient.record.record_batch import Batch

if TYPE_CHECKING:
    from kclient.record.builder import BatchBuilder
    from kclient.record.murmur import partition_of_key
    from kclient.record.record import Record
else:
    Record = _codec.Record
    BatchBuilder = _codec.BatchBuilder
    partition_of_key = _codec.partition_of_key

IMPLEMENTATION: str = _codec.name
"""The build in use: "cython" or "pure"."""

__all__ = [
    "DEFAULT_CAP",
    "IMPLEMENTATION",
    "Batch",
    "BatchBuilder",
    "Compression",
    "Record",
    "compress",
    "crc32c",
    "decompress",
    "partition_of_key",
    "predicted_cost",
    "read_batches",
]
