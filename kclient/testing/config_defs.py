"""Kafka's configuration values: kinds, bounds, and the words in which a bad one is refused.

The tables are in ``topic_configs.py`` and ``broker_configs.py``. Values are kept as the strings
that Kafka shows; ``parse`` gives the Python value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.testing.refused import Refused

Value: TypeAlias = int | float | bool | str | list[str]

MAX_LONG = (1 << 63) - 1
MAX_INT = (1 << 31) - 1

_BITS = {"INT": 31, "LONG": 63}
_NUMBER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One configuration: its kind in Kafka's words, default and limits."""

    name: str
    kind: str
    """BOOLEAN, INT, LONG, DOUBLE, STRING or LIST."""
    default: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    or_value: int | None = None
    """A number that is allowed beside those from ``low`` to ``high``."""

    def parse(self, text: str) -> Value:
        """The Python value of ``text``.

        Raises:
            Refused: INVALID_CONFIG, in the words of Kafka.
        """
        if self.kind == "BOOLEAN":
            return self._boolean(text)
        if self.kind == "LIST":
            return self._list(text)
        if self.kind == "STRING":
            if self.choices and text not in self.choices:
                raise self._bad(text, f"String must be one of: {', '.join(self.choices)}")
            return text
        return self._number(text)

    def _boolean(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise self._bad(text, "Expected value to be either true or false")
        return word == "true"

    def _list(self, text: str) -> list[str]:
        items = [item.strip() for item in text.split(",")] if text.strip() else []
        for item in items:
            if self.choices and item not in self.choices:
                raise self._bad(item, f"String must be one of: {', '.join(self.choices)}")
        return items

    def _number(self, text: str) -> int | float:
        number = self._read_number(text.strip())
        if number is None:
            raise self._bad(text, f"Not a number of type {self.kind}")
        if number == self.or_value:
            return number
        if self.or_value is not None and self._outside(number):
            words = f"Value must be between {self.low} and {self.high} or equal to {self.or_value}"
            raise self._bad(str(number), words)
        if self.low is not None and number < self.low:
            raise self._bad(str(number), f"Value must be at least {self.low}")
        if self.high is not None and number > self.high:
            raise self._bad(str(number), f"Value must be no more than {self.high}")
        return number

    def _outside(self, number: float) -> bool:
        return (self.low is not None and number < self.low) or (
            self.high is not None and number > self.high
        )

    def _read_number(self, text: str) -> int | float | None:
        if self.kind == "DOUBLE":
            try:
                return float(text)
            except ValueError:
                return None
        if not _NUMBER.fullmatch(text):
            return None
        number = int(text)
        limit = 1 << _BITS[self.kind]
        return number if -limit <= number < limit else None

    def _bad(self, text: str, why: str) -> Refused:
        return Refused(
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text} for configuration {self.name}: {why}",
        )


def as_text(value: object) -> str:
    """A Python value in the form of Kafka's property files."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def as_texts(values: Mapping[str, object]) -> dict[str, str]:
    """``as_text`` of each value."""
    return {name: as_text(value) for name, value in values.items()}
