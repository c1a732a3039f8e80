"""One fault: which requests it is for, what it does, and how often it will.

Made by the methods of ``faults.Faults``; asked by the brokers around each request. It decides, and
knows what it holds back; connections and timers are those of ``connection.py`` and
``answer_faults.py``.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument, ProtocolError
from kclient.protocol.headers import decode_request_header
from kclient.protocol.message import Response
from kclient.protocol.registry import API_NAMES
from kclient.testing.api_names import ApiName, served_key_of
from kclient.testing.arguments import whole
from kclient.testing.call import Call
from kclient.testing.deferred import Deferred
from kclient.testing.fault_arguments import Where, check_where, counted, described, how_often
from kclient.testing.request_info import CLIENT, RequestInfo, info_of, replica_of
from kclient.testing.timed_wait import check_timeout, waited

if TYPE_CHECKING:
    from kclient.testing.answer_faults import AnswerFaults

Answer: TypeAlias = Response | bytes
"""A message, or the raw bytes of a frame after its size field."""
Change: TypeAlias = Callable[[Call, Response], "Answer | None"]
Hook: TypeAlias = Callable[[RequestInfo], "Answer | Awaitable[Answer | None] | None"]
"""A function of a test; may be ``async``."""
Spoil: TypeAlias = Callable[["AnswerFaults", bytearray], "Deferred[object] | None"]
"""Sends a frame its own way; a Deferred if the connection must wait meanwhile."""
Timers: TypeAlias = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls back after seconds; returns what cancels that."""


class Owner(Protocol):
    """Whom a fault belongs to."""

    def remove(self, fault: Fault) -> None:
        """Take it back."""

    def failed(self, error: BaseException) -> None:
        """A function of the test raised."""


class Unframed(bytes):
    """An answer that is sent as it is, without a size in front."""


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
    HOOK = enum.auto()
    """A function of the test is called."""
    CHANGE = enum.auto()
    """The answer is changed before it is sent."""
    SPOIL = enum.auto()
    """The bytes of the answer are cut, repeated, sent slowly or in another order."""
    CUT = enum.auto()
    """The connection is closed while a request arrives."""


class Stage(enum.Enum):
    """Where a request is on its way."""

    BEFORE = enum.auto()
    """Decoded, and not carried out."""
    AFTER_APPEND = enum.auto()
    """Carried out by the broker that was asked. A Produce with acks=all is in its log then, not
    yet in those of its followers; a Fetch without data, or a JoinGroup, waits."""
    AFTER = enum.auto()
    """Its answer is there and wasn't sent."""
    AFTER_REPLY = enum.auto()
    """Its answer was handed to the network, or none is wanted."""


_SAYS_AFTER = ("error", "close", "drop", "delay", "hold")
"""Of others it goes without saying, or their detail says so."""


def _always(call: Call, response: Response) -> bool:
    return True


