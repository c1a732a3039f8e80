"""What the proxy can do wrong: one class each, made by tests and given to ``FaultProxy.add``.

A rule says which frames it is for (API, direction, node, client, session, a predicate on the
decoded message), how many of them, and sets what it wants in the ``Passage``; the pipes do it.
Rules hold no transport and no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from kclient.protocol.message import Request, Response
from kclient.testing.api_names import ApiName, api_key_of
from tests.faults.passage import Ending, Passage, Side
from tests.faults.pipe import Gate, Until

if TYPE_CHECKING:
    from tests.faults.session import Session

REACH_TIMEOUT = 30.0
_PIECES_PER_SECOND = 100

When: TypeAlias = Callable[[Passage], bool]


class Which(TypedDict, total=False):
    """Which frames a rule is for; what is left out matches all."""

    node: int
    """Of the broker behind the connection."""
    client_id: str
    """As the client calls itself."""
    session: Session
    """One connection."""
    when: When
    """Gets the ``Passage``: ``lambda p: p.request.acks == -1``, ``lambda p: p.answer.brokers``."""
    skip: int
    """So many that match pass before it begins to act."""
    times: int | None
    """On how many it acts; None: on all."""


class Rule:
    """What all rules have in common.

    Attributes:
        api: Kafka's number of the API it is for; None: all.
        on: The direction it acts in; None: both.
        fate: Of rules on the accepting of connections: what becomes of one.
        left: On how many more it acts; None: no end.
        hits: On how many it acted.
    """

    fate: Ending | None = None

    def __init__(
        self, api: ApiName | None, on: Side | None, which: Which, *, times: int | None = 1
    ) -> None:
        self.api = None if api is None else api_key_of(api)
        self.on = on
        self.left = which.get("times", times)
        self.hits = 0
        self._skip = which.get("skip", 0)
        self._which = which
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []

    def is_for(self, session: Session) -> bool:
        """Whether it is for that connection."""
        which = self._which
        return (
            which.get("node", session.node) == session.node
            and which.get("client_id", session.client_id) == session.client_id
            and which.get("session", session) is session
        )

    def wants(self, passage: Passage) -> bool:
        """Whether it is to act on that frame."""
        if (
            self.left == 0
            or self.fate is not None
            or (self.api is not None and self.api != passage.api)
            or (self.on is not None and self.on != passage.on)
            or not self.is_for(passage.session)
            or not self.applies(passage)
        ):
            return False
        when = self._which.get("when")
        if when is not None and not when(passage):
            return False
        return self._begun()

    def wants_new(self, session: Session) -> bool:
        """Whether its ``fate`` is that of a connection that was just accepted."""
        return bool(self.fate and self.left != 0 and self.is_for(session)) and self._begun()

    def _begun(self) -> bool:
        if self._skip:
            self._skip -= 1
            return False
        return True

    def applies(self, passage: Passage) -> bool:
        """Whether there is anything for it to do; for subclasses."""
        return True

    def use(self) -> None:
        """It acts now."""
        self.hits += 1
        if self.left is not None:
            self.left -= 1
        for count, waiter in self._awaited:
            if self.hits >= count and not waiter.done():
                waiter.set_result(None)

    def act(self, passage: Passage) -> None:
        """Set what it wants done; for subclasses."""

    def release(self) -> None:
        """Act no more."""
        self.left = 0

    async def reached(self, hits: int = 1, *, timeout: float = REACH_TIMEOUT) -> None:
        """Wait until it acted so often; TimeoutError if it doesn't."""
        if self.hits < hits:
            waiter = asyncio.get_running_loop().create_future()
            entry = (hits, waiter)
            self._awaited.append(entry)
            try:
                async with asyncio.timeout(timeout):
                    await waiter
            finally:
                self._awaited.remove(entry)


