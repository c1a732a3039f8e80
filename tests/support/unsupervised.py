"""A stand-in for the supervisor of a client, for tests of its network alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Unsupervised:
    """Starts tasks; faults are only logged."""

    def spawn_owned(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coroutine, name=f"kclient:{name}")

    def task_restarted(self, name: str, why: str) -> None:
        """Restarts aren't counted."""

    def listener_failed(self, error: Exception) -> None:
        """The reporter has logged it."""
