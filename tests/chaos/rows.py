"""Records as they were received, kept as numbers: the final logs, and what consumers were given.

A record that is what ``records`` makes is kept by its name only; any other is kept whole, since
something is wrong with it. ``readback`` and ``readers`` fill them, ``judge`` takes them apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.chaos.records import Recipe, name_of
from tests.history import Written

if TYPE_CHECKING:
    from kclient import ConsumerRecord

_ODD = -1


class Rows:
    """Records in the order in which they came."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._offsets = array("q")
        self._producers = array("h")
        self._numbers = array("q")
        self._odd: list[Written] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, record: ConsumerRecord[bytes, bytes]) -> None:
        """Take one as a consumer of kclient gives it."""
        self.put(
            Written(record.offset, record.key, record.value, tuple(record.headers)),
        )

    def put(self, written: Written) -> None:
        """Take one."""
        name = name_of(written.value)
        known = name is not None and self._is(written, *name)
        producer, number = name if name is not None and known else (_ODD, len(self._odd))
        self._offsets.append(written.offset)
        self._producers.append(producer)
        self._numbers.append(number)
        if not known:
            self._odd.append(written)

    def offset(self, at: int) -> int:
        """The offset of the row at ``at``."""
        return self._offsets[at]

    def __getitem__(self, at: int) -> Written:
        producer, number = self._producers[at], self._numbers[at]
        if producer == _ODD:
            return self._odd[number]
        made = self._recipe.make(producer, number)
        return Written(self._offsets[at], made.key, made.value, made.headers)

    def of(self, producer: int) -> Iterator[Written]:
        """Those of one producer, and odd ones that name it as theirs."""
        for at, whose in enumerate(self._producers):
            if whose == producer:
                yield self[at]
            elif whose == _ODD:
                name = name_of(self._odd[self._numbers[at]].value)
                if name is not None and name[0] == producer:
                    yield self[at]

    def nobodys(self, producers: int) -> Iterator[Written]:
        """Odd ones that name none of the ``producers``."""
        for written in self._odd:
            name = name_of(written.value)
            if name is None or name[0] >= producers:
                yield written

    def _is(self, written: Written, producer: int, number: int) -> bool:
        made = self._recipe.make(producer, number)
        return (written.key, written.value, written.headers) == made[:3]
