"""A TCP proxy before real brokers that parses frames, and injects the faults that a test asks for.

It runs on the test's event loop. Clients that are given ``proxy.bootstrap`` find all brokers behind
it, since every address in a response is replaced by that of a port of the proxy::

    async def test_a_lost_response(proxy, topic, producer):      # fixtures of conftest.py
        name = await topic()
        out = await producer(bootstrap=proxy.bootstrap)
        lost = proxy.add(Drop("Produce", then="cut"))          # written, but not acknowledged
        await out.send(name, b"v")
        assert lost.hits == 1

    async with FaultProxy("127.0.0.1:9092,127.0.0.1:9093") as proxy:   # or without fixtures

**Rules** act on frames, by default once (``times=1``); those that pace and watch act on all. An
API is ``"Produce"``, ``ProduceRequest`` or ``0``; None is any. ``on`` is the direction: "request",
or "answer" for responses. Which frames: ``node=2``, ``client_id="a"``, ``session=one``,
``topic="t"`` and ``partition=0`` (Produce, Fetch), ``when=lambda p: p.request.acks == -1``,
``skip=3`` (let three pass first), ``times=5``, ``times=None`` (all)::

    Cut("Produce", at=10)                  close both sides at byte 10 of a request; at=0.5: half
    Cut("Fetch", on="answer", at=None)     ... behind a whole response; reset=True: by RST
    After(1000, on="answer")               cut at byte 1,000 of a connection; also "reset", "silent"
    Stall("Metadata")                      half a response, and nothing more, ever
    held = Hold("Produce", times=None)     written, and the responses wait for held.release()
    Hold("Produce", on="request")          not written before its release
    Delay("Fetch", 0.5, times=None)        later; what follows keeps its distance
    Drop("Produce")                        no response, nor a later one; then="cut", "reset", None
    Swallow("Produce")                     no request reaches the broker any more
    Duplicate("Fetch")                     a response twice
    Throttle(10_000, node=2)               bytes per second, on each connection and direction
    Trickle("Metadata", interval=0.1)      byte by byte
    Corrupt("Produce")                     a bit of the records, so that the CRC is wrong; or Fetch
    Refuse(), Refuse(reset=True)           accept a connection and close it
    Ignore()                               accept a connection and send nothing
    Answer("Produce", make)                make(request), or a message, in the place of the broker
    Answer("Produce", make, pass_on=True)  the same, but the request was carried out
    Edit("Metadata", change)               change(passage) alters passage.answer, or returns another
    seen = Watch("Produce")                decoded messages in seen.seen; on="answer": responses

A connection is a stream: what stops one frame stops all behind it in that direction, while other
connections go on. A request that is in flight arrives even if its client closed meanwhile. Rules
see a frame when it comes in, not when it leaves a queue, and in the order in which the rules were
added; all that match act on it together. ``rule.hits`` counts, ``await rule.reached(3)`` waits,
``proxy.remove(rule)`` and ``proxy.clear()`` end rules and release what they hold.

**Connections**: ``proxy.sessions(node)`` are those that clients have open; ``session.cut()``,
``session.cut(reset=True)``, ``session.in_flight("Produce")``. ``proxy.in_flight("Produce")`` sums:
requests that were passed on and whose response has not passed back. ``await proxy.until(lambda:
proxy.in_flight("Produce") >= 3)`` waits. ``proxy.requests[0]``, ``proxy.answers[0]`` (by number of
the API), ``proxy.connections`` and ``proxy.cuts`` count; ``proxy.address(2)`` is a node's address.

**TLS**: ``FaultProxy(tls_address, opaque=True)`` passes bytes that it can't read. It leaves
addresses in responses alone, and rules see TLS records as frames: ``After(2, "silent",
on="answer", unit="frames")`` stalls a handshake behind the second record of the server.
"""

from tests.faults.passage import Asked, Passage
from tests.faults.proxy import FaultProxy
from tests.faults.rule import Rule
from tests.faults.rules import (
    After,
    Answer,
    Corrupt,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Edit,
    Hold,
    Ignore,
    Refuse,
    Stall,
    Swallow,
    Throttle,
    Trickle,
    Watch,
)
from tests.faults.session import Session

__all__ = [
    "After",
    "Answer",
    "Asked",
    "Corrupt",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "Edit",
    "FaultProxy",
    "Hold",
    "Ignore",
    "Passage",
    "Refuse",
    "Rule",
    "Session",
    "Stall",
    "Swallow",
    "Throttle",
    "Trickle",
    "Watch",
]