class Cut(Rule):
    """Close both sides: ``at`` so many bytes of the frame (0.5: half of it; None: all of it)."""

    def __init__(
        self,
        api: ApiName | None,
        *,
        on: Side = "request",
        at: float | None = 0,
        reset: bool = False,
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which)
        self._at = at
        self._reset = reset

    def act(self, passage: Passage) -> None:
        passage.end("reset" if self._reset else "cut", bytes_of(passage, self._at))


class Stall(Rule):
    """Let a part of the frame pass (see ``Cut``), and nothing more in that direction, ever."""

    def __init__(
        self,
        api: ApiName | None,
        *,
        on: Side = "answer",
        at: float | None = 0.5,
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which)
        self._at = at

    def act(self, passage: Passage) -> None:
        passage.end("silent", bytes_of(passage, self._at))


class After(Rule):
    """Cut, reset or silence connections at byte ``count`` of a direction, or at a frame.

    ``unit="frames"`` counts whole frames, in opaque mode records of TLS.
    """

    def __init__(
        self,
        count: int,
        ending: Ending = "cut",
        *,
        on: Side = "request",
        unit: str = "bytes",
        **which: Unpack[Which],
    ) -> None:
        super().__init__(None, on, which)
        self._count = count
        self._ending: Ending = ending
        self._unit = unit

    def applies(self, passage: Passage) -> bool:
        pipe = passage.session.pipe(passage.on)
        if self._unit == "frames":
            return pipe.units + 1 >= self._count
        return pipe.arrived + len(passage.data) >= self._count

    def act(self, passage: Passage) -> None:
        pipe = passage.session.pipe(passage.on)
        at = len(passage.data) if self._count else 0
        if self._unit == "bytes":
            at = max(self._count - pipe.arrived, 0)
        passage.end(self._ending, at)


class Hold(Rule):
    """Hold frames, and all that follows on their connections, until ``release()``."""

    def __init__(self, api: ApiName | None, *, on: Side = "answer", **which: Unpack[Which]) -> None:
        super().__init__(api, on, which)
        self._gates: list[Gate] = []

    @property
    def held(self) -> int:
        """How many frames it holds now."""
        return len(self._gates)

    def act(self, passage: Passage) -> None:
        gate = Gate(self)
        self._gates.append(gate)
        passage.waits.append(gate)

    def forget(self, gate: Gate) -> None:
        """A frame has passed, or is gone with its connection."""
        if gate in self._gates:
            self._gates.remove(gate)

    def release(self, count: int | None = None) -> None:
        """Let all go and act no more; with ``count``, only the oldest so many, and act on."""
        if count is None:
            self.left = 0
        for gate in self._gates[:count]:
            self.forget(gate)
            gate.release()


class Delay(Rule):
    """Let frames pass so many seconds later; those that follow keep their distance."""

    def __init__(
        self,
        api: ApiName | None,
        seconds: float,
        *,
        on: Side = "answer",
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which)
        self._seconds = seconds

    def act(self, passage: Passage) -> None:
        loop = asyncio.get_running_loop()
        passage.waits.append(Until(loop.time() + self._seconds))


class Drop(Rule):
    """Let frames not pass: the answers of requests that were carried out, or requests.

    ``then`` is what follows: ``"silent"`` (nothing passes in that direction any more), ``"cut"``,
    ``"reset"``, or None: the next ones pass as if nothing were missing.
    """

    def __init__(
        self,
        api: ApiName | None,
        *,
        on: Side = "answer",
        then: Ending | None = "silent",
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which)
        self._then = then

    def act(self, passage: Passage) -> None:
        passage.data = b""
        if self._then is not None:
            passage.end(self._then)


class Swallow(Drop):
    """Let requests not reach the broker, nor any later one of the connection."""

    def __init__(self, api: ApiName | None, **which: Unpack[Which]) -> None:
        super().__init__(api, on="request", then="silent", **which)


class Duplicate(Rule):
    """Let frames pass ``copies`` times."""

    def __init__(
        self,
        api: ApiName | None,
        *,
        on: Side = "answer",
        copies: int = 2,
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which)
        self._copies = copies

    def act(self, passage: Passage) -> None:
        passage.copies = self._copies


