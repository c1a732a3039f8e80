"""An application's own protocol as the host of a membership: its calls, and their errors.

``GroupMember`` has one ``ProtocolHost``. The application's functions may be plain or ``async`` and
may raise: that is kept for the application's next call, is logged, and ends neither the membership
nor the group. ``CallbackInvoker`` calls them. Nothing is decided here about the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import reprlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kclient.backoff import Backoff
from kclient.cluster.wakeups import Wakeup
from kclient.errors import (
    ClientError,
    ConsumerStalled,
    InvalidArgument,
    InvalidConfig,
    KafkaError,
    WrongContext,
    text_of,
)
from kclient.frozen import Frozen, frozen
from kclient.group.member import MOST_BYTES, JoinedMember, MemberProtocol
from kclient.group.rebalance_callbacks import CallbackInvoker
from kclient.hooks import require_method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kclient.cluster.core import ClientCore
    from kclient.cluster.wakeups import Broadcast
    from kclient.group.member import Generation

logger = logging.getLogger("kclient.group")

_ANEW = Backoff(0.5, 30.0)
"""Delays until ``metadata`` is called again where it has never returned any."""


@frozen
class GroupAssignment(Frozen):
    """What the group assigned to a member.

    Attributes:
        generation: The group's generation, which grows with each rebalance.
        member_id: The member's id in it.
        is_leader: Whether this member's ``assign`` made the assignment.
        data: The member's assignment, as the leader's ``assign`` made it; empty if left out.
    """

    generation: int
    member_id: str
    is_leader: bool
    data: bytes


class GroupProtocol(Protocol):
    """How a group assigns its work: written by the application that uses ``GroupMember``.

    Beside what is listed here an object may have, each plain or ``async`` and awaited in order:

    - ``on_assigned(assignment: GroupAssignment)``: the assignment is this member's from now on;
    - ``on_revoked(assignment: GroupAssignment)``: stop working on it; the others get it when this
      has returned. At every rebalance, and when the member is closed;
    - ``on_lost(error: KafkaError)``: others may have it by now, as the group removed this member;
    - ``cooperative = True``: keep working while the group rebalances. ``on_revoked`` is called at
      the close only; what is to be stopped shows in ``on_assigned``. The leader must see to it that
      nothing is assigned to one member before another has stopped: Kafka doesn't.

    Heartbeats go on while these are awaited, but not while they block the event loop.
    """

    @property
    def name(self) -> str:
        """Name of the way of assigning. The group uses one that all its members name."""

    @property
    def type(self) -> str:
        """Type of what is assigned, the same for all members of a group, such as ``connect``."""

    def metadata(self) -> bytes:
        """What the leader has to know of this member. Called at each rebalance; plain, and quick.

        Brokers keep all metadata and assignments of a group in one record of ``message.max.bytes``,
        1048588 by default. More than 96 MiB are refused at once, in ``assign`` in all.
        """

    def assign(
        self, members: Sequence[JoinedMember]
    ) -> Mapping[str, bytes] | Awaitable[Mapping[str, bytes]]:
        """Assign: bytes by member id. Called at the leader only, plain or ``async``.

        The group waits for it, for ``rebalance_timeout`` seconds at most. Where it raises, this
        member leaves the group for a while, so that another one leads.
        """


def check_protocol(protocol: Any) -> None:
    """Raise InvalidConfig unless ``protocol`` can be a ``GroupProtocol``."""
    for method, parameters in (("metadata", ""), ("assign", "members")):
        require_method("protocol", protocol, method, parameters, may_await=True)
    for field in ("name", "type"):
        _text_of(protocol, field)
    for hook, parameter in (
        ("on_assigned", "assignment"),
        ("on_revoked", "assignment"),
        ("on_lost", "error"),
    ):
        found = getattr(protocol, hook, None)
        if found is None:
            continue
        if not callable(found):
            raise InvalidConfig(f"protocol holds {protocol!r}: its {hook} can't be called")
        require_method("protocol", protocol, hook, parameter, may_await=True)
    if inspect.iscoroutinefunction(protocol.metadata):
        raise InvalidConfig(
            f"protocol holds {protocol!r}: its metadata() must be a plain function",
            hint="prepare what it gives elsewhere, and call rejoin() when it has changed",
        )


def _text_of(protocol: Any, field: str) -> str:
    """Return a text of the protocol; InvalidConfig where it can't be sent."""
    value = getattr(protocol, field, None)
    if not is_sendable(value) or not value:
        raise InvalidConfig(
            f"protocol holds {protocol!r}, whose {field} is {value!r}: allowed is a string "
            "that isn't empty"
        )
    return str(value)


