"""Counts what the code costs to read: ``python -m tools.code_metrics [--json FILE]``.

Per package of ``kclient``: files, lines with code in them (no docstrings, comments, blanks), files
under 80 lines of any kind, lines of public docstrings, and import circles. Of the tests: how much
of them reaches for modules that no user imports. Of the pure build, traced: how many frames and
files one awaited send, one polled batch, one group join and one Produce in the embedded cluster go
through.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = "kclient"
SMALL = 80
"""Lines, of whatever kind, below which a file counts as small."""
GENERATED = (
    "error_codes.py",
    "broker_errors.py",
    "protocol/messages/",
    "testing/config_tables/",
)
"""What generators write, in the package's folder."""
PUBLIC = frozenset(
    f"{PACKAGE}.{name}"
    for name in (
        "backoff broker_errors config credentials error_codes errors hooks partitioners "
        "pytest_plugin secret security serializers testing types"
    ).split()
) | {PACKAGE}
"""Modules that applications import from."""
SANS_IO = tuple(
    place
    for package, files in {
        "": "protocol record backoff.py events.py transitions.py types.py errors.py frozen.py "
        "durations.py foreign_methods.py foreign_settings.py secret.py settings.py config.py",
        "network": "connection.py frames.py handshake.py nodes.py "
        "sasl/oauthbearer.py sasl/plain.py sasl/scram.py",
        "cluster": "metadata.py metadata_merge.py offset_lookup.py offset_requests.py "
        "retry.py topic.py view.py",
        "producer": "accumulator.py batch.py deadline_queue.py idempotence.py "
        "outgoing.py partition_queue.py produce_request.py produce_response.py record_source.py "
        "sticky_partitioner.py",
        "consumer": "arguments.py commit_queue.py completed_fetch.py dead_letters.py "
        "fetch_buffer.py fetch_response.py fetch_scheduler.py fetch_session.py health.py "
        "log_truncation.py offset_reset.py partition_state.py stall_detection.py subscription.py "
        "handlers/retries.py handlers/run_options.py handlers/tracker.py",
        "group": "assignors commit_errors.py consumer_protocol.py member.py",
        "admin": "acls.py arguments.py delegation_tokens.py descriptions.py quotas.py topics.py "
        "users.py",
        "doctor": "causes.py certificate.py findings.py releases.py",
        "testing": "authorizer.py broker_configs.py compaction.py config_defs.py "
        "config_descriptions.py config_rules.py config_tables controller.py "
        "delegation_tokens.py events.py follower_fetch.py groups/classic_group.py "
        "groups/joins.py groups/offsets.py groups/rebalances.py groups/records.py "
        "groups/shard.py groups/writes.py image.py "
        "log.py log_cleaner.py log_state.py log_validator.py "
        "quorum.py quota_rules.py quotas.py replica.py replicas.py request_info.py sasl.py "
        "scram_users.py stored_batch.py topic_configs.py topic_rules.py",
    }.items()
    for place in (f"{package}/{file}".lstrip("/") for file in files.split())
)
"""Folders and files in the package's that do no input or output, and are tested without a loop."""
_NO_CODE = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    )
)


@dataclass(slots=True)
class Source:
    """One file.

    Attributes:
        path: From the project's folder.
        module: Its name for imports.
        lines: How many lines it has.
        code: How many of its lines have code.
        docs: How many lines its public docstrings have.
        imports: Modules that it imports when it runs, wherever in the file; types aside.
        sans_io: It is one of ``SANS_IO``.
    """

    path: str
    module: str
    lines: int
    code: int
    docs: int
    imports: frozenset[str]
    sans_io: bool


@dataclass(slots=True)
class Counts:
    """Of one package."""

    files: int = 0
    code: int = 0
    small: int = 0
    docs: int = 0
    circles: list[list[str]] = field(default_factory=list)

    def add(self, source: Source) -> None:
        """Count one file in."""
        self.files += 1
        self.code += source.code
        self.small += source.lines < SMALL
        self.docs += source.docs


def code_lines(text: str, tree: ast.Module) -> int:
    """How many lines have code: neither blank nor comment nor docstring alone."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in _docstrings(tree):
        lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _docstrings(tree: ast.AST) -> Iterator[ast.Expr]:
    """Texts that stand alone: docstrings, and those below an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node


