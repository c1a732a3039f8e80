"""What follows when a handler failed: a retry, sending the record on, or the end. Sans-IO.

``Retries`` configures how often and after which delays this run retries; ``RetryTopic`` and a
dead-letter topic are where a record goes after that, so that it holds up no other record.
``Policy`` combines them for ``failures``. Nothing here sends or waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kclient.backoff import Backoff
from kclient.durations import call_timeout
from kclient.errors import DeserializationFailed, InvalidArgument
from kclient.frozen import Frozen, frozen
from kclient.types import check_topic_name

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

MAX_BACKOFF = 7200.0
"""Upper bound of ``max_backoff``, in seconds."""
LONGEST_DELAY = 30 * 24 * 3600.0
"""Seconds that a record may wait in a retry topic: a month."""


@frozen
class Retries(Frozen):
    """How a failed handler is retried. The delays double; other records don't wait meanwhile.

    Attributes:
        max_attempts: Calls of the handler per record, the first included, and again in each of the
            run's ``retry_topics``; None: no limit.
        backoff: Seconds before the second call.
        max_backoff: Seconds between two calls at most, before the jitter.
        jitter: Fraction by which a delay is changed at random, up or down.
        retry_on: Exceptions after which it is retried.
        give_up_on: Exceptions among those after which it is not: neither here nor in a retry topic.
    """

    max_attempts: int | None = 5
    backoff: float = 0.2
    max_backoff: float = 10.0
    jitter: float = 0.2
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if attempts is not None and (not _is_int(attempts) or attempts < 1):
            raise InvalidArgument(
                f"max_attempts must be an int of at least 1, or None, not {attempts!r}"
            )
        call_timeout(self.backoff, name="backoff", finite=True)
        call_timeout(self.max_backoff, name="max_backoff", finite=True, maximum=MAX_BACKOFF)
        if self.backoff > self.max_backoff:
            raise InvalidArgument(
                f"backoff={self.backoff:g} is above max_backoff={self.max_backoff:g}",
                hint="both are seconds",
            )
        if not _is_number(self.jitter) or not 0.0 <= self.jitter <= 1.0:
            raise InvalidArgument(f"jitter must be a number from 0 to 1, not {self.jitter!r}")
        for name, kinds in (("retry_on", self.retry_on), ("give_up_on", self.give_up_on)):
            if not isinstance(kinds, tuple) or not all(map(_is_exception, kinds)):
                raise InvalidArgument(f"{name} must be a tuple of exception classes, not {kinds!r}")


@frozen
class RetryTopic(Frozen):
    """A topic whose records are handled ``delay`` seconds after they were sent there.

    Attributes:
        topic: Its name.
        delay: Seconds; 0 to 30 days.
    """

    topic: str
    delay: float

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        if not _is_number(self.delay) or not 0.0 <= self.delay <= LONGEST_DELAY:
            raise InvalidArgument(
                f"delay must be 0 to {LONGEST_DELAY:,.0f} seconds, not {self.delay!r}"
            )


class Policy:
    """What follows a failure.

    Args:
        retries: How often it is retried here.
        retry_topics: Where the record goes then, one after the other.
        dead_letter_topic: Where it goes at last; None: nowhere.

    Attributes:
        backoff: Delays until the handler is called again, or sending a record on is retried.
        dead_letters: The last of these topics.
        delays: Seconds that the records of a retry topic wait, by its name.
        topics: Where records may be sent on, which needs a producer.
    """

    def __init__(
        self,
        retries: Retries,
        retry_topics: Sequence[RetryTopic] = (),
        dead_letter_topic: str | None = None,
    ) -> None:
        self._retries = retries
        self.backoff = Backoff(retries.backoff, retries.max_backoff, jitter=retries.jitter)
        self.dead_letters = (
            None if dead_letter_topic is None else RetryTopic(dead_letter_topic, 0.0)
        )
        self.delays = {one.topic: one.delay for one in retry_topics}
        stages: list[RetryTopic | None] = [*retry_topics, self.dead_letters]
        self.topics = [one.topic for one in stages if one is not None]
        self._next: dict[str, RetryTopic | None] = {
            one.topic: then for one, then in zip(retry_topics, stages[1:], strict=True)
        }
        if dead_letter_topic is not None:
            self._next[dead_letter_topic] = None  # else what fails there goes round for ever
        self._next[""] = stages[0]

    def wait(self, attempts: int, error: BaseException, rng: random.Random) -> float | None:
        """Seconds until the handler is called again; None where it isn't.

        Args:
            attempts: Calls that failed, this one included.
            error: The exception of this one.
            rng: For the jitter.
        """
        most = self._retries.max_attempts
        if (most is not None and attempts >= most) or self._hopeless(error):
            return None
        return self.backoff.delay(attempts - 1, rng)

    def destination(self, topic: str, error: BaseException) -> RetryTopic | None:
        """Where a record of ``topic`` goes that failed for good here; None: nowhere."""
        then = self._next.get(topic, self._next[""])
        if then is not None and self._hopeless(error) and then is not self.dead_letters:
            return self.dead_letters
        return then

    def _hopeless(self, error: BaseException) -> bool:
        if isinstance(error, DeserializationFailed) or isinstance(error, self._retries.give_up_on):
            return True
        return isinstance(error, Exception) and not isinstance(error, self._retries.retry_on)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
