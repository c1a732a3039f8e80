"""Emits the method that reads a struct from bytes.

Adjacent fields of a fixed size are read by one ``struct`` call, together with the length in front
of the variable field that follows them. Code is emitted once for the flexible and once for the
older versions; smaller differences between versions become branches.

The emitted code checks nothing where a mistake can't go unnoticed: reading past the end raises
``struct.error`` or ``IndexError``, and only slices are checked. ``Message.decode`` converts
whatever it raises to a ProtocolError that names the place.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tools.protocol import layout
from tools.protocol.schema import FIXED_FORMATS, Definition, Field, Struct, Versions
from tools.protocol.source import Names, Source

STEP = 1000
"""Elements of an inner array that a stepped read takes at once."""


def emit_reader(out: Source, names: Names, definition: Definition, struct: Struct) -> None:
    """Append ``_read_many`` for array elements, else ``_read``; and what they need."""
    _Reader(out, names, definition, struct).emit()


def segments(definition: Definition, struct: Struct) -> list[tuple[Versions, bool]]:
    """The versions in which ``struct`` occurs, newest first, with whether they are flexible."""
    flexible = definition.flexible.overlap(struct.reach)
    if flexible.empty:
        return [(struct.reach, False)]
    old = Versions(struct.reach.first, flexible.first - 1)
    return [(flexible, True)] if old.empty else [(flexible, True), (old, False)]


def version_test(wanted: Versions, given: Versions) -> str | None:
    """A condition for ``wanted`` among ``given`` versions; None where it is all of them."""
    if wanted.covers(given):
        return None
    if wanted.first <= given.first:
        return f"version <= {wanted.last}"
    if wanted.last >= given.last:
        return f"version >= {wanted.first}"
    if wanted.first == wanted.last:
        return f"version == {wanted.first}"
    return f"{wanted.first} <= version <= {wanted.last}"


def is_compact(field: Field, flexible: bool) -> bool:
    return flexible and not field.never_compact


class _Reader:
    def __init__(self, out: Source, names: Names, definition: Definition, struct: Struct) -> None:
        self._out = out
        self._names = names
        self._struct = struct
        self._segments = segments(definition, struct)
        self._buffer = "memoryview" if definition.zero_copy else "bytes"
        self._stepped: str | None = None
        self._tagged = [field for field in struct.fields if not field.tagged.empty]

    def emit(self) -> None:
        name = self._struct.python_name
        if self._struct.in_array:
            self._emit_read_many(name)
        else:
            self._emit_read(name, f"tuple[{name}, int]", "_read")
        if name in layout.STEPPED:
            self._names.helper("Generator")
            self._stepped = layout.STEPPED[name]
            [stepped] = [one for one in self._struct.fields if one.attribute == self._stepped]
            element = layout.element_type(stepped)
            yielded = f"{element} | None" if element in layout.STEPPED else "None"
            self._out.add("")
            self._emit_read(
                name, f"Generator[{yielded}, bool | None, tuple[{name}, int]]", "_read_steps"
            )
        if self._tagged:
            self._out.add("")
            self._emit_read_tags()

    def _signature(self, method: str, more: list[str], result: str) -> AbstractContextManager[None]:
        """The head of a class method that reads."""
        self._out.add("@classmethod")
        arguments = ["cls", f"buf: {self._buffer}", "pos: int", "end: int", "version: int", *more]
        return self._out.block_listed(f"def {method}(", arguments, f") -> {result}:")

    def _emit_read_many(self, name: str) -> None:
        out = self._out
        with self._signature("_read_many", ["count: int"], f"tuple[list[{name}], int]"):
            with out.block("if count > end - pos:"):
                out.add(f"raise {self._names.helper('Malformed')}")
            out.add(f"new = {name}.__new__", f"items: list[{name}] = []", "add = items.append")
            for head, versions, flexible in self._heads():
                with out.maybe_block(head), out.block("for _ in range(count):"):
                    out.add(f"obj = new({name})")
                    self._emit_body(versions, flexible)
                    out.add("add(obj)")
            out.add("return items, pos")

    def _emit_read(self, name: str, result: str, method: str) -> None:
        out = self._out
        with self._signature(method, [], result):
            out.add(f"obj = {name}.__new__({name})")
            for head, versions, flexible in self._heads():
                with out.maybe_block(head):
                    self._emit_body(versions, flexible)
            out.add("return obj, pos")

    def _heads(self) -> list[tuple[str | None, Versions, bool]]:
        if len(self._segments) == 1:
            return [(None, *self._segments[0])]
        newer, older = self._segments
        return [(f"if version >= {newer[0].first}:", *newer), ("else:", *older)]

    def _emit_body(self, versions: Versions, flexible: bool) -> None:
        plain = [field for field in self._struct.fields if field.tagged.empty]
        index = 0
        while index < len(plain):
            run = []
            while index < len(plain) and plain[index].is_fixed:
                run.append(plain[index])
                index += 1
            follower = plain[index] if index < len(plain) else None
            index += follower is not None
            self._emit_group(run, follower, versions, flexible)
        self._emit_tag_section(versions, flexible)

    def _emit_group(
        self, run: list[Field], follower: Field | None, versions: Versions, flexible: bool
    ) -> None:
        """A run of fixed fields and the variable one behind it, whose length may join the run."""
        joins = (
            follower is not None
            and follower.versions.covers(versions)
            and self._prefix(follower, flexible) != ""
        )
        if run or joins:
            self._emit_run(run, follower if joins else None, versions, flexible)
        if follower is None:
            return
        present = follower.versions.overlap(versions)
        if present.empty:
            self._emit_default(follower)
        elif joins:
            self._emit_variable(follower, present, flexible)
        else:
            test = version_test(present, versions)
            with self._out.maybe_block(test and f"if {test}:"):
                if self._prefix(follower, flexible):
                    self._emit_run([], follower, present, flexible)
                self._emit_variable(follower, present, flexible)
            if test:
                with self._out.block("else:"):
                    self._emit_default(follower)

    def _prefix(self, field: Field, flexible: bool) -> str:
        """The ``struct`` code of the length in front of a variable field; a struct has none."""
        if field.struct is not None and not field.is_array:
            return ""
        if is_compact(field, flexible):
            return "B"
        return "h" if field.type == "string" and not field.is_array else "i"

    def _emit_run(
        self, run: list[Field], follower: Field | None, versions: Versions, flexible: bool
    ) -> None:
        cuts = {versions.first}
        for field in run:
            cuts |= {field.versions.first, field.versions.last + 1}
        starts = sorted((cut for cut in cuts if versions.has(cut)), reverse=True)
        prefix = self._prefix(follower, flexible) if follower else ""
        for number, start in enumerate(starts):
            if len(starts) == 1:
                head = None
            elif number == len(starts) - 1:
                head = "else:"
            else:
                head = f"{'elif' if number else 'if'} version >= {start}:"
            with self._out.maybe_block(head):
                present = [field for field in run if field.versions.has(start)]
                self._emit_fixed(present, prefix)
                for field in run:
                    if field not in present:
                        self._emit_default(field)

    def _emit_fixed(self, fields: list[Field], prefix: str) -> None:
        if not fields and not prefix:
            return
        if not fields and prefix == "B":
            self._out.add("n = buf[pos]", "pos += 1")
            return
        format = "".join(FIXED_FORMATS[field.type] for field in fields) + prefix
        targets = [f"obj.{field.attribute}" for field in fields] + (["n"] if prefix else [])
        call = f" = {self._names.unpack(format)}(buf, pos)"
        if len(targets) == 1:
            self._out.add(f"({targets[0]},){call}")
        else:
            self._out.add_listed("(", targets, ")" + call)
        self._out.add(f"pos += {format_size(format)}")

    def _emit_default(self, field: Field) -> None:
        text = layout.fresh_source(field)
        if text == "ZERO_UUID":
            self._names.helper(text)
        self._out.add(f"obj.{field.attribute} = {text}")

    def _emit_variable(self, field: Field, versions: Versions, flexible: bool) -> None:
        compact = is_compact(field, flexible)
        if field.struct is not None and not field.is_array:
            self._emit_struct(field, versions)
        elif field.is_array:
            self._emit_array(field, versions, compact)
        else:
            self._emit_blob(field, versions, compact)

    def _emit_struct(self, field: Field, versions: Versions) -> None:
        out = self._out
        read = f"obj.{field.attribute}, pos = {layout.element_type(field)}._read"
        if field.nullable.empty:
            out.add_call(read, "buf, pos, end, version")
            return
        if not field.nullable.covers(versions):
            raise ValueError(f"{field.name}: a struct that is nullable in some versions only")
        if field.tagged.empty:
            out.add(f"(n,) = {self._names.unpack('b')}(buf, pos)", "pos += 1")
        else:  # Kafka marks it in another way inside of a tagged field
            out.add(f"n, pos = {self._names.helper('read_uvarint')}(buf, pos, end)")
        with out.block("if n < 0:" if field.tagged.empty else "if n == 0:"):
            out.add(f"obj.{field.attribute} = None")
        with out.block("else:"):
            out.add_call(read, "buf, pos, end, version")

    def _emit_blob(self, field: Field, versions: Versions, compact: bool) -> None:
        """A string, bytes or records: check that they are there, then slice."""
        out, name = self._out, field.attribute
        with out.block("if 0 < n < 128:" if compact else "if n >= 0:"):
            out.add("nxt = pos + n - 1" if compact else "nxt = pos + n")
            with out.block("if nxt > end:"):
                out.add(f"raise {self._names.helper('Malformed')}")
            out.add(f"obj.{name} = {self._slice(field)}", "pos = nxt")
        null = "n == 0" if compact else "n == -1"
        self._emit_null(field, versions, f"elif {null}")
        with out.block("else:"):
            if compact:
                kind = {"string": "string", "bytes": "bytes", "records": "view"}[field.type]
                read = self._names.helper(f"read_compact_{kind}")
                out.add(f"obj.{name}, pos = {read}(buf, pos - 1, end)")
            else:
                out.add(f"raise {self._names.helper('Malformed')}")

    def _slice(self, field: Field) -> str:
        if field.type == "records":
            return "buf[pos:nxt]"
        viewed = self._buffer == "memoryview"
        if field.type == "bytes":
            return "bytes(buf[pos:nxt])" if viewed else "buf[pos:nxt]"
        return 'str(buf[pos:nxt], "utf-8")' if viewed else "buf[pos:nxt].decode()"

    def _emit_null(self, field: Field, versions: Versions, head: str) -> None:
        nullable = field.nullable.overlap(versions)
        if nullable.empty:
            return
        test = version_test(nullable, versions)
        with self._out.block(f"{head} and {test}:" if test else f"{head}:"):
            self._out.add(f"obj.{field.attribute} = None")

    def _emit_array(self, field: Field, versions: Versions, compact: bool) -> None:
        if field.type == "int32":
            self._emit_int32s(field, versions, compact)
            return
        out, name = self._out, field.attribute
        if compact:
            with out.block("if n > 127:"):
                out.add(f"n, pos = {self._names.helper('read_uvarint')}(buf, pos - 1, end)")
        count = "n - 1" if compact else "n"
        with out.block("if n > 0:" if compact else "if n >= 0:"):
            if field.attribute == self._stepped:
                self._emit_steps(field, count)
            else:
                call, arguments = self._array_call(field, count, compact)
                out.add_call(f"obj.{name}, pos = {call}", arguments)
        self._emit_null(field, versions, f"elif {'n == 0' if compact else 'n == -1'}")
        with out.block("else:"):
            out.add(f"raise {self._names.helper('Malformed')}")

    def _array_call(self, field: Field, count: str, compact: bool) -> tuple[str, str]:
        """The function that reads an array, and its arguments."""
        where = "buf, pos, end"
        if field.struct is not None:
            return f"{field.struct.python_name}._read_many", f"{where}, version, {count}"
        if field.type == "string":
            kind = "compact_strings" if compact else "strings"
            return self._names.helper(f"read_{kind}"), f"{where}, {count}"
        if field.type == "uuid":
            return self._names.helper("read_uuids"), f"{where}, {count}"
        code = FIXED_FORMATS[field.type]
        return self._names.helper("read_numbers"), f'{where}, {count}, "{code}"'

    def _emit_int32s(self, field: Field, versions: Versions, compact: bool) -> None:
        """Short arrays of int32, such as replica sets, by a ready-made unpacker."""
        out, name = self._out, field.attribute
        table = self._names.helper("UNPACK_INT32S")
        with out.block("if 0 < n < 32:" if compact else "if 0 <= n < 32:"):
            index, size = ("n - 1", "4 * n - 4") if compact else ("n", "4 * n")
            out.add(f"obj.{name} = [*{table}[{index}](buf, pos)]", f"pos += {size}")
        self._emit_null(field, versions, f"elif {'n == 0' if compact else 'n == -1'}")
        with out.block("else:"):
            if compact:
                read = self._names.helper("read_compact_int32s")
                out.add(f"obj.{name}, pos = {read}(buf, pos - 1, end)")
            else:
                read = self._names.helper("read_numbers")
                out.add(f'obj.{name}, pos = {read}(buf, pos, end, n, "i")')

    def _emit_steps(self, field: Field, count: str) -> None:
        out, kind = self._out, layout.element_type(field)
        with out.block(f"if {count} > end - pos:"):
            out.add(f"raise {self._names.helper('Malformed')}")
        out.add(f"obj.{field.attribute} = []")
        if kind in layout.STEPPED:
            with out.block(f"for _ in range({count}):"):
                out.add(
                    f"item, pos = yield from {kind}._read_steps(buf, pos, end, version)",
                    "if not (yield item):",
                    f"    obj.{field.attribute}.append(item)",
                )
            return
        with out.block(f"for start in range(0, {count}, {STEP}):"):
            with out.block("if start:"):
                out.add("yield")
            out.add(
                f"part, pos = {kind}._read_many(",
                f"    buf, pos, end, version, min({STEP}, {count} - start)",
                ")",
                f"obj.{field.attribute} += part",
            )

    def _emit_tag_section(self, versions: Versions, flexible: bool) -> None:
        out = self._out
        for field in self._tagged:
            self._emit_default(field)
        if not flexible:
            out.add("obj.unknown_tags = None")
            return
        with out.block("if buf[pos]:"):
            if any(not field.tagged.overlap(versions).empty for field in self._tagged):
                out.add("pos = obj._read_tags(buf, pos, end, version)")
            else:
                read = self._names.helper("read_unknown_tags")
                out.add(f"obj.unknown_tags, pos = {read}(buf, pos, end)")
        with out.block("else:"):
            out.add("obj.unknown_tags = None", "pos += 1")

    def _emit_read_tags(self) -> None:
        out, flexible = self._out, self._segments[0][0]
        uvarint = self._names.helper("read_uvarint")
        arguments = ["self", f"buf: {self._buffer}", "pos: int", "end: int", "version: int"]
        with out.block_listed("def _read_tags(", arguments, ") -> int:"):
            out.add("obj = self", "obj.unknown_tags = None")
            out.add(f"count, pos = {uvarint}(buf, pos, end)")
            with out.block("for _ in range(count):"):
                out.add(f"tag, pos = {uvarint}(buf, pos, end)")
                out.add(f"size, pos = {uvarint}(buf, pos, end)", "stop = pos + size")
                with out.block("if stop > end:"):
                    out.add(f"raise {self._names.helper('Malformed')}")
                for number, field in enumerate(self._tagged):
                    test = version_test(field.tagged, flexible)
                    more = f" and {test}" if test else ""
                    keyword = "elif" if number else "if"
                    with out.block(f"{keyword} tag == {field.tag}{more}:"):
                        self._emit_tagged(field)
                with out.block("else:"):
                    with out.block("if obj.unknown_tags is None:"):
                        out.add("obj.unknown_tags = {}")
                    out.add("obj.unknown_tags[tag] = bytes(buf[pos:stop])", "pos = stop")
                with out.block("if pos != stop:"):
                    out.add(f"raise {self._names.helper('Malformed')}")
            out.add("return pos")

    def _emit_tagged(self, field: Field) -> None:
        if field.is_fixed:
            self._emit_fixed([field], "")
            return
        if self._prefix(field, True):
            self._emit_fixed([], self._prefix(field, True))
        self._emit_variable(field, field.tagged, True)


def format_size(format: str) -> int:
    """Bytes that a big-endian ``struct`` format takes."""
    sizes = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "U": 16}
    return sum(sizes[code] for code in format.replace("16s", "U"))
