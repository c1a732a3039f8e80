"""A function of the user's that doesn't end, or not before it is released."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.virtual.consumer_scene import the_loop


class Hanging:
    """Waits until it is released, also where it is cancelled if it is ``stubborn``.

    Attributes:
        began: When; None before that.
        go: Lets it end.
    """

    def __init__(self, *, stubborn: bool = False) -> None:
        self.began: float | None = None
        self.go = asyncio.Event()
        self.ended = False
        self._stubborn = stubborn

    async def __call__(self, *_: object) -> None:
        if self.began is None:
            self.began = the_loop().time()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
        self.ended = True

    @property
    def age(self) -> float:
        """Seconds since it began; in whole microseconds, as sums of virtual times are rounded."""
        return 0.0 if self.began is None else round(the_loop().time() - self.began, 6)


def about(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    """What was logged of ``name``, from warnings on."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and name in record.getMessage()
    ]
