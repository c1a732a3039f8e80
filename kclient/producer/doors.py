"""The doors that most records come in by, without a frame of Python between user and batch.

One source, two builds: compiled as ``_doors_c`` with the C types of ``_doors_c.pxd``; ``Producer``
gets the class from ``kclient.producer.hot`` and inherits it. What ``QuickWay`` doesn't take goes to
the intake. Keyword-only arguments alone cost a Python function as much as all of the quick way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kclient.producer.no_room import NoRoom

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    import cython  # type: ignore[import-untyped]

    from kclient.producer.delivery import Delivery
    from kclient.producer.outgoing import HeadersArgument

    K: TypeAlias = Any  # type variables of Producer, which declares these methods for type checkers
    V: TypeAlias = Any
else:
    from kclient.record import _cython as cython

if not cython.compiled:  # else the .pxd has it
    from kclient.producer.quick import QuickWay


@cython.cclass
class Doors:
    """``send`` and ``enqueue_nowait`` of a producer.

    Attributes:
        _quick: Takes what needs no decision.
        _check: Raises where the producer can't be used.
        _put: Takes what does; see ``Intake.put``.
    """

    _quick: QuickWay
    _check: Callable[[], None]
    _put: Callable[..., Delivery]

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: HeadersArgument = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Take one record and return its ``Delivery`` at once; await that for the outcome.

        A plain method: it never suspends, makes no task, and ``asyncio.gather(*(producer.send(...)
        for ...))`` costs little. Where there is no room in ``buffer_memory``, the record is parked
        in a strict FIFO of up to ``max_parked`` records and a quarter of ``buffer_memory``; where
        the topic's metadata isn't here yet, in one as long as memory has room for it.

        Args:
            topic: Where to.
            value: What ``value_serializer`` takes, else bytes-like; None writes a tombstone.
            key: What ``key_serializer`` takes, else bytes-like. Records of one key go to one
                partition, and stay in order.
            headers: (name, value) pairs or a mapping; values are bytes-like or None.
            partition: Where to exactly; None lets the partitioner choose.
            timestamp: Int milliseconds since the epoch; None means now.

        Returns:
            The delivery: ``await`` gives RecordMetadata, or raises why it was not delivered within
            ``delivery_timeout`` (DeliveryTimedOut, a BrokerError ...). ``maybe_written`` of that
            error says whether the record may be in the log all the same. For a topic that was
            never there it raises UnknownTopicOrPartition once brokers have said so for 5 s, or for
            10 s where only one of several can be asked; three times as long with
            ``allow_auto_create_topics``. For a topic that was deleted after this producer wrote to
            it, the record waits for ``delivery_timeout``; for a ``partition`` that the topic
            doesn't have, for 10 s at most (then MetadataTimedOut), as it may be added.

        Raises:
            SerializationFailed: Key, value or headers are of a type that can't be sent.
            RecordTooLarge: Larger than ``max_request_size`` or ``buffer_memory``.
            InvalidArgument: No topic can have that name, or another argument is no good.
            BufferFull: Too much is parked already; ``await producer.enqueue(...)`` waits instead.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Example::

            delivery = producer.send("flights", b"value", key=b"N14228")
            print((await delivery).offset)
        """
        delivery = self._quick.take(topic, value, key, headers, partition, timestamp)
        if delivery is None:
            self._check()
            delivery = self._put(topic, value, key, headers, partition, timestamp, NoRoom.PARK)
        return delivery

    def enqueue_nowait(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        headers: HeadersArgument = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """``send`` that raises BufferFull as soon as memory is full, instead of parking.

        Records for a topic whose metadata isn't here yet are parked as in ``send``.

        Args:
            topic, value, key, headers, partition, timestamp: As in ``send``.

        Raises:
            BufferFull: No room in ``buffer_memory``; nothing was taken.
            SerializationFailed, RecordTooLarge, InvalidArgument: As in ``send``.
            ClientClosed, WrongContext, BackgroundTaskDied: This producer can't be used (here).

        Example::

            producer.enqueue_nowait("metrics", b"42")
        """
        delivery = self._quick.take(topic, value, key, headers, partition, timestamp)
        if delivery is None:
            self._check()
            delivery = self._put(topic, value, key, headers, partition, timestamp, NoRoom.REFUSE)
        return delivery
