"""``sasl.jaas.config``: a line in the language of Java's login modules. Sans-IO.

org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";
"""

from __future__ import annotations

import re

from kclient.errors import InvalidConfig

KNOWN = ("username", "password", "tokenauth")
"""Options that errors may name: what looks like another one may be a part of a password."""
_HEAD = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(
    r"""\s+([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+))""", re.DOTALL
)
_END = re.compile(r"\s*;?\s*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """The class of the login module, and its options.

    Raises:
        InvalidConfig: It can't be read. The text isn't shown, as it has a password.
    """
    head = _HEAD.match(text)
    if head is None:
        raise _unreadable("it doesn't begin with a login module and `required`")
    options: dict[str, str] = {}
    at = head.end()
    while found := _OPTION.match(text, at):
        name, *values = found.groups()
        value = next(one for one in values if one is not None)
        quoted = values[2] is None
        options[name] = _ESCAPE.sub(_plain, value) if quoted else value
        at = found.end()
    if not _END.fullmatch(text, at):
        last = next(reversed(options), "")
        after = f"after the option {last}" if last in KNOWN else "after the login module"
        raise _unreadable(f'{after} something isn\'t name="value"; is there a quote too many?')
    return head[1], options


def _plain(escape: re.Match[str]) -> str:
    return _CONTROL.get(escape[1], escape[1])


def _unreadable(why: str) -> InvalidConfig:
    return InvalidConfig(
        f"sasl.jaas.config can't be read: {why}",
        hint='MODULE required username="..." password="...";',
    )
