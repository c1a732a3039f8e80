"""Emits the method that writes a struct to a bytearray.

Adjacent fields of a fixed size are written by one ``struct`` call. A field that the version
doesn't have must be at its default, unless Kafka marks it as ignorable. ``Message.encode`` converts
what the emitted code raises on values of the wrong type or range to a ProtocolError.
"""

from __future__ import annotations

from tools.protocol import layout
from tools.protocol.emit_read import is_compact, segments, version_test
from tools.protocol.schema import FIXED_FORMATS, Definition, Field, Struct, Versions
from tools.protocol.source import Names, Source


def emit_writer(out: Source, names: Names, definition: Definition, struct: Struct) -> None:
    """Append ``_write``."""
    _Writer(out, names, definition, struct).emit()


class _Writer:
    def __init__(self, out: Source, names: Names, definition: Definition, struct: Struct) -> None:
        self._out = out
        self._names = names
        self._struct = struct
        self._segments = segments(definition, struct)

    def emit(self) -> None:
        out = self._out
        with out.block("def _write(self, out: bytearray, version: int) -> None:"):
            if len(self._segments) == 1:
                self._emit_body(*self._segments[0])
                return
            newer, older = self._segments
            with out.block(f"if version >= {newer[0].first}:"):
                self._emit_body(*newer)
            with out.block("else:"):
                self._emit_body(*older)

    def _emit_body(self, versions: Versions, flexible: bool) -> None:
        plain = [field for field in self._struct.fields if field.tagged.empty]
        empty = True
        index = 0
        while index < len(plain):
            run = []
            while index < len(plain) and plain[index].is_fixed:
                run.append(plain[index])
                index += 1
            if run:
                empty &= not self._emit_run(run, versions)
                continue
            empty &= not self._emit_guarded(plain[index], versions, flexible)
            index += 1
        for field in self._struct.fields:
            if not field.tagged.empty and field.tagged.overlap(versions).empty:
                empty &= not self._emit_refusal(field)
        if flexible:
            self._emit_tags(versions)
        elif empty:
            self._out.add("return")

    def _emit_refusal(self, field: Field) -> bool:
        """Refuse a value that the version can't carry; return whether code was emitted."""
        if field.ignorable:
            return False
        with self._out.block_if("if", self._differs(field)):
            self._out.add(f'self._refuse("{field.attribute}", version)')
        return True

    def _differs(self, field: Field, owner: str = "self") -> str:
        """The condition that the field is not at its default."""
        name, value = f"{owner}.{field.attribute}", layout.default(field)
        if value is None:
            return f"{name} is not None"
        if field.is_array:
            return f"{name} is None or len({name})" if layout.can_be_none(field) else f"len({name})"
        if field.struct is not None and not layout.can_be_none(field):
            # Not by comparing it with a new one: that is slow, in a request that goes out all day.
            parts = [self._differs(one, name) for one in field.struct.fields]
            return " or ".join([*parts, f"{name}.unknown_tags"])
        if value == ():
            return f"{name} != {layout.element_type(field)}()"
        if field.type == "bool":
            return f"not {name}" if value else name
        if field.type == "uuid":
            self._names.helper("ZERO_UUID")
        return f"{name} != {layout.default_source(field)}"

    def _emit_run(self, run: list[Field], versions: Versions) -> bool:
        cuts = {versions.first}
        for field in run:
            cuts |= {field.versions.first, field.versions.last + 1}
        starts = sorted((cut for cut in cuts if versions.has(cut)), reverse=True)
        emitted = False
        for number, start in enumerate(starts):
            if len(starts) == 1:
                head = None
            elif number == len(starts) - 1:
                head = "else:"
            else:
                head = f"{'elif' if number else 'if'} version >= {start}:"
            present = [field for field in run if field.versions.has(start)]
            absent = [field for field in run if field not in present and not field.ignorable]
            if head == "else:" and not present and not absent:
                continue
            with self._out.maybe_block(head):
                for field in absent:
                    emitted |= self._emit_refusal(field)
                if present:
                    self._emit_pack(present)
                    emitted = True
                elif head and not absent:
                    self._out.add("pass")
        return emitted

    def _emit_pack(self, fields: list[Field]) -> None:
        format = "".join(FIXED_FORMATS[field.type] for field in fields)
        values = [self._fixed_value(field) for field in fields]
        self._out.add_listed(f"out += {self._names.pack(format)}(", values, ")")

    def _fixed_value(self, field: Field) -> str:
        value = f"self.{field.attribute}"
        return f"{self._names.helper('check_uuid')}({value})" if field.type == "uuid" else value

    def _emit_guarded(self, field: Field, versions: Versions, flexible: bool) -> bool:
        present = field.versions.overlap(versions)
        if present.empty:
            return self._emit_refusal(field)
        test = version_test(present, versions)
        with self._out.maybe_block(test and f"if {test}:"):
            self._emit_variable(field, present, flexible, "out")
        if test and not field.ignorable:
            with self._out.block_if("elif", self._differs(field)):
                self._out.add(f'self._refuse("{field.attribute}", version)')
        return True

    def _emit_variable(self, field: Field, versions: Versions, flexible: bool, into: str) -> None:
        """Write one variable field to the bytearray called ``into``."""
        out, value = self._out, f"self.{field.attribute}"
        compact = is_compact(field, flexible)
        nullable = field.nullable.overlap(versions)
        if not layout.can_be_none(field):
            self._emit_value(field, compact, value, into)
            return
        local = f"{field.attribute}_"  # named by field, so that each local has one type
        out.add(f"{local} = {value}")
        with out.block(f"if {local} is None:"):
            if nullable.empty:
                out.add(f'self._refuse_none("{field.attribute}", version)')
            else:
                test = version_test(nullable, versions)
                if test:
                    with out.block(f"if not ({test}):"):
                        out.add(f'self._refuse_none("{field.attribute}", version)')
                out.add(f"{into} += {self._null(field, compact)}")
        with out.block("else:"):
            if field.struct is not None and not field.is_array:
                out.add(f"{into}.append(1)")
            self._emit_value(field, compact, local, into)

    def _null(self, field: Field, compact: bool) -> str:
        if field.struct is not None and not field.is_array:
            return r'b"\xff"' if field.tagged.empty else r'b"\x00"'
        if compact:
            return r'b"\x00"'
        short = field.type == "string" and not field.is_array
        return r'b"\xff\xff"' if short else r'b"\xff\xff\xff\xff"'

    def _emit_value(self, field: Field, compact: bool, value: str, into: str) -> None:
        out, prefix = self._out, "compact_" if compact else ""
        if field.struct is not None and not field.is_array:
            out.add(f"{value}._write({into}, version)")
        elif field.struct is not None:
            put = self._names.helper(f"put_{prefix}count")
            out.add(f"{put}({into}, len({value}))")
            with out.block(f"for {field.attribute}_item in {value}:"):
                out.add(f"{field.attribute}_item._write({into}, version)")
        elif field.is_array and field.type in ("string", "uuid"):
            put = self._names.helper(f"put_{prefix}{field.type}s")
            out.add(f"{put}({into}, {value})")
        elif field.is_array:
            put = self._names.helper(f"put_{prefix}numbers")
            out.add(f'{put}({into}, {value}, "{FIXED_FORMATS[field.type]}")')
        else:
            kind = "string" if field.type == "string" else "bytes"
            put = self._names.helper(f"put_{prefix}{kind}")
            out.add(f"{put}({into}, {value})")

    def _emit_tags(self, versions: Versions) -> None:
        out = self._out
        known = [one for one in self._struct.fields if not one.tagged.overlap(versions).empty]
        if not known:
            self._emit_put_tags("self.unknown_tags")
            return
        out.add("tags = dict(self.unknown_tags) if self.unknown_tags else {}")
        for field in known:
            test = version_test(field.tagged, versions)
            differs = self._differs(field)
            if test:
                with out.block(f"if {test}:"), out.block_if("if", differs):
                    self._emit_tagged(field)
                if not field.ignorable:
                    with out.block_if("elif", differs):
                        out.add(f'self._refuse("{field.attribute}", version)')
            else:
                with out.block_if("if", differs):
                    self._emit_tagged(field)
        self._emit_put_tags("tags")

    def _emit_put_tags(self, tags: str) -> None:
        put = self._names.helper("put_tags")
        with self._out.block(f"if {tags}:"):
            self._out.add(f"{put}(out, {tags})")
        with self._out.block("else:"):
            self._out.add("out.append(0)")

    def _emit_tagged(self, field: Field) -> None:
        out = self._out
        if field.is_fixed:
            code = FIXED_FORMATS[field.type]
            out.add(f"tags[{field.tag}] = {self._names.pack(code)}({self._fixed_value(field)})")
            return
        out.add("chunk = bytearray()")
        self._emit_variable(field, field.tagged, True, "chunk")
        out.add(f"tags[{field.tag}] = bytes(chunk)")
