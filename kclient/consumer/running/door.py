"""``Consumer.run`` and what belongs to it: the part of the public door that handlers come through.

``Consumer`` inherits it, as it does ``Grouping``. It checks arguments and says what the call
promises; the work is behind ``runner``, which is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from kclient.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Literal

    from kclient.consumer.engine import Engine
    from kclient.consumer.records import ConsumerRecord
    from kclient.consumer.running.health import RunHealth
    from kclient.consumer.running.retries import Retries, RetryTopic
    from kclient.consumer.running.sender import Sender

K = TypeVar("K")
V = TypeVar("V")


class Running(Generic[K, V]):
    """A consumer that has its records handled."""

    _engine: Engine

    async def run(
        self,
        handler: Callable[[ConsumerRecord[K, V]], Awaitable[object]],
        *,
        concurrency: int = 64,
        ordering: Literal["partition", "key", "none"] = "partition",
        retries: Retries | None = None,
        retry_topics: Sequence[RetryTopic] = (),
        dead_letter_topic: str | None = None,
        producer: Sender | None = None,
        max_in_flight: int | None = None,
        drain_timeout: float = 30.0,
    ) -> None:
        """Call ``handler`` for each record, many at the same time, until the consumer is closed.

        **Order.** Records of one partition, or of one key, are handled one after the other, in
        the order of their offsets; with ``none`` in any. Keys are compared as they are stored,
        and records without a key stay in order within their partition.

        **Commits.** In a group the offset up to which *all* records of a partition are finished
        is committed: every ``auto_commit_interval``, before partitions are given up, on close and
        when the run ends; with ``enable_auto_commit=False`` never by itself. Each record is
        handled at least once: those that were finished behind one that wasn't come again after a
        restart or a rebalance. A record is finished when its handler returns, or when it is
        acknowledged by a retry topic or the dead-letter topic.

        **Failures.** A handler that raises an exception is called again as ``retries`` say, and
        only what may not overtake its record waits meanwhile. After that the record goes to the
        first of ``retry_topics``, from there to the second, and at last to the
        ``dead_letter_topic``, with its key, value and headers and with headers that tell why; see
        ``kclient.failure_of``. There it no longer holds up anything,
        so its order is lost. A run that reads a retry topic starts a record when it is due and
        pauses the partition until then: subscribe to these topics here or in another consumer, and
        give it the same ``retry_topics``. Without a topic to go to, the run ends with
        HandlerFailed. What can't be deserialized isn't tried again; unless the consumer's
        ``bad_records`` say what becomes of it, it goes to the dead-letter topic.

        **Slow handlers.** The group is polled for all the time. A partition that has its share of
        ``max_in_flight`` unfinished is paused, and a handler that takes longer than
        ``max_poll_interval`` is named in the log and in ``run_health()``; nobody is thrown out of
        the group. What blocks the event loop itself can't be seen through: give it to a thread.

        **Ends.** When partitions are given up, and when the consumer is closed, no handler of them
        is started, and those that run have ``drain_timeout`` to end, less where the group or
        ``close(timeout=...)`` has less; then they are cancelled, and their records count as not
        finished. A handler can't await ``close()`` or ``unsubscribe()``, which wait for it: have
        another task do so, or cancel that of the run. When partitions are lost, their handlers are
        cancelled at once. ``seek`` drops what was taken before, and handlers that run go on.
        Polling is refused while this runs.

        Each call of the handler has context variables of its own. CancelledError that a handler
        raises is a failure like others; KeyboardInterrupt and SystemExit end the run.

        Args:
            handler: An async function, called with a record as ``poll`` gives it. What it returns
                doesn't matter.
            concurrency: Handlers that run at the same time at most.
            ordering: What isn't overtaken: ``"partition"``, ``"key"`` or ``"none"``.
            retries: ``Retries()`` by default: five calls, waits of 0.2 seconds doubling up to 10.
            retry_topics: Where a record goes that failed for good here, one after the other.
            dead_letter_topic: Where it goes at last; not among what this consumer reads.
            producer: Sends it there: a ``Producer`` without serializers, which must be open for as
                long as this runs.
            max_in_flight: Records that are taken and not finished, or wait for one before them
                that isn't; by default at least 1,024, and 16 for each handler and partition.
            drain_timeout: Seconds, see above.

        Returns:
            Nothing, once the consumer is closed.

        Raises:
            HandlerFailed: A record failed for good and has no topic to go to, or can't be sent
                there: ``offset`` and ``topic_partition`` say which, ``__cause__`` is what the
                handler raised, and the text also says why the record can't be sent. Others that ran
                have ended, what is finished is committed, and the position is back at the first
                record that isn't: to go on, seek past it or mend the handler, and run again.
            InvalidArgument: An argument that can't work, a handler that isn't async or takes other
                arguments, or a run or a ``poll`` that is under way.
            UnknownTopicOrPartition, TopicAuthorizationFailed: The producer can't send to one of
                these topics; found out before the first record is handled.
            KafkaError: What ``poll`` raises and a retry wouldn't mend, such as NoPosition; after
                handlers have ended, as above.
            ClientClosed, BackgroundTaskDied: The consumer can't be used.

        Cancellation: handlers are cancelled, what is finished is committed, and the positions go
        back to what isn't, so that the consumer can be used on, for another run, too.

        Example::

            async def handle(record):
                await database.save(record.key, record.value)

            async with (
                kclient.Producer("localhost:9092") as producer,
                kclient.Consumer("localhost:9092", "orders", group="billing") as consumer,
            ):
                await consumer.run(
                    handle, ordering="key", dead_letter_topic="orders.dead", producer=producer
                )
        """
        from kclient.consumer.running.engine_host import EngineHost
        from kclient.consumer.running.plan import checked_handler, checked_producer, planned
        from kclient.consumer.running.runner import Runner

        checked_handler(handler)
        plan = planned(
            *(concurrency, ordering, retries, retry_topics, dead_letter_topic),
            *(max_in_flight, drain_timeout),
        )
        checked_producer(producer, plan)
        self._engine.core.check_usable()
        if self._engine.group is not None:
            self._engine.group.callbacks.check_outside("run")
        if self._engine.handlers is not None:
            raise InvalidArgument("run() is under way already", hint="one run per consumer")
        runner = Runner(EngineHost(self._engine), handler, plan, producer)
        with self._engine.handling(runner):
            await runner.run()

    def run_health(self) -> RunHealth | None:
        """How ``run`` is doing; None where it isn't under way. Cheap, and free to call.

        Returns:
            A ``kclient.consumer.running.health.RunHealth``: handlers at work, records in flight,
            failures, and in ``slow`` each handler that takes longer than ``max_poll_interval``.
        """
        return None if self._engine.handlers is None else self._engine.handlers.health()
