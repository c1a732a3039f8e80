"""Found by PySpark under this name, so that format "kclient" needs no registration."""

from kclient.spark import KafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
