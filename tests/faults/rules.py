"""The faults of the proxy: one class each, made by tests and passed to ``FaultProxy.add``.

A rule sets its effect in the ``Passage`` of a frame; the pipes apply it. Rules hold no transport
and no timer. ``rule.py`` has what is common to all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Unpack

from kclient.protocol.message import Request, Response
from kclient.testing.api_versions import ApiName
from tests.faults.passage import FETCH, PRODUCE, Ending, Passage, Side
from tests.faults.pipe import Gate, Until
from tests.faults.rule import Rule, Which

_PIECES_PER_SECOND = 100


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
        unit: Literal["bytes", "frames"] = "bytes",
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
    def spent(self) -> bool:
        return self.left == 0 and not self._gates

    @property
    def held(self) -> int:
        """How many frames it holds now."""
        return len(self._gates)

    def act(self, passage: Passage) -> None:
        gate = Gate(self)
        self._gates.append(gate)
        passage.waits.append(gate)

    def forget(self, gate: Gate) -> None:
        """A frame has passed, or was discarded with its connection."""
        if gate in self._gates:
            self._gates.remove(gate)

    def release(self, count: int | None = None) -> None:
        """Release all and act no more; with ``count``, the oldest so many, and go on acting."""
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
    """Drop frames: the responses to requests that were carried out, or requests.

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
    """Let ``size`` bytes pass each ``interval`` seconds; by default of all frames."""

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
    """Flip a bit in the records of a Produce request or a Fetch response: the CRC is wrong then."""

    def __init__(self, api: ApiName = "Fetch", **which: Unpack[Which]) -> None:
        super().__init__(api, None, which)
        if self.api not in (PRODUCE, FETCH):
            raise ValueError(f"records are in Produce and Fetch, not in {api!r}")
        self.on = "request" if self.api == PRODUCE else "answer"

    def applies(self, passage: Passage) -> bool:
        return bool(self._parts(passage))

    def act(self, passage: Passage) -> None:
        for part in self._parts(passage):
            part.records = bytearray(part.records)
            part.records[-1] ^= 1
        passage.replace(passage.message)

    def _parts(self, passage: Passage) -> list[Any]:
        topic, partition = self._which.get("topic"), self._which.get("partition")
        return [
            part
            for name, index, part in passage.parts()
            if part.records and topic in (None, name) and partition in (None, index)
        ]


class Edit(Rule):
    """Change messages: ``change`` alters the ``message`` of a passage, or returns another one.

    Bytes in its place are all that follows the size of the frame.
    """

    def __init__(
        self,
        api: ApiName,
        change: Callable[[Passage], Request | Response | bytes | None],
        *,
        on: Side = "answer",
        **which: Unpack[Which],
    ) -> None:
        super().__init__(api, on, which)
        self._change = change

    def act(self, passage: Passage) -> None:
        changed = self._change(passage)
        passage.replace(passage.message if changed is None else changed)


class Answer(Rule):
    """Respond in the place of the broker, which with ``pass_on`` carries the request out first.

    ``make`` is the response, or makes it from the request; bytes are all that follows the size.
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
    """Accept connections and never send anything; the broker doesn't see them."""

    def __init__(self, **which: Unpack[Which]) -> None:
        super().__init__(None, None, which)
        self.fate = "silent"


def bytes_of(passage: Passage, at: float | None) -> int | None:
    """How many bytes of a frame ``at`` means: an int is that, a float is a share of it."""
    return round(at * len(passage.data)) if isinstance(at, float) else at
