"""Which metadata to ask for, when, and what an answer changes. Sans-IO; ``updater`` drives it.

The rules in one place:

- what is requested are the wanted topics: pinned ones until they are unpinned, used
  ones until they have not been touched for ``max_idle`` seconds;
- while all topics are watched (to subscribe by pattern), all are listed by age, and by need as
  long as that takes no more than a tenth of the time. Everything else still asks by name for those
  that are wanted: looks for a leader, and those that are not listed, to learn why;
- a refresh is due by need (``need``: a broker refused a leader, a caller waits for a topic) or by
  age (``max_age``), and only a topic that was never asked for doesn't wait for the back-off;
- the back-off grows while attempts fail, and also while answers change nothing: ten partitions
  whose leader refuses don't make a storm of equal requests (KIP-580);
- an unreachable leader is followed up until another one leads, it is back, or nothing
  wants it any more. For as long as elections take, the back-off stays short then: a new leader must
  not be found late;
- a response that changes less than all is merged in (``metadata_merge``: epochs and topic ids);
- a topic that was there and is said to be none is asked for again until that is sure: one broker
  that lags behind must not be believed because no other one was asked;
- a topic id that was left behind for another one is not believed again at once: ids are never used
  twice, so a broker that still reports the old one lags behind;
- brokers that can't be reached one after another, or not for long, or that say so (KIP-1102), send
  us back to the bootstrap addresses (KIP-899).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from kclient import error_codes
from kclient.cluster import metadata_merge
from kclient.cluster.metadata_merge import UnknownTopics
from kclient.cluster.retry import UNKNOWN_TOPIC_GRACE as SURE_AFTER
from kclient.cluster.topic import ERROR, LEADERS, Topic, Topics
from kclient.cluster.view import Broker, Cluster
from kclient.error_codes import ErrorCode
from kclient.errors import BrokerError, KafkaError, ProtocolError, broker_error
from kclient.frozen import Frozen, frozen
from kclient.types import check_topic_name

if TYPE_CHECKING:
    import random

    from kclient.backoff import Backoff
    from kclient.cluster.topic import TopicFields
    from kclient.config import CommonConfig
    from kclient.protocol.messages.metadata import (
        MetadataRequest,
        MetadataResponse,
        MetadataResponseTopic,
    )

LONGEST_LOOK = 0.4
"""Seconds between two looks for a new leader at most, unless answers are large or it takes long."""
ELECTION = 30.0
"""Seconds that an election may take; from then on there is no election_pending."""
FORGOTTEN = 60.0
"""Seconds after which a leader that isn't wanted any more is forgotten."""
NEVER = math.inf
_SHARE = 10
"""Looks for a new leader may take one such part of the time."""


class Endpoint(Protocol):
    """Where a broker listens: a ``Broker``, a network ``Node`` or a ``NodeEndpoint`` message."""

    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...


@frozen
class MetadataRefresh(Frozen):
    """One Metadata request to make.

    Attributes:
        topics: Names to ask for.
        full: These are all that are wanted, so the answer also counts as a refresh by age.
        all_topics: Ask for all topics that there are, by no name; counts as a full one, too.
        at: When it was decided on.
        serial: Needs up to this number are met by the answer.
        bootstrap: Ask one of the bootstrap addresses, not a known broker.
        untried_broker: The latest response was no help: ask a broker that wasn't asked yet. One
            that lags behind must not be asked again and again, just because it is connected.
    """

    topics: tuple[str, ...]
    full: bool
    serial: int
    bootstrap: bool = False
    untried_broker: bool = False
    all_topics: bool = False
    at: float = field(default=-math.inf, compare=False)


@dataclass(frozen=True, slots=True)
class LeaderHint:
    """A broker's hint at the new leader of a partition (KIP-951)."""

    topic: str
    partition: int
    leader_id: int
    leader_epoch: int


@dataclass(slots=True)
class _Interest:
    """Why a topic is asked for."""

    pins: int = 0
    last_used: float = -math.inf
    asked: bool = False


@dataclass(slots=True)
class _Needs:
    """What was asked of us and isn't met yet, each with the serial of the latest call."""

    serial: int = 0
    full: int = 0
    listing: int = 0
    topics: dict[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.full or self.topics)

    def met(self, ask: MetadataRefresh) -> None:
        """Forget what ``ask`` answered, but not what came up after it was sent."""
        if ask.full and self.full <= ask.serial:
            self.full = 0
        if ask.all_topics and self.listing <= ask.serial:
            self.listing = 0
        for name in list(self.topics) if ask.all_topics else ask.topics:
            if self.topics.get(name, NEVER) <= ask.serial:
                del self.topics[name]


