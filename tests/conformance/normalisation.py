"""The rules of `normalisation.toml`: which fields of two transcripts can't be equal, and why.

`compare.py` applies all of them to both sides. A rule is about one field, of one API or several:

    mask     any value but null, -1, the empty ones and those that `keep` names
    skip     any value: the field isn't compared
    now      milliseconds within three hours of this moment
    symbol   ids but null, -1, the empty ones and those that `keep` names become names in the order
             in which they are first seen; `as` names their kind; of a text with a UUID in it, that
    sort     a list whose order means nothing, by the fields that `by` names
    own      in a listing of all that the cluster has, only what this run created: `by` names the
             field with the run's token in it
    served   of a list, only what the embedded cluster has, too: `by` names the field, `only` has
             its values; without `only` these are the keys of the served APIs

A path consists of field names; `[]` behind a list means each of its elements, `**.` in front means
at any depth. `proof` names, for each API of the rule, a scenario that differs without the rule.
"""

from __future__ import annotations

import json
import re
import time
import tomllib
from collections.abc import Callable, Collection
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from kclient.testing.api_versions import VERSIONS
from tests.conformance.run import Exchange, Transcript

FILE = Path(__file__).with_name("normalisation.toml")
MOST_RULES = 40
HOWS = ("mask", "skip", "now", "symbol", "sort", "own", "served")
_NOTHING = (None, -1, "", "00" * 16)
"""Values that mean that there is none: these are always compared."""
_NEAR_MS = 3 * 3_600_000
_UUID = re.compile("-".join(f"[0-9a-f]{{{size}}}" for size in (8, 4, 4, 4, 12)))
_ANYWHERE = "**."

Change: TypeAlias = Callable[[Any], Any]


class BadRule(ValueError):
    """An invalid rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; see the module's text."""

    api: tuple[str, ...]
    path: str
    how: str
    reason: str
    proof: tuple[str, ...]
    by: str = ""
    kind: str = ""
    keep: tuple[Any, ...] = ()
    only: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.how} {self.path} of {', '.join(self.api)}"


@dataclass(slots=True)
class _Names:
    """Symbols given so far in one transcript."""

    known: dict[tuple[str, Any], str] = field(default_factory=dict)

    def of(self, kind: str, value: Any) -> str:
        count = sum(1 for one, _ in self.known if one == kind)
        return self.known.setdefault((kind, value), f"<{kind} {count + 1}>")


def load(path: Path = FILE) -> list[Rule]:
    """Read the rules, in the order in which they are applied.

    Raises:
        BadRule: A rule lacks a field, or has one too many.
    """
    rules = [_rule(row) for row in tomllib.loads(path.read_text())["rule"]]
    if len(rules) > MOST_RULES:
        raise BadRule(f"{len(rules)} rules, where {MOST_RULES} are allowed")
    return sorted(rules, key=lambda rule: -HOWS.index(rule.how))


def _rule(row: dict[str, Any]) -> Rule:
    row = {"kind" if key == "as" else key: value for key, value in row.items()}
    try:
        rule = Rule(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
    except TypeError as error:
        raise BadRule(f"{row}: {error}") from None
    if rule.how not in HOWS:
        raise BadRule(f"{rule}: how is one of {', '.join(HOWS)}")
    if (rule.how == "symbol") != bool(rule.kind):
        raise BadRule(f"{rule}: symbols have `as`, and nothing else has")
    if (rule.how in ("sort", "own", "served")) != bool(rule.by):
        raise BadRule(f"{rule}: sort, own and served have `by`, and nothing else has")
    if len(rule.reason.split()) < 4:
        raise BadRule(f"{rule}: the reason is missing")
    if len(rule.proof) != len(rule.api):
        raise BadRule(f"{rule}: it needs a proof for each API")
    return rule


def normalised(transcript: Transcript, rules: list[Rule]) -> list[Exchange]:
    """A copy of the exchanges, with the rules applied."""
    names = _Names()
    out = deepcopy(transcript.exchanges)
    for exchange in out:
        if isinstance(exchange.answer, str):
            continue
        for rule in rules:
            if exchange.api in rule.api and (exchange.listing or rule.how != "own"):
                _rewrite(exchange.answer, rule.path, _change(rule, transcript, names))
    return out


def _rewrite(node: dict[str, Any], path: str, change: Change) -> None:
    if path.startswith(_ANYWHERE):
        name = path.removeprefix(_ANYWHERE)
        _rewrite(node, name, change)
        for value in node.values():
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, dict):
                    _rewrite(child, path, change)
        return
    first, _, rest = path.partition(".")
    name = first.removesuffix("[]")
    found = node.get(name)
    each = first.endswith("[]")
    if name not in node or (found is None and each):
        return
    if not rest:
        node[name] = [change(one) for one in found] if each else change(found)
        return
    for child in found if each else [found]:
        if isinstance(child, dict):
            _rewrite(child, rest, change)


def _change(rule: Rule, transcript: Transcript, names: _Names) -> Change:
    kept = (*_NOTHING, *rule.keep)
    return {
        "mask": lambda value: value if value in kept else "<masked>",
        "skip": lambda _: "<not compared>",
        "now": _now,
        "symbol": lambda value: value if value in kept else _symbol(value, rule.kind, names),
        "sort": lambda value: value and sorted(value, key=lambda one: _key(one, rule.by)),
        "own": lambda value: _kept(value, lambda one: transcript.token in str(one[rule.by])),
        "served": lambda value: _kept(value, lambda one: one[rule.by] in _served(rule)),
    }[rule.how]


def _symbol(value: Any, kind: str, names: _Names) -> str:
    if isinstance(value, str) and _UUID.search(value):
        return _UUID.sub(lambda found: names.of(kind, found[0]), value)
    return names.of(kind, value)


def _kept(value: list[Any] | None, wanted: Callable[[Any], bool]) -> list[Any] | None:
    return None if value is None else [one for one in value if wanted(one)]


def _served(rule: Rule) -> Collection[Any]:
    return rule.only or VERSIONS


def _now(value: Any) -> Any:
    """Replace a number of milliseconds that is about now."""
    near = isinstance(value, int) and abs(value - time.time() * 1000) < _NEAR_MS
    return "<now>" if near else value


def _key(one: Any, by: str) -> str:
    if not isinstance(one, dict):
        return json.dumps(one)
    return json.dumps([one.get(name) for name in by.split(",")], sort_keys=True)
