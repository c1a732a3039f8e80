"""What is wrong with the writes of a history: each send against all logs. No state.

Duplicates and order are checked for idempotent producers only. Order: a record that the client had
before another one was sent must lie before it, where both are written to the same partition; a
send that waited for memory and one that came meanwhile may go in either order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.history.record import History, Logs, Outcome, Place, Send, Written
from tests.history.violations import Kind, Report

Found = Mapping[bytes | None, list[tuple[Place, Written]]]


def check_writes(history: History, logs: Logs, report: Report) -> None:
    """Add to ``report`` what is wrong with the writes."""
    found: dict[bytes | None, list[tuple[Place, Written]]] = {}
    for place, records in logs.items():
        for record in records:
            found.setdefault(record.value, []).append((place, record))
    senders = {send.value: send for send in history.sends}
    if len(senders) != len(history.sends):
        raise ValueError("values must be unique: a record is known by its value")
    for send in history.sends:
        _check_send(send, found.get(send.value, []), send.producer in history.idempotent, report)
        _check_reported(send, found, logs, report)
    for value, places in found.items():
        if value not in senders:
            place, record = places[0]
            report.add(Kind.PHANTOM, f"{value!r} at {place}@{record.offset}")
    for place, records in logs.items():
        _check_order(history, place, records, senders, report)


def _check_send(
    send: Send, found: list[tuple[Place, Written]], idempotent: bool, report: Report
) -> None:
    report.written += bool(found)
    if send.outcome is Outcome.OK:
        report.acknowledged += 1
        if not found:
            report.add(Kind.LOST_WRITE, str(send))
    elif send.outcome is Outcome.FAIL:
        report.failed += 1
        if found:
            report.add(Kind.FAILED_WRITE_FOUND, f"{send}, found at {_places(found)}")
    elif send.outcome is Outcome.INFO:
        report.unknown += 1
    else:
        report.add(Kind.UNRESOLVED, str(send))
    if send.again:
        report.add(Kind.RESOLVED_TWICE, f"{send}, told {send.again + 1} times")
    if len(found) > 1 and idempotent:
        report.add(Kind.DUPLICATE, f"{send}, found at {_places(found)}")
    for place, record in found:
        asked_elsewhere = send.partition not in (None, place.partition)
        reported_elsewhere = send.at is not None and send.at[0] != place
        if place.topic != send.topic or asked_elsewhere or reported_elsewhere:
            report.add(Kind.MISROUTED, f"{send}, found at {place}@{record.offset}")
        if (record.key, record.headers) != (send.key, send.headers):
            report.add(
                Kind.ALTERED,
                f"{send}, key {send.key!r} became {record.key!r}, "
                f"headers {send.headers} became {record.headers}",
            )


def _check_reported(send: Send, found: Found, logs: Logs, report: Report) -> None:
    """The reported offset must be the record's."""
    if send.at is None or send.at[1] < 0:
        return
    place, offset = send.at
    mine = found.get(send.value, [])
    if any(where == place and record.offset == offset for where, record in mine):
        return
    there = [record.value for record in logs.get(place, ()) if record.offset == offset]
    report.add(
        Kind.WRONG_OFFSET,
        f"{send}, but there is {there[0] if there else 'nothing'!r}, and it is at {_places(mine)}",
    )


def _check_order(
    history: History,
    place: Place,
    records: Sequence[Written],
    senders: Mapping[bytes | None, Send],
    report: Report,
) -> None:
    """A record must not lie behind one that was sent after the client had taken it."""
    latest: dict[str, Send] = {}
    seen: set[bytes | None] = set()
    for record in records:
        send = senders.get(record.value)
        if send is None or send.producer not in history.idempotent or record.value in seen:
            continue
        seen.add(record.value)
        before = latest.get(send.producer)
        if before is not None and send.taken is not None and send.taken <= before.invoked:
            report.add(Kind.REORDERED, f"{send} lies behind {before} in {place}")
        if before is None or send.invoked > before.invoked:
            latest[send.producer] = send


def _places(found: list[tuple[Place, Written]]) -> str:
    return ", ".join(f"{place}@{record.offset}" for place, record in found) or "no place"
