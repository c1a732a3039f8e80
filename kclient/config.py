"""The settings of every client, with their defaults, units, bounds and Kafka's own names.

Users rarely see these classes: ``Producer("host:9092", linger=0.01)`` makes one. They are checked
when made; an unknown name, a wrong type or an absurd value raises ``InvalidConfig`` at once.
The ``*Settings`` TypedDicts give the same names to type checkers; a test holds both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kclient.durations import IN_SECONDS, MAX_SECONDS
from kclient.errors import InvalidConfig
from kclient.security import Security
from kclient.settings import (
    Settings,
    choice,
    flag,
    instance_of,
    integer,
    iso_duration_ns,
    optional_text,
    plug_in,
    seconds,
    setting,
    settings_class,
    text,
)

if TYPE_CHECKING:
    from kclient.hooks import Deserializer, Serializer

MIB = 1024 * 1024
HOUR = 3600.0
_INT32 = 2**31 - 1
PLAINTEXT = Security.plaintext()
_ARGUMENTS = ("config", "dialer", "observers")
_LEVELS = {"gzip": (0, 9), "lz4": (0, 16), "zstd": (-131072, 22)}
BY_DURATION = "by_duration"
"""What a reset policy with a duration begins with (KIP-1106)."""
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

Bootstrap = str | Sequence[str]


def parse_bootstrap(name: str, value: Any) -> tuple[tuple[str, int], ...]:
    """host:port, comma-separated or in a sequence, IPv6 in brackets; the port defaults to 9092"""
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        parts = list(value)
    elif isinstance(value, Mapping):
        raise InvalidConfig(
            f"{name} is a mapping: allowed is 'host:port' or a list",
            hint="for settings by Kafka's names: `config=ProducerConfig.from_properties(...)`",
        )
    else:
        raise InvalidConfig(f"{name}={value!r} can't be used: allowed is 'host:port' or a list")
    if not parts or parts == [""]:
        raise InvalidConfig(f"{name} is empty: give at least one 'host:port'")
    # Already parsed pairs pass through, so that a config can be made from another one.
    return tuple(part if isinstance(part, tuple) else _address(name, part) for part in parts)


def _address(name: str, part: Any) -> tuple[str, int]:
    if not isinstance(part, str) or not part.strip():
        raise InvalidConfig(f"{name} holds {part!r}: allowed is 'host:port'")
    address = part.strip()
    if ";" in address or len(address.split()) > 1:
        raise InvalidConfig(f"{name} holds {part!r}: addresses are separated by commas")
    if "://" in address:
        scheme, _, address = address.partition("://")
        if scheme.upper() in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise InvalidConfig(
                f"{name} holds {part!r}: the address alone secures nothing",
                hint="give 'host:port' and security=Security.tls()",
            )
        if scheme.upper() != "PLAINTEXT":
            raise InvalidConfig(f"{name} holds {part!r}: it is 'host:port', not a URL")
    if address.startswith("["):
        host, closed, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
        if not closed or (rest and not rest.startswith(":")):
            raise InvalidConfig(f"{name} holds {part!r}: IPv6 is written '[::1]:9092'")
    elif address.count(":") > 1:
        raise InvalidConfig(f"{name} holds {part!r}: IPv6 is written in brackets, '[::1]:9092'")
    else:
        host, _, port = address.partition(":")
    if not host or host.isdigit() or any(c.isspace() or c in "/@?#${}" for c in host):
        raise InvalidConfig(f"{name} holds {part!r}: {host!r} is not a host")
    if port == "" and not address.endswith(":"):
        return host, 9092
    if not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
        raise InvalidConfig(f"{name} holds {part!r}: the port must be 1 to 65535, not {port!r}")
    return host, int(port)


def assignment_strategies(name: str, value: Any) -> tuple[Any, ...]:
    """assignors by name, comma-separated or in a sequence, or objects with a name and assign()"""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, Sequence) or isinstance(value, (bytes, bytearray)) or not value:
        raise InvalidConfig(
            f"{name}={value!r} can't be used: allowed is {assignment_strategies.__doc__}"
        )
    return tuple(value)


@settings_class
class NetworkConfig(Settings):
    """What connections need to know."""

    bootstrap: tuple[tuple[str, int], ...] = setting(
        "localhost:9092", parse_bootstrap, "First brokers to ask.", "bootstrap.servers"
    )
    client_id: str = setting("kclient", text, "Name in the brokers' logs and quotas.", "client.id")
    security: Security = setting(
        PLAINTEXT,
        instance_of(Security, "a kclient.Security, as Security.tls()"),
        "Encryption and authentication.",
    )
    request_timeout: float = setting(
        30.0, seconds(0.001, 900.0), "Seconds until one request is given up.", "request.timeout.ms"
    )
    connection_setup_timeout: float = setting(
        10.0,
        seconds(0.001, 300.0),
        "Seconds for lookup, TCP, TLS and version negotiation of the first attempt.",
        "socket.connection.setup.timeout.ms",
    )
    connection_setup_timeout_max: float = setting(
        30.0,
        seconds(0.001, 300.0),
        "The same after several failures, growing exponentially.",
        "socket.connection.setup.timeout.max.ms",
    )
    connections_max_idle: float = setting(
        540.0,
        seconds(0.1, 6 * HOUR, endless=True),
        "Seconds until an unused connection closes.",
        "connections.max.idle.ms",
    )
    reconnect_backoff: float = setting(
        0.05, seconds(0.0, 30.0), "Seconds before the first new attempt.", "reconnect.backoff.ms"
    )
    reconnect_backoff_max: float = setting(
        1.0, seconds(0.0, 300.0), "Bound of its exponential growth.", "reconnect.backoff.max.ms"
    )
    receive_frame_limit: int = setting(
        100 * MIB, integer(1024, _INT32), "Largest response accepted, over what was asked for."
    )
    send_buffer: int | None = setting(
        None, integer(1024, _INT32, optional=True), "SO_SNDBUF; None leaves the system's."
    )
    receive_buffer: int | None = setting(
        None, integer(1024, _INT32, optional=True), "SO_RCVBUF; None leaves the system's."
    )
    max_in_flight: int = setting(
        5,
        integer(1, 1000),
        "Produce requests under way per broker.",
        "max.in.flight.requests.per.connection",
    )

    def _check_together(self) -> None:
        self._check_order("reconnect_backoff", "reconnect_backoff_max")
        self._check_order("connection_setup_timeout", "connection_setup_timeout_max")


@settings_class
class CommonConfig(NetworkConfig):
    """What every client shares beyond its connections."""

    bootstrap_timeout: float = setting(
        10.0, seconds(0.01, 900.0, endless=True), "Seconds to reach a first broker in start()."
    )
    api_timeout: float = setting(
        60.0,
        seconds(0.01, HOUR, endless=True),
        "Seconds for one call with its retries.",
        "default.api.timeout.ms",
    )
    retry_backoff: float = setting(
        0.1, seconds(0.0, 30.0), "Seconds before the first retry of a request.", "retry.backoff.ms"
    )
    retry_backoff_max: float = setting(
        1.0, seconds(0.0, 300.0), "Bound of its exponential growth.", "retry.backoff.max.ms"
    )
    metadata_max_age: float = setting(
        300.0,
        seconds(0.1, HOUR, endless=True),
        "Seconds after which metadata is asked anew.",
        "metadata.max.age.ms",
    )
    metadata_max_idle: float = setting(
        300.0,
        seconds(5.0, HOUR, endless=True),
        "Seconds after which an unused topic is no longer asked for.",
        "metadata.max.idle.ms",
    )
    metadata_recovery_rebootstrap_trigger: float = setting(
        300.0,
        seconds(0.0, HOUR, endless=True),
        "Seconds without metadata after which bootstrap addresses are asked again (KIP-1102).",
        "metadata.recovery.rebootstrap.trigger.ms",
    )
    allow_auto_create_topics: bool = setting(
        False,
        flag,
        "Let brokers make unknown topics; off, since a typo would make one.",
        "allow.auto.create.topics",
    )
    decompression_cap: int = setting(
        256 * MIB, integer(1024, _INT32), "Largest size that one batch may inflate to."
    )

    def _check_together(self) -> None:
        NetworkConfig._check_together(self)
        self._check_order("retry_backoff", "retry_backoff_max")


@settings_class
class AdminConfig(CommonConfig):
    """Settings of ``Admin``: the common ones."""

    ARGUMENTS: ClassVar[tuple[str, ...]] = _ARGUMENTS


_ACKS = choice("all", 1, 0)
_BATCH_SIZE = 65_536


def _acks(name: str, value: Any) -> Any:
    """one of 'all', 1, 0; -1 is 'all'"""
    if value == "-1" or (type(value) is int and value == -1):
        return "all"
    return _ACKS(name, value)


def _compression_level(name: str, value: Any) -> int | None:
    """an int from -131,072 to 22, or None"""
    # The bounds are those of the codec: ``ProducerConfig._check_level`` has both.
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InvalidConfig(f"{name}={value!r} can't be used: allowed is an int, or None")
    return None if value is None else int(value)


@settings_class
class ProducerConfig(CommonConfig):
    """Settings of ``Producer``."""

    ARGUMENTS: ClassVar[tuple[str, ...]] = (*_ARGUMENTS, "partitioner")

    key_serializer: Serializer[Any] | None = setting(
        None,
        plug_in,
        "Makes bytes of a key, where the client's argument isn't given.",
        "key.serializer",
    )
    value_serializer: Serializer[Any] | None = setting(
        None, plug_in, "The same for a value.", "value.serializer"
    )
    acks: str | int = setting(
        "all", _acks, "Who must have a batch before it counts as sent.", "acks"
    )
    idempotence: bool = setting(
        True, flag, "No duplicates and no reordering by retries.", "enable.idempotence"
    )
    transactional_id: str | None = setting(
        None, optional_text, "Name of this producer's transactions.", "transactional.id"
    )
    transaction_timeout: float = setting(
        60.0,
        seconds(0.001, MAX_SECONDS),
        "Seconds after which the coordinator aborts a transaction that is still open; at most "
        "`transaction.max.timeout.ms` of the brokers, 900 s by default.",
        "transaction.timeout.ms",
    )
    linger: float = setting(
        0.005, seconds(0.0, 4.0), "Seconds to wait for more records for a batch.", "linger.ms"
    )
    batch_size: int = setting(
        _BATCH_SIZE,
        integer(1, _INT32 // 2),
        "Bytes of a batch, before compression; the default is bounded by `buffer_memory`.",
        "batch.size",
    )
    buffer_memory: int = setting(
        32 * MIB, integer(1024, 2**40), "Bytes of records that wait for their ack.", "buffer.memory"
    )
    max_block: float | None = setting(
        60.0,
        seconds(0.0, 900.0, optional=True, endless=True),
        "Seconds that enqueue() waits for space; 0 fails at once, None waits without limit.",
        "max.block.ms",
    )
    max_parked: int = setting(
        10_000, integer(0, 2**31), "Records that send() may park where there is no space."
    )
    delivery_timeout: float = setting(
        120.0,
        seconds(0.001, HOUR, endless=True),
        "Seconds from send() to the outcome; up to a twentieth more after a wait for memory.",
        "delivery.timeout.ms",
    )
    max_request_size: int = setting(
        1_048_576, integer(1, _INT32 // 2), "Bytes of one record or request.", "max.request.size"
    )
    compression: str = setting(
        "none", choice(*COMPRESSIONS), "Codec of the batches.", "compression.type"
    )
    compression_level: int | None = setting(
        None, _compression_level, "Level of the codec; None is its own default."
    )

    def _check_together(self) -> None:
        CommonConfig._check_together(self)
        if self.transactional_id is not None and self.acks != "all":
            raise InvalidConfig(f"transactional_id needs acks='all', not acks={self.acks!r}")
        if self.idempotence and self.acks != "all":
            raise InvalidConfig(
                f"idempotence needs acks='all', not acks={self.acks!r}: "
                "pass idempotence=False to do without"
            )
        if self.idempotence and self.max_in_flight > 5:
            raise InvalidConfig(
                f"max_in_flight={self.max_in_flight} with idempotence: allowed is 1 to 5, since "
                "brokers remember the last 5 batches only"
            )
        if self.transactional_id is not None and not self.idempotence:
            raise InvalidConfig("transactional_id needs idempotence=True")
        self._check_order("linger", "delivery_timeout")
        if self.batch_size > self.buffer_memory and self.batch_size != _BATCH_SIZE:
            raise InvalidConfig(
                f"batch_size={self.batch_size} is above buffer_memory={self.buffer_memory}",
                hint="lower batch_size, too",
            )
        self._check_level()

    def _check_level(self) -> None:
        bounds = _LEVELS.get(self.compression)
        level = self.compression_level
        if level is None:
            return
        if bounds is None:
            raise InvalidConfig(
                f"compression_level={level} with compression={self.compression!r}, which has none"
            )
        if not bounds[0] <= level <= bounds[1]:
            raise InvalidConfig(
                f"compression_level={level} with compression={self.compression!r}: "
                f"allowed is {bounds[0]:,} to {bounds[1]}"
            )


@settings_class
class MembershipConfig(CommonConfig):
    """What every member of a group needs to know."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("group_id", "groups", "group.id"),
        "the group is an argument of its own, group='audit'",
    )

    group: str | None = setting(
        None,
        optional_text,
        "The group, where the client's argument `group` isn't given.",
        "group.id",
    )
    group_instance_id: str | None = setting(
        None,
        optional_text,
        "Name under which a member may be away for `session_timeout` with no rebalance (KIP-345).",
        "group.instance.id",
    )
    session_timeout: float = setting(
        45.0,
        seconds(0.01, HOUR),
        "Seconds without a heartbeat after which a member counts as gone.",
        "session.timeout.ms",
    )
    heartbeat_interval: float = setting(
        3.0,
        seconds(0.01, 600.0),
        "Seconds between two heartbeats; at most a third of `session_timeout` is wise.",
        "heartbeat.interval.ms",
    )

    def _check_together(self) -> None:
        CommonConfig._check_together(self)
        if self.heartbeat_interval >= self.session_timeout:
            raise InvalidConfig(
                f"heartbeat_interval={self.heartbeat_interval} must be below "
                f"session_timeout={self.session_timeout}",
                hint="a third of it or less, so that one lost heartbeat costs no membership",
            )


