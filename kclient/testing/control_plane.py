"""``ControlPlane`` of a cluster: sessions, controller elections, metadata images.

Brokers join and leave; one that can't reach the quorum loses its session after
``broker.session.timeout.ms``. Whenever the claim is free, brokers with a session claim it, and the
first one becomes ``Controller``. Its images go to each broker that it reaches; the others get the
newest one once they are reachable. Owned by ``Cluster``; timers come from ``call_later``.

``BrokerLinks``: messages between controller, brokers and quorum go through its ``send``: they
arrive at once, after a delay, or not at all if the nodes are disconnected.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kclient.error_codes import ErrorCode
from kclient.testing.controller import Controller, IsrChange, Tally
from kclient.testing.image import MetadataImage
from kclient.testing.quorum import Quorum, QuorumEvent
from kclient.testing.responses import ApiError

if TYPE_CHECKING:
    from kclient.testing.broker import Broker


QUORUM = 0
"""Node id that stands for the quorum; those of brokers begin at 1."""


class BrokerLinks:
    """Links between nodes.

    Attributes:
        delay: Called with both ends, returns the latency in seconds; None for no latency.
        later: Runs a function after so many seconds; needed if ``delay`` is set.
    """

    def __init__(self) -> None:
        self._parted: set[frozenset[int]] = set()
        self._listeners: list[Callable[[], None]] = []
        self.delay: Callable[[int, int], float] | None = None
        self.later: Callable[[float, Callable[[], None]], object] | None = None

    def reachable(self, one: int, other: int) -> bool:
        """Whether messages get from one to the other."""
        return not self._parted or frozenset((one, other)) not in self._parted

    @property
    def parted(self) -> list[tuple[int, int]]:
        """The disconnected pairs."""
        return sorted((min(pair), max(pair)) for pair in self._parted)

    def part(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Disconnect these pairs."""
        self._change(self._parted | {frozenset(pair) for pair in pairs})

    def join(self, pairs: Iterable[tuple[int, int]] | None = None) -> None:
        """Connect these pairs again, or all."""
        mended = None if pairs is None else {frozenset(pair) for pair in pairs}
        self._change(set() if mended is None else self._parted - mended)

    def _change(self, parted: set[frozenset[int]]) -> None:
        if parted != self._parted:
            self._parted = parted
            for listener in tuple(self._listeners):
                listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever pairs are disconnected or connected."""
        self._listeners.append(listener)

    def send(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        """Call ``deliver`` at the receiver, unless the two are disconnected on its arrival."""
        if sender == receiver:
            deliver()
        elif self.reachable(sender, receiver):
            seconds = 0.0 if self.delay is None else self.delay(sender, receiver)
            if seconds <= 0 or self.later is None:
                deliver()
            else:
                self.later(seconds, lambda: self._arrive(sender, receiver, deliver))

    def _arrive(self, sender: int, receiver: int, deliver: Callable[[], None]) -> None:
        if self.reachable(sender, receiver):
            deliver()


class ControlPlane:
    """The quorum, the links between the brokers, and the controller.

    Attributes:
        quorum: Sessions, claim and the newest image.
        links: Reachability between brokers.
        tally: Counts of what happened so far.
    """

    def __init__(self, image: MetadataImage, rng: random.Random) -> None:
        self.quorum = Quorum(image)
        self.links = BrokerLinks()
        self.tally = Tally()
        self._rng = rng
        self._members: dict[int, Broker] = {}
        self._incarnations: dict[int, int] = {}
        self._controllers: dict[int, Controller] = {}
        self._expiries: dict[int, asyncio.TimerHandle] = {}
        self.quorum.watch(self._hear)
        self.links.listen(self._links_changed)

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        return self.quorum.image

    @property
    def controller(self) -> Controller | None:
        """The controller according to the quorum."""
        return self._controllers.get(self.quorum.controller_id)

    # Members

    def join(self, member: Broker) -> None:
        """A broker is up. It takes part as soon as it reaches the quorum."""
        self._members[member.node_id] = member
        self._incarnations[member.node_id] = self._incarnations.get(member.node_id, 0) + 1
        if self.links.reachable(member.node_id, QUORUM):
            self.quorum.open_session(member.node_id)
        self._push(member)

    def leave(self, node_id: int) -> None:
        """A broker is down: end its session at once, as its connections are closed."""
        self._members.pop(node_id, None)
        self._cancel_expiry(node_id)
        self._controllers.pop(node_id, None)
        self.quorum.end_session(node_id)

    def resign(self) -> None:
        """Make the controller release its claim; another broker claims it, if there is one."""
        controller_id = self.quorum.controller_id
        controller = self._controllers.pop(controller_id, None)
        if controller is not None:
            self.quorum.resign(controller_id, controller.epoch)

    def _hear(self, news: QuorumEvent, node_id: int) -> None:
        if news is QuorumEvent.CONTROLLER_LOST:
            self._race(last=node_id)
        elif news is QuorumEvent.SESSION_OPENED:
            self._race()
            self._with_controller(lambda one: self._take_in(one, node_id))
        elif news is QuorumEvent.SESSION_ENDED:
            self._with_controller(lambda one: one.broker_down(node_id))

    def _race(self, last: int | None = None) -> None:
        """Let reachable brokers claim, in the order of their sessions, and ``last`` last."""
        racers = list(self.quorum.sessions)
        for node_id in sorted(racers, key=lambda one: one == last):
            if node_id not in self._members or not self._in_touch(node_id):
                continue
            epoch = self.quorum.claim(node_id)
            if epoch is None:
                return
            self._begin(node_id, epoch)
            return

    def _begin(self, node_id: int, epoch: int) -> None:
        controller = Controller(
            node_id,
            epoch,
            self.quorum,
            self._rng,
            self.tally,
            self._publish,
            lambda: self._in_touch(node_id),
        )
        self._controllers[node_id] = controller
        controller.announce()
        self._take_in_all(controller)

    def _take_in_all(self, controller: Controller) -> None:
        """Take in also brokers that started while the controller didn't reach the quorum."""
        for one in self.quorum.sessions:
            if not self._is_known(one):
                self._take_in(controller, one)

    def _is_known(self, node_id: int) -> bool:
        facts = self.image.brokers.get(node_id)
        session = self.quorum.session_of(node_id)
        return facts is not None and facts.alive and facts.epoch == session

    def _take_in(self, controller: Controller, node_id: int) -> None:
        member, session = self._members.get(node_id), self.quorum.session_of(node_id)
        if member is not None and session is not None and not self._is_known(node_id):
            controller.broker_up(replace(member.facts(), alive=True, epoch=session))

    def _with_controller(self, action: Callable[[Controller], None]) -> None:
        """Call ``action`` if the controller is reachable; a later one finds out by itself."""
        controller = self.controller
        if controller is not None and self._in_touch(controller.node_id):
            action(controller)

    def _in_touch(self, node_id: int) -> bool:
        return self.links.reachable(node_id, QUORUM)

    # Requests of brokers

    def controller_for(self, node_id: int) -> Controller:
        """The controller, for a request of a broker.

        Raises:
            ApiError: NOT_CONTROLLER: there is none, or it can't be reached from that broker.
        """
        controller = self.controller
        if controller is None or not self.links.reachable(node_id, controller.node_id):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "The controller is out of reach.")
        return controller

    def alter_isr(
        self,
        node_id: int,
        changes: Iterable[IsrChange],
        answered: Callable[[list[ErrorCode] | None], None],
    ) -> None:
        """Send a leader's ISR changes to the controller.

        ``answered`` is called with a code for each, or with None if the controller is unreachable
        or was replaced.
        """
        wanted, life = list(changes), self._incarnations.get(node_id)
        try:
            controller = self.controller_for(node_id)
        except ApiError:
            answered(None)
            return

        def arrive() -> None:
            if self._incarnations.get(node_id) != life:
                return  # sent before a restart: the leader doesn't count these replicas any more
            try:
                codes: list[ErrorCode] | None = controller.alter_isr(node_id, wanted)
            except ApiError:
                self.tally.fences += 1
                codes = None
            self.links.send(controller.node_id, node_id, partial(hear, codes))

        def hear(codes: list[ErrorCode] | None) -> None:
            if self._incarnations.get(node_id) == life:
                answered(codes)

        self.links.send(node_id, controller.node_id, arrive)

    # Images

    def _publish(self, controller: Controller, image: MetadataImage) -> None:
        for member in tuple(self._members.values()):
            self._send(controller.node_id, member, image)

    def _send(self, sender: int, member: Broker, image: MetadataImage) -> None:
        life = self._incarnations[member.node_id]

        def arrive() -> None:
            if self._incarnations[member.node_id] == life and member.node_id in self._members:
                member.apply(image)

        self.links.send(sender, member.node_id, arrive)

    def _push(self, member: Broker) -> None:
        """Send the newest image to a broker that may have missed it."""
        controller = self.controller
        if controller is not None and self._in_touch(controller.node_id):
            self._send(controller.node_id, member, self.image)

    def _links_changed(self) -> None:
        for node_id, member in tuple(self._members.items()):
            if self._in_touch(node_id):
                self._cancel_expiry(node_id)
                if self.quorum.session_of(node_id) is None:
                    self.quorum.open_session(node_id)
            elif node_id not in self._expiries:
                seconds = self.image.config.session_timeout
                self._expiries[node_id] = member.call_later(seconds, partial(self._expire, node_id))
        if self.controller is None:
            self._race()
        self._with_controller(lambda one: one.announce())
        self._with_controller(self._take_in_all)
        for member in tuple(self._members.values()):
            self._push(member)
            member.links_changed()

    def _expire(self, node_id: int) -> None:
        self._expiries.pop(node_id, None)
        self.quorum.end_session(node_id, expired=True)

    def _cancel_expiry(self, node_id: int) -> None:
        timer = self._expiries.pop(node_id, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancel all timers."""
        for node_id in tuple(self._expiries):
            self._cancel_expiry(node_id)