def is_sendable(text: object) -> bool:
    """Whether ``text`` is a string that UTF-8 can encode."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


class ProtocolHost:
    """Implements ``MembershipHost`` for an application's protocol.

    Args:
        core: The client's core.
        protocol: The application's.
        broadcast: Notified whenever its waiters should check again.
        patience: Seconds that one of the application's functions may take, ``rebalance_timeout``.

    Attributes:
        calls: Calls the application's functions; has the running one.
        assignment: The current one; None where there is none.
        serial: Counts the assignments.
        latest: The latest one that the application knows of, unless it was revoked or lost.
        failure: Why it can never be a member.
    """

    def __init__(
        self, core: ClientCore, protocol: GroupProtocol, broadcast: Broadcast, patience: float
    ) -> None:
        self._core = core
        self._log = core.hooks.log(logger)
        self._protocol = protocol
        self._broadcast = broadcast
        self._metadata: bytes | None = None
        self._wakeup = Wakeup()
        self._void = False
        self._error: Exception | None = None
        self._no_metadata = False
        self._name = protocol.name
        self.protocol_type = protocol.type
        self.assignment: GroupAssignment | None = None
        self.serial = 0
        self.latest: GroupAssignment | None = None
        self.failure: KafkaError | None = None
        self.calls = CallbackInvoker(
            core.clock,
            self._log,
            patience,
            "rebalance_timeout",
            broadcast.notify,
            "() of the group's protocol",
        )

    def check_outside(self, call: str) -> None:
        """Raise WrongContext inside of one of the application's functions: it would wait for it."""
        if self.calls.makes_this_call:
            raise WrongContext(
                f"{call}() would wait for the end of {self.calls.name}(), which calls it",
                hint="have another task wait, or return first",
            )

    @property
    def settled(self) -> bool:
        """The application has been notified of the current assignment."""
        return self.calls.name not in ("on_assigned", "on_revoked", "on_lost")

    def take_error(self) -> Exception | None:
        """Take the first error of the application's code since the last call, or a stall of it."""
        error, self._error = self._error, None
        if error is None and self.calls.take_stall():
            return ConsumerStalled(
                f"{self.calls.title} has not ended {self.calls.figures}: until it does, this "
                "member takes no part in the group's rebalances",
                hint="see what the function awaits, and give that a timeout",
            )
        return error

    # MembershipHost

    def protocols(self) -> Sequence[MemberProtocol]:
        """The one protocol. Where it raises, the previous values are used."""
        self._ask_metadata(again=self._no_metadata)
        try:
            with self._reading("name"):
                self._name = _text_of(self._protocol, "name")
        except Exception as error:
            self._keep(error, "name")
        return [MemberProtocol(self._name, self._metadata or b"")]

    async def prepare(self, deadline: float) -> None:
        """Revoke the assignment, unless it is kept; and wait until there is metadata to offer."""
        self.latest, self._void = None, False
        if not self._is_cooperative():
            await self._revoke()
        late = self._core.clock.now() - deadline
        if late > 0:
            self._log.warning(
                "on_revoked of the group's protocol ended %.1f s after rebalance_timeout: the "
                "group may have gone on without this member",
                late,
            )
        self._no_metadata, attempt = False, 0
        while self._metadata is None and not self._ask_metadata() and not self._void:
            await self._wakeup.sleep(_ANEW.delay(attempt, self._core.rng))
            attempt += 1

    def interrupt(self) -> None:
        """Stop offering. A function of the application that is running may finish."""
        self._void = True
        self._wakeup.notify()

    async def assign(
        self, protocol: str, members: Sequence[JoinedMember], generation: Generation
    ) -> Mapping[str, bytes] | KafkaError:
        """Call the application's ``assign``."""
        failed, given = await self._call("assign", tuple(members))
        if failed is None:
            try:
                with self._reading("assign()"):
                    return _shares(given, members)
            except Exception as error:
                failed = self._keep(error, "assign")
        return ClientError(f"assign() of the group's protocol failed with {text_of(failed)}")

    async def assigned(self, generation: Generation, assignment: bytes) -> None:
        """Notify the application, then pending calls."""
        ours = GroupAssignment(
            generation.generation_id, generation.member_id, generation.is_leader, assignment
        )
        self.assignment = ours
        self.serial += 1
        await self._call("on_assigned", ours)
        self.latest = ours
        self._broadcast.notify()

    def shorten_deadline(self, deadline: float) -> None:
        """Stop offering; a function of the application that is running has until then."""
        self.interrupt()
        self.calls.shorten_deadline(deadline)

    async def leaving(self, deadline: float) -> None:
        """Revoke the assignment."""
        await self._revoke()

    async def lost(self, error: KafkaError) -> None:
        """Notify the application, unless the assignment was revoked already."""
        ours, self.assignment, self.latest = self.assignment, None, None
        if ours is not None:
            await self._call("on_lost", error)
        self._broadcast.notify()

    def on_join_refused(self, error: Exception) -> None:
        """Keep the error for the next call."""
        if self._error is None:
            self._error = error
        self._broadcast.notify()

    def failed(self, error: KafkaError) -> None:
        """Keep the error for every further call."""
        self.failure = error
        self._broadcast.notify()

    async def _revoke(self) -> None:
        ours = self.assignment
        if ours is None:
            return
        try:
            await self._call("on_revoked", ours)
        finally:
            self.assignment = None

    # The application's code

    def _ask_metadata(self, *, again: bool = False) -> bool:
        """``again``: it has failed in this rebalance, which was reported."""
        try:
            with self._reading("metadata()"):
                found = self._protocol.metadata()
                if not isinstance(found, bytes | bytearray | memoryview):
                    raise TypeError(f"metadata() must give bytes, not {reprlib.repr(found)}")
                size = memoryview(found).nbytes
                if size > MOST_BYTES:
                    raise InvalidArgument(
                        f"metadata() gives {size} bytes, which is over {MOST_BYTES}: no broker "
                        "takes such a request"
                    )
                self._metadata = bytes(found)
        except Exception as error:
            if not again:
                self._keep(error, "metadata")
            self._no_metadata = True
            return False
        return True

    def _is_cooperative(self) -> bool:
        try:
            with self._reading("cooperative"):
                return bool(getattr(self._protocol, "cooperative", False))
        except Exception as error:
            self._keep(error, "cooperative")
            return False

    async def _call(self, name: str, *args: object) -> tuple[Exception | None, Any]:
        """Call a function of the application, if it exists. Returns its error, and its result."""
        try:
            with self._reading(name):
                function = getattr(self._protocol, name, None)
            if function is None:
                return None, None
            return None, await self.calls.call(name, lambda: function(*args))
        except Exception as error:
            return self._keep(error, name), None

    @staticmethod
    @contextlib.contextmanager
    def _reading(what: str) -> Iterator[None]:
        """For user code run without ``CallbackInvoker``: a CancelledError of it isn't ours."""
        try:
            yield
        except asyncio.CancelledError as cancelled:
            raise InvalidArgument(
                f"{what} of the group's protocol let the CancelledError of another task through"
            ) from cancelled

    def _keep(self, error: Exception, name: str) -> Exception:
        self._log.error("%s of the group's protocol failed", _title(name), exc_info=error)
        note = f"raised in {_title(name)} of the protocol of a GroupMember"
        if note not in getattr(error, "__notes__", ()):  # as where it raises one instance again
            error.add_note(note)
        self.on_join_refused(error)
        return error


def _title(name: str) -> str:
    return name if name in ("name", "cooperative") else f"{name}()"


def _shares(given: Any, members: Sequence[JoinedMember]) -> dict[str, bytes]:
    """Convert what ``assign`` returned. It is the application's: any step of this may raise."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"assign() must give a mapping of member id to bytes, not {reprlib.repr(given)}"
        )
    known = {one.member_id: one.member_id for one in members}
    assignments: dict[str, bytes] = {}
    for member, data in given.items():
        if member not in known:
            raise ValueError(f"assign() gives something to {member!r}, who is no member")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(
                f"assign() gives {known[member]!r} {reprlib.repr(data)}, which is not bytes"
            )
        assignments[known[member]] = bytes(data)
    return assignments