@settings_class
class GroupMemberConfig(MembershipConfig):
    """Settings of ``GroupMember``."""

    ARGUMENTS: ClassVar[tuple[str, ...]] = (*_ARGUMENTS, "protocol")

    rebalance_timeout: float = setting(
        60.0,
        seconds(0.01, HOUR),
        "Seconds that members have to give up their work when the group rebalances.",
        "rebalance.timeout.ms",
    )


_RESETS = choice(
    *("earliest", "latest", "none", None),
    besides=", or 'by_duration:' and an ISO 8601 duration as in 'by_duration:PT1H30M'",
)


def reset_policy(name: str, value: Any) -> str | None:
    """one of 'earliest', 'latest', 'none', None, or a duration as in 'by_duration:PT1H30M'"""
    by, colon, duration = value.partition(":") if isinstance(value, str) else (value, "", "")
    if by != BY_DURATION or not colon:
        checked: str | None = _RESETS(name, value)
        return checked
    try:
        good = iso_duration_ns(duration) >= 0
    except ValueError:
        good = False
    if not good:
        raise InvalidConfig(
            f"{name}={value!r} can't be used: behind the colon comes an ISO 8601 duration from 0 "
            "of days, hours, minutes and seconds, as in 'by_duration:P1DT2H30M0.5S'"
        )
    return str(value)


