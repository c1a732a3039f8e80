"""The error tree: every exception that kclient raises on purpose is a ``KafkaError``.

::

    KafkaError
    ├── BrokerError                 a broker answered with an error code; one subclass per code,
    │                               generated into ``broker_errors`` from Kafka's own table
    │                               and had from here, too, loaded on first use
    └── ClientError                 the client itself decided
        ├── InvalidConfig           (ValueError)       a setting that can't work
        │   └── CodecUnavailable                       a codec's package is missing or broken
        ├── InvalidArgument         (ValueError)       a bad value handed to a call
        ├── SerializationFailed     (TypeError)        a key or value that is not what it should be
        ├── RecordTooLarge          (ValueError)       a record over ``max_request_size``
        ├── RowsRejected            (ValueError)       rows of a table that can't be sent
        ├── BufferFull                                 no space to accept another record
        ├── ClientClosed            (RuntimeError)     used before start or after close
        ├── WrongContext            (RuntimeError)     used from another loop, thread or process
        ├── BackgroundTaskDied                         an internal task ended unexpectedly
        ├── RequestTimedOut         (TimeoutError)     no answer within the request's timeout
        ├── DeliveryTimedOut        (TimeoutError)     no acknowledgement within delivery_timeout
        ├── MetadataTimedOut        (TimeoutError)     metadata did not arrive in time
        ├── BrokerUnreachable       (ConnectionError)  could not connect to a broker
        │   ├── BootstrapFailed                        no bootstrap address is usable
        │   └── AuthenticationFailed                   the broker doesn't accept us, or we not it
        ├── ConnectionLost          (ConnectionError)  the connection broke under a request
        ├── NoCommonVersion                            broker and client share no version of an API
        ├── ProtocolError                              bytes that are not the protocol
        │   └── InvalidFrame                           a frame size that can't be right
        ├── OffsetError                                about one offset of one partition
        │   ├── CorruptRecord                          a batch that fails its checks
        │   │   └── DecompressionFailed                a payload that can't be inflated
        │   ├── DeserializationFailed (ValueError)     a deserializer raised
        │   └── LogTruncated                           what was read is gone from the log (KIP-320)
        ├── NoPosition                                 an assigned partition has no start offset
        ├── CommitFailed                               offsets of partitions that are another's now
        ├── MaxPollExceeded                            left the group, as poll came too late
        ├── ConsumerStalled                            a partition is read, but gets no answers
        ├── HandlerFailed                              a handler of ``run`` failed for good
        ├── WrongTransactionState (RuntimeError)       sent outside a transaction, nested, ...
        ├── TransactionAborted                         it can't be committed; begin a new one
        ├── CommitOutcomeUnknown    (TimeoutError)     commit() had no response yet: call it again
        └── FlushFailed                                some of what was flushed was not delivered
            └── RowsNotDelivered                       likewise, of the rows of a table

``retriable`` says that the same call may succeed later without changing anything; ``fatal`` says
that this client object can't be used any more. Whether to retry is decided in one place per
caller (``cluster.calls``, the sender, the fetcher); the flags are facts only.
"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kclient.error_codes import TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kclient.broker_errors import *  # noqa: F403
    from kclient.types import TopicPartition
else:

    def __getattr__(name: str) -> Any:
        """A broker error; type checkers don't see this, so that they know a wrong name."""
        if not name.startswith("_"):
            from kclient import broker_errors

            value = getattr(broker_errors, name, None)
            if isinstance(value, type):
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_MOST_CAUSES = 5
"""How many causes of causes a text has; a bound also for a ring of them."""
Raised = TypeVar("Raised", bound=BaseException)


