"""Planning on the driver: which partitions there are, and where reading begins and ends.

``source`` and ``stream`` call it, in the loop of their process. All of it goes through one
``Admin``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kclient.admin import Admin
from kclient.broker_errors import UnknownTopicOrPartition
from kclient.errors import InvalidConfig, KafkaError, OffsetError, some_of
from kclient.spark.loop import admin_of, client_properties
from kclient.spark.options import Bound, SourceOptions
from kclient.types import IsolationLevel, OffsetSpec, TopicPartition

logger = logging.getLogger("kclient.spark")

_SHOWN = 5


class DataLoss(OffsetError):
    """Records were gone before they were read, or a topic was replaced.

    Retention overtook the reader, somebody deleted records, or the topic was created anew.
    """


_HINT = (
    "failOnDataLoss=false goes on with what is there; to lose nothing, retention must be longer "
    "than the longest delay of the query"
)


def data_lost(options: SourceOptions, what: str) -> None:
    """Raise, or log, that records are lost.

    Raises:
        DataLoss: Unless the options say to go on.
    """
    if options.fail_on_data_loss:
        raise DataLoss(what, hint=_HINT)
    logger.warning("%s (failOnDataLoss=false: going on)", what)


_UNKNOWN_HINT = (
    "check the topics of option subscribe or assign; with failOnDataLoss=false a stream goes on "
    "without one that was deleted"
)


class Planner:
    """Looks up topics and offsets for one source.

    Args:
        options: What was asked for.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._properties = client_properties(options.properties, options.properties_file)
        level = str(self._properties.get("isolation.level", "read_uncommitted")).strip()
        self._isolation = (
            IsolationLevel.READ_COMMITTED
            if level == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )

    async def _admin(self) -> Admin:
        return await admin_of(self._properties)

    async def partitions(self, *, all_exist: bool = True) -> dict[TopicPartition, str | None]:
        """The partitions to read, each with the id of its topic where brokers have ids.

        Args:
            all_exist: False leaves out topics and partitions that don't exist.

        Raises:
            UnknownTopicOrPartition: A topic, or a partition that was assigned, doesn't exist.
        """
        options, admin = self._options, await self._admin()
        names: Iterable[str] = options.topics
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            names = [one.name for one in await admin.list_topics() if pattern.fullmatch(one.name)]
        elif options.assigned:
            names = {partition.topic for partition in options.assigned}
        found: dict[TopicPartition, str | None] = {}
        try:
            described = await admin.describe_topics(names, return_errors=not all_exist)
        except UnknownTopicOrPartition as error:
            error.hint = _UNKNOWN_HINT
            raise
        for name, topic in described.items():
            if isinstance(topic, UnknownTopicOrPartition):
                continue
            if isinstance(topic, KafkaError):
                raise topic
            topic_id = topic.topic_id.hex() if topic.topic_id else None
            for one in topic.partitions:
                found[TopicPartition(str(name), one.index)] = topic_id
        if not options.assigned:
            return found
        missing = [one for one in options.assigned if one not in found]
        if missing and all_exist:
            raise UnknownTopicOrPartition(
                f"option assign has {some_of(missing, _SHOWN)}, which doesn't exist"
            )
        return {one: found[one] for one in options.assigned if one in found}

    async def existing(self) -> dict[TopicPartition, str | None]:
        """As ``partitions``; where losses are accepted, without what doesn't exist any more."""
        return await self.partitions(all_exist=self._options.fail_on_data_loss)

    async def look_up(
        self, specs: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, int | None]:
        """Offsets by spec or time; None where no record is that young."""
        if not specs:
            return {}
        found = await (await self._admin()).list_offsets(specs, isolation=self._isolation)
        return {key: None if one is None else one.offset for key, one in found.items()}

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets that are still there."""
        found = await self.look_up(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        return {key: offset or 0 for key, offset in found.items()}

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends, of what may be read under the isolation level."""
        found = await self.look_up(dict.fromkeys(partitions, OffsetSpec.LATEST))
        return {key: offset or 0 for key, offset in found.items()}

    async def starts(
        self, partitions: Iterable[TopicPartition], bound: Bound
    ) -> dict[TopicPartition, int]:
        """Where reading begins.

        Raises:
            InvalidConfig: Offsets or times are not for exactly these partitions, or no record is
                that young.
            DataLoss: Offsets that were given are gone.
        """
        found = await self._resolve(list(partitions), bound, "starting")
        return {key: one for key, one in found.items() if one is not None}

    async def ends(
        self, partitions: Iterable[TopicPartition], bound: Bound
    ) -> dict[TopicPartition, int]:
        """Where a batch ends.

        Raises:
            InvalidConfig, DataLoss: As with ``starts``.
        """
        found = await self._resolve(list(partitions), bound, "ending")
        late = [key for key, one in found.items() if one is None]
        found.update(await self.latest(late))
        return {key: one for key, one in found.items() if one is not None}

    async def _resolve(
        self, partitions: list[TopicPartition], bound: Bound, kind: str
    ) -> dict[TopicPartition, int | None]:
        if bound.spec is not None:
            return await self.look_up(dict.fromkeys(partitions, bound.spec))
        if bound.time is not None:
            return await self._at_times(dict.fromkeys(partitions, bound.time), kind)
        option = f"{kind}Offsets" + ("ByTimestamp" if bound.times else "")
        _check_covered(option, bound.by_partition, partitions)
        if bound.times:
            return await self._at_times(bound.times, kind)
        symbols = {key: OffsetSpec(one) for key, one in bound.offsets.items() if one < 0}
        found: dict[TopicPartition, int | None] = dict(bound.offsets)
        found.update(await self.look_up(symbols))
        exact = {key: one for key, one in bound.offsets.items() if one >= 0}
        found.update(await self._in_log(exact, option))
        return found

    async def _at_times(
        self, times: Mapping[TopicPartition, int], kind: str
    ) -> dict[TopicPartition, int | None]:
        found = await self.look_up(times)
        late = [key for key, one in found.items() if one is None]
        if late and kind == "starting":
            if not self._options.latest_without_match:
                raise InvalidConfig(
                    f"no record of {some_of(late, _SHOWN)} is as young as the starting time "
                    f"{times[late[0]]}",
                    hint="startingOffsetsByTimestampStrategy=latest begins at the end there",
                )
            found.update(await self.latest(late))
        return found

    async def _in_log(
        self, offsets: Mapping[TopicPartition, int], option: str
    ) -> dict[TopicPartition, int]:
        """Offsets that were given, moved into the log where losses are accepted."""
        first, last = await self.earliest(offsets), await self.latest(offsets)
        found = {}
        for key, offset in offsets.items():
            found[key] = min(max(offset, first[key]), last[key])
            if found[key] != offset:
                data_lost(
                    self._options,
                    f"option {option} has {offset} for {key}, whose log has {first[key]} to "
                    f"{last[key]}",
                )
        return found


def _check_covered(
    option: str, given: Mapping[TopicPartition, int], partitions: list[TopicPartition]
) -> None:
    missing = sorted(set(partitions) - set(given))
    unknown = sorted(set(given) - set(partitions))
    if missing or unknown:
        wrong = [f"{some_of(missing, _SHOWN)} is missing"] if missing else []
        wrong += [f"{some_of(unknown, _SHOWN)} isn't read"] if unknown else []
        raise InvalidConfig(
            f"option {option} must have all partitions and no others: {' and '.join(wrong)}",
            hint="-2 is the beginning and -1 the end" if "Timestamp" not in option else None,
        )