def doc_lines(tree: ast.Module) -> int:
    """Lines of docstrings of what has a public name, methods of private classes left out."""
    found = 0

    def visit(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        nonlocal found
        found += len((ast.get_docstring(node) or "").splitlines())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        for one in node.body:
            if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if not one.name.startswith("_"):
                    visit(one)

    visit(tree)
    return found


def imported(tree: ast.Module, *, in_functions: bool = True) -> frozenset[str]:
    """Return what runs as an import; ``if TYPE_CHECKING`` does not.

    ``from a import b`` gives ``a`` and ``a.b``, as ``b`` may be a module.
    """
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not in_functions:
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def read(folder: Path, project: Path = PROJECT, *, generated: bool = True) -> list[Source]:
    """All Python files below ``folder``, those that generators write where they are wanted."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(project).as_posix()
        if not generated and is_one_of(name, GENERATED):
            continue
        text = path.read_text()
        tree = ast.parse(text)
        module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        found.append(
            Source(
                name,
                module,
                len(text.splitlines()),
                code_lines(text, tree),
                doc_lines(tree),
                imported(tree),
                is_one_of(name, SANS_IO),
            )
        )
    return found


def is_one_of(path: str, places: Iterable[str]) -> bool:
    """Whether a file of the package is one of these, or in one of these folders."""
    inside = path.removeprefix(f"{PACKAGE}/")
    return inside != path and any(
        inside == place or inside.startswith(place.rstrip("/") + "/") for place in places
    )


def package_of(source: Source) -> str:
    """The package that a file counts for: ``kclient``, or the one right below it."""
    parts = Path(source.path).parts
    return f"{parts[0]}.{parts[1]}" if len(parts) > 2 else parts[0]


def circles(sources: Iterable[Source]) -> list[list[str]]:
    """Modules that import each other, in groups: what is in one can't be read by itself."""
    edges = {one.module: one.imports for one in sources}
    reach = {module: _reachable(module, edges) for module in edges}
    groups: dict[frozenset[str], list[str]] = {}
    for module in edges:
        ring = frozenset(other for other in reach[module] if module in reach.get(other, ()))
        if len(ring) > 1:
            groups[ring] = sorted(ring)
    return sorted(groups.values())


def _reachable(start: str, edges: Mapping[str, frozenset[str]]) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        for other in edges.get(left.pop(), ()):
            if other in edges and other not in seen:
                seen.add(other)
                left.append(other)
    return seen


def by_package(sources: Iterable[Source]) -> dict[str, Counts]:
    """Counts of each package; generated files aside."""
    grouped: dict[str, list[Source]] = {}
    for source in sources:
        if not is_one_of(source.path, GENERATED):
            grouped.setdefault(package_of(source), []).append(source)
    found = {}
    for name, members in sorted(grouped.items()):
        counts = found[name] = Counts()
        for source in members:
            counts.add(source)
        # What a package's front re-exports is no circle of its parts.
        counts.circles = circles(one for one in members if not one.path.endswith("__init__.py"))
    return found


def inside_share(tests: Iterable[Source], package: Iterable[Source]) -> dict[str, int]:
    """Lines of test files: all, those that import inner modules directly, and sans-IO ones only."""
    inner = {one.module: one.sans_io for one in package if one.module not in PUBLIC}
    found = {"all": 0, "inner": 0, "sans_io": 0}
    for test in tests:
        found["all"] += test.code
        reached = [inner[name] for name in test.imports if name in inner]
        if reached:
            found["sans_io" if all(reached) else "inner"] += test.code
    return found


def traces(project: Path = PROJECT) -> dict[str, dict[str, int]]:
    """Frames and files of the traced calls, from a process of the pure build."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.call_traces"],
        cwd=project,
        env={"KCLIENT_PURE": "1", "PATH": "", "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


def measure(project: Path = PROJECT) -> dict[str, Any]:
    """Everything, as plain values."""
    sources = read(project / PACKAGE, project)
    return {
        "packages": {name: asdict(one) for name, one in by_package(sources).items()},
        "tests": inside_share(read(project / "tests", project), sources),
        "traces": traces(project),
    }


def table(measured: Mapping[str, Any]) -> Iterator[str]:
    """The same for people, line by line."""
    yield f"{'package':22}{'files':>7}{'code':>8}{'small':>7}{'docs':>7}{'circles':>9}"
    total = dict.fromkeys(("files", "code", "small", "docs"), 0)
    for name, one in measured["packages"].items():
        yield (
            f"{name:22}{one['files']:7,}{one['code']:8,}{one['small']:7,}{one['docs']:7,}"
            f"{len(one['circles']):9,}"
        )
        for key in total:
            total[key] += one[key]
    yield f"{'together':22}" + "".join(
        f"{total[key]:{width},}"
        for key, width in (("files", 7), ("code", 8), ("small", 7), ("docs", 7))
    )
    tests = measured["tests"]
    for kind, words in (("inner", "import inner modules"), ("sans_io", "sans-IO ones only")):
        share = tests[kind] / max(1, tests["all"])
        yield f"tests: {tests[kind]:,} of {tests['all']:,} lines ({share:.0%}) {words}"
    for name, one in measured["traces"].items():
        yield f"{name}: {one['frames']:,} frames in {one['files']:,} files"


def main(arguments: list[str] | None = None) -> int:
    """Run from a command line; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.code_metrics", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the counts there as well")
    options = parser.parse_args(arguments)
    measured = measure()
    for line in table(measured):
        print(line)
    for name, one in measured["packages"].items():
        for ring in one["circles"]:
            print(f"circle in {name}: {', '.join(part.rpartition('.')[2] for part in ring)}")
    if options.json is not None:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
