"""From outcomes per item to what a call gives: the values, or the first error raised. Sans-IO."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from kclient.errors import KafkaError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SHOWN = 5
"""Other errors that the raised one tells of."""


def values_or_raise(outcomes: Mapping[K, V | KafkaError]) -> dict[K, V]:
    """The values if all items have one; else the first error, with notes about the others.

    Raises:
        KafkaError: That of the first item that failed, in the order of asking. Its notes name the
            other failures, and how many items succeeded.
    """
    errors = {key: value for key, value in outcomes.items() if isinstance(value, KafkaError)}
    values = {key: value for key, value in outcomes.items() if not isinstance(value, KafkaError)}
    if not errors:
        return values
    (_, first), *others = errors.items()
    for key, error in others[:SHOWN]:
        first.add_note(f"{key} failed, too: {error}")
    if len(others) > SHOWN:
        first.add_note(f"... and {len(others) - SHOWN} more failed")
    if values:
        first.add_note(f"{len(values)} of {len(outcomes)} succeeded")
    raise first
