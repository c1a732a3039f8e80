"""Failures: handles a record whose handler raised: it is retried, sent on, or ends the run.

``run`` passes them one by one; ``retries`` decides. A record that is sent on is finished when the
broker has acknowledged it; where it can't be sent for the moment, it waits like one that is
retried, so that no worker is held up.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING

from kclient.broker_errors import UnknownTopicOrPartition
from kclient.consumer.dead_letters import headers_of
from kclient.consumer.handlers.retries import RetryTopic
from kclient.errors import (
    DeserializationFailed,
    HandlerFailed,
    InvalidArgument,
    KafkaError,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient.consumer.dead_letters import Sender
    from kclient.consumer.handlers.retries import Policy
    from kclient.consumer.handlers.run import EngineHost, Runner
    from kclient.consumer.handlers.tracker import Job

PATIENCE = 10.0
"""Seconds at most for checking whether topics exist, before the first record is handled."""


class Failures:
    """The failures of one run.

    Args:
        host: The consumer.
        policy: Decides what follows a failure.
        producer: Sends records on; None where the policy has no topic to send them to.
        runner: Is notified of jobs to restart, of finished jobs, and of an error that ends the run.

    Attributes:
        count: Calls of the handler that failed.
        sent_on: Records that were sent on.
    """

    def __init__(
        self,
        host: EngineHost,
        policy: Policy,
        producer: Sender | None,
        runner: Runner,
    ) -> None:
        self._host = host
        self._core = host.core
        self._policy = policy
        self._producer = producer
        self._runner = runner
        self.count = 0
        self.sent_on = 0

    def check(self) -> None:
        """Refuse a dead-letter topic that this consumer reads, as its records would come back.

        Raises:
            InvalidArgument: This run reads it.
        """
        last = self._policy.dead_letters
        if last is not None and self._host.reads(last.topic):
            raise InvalidArgument(
                f"dead_letter_topic={last.topic!r} can't be used: this consumer reads it",
                hint="read it by another consumer; a pattern must not match its name",
            )

    async def find_topics(self) -> None:
        """Check that the topics exist to which records may be sent on.

        A topic that can't be checked for the moment is checked when a record is sent.

        Raises:
            UnknownTopicOrPartition, TopicAuthorizationFailed: One doesn't, or may not be used.

        Cancellation: safe.
        """
        ask = getattr(type(self._producer), "partitions_for", None)
        if ask is None:
            return
        try:
            async with asyncio.timeout(min(PATIENCE, self._host.max_poll_interval / 2)):
                for topic in self._policy.topics:
                    result = ask(self._producer, topic)
                    if inspect.isawaitable(result):  # else it isn't our producer
                        await result
        except Exception as error:
            if not _may_pass(error):
                raise

    async def take(self, job: Job, error: BaseException, waits: Callable[[], object]) -> None:
        """Process ``error`` of ``job``, raised now or, where it was to be sent on, before.

        ``waits()`` is called before anything is awaited.

        Cancellation: the record isn't finished.
        """
        if job.failure is None:
            job.attempts += 1
            self.count += 1
            self._core.counters.add("consumer.handler_failures")
            wait = self._policy.wait(job.attempts, error, self._core.rng)
            if wait is not None:
                self._runner.put_back(job, wait)
                return
            job.destination = self._policy.destination(job.track.partition.topic, error)
            job.failure = error
            if isinstance(error, DeserializationFailed) and self._passes(job, error):
                self._runner.finish(job)
                return
        producer = self._producer if job.bad is None else job.bad.producer
        if job.destination is None or producer is None:
            hint = "with a dead_letter_topic the run would go on"
            if self._policy.dead_letters is not None:
                hint = "it comes from the dead-letter topic itself: read that by another consumer"
            self._runner.stop_for(_for_good(job, error, hint))
        else:
            await self._send(job, error, job.destination, producer, waits)

    def _passes(self, job: Job, error: DeserializationFailed) -> bool:
        """Apply the consumer's ``bad_records`` first; True if the record is skipped."""
        bad_records = self._host.bad_records
        letters = bad_records.letters
        if letters is not None and letters.topic != job.record.topic:
            job.bad, job.destination = letters, RetryTopic(letters.topic, 0.0)
        return bad_records.skips(job.record, error, self._core)

    async def _send(
        self,
        job: Job,
        cause: BaseException,
        to: RetryTopic,
        producer: Sender,
        waits: Callable[[], object],
    ) -> None:
        record, policy, clock = job.record, self._policy, self._core.clock
        due = None
        if to.topic in policy.delays:
            due = clock.wall_ms() + round(to.delay * 1000)
        sent_on = record.topic in policy.delays
        headers = headers_of(record, cause, job.attempts, due, sent_on=sent_on)
        try:
            sent = producer.send(to.topic, record.value, key=record.key, headers=headers)
            waits()
            await sent
        except Exception as error:
            if _may_pass(error):
                self._host.log.warning("a record can't be sent to %s yet: %s", to.topic, error)
                self._runner.put_back(job, policy.backoff.delay(job.sends, self._core.rng))
                job.sends += 1
            else:
                text = f"; and it can't be sent to {to.topic}: {error}"
                self._runner.stop_for(_for_good(job, cause, more=text))
            return
        self.sent_on += 1
        self._core.counters.add("consumer.sent_on")
        level = logging.INFO if due is not None else logging.WARNING
        text = "handler failed for good partition=%s offset=%d attempts=%d error=%s sent_to=%s"
        where, name = job.track.partition, type(cause).__name__
        self._host.log.log(level, text, where, record.offset, job.attempts, name, to.topic)
        self._runner.finish(job)


def _may_pass(error: Exception) -> bool:
    """Whether a retry may succeed. A topic that was unknown for a while doesn't exist."""
    if isinstance(error, KafkaError):
        return error.retriable and not isinstance(error, UnknownTopicOrPartition)
    return isinstance(error, OSError)


def _for_good(
    job: Job, cause: BaseException, hint: str | None = None, more: str = ""
) -> HandlerFailed:
    where, offset = job.track.partition, job.record.offset
    times = "once" if job.attempts == 1 else f"{job.attempts} times"
    text = f"the handler failed at offset {offset} of {where}, {times}: {text_of(cause)}{more}"
    error = HandlerFailed(text, offset=offset, topic_partition=where, hint=hint)
    error.__cause__ = cause
    return error
