"""The consumer package. ``kclient.Consumer`` is its one public entry point; see ``consumer``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient.consumer.consumer import Consumer as Consumer
    from kclient.consumer.deserialization_errors import DeadLetters as DeadLetters
    from kclient.consumer.records import ConsumerRecord as ConsumerRecord

__all__ = ["Consumer", "ConsumerRecord", "DeadLetters"]


def __getattr__(name: str) -> object:
    if name == "Consumer":
        from kclient.consumer.consumer import Consumer

        return Consumer
    if name == "DeadLetters":
        from kclient.consumer.deserialization_errors import DeadLetters

        return DeadLetters
    if name == "ConsumerRecord":
        from kclient.consumer.records import ConsumerRecord

        return ConsumerRecord
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
