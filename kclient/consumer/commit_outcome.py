"""Outcome: the future that whoever commits is given.

Made by ``commits``, one for each caller. While no coordinator answers, callers by the thousand may
share one call: those that nobody keeps must cost nothing, and each can be cancelled by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from kclient.errors import fresh

if TYPE_CHECKING:
    from collections.abc import Generator

    from kclient.errors import KafkaError


class Outcome(asyncio.Future[None]):
    """What became of a commit. It knows whether anybody waits for it."""

    _waited = False
    _first: Outcome | None = None
    """That of the call which this one shares."""
    _shares = 0
    _sharers: WeakValueDictionary[int, Outcome] | None = None
    _kept: dict[Outcome, None] | None = None
    """Sharers for which somebody waits: nothing else may refer to these."""

    def share(self) -> Outcome:
        """Another one for the same call."""
        if self._sharers is None:
            self._sharers, self._kept = WeakValueDictionary(), {}
        other = Outcome(loop=self.get_loop())
        other._first = self
        self._shares += 1
        self._sharers[self._shares] = other
        return other

    def settle(self, error: KafkaError | None) -> bool:
        """Tell all that share the call; returns whether anybody waits for it."""
        waited = False
        for one in (self,) if self._sharers is None else (self, *self._sharers.values()):
            waited = waited or (one._waited and not one.cancelled())
            if one.done():
                continue
            if error is None:
                one.set_result(None)
            else:
                one.set_exception(error if one is self else fresh(error))
                one.exception()  # so that asyncio doesn't complain where nobody looks
        return waited

    def __await__(self) -> Generator[Any, None, None]:
        self._wait()
        return super().__await__()

    __iter__ = __await__

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        """As that of any future."""
        self._wait()
        super().add_done_callback(*args, **kwargs)

    def _wait(self) -> None:
        first, self._waited = self._first, True
        if first is not None and first._kept is not None and not self.done():
            first._kept[self] = None

    def cancel(self, msg: Any | None = None) -> bool:
        """As that of any future. The commit goes on."""
        if self._first is not None and self._first._kept is not None:
            self._first._kept.pop(self, None)
        return super().cancel(msg)
