"""Kafka's configuration values: kinds, limits, and the words in which a bad one is refused.

The definitions come from ``config_tables``; ``topic_configs.py`` and ``broker_configs.py`` say
what those of topics and brokers mean here. Values are kept as the strings that clients give;
``parse`` gives the Python value and ``text_of`` Kafka's way to show it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kclient.error_codes import ErrorCode
from kclient.testing.refused import Refused

Value: TypeAlias = int | float | bool | str | list[str] | None

_BITS = {"SHORT": 15, "INT": 31, "LONG": 63}
_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?"
    r"|0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+[fFdD]?)",
    re.ASCII,
)
_RANGE = re.compile(r"(?:(?P<other>-?\d+)\|)?(?P<low>-?[0-9.]*?)\.\.(?P<high>-?[0-9.]*)")
_PACKAGE = "org.apache.kafka."
_REPLICAS = re.compile(r"\d+:\d+")
_VOTER = re.compile(r"\d+@[^:]+:\d+")
_SERVER = re.compile(r".*?\[?([0-9a-zA-Z\-%._:]*)\]?:[0-9]+")
_DURATION = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """One configuration: its kind in Kafka's words, default and limits."""

    name: str
    kind: str
    """BOOLEAN, SHORT, INT, LONG, DOUBLE, STRING, LIST, CLASS or PASSWORD."""
    default: str | None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    or_value: int | None = None
    """A number that is allowed beside those from ``low`` to ``high``."""
    rule: str = ""
    """What else is checked: ``filled`` (not empty), ``any case`` (of the choices), ``replicas``,
    ``voters``, ``servers`` or ``reset``."""
    mode: str = "d"
    """How it may change: r not at all, b per broker, c for all brokers, d freely."""
    internal: bool = False
    """Never described."""
    broker_name: str | None = None
    """The broker's configuration that gives its default."""

    @property
    def is_sensitive(self) -> bool:
        """Its value is never told."""
        return self.kind == "PASSWORD"

    def parse(self, text: str) -> Value:
        """The Python value of ``text``.

        Raises:
            Refused: INVALID_CONFIG, in the words of Kafka.
        """
        if self.kind == "BOOLEAN":
            return self._boolean(text)
        if self.kind == "LIST":
            return self._list(text)
        if self.kind == "CLASS":
            return self._class(text)
        if self.kind == "STRING":
            return self._string(text.strip())
        return text.strip() if self.kind == "PASSWORD" else self._number(text)

    def _boolean(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise self._bad(text, "Expected value to be either true or false")
        return word == "true"

    def _class(self, text: str) -> str:
        if text != self.default and not text.startswith((_PACKAGE, "java.")):
            raise self._bad(text, f"Class {text} could not be found.")
        return text

    def _string(self, text: str) -> str:
        if self.rule == "filled" and not text:
            raise self._bad(text, "String must be non-empty")
        if self.rule == "any case":
            if text.upper() not in self.choices:
                words = f"String must be one of (case insensitive): {', '.join(self.choices)}"
                raise self._bad(text, words)
        elif self.choices and text not in self.choices:
            raise self._bad(text, f"String must be one of: {', '.join(self.choices)}")
        elif self.rule == "reset" and not _is_reset(text):
            raise self._bad(text, _RESET_WORDS.format(text, self.name))
        return text

    def _list(self, text: str) -> list[str]:
        text = text.strip()
        items = [item.strip() for item in text.split(",")] if text else []
        if self.rule in ("filled", "list"):
            items = list(dict.fromkeys(items))
            self._check_items(items)
        elif self.rule in _LIST_RULES:
            _LIST_RULES[self.rule](self, items)
        return items

    def _check_items(self, items: list[str]) -> None:
        if not items and self.rule == "filled":
            known = f"[{', '.join(self.choices)}]" if self.choices else "any non-empty value"
            raise _invalid(
                f"Configuration '{self.name}' must not be empty. Valid values include: {known}"
            )
        for item in items:
            if not item:
                raise _invalid(f"Configuration '{self.name}' values must not be empty.")
            if self.choices and item not in self.choices:
                raise self._bad(item, f"String must be one of: {', '.join(self.choices)}")

    def _number(self, text: str) -> int | float:
        number = self._read_number(text.strip())
        if number is None:
            raise self._bad(text, f"Not a number of type {self.kind}")
        if number == self.or_value:
            return number
        if self.or_value is not None and self._outside(number):
            words = f"Value must be between {self.low} and {self.high} or equal to {self.or_value}"
            raise self._bad(_number_text(number), words)
        if self.low is not None and number < self.low:
            raise self._bad(_number_text(number), f"Value must be at least {self.low}")
        if self.high is not None and number > self.high:
            raise self._bad(_number_text(number), f"Value must be no more than {self.high}")
        return number

    def _outside(self, number: float) -> bool:
        return (self.low is not None and number < self.low) or (
            self.high is not None and number > self.high
        )

    def _read_number(self, text: str) -> int | float | None:
        if self.kind == "DOUBLE":
            return _read_double(text)
        if not _INTEGER.fullmatch(text):
            return None
        number = int(text)
        limit = 1 << _BITS[self.kind]
        return number if -limit <= number < limit else None

    def check_replicas(self, items: list[str]) -> None:
        """Raise Refused unless these are replicas to throttle."""
        if items in ([], ["*"]) or all(_REPLICAS.fullmatch(item) for item in items):
            return
        raise self._bad(
            f"[{', '.join(items)}]",
            f"{self.name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )

    def check_voters(self, items: list[str]) -> None:
        """Raise Refused unless these are voters of a quorum."""
        if not all(_VOTER.fullmatch(item) for item in items):
            raise _invalid(
                f"Invalid configuration value for {self.name}. Each entry should be in the form "
                "`{id}@{host}:{port}`."
            )

    def check_servers(self, items: list[str]) -> None:
        """Raise Refused unless these are addresses."""
        for item in items:
            if not _SERVER.fullmatch(item):
                raise _invalid(
                    f"Failed to parse host name from {item} for the configuration {self.name}. "
                    'Each entry should be in the form "{host}:{port}"'
                )

    def _bad(self, text: str, why: str) -> Refused:
        return _invalid(f"Invalid value {text} for configuration {self.name}: {why}")


_LIST_RULES = {
    "replicas": ConfigDef.check_replicas,
    "voters": ConfigDef.check_voters,
    "servers": ConfigDef.check_servers,
}
_RESET_WORDS = (
    "Invalid value `{}` for configuration {}. The value must be either 'earliest', 'latest' or of "
    "the format 'by_duration:<PnDTnHnMn.nS>'."
)


def _invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_CONFIG, message)


def _is_reset(text: str) -> bool:
    return text in ("latest", "earliest") or _DURATION.fullmatch(text) is not None


def _read_double(text: str) -> float | None:
    if not _DOUBLE.fullmatch(text):
        return None
    if "x" in text or "X" in text:
        return float.fromhex(text.rstrip("fFdD"))
    return float(text if text.endswith("Infinity") else text.rstrip("fFdD"))


def read_table(table: str) -> dict[str, ConfigDef]:
    """The definitions in a text of ``config_tables/definitions.py``, by name."""
    return {one.name: one for one in map(_read_row, table.splitlines())}


def _read_row(line: str) -> ConfigDef:
    name, kind, mode, limits, broker_name, *rest = line.split(" ", 5)
    default = rest[0] if rest else ""
    low: float | None = None
    high: float | None = None
    other, rule, choices = None, limits, ""
    found = _RANGE.fullmatch(limits)
    if found:
        rule = ""
        low, high = _bound(found["low"]), _bound(found["high"])
        other = None if found["other"] is None else int(found["other"])
    elif limits == "*":
        rule = ""
    elif limits[0] in "=~":
        rule, choices = "any case" if limits[0] == "~" else "", limits[1:]
    elif "=" in limits:
        rule, _, choices = limits.partition("=")
    return ConfigDef(
        name,
        kind,
        None if default == "~" else default.replace("@", _PACKAGE),
        low,
        high,
        tuple(choices.split("|")) if choices else (),
        other,
        rule,
        mode[-1],
        mode[0] == "i",
        None if broker_name == "-" else broker_name,
    )


def _bound(text: str) -> float | None:
    if not text:
        return None
    return float(text) if "." in text else int(text)


def text_of(value: Value) -> str | None:
    """A parsed value as Kafka shows it."""
    if value is None:
        return None
    return _java_double(value) if isinstance(value, float) else as_text(value)


def _number_text(number: float) -> str:
    return _java_double(number) if isinstance(number, float) else str(number)


def _java_double(value: float) -> str:
    """As Java's ``Double.toString``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value) if "e" not in repr(value) else f"{value:f}".rstrip("0")
    sign = "-" if value < 0 else ""
    digits, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, part = digits.partition(".")
    shift = int(exponent or 0) + len(whole) - 1
    mantissa = (whole + part).strip("0") if whole != "0" else part.lstrip("0")
    if whole == "0":
        shift = -(len(part) - len(part.lstrip("0")) + 1)
    return f"{sign}{mantissa[0]}.{mantissa[1:] or '0'}E{shift}"


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
