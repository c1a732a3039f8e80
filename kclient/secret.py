"""A value that must not be shown: passwords, tokens, keys. Sans-IO."""

from __future__ import annotations

from typing import NoReturn

from kclient.errors import InvalidArgument

_HIDDEN = "<secret>"


class Secret:
    """Text that isn't shown by ``str``, ``repr``, formatting, and can't be pickled or copied.

    Where kclient takes a password, it takes one of these, too::

        Security.sasl_scram("orders", Secret(os.environ["KAFKA_PASSWORD"]))

    Args:
        value: The text; another Secret gives its own.

    Raises:
        InvalidArgument: It is no text.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | Secret) -> None:
        if not isinstance(value, str | Secret):
            raise InvalidArgument(f"a secret is a str or a Secret, not a {type(value).__name__}")
        self._value: str = value.reveal() if isinstance(value, Secret) else value

    def reveal(self) -> str:
        """Return the text: for the one place that needs it."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return _HIDDEN

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        return format(_HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a Secret can't be pickled or copied: have each process read it where it is kept"
        )
