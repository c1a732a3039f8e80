"""Listener: the user's callbacks of rebalances, checked when they are given. No behaviour.

``callbacks`` calls them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from kclient.errors import InvalidConfig
from kclient.types import TopicPartition

RebalanceCallback: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]
"""Is told of partitions, sorted; a coroutine function is awaited."""


class Listener:
    """The callbacks of one subscription.

    Args:
        on_assigned: Partitions came; called after each rebalance, maybe with none.
        on_revoked: Partitions are about to be given up: commit what is done.
        on_lost: Partitions are another's already; without it ``on_revoked`` is called.

    Raises:
        InvalidConfig: One can't be called.

    Attributes:
        on_assigned, on_revoked, on_lost: What to call; None where there is nothing.
    """

    def __init__(
        self,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        for name, callback in (
            ("on_assigned", on_assigned),
            ("on_revoked", on_revoked),
            ("on_lost", on_lost),
        ):
            if callback is not None:
                _check(name, callback)
        self._any = any(one is not None for one in (on_assigned, on_revoked, on_lost))
        self.on_assigned = on_assigned
        self.on_revoked = on_revoked
        self.on_lost = on_lost if on_lost is not None else on_revoked

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self._any


def _check(name: str, callback: object) -> None:
    """Refuse what can't be called with partitions; what has no signature is believed."""
    fits = callable(callback)
    if callable(callback):
        try:
            inspect.signature(callback).bind(())
        except ValueError:
            return
        except TypeError:
            fits = False
    if not fits:
        raise InvalidConfig(
            f"{name}={callback!r} can't be used: allowed is a callable(partitions)",
            hint="plain or async, with one argument: the partitions, sorted",
        )
