"""Topics as tables and streams of PySpark: ``spark.read.format("kclient")``, without a JAR.

Needs the extra ``spark``: ``pip install 'kclient[spark]'``. See docs/spark.md.
"""

from __future__ import annotations

from kclient.errors import InvalidConfig

try:
    import pyspark  # noqa: F401 - only whether it is there
except ImportError as error:
    raise InvalidConfig(
        "kclient.spark needs the package pyspark, which is not installed",
        hint="pip install 'kclient[spark]'",
    ) from error

from kclient.spark.listener import OffsetListener
from kclient.spark.planning import DataLoss
from kclient.spark.source import KafkaDataSource
from kclient.spark.stream_offset import StreamOffset, starting_offsets

__all__ = ["DataLoss", "KafkaDataSource", "OffsetListener", "StreamOffset", "starting_offsets"]
