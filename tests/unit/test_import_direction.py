"""The walls between the rooms: who may import whom, what is not imported early, how big files get.

Reads the source as syntax trees; a fresh interpreter shows what an import really loads.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kclient

ROOT = Path(kclient.__file__).parent
BASE = {
    *("types", "errors", "error_codes", "broker_errors", "clock", "backoff", "hooks", "config"),
    *(
        "durations",
        "events",
        "foreign_settings",
        "frozen",
        "keywords",
        "properties",
        "partitioners",
        "settings",
        "snapshot",
        "security",
        "serializers",
        "surroundings",
        "tls_properties",
        "transitions",
    ),
}
"""Modules of the ground floor: they import each other and nothing else of kclient."""
ALLOWED = {
    "protocol": set[str](),
    "record": set[str](),
    "network": {"protocol", "record"},
    "cluster": {"protocol", "record", "network"},
    "producer": {"protocol", "record", "network", "cluster"},
    "group": {"protocol", "network", "cluster"},
    "consumer": {"protocol", "record", "network", "cluster", "group"},
    "admin": {"protocol", "record", "network", "cluster"},
    "testing": {"protocol", "record"},
    "pytest_plugin": {"testing"},
    "cli": {"testing"},
    "__main__": {"cli"},
}
"""Room -> the rooms below it. Each may also import the ground floor and itself."""
HEAVY = ("pyarrow", "numpy", "lz4", "snappy", "zstandard", "uvloop", "confluent_kafka", "aiokafka")
UNNEEDED = (
    "argparse",
    "datetime",
    "difflib",
    "email",
    "importlib.metadata",
    "kclient.events",
    "pathlib",
    "typing_extensions",
)
"""What a client can be without: together as costly as a quarter of importing it."""
GENERATED = (
    "error_codes.py",
    "broker_errors.py",
    "protocol/messages/",
    "testing/config_tables/",
)
FILE_WALL, FUNCTION_WALL = 800, 60
WAITING = {"asyncio", "socket", "select", "selectors", "time", "random", "secrets"}
"""What a sans-IO file must not know: time comes in as `now`, chance as an `rng`."""
SANS_IO = tuple(
    place
    for room, files in {
        "": "protocol record backoff.py events.py transitions.py types.py errors.py frozen.py "
        "durations.py foreign_settings.py settings.py snapshot.py config.py",
        "network": "addresses.py connection.py connection_errors.py connection_states.py frames.py "
        "future.py handshake.py in_flight.py node_states.py requests.py sasl throttling.py",
        "cluster": "broker.py hearsay.py merge.py metadata.py missing.py offset_query.py "
        "partition.py retry.py targets.py topic.py view.py",
        "producer": "absent.py accumulator.py batch.py cargo.py delivery_host.py due_list.py "
        "feed.py gone.py idempotence.py partition_queue.py partitioner.py flush.py outgoing.py "
        "serializing.py shipment.py transactions.py verdict.py",
        "consumer": "aborted.py arguments.py commit_calls.py commit_queue.py epoch_query.py "
        "fetch_buffer.py fetch_plan.py handover_stage.py "
        "fetch_reply.py fetch_request.py fetch_session.py fetched_data.py half_read.py homeless.py "
        "interest.py partition_state.py progress.py reset.py subscription.py unplaced.py "
        "watchdog.py running/bounds.py running/dead_letters.py running/health.py running/plan.py "
        "running/retries.py running/schedule.py running/tracker.py",
        "group": "assignors consumer_protocol.py offset_commit.py offset_fetch.py topic_ids.py "
        "generation.py host.py",
        "admin": "cluster.py descriptions.py new_topic.py outcomes.py topics.py",
        "testing": "batch_filter.py batch_rules.py broker_config_rules.py broker_configs.py "
        "compaction.py config_change.py config_defs.py config_descriptions.py config_rules.py "
        "config_tables controller.py elections.py events.py follower_fetch.py "
        "groups/classic_group.py groups/deadlines.py "
        "groups/java_hash.py groups/joins.py groups/member.py groups/offset_rules.py "
        "groups/offsets.py groups/rebalances.py groups/records.py groups/settings.py "
        "groups/shard.py groups/writes.py image.py inlet.py interior.py leader_epochs.py log.py "
        "log_cleaner.py named_entries.py producer_states.py record_deletion.py registry.py "
        "replica.py replicas.py segments.py stored_batch.py topic_configs.py topic_rules.py "
        "transaction_index.py",
    }.items()
    for place in (f"{room}/{file}".lstrip("/") for file in files.split())
)
"""Folders and files that are tested without a loop."""


def sources() -> list[Path]:
    """All modules of the package."""
    return sorted(ROOT.rglob("*.py"))


def room_of(module: str) -> str:
    """`kclient.cluster.view` -> `cluster`; the package itself -> the empty string."""
    return module.removeprefix("kclient").strip(".").partition(".")[0]


def name_of(path: Path) -> str:
    """The dotted name of a module of the package."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports anywhere, type checking and functions included."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join(parents) if node.level else ""
            module = ".".join(part for part in (origin, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names if module == "kclient")


def imported_at_run_time(path: Path, *, in_functions: bool = True) -> Iterator[str]:
    """The modules that a file really imports; not those that only type checkers see."""
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not in_functions:
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""
        waiting.extend(ast.iter_child_nodes(node))


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The length of a function without its docstring, which may be as long as it is useful."""
    first = function.body[0]
    described = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if described else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def test_imports_go_one_way() -> None:
    wrong = []
    for path in sources():
        room = room_of(name_of(path))
        if not room:
            continue  # kclient/__init__.py hands out names of every room
        allowed = BASE if room in BASE else BASE | ALLOWED[room] | {room}
        for module in imports(path):
            if module == "kclient" or not module.startswith("kclient."):
                continue
            target = room_of(module)
            if target not in allowed and not target.startswith("__"):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_every_room_is_on_the_map() -> None:
    rooms = {room_of(name_of(path)) for path in sources()} - {""}
    assert rooms <= BASE | set(ALLOWED)


@pytest.mark.parametrize("place", SANS_IO)
def test_bytes_and_decisions_never_wait(place: str) -> None:
    paths = [path for path in (ROOT / place, *(ROOT / place).rglob("*.py")) if path.is_file()]
    assert paths or (ROOT / place).is_dir(), f"{place} has moved: mend the list above"
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in paths
        for module in imported_at_run_time(path)
        if module.partition(".")[0] in WAITING
    ]
    assert not wrong


def test_heavy_libraries_are_imported_on_first_use_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources()
        for module in imported_at_run_time(path, in_functions=False)
        if module.partition(".")[0] in HEAVY
    ]
    assert not wrong


@pytest.mark.parametrize("module", ["kclient", "kclient.producer", "kclient.consumer"])
def test_an_import_loads_no_heavy_library(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_clients_loads_nothing_that_few_need() -> None:
    code = f"""
import sys
before = set(sys.modules)  # how kclient is installed may bring some
from kclient import Consumer, Producer
new = [m for m in sys.modules if m not in before]
print([m for m in new if m in {UNNEEDED!r} or m.endswith(".health")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names_are_complete_sorted_and_importable() -> None:
    listed = kclient.__all__
    assert listed == sorted(listed)
    assert len(set(listed)) == len(listed)
    for name in listed:
        assert getattr(kclient, name) is not None
    assert set(dir(kclient)) == set(listed)


def test_public_names_are_what_type_checkers_see() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen | {"__version__"} == set(kclient.__all__)


def test_files_and_functions_stay_small() -> None:
    wrong = []
    for path in sources():
        inner = path.relative_to(ROOT).as_posix()
        if inner.startswith(GENERATED):
            continue
        text = path.read_text()
        if len(text.splitlines()) > FILE_WALL:
            wrong.append(f"{inner} has {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if (lines := code_lines(node)) > FUNCTION_WALL:
                    wrong.append(f"{inner}: {node.name} has {lines} lines")
    assert not wrong


def test_every_file_says_what_it_is() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent
