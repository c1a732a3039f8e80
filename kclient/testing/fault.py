"""One fault: the requests or connections that it matches, the stage, the action, and how often.

The methods of ``faults.Faults`` and ``memory_faults.NetFaults`` make faults. ``FaultList.acting``
returns those that act; its caller (a connection, a handler, a memory network) applies them.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from kclient.error_codes import ErrorCode
from kclient.errors import InvalidArgument
from kclient.protocol.api_versions import API_NAMES
from kclient.protocol.message import Response
from kclient.testing.api_versions import ApiName, served_key_of
from kclient.testing.arguments import whole
from kclient.testing.fault_arguments import called, check_where, counted, how_often
from kclient.testing.request_info import CLIENT, RequestInfo
from kclient.testing.responses import Answer, PendingResult
from kclient.testing.timers import check_timeout, waited

if TYPE_CHECKING:
    from kclient.testing.fault_list import FaultList
    from kclient.testing.request_context import RequestContext

Hook: TypeAlias = Callable[[RequestInfo], "Answer | Awaitable[Answer | None] | None"]
"""A test's function; may be ``async``."""
Timers: TypeAlias = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls back after seconds; returns the function that cancels the timer."""


class Action(enum.Enum):
    """What a fault does."""

    ERROR = enum.auto()
    """The entries concerned get an error code in the response."""
    CLOSE = enum.auto()
    """The connection is closed."""
    DROP = enum.auto()
    """No response is ever sent, and the connection ignores all requests from then on."""
    WAIT = enum.auto()
    """The request, or its response, is held back."""
    HOOK = enum.auto()
    """A function of the test is called."""
    CHANGE = enum.auto()
    """The response is changed before it is sent."""
    SPOIL = enum.auto()
    """The bytes of the response are cut, repeated, sent slowly or in another order."""
    CUT = enum.auto()
    """The connection ends at a byte: of a request, or of all bytes that a network carries."""
    REFUSE = enum.auto()
    """New connections of a network are refused."""
    BLACKHOLE = enum.auto()
    """Bytes that a network carries are lost."""
    FREEZE = enum.auto()
    """Bytes that a network carries are held back."""
    TRICKLE = enum.auto()
    """Bytes that a network carries arrive slowly."""


class Stage(enum.Enum):
    """The stages of a request."""

    ARRIVAL = enum.auto()
    """Its first bytes were read."""
    BEFORE = enum.auto()
    """Decoded, and not executed."""
    ENTRY = enum.auto()
    """A handler is about to execute one of its entries."""
    LATE_ENTRY = enum.auto()
    """A handler has executed one of its entries."""
    AFTER_APPEND = enum.auto()
    """Executed by the broker that got it. A Produce with acks=all is in its log then, not yet in
    those of its followers; a Fetch without data, or a JoinGroup, waits."""
    AFTER = enum.auto()
    """Its response is ready and wasn't sent."""
    ANSWER = enum.auto()
    """Its response is about to be encoded."""
    FRAME = enum.auto()
    """The bytes of its response are about to be sent."""
    AFTER_REPLY = enum.auto()
    """Its response was passed to the network, or the client expects none."""
    NETWORK = enum.auto()
    """Connections of a memory network and the bytes on them, not a request."""


_EARLY = (Stage.ARRIVAL, Stage.BEFORE, Stage.ENTRY)
_SAYS_AFTER = ("error", "close", "drop", "delay", "hold")
"""Methods whose ``repr`` shows "after": for others it is implied, or in their detail."""
_APART = ("topic", "partition", "when")
"""Keys of ``where`` that ``matches`` leaves out."""


def _do_nothing(*_: object) -> None:
    pass


