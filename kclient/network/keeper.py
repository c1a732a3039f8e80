"""What the network asks of its client's supervisor: to know its tasks, and to hear of defects.

``cluster.supervision`` is that in a client; ``Unsupervised`` stands in where there is none. The
network must not decide what a defect means for the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol


class TaskKeeper(Protocol):
    """The supervisor of one client, as its network sees it."""

    def lend(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task whose end, of whatever kind, the network deals with."""
        ...

    def restarting(self, name: str, why: str) -> None:
        """A task of ``lend`` was killed by somebody else; another will take its place."""
        ...

    def fault(self, error: Exception) -> None:
        """A listener of ours raised: a defect, to fail the client with."""
        ...


class Unsupervised:
    """A network on its own: nobody hears of faults but the log."""

    def lend(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task."""
        return asyncio.get_running_loop().create_task(coroutine, name=f"kclient:{name}")

    def restarting(self, name: str, why: str) -> None:
        """Nobody counts."""

    def fault(self, error: Exception) -> None:
        """The reporter has logged it."""
