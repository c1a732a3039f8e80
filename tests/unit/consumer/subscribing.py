"""A subscription as a consumer has one, which only reports what changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kclient.consumer.offset_reset import Reset
from kclient.consumer.partition_state import PartitionState
from kclient.consumer.subscription import Subscription


def new_subscription(
    reset: Reset | None = None,
    on_change: Callable[[Sequence[PartitionState]], None] = lambda states: None,
    **others: Any,
) -> Subscription:
    """``others`` go to ``Subscription``."""
    defaults: dict[str, Any] = {
        "recall": lambda: None,
        "facts_of": lambda partition: (None, -1),
        "dismisses": lambda error: False,
        "grouped": False,
    }
    return Subscription(reset, on_change, **defaults | others)
