"""Builds indented Python source."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

WIDTH = 100


class Source:
    """Lines of source text and the indentation of the next one."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def add(self, *lines: str) -> None:
        """Append lines at the present depth; an empty one stays empty."""
        for line in lines:
            self._lines.append("    " * self._depth + line if line else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Everything added inside stands below ``head``, one level deeper."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def maybe_block(self, head: str | None) -> Iterator[None]:
        """``block`` where there is a head, else the same level."""
        if head is None:
            yield
        else:
            with self.block(head):
                yield

    @contextmanager
    def block_if(self, word: str, test: str) -> Iterator[None]:
        """A block below ``word test:``, with an alternative a line if that is too long."""
        head = f"{word} {test}:"
        if len(head) + 4 * self._depth > WIDTH:
            first, *others = test.split(" or ")
            with self.block(f"{word} ("):
                self.add(first, *(f"or {one}" for one in others))
            head = "):"
        with self.block(head):
            yield

    def add_listed(self, head: str, items: list[str], tail: str) -> None:
        """``head + ", ".join(items) + tail`` on one line, or an item a line if that is too long."""
        line = head + ", ".join(items) + tail
        if len(line) + 4 * self._depth <= WIDTH:
            self.add(line)
            return
        with self.block(head):
            self.add(*(f"{item}," for item in items))
        self.add(tail)

    def add_call(self, head: str, arguments: str) -> None:
        """``head(arguments)`` on one line, or the arguments on a line of their own."""
        if len(head) + len(arguments) + 2 + 4 * self._depth <= WIDTH:
            self.add(f"{head}({arguments})")
        else:
            self.add(f"{head}(", f"    {arguments}", ")")

    @contextmanager
    def block_listed(self, head: str, items: list[str], tail: str) -> Iterator[None]:
        """A block whose head is written by ``add_listed``."""
        joined = ", ".join(items)
        if len(head + joined + tail) > WIDTH - 4 * self._depth:
            with self.block(head):
                self.add(joined)
            self.add(tail)
        else:
            self.add(head + joined + tail)
        self._depth += 1
        yield
        self._depth -= 1

    def add_text(self, text: str, indent: str = "") -> None:
        """Append prose, wrapped; following lines are indented by ``indent``."""
        width = WIDTH - 4 * self._depth
        self.add(*textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


class Names:
    """Module-level names that the emitted code of one module turned out to need."""

    def __init__(self) -> None:
        self.helpers: set[str] = set()
        self.formats_read: set[str] = set()
        self.formats_written: set[str] = set()

    def helper(self, name: str) -> str:
        self.helpers.add(name)
        return name

    def unpack(self, format: str) -> str:
        """The name of the bound ``unpack_from`` of a big-endian format."""
        self.formats_read.add(format)
        return "_unpack_" + format_name(format)

    def pack(self, format: str) -> str:
        """The name of the bound ``pack`` of a big-endian format."""
        self.formats_written.add(format)
        return "_pack_" + format_name(format)


def format_name(format: str) -> str:
    """A ``struct`` format as part of a name: ``i16s?H`` -> ``iUtW``."""
    return format.replace("16s", "U").replace("?", "t").replace("H", "W")