class MetadataState:
    """The view of one client and the schedule of its refreshes.

    Args:
        config: ``metadata_max_age``, ``metadata_max_idle`` and
            ``metadata_recovery_rebootstrap_trigger``: seconds without an answer, counted from the
            first request that got none, after which the bootstrap addresses are asked, however
            many brokers are still untried.
        backoff: Waits between refreshes that were needed but failed or changed nothing.
        rng: For the jitter of the waits.
    """

    def __init__(self, config: CommonConfig, backoff: Backoff, rng: random.Random) -> None:
        self.view = Cluster()
        self.last_error: KafkaError | None = None
        self.failures = 0
        self.refreshed_at = -math.inf
        self._config = config
        self._backoff = backoff
        self._rng = rng
        self._unanswered_since: float | None = None
        self._gave_up_at: int | None = None
        self._wanted: dict[str, _Interest] = {}
        self.unknown_topics = UnknownTopics()
        self._needs = _Needs(full=1, serial=1)
        self._allowed_at = -math.inf
        self._stalls = 0
        self.unreachable_leaders = UnreachableLeaders()
        self.apply_seconds = 0.0
        """Seconds that the latest answer took to be absorbed."""
        self._past = metadata_merge.TopicHistory()
        self._missed: dict[str, None] = {}
        """Topics that were there and that a broker doesn't know, as long as that isn't sure."""
        self._unlisted: tuple[str, ...] = ()
        """Wanted topics that the latest list of all lacks, until an answer by name."""
        self._watchers = 0
        self._listed_at = -math.inf
        self.listing = 0.0
        """Seconds that the latest list of all topics took to be absorbed."""

    # What is wanted.

    def pin(self, topic: str) -> bool:
        """Want ``topic`` until ``unpin``. True if that makes a refresh due."""
        self._interest(topic).pins += 1
        return topic in self._needs.topics

    def unpin(self, topic: str, now: float) -> None:
        """Take one ``pin`` back; then it is as if ``topic`` had been used just now."""
        interest = self._wanted.get(topic)
        if interest is not None and interest.pins:
            interest.pins -= 1
            interest.last_used = now

    def touch(self, topic: str, now: float) -> bool:
        """Want ``topic`` for ``max_idle`` seconds from now. True if that makes a refresh due."""
        interest = self._wanted.get(topic)
        if interest is None:
            interest = self._interest(topic)
        interest.last_used = now
        return topic in self._needs.topics

    def _interest(self, topic: str) -> _Interest:
        interest = self._wanted.get(topic)
        if interest is None:
            # A name that no broker could take would spoil the request for all others.
            interest = self._wanted[check_topic_name(topic)] = _Interest()
            self.need(topic)
        return interest

    def watch_all(self) -> bool:
        """Want all topics until ``unwatch_all``. True if that makes a refresh due."""
        self._watchers += 1
        if self._watchers == 1:
            self.need_listing()
        return self._watchers == 1

    def unwatch_all(self) -> None:
        """Take one ``watch_all`` back. After the last, others than wanted leave with an answer."""
        self._watchers = max(0, self._watchers - 1)
        if not self._watchers:
            self._needs.listing = 0

    def need_listing(self) -> None:
        """While all topics are watched, list them; a request in flight is not enough."""
        if self._watchers:
            self._needs.serial += 1
            self._needs.listing = self._needs.serial

    def need(self, topic: str | None = None) -> None:
        """A refresh is due: of ``topic`` if wanted, else of all; a request under way won't do."""
        self._needs.serial += 1
        if topic is not None and topic in self._wanted:
            self._needs.topics[topic] = self._needs.serial
        else:
            self._needs.full = self._needs.serial

    def leader_unreachable(self, node_id: int, now: float) -> None:
        """A leader gave no answer: a refresh is due, and again until ``review_leaders`` says no."""
        if self.unreachable_leaders.add(node_id, now) and not self.failures:
            # Quiet times may have made the back-off long.
            self._allowed_at = min(self._allowed_at, now + self._longest_look())
        self.need()

    def review_leaders(self, is_unreachable: Callable[[int], bool], now: float) -> None:
        """An answer was absorbed: see which leaders are still missing."""
        self.unreachable_leaders.review(self.view, is_unreachable, now)
        if self.unreachable_leaders:
            self.need()

    # When to ask.

    def decide(self, now: float) -> MetadataRefresh | float:
        """The request to make now, or the time at which to decide again."""
        lists_at = self._lists_at()
        if now < self._allowed_at and not self.failures:
            if self._watchers and self._listed_at == -math.inf:
                return self._ask((), now, full=True, all_topics=True)
            fresh = tuple(t for t in self._needed_topics() if not self._wanted[t].asked)
            if fresh:
                return self._ask(fresh, now, full=False)
        due = now if self._needs else self.refreshed_at + self._config.metadata_max_age
        at = max(min(due, lists_at), self._allowed_at)
        if at > now:
            return at
        if lists_at <= now:
            # Lists are enough for pattern subscriptions, so named topics must come in between.
            unlisted = tuple(name for name in self._unlisted if name in self._needs.topics)
            if unlisted and not self.failures:
                return self._ask(unlisted, now, full=False)
            self._expire(now)
            return self._ask((), now, full=True, all_topics=True)
        too_old = now >= self.refreshed_at + self._config.metadata_max_age
        if self._needs.topics and not self._needs.full and not too_old:
            return self._ask(self._needed_topics(), now, full=False)
        self._expire(now)
        return self._ask(tuple(self._wanted), now, full=True)

    def _lists_at(self) -> float:
        """When to list all topics."""
        if not self._watchers:
            return NEVER
        wait = _SHARE * self.listing if self._needs.listing else self._config.metadata_max_age
        return self._listed_at + wait

    def _needed_topics(self) -> tuple[str, ...]:
        return tuple(name for name in self._needs.topics if name in self._wanted)

    def _ask(
        self, topics: tuple[str, ...], now: float, *, full: bool, all_topics: bool = False
    ) -> MetadataRefresh:
        for name in topics:
            self._wanted[name].asked = True
        if self._unanswered_since is None:
            self._unanswered_since = now
        untried_broker = bool(self.failures or (self._needs and self._stalls))
        bootstrap = self._goes_to_bootstrap(now)
        return MetadataRefresh(
            topics, full, self._needs.serial, bootstrap, untried_broker, all_topics, now
        )

    def _goes_to_bootstrap(self, now: float) -> bool:
        if not self.view.brokers:
            return True
        since = self._unanswered_since
        if self._gave_up_at is None and since is not None:
            # Every known broker has its chance, but all of them together only for so long.
            tried = self.failures >= max(3, len(self.view.brokers))
            patience = self._config.metadata_recovery_rebootstrap_trigger
            if tried or (self.failures and now - since >= patience):
                self._gave_up_at = self.failures
        # From there on both kinds take turns.
        return self._gave_up_at is not None and (self.failures - self._gave_up_at) % 2 == 0

    def _expire(self, now: float) -> None:
        horizon = now - self._config.metadata_max_idle
        for name in [n for n, i in self._wanted.items() if not i.pins and i.last_used < horizon]:
            del self._wanted[name]
            self._needs.topics.pop(name, None)
            self.unknown_topics.forget(name)
            self._past.forget(name)
            self._missed.pop(name, None)

    def failed(self, error: KafkaError, now: float) -> None:
        """The request that ``decide`` asked for failed: the view stays, the need too."""
        self.last_error = error
        self._allowed_at = now + self._backoff.delay(self.failures, self._rng)
        self.failures += 1
        if isinstance(error, BrokerError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            # Bootstrap addresses are next; if none of them answers, brokers are asked in turn.
            self._gave_up_at = self.failures

    # What an answer changes.

    def apply_response_steps(
        self,
        ask: MetadataRefresh,
        decoding: Generator[MetadataResponseTopic | None, bool | None, MetadataResponse],
        version: int,
        now: float,
        node_id: int = -1,
    ) -> Generator[None, None, Cluster]:
        """Merge an answer into the view, while it is decoded, in steps of one topic.

        Args:
            ask: What was asked for.
            decoding: ``MetadataResponse.decode_steps`` of the answer.
            version: Of the answer.
            now: For the schedule.
            node_id: The broker that answered; below 0 for a bootstrap address.

        Raises:
            BrokerError: The answer as a whole is a refusal. Call ``failed`` with it.
            ProtocolError: It is malformed, or lists no broker: a broker that is starting up may
                answer like that. The old view stays.
        """
        response, said = yield from metadata_merge.read_topics(
            decoding, version, self.view.topics.raw
        )
        if response.error_code:
            raise broker_error(response.error_code, "Metadata failed")
        brokers = {
            b.node_id: Broker(b.node_id, b.host, b.port, b.rack)
            for b in response.brokers
            if b.node_id >= 0  # ids below are those of bootstrap addresses
        }
        if not brokers:
            raise ProtocolError(
                "Metadata lists no brokers", struct="MetadataResponse", field="brokers"
            )
        base = self.view
        known = base.topics.raw
        if None not in (base.cluster_id, response.cluster_id) and (
            base.cluster_id != response.cluster_id
        ):
            known = {}  # another cluster behind the same address
            self._past = metadata_merge.TopicHistory()
            self.unknown_topics = UnknownTopics()
            self._missed.clear()
            self.need()
            self.need_listing()
        by_name = not ask.full or (self._watchers and not ask.all_topics)
        topics = dict(known) if by_name else {}
        changed = brokers != base.brokers
        for new in said:
            name, old = new[0], known.get(new[0])
            if ask.all_topics or name in self._wanted:
                before = None if old is None else Topic(old)
                topics[name] = merged = self._past.merged(before, Topic(new)).facts
                changed = changed or merged != old
                self.unknown_topics.note(new, node_id, ask.at, now)
                self._note_missed(new, old)
            yield
        unlisted = self._wanted.keys() - topics.keys() if ask.all_topics else ()
        self._carry_over(base, topics, known)
        self.view = Cluster(
            self.view.version + 1,
            response.cluster_id,
            response.controller_id if response.controller_id >= 0 else None,
            MappingProxyType(brokers),
            Topics(topics),
        )
        self._succeeded(ask, changed, now)
        self._ask_for_missed()
        self._unlisted = tuple(unlisted)
        for name in unlisted:
            self.need(name)  # the reason comes (and it is created) only for a request by name
        return self.view  # no step in between: the network must know of it as soon as readers do

    def _note_missed(self, new: TopicFields, old: TopicFields | None) -> None:
        if new[ERROR] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._missed.pop(new[0], None)
        elif old is not None and not old[ERROR]:
            self._missed[new[0]] = None

    def _ask_for_missed(self) -> None:
        for name in list(self._missed):
            if name not in self._wanted or self.confirmed_unknown(name, -math.inf, SURE_AFTER):
                del self._missed[name]
            else:
                self.need(name)

    def confirmed_unknown(self, topic: str, since: float, grace: float) -> bool:
        """Whether brokers have said for so long, since then, that they don't know ``topic``."""
        return self.unknown_topics.is_confirmed(topic, len(self.view.brokers), since, grace)

    def _carry_over(
        self, base: Cluster, topics: dict[str, TopicFields], known: Iterable[str]
    ) -> None:
        """What changed while the answer was merged in slices, and what it left out."""
        if not self._watchers:
            for name in [name for name in topics if name not in self._wanted]:
                del topics[name]
        for name in known:
            if name in topics:
                continue
            if name in self._wanted:
                topics[name] = self.view.topics.raw[name]
            else:
                self._past.forget(name)
        if self.view is base:
            return
        for name, facts in self.view.topics.raw.items():
            if name not in topics or facts is base.topics.raw.get(name):
                continue
            hinted, new = Topic(facts), Topic(topics[name])
            if not new.error and metadata_merge.is_stale(hinted, new):
                topics[name] = metadata_merge.keep_newest(hinted, new).facts

    def _succeeded(self, ask: MetadataRefresh, changed: bool, now: float) -> None:
        self._stalls = 0 if changed else self._stalls + 1
        self.failures = 0
        self.last_error = None
        self._unanswered_since = self._gave_up_at = None
        self._allowed_at = now + self._until_next_look(now)
        self._needs.met(ask)
        if ask.full:
            self.refreshed_at = now
        if ask.all_topics:
            self._listed_at = now

    def _until_next_look(self, now: float) -> float:
        wait = self._backoff.delay(max(0, self._stalls - 1), self._rng)
        if self.unreachable_leaders.election_pending(now):
            wait = min(wait, self._longest_look())
        return wait

    def _longest_look(self) -> float:
        return max(LONGEST_LOOK, self._backoff.initial, _SHARE * self.apply_seconds)

    def hint(self, hints: Iterable[LeaderHint], endpoints: Iterable[Endpoint] = ()) -> bool:
        """Take brokers' word on new leaders; True if any was news.

        A hint counts only with a higher epoch than the known one, and only where the leader's
        address is known or comes along.
        """
        brokers = dict(self.view.brokers)
        for e in endpoints:
            if e.node_id >= 0 and e.host:
                brokers[e.node_id] = Broker(e.node_id, e.host, e.port, e.rack)
        topics = dict(self.view.topics.raw)
        news = False
        for hint in hints:
            if hint.topic not in topics:
                continue
            topic = Topic(topics[hint.topic])
            if not 0 <= hint.partition < len(topic.leaders):
                continue
            newer = hint.leader_epoch > topic.leader_epochs[hint.partition]
            if newer and hint.leader_id in brokers:
                topics[hint.topic] = topic.with_leader(
                    hint.partition, hint.leader_id, hint.leader_epoch
                ).facts
                news = True
        if news:
            self.view = replace(
                self.view,
                version=self.view.version + 1,
                brokers=MappingProxyType(brokers),
                topics=Topics(topics),
            )
        return news

    def update_broker(self, broker: Broker) -> bool:
        """Take a broker's word on where another one listens; True if that was news."""
        known = self.view.broker(broker.node_id)
        if known is not None and (known.host, known.port) == (broker.host, broker.port):
            return False
        brokers = MappingProxyType({**self.view.brokers, broker.node_id: broker})
        self.view = replace(self.view, version=self.view.version + 1, brokers=brokers)
        return True

    # What a waiter for a topic should do.

    def usable_topic(self, topic: str) -> Topic | KafkaError | None:
        """The topic if it can be used, the error if waiting won't help, None to wait."""
        found = self.view.topics.get(topic)
        if found is None:
            return None
        if not found.error:
            return found if found.leaders else None
        info = error_codes.TABLE.get(found.error)
        if info is not None and info.retriable:
            return None
        return broker_error(found.error, f"topic {topic} can't be used")


def metadata_request(
    ask: MetadataRefresh, version: int, *, allow_auto_create: bool
) -> MetadataRequest:
    """The message for ``ask`` in ``version``.

    All topics are null from version 1 on. Version 0 can't ask for none: its empty list means all,
    and so the answer is filtered unless all were asked for.
    From version 4 on the request says whether the broker may create unknown topics.
    """
    from kclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    named = [MetadataRequestTopic(name=name) for name in ask.topics]
    return MetadataRequest(
        topics=None if ask.all_topics and version else named,
        allow_auto_topic_creation=allow_auto_create or version < 4,
    )


@dataclass(slots=True)
class _Missing:
    """One leader: since when, and when it was last wanted."""

    since: float
    wanted_at: float


class UnreachableLeaders:
    """The leaders of one client that gave no answer; ``MetadataState`` decides when to ask.

    ``MetadataUpdater`` adds what the producer's sender and the consumer's fetcher find out.
    """

    def __init__(self) -> None:
        self._nodes: dict[int, _Missing] = {}

    def __bool__(self) -> bool:
        """Whether to look after some."""
        return bool(self._nodes)

    def add(self, node_id: int, now: float) -> bool:
        """It gave no answer. Whether that is news."""
        news = not self.wanted(node_id, now)
        if news:
            self._nodes[node_id] = _Missing(now, now)
        return news

    def wanted(self, node_id: int, now: float) -> bool:
        """It would be asked now; whether it is one of these already."""
        missing = self._nodes.get(node_id)
        if missing is not None:
            missing.wanted_at = now
        return missing is not None

    def review(self, view: Cluster, is_unreachable: Callable[[int], bool], now: float) -> None:
        """Forget brokers that are back, lead nothing any more, or aren't wanted."""
        for node_id, missing in list(self._nodes.items()):
            unwanted = now - missing.wanted_at >= FORGOTTEN
            if unwanted or not is_unreachable(node_id) or not _leads(view, node_id):
                del self._nodes[node_id]

    def election_pending(self, now: float) -> bool:
        """Whether an election may be about to end."""
        return any(now - missing.since < ELECTION for missing in self._nodes.values())


def _leads(view: Cluster, node_id: int) -> bool:
    """Whether it leads anything; asked without an object for each topic."""
    return any(node_id in facts[LEADERS] for facts in view.topics.raw.values())
