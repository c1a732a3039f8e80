"""Bounds of durations, which are seconds everywhere, and the hints for milliseconds. Sans-IO."""

from __future__ import annotations

import math

from kclient.errors import InvalidArgument

MAX_SECONDS = 2_147_483.0
"""As many as the wire's 32 bits of milliseconds can say: nearly 25 days."""
IN_SECONDS = "durations are in seconds: 5 ms is 0.005"
"""A hint against the milliseconds of Java's settings."""
LONGEST_CALL = 900.0
"""Upper bound of a call's ``timeout``, in seconds: a poll or a close of 1000 is meant as 1 s."""
_UNITS = (("days", 86_400), ("hours", 3_600), ("minutes", 60))


def milliseconds_hint(name: str, number: float, minimum: float, maximum: float) -> str:
    """Return what to write for a number of seconds over ``maximum`` that is meant as milliseconds.

    Args:
        name: Of the setting or argument.
        number: What was given.
        minimum, maximum: Seconds that are allowed.
    """
    if number > 1e15:
        return IN_SECONDS
    hint = f"durations are in seconds: {number:.12g} s are over {_readable(number, maximum)}"
    if minimum * 1000 <= number <= maximum * 1000:
        meant = number / 1000
        hint += f"; {meant:g} s is {name}={meant!r}"
    return hint


def _readable(number: float, maximum: float) -> str:
    for unit, size in _UNITS:
        if number > 2 * size:
            return f"{int(number // size):,} {unit}"
    return f"{maximum:g} s"


def call_timeout(
    value: object,
    *,
    name: str = "timeout",
    optional: bool = False,
    positive: bool = False,
    finite: bool = False,
    maximum: float = LONGEST_CALL,
) -> float:
    """Return the seconds of a call's argument; ``math.inf`` has no limit.

    Args:
        value: What the caller gave.
        name: Of the argument.
        optional: Whether None is allowed, and means ``math.inf``.
        positive: Whether 0 is refused.
        finite: Whether ``math.inf`` is refused.
        maximum: Seconds that are allowed, but for ``math.inf``.

    Raises:
        InvalidArgument: No number of seconds from 0, or over ``maximum``.
    """
    if value is None and optional:
        return math.inf
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise _no_timeout(name, value, optional, positive)
    if (positive and value == 0) or (finite and value == math.inf):
        raise _no_timeout(name, value, optional, positive)
    if maximum < value < math.inf:
        endless = "" if finite else f", or {'None' if optional else 'math.inf'} for no limit"
        raise InvalidArgument(
            f"{name}={value!r} can't be used: allowed are seconds up to {maximum:g}{endless}",
            hint=milliseconds_hint(name, value, 0.0, maximum),
        )
    return float(value)


def _no_timeout(name: str, value: object, optional: bool, positive: bool) -> InvalidArgument:
    least = "above 0" if positive else "of at least 0"
    also = ", or None" if optional else ""
    return InvalidArgument(f"{name} must be seconds {least}{also}, not {value!r}")