@dataclass(eq=False, repr=False)
class Fault:
    """One fault. As a context manager it is removed at the end of the block.

    Attributes:
        action: What it does.
        stage: The stage of a request at which it acts.
        times: The number of requests on which it will still act; None means all.
        where: Conditions on the requests that it is for.
        detail: Its other arguments, as text.
        act: Of a HOOK or a CHANGE: takes a call and its response, and returns the one to send, or
            None. Of a SPOIL: takes a channel and a frame, which it sends; returns a PendingResult
            if the connection must wait meanwhile.
        applies: Of a CHANGE: whether there is anything to change.
        code: Error code of an ERROR.
        seconds: Duration of a WAIT; None means until ``release()``.
        byte: Of a CUT: how many bytes are read, including the size field.
        reset: Of a CUT: the connection is reset.
        rate: Of a TRICKLE: bytes per second.
        name: Name of the method of ``Faults`` that made it.
        hits: The number of requests on which it acted.
        owner: The list that it belongs to.
        removed: Whether it was removed.
    """

    action: Action
    stage: Stage
    api: InitVar[ApiName | None]
    times: int | None
    where: Mapping[str, Any]
    detail: str = ""
    act: Callable[..., Any] = _do_nothing
    applies: Callable[[RequestContext, Response], bool] | None = None
    code: ErrorCode = ErrorCode.NONE
    seconds: float | None = None
    byte: int = 0
    reset: bool = False
    rate: float = 0.0
    name: str = field(init=False)
    hits: int = field(default=0, init=False)
    owner: FaultList | None = field(default=None, init=False)
    removed: bool = field(default=False, init=False)

    def __post_init__(self, api: ApiName | None) -> None:
        key = None if api is None else served_key_of(api)
        check_where(key, self.where)
        how_often(self.times)
        self.name = self.action.name.lower()
        self._wanted = {name: self.where[name] for name in self.where if name not in _APART}
        if key is not None:
            self._wanted["api"] = key
        if self.stage is not Stage.NETWORK and self._wanted.setdefault("replica", CLIENT) == "any":
            del self._wanted["replica"]
        self._held: dict[object, Callable[[], None]] = {}
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
        where = self.where
        if "api" in self._wanted:
            yield API_NAMES[self._wanted["api"]]
        if "topic" in where:
            topic = where["topic"]
            yield f"{topic}-{where['partition']}" if "partition" in where else f"topic {topic}"
        if "client_id" in where:
            yield f"client {where['client_id']!r}"
        for name in ("broker", "version", "connection", "replica"):
            if name in where:
                yield f"{name} {where[name]}"
        if "when" in where:
            yield f"when {called(where['when'])}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    @property
    def after(self) -> bool:
        """Whether it acts after the request was executed."""
        return self.stage not in _EARLY

    @property
    def active(self) -> bool:
        """Whether it will act on the next request that matches."""
        return self.times is None or self.times > 0

    @property
    def held(self) -> int:
        """The number of requests, or responses, that it holds."""
        return len(self._held)

    def matches(self, facts: Mapping[str, object]) -> bool:
        """Whether those facts match ``where``, apart from topic, partition and ``when``."""
        return all(facts.get(name) == wanted for name, wanted in self._wanted.items())

    def concerns(self, entries: Iterable[tuple[object, object]]) -> bool:
        """Whether one of these (topic, partition) pairs matches; always if no topic was given."""
        where = self.where
        return "topic" not in where or any(
            where["topic"] == topic and where.get("partition", partition) == partition
            for topic, partition in entries
        )

    def use(self, call: RequestContext | None = None) -> None:
        """Count one use; with a call, it won't act on that one again."""
        if call is not None:
            call.used_faults.append(self)
        self.hits += 1
        if self.times is not None:
            self.times -= 1
        for count, future in self._waiters:
            if self.hits >= count and not future.done():
                future.set_result(None)

    async def wait_hits(self, count: int = 1, *, timeout: float | None = None) -> None:
        """Wait until it acted on ``count`` requests; return at once if it has.

        Args:
            count: Number of requests.
            timeout: Seconds; None for ever. With a ``ThreadedCluster`` 30 s, if not given.

        Raises:
            InvalidArgument: It won't act as often, or was removed meanwhile.
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
            await waited(
                future,
                timeout,
                lambda: f"it didn't act {counted(count, 'time')} within {timeout:.3g} s: {self!r}",
            )
        finally:
            self._waiters.remove(waiter)

    def _never(self, count: int) -> InvalidArgument:
        return InvalidArgument(f"it won't act {counted(count, 'time')}: {self!r}")

    def remove(self) -> None:
        """Remove it, and release the requests it holds."""
        if self.owner is None:
            self.release()
        else:
            self.owner.remove(self)

    def hold(self, resume: Callable[[], None], by: object = None) -> None:
        """Hold a request, or a response, until ``release``; its key is ``by``, else ``resume``."""
        self._held[resume if by is None else by] = resume

    def holds(self, by: object) -> bool:
        """Whether it holds a request, or a response, under that key."""
        return by in self._held

    def unhold(self, by: object) -> None:
        """Forget what was held: it was resumed, or its connection was lost."""
        self._held.pop(by, None)

    def gate(self, call_later: Timers) -> PendingResult[object]:
        """Hold a request for ``seconds``, or until ``release``; completes when it may continue."""

        def abandon() -> None:
            self.unhold(gate)
            if cancel is not None:
                cancel()

        gate: PendingResult[object] = PendingResult(abandon)
        self.hold(lambda: gate.complete(None), gate)
        cancel = None
        if self.seconds is not None:
            cancel = call_later(self.seconds, lambda: gate.complete(None))
        return gate

    def release(self) -> None:
        """Resume what it holds, in order, and act no more."""
        self.times, self.removed = 0, True
        held, self._held = self._held, {}
        for resume in held.values():
            resume()
        for count, future in self._waiters:
            if not future.done():
                future.set_exception(self._never(count))
