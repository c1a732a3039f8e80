"""MetadataUpdater: keeps the view of the cluster fresh, and lets others wait for a newer one.

The producer's sender, the consumer's fetcher and ``calls`` use it. What to ask and when is decided
in ``metadata``; here are the one task, the request, the slices and the waiters. No rules here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from kclient.broker_errors import UnknownTopicOrPartition
from kclient.cluster.metadata import (
    Endpoint,
    LeaderHint,
    MetadataRefresh,
    MetadataState,
    metadata_request,
)
from kclient.cluster.retry import UNKNOWN_TOPIC_GRACE
from kclient.cluster.wakeups import Broadcast, Wakeup, run_sliced
from kclient.errors import BrokerUnreachable, KafkaError, MetadataTimedOut, fresh
from kclient.network import Node

if TYPE_CHECKING:
    from kclient.clock import Clock
    from kclient.cluster.topic import Topic
    from kclient.cluster.view import Broker, Cluster
    from kclient.hooks import Counters, Hooks
    from kclient.network import Lane, NetworkClient, RawResponse, RequestFuture

logger = logging.getLogger("kclient.cluster")

HEDGE_DELAY = 1.0
"""Seconds without a response after which another broker is asked as well; then twice as long."""
_DIAL = 0.2
"""Seconds that a dial to a broker that is well doesn't take."""


