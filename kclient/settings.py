"""The machinery under ``config``: how a setting is declared, checked and read from properties.

A settings class is a frozen dataclass whose fields are made by ``setting``; ``Settings`` checks
every field as soon as an instance is made. No setting is known here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

from kclient.durations import IN_SECONDS, MAX_SECONDS, milliseconds_hint
from kclient.errors import InvalidConfig, a_or_an
from kclient.frozen import Frozen

if TYPE_CHECKING:
    import inspect
    import os

Check = Callable[[str, Any], Any]
S = TypeVar("S", bound="Settings")


def setting(default: Any, check: Check, doc: str, kafka: str | None = None) -> Any:
    """Declare one field: its default, the check that also normalises, its doc, Kafka's name."""
    return dataclasses.field(default=default, metadata={"check": check, "doc": doc, "kafka": kafka})


def _refuse(name: str, value: object, allowed: str, hint: str | None = None) -> InvalidConfig:
    return InvalidConfig(f"{name}={value!r} can't be used: allowed is {allowed}", hint=hint)


def seconds(
    minimum: float, maximum: float, *, optional: bool = False, endless: bool = False
) -> Check:
    """A duration in seconds within bounds.

    Args:
        minimum: The shortest.
        maximum: The longest; chosen so that the usual values in milliseconds are above it.
        optional: Whether None is allowed, and with ``endless`` the same as ``math.inf``.
        endless: Whether ``math.inf`` is allowed; it becomes ``MAX_SECONDS``, or None.
    """
    others = ["math.inf"] * endless + ["None"] * optional
    allowed = f"a number of seconds from {minimum:g} to {maximum:,g}"
    allowed += f", or {' or '.join(others)}" if others else ""

    def check(name: str, value: Any) -> float | None:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not (isinstance(value, (int, float)) or _is_real(value)):
            raise _refuse(name, value, allowed)
        try:
            number = float(value)
        except OverflowError:
            raise _refuse(name, value, allowed, IN_SECONDS) from None
        if endless and number in (math.inf, MAX_SECONDS):
            return None if optional else MAX_SECONDS
        if not minimum <= number <= maximum:
            long = maximum < number < math.inf
            hint = milliseconds_hint(name, number, minimum, maximum) if long else None
            raise _refuse(name, value, allowed, hint)
        return number

    check.__doc__ = allowed
    return check


def _is_real(value: object) -> bool:
    """Whether it is a number such as a Fraction."""
    import numbers  # not needed for an int or a float

    return isinstance(value, numbers.Real)


def integer(minimum: int, maximum: int, *, optional: bool = False) -> Check:
    """A whole number within bounds; None only if ``optional``."""
    allowed = f"an int from {minimum:,} to {maximum:,}" + (", or None" if optional else "")

    def check(name: str, value: Any) -> int | None:
        if value is None and optional:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise _refuse(name, value, allowed)
        if not minimum <= value <= maximum:
            raise _refuse(name, value, allowed)
        return int(value)

    check.__doc__ = allowed
    return check


def choice(*options: Any, besides: str = "") -> Check:
    """One of the given values; the type counts too, so that True is not 1.

    ``besides`` says in an error what else the caller allows.
    """
    allowed = "one of " + ", ".join(repr(option) for option in options) + besides

    def check(name: str, value: Any) -> Any:
        for option in options:
            if type(value) is type(option) and value == option:
                return option
        raise _refuse(name, value, allowed, _meant(value, options))

    check.__doc__ = allowed
    return check


def _meant(value: object, options: Sequence[Any]) -> str | None:
    """A guess at the option that a str nearly is; None in other clients is "none" here."""
    if value is None:
        value = "none"
    if not isinstance(value, str):
        return None
    known = {str(option).lower(): option for option in options if option is not None}
    near = nearest(value.lower(), known)
    return None if near is None else f"did you mean {known[near]!r}?"


_DURATION = (
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?"
    r"(?:([-+]?\d+)(?:[.,](\d{0,9}))?S)?)?"
)


def iso_duration_ns(said: str) -> int:
    """Int nanoseconds of an ISO 8601 duration such as "P1DT2H30M0.5S"; can be below 0.

    Takes what Java's ``Duration.parse`` takes: days of 24 hours and no longer units, a sign before
    the whole and before each number, fractions of seconds only.

    Raises:
        ValueError: It is none, or longer than 64 bits of seconds.
    """
    import re  # not needed without such a duration

    found = re.fullmatch(_DURATION, said, re.ASCII | re.IGNORECASE)
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"{said!r} is no ISO 8601 duration of days, hours, minutes and seconds")
    sign, days, hours, minutes, whole, fraction = found.groups()
    seconds = (int(days or 0) * 24 + int(hours or 0)) * 3600 + int(minutes or 0) * 60
    nanos = int((fraction or "").ljust(9, "0"))
    if (whole or "").startswith("-"):
        nanos = -nanos
    total = (seconds + int(whole or 0)) * 1_000_000_000 + nanos
    if not -(2**63) <= total // 1_000_000_000 < 2**63:
        raise ValueError(f"{said!r} is too long")
    return -total if sign == "-" else total


def flag(name: str, value: Any) -> bool:
    """True or False"""
    if not isinstance(value, bool):
        raise _refuse(name, value, "True or False")
    return value


def text(name: str, value: Any) -> str:
    """a str that is not empty"""
    if not isinstance(value, str) or not value:
        raise _refuse(name, value, "a str that is not empty")
    return value


def optional_text(name: str, value: Any) -> str | None:
    """a str that is not empty, or None"""
    return None if value is None else text(name, value)


