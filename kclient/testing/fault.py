"""One fault: which requests or connections it is for, at which stage it acts, how, and how often.

The methods of ``faults.Faults`` and ``memory_faults.NetFaults`` make them. ``FaultList.acting``
returns those that act; its caller (a connection, a handler, a memory network) carries them out.
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
from kclient.testing.api_names import ApiName, served_key_of
from kclient.testing.arguments import whole
from kclient.testing.deferred import Deferred
from kclient.testing.fault_arguments import called, check_where, counted, how_often
from kclient.testing.request_info import CLIENT, RequestInfo
from kclient.testing.timed_wait import check_timeout, waited

if TYPE_CHECKING:
    from kclient.testing.call import Call
    from kclient.testing.fault_list import FaultList

Answer: TypeAlias = Response | bytes
"""A message, or the raw bytes of a frame after its size field."""
Hook: TypeAlias = Callable[[RequestInfo], "Answer | Awaitable[Answer | None] | None"]
"""A function of a test; may be ``async``."""
Timers: TypeAlias = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls back after seconds; returns what cancels that."""


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
    """The connection ends at a byte: of a request, or of all that passes on a network."""
    REFUSE = enum.auto()
    """New connections of a network are refused."""
    BLACKHOLE = enum.auto()
    """What passes on a network vanishes."""
    FREEZE = enum.auto()
    """What passes on a network is held back."""
    TRICKLE = enum.auto()
    """What passes on a network comes slowly."""


class Stage(enum.Enum):
    """Where a request is on its way."""

    ARRIVAL = enum.auto()
    """Its first bytes are there."""
    BEFORE = enum.auto()
    """Decoded, and not carried out."""
    ENTRY = enum.auto()
    """A handler is about to carry out one of its entries."""
    LATE_ENTRY = enum.auto()
    """A handler has carried out one of its entries."""
    AFTER_APPEND = enum.auto()
    """Carried out by the broker that was asked. A Produce with acks=all is in its log then, not
    yet in those of its followers; a Fetch without data, or a JoinGroup, waits."""
    AFTER = enum.auto()
    """Its answer is there and wasn't sent."""
    ANSWER = enum.auto()
    """Its answer is about to be encoded."""
    FRAME = enum.auto()
    """The bytes of its answer are about to leave."""
    AFTER_REPLY = enum.auto()
    """Its answer was handed to the network, or none is wanted."""
    NETWORK = enum.auto()
    """Connections of a memory network and the bytes on them, not a request."""


_EARLY = (Stage.ARRIVAL, Stage.BEFORE, Stage.ENTRY)
_SAYS_AFTER = ("error", "close", "drop", "delay", "hold")
"""Of others it goes without saying, or their detail says so."""
_APART = ("topic", "partition", "when")
"""Words of ``where`` that ``matches`` leaves out."""


def _do_nothing(*_: object) -> None:
    pass


@dataclass(eq=False, repr=False)
class Fault:
    """One fault. As a context manager it is removed at the end of the block.

    Attributes:
        action: What it does.
        stage: When it acts, as exactly as faults tell it apart.
        times: On how many more requests it will act; None means all.
        where: Which requests it is for.
        detail: What else it was given, in words.
        act: Of a HOOK or a CHANGE: takes a call and its answer, and returns the one to send, or
            None. Of a SPOIL: takes a channel and a frame, which it sends; returns a Deferred if
            the connection must wait meanwhile.
        applies: Of a CHANGE: whether there is anything to change.
        code: Of an ERROR.
        seconds: Of a WAIT; None for until ``release()``.
        byte: Of a CUT: how many bytes are read, the size field included.
        reset: Of a CUT: the connection is reset.
        rate: Of a TRICKLE: bytes a second.
        name: Of the method of ``Faults`` that made it.
        hits: On how many it acted.
        owner: Whom it belongs to.
        removed: It was taken back.
    """

    action: Action
    stage: Stage
    api: InitVar[ApiName | None]
    times: int | None
    where: Mapping[str, Any]
    detail: str = ""
    act: Callable[..., Any] = _do_nothing
    applies: Callable[[Call, Response], bool] | None = None
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
        """It acts when the request was carried out."""
        return self.stage not in _EARLY

    @property
    def active(self) -> bool:
        """It will act on the next request that it is for."""
        return self.times is None or self.times > 0

    @property
    def held(self) -> int:
        """How many requests, or answers, it holds."""
        return len(self._held)

    def matches(self, facts: Mapping[str, object]) -> bool:
        """Whether those facts are as wanted, apart from topic, partition and ``when``."""
        return all(facts.get(name) == wanted for name, wanted in self._wanted.items())

    def concerns(self, entries: Iterable[tuple[object, object]]) -> bool:
        """Whether one of these (topic, partition) is wanted; always if no topic was given."""
        where = self.where
        return "topic" not in where or any(
            where["topic"] == topic and where.get("partition", partition) == partition
            for topic, partition in entries
        )

    def use(self, call: Call | None = None) -> None:
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
        """Take it back, and release what it holds."""
        if self.owner is None:
            self.release()
        else:
            self.owner.remove(self)

    def hold(self, resume: Callable[[], None], by: object = None) -> None:
        """Keep a request, or an answer, until ``release``; ``by`` names it, else ``resume``."""
        self._held[resume if by is None else by] = resume

    def holds(self, by: object) -> bool:
        """Whether it keeps a request, or an answer, of that name."""
        return by in self._held

    def unhold(self, by: object) -> None:
        """Forget what was kept: it went on, or its connection was lost."""
        self._held.pop(by, None)

    def gate(self, call_later: Timers) -> Deferred[object]:
        """Hold a request for its seconds, or until ``release``; complete when it may go on."""

        def abandon() -> None:
            self.unhold(gate)
            if cancel is not None:
                cancel()

        gate: Deferred[object] = Deferred(abandon)
        self.hold(lambda: gate.complete(None), gate)
        cancel = None
        if self.seconds is not None:
            cancel = call_later(self.seconds, lambda: gate.complete(None))
        return gate

    def release(self) -> None:
        """Let go what it holds, in order, and act no more."""
        self.times, self.removed = 0, True
        held, self._held = self._held, {}
        for resume in held.values():
            resume()
        for count, future in self._waiters:
            if not future.done():
                future.set_exception(self._never(count))