@settings_class
class ConsumerConfig(MembershipConfig):
    """Settings of ``Consumer``."""

    ELSEWHERE: ClassVar[Mapping[str, str]] = {
        **MembershipConfig.ELSEWHERE,
        **dict.fromkeys(
            ("topic", "topics"),
            'topics are arguments of their own, such as Consumer(bootstrap, "orders", "refunds")',
        ),
    }
    ARGUMENTS: ClassVar[tuple[str, ...]] = (
        *_ARGUMENTS,
        *("bad_records", "on_assigned", "on_lost", "on_revoked", "pattern"),
    )

    key_deserializer: Deserializer[Any] | None = setting(
        None,
        plug_in,
        "Makes a key of bytes, where the client's argument isn't given.",
        "key.deserializer",
    )
    value_deserializer: Deserializer[Any] | None = setting(
        None, plug_in, "The same for a value.", "value.deserializer"
    )
    group_protocol: str = setting(
        "auto",
        choice("auto", "classic"),
        "How the group is led; auto takes the newest that this release has: classic.",
        "group.protocol",
    )
    partition_assignment_strategy: tuple[Any, ...] = setting(
        ("range", "cooperative-sticky"),
        assignment_strategies,
        "Assignors in order of preference; the group takes one that all members name.",
        "partition.assignment.strategy",
    )
    max_poll_interval: float = setting(
        300.0,
        seconds(0.01, 48 * HOUR, endless=True),
        "Seconds between two polls, after which the consumer leaves its group.",
        "max.poll.interval.ms",
    )
    enable_auto_commit: bool = setting(
        True,
        flag,
        "Commit what was handed over and finished: at intervals, before partitions are given up, "
        "and on close.",
        "enable.auto.commit",
    )
    auto_commit_interval: float = setting(
        5.0, seconds(0.0, 900.0), "Seconds between two of these commits.", "auto.commit.interval.ms"
    )
    exclude_internal_topics: bool = setting(
        True,
        flag,
        "Whether a pattern leaves out Kafka's own topics.",
        "exclude.internal.topics",
    )

    auto_offset_reset: str | None = setting(
        None,
        reset_policy,
        "Where to start without a position. None: latest in a group, an error without one. "
        "by_duration: at the first record that isn't older than that, the end if there is none.",
        "auto.offset.reset",
    )
    isolation_level: str = setting(
        "read_uncommitted",
        choice("read_uncommitted", "read_committed"),
        "Whether records of open and aborted transactions are given.",
        "isolation.level",
    )
    max_poll_records: int = setting(
        500, integer(1, _INT32), "Records that one poll() gives at most.", "max.poll.records"
    )
    fetch_min_bytes: int = setting(
        1, integer(0, _INT32), "Bytes for which a broker waits.", "fetch.min.bytes"
    )
    fetch_max_wait: float = setting(
        0.5, seconds(0.0, 60.0), "Seconds for which it waits.", "fetch.max.wait.ms"
    )
    fetch_max_bytes: int = setting(
        50 * MIB,
        integer(1, _INT32),
        "Bytes of one fetch response; no more than the larger of `max_partition_fetch_bytes` "
        "and a broker's share of `buffer_memory`, an eighth at most.",
        "fetch.max.bytes",
    )
    max_partition_fetch_bytes: int = setting(
        1 * MIB,
        integer(1, _INT32),
        "Bytes of one partition in it; a larger first batch is given all the same.",
        "max.partition.fetch.bytes",
    )
    buffer_memory: int = setting(
        64 * MIB, integer(1024, 2**40), "Bytes of fetched data that wait for poll()."
    )
    check_crcs: bool = setting(True, flag, "Check the CRC of every batch.", "check.crcs")
    client_rack: str | None = setting(
        None, optional_text, "Our rack, to fetch from a near replica (KIP-392).", "client.rack"
    )

    def _check_together(self) -> None:
        MembershipConfig._check_together(self)
        if self.fetch_max_wait >= self.request_timeout:
            raise InvalidConfig(
                f"fetch_max_wait={self.fetch_max_wait} must be below "
                f"request_timeout={self.request_timeout}",
                hint=IN_SECONDS,
            )
