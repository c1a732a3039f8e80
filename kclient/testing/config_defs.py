"""Kafka's configuration values: their kinds and limits.

The definitions come from ``config_tables``; ``topic_configs.py`` and ``broker_configs.py`` define
what those of topics and brokers mean here. Values are kept as the strings that clients send;
``parse`` returns the Python value and ``as_text`` Kafka's text form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kclient.testing.responses import bad_config

Value: TypeAlias = int | float | bool | str | list[str] | None

_LIMITS = {"SHORT": 1 << 15, "INT": 1 << 31, "LONG": 1 << 63, "DOUBLE": float("inf")}
_RANGE = re.compile(r"(?:(?P<other>-?\d+)\|)?(?P<low>-?[0-9.]*?)\.\.(?P<high>-?[0-9.]*)")
_PACKAGE = "org.apache.kafka."
_ITEMS = {
    "replicas": re.compile(r"\d+:\d+"),
    "voters": re.compile(r"\d+@[^:]+:\d+"),
    "servers": re.compile(r".*?\[?([0-9a-zA-Z\-%._:]*)\]?:[0-9]+"),
}
"""The pattern of each item of a list, by the rule of the list."""
_RESET = re.compile(
    r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?"
)


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
    """A number that is allowed in addition to those from ``low`` to ``high``."""
    rule: str = ""
    """An additional check: ``filled`` (not empty), ``any case`` (of the choices), ``replicas``,
    ``voters``, ``servers`` or ``reset``."""
    mode: str = "d"
    """How it may be updated: r read-only, b per broker, c for all brokers, d at any level."""
    internal: bool = False
    """Never described."""
    broker_name: str | None = None
    """The broker's configuration that gives its default."""

    @property
    def is_sensitive(self) -> bool:
        """Whether responses leave out its value."""
        return self.kind == "PASSWORD"

    def parse(self, text: str) -> Value:
        """The Python value of ``text``.

        Raises:
            ApiError: INVALID_CONFIG.
        """
        value = self._read(text.strip())
        if value is None:
            raise bad_config(f"{self.name} can't be {text!r}.")
        return value

    def _read(self, text: str) -> Value:
        if self.kind == "BOOLEAN":
            return {"true": True, "false": False}.get(text.lower())
        if self.kind == "LIST":
            return self._list(text)
        if self.kind == "PASSWORD":
            return text
        if self.kind == "CLASS":
            return text if text == self.default or text.startswith((_PACKAGE, "java.")) else None
        return self._string(text) if self.kind == "STRING" else self._number(text)

    def _string(self, text: str) -> str | None:
        word = text.upper() if self.rule == "any case" else text
        if self.choices and word not in self.choices:
            return None
        if self.rule == "filled" and not text:
            return None
        return None if self.rule == "reset" and not _RESET.fullmatch(text) else text

    def _list(self, text: str) -> list[str] | None:
        items = [item.strip() for item in text.split(",")] if text else []
        if self.rule in ("filled", "list"):
            items = list(dict.fromkeys(items))
            known = self.choices or items
            fits = all(item and item in known for item in items)
            return items if fits and (items or self.rule == "list") else None
        each = _ITEMS.get(self.rule)
        if each is None or (self.rule == "replicas" and items == ["*"]):
            return items
        return items if all(each.fullmatch(item) for item in items) else None

    def _number(self, text: str) -> int | float | None:
        try:
            number = float(text) if self.kind == "DOUBLE" else int(text)
        except ValueError:
            return None
        limit = _LIMITS[self.kind]
        low = -limit if self.low is None else self.low
        high = limit if self.high is None else self.high
        fits = number == self.or_value or low <= number <= high
        return number if fits and -limit <= number < limit and "_" not in text else None


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


def as_text(value: object) -> str:
    """A Python value in the form of Kafka's property files."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).replace("e+", "E")
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value)


def as_texts(values: Mapping[str, object]) -> dict[str, str]:
    """``as_text`` of each value."""
    return {name: as_text(value) for name, value in values.items()}
