"""What others plug into: observers, counters, and the small protocols of collaborators.

Events are emitted per request, per batch or per connection, never per record. An observer that
raises is logged once per class of event and otherwise ignored: it can't break a client.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kclient.errors import InvalidArgument, InvalidConfig, a_or_an
from kclient.frozen import Frozen, frozen
from kclient.types import Event as Event

if TYPE_CHECKING:
    import ssl

    from kclient.events import BatchDelivered as BatchDelivered
    from kclient.events import BatchFailed as BatchFailed
    from kclient.events import BatchRetried as BatchRetried
    from kclient.events import ConnectionClosed as ConnectionClosed
    from kclient.events import ConnectionOpened as ConnectionOpened
    from kclient.events import Fetched as Fetched
    from kclient.events import MetadataUpdated as MetadataUpdated
    from kclient.events import RequestCompleted as RequestCompleted
    from kclient.events import TaskDied as TaskDied
    from kclient.events import Throttled as Throttled
    from kclient.types import TopicPartition
else:

    def __getattr__(name: str) -> Any:
        """An event."""
        if not name.startswith("_"):
            from kclient import events

            value = getattr(events, name, None)
            if isinstance(value, type) and issubclass(value, Event):
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


logger = logging.getLogger("kclient.hooks")

T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class Observer(Protocol):
    """Receives events on the client's loop; must not block."""

    def observe(self, event: Event, /) -> None:
        """Take one event."""
        ...


class ClientLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose lines begin with the name of a client; records have it as ``client``."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Put the name in front."""
        msg, kwargs = super().process(msg, kwargs)
        name = str((self.extra or {}).get("client", "")).replace("%", "%%")
        return (f"[{name}] {msg}" if name else msg), kwargs


class Hooks:
    """The observers of one client; ``if hooks.active:`` before ``emit`` costs nothing idle.

    Args:
        observers: Receive events.
        client: The name of the client in log lines.
    """

    def __init__(self, observers: Sequence[Observer] = (), client: str = "") -> None:
        self.client = client
        if not hasattr(observers, "__iter__"):
            raise InvalidConfig(f"observers={observers!r} can't be used: allowed is a sequence")
        self._observers = tuple(observers)
        for observer in self._observers:
            require_method("observers", observer, "observe", "event")
        self._broken: set[type[Event]] = set()
        self._logs: dict[logging.Logger, ClientLog] = {}
        self.active = bool(self._observers)

    def emit(self, event: Event) -> None:
        """Hand ``event`` to each observer."""
        for observer in self._observers:
            try:
                observer.observe(event)
            except Exception:
                if type(event) not in self._broken:
                    self._broken.add(type(event))
                    self.log(logger).exception("an observer failed on %s", type(event).__name__)

    def log(self, base: logging.Logger) -> ClientLog:
        """The log of a package, with the client's name in front of each line."""
        if base not in self._logs:
            self._logs[base] = ClientLog(base, {"client": self.client})
        return self._logs[base]


class Counters:
    """Named numbers of one client: ``package.what`` to a count or a gauge.

    Plain dict arithmetic; updated per request, batch or connection. ``snapshot`` also asks the
    registered gauges.
    """

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def add(self, name: str, amount: float = 1) -> None:
        """Add ``amount`` to counter ``name``, which starts at 0."""
        self._values[name] = self._values.get(name, 0) + amount

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Register ``read`` to be asked for ``name`` at each snapshot."""
        self._gauges[name] = read

    def get(self, name: str) -> float:
        """The present value of a counter or a gauge; 0 if it was never touched."""
        if name in self._gauges:
            return self._gauges[name]()
        return self._values.get(name, 0)

    def snapshot(self) -> dict[str, float]:
        """All counters and gauges by name, as a copy."""
        return {**self._values, **{name: read() for name, read in self._gauges.items()}}


@frozen
class DialTarget(Frozen):
    """Where a connection should go.

    Attributes:
        host: Name or address, IPv6 without brackets.
        port: TCP port.
        ssl_context: For TLS; None for plaintext.
        setup_timeout: Seconds for name lookup, TCP and TLS together.
        failures: Attempts since the last connection that became usable. Where a name has several
            addresses, each failure is a reason to take the next one; an open socket alone is no
            success, as what accepts it may not serve.
    """

    host: str
    port: int
    ssl_context: ssl.SSLContext | None = None
    setup_timeout: float = 10.0
    failures: int = 0


class Dialer(Protocol):
    """Opens connections; another one plugs in another network."""

    async def dial(
        self, target: DialTarget, protocol_factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect, TLS included, or raise ``BrokerUnreachable`` with the reason.

        Cancellation: nothing stays open.
        """
        ...


