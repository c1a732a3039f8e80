"""The generator's decisions, on small definitions. No Java, no jars."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tools.protocol import definitions, emit_module, jars, merge, output
from tools.protocol.errors import class_name
from tools.protocol.schema import LATEST, NONE, Definition, Versions, snake_case


def field(name: str, type_: str = "int32", versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "versions": versions, **more}


def message(
    fields: list[dict[str, Any]],
    valid: str = "0-3",
    flexible: str = "none",
    name: str = "PingRequest",
    **more: Any,
) -> Definition:
    kind = "response" if name.endswith("Response") else "request"
    raw = {"apiKey": 7, "type": kind, "name": name, "validVersions": valid}
    return definitions.parse({**raw, "flexibleVersions": flexible, "fields": fields, **more})


def merged(newer: Definition, older: Definition) -> Definition:
    [only] = merge.merge_releases({newer.name: newer}, {older.name: older})
    return only


def loaded(definition: Definition) -> ModuleType:
    """Return the module emitted for a request, with a response so that it is complete."""
    response = message([], "0-3", name="PingResponse")
    both = merge.merge_releases({definition.name: definition, response.name: response}, {})
    text = emit_module.generate(both, {})["kclient/protocol/messages/ping.py"]
    module = ModuleType("ping")
    exec(compile(text, "ping.py", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-4", (0, 4)),
        ("3", (3, 3)),
        ("3+", (3, LATEST)),
        ("none", NONE),
        (None, NONE),
    ],
)
def test_version_ranges_are_read(text: str | None, expected: tuple[int, int]) -> None:
    assert Versions.parse(text) == expected


def test_ranges_with_a_gap_have_no_union() -> None:
    assert Versions(0, 2).union(Versions(3, 5)) == (0, 5)
    assert NONE.union(Versions(1, 2)) == (1, 2)
    with pytest.raises(ValueError, match="gap"):
        Versions(0, 1).union(Versions(3, 5))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("isKRaftController", "is_kraft_controller"),
        ("KRaftVersion", "kraft_version"),
        ("topics", "topics"),
        ("ISRNodes", "isr_nodes"),
    ],
)
def test_names_become_pythons(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_error_names_become_class_names() -> None:
    assert class_name("INVALID_TOPIC_EXCEPTION") == "InvalidTopic"
    assert class_name("UNKNOWN_SERVER_ERROR") == "UnknownServerError"
    assert class_name("REQUEST_TIMED_OUT") == "BrokerTimedOut"


def test_comments_are_dropped_but_not_from_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = tmp_path / "kafka-clients-9.9.9.jar"
    text = (
        "// a licence\n"
        '{ "apiKey": 1, "type": "request", "name": "AboutRequest", // trailing\n'
        '  "validVersions": "0", "flexibleVersions": "none", "fields": [\n'
        '  { "name": "A", "type": "string", "versions": "0+", "about": "see http://x" } ] }'
    )
    gone = {"apiKey": 2, "type": "request", "name": "GoneRequest", "validVersions": "none"}
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("common/message/AboutRequest.json", text)
        archive.writestr("common/message/GoneRequest.json", json.dumps(gone))
        archive.writestr("common/message/notes.txt", "not a definition")
    monkeypatch.setattr(definitions, "class_path", lambda release: [jar])
    found = definitions.read_release("9.9.9")
    assert list(found) == ["AboutRequest"]
    assert found["AboutRequest"].top.fields[0].about == "see http://x"


def test_the_older_release_adds_the_versions_that_the_newer_dropped() -> None:
    newer = message([field("New", versions="2+"), field("Kept")], "2-4")
    older = message([field("Old", versions="0-1"), field("Kept"), field("Last", versions="1+")])
    both = merged(newer, older)
    assert both.valid == (0, 4)
    ranges = {one.name: tuple(one.versions) for one in both.top.fields}
    assert ranges == {"Old": (0, 1), "New": (2, 4), "Kept": (0, 4), "Last": (1, 1)}
    assert [one.name for one in both.top.fields].index("Last") == 3


def test_the_newer_release_defines_the_versions_that_it_has() -> None:
    newer = message([field("Renamed")], "0-4")
    older = message([field("Original")], "0-3")
    assert [one.name for one in merged(newer, older).top.fields] == ["Renamed"]


def test_a_changed_type_stops_the_generator() -> None:
    newer, older = message([field("A", "int64")], "1-2"), message([field("A")], "0-2")
    with pytest.raises(ValueError, match="changed its type"):
        merged(newer, older)


def test_unstable_versions_of_request_and_response_are_left_out() -> None:
    request = message([field("A")], "0-6", latestVersionUnstable=True)
    response = message([field("A")], "0-6", name="PingResponse")
    names = {request.name: request, response.name: response}
    assert {one.valid for one in merge.merge_releases(names, {})} == {Versions(0, 5)}
    early = message([field("A")], "0", latestVersionUnstable=True)
    assert not merge.merge_releases({early.name: early}, {})


def test_fields_of_no_spoken_version_are_dropped() -> None:
    [only] = merge.merge_releases({"PingRequest": message([field("A", versions="9+")])}, {})
    assert only.top.fields == []


def test_an_emitted_module_reads_and_writes() -> None:
    module = loaded(
        message(
            [
                field("Id", "int32"),
                field("Name", "string", nullableVersions="2+"),
                field(
                    "Parts", "[]Part", fields=[field("Size", "int64"), field("On", "bool", "1+")]
                ),
                field("Extra", "int16", "3+", taggedVersions="3+", tag=0, default="-1"),
            ],
            flexible="3+",
        )
    )
    request = module.PingRequest(5, "n", [module.Part(7, True)], extra=9)
    request_3 = bytes.fromhex("00000005" + "026e" + "02" + "000000000000000701" + "00")
    assert request.encode(3) == request_3 + bytes.fromhex("01" + "00" + "02" + "0009")
    assert module.PingRequest.decode(request.encode(3), 3) == request
    plain = module.PingRequest(5, "n", [module.Part(7)])
    assert plain.encode(0).hex() == "00000005" + "00016e" + "00000001" + "0000000000000007"
    assert module.PingRequest.decode(plain.encode(0), 0) == plain


def test_writing_changes_only_what_differs_and_drops_what_is_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "ROOT", tmp_path)
    folder = tmp_path / output.OWNED_DIRECTORIES[0]
    files = {f"{output.OWNED_DIRECTORIES[0]}/{name}.py": f"# {name}\n" for name in "ab"}
    assert sorted(output.differences(files)) == [f"{name} is missing" for name in files]
    assert output.write(files) == 2
    assert output.differences(files) == []
    assert output.write(files) == 0
    (folder / "a.py").write_text("# edited by hand\n")
    (folder / "old.py").write_text("")
    assert len(output.differences(files)) == 2
    assert output.write(files) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["a.py", "b.py"]


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(jars.ToolMissing, match="java"):
        jars.java()
    with pytest.raises(jars.ToolMissing, match="mvn"):
        jars.class_path("4.3.0")