class MetadataUpdater:
    """The view of one client and the task that refreshes it.

    Tasks: ``run``, one per client, started by ``ClientCore.start`` after the first metadata and
    cancelled by its ``close``. It makes one request at a time, and others beside one that gets no
    response for a while. Timers: one for the sleep of that
    task, and one for each leader in doubt, until ``end``.

    Args:
        state: The rules.
        network: To ask through; its address book follows the view.
        allow_auto_create: Let brokers create topics that are asked for.

    Attributes:
        view: The cluster as far as it is known now; set by ``_publish`` only, in the step in which
            the rules change it.
    """

    def __init__(
        self,
        state: MetadataState,
        network: NetworkClient,
        *,
        clock: Clock,
        hooks: Hooks,
        counters: Counters,
        allow_auto_create: bool = False,
    ) -> None:
        self.view = state.view
        self._state = state
        self._network = network
        self._clock = clock
        self._hooks = hooks
        self.log = hooks.log(logger)
        self._counters = counters
        self._allow_auto_create = allow_auto_create
        self._listeners: list[Callable[[Cluster], object]] = []
        self._news = Broadcast()
        self._wakeup = Wakeup()
        self._ended: KafkaError | None = None
        self._tried: list[int] = []
        self._suspects: dict[int, asyncio.TimerHandle] = {}
        counters.gauge("metadata.version", lambda: float(self.view.version))
        counters.gauge("metadata.topics", lambda: float(len(self.view.topics)))
        counters.gauge("metadata.brokers", lambda: float(len(self.view.brokers)))

    @property
    def last_error(self) -> KafkaError | None:
        """Why the latest refresh failed; None after one that didn't."""
        return self._state.last_error

    @property
    def refreshed_at(self) -> float:
        """When, on the client's clock, all that is wanted was last refreshed."""
        return self._state.refreshed_at

    def confirmed_unknown(self, topic: str, since: float, grace: float) -> bool:
        """Whether brokers have answered for ``grace`` s since ``since`` that they don't know it.

        Two brokers where there are several, or one for twice as long, in answers to questions of
        after ``since``. Not where none answers.
        """
        return self._state.confirmed_unknown(topic, since, grace)

    # What to keep fresh.

    def add_topic(self, topic: str) -> None:
        """Keep ``topic`` in the view until ``remove_topic``; calls are counted.

        Raises:
            InvalidArgument: Kafka can't have a topic of that name.
        """
        if self._state.pin(topic):
            self._wakeup.notify()

    def remove_topic(self, topic: str) -> None:
        """Take back one ``add_topic``. The topic then expires unless it is used."""
        self._state.unpin(topic, self._clock.now())

    def touch(self, topic: str) -> None:
        """Keep ``topic`` in the view for another ``metadata_max_idle`` seconds.

        Cheap; for use by the batch, as long as records for the topic come.
        """
        if self._state.touch(topic, self._clock.now()):
            self._wakeup.notify()

    def watch_all(self) -> None:
        """Keep all topics that there are in the view, until ``unwatch_all``; calls are counted.

        For subscriptions by pattern: new and deleted topics are seen at each ``metadata_max_age``
        and after ``request_update()``. A topic that is also kept by ``add_topic`` or ``touch``
        stays in the view when it is deleted, with the error of the brokers. See ``Cluster.listed``.
        """
        if self._state.watch_all():
            self._wakeup.notify()

    def unwatch_all(self) -> None:
        """Take back one ``watch_all``. After the last, unwanted topics leave the view."""
        self._state.unwatch_all()

    def request_update(self, topic: str | None = None) -> None:
        """Have the view refreshed soon: of ``topic`` only, if given and wanted, else of all.

        Refreshes wanted topics, or every topic for pattern subscriptions.
        Returns at once. Many calls make one request, and requests keep a back-off between them,
        which grows as long as the answers bring nothing new.
        """
        self._state.need(topic)
        if topic is None:
            self._state.need_listing()
        self._wakeup.notify()

    def leader_failed(self, node_id: int) -> None:
        """A broker that was taken for a leader gave no answer: look whether another leads now.

        And look again, as often as allowed, as long as the view has it as a leader and it can't be
        reached: an election takes a while. It is forgotten a minute after it was last wanted.
        """
        self._state.leader_unreachable(node_id, self._clock.now())
        self._wakeup.notify()

    def suspect_leader(self, node_id: int, lane: Lane) -> None:
        """The same for one that is asked now without a connection, if the last one to it broke.

        A broker that hangs accepts the next one, and then lets requests wait for as long as a dial
        may take.
        """
        if self._ended is not None or not self._is_unreachable(node_id):
            return
        if (
            self._state.unreachable_leaders.wanted(node_id, self._clock.now())
            or node_id in self._suspects
        ):
            return
        loop = asyncio.get_running_loop()
        self._suspects[node_id] = loop.call_later(_DIAL, self._still_doubted, node_id, lane)

    def _still_doubted(self, node_id: int, lane: Lane) -> None:
        del self._suspects[node_id]
        if not self._network.is_connected(node_id, lane) and self._is_unreachable(node_id):
            self.leader_failed(node_id)

    def add_listener(self, listener: Callable[[Cluster], object]) -> None:
        """Have ``listener(view)`` called after each refresh; it must be quick and not raise."""
        self._listeners.append(listener)

    def apply_leader_hints(
        self, hints: Iterable[LeaderHint], endpoints: Iterable[Endpoint] = ()
    ) -> bool:
        """Take a broker's word on the new leaders of partitions (KIP-951). True if any was news.

        Args:
            hints: All of one response; they make one new view.
            endpoints: The addresses that came along with them.
        """
        news = self._state.hint(hints, endpoints)
        if news:
            self._counters.add("metadata.leader_hints")
            self._publish()
        return news

    def apply_address(self, broker: Broker) -> None:
        """Take a broker's word on where another one listens, such as a coordinator.

        Where it was news our view is old, or the word is: it is refreshed soon.
        """
        if self._state.update_broker(broker):
            self._publish()
            self.request_update()

    # Waiting.

    async def wait_newer(self, version: int, timeout: float) -> Cluster:
        """Return a view with a higher version than ``version`` as soon as there is one.

        Args:
            version: Of the view that was found to be old.
            timeout: Seconds.

        Raises:
            MetadataTimedOut: None came in time; the text has the latest refusal.
            BackgroundTaskDied, ClientClosed: The client ended meanwhile.

        Cancellation: leaves nothing behind.
        """
        deadline = self._clock.now() + timeout
        while self.view.version <= version:
            if self._ended is not None:
                raise fresh(self._ended)
            left = deadline - self._clock.now()
            if left <= 0.0:
                raise self._timed_out("no newer metadata", timeout) from self.last_error
            await self._news.wait(left)
        return self.view

    async def wait_for_topic(
        self, topic: str, timeout: float, *, grace: float = UNKNOWN_TOPIC_GRACE
    ) -> Topic:
        """Return ``topic`` once the view has it with its partitions.

        Counts as a use of the topic (see ``touch``). Without suspending if it is there already.

        Args:
            topic: Its name.
            timeout: Seconds, at most.
            grace: Seconds for which a topic that the brokers don't know is asked for again, since
                a new one takes a moment to reach all of them; twice as long where only one of
                several says so.

        Raises:
            UnknownTopicOrPartition: The brokers don't know it after ``grace`` seconds.
            InvalidArgument, InvalidTopic: No topic can have that name.
            TopicAuthorizationFailed: This client may not see it.
            MetadataTimedOut: No answer about it in time.
            BackgroundTaskDied, ClientClosed: The client ended meanwhile.

        Cancellation: leaves nothing behind.
        """
        self.touch(topic)
        found = self._state.usable_topic(topic)
        if found is not None and not isinstance(found, KafkaError):
            return found
        if self.view.topic(topic) is not None:
            self.request_update(topic)  # an error of an earlier answer may be out of date
        seen = self.view.version
        began = self._clock.now()
        deadline = began + timeout
        unknown_since: float | None = None
        one_said_so = False
        while True:
            now = self._clock.now()
            limit = deadline if unknown_since is None else min(deadline, unknown_since + grace)
            try:
                seen = (await self.wait_newer(seen, max(0.0, limit - now))).version
            except MetadataTimedOut as late:
                if limit < deadline and not one_said_so and not self._several_lack(topic, began):
                    one_said_so, grace = True, 2 * grace
                    continue
                raise self._topic_missing(topic, timeout, unknown_since) from late.__cause__
            found = self._state.usable_topic(topic)
            if isinstance(found, KafkaError):
                raise found
            if found is not None:
                return found
            if self.view.topic_error(topic) not in (0, UnknownTopicOrPartition.code):
                unknown_since = None  # there is such a topic
            elif self.view.topic(topic) is not None and unknown_since is None:
                unknown_since = self._clock.now()
            self.touch(topic)
            self.request_update(topic)

    def _several_lack(self, topic: str, since: float) -> bool:
        return self._state.unknown_topics.confirmed_by_several(topic, len(self.view.brokers), since)

    def _topic_missing(self, topic: str, timeout: float, unknown_since: float | None) -> KafkaError:
        code = self.view.topic_error(topic)
        if unknown_since is None or code not in (0, UnknownTopicOrPartition.code):
            return self._timed_out(f"no usable metadata of topic {topic}", timeout, code)
        waited = self._clock.now() - unknown_since
        return UnknownTopicOrPartition(
            f"topic {topic}: the brokers don't know it, asked for {waited:.1f} s",
            hint=f"create topic {topic} first, or check its spelling",
        )

    def _timed_out(self, what: str, timeout: float, code: int = 0) -> MetadataTimedOut:
        why = f"; last refusal: {self.last_error}" if self.last_error is not None else ""
        said = f"; the brokers answer with error code {code}" if code else ""
        return MetadataTimedOut(
            f"{what} after {timeout:.3g} s{said}{why}",
            hint="check that the brokers are up and reachable from here",
        )

    def end(self, error: KafkaError) -> None:
        """Refresh no more: all waiters, present and later ones, get ``error``."""
        self._ended = error
        for timer in self._suspects.values():
            timer.cancel()
        self._suspects.clear()
        self._news.notify()

    # The task, and the pieces of it that the first refresh is made of, too.

    def initial_refresh(self) -> MetadataRefresh:
        """What the first refresh asks for: all that is wanted so far, at a bootstrap address."""
        step = self._state.decide(self._clock.now())
        if isinstance(step, float):
            raise RuntimeError("metadata was refreshed before")
        return step

    async def run(self) -> None:
        """Refresh whenever ``metadata`` says so, until cancelled."""
        while True:
            step = self._state.decide(self._clock.now())
            if isinstance(step, float):
                await self._wakeup.sleep(step - self._clock.now())
            else:
                await self._refresh(step)

    async def _refresh(self, ask: MetadataRefresh) -> None:
        """Ask one broker, and others beside it while there is no response; the first one counts.

        A broker that hangs would hold up failovers for ``request_timeout``. Its request is left to
        end by itself, as other requests are under way on the same connection.
        """
        error: KafkaError = BrokerUnreachable("no broker can be asked for metadata at the moment")
        pending: dict[RequestFuture[RawResponse], int] = {}
        asked: set[int] = set()
        news = Wakeup()
        silence = HEDGE_DELAY
        try:
            while True:
                node_id = self._choose(ask, asked)
                if node_id is not None:
                    asked.add(node_id)
                    future = self.send(ask, node_id)
                    pending[future] = node_id
                    future.add_listener(lambda _: news.notify())
                while pending:
                    await news.sleep(silence)
                    done = [future for future in pending if future.done]
                    if not done:
                        break
                    for future in done:
                        node_id = pending.pop(future)
                        try:
                            await self.apply_response(ask, future.result(), node_id)
                            return
                        except KafkaError as failure:
                            error = failure
                if not pending:
                    self._failed(ask, error)
                    return
                silence *= 2
                asked = set(pending.values())  # one that failed meanwhile may be well again
        finally:
            for future in pending:
                future.add_listener(release_late)

    def _choose(self, ask: MetadataRefresh, asked: Collection[int] = ()) -> int | None:
        """The broker to ask; one that is not among ``asked`` where it is for the same refresh."""
        network = self._network
        known = [node_id for node_id in self.view.brokers if node_id not in asked]
        if known and not ask.bootstrap:
            likely = self._likely(known)
            choices = [self._untried(likely)] if ask.untried_broker else []
            least = 0
            for choice in (*choices, likely, list(known)):  # each holds the one before
                node_id = network.least_loaded(choice) if len(choice) > least else None
                if node_id is not None:
                    self._tried = [*self._tried, node_id] if ask.untried_broker else [node_id]
                    return node_id
                least = len(choice)
        if asked and self.view.brokers and not ask.bootstrap:
            return None  # a bootstrap address leads to one of those that were asked
        bootstrap = [node.node_id for node in network.bootstrap_nodes if node.node_id not in asked]
        return network.least_loaded(bootstrap)

    def _likely(self, known: Iterable[int]) -> list[int]:
        """While a leader is unreachable, ask no unreachable broker: it might hang."""
        known = list(known)
        if not self._state.unreachable_leaders:
            return known
        return [node_id for node_id in known if not self._is_unreachable(node_id)] or known

    def _untried(self, known: Sequence[int]) -> list[int]:
        """Those that were not asked since an answer helped; the next round where all were."""
        untried = [node_id for node_id in known if node_id not in self._tried]
        if not untried:
            last = self._tried[-1]
            self._tried = []
            untried = [node_id for node_id in known if node_id != last]
        return untried or list(known)

    def send(self, ask: MetadataRefresh, node_id: int) -> RequestFuture[RawResponse]:
        """Ask ``node_id``; the response is not decoded yet, hand it to ``apply_response``."""
        from kclient.protocol.messages.metadata import MetadataRequest

        def build(version: int) -> MetadataRequest:
            return metadata_request(ask, version, allow_auto_create=self._allow_auto_create)

        return self._network.send(node_id, build, api=MetadataRequest, raw=True)

    async def apply_response(
        self, ask: MetadataRefresh, raw: RawResponse, node_id: int = -1
    ) -> Cluster:
        """Decode a response and merge it into the view, in slices; notify all."""
        from kclient.protocol.messages.metadata import MetadataResponse

        started = self._clock.now()
        decoding = MetadataResponse.decode_steps(raw.body, raw.version)
        now = self._clock.now()
        steps = self._state.apply_response_steps(ask, decoding, raw.version, now, node_id)
        try:
            view = await run_sliced(steps)
        finally:
            raw.release()
        self._state.apply_seconds = self._clock.now() - started
        if ask.all_topics:
            self._state.listing = self._state.apply_seconds
        self._counters.add("metadata.refreshes")
        self._publish()
        self._state.review_leaders(self._is_unreachable, self._clock.now())
        if self._hooks.active:
            from kclient.events import MetadataUpdated

            self._hooks.emit(
                MetadataUpdated(
                    view.version,
                    len(view.brokers),
                    len(view.topics),
                    view.partition_total,
                    self._clock.now() - started,
                )
            )
        return view

    def _is_unreachable(self, node_id: int) -> bool:
        return self._network.connection_error(node_id) is not None

    def _failed(self, ask: MetadataRefresh, error: KafkaError) -> None:
        first = self._state.failures == 0
        self._state.failed(error, self._clock.now())
        self._counters.add("metadata.failures")
        self.log.log(
            logging.INFO if first else logging.DEBUG,
            "metadata refresh failed topics=%d full=%s bootstrap=%s: %s",
            len(ask.topics),
            ask.full,
            ask.bootstrap,
            error,
        )

    def _publish(self) -> None:
        self.view = view = self._state.view
        self._network.update_nodes(
            Node(b.node_id, b.host, b.port, b.rack) for b in view.brokers.values()
        )
        self._news.notify()
        for listener in self._listeners:
            listener(view)


def release_late(future: RequestFuture[RawResponse]) -> None:
    """Give back the frame of a response that came too late to be of use."""
    if future.succeeded:
        future.result().release()
