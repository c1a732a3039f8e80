"""Judge a run: the outcomes that clients saw against the logs, by ``tests.history``.

Writes are judged producer by producer and reads partition by partition, so that only a part of
millions of records is in objects at a time. ``run`` calls ``judge``, which asks no cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.ledger import Account, Fate, Ledger
from tests.chaos.readers import Act, Trail
from tests.chaos.records import Recipe
from tests.chaos.rows import Rows
from tests.history import History, Kind, Place, Report, Written, check
from tests.history.reads import Reads


@dataclass(slots=True)
class Verdict:
    """What is wrong.

    Attributes:
        report: Of the history checker.
        unsaid: Failures that don't say whether the record may have been written.
        unread: Partitions of whose log fewer or more records were read than its offsets span.
    """

    report: Report = field(default_factory=Report)
    unsaid: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether nothing is wrong."""
        return bool(self.report) and not self.unsaid and not self.unread


def judge(
    topic: str,
    ledger: Ledger,
    recipe: Recipe,
    logs: Mapping[int, Rows],
    *,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    trails: Mapping[str, Mapping[int, Trail]],
) -> Verdict:
    """Return what is wrong with a run.

    Args:
        logs: Partition -> what was read back.
        starts: Partition -> the first offset of its log, from its leader.
        ends: Partition -> the end of its log.
        trails: Consumer -> partition -> what it was given; all had been read to the end.
    """
    verdict = Verdict()
    for number, account in enumerate(ledger.accounts):
        _add(verdict.report, _writes(topic, number, account, recipe, logs))
        verdict.unsaid += [
            f"{account.name} {at}: {why}"
            for at, why in account.why.items()
            if account.fate[at] == Fate.UNSAID
        ]
    for partition, rows in logs.items():
        place = Place(topic, partition)
        for written in rows.nobodys(len(ledger.accounts)):
            verdict.report.add(Kind.PHANTOM, f"{written.value!r} at {place}@{written.offset}")
        there = {consumer: trail[partition] for consumer, trail in trails.items()}
        _add(verdict.report, _reads(place, rows, there))
        if len(rows) != ends[partition] - starts[partition]:  # nothing is deleted or compacted
            verdict.unread.append(
                f"{place} has {len(rows)} records from {starts[partition]} to {ends[partition]}"
            )
    return verdict


def _writes(
    topic: str, number: int, account: Account, recipe: Recipe, logs: Mapping[int, Rows]
) -> Report:
    """Judge what one producer wrote."""
    history = History(lean=True)
    history.producer(account.name)
    for at, fate in enumerate(account.fate):
        key, value, headers, partition = recipe.make(number, at)
        send = history.send(
            account.name, topic, value, partition=partition, key=key, headers=headers
        )
        if at not in account.refused:
            history.taken(send)
        times = 1 + account.again.get(at, 0)
        for _ in range(times if fate != Fate.PENDING else 0):
            if fate == Fate.OK:
                history.ok(send, Place(topic, account.partition[at]), account.offset[at])
            elif fate == Fate.NOT_WRITTEN:
                history.fail(send, account.why[at])
            else:
                history.info(send, account.why[at])
    return check(
        history,
        {Place(topic, partition): list(rows.of(number)) for partition, rows in logs.items()},
    )


def _reads(place: Place, rows: Rows, trails: Mapping[str, Trail]) -> Report:
    """Judge what was read in one partition."""
    history = History(lean=True)
    for consumer, trail in trails.items():
        history.position(consumer, place, 0)  # so that one that was given nothing is known, too
        for act, at in trail.steps():
            if act is Act.GIVEN:
                history.delivered(consumer, [(place, trail.given[at])])
            elif act is Act.SEEK:
                history.seek(consumer, place, at)
            elif act is Act.PAUSE:
                history.pause(consumer, place)
            elif act is Act.RESUME:
                history.resume(consumer, place)
            else:
                history.position(consumer, place, at)
    report = Report()
    reads = Reads({place: _all(rows)}, report)
    reads.walk(history)
    reads.finish({consumer: [place] for consumer in trails})
    return report


def _all(rows: Rows) -> list[Written]:
    return [rows[at] for at in range(len(rows))]


def _add(whole: Report, part: Report) -> None:
    whole.violations += part.violations
    whole.written += part.written
    whole.acknowledged += part.acknowledged
    whole.failed += part.failed
    whole.unknown += part.unknown
    whole.delivered += part.delivered