class Fault:
    """One fault. As a context manager it is removed at the end of the block.

    Attributes:
        name: Of the method of ``Faults`` that made it.
        detail: What else it was given, in words.
        where: Which requests it is for.
        action: What it does.
        after: It acts when the request was carried out.
        stage: When it acts, as exactly as faults tell it apart.
        times: On how many more requests it will act; None means all.
        hits: On how many it acted.
        code: Of an ERROR.
        seconds: Of a WAIT; None for until ``release()``.
        hook: Of a HOOK.
        change: Of a CHANGE: returns the answer, raw bytes, or None for the one it was given.
        applies: Of a CHANGE: whether there is anything to change.
        spoil: Of a SPOIL.
        byte: Of a CUT: how many bytes are read, the size field included.
        reset: Of a CUT: the connection is reset.
        owner: Whom it belongs to.
        removed: It was taken back.
    """

    def __init__(
        self, action: Action, api: ApiName | None, times: int | None, after: bool, where: Where
    ) -> None:
        self._api_key = None if api is None else served_key_of(api)
        check_where(self._api_key, where)
        self.name = action.name.lower()
        self.detail = ""
        self.action = action
        self.after = after
        self.stage = Stage.AFTER if after else Stage.BEFORE
        self.times = how_often(times)
        self.hits = 0
        self.code = ErrorCode.NONE
        self.seconds: float | None = None
        self.hook: Hook | None = None
        self.change: Change | None = None
        self.applies: Callable[[Call, Response], bool] = _always
        self.spoil: Spoil | None = None
        self.byte = 0
        self.reset = False
        self.owner: Owner | None = None
        self.removed = False
        self.where = where
        self._held: list[Callable[[], None]] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        after = " after" if self.after and self.name in _SAYS_AFTER else ""
        does = " ".join(part for part in (self.name, self.detail) if part)
        left = "until removed" if self.times is None else counted(self.times, "time") + " left"
        if not self.active:
            left = "removed" if self.removed else "used up"
        words = [does + after, *self._whom(), left, counted(self.hits, "hit")]
        if self._held:
            words.append(f"holds {self.held}")
        return f"<Fault {', '.join(words)}>"

    def _whom(self) -> Iterator[str]:
        if self._api_key is not None:
            yield API_NAMES[self._api_key]
        yield from described(self.where)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    @property
    def active(self) -> bool:
        """It will act on the next request that it is for."""
        return self.times is None or self.times > 0

    @property
    def held(self) -> int:
        """How many requests, or answers, it holds."""
        return len(self._held)

    def use(self) -> None:
        """It acts on a request now."""
        self.hits += 1
        if self.times is not None:
            self.times -= 1
        for count, future in self._waiters:
            if self.hits >= count and not future.done():
                future.set_result(None)

    async def wait_hits(self, count: int = 1, *, timeout: float | None = None) -> None:
        """Wait until it acted on ``count`` requests; at once if it has.

        Args:
            count: Requests.
            timeout: Seconds; None for ever. Of a ``ThreadedCluster`` 30 s, if not given.

        Raises:
            InvalidArgument: It won't act as often, or was taken back meanwhile.
            RequestTimedOut: It didn't within ``timeout``.

        Cancellation: safe; nothing is left behind.
        """
        check_timeout(timeout)
        if self.hits >= whole("count", count, 0):
            return
        if self.times is not None and self.hits + self.times < count:
            raise self._never(count)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (count, future)
        self._waiters.append(waiter)
        try:
            await waited(future, timeout, lambda: self._too_few(count, timeout))
        finally:
            self._waiters.remove(waiter)

    def _too_few(self, count: int, timeout: float | None) -> str:
        return f"it didn't act {counted(count, 'time')} within {timeout:.3g} s: {self!r}"

    def _never(self, count: int) -> InvalidArgument:
        return InvalidArgument(f"it won't act {counted(count, 'time')}: {self!r}")

    def concerns(self, call: Call) -> bool:
        """Whether it will act on that request, apart from topic and partition."""
        return self.active and self.matches(call)

    def matches(self, call: Call) -> bool:
        """Whether it is for that request, apart from topic and partition, used up or not."""
        where = self.where
        return (
            (self._api_key is None or self._api_key == call.api_key)
            and where.get("broker", call.node_id) == call.node_id
            and where.get("client_id", call.client_id) == call.client_id
            and where.get("version", call.version) == call.version
            and where.get("connection", call.connection) == call.connection
            and self._is_of_replica(replica_of(call.api_key, call.request))
            and ("when" not in where or self._holds_when(call))
        )

    def _is_of_replica(self, replica_id: int) -> bool:
        wanted = self.where.get("replica", CLIENT)
        return wanted == "any" or wanted == replica_id

    def _holds_when(self, call: Call) -> bool:
        try:
            return bool(self.where["when"](info_of(call)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # what pytest.fail() raises is no Exception
            if self.owner is None:
                raise
            self.owner.failed(error)
            return False

    def matches_start(self, node_id: int, connection: int, start: memoryview) -> bool | None:
        """The same for a request of which only the start is there; None if it is too little."""
        where = self.where
        if where.get("broker", node_id) != node_id:
            return False
        if where.get("connection", connection) != connection:
            return False
        if self._api_key is None and "client_id" not in where and "version" not in where:
            return True
        try:
            header = decode_request_header(start)
        except ProtocolError:
            return None
        return (
            self._api_key in (None, header.api_key)
            and where.get("client_id", header.client_id) == header.client_id
            and where.get("version", header.api_version) == header.api_version
        )

    def concerns_entry(self, topic: str | None, partition: int | None) -> bool:
        """Whether it is for that entry of a request."""
        where = self.where
        return where.get("topic", topic) == topic and where.get("partition", partition) == partition

    def concerns_any(self, call: Call) -> bool:
        """Whether the request names its topic and partition, if it has any."""
        if "topic" not in self.where:
            return True
        return any(self.concerns_entry(topic, index) for topic, index in call.entries())

    def remove(self) -> None:
        """Take it back, and release what it holds."""
        if self.owner is None:
            self.release()
        else:
            self.owner.remove(self)

    def hold(self, resume: Callable[[], None]) -> None:
        """Keep a request until ``release``."""
        self._held.append(resume)

    def unhold(self, resume: Callable[[], None]) -> None:
        """A request that was kept is gone with its connection."""
        if resume in self._held:
            self._held.remove(resume)

    def gate(self, call_later: Timers) -> Deferred[object]:
        """Hold a request for its seconds, or until ``release``; complete when it may go on."""

        def resume() -> None:
            gate.complete(None)

        def abandon() -> None:
            self.unhold(resume)
            if cancel is not None:
                cancel()

        gate: Deferred[object] = Deferred(abandon)
        self.hold(resume)
        cancel = None if self.seconds is None else call_later(self.seconds, resume)
        return gate

    def release(self) -> None:
        """Let go what it holds, in order, and act no more."""
        self.times, self.removed = 0, True
        held, self._held = self._held, []
        for resume in held:
            resume()
        for count, future in self._waiters:
            if not future.done():
                future.set_exception(self._never(count))