class Partitioner(Protocol):
    """Chooses the partition of a record that names none."""

    def partition(self, topic: str, key: bytes | None, partition_count: int, /) -> int:
        """Return an index in ``range(partition_count)``.

        Called once per record on the loop, with the serialized key. Must be quick and must not
        block. Raising fails that one record.
        """
        ...


class Serializer(Protocol[T_contra]):
    """Turns a user's key or value into bytes.

    Called once per record, on the loop: it must be quick, and can't be async.
    """

    def __call__(self, topic: str, value: T_contra, /) -> bytes | None:
        """Return the bytes to store; None writes a null (a tombstone, for a value)."""
        ...


class Deserializer(Protocol[T_co]):
    """Turns stored bytes into a user's key or value.

    Called once per record, on the loop: it must be quick, and can't be async.
    """

    def __call__(self, topic: str, data: bytes | None, /) -> T_co:
        """Return the object; ``data`` is None for a null."""
        ...


@frozen
class MemberSubscription(Frozen):
    """What one member of a group of consumers wants, as the leader's assignor receives it.

    Attributes:
        topics: Names.
        user_data: What its assignor adds; None where it adds nothing.
        owned: Partitions that it holds at the moment; a word that others may doubt.
        generation: Of the group when it got them; -1 unknown.
        rack: Where it runs; None unknown (KIP-881).
        instance_id: Its ``group_instance_id``; None for a dynamic member.
    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = -1
    rack: str | None = None
    instance_id: str | None = None


@frozen
class TopicsView(Frozen):
    """What an assignor may know of the cluster.

    Attributes:
        counts: Number of partitions of each topic that any member wants; topics that don't exist
            are left out.
        racks: Racks of the replicas of a partition; left out where none is known.
    """

    counts: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]]


class Assignor(Protocol):
    """Says which member of a group of consumers gets which partitions."""

    @property
    def name(self) -> str:
        """Under which all members know it, such as ``range``."""
        ...

    @property
    def cooperative(self) -> bool:
        """Whether members keep their partitions while it moves others (KIP-429)."""
        ...

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What this member adds to its subscription; None for nothing."""
        ...

    def assign(
        self, cluster: TopicsView, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Share the partitions out among the members, by member id. Runs at the leader only.

        Members come in the coordinator's order. A member that is left out gets none. What members
        say they own may be old or wrong.
        """
        ...

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """This member was given ``partitions``."""
        ...


_BY_NAME = {
    "partitioner": "leave it out for Java's rule, murmur2; "
    "kclient.partitioners.ConsistentRandom() is librdkafka's",
}
"""Hints for plug-ins that other clients take by name."""


def require_method(
    field: str, plugin: object, method: str, parameters: str = "", *, may_await: bool = False
) -> None:
    """Refuse a ``plugin`` without a fitting ``method``.

    Args:
        field: The argument that it was given as, for the message.
        plugin: What the application gave.
        method: Name of the method that is called.
        parameters: Names of the positional arguments that it is called with.
        may_await: What the method returns is awaited, so that it may be async.

    Raises:
        InvalidConfig: It is a class, or its method is missing, takes other arguments or is async.
            A method without a signature is believed.
    """
    if isinstance(plugin, type):
        raise InvalidConfig(f"{field} holds the class {plugin.__name__}: give an instance of it")
    found = None if isinstance(plugin, str | bytes) else getattr(plugin, method, None)
    needed = f"{method}({parameters})"
    if not callable(found):
        called = f"it is called as {needed}" if parameters else None
        raise InvalidConfig(
            f"{field} holds {plugin!r}: it needs a method {method}()",
            hint=_BY_NAME.get(field, called) if isinstance(plugin, str) else called,
        )
    require_arguments(f"{field} holds {plugin!r}: its {method}", found, needed, parameters)
    if not may_await and _is_async(found):
        raise InvalidConfig(
            f"{field} holds {plugin!r}: its {method}() is async, where nothing can be awaited",
            hint=f"make it a plain function: `def {needed}`",
        )


def require_arguments(words: str, called: Callable[..., object], needed: str, names: str) -> None:
    """Raise InvalidConfig unless ``called`` takes as many positional arguments as ``names`` has.

    Args:
        words: Begin of the message.
        called: What is to be called. One without a signature is believed.
        needed: How it is called, for the message.
        names: Of the arguments, with commas.
    """
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[name for name in names.split(", ") if name])
    except TypeError:
        taken = ", ".join(signature.parameters)
        raise InvalidConfig(f"{words}({taken}) can't be called as {needed}") from None


@frozen
class NamedPlugIn(Frozen):
    """Stands in settings for a (de)serializer that properties name and only the application has.

    Attributes:
        field: The client's argument for it.
        named: How the properties name it.
    """

    field: str
    named: str

    def __call__(self, topic: str, data: Any) -> Any:
        """Refuse to work."""
        raise self.refusal()

    def refusal(self) -> InvalidConfig:
        """The error of a client that was not given it."""
        return InvalidConfig(
            f"{self.named} is not part of this package",
            hint=f"give {self.field}= to the client, or take the line out for plain bytes",
        )


def require_callable(field: str, plugin: object) -> None:
    """Refuse a ``plugin`` that can't be called with a topic and data; None is fine.

    Raises:
        InvalidConfig: It can't be called, is async, is a class of ours instead of an instance, one
            of our serializers where a deserializer is needed or the other way round, or is only
            named in properties.
        InvalidArgument: It takes other arguments. One that has no signature is believed.
    """
    if plugin is None:
        return
    if isinstance(plugin, NamedPlugIn):
        raise plugin.refusal()
    if isinstance(plugin, type) and plugin.__module__ == "kclient.serializers":
        raise InvalidConfig(f"{field} is the class {plugin.__name__}: give an instance of it")
    _check_direction(field, type(plugin))
    if not callable(plugin):
        raise InvalidConfig(f"{field}={plugin!r} can't be used: allowed is a callable(topic, data)")
    # Only names: a default or what a partial holds may be a secret.
    name = getattr(plugin, "__qualname__", type(plugin).__name__).rpartition(".")[2]
    if _is_async(plugin):
        raise InvalidConfig(
            f"{field}={name} is async: it is called once per record, where nothing can be awaited",
            hint="make it a plain callable(topic, data), and await what it needs beforehand",
        )
    taken = _misfit(plugin)
    if taken is not None:
        raise InvalidArgument(
            f"{field}={name}({', '.join(taken)}) can't be used: allowed is a callable(topic, data)",
            hint="wrap it: `lambda topic, data: ...`",
        )


def _check_direction(field: str, kind: type) -> None:
    """Both directions take (topic, data), so ours are told apart by name."""
    wanted = field.rpartition("_")[2].capitalize()
    given = "Deserializer" if kind.__name__.endswith("Deserializer") else "Serializer"
    if kind.__module__ == "kclient.serializers" and given != wanted:
        raise InvalidConfig(
            f"{field} is {a_or_an(kind.__name__)}",
            hint=f"give {a_or_an(kind.__name__.removesuffix(given) + wanted)}",
        )


def _misfit(plugin: Callable[..., object]) -> list[str] | None:
    """Names of the parameters of a callable that doesn't take (topic, data); None for one that may.

    A builtin whose second argument is optional takes the data alone: ``str.encode``,
    ``pickle.dumps``.
    """
    if isinstance(plugin, type) and plugin.__module__ == "builtins":
        return ["data"]
    try:
        signature = inspect.signature(plugin)
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    try:
        signature.bind("topic", b"data")
    except TypeError:
        return list(signature.parameters)
    if inspect.isbuiltin(plugin) or inspect.ismethoddescriptor(plugin):
        if len(parameters) > 1 and parameters[1].default is not inspect.Parameter.empty:
            return list(signature.parameters)
    return None


def _is_async(plugin: object) -> bool:
    """Calling it gives something to be awaited."""
    called = plugin if inspect.isroutine(plugin) else getattr(plugin, "__call__", None)  # noqa: B004
    return any(
        inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
        for one in (plugin, called)
    )