class Trickle(Rule):
    """Let ``size`` bytes pass each ``interval`` seconds; of all frames, unless told otherwise."""

    def __init__(
        self,
        api: ApiName | None = None,
        *,
        interval: float = 0.01,
        size: int = 1,
        on: Side | None = "answer",
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which, times=None)
        self._pace = (size, interval)

    def act(self, passage: Passage) -> None:
        passage.pace = self._pace


class Throttle(Trickle):
    """Let so many bytes per second pass, on each connection and in each direction by itself."""

    def __init__(
        self,
        rate: float,
        *,
        on: Side | None = None,
        **which: Unpack[Which],
    ) -> None:
        size = max(1, round(rate / _PIECES_PER_SECOND))
        super().__init__(None, interval=size / rate, size=size, on=on, **which)


class Corrupt(Rule):
    """Flip a bit in the records of a Produce request or a Fetch answer: the CRC is wrong then."""

    def __init__(self, api: ApiName = "Fetch", **which: Unpack[Which]) -> None:
        super().__init__(api, None, which)
        if self.api not in (0, 1):
            raise ValueError(f"records are in Produce and Fetch, not in {api!r}")
        self.on = "request" if self.api == 0 else "answer"

    def applies(self, passage: Passage) -> bool:
        return any(part.records for part in _parts(passage))

    def act(self, passage: Passage) -> None:
        for part in _parts(passage):
            if part.records:
                part.records = bytearray(part.records)
                part.records[-1] ^= 1
        passage.replace(passage.message)


class Edit(Rule):
    """Change messages: ``change`` gets one, and changes it or gives another (or bytes of one)."""

    def __init__(
        self,
        api: ApiName,
        change: Callable[[Any], Request | Response | bytes | None],
        *,
        on: Side = "answer",
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which)
        self._change = change

    def act(self, passage: Passage) -> None:
        changed = self._change(passage.message)
        passage.replace(passage.message if changed is None else changed)


class Answer(Rule):
    """Answer in the place of the broker, which with ``pass_on`` carries the request out first.

    ``make`` is the answer, or gets the request and gives it; bytes are all that follows the size.
    """

    def __init__(
        self,
        api: ApiName,
        make: Response | bytes | Callable[[Any], Response | bytes],
        *,
        pass_on: bool = False,
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, "answer" if pass_on else "request", which)
        self._make = make

    def act(self, passage: Passage) -> None:
        make = self._make
        answer = make(passage.request) if callable(make) else make
        assert passage.asked is not None
        if self.on == "answer":
            passage.replace(answer)
        else:
            passage.data = b""
            passage.asked.own = passage.asked.encode_answer(answer)


class Watch(Rule):
    """Keep the messages that pass, decoded, in ``seen``; it changes nothing."""

    def __init__(self, api: ApiName, *, on: Side = "request", **which: Unpack[Which]) -> None:
        super().__init__(api, on, which, times=None)
        self.seen: list[Any] = []

    def act(self, passage: Passage) -> None:
        self.seen.append(passage.message)


class Refuse(Rule):
    """Accept connections and close them at once, with ``reset`` by RST."""

    def __init__(self, *, reset: bool = False, **which: Unpack[Which]) -> None:
        super().__init__(None, None, which)
        self.fate = "reset" if reset else "cut"


class Ignore(Rule):
    """Accept connections and never say anything: the broker hears nothing of them."""

    def __init__(self, **which: Unpack[Which]) -> None:
        super().__init__(None, None, which)
        self.fate = "silent"


def bytes_of(passage: Passage, at: float | None) -> int | None:
    """How many bytes of a frame ``at`` means: an int is that, a float is a share of it."""
    return round(at * len(passage.data)) if isinstance(at, float) else at


def _parts(passage: Passage) -> list[Any]:
    """The partitions of a Produce request or a Fetch answer."""
    topics = passage.request.topic_data if passage.on == "request" else passage.answer.responses
    name = "partition_data" if passage.on == "request" else "partitions"
    return [part for topic in topics for part in getattr(topic, name)]
