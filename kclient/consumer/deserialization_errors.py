"""DeserializationErrorHandler: keeps records that can't be deserialized from blocking a consumer.

``poller`` calls it. By default the error is raised and the position stays at the record. Otherwise
the record is skipped: at once, or once the dead-letter topic has it; until then it isn't skipped,
so that a call which is cancelled meanwhile has lost nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kclient.consumer.dead_letters import unfit
from kclient.errors import ClientClosed, InvalidArgument, InvalidConfig
from kclient.frozen import Frozen, frozen
from kclient.types import check_topic_name

if TYPE_CHECKING:
    import re
    from collections.abc import Collection

    from kclient.cluster.core import ClientCore
    from kclient.consumer.dead_letters import Sender
    from kclient.errors import DeserializationFailed
    from kclient.record import Record
    from kclient.types import TopicPartition

logger = logging.getLogger("kclient.consumer")

QUIET = 10.0
"""Seconds between two log lines about skipped records."""


@frozen
class DeadLetters(Frozen):
    """Where records go that can't be deserialized.

    Attributes:
        topic: The dead-letter topic's name.
        producer: Sends them: a ``Producer`` without serializers, open for as long as the consumer.
    """

    topic: str
    producer: Sender


class DeserializationErrorHandler:
    """The policy of one consumer, and the record that is being sent to the dead-letter topic.

    Args:
        policy: ``"raise"``, ``"skip"`` or a ``DeadLetters``.
        topics: The topics that the consumer reads.
        pattern: Likewise, those whose names match.

    Raises:
        InvalidConfig: The policy is none of these, or can't work.

    Attributes:
        waiting: A record that ``settle`` has to send before it can be skipped, with its error.
    """

    def __init__(
        self,
        policy: object,
        topics: Collection[str] = (),
        pattern: re.Pattern[str] | None = None,
    ) -> None:
        if isinstance(policy, DeadLetters):
            check_topic_name(policy.topic, "bad_records")
            _check_producer(policy.producer)
            if policy.topic in topics or (pattern and pattern.fullmatch(policy.topic)):
                raise InvalidConfig(
                    f"bad_records: the consumer itself reads dead-letter topic {policy.topic!r}",
                    hint="read it by another consumer; a pattern must not match its name",
                )
        elif policy not in ("raise", "skip"):
            raise InvalidConfig(
                f"bad_records={policy!r} can't be used: allowed is 'raise', 'skip' or "
                "DeadLetters(topic, producer)"
            )
        self._policy: Any = policy
        self._count = 0
        self._quiet_until = 0.0
        self._sent: dict[TopicPartition, Record] = {}
        self.waiting: tuple[Record, DeserializationFailed] | None = None

    def check(self) -> None:
        """Check the producer of dead letters when the consumer starts.

        Raises:
            InvalidArgument: The producer isn't open.
        """
        if isinstance(self._policy, DeadLetters):
            why = unfit(self._policy.producer, running=True)
            if why is not None:
                raise InvalidArgument(f"bad_records: {why}", hint="start it before the consumer")

    @property
    def letters(self) -> DeadLetters | None:
        """The topic and producer of dead letters, if they are sent anywhere."""
        return self._policy if isinstance(self._policy, DeadLetters) else None

    def skips(self, record: Record, error: DeserializationFailed, core: ClientCore) -> bool:
        """Whether ``record`` is skipped without being sent anywhere."""
        return self._policy == "skip" and self.passes(record, error, core)

    def passes(self, record: Record, error: DeserializationFailed, core: ClientCore) -> bool:
        """Whether ``record`` is skipped now.

        Else it stays, and the error is to be raised unless the record is ``waiting``.
        """
        if self._policy == "raise" or record.topic == getattr(self._policy, "topic", None):
            return False  # in the dead-letter topic itself each would come again and again
        if self._policy != "skip":
            # Compared as a whole: the topic may have been recreated, with another record there.
            if self._sent.get(record.topic_partition) != record:
                self.waiting = (record, error)
                return False
            del self._sent[record.topic_partition]
        core.counters.add("consumer.bad_records")
        self._count += 1
        now = core.clock.now()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            self._log_skipped(core, f", the latest: {error.message}")
        return True

    def log_rest(self, core: ClientCore) -> None:
        """Log the count of skipped records that were not logged yet, as the consumer ends."""
        if self._count:
            self._log_skipped(core)

    def _log_skipped(self, core: ClientCore, latest: str = "") -> None:
        log = core.hooks.log(logger)
        log.warning("records are passed over count=%d%s", self._count, latest)
        self._count = 0

    async def settle(self) -> None:
        """Send the record that waits; then it may be skipped.

        Raises:
            KafkaError: It could not be sent; the next call tries again.
            ClientClosed: It can never be sent, as the producer was closed.

        Cancellation: safe; it may have been sent, and is sent again then.
        """
        from kclient.consumer.dead_letters import headers_of

        if self.waiting is None:
            return
        record, error = self.waiting
        headers = headers_of(record, error.__cause__ or error, 0, None, sent_on=False)
        topic, producer = self._policy.topic, self._policy.producer
        try:
            await producer.send(topic, record.value, key=record.key, headers=headers)
        except ClientClosed as closed:
            why = f"bad_records: a record can't be sent to {topic}: {closed.message}"
            raise ClientClosed(
                why, hint="keep the producer open longer than the consumer"
            ) from closed
        finally:
            self.waiting = None
        self._sent[record.topic_partition] = record


def _check_producer(producer: Any) -> None:
    why = unfit(producer, running=False)
    if not callable(getattr(producer, "send", None)):
        why = f"{type(producer).__name__} can't send records"
    if why is not None:
        raise InvalidConfig(
            f"bad_records: {why}",
            hint="give an open kclient.Producer without serializers: DeadLetters(topic, producer)",
        )
