"""Guard: one entry of a ``*.toml`` in this folder, checked when it is read.

An entry::

    [[guard]]
    pitfall = "15"          # the number in the list of pitfalls, or a name
    about = "a response with another correlation id closes the connection"
    file = "kclient/network/in_flight.py"
    find = '''exact text, in the file exactly once'''
    replace = '''the text without the guard'''
    tests = ["tests/virtual/test_pitfalls_network.py::test_pitfall_15_..."]
    pure = false            # true: run on the pure build, for guards in compiled sources
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

_KEYS = frozenset(("pitfall", "about", "file", "find", "replace", "tests"))
_OPTIONAL = frozenset(("pure",))


class BadGuard(ValueError):
    """An entry that can't be tried."""


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard, and the tests that must notice its removal.

    Attributes:
        pitfall: Its number in the list of pitfalls, or a name.
        about: What the guard does, in a line.
        file: Where it stands, from the project's root.
        find: The text that is taken out; exactly once in ``file``.
        replace: What stands there without the guard.
        tests: Node ids; at least one of them must fail then.
        pure: Run on the pure build.
        source: The toml that it comes from, for texts.
    """

    pitfall: str
    about: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    pure: bool = False
    source: str = ""

    def removed_from(self, text: str) -> str:
        """``text`` of the file without the guard.

        Raises:
            BadGuard: ``find`` isn't in there exactly once.
        """
        count = text.count(self.find)
        if count != 1:
            raise BadGuard(f"the text to find is {count} times in {self.file}, not once")
        return text.replace(self.find, self.replace)


def read(path: Path) -> list[Guard]:
    """The guards of one file.

    Raises:
        BadGuard: An entry has a key too few or too many, or one of the wrong type.
    """
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise BadGuard(f"{path.name}: {error}") from error
    if content.keys() != {"guard"}:
        raise BadGuard(f"{path.name} must hold [[guard]] entries and nothing else")
    return [
        _guard(entry, path.name, number) for number, entry in enumerate(content["guard"], start=1)
    ]


def _guard(entry: dict[str, object], source: str, number: int) -> Guard:
    where = f"{source}, entry {number} ({entry.get('pitfall', '?')})"
    missing, unknown = _KEYS - entry.keys(), entry.keys() - _KEYS - _OPTIONAL
    if missing or unknown:
        raise BadGuard(f"{where}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    tests, pure = entry["tests"], entry.get("pure", False)
    if not isinstance(tests, list) or not tests or not all(isinstance(t, str) for t in tests):
        raise BadGuard(f"{where}: tests must be a list of node ids that isn't empty")
    if not isinstance(pure, bool):
        raise BadGuard(f"{where}: pure must be true or false")
    texts = {key: entry[key] for key in _KEYS - {"tests"}}
    for key, value in texts.items():
        if not isinstance(value, str) or (not value and key != "replace"):
            raise BadGuard(f"{where}: {key} must be a text")
    if texts["find"] == texts["replace"]:
        raise BadGuard(f"{where}: find and replace are the same")
    return Guard(tests=tuple(tests), pure=pure, source=source, **texts)  # type: ignore[arg-type]