class KafkaError(Exception):
    """Base of all errors of this package.

    Attributes:
        retriable: The same call may succeed later, unchanged.
        fatal: The client object that raised it can't be used any more.
        topic_partition: What it is about, where that is one partition.
        node_id: The broker that it concerns, if one.
        hint: What to do next, as a sentence; also the last part of ``str(error)``, which has the
            text of ``__cause__`` before it.
        maybe_written: For failures of a delivery: True when the record may be in the log all the
            same, False when it certainly is not, None where the question makes no sense.
    """

    retriable: bool = False
    fatal: bool = False
    hint: str | None = None
    _lost_cause: str = ""  # the text of a cause that pickling left behind

    def __init__(
        self,
        message: str = "",
        *,
        topic_partition: TopicPartition | None = None,
        node_id: int | None = None,
        hint: str | None = None,
        maybe_written: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.topic_partition = topic_partition
        self.node_id = node_id
        self.maybe_written = maybe_written
        if hint is not None:
            self.hint = hint

    def __str__(self) -> str:
        text = self._own_text()
        text += _cause_text(self, text)
        return f"{text} ({self.hint})" if self.hint else text

    def _own_text(self) -> str:
        """The text without that of the cause, and without the hint."""
        return self.message or type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.__dict__.copy()
        if self.__cause__ is not None:  # which may not be picklable; its text always is
            state["_lost_cause"] = _cause_text(self, self._own_text())
        return _restore, (type(self), state)


def _cause_text(error: KafkaError, text: str) -> str:
    """What ``str(error)`` adds to ``text``: of its causes, the texts that aren't in it already.

    Follows ``__cause__`` through errors of this package to the first other exception.
    """
    full = text
    for _ in range(_MOST_CAUSES):
        cause = error.__cause__
        if not isinstance(cause, KafkaError):
            full += _foreign_text(cause, full) if cause is not None else error._lost_cause
            break
        if (cause.message or cause._own_text()) not in full:
            full += f": {cause._own_text()}"
        error = cause
    return full[len(text) :]


def _foreign_text(cause: BaseException, text: str) -> str:
    """What to add to ``text`` of an exception that isn't of this package."""
    own = _safe_str(cause)
    known = [own]
    if isinstance(cause, OSError) and cause.errno is not None:
        known += [cause.strerror or own, os.strerror(cause.errno)]
    if any(words in text for words in known):
        return ""
    return f": {own}" if text.endswith(type(cause).__name__) else f": {text_of(cause)}"


def text_of(error: BaseException) -> str:
    """``error`` as a traceback's last line has it: "ValueError: no digits", or the class alone."""
    kind, own = type(error).__name__, _safe_str(error)
    return f"{kind}: {own}" if own else kind


def _safe_str(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # of a class of the user's
        return ""


def fresh(error: Raised) -> Raised:
    """Return a copy of ``error``, for raising one that is kept.

    Raised itself, its traceback would grow each time and keep all those frames alive. The copy has
    the type, attributes, notes, cause and present traceback of ``error``; where a type that isn't
    ours can't be copied, it is ``error``.
    """
    try:
        made = copy.copy(error)
    except Exception:
        return error
    if "_lost_cause" not in vars(error):
        vars(made).pop("_lost_cause", None)  # the cause itself is copied
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    if hasattr(error, "__notes__"):
        made.__notes__ = list(error.__notes__)
    return made.with_traceback(error.__traceback__)


def _restore(cls: type[KafkaError], state: dict[str, Any]) -> KafkaError:
    error = cls.__new__(cls)
    Exception.__init__(error, state.get("message", ""))
    error.__dict__.update(state)
    return error


class BrokerError(KafkaError):
    """A broker answered with an error code. Each code has its own subclass in ``broker_errors``.

    Attributes:
        code: Kafka's number of the error.
        name: Kafka's name of it, such as ``NOT_LEADER_OR_FOLLOWER``.
        refresh_metadata: The error says that our view of the cluster is old.
        rediscover_coordinator: The error says that the coordinator moved.
    """

    code: ClassVar[int]
    name: ClassVar[str]
    refresh_metadata: ClassVar[bool] = False
    rediscover_coordinator: ClassVar[bool] = False

    _by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        info = TABLE[cls.code]
        cls.name = info.name
        cls.retriable = info.retriable
        cls.fatal = info.fatal
        cls.refresh_metadata = info.refresh_metadata
        cls.rediscover_coordinator = info.rediscover_coordinator
        cls.hint = info.hint
        BrokerError._by_code.setdefault(cls.code, cls)

    def _own_text(self) -> str:
        info = TABLE[self.code]
        return f"{info.name} ({info.code}): {self.message or info.message}"


def broker_error(
    code: int,
    doing: str = "",
    *,
    broker_message: str | None = None,
    topic_partition: TopicPartition | None = None,
    node_id: int | None = None,
    hint: str | None = None,
    maybe_written: bool | None = None,
) -> BrokerError:
    """The one maker of broker errors: ``code`` (not 0) to an instance of its class.

    ``doing`` says what was asked for and where ("Produce to orders-3 on broker 2 failed").
    A code that this release doesn't know becomes UNKNOWN_SERVER_ERROR with the number in its text.
    """
    from kclient import broker_errors  # the classes register themselves on first use

    info = TABLE.get(code)
    if info is None:
        cls: type[BrokerError] = broker_errors.UnknownServerError
        said = broker_message or f"an error code that this client doesn't know: {code}"
    else:
        cls = BrokerError._by_code[code]
        said = broker_message or info.message
    message = f"{doing}: {said}" if doing else said
    return cls(
        message,
        topic_partition=topic_partition,
        node_id=node_id,
        hint=hint,
        maybe_written=maybe_written,
    )


def a_or_an(word: str) -> str:
    """``word`` behind its article, for texts: "an int", "a str"."""
    return f"an {word}" if word[:1] in "aeioAEIO" else f"a {word}"


def some_of(names: Sequence[object], shown: int = 3) -> str:
    """``names`` in a text: the first of them, and how many more there are."""
    first = ", ".join(map(str, names[:shown]))
    more = len(names) - shown
    return f"{first} and {more} more" if more > 0 else first


class ClientError(KafkaError):
    """The client itself decided; nothing of it came from a broker."""


class InvalidConfig(ClientError, ValueError):
    """A setting that can't work. The text names the field, the value and what is allowed."""


class CodecUnavailable(InvalidConfig):
    """The package of a codec is not installed, or fails to load.

    An error of the installation, not of the data: the position stays, nothing is skipped, and the
    same is raised until the package can be loaded.
    """

    fatal = True


class InvalidArgument(ClientError, ValueError):
    """A bad value handed to a call. The text names the argument, the value and what is allowed."""


class SerializationFailed(ClientError, TypeError):
    """A key, value or header is not of a type that can be sent, or its serializer failed."""


class RecordTooLarge(ClientError, ValueError):
    """A record is larger than the client may send. Only that record fails."""


class RowsRejected(ClientError, ValueError):
    """Rows given to ``send_arrow`` can't be sent, and the text has the first; none was sent.

    Attributes:
        count: How many.
        rows: The first of them, at most a hundred: the number of each, from 0 on, and why.
        taken: Rows before the refused ones that are sent all the same. Always 0, unless they came
            from a ``RecordBatchReader``, which is read batch by batch.
    """

    def __init__(
        self,
        message: str,
        *,
        count: int,
        rows: Sequence[tuple[int, KafkaError]],
        taken: int = 0,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, maybe_written=False)
        self.count = count
        self.rows = tuple(rows)
        self.taken = taken


class BufferFull(ClientError):
    """There is no space for another record: more was sent than the brokers acknowledged so far."""

    retriable = True


class ClientClosed(ClientError, RuntimeError):
    """The client was used before ``start()`` / ``async with``, or after ``close()``."""


class WrongContext(ClientError, RuntimeError):
    """The client was used from another event loop, thread or process than it was entered in."""


class BackgroundTaskDied(ClientError):
    """An internal task ended with an error (its ``__cause__``): this client is of no more use."""

    fatal = True


class RequestTimedOut(ClientError, TimeoutError):
    """No answer within the timeout. The connection was closed, since answers come in order."""

    retriable = True


class DeliveryTimedOut(ClientError, TimeoutError):
    """A record was not acknowledged within ``delivery_timeout``; see ``maybe_written``.

    It was retried for all of that time, so it isn't ``retriable``: sending it again later may
    succeed, and where ``maybe_written`` is False it can't write it twice.
    """


class WrongTransactionState(ClientError, RuntimeError):
    """A call that the state of the producer's transaction doesn't allow; nothing was changed."""


class TransactionAborted(ClientError):
    """A transaction can't be committed, or was not: the cause says why. None of it is visible.

    What it read and wrote can be done again in a new transaction, so it is ``retriable``; the
    consumer that it read from must go back first (``kclient.process`` does that).
    """

    retriable = True
    hint = "abort it, have the consumer go back, and do it again in a new transaction"


class CommitOutcomeUnknown(ClientError, TimeoutError):
    """The coordinator didn't respond to a commit in time: it may be committed, or will be.

    It goes on in the background. ``commit()`` again, or the next ``begin()``, has its outcome; it
    can't be aborted any more.
    """

    hint = "call commit() again, until it has an outcome"


class MetadataTimedOut(ClientError, TimeoutError):
    """Metadata about a topic or the cluster did not arrive in time."""

    retriable = True


class BrokerUnreachable(ClientError, ConnectionError):
    """No connection to a broker: refused, unresolvable, timed out, or it does not speak Kafka."""

    retriable = True


class BootstrapFailed(BrokerUnreachable):
    """None of the bootstrap addresses could be used; the text has each address and its reason.

    It may be ``retriable``, but not by the client that raised it: make a new one to try again.
    """


class AuthenticationFailed(BrokerUnreachable):
    """SASL failed: the broker refused the credentials or the mechanism, or can't be trusted.

    It isn't ``retriable``, as it would be the same again; but the client goes on, and its next call
    authenticates anew: where credentials are a callable, with what that gives then.
    """

    retriable = False


class ConnectionLost(ClientError, ConnectionError):
    """The connection ended while a request waited for its answer."""

    retriable = True


class NoCommonVersion(ClientError):
    """The broker and this client share no version of the API that the call needs."""


class ProtocolError(ClientError):
    """Bytes that are not the protocol: names the message, the field and the offset.

    Attributes:
        struct: The message or structure that was being read, such as ``FetchResponse``.
        field: The field within it, if known.
        offset: Where in the given bytes, if known.
    """

    def __init__(
        self,
        message: str = "",
        *,
        struct: str | None = None,
        field: str | None = None,
        offset: int | None = None,
        topic_partition: TopicPartition | None = None,
        node_id: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, topic_partition=topic_partition, node_id=node_id, hint=hint)
        self.struct = struct
        self.field = field
        self.offset = offset


class InvalidFrame(ProtocolError):
    """A frame announces a size that can't be right; nothing was allocated for it."""


class OffsetError(ClientError):
    """An error about one offset of one partition.

    Attributes:
        offset: That offset, where known; of a batch, its base offset.
    """

    def __init__(
        self,
        message: str = "",
        *,
        offset: int | None = None,
        topic_partition: TopicPartition | None = None,
        node_id: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, topic_partition=topic_partition, node_id=node_id, hint=hint)
        self.offset = offset


class CorruptRecord(OffsetError):
    """A record batch fails its CRC or its structure. The position did not move."""


class DeserializationFailed(OffsetError, ValueError):
    """A deserializer raised (the ``__cause__``). The position stays at the record."""


class LogTruncated(OffsetError):
    """Records that were read are gone from the log, which begins to differ at ``offset``.

    An unclean election does that: a replica that lacked them became the leader (KIP-320).
    """


class DecompressionFailed(CorruptRecord):
    """A compressed payload can't be inflated, or would inflate past the decompression cap."""


class NoPosition(ClientError):
    """An assigned partition has no start offset and no reset policy: seek, or set one."""


class CommitFailed(ClientError):
    """Offsets were not committed: their partitions are, or may be, another member's by now.

    The consumer goes on; whoever owns the partitions reads on from the last commit before.

    Attributes:
        partitions: Of which the offsets were not committed.
    """

    def __init__(
        self,
        message: str = "",
        *,
        partitions: Sequence[TopicPartition] = (),
        topic_partition: TopicPartition | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, topic_partition=topic_partition, hint=hint)
        self.partitions = tuple(partitions)


class MaxPollExceeded(ClientError):
    """No poll for ``max_poll_interval`` seconds: the consumer left its group. The next one joins
    again."""

    retriable = True


class ConsumerStalled(ClientError):
    """For too long no broker has answered a fetch of a partition that is to be read; or a consumer
    has not got into its group; or a callback of a rebalance has not ended."""

    retriable = True


class HandlerFailed(OffsetError):
    """A handler of ``Consumer.run`` raised (the ``__cause__``), and no retry is left.

    The record is not committed: whoever reads the partition next gets it again.
    """


class FlushFailed(ClientError):
    """Some of the records that were flushed were not delivered.

    Attributes:
        count: How many failed.
        errors: The first of the errors, at most ten.
    """

    def __init__(self, message: str, *, count: int, errors: Sequence[KafkaError]) -> None:
        super().__init__(message)
        self.count = count
        self.errors = tuple(errors)


class RowsNotDelivered(FlushFailed):
    """Some rows given to ``send_arrow`` were not acknowledged; those behind ``taken`` not sent.

    ``errors`` has the first of the errors, and ``maybe_written`` of each says whether its rows may
    be in the log all the same.

    Attributes:
        count: How many of the rows that were taken were not acknowledged.
        rows: A pair for each failed batch: the numbers of its rows, ascending, and why. Rows that
            the broker named as the reason (KIP-467) have a pair of their own.
        taken: How many rows were taken, from the first on. What follows was not sent.
    """

    def __init__(
        self,
        message: str,
        *,
        count: int,
        errors: Sequence[KafkaError],
        rows: Sequence[tuple[Sequence[int], KafkaError]],
        taken: int,
    ) -> None:
        super().__init__(message, count=count, errors=errors)
        self.rows = tuple(rows)
        self.taken = taken

    def row_numbers(self) -> list[int]:
        """The numbers of all rows that were not acknowledged, ascending; for ``Table.take``."""
        return sorted(row for rows, _ in self.rows for row in rows)