def plug_in(name: str, value: Any) -> Any:
    """a callable(topic, data), or None"""
    if value is not None and not callable(value):
        raise _refuse(name, value, "a callable(topic, data), or None")
    return value


def instance_of(kind: type, words: str) -> Check:
    """An instance of ``kind``; ``words`` say how one is had."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise _refuse(name, value, words)
        return value

    check.__doc__ = words
    return check


@dataclass_transform(kw_only_default=True, frozen_default=True)
def settings_class(cls: type[S]) -> type[S]:
    """Make a subclass of ``Settings`` a dataclass with slots. It has an ``__init__`` already."""
    make: Callable[[type[S]], type[S]] = dataclasses.dataclass(
        slots=True, init=False, eq=False, repr=False
    )
    return make(cls)


class _Signature:
    """What ``help`` shows as the arguments of a settings class."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        import inspect

        if not dataclasses.is_dataclass(owner):
            raise AttributeError("__signature__")
        return inspect.Signature(
            [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=field.type,
                )
                for field in dataclasses.fields(owner)
            ]
        )


class Settings(Frozen):
    """Base of the settings classes: checks every field when an instance is made."""

    __slots__ = ()
    __signature__ = _Signature()
    ELSEWHERE: ClassVar[Mapping[str, str]] = {}
    """Names that are no settings, but that people look for among them: where they are."""
    ARGUMENTS: ClassVar[tuple[str, ...]] = ()
    """Keywords of the client's constructor that are no settings; for suggestions."""

    def __init__(self, **settings: Any) -> None:
        fields = dataclasses.fields(self)
        known = [field.name for field in fields]
        for name, given in settings.items():
            if name in self.ELSEWHERE:
                raise InvalidConfig(f"{name!r} is not a setting: {self.ELSEWHERE[name]}")
            if name not in known:
                raise InvalidConfig(_unknown(name, given, known, type(self)))
        for field in fields:
            value = settings.get(field.name, field.default)
            object.__setattr__(self, field.name, field.metadata["check"](field.name, value))
        self._check_together()

    def _check_together(self) -> None:
        """Refuse combinations of settings that can't work. Subclasses extend it."""

    def _check_order(self, lower: str, upper: str) -> None:
        """Refuse a duration that is below another one, which it bounds."""
        low, high = getattr(self, lower), getattr(self, upper)
        if high < low:
            raise InvalidConfig(f"{upper}={high} is below {lower}={low}", hint=IN_SECONDS)

    @classmethod
    def of(cls, config: Self | None, settings: Mapping[str, Any]) -> Self:
        """``config`` (or the defaults) with ``settings`` laid over it.

        None for ``bootstrap``, the first argument of every client, leaves that of ``config``.

        Raises:
            InvalidConfig: An unknown name (with the nearest known one), a bad value, or an
                address without a port in place of the one that ``config`` names.
        """
        if settings.get("bootstrap", "") is None:
            settings = {name: value for name, value in settings.items() if name != "bootstrap"}
        if config is None:
            return cls(**settings)
        if not isinstance(config, cls):
            wanted = a_or_an(cls.__name__)
            raise InvalidConfig(
                f"config must be {wanted}, not {type(config).__name__}",
                hint=f"made of Kafka's names: {cls.__name__}.from_properties(...)",
            )
        given = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        address, of_config = settings.get("bootstrap"), given.get("bootstrap")
        if isinstance(address, str) and ":" not in address:  # a topic, where None was forgotten
            if of_config not in (((address.strip(), 9092),), (("localhost", 9092),)):
                raise InvalidConfig(
                    f"bootstrap={address!r} has no port, and config names another address",
                    hint="for that of config write None in its place; else add the port",
                )
        return cls(**{**given, **settings})

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str | int | float | bool] | str | os.PathLike[str]
    ) -> Self:
        """Read settings as files of Java's and librdkafka's clients have them.

        Times in ``.ms`` become seconds, PEM ``ssl.*`` with ``security.protocol`` become
        ``security``, classes of Kafka's own serializers those of ``kclient.serializers``. A value
        is taken literally: nothing in it is expanded. What has no meaning here, or is of another
        client, is logged in one line at INFO, and unknown names in one at WARNING. Where a
        serializer of the application is named, the client refuses to start without its argument.

        Args:
            properties: Names and values, or the path of a file in the format of
                ``java.util.Properties``.

        Returns:
            The settings, for ``config=`` of a client.

        Raises:
            InvalidConfig: The file can't be read, a value is refused, a name is nearly a known
                one, two names of one setting contradict, or the security that is asked for can't
                be had: SASL, stores that aren't PEM, certificates or host names that aren't to be
                verified.

        Example::

            config = kclient.ProducerConfig.from_properties("producer.properties")
            producer = kclient.Producer(config=config)
        """
        from kclient.properties import config_from  # most clients have no such file

        return config_from(properties, cls)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What ``name`` was probably meant to be; None if nothing is near. For error messages."""
    import difflib  # needed for misspelt names only

    near = difflib.get_close_matches(name, known, n=1)
    return near[0] if near else None


def _unknown(name: str, value: object, known: list[str], config: type[Settings]) -> str:
    from kclient.foreign_settings import advice  # only errors need it

    meant = advice(name, value, known)
    if meant is None and name in config.ARGUMENTS:
        meant = "it is an argument of the client"
    if meant is None:
        every = [*known, *config.ARGUMENTS]
        near = nearest(name, every)
        meant = f"did you mean {near!r}?" if near else f"known are {', '.join(sorted(every))}"
    return f"{config.__name__} has no setting {name!r}: {meant}"
