"""One fault: which requests it is for, what it does, and how often it will.

Made by the methods of ``faults.Faults``; asked by the brokers around each request. It decides
only: timers and connections are ``connection.py``'s.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias, TypedDict

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.message import Response
from kclient.testing.api_names import ApiName, api_key_of
from kclient.testing.call import Call

Change: TypeAlias = Callable[[Call, Response], "Response | bytes | None"]


class Where(TypedDict, total=False):
    """Which requests a fault is for; what is left out matches all."""

    broker: int
    """Node id of the broker that is asked."""
    client_id: str
    """As the client calls itself."""
    topic: str
    """One that the request names (an incremental fetch names only what changed); with ``error`` it
    is for the entries of that topic, whether named or remembered by the session."""
    partition: int
    """With ``topic``."""


class Action(enum.Enum):
    """What a fault does."""

    ERROR = enum.auto()
    """The entries concerned are answered with an error code."""
    CLOSE = enum.auto()
    """The connection is closed."""
    DROP = enum.auto()
    """No answer ever comes, and the connection is deaf from then on."""
    WAIT = enum.auto()
    """The request, or its answer, is held back."""
    CHANGE = enum.auto()
    """The answer is changed before it is sent."""


def _always(call: Call, response: Response) -> bool:
    return True


class Fault:
    """One fault.

    Attributes:
        action: What it does.
        after: It acts when the request was carried out.
        times: On how many more requests it will act; None means all.
        hits: On how many it acted.
        code: Of an ERROR.
        seconds: Of a WAIT; None until ``release()``.
        change: Of a CHANGE: returns the answer, raw bytes, or None for the one it was given.
        applies: Of a CHANGE: whether there is anything to change.
    """

    def __init__(
        self, action: Action, api: ApiName | None, times: int | None, after: bool, where: Where
    ) -> None:
        if times is not None and times < 1:
            raise InvalidArgument(f"times must be at least 1, or None for ever, not {times}")
        if "partition" in where and "topic" not in where:
            raise InvalidArgument("partition needs topic")
        self.action = action
        self.after = after
        self.times = times
        self.hits = 0
        self.code = ErrorCode.NONE
        self.seconds: float | None = None
        self.change: Change | None = None
        self.applies: Callable[[Call, Response], bool] = _always
        self._api_key = None if api is None else api_key_of(api)
        self._where = where
        self._held: list[Callable[[], None]] = []

    @property
    def active(self) -> bool:
        """It will act on the next request that it is for."""
        return self.times is None or self.times > 0

    @property
    def held(self) -> int:
        """How many requests it holds."""
        return len(self._held)

    def use(self) -> None:
        """It acts on a request now."""
        self.hits += 1
        if self.times is not None:
            self.times -= 1

    def concerns(self, call: Call) -> bool:
        """Whether it is for that request, apart from topic and partition."""
        where = self._where
        return (
            self.active
            and (self._api_key is None or self._api_key == call.api_key)
            and where.get("broker", call.node_id) == call.node_id
            and where.get("client_id", call.client_id) == call.client_id
        )

    def concerns_entry(self, topic: str | None, partition: int | None) -> bool:
        """Whether it is for that entry of a request."""
        where = self._where
        return where.get("topic", topic) == topic and where.get("partition", partition) == partition

    def concerns_any(self, call: Call) -> bool:
        """Whether the request names its topic and partition, if it has any."""
        if "topic" not in self._where:
            return True
        return any(self.concerns_entry(topic, index) for topic, index in call.entries())

    def hold(self, resume: Callable[[], None]) -> None:
        """Keep a request until ``release``."""
        self._held.append(resume)

    def unhold(self, resume: Callable[[], None]) -> None:
        """A request that was kept is gone with its connection."""
        if resume in self._held:
            self._held.remove(resume)

    def release(self) -> None:
        """Let go what it holds, in order, and act no more."""
        self.times = 0
        held, self._held = self._held, []
        for resume in held:
            resume()
