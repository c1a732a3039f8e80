"""A stand-in for the supervisor of a client, for tests of its network alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Unsupervised:
    """Starts tasks, and nobody hears of faults but the log."""

    def lend(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coroutine, name=f"kclient:{name}")

    def restarting(self, name: str, why: str) -> None:
        """Nobody counts."""

    def fault(self, error: Exception) -> None:
        """The reporter has logged it."""
