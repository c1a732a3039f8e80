"""Base classes of the generated messages: decode, encode, equality and a short repr.

Callers use ``decode``, ``encode`` and ``encode_into``; the generated classes add ``_read`` /
``_read_many`` and ``_write``. Every error in bytes or values is raised as a ProtocolError: the
generated code is fast and only detects *that* something is wrong, and ``diagnosis`` then finds out
what and where.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Generator
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, Self

from kclient.errors import ProtocolError
from kclient.protocol.primitives import DECODE_ERRORS, Buffer

FRESH: Final[Any] = type("Fresh", (), {"__repr__": lambda self: "FRESH", "__slots__": ()})()
"""Default of constructor arguments that stands for a new empty list or struct."""

_ENCODE_ERRORS = (struct.error, TypeError, AttributeError, ValueError, OverflowError)
_SHOWN_ITEMS = 3


class FieldSpec(NamedTuple):
    """One row of a struct's field table (``_FIELDS``).

    Attributes:
        name: The attribute.
        type: Kafka's type or a class of the same module; ``[]`` in front of an array's.
        first: First version with the field.
        last: Last version with the field.
        null_first: First version in which it may be None.
        null_last: Last such version; below ``null_first`` if there is none.
        tag: Its tag if it is a tagged field.
        ignorable: It may be omitted silently in versions that don't have it.
        never_compact: It keeps the old encoding in flexible versions.
        default: Its default; ``()`` for a fresh list or struct.
    """

    name: str
    type: str
    first: int
    last: int
    null_first: int
    null_last: int
    tag: int | None
    ignorable: bool
    never_compact: bool
    default: Any


class Struct:
    """A message or a part of one.

    Attributes:
        unknown_tags: Tagged fields that this release doesn't know (tag -> bytes); they are kept
            on decode and written again on encode.
    """

    __slots__ = ("unknown_tags",)
    unknown_tags: dict[int, bytes] | None
    _FIELDS: ClassVar[tuple[tuple[Any, ...], ...]] = ()

    @classmethod
    def fields(cls) -> tuple[FieldSpec, ...]:
        """The field table, for tools and tests."""
        return tuple(FieldSpec._make(row) for row in cls._FIELDS)

    @classmethod
    def _read(cls, buf: Any, pos: int, end: int, version: int) -> tuple[Self, int]:
        items, pos = cls._read_many(buf, pos, end, version, 1)
        return items[0], pos

    @classmethod
    def _read_many(
        cls, buf: Any, pos: int, end: int, version: int, count: int
    ) -> tuple[list[Self], int]:
        raise NotImplementedError

    def _write(self, out: bytearray, version: int) -> None:
        raise NotImplementedError

    def _refuse(self, field: str, version: int) -> NoReturn:
        raise ProtocolError(
            f"{type(self).__name__}.{field} can't be sent in version {version}: "
            "that version doesn't have the field",
            struct=type(self).__name__,
            field=field,
        )

    def _refuse_none(self, field: str, version: int) -> NoReturn:
        raise ProtocolError(
            f"{type(self).__name__}.{field} can't be None in version {version}",
            struct=type(self).__name__,
            field=field,
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, row[0]) == getattr(other, row[0]) for row in self._FIELDS
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{row[0]}={_show(getattr(self, row[0]), row[1])}" for row in self._FIELDS]
        if self.unknown_tags:
            shown.append(f"unknown_tags=<tags {', '.join(map(str, sorted(self.unknown_tags)))}>")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """Something that is encoded on its own.

    Attributes:
        NAME: Kafka's name of it; of the API for requests and responses.
        MIN_VERSION: The lowest version that this client supports.
        MAX_VERSION: The highest one.
        FIRST_FLEXIBLE: The first version with compact lengths and tagged fields; None without.
    """

    __slots__ = ()
    NAME: ClassVar[str]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FIRST_FLEXIBLE: ClassVar[int | None]
    _ZERO_COPY: ClassVar[bool] = False

    @classmethod
    def decode(cls, data: Buffer, version: int, offset: int = 0) -> Self:
        """Read a message that fills ``data`` from ``offset`` to the end.

        Args:
            data: The bytes. ``records`` fields of the result are memoryview slices of it, so it
                must stay unchanged for as long as those are used; all else is copied.
            version: Version of the API.
            offset: Where the message starts, in bytes.

        Raises:
            ProtocolError: The bytes are no such message (with struct, field and offset), or this
                client doesn't support the version.
        """
        buf = cls._prepare(data, version, offset)
        try:
            message, pos = cls._read(buf, offset, len(buf), version)
        except DECODE_ERRORS:
            pos = -1
        if pos != len(buf):
            raise _decode_fault(cls, buf, version, offset)
        return message

    def encode(self, version: int) -> bytes:
        """Return the message as bytes.

        Raises:
            ProtocolError: A field can't be represented in ``version``, has a value of the wrong
                type or range, or this client doesn't support the version.
        """
        out = bytearray()
        self.encode_into(out, version)
        return bytes(out)

    def encode_into(self, out: bytearray, version: int) -> None:
        """Append the message to ``out``; on an error ``out`` is unchanged. Raises: see encode."""
        if not self.MIN_VERSION <= version <= self.MAX_VERSION:
            self._refuse_version(version)
        start = len(out)
        try:
            self._write(out, version)
        except ProtocolError:
            del out[start:]
            raise
        except _ENCODE_ERRORS as problem:
            del out[start:]
            raise _encode_fault(self, version, problem) from problem

    @classmethod
    def _prepare(cls, data: Buffer, version: int, offset: int) -> Any:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            cls._refuse_version(version)
        if offset < 0:
            raise ProtocolError(f"{cls.__name__} can't start at {offset}", struct=cls.__name__)
        if cls._ZERO_COPY:
            return memoryview(data)
        return data if type(data) is bytes else bytes(data)

    @classmethod
    def _refuse_version(cls, version: int) -> NoReturn:
        raise ProtocolError(
            f"{cls.__name__} has no version {version}: this client speaks "
            f"{cls.MIN_VERSION} to {cls.MAX_VERSION}",
            struct=cls.__name__,
        )


class LogRecord(Message):
    """Key or value of a record in one of Kafka's internal topics.

    On disk a key is preceded by ``RECORD_TYPE`` as int16, a value by its version as int16.
    """

    __slots__ = ()
    RECORD_TYPE: ClassVar[int]


class Response(Message):
    """A response of a broker."""

    __slots__ = ()
    API_KEY: ClassVar[int]


class Request(Message):
    """A request to a broker."""

    __slots__ = ()
    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type[Response]]


class PiecewiseRequest(Request):
    """A request whose bytes are available in pieces, so that joining them is the only copy."""

    __slots__ = ()

    def pieces(self, version: int) -> list[Buffer]:
        """Return the result of ``encode`` in pieces to be joined; ``len`` of each is its bytes.

        Raises: see ``encode``; also the errors of the generated code.
        """
        raise NotImplementedError


class SteppedResponse(Response):
    """A response that can be so large that it should be decoded in several steps."""

    __slots__ = ()

    @classmethod
    def decode_steps(cls, data: Buffer, version: int, offset: int = 0) -> Generator[Any, Any, Self]:
        """Like ``decode``, as a generator that pauses between steps and returns the message.

        It yields each element of the longest array (a topic of Metadata) as soon as it is read,
        and None inside an element after every 1,000 parts. After ``send(True)`` for an element, the
        caller owns it: the message doesn't keep it, so that elements don't accumulate.
        """
        buf = cls._prepare(data, version, offset)
        try:
            message, pos = yield from cls._read_steps(buf, offset, len(buf), version)
        except DECODE_ERRORS:
            pos = -1
        if pos != len(buf):
            raise _decode_fault(cls, buf, version, offset)
        return message

    @classmethod
    def _read_steps(
        cls, buf: Any, pos: int, end: int, version: int
    ) -> Generator[Any, Any, tuple[Self, int]]:
        raise NotImplementedError


def _decode_fault(cls: type[Message], buf: Any, version: int, offset: int) -> ProtocolError:
    from kclient.protocol.diagnosis import find_decode_fault  # needed on bad input only

    return find_decode_fault(cls, buf, version, offset)


def _encode_fault(message: Message, version: int, problem: Exception) -> ProtocolError:
    from kclient.protocol.diagnosis import find_encode_fault  # needed on bad values only

    return find_encode_fault(message, version, problem)


def _show(value: Any, kind: str) -> str:
    """Format a value for the repr: no payload, and at most a few elements of a list."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        if kind.endswith("uuid"):
            return base64.urlsafe_b64encode(value).decode().rstrip("=")
        return f"<{len(value)} bytes>"
    if isinstance(value, list):
        shown = [_show(item, kind) for item in value[:_SHOWN_ITEMS]]
        if len(value) > _SHOWN_ITEMS:
            shown.append(f"... {len(value)} in all")
        return f"[{', '.join(shown)}]"
    return repr(value)
