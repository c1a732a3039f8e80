"""Merges and renames modules, and renames identifiers: ``python -m tools.rename TABLE``.

TABLE is a TOML file; all paths of modules are below ``kclient/``, those of files below the
project, and all are today's: a row finds a file where an earlier row has moved it to.

- ``[[merge]]``: ``from`` goes into ``into``: its imports beside those there, its code behind them,
  or before them with ``first = true``. With ``part = true`` only a part goes: left to people.
- ``[[module]]``: ``from`` becomes ``to``, with its ``.pxd`` and its unit test.
- ``[[name]]``: ``from`` becomes ``to``; with the scope "global" as a whole word in all of the
  project, with "file" in its ``files`` only. "manual" is left to people.

What names a module by its dotted name follows; lines that name it otherwise are printed. ruff
sorts and formats what changed. Docstrings of merged files are dropped: read them before.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "kclient"
SEARCHED = ("kclient", "tests", "tools", "benchmarks", "examples", "docs", ".ci")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "setup.py", "pyproject.toml")
SUFFIXES = frozenset({".py", ".pyi", ".pxd", ".md", ".toml", ".sh", ""})
KEPT = (
    "kclient/protocol/messages/",
    "tools/protocol/",
    "tools/rename",
    "tests/mutants/baseline.json",
)
"""Generated, or using the names with another meaning."""
KINDS = ("merge", "module", "name")
FUTURE = "from __future__ import annotations\n"


@dataclass
class Parts:
    """A module's source in pieces.

    Attributes:
        docstring: Without its quotes.
        imports: Each import of the top level.
        typing: Each import below ``if TYPE_CHECKING``.
        body: What follows.
    """

    docstring: str = ""
    imports: list[str] = field(default_factory=list)
    typing: list[str] = field(default_factory=list)
    body: str = ""

    @classmethod
    def of(cls, path: Path) -> Parts:
        """Take a file apart."""
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        tree, parts, last = ast.parse(text), cls(), 0
        parts.docstring = ast.get_docstring(tree, clean=False) or ""

        def source(node: ast.stmt) -> str:
            return "".join(lines[node.lineno - 1 : node.end_lineno])

        for index, node in enumerate(tree.body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                if source(node) != FUTURE:
                    parts.imports.append(source(node))
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                parts.typing += [source(one) for one in node.body]
            elif index or not isinstance(node, ast.Expr):
                break
            last = node.end_lineno or last
        parts.body = "".join(lines[last:]).strip("\n") + "\n"
        return parts

    def drop_imports_of(self, *modules: str) -> None:
        """Forget the imports of these."""
        names = "|".join(map(re.escape, modules))
        own = re.compile(rf"\s*from ({names}) import")
        self.imports = [one for one in self.imports if not own.match(one)]
        self.typing = [one for one in self.typing if not own.match(one)]

    def text(self) -> str:
        """The source again; ruff is to sort its imports."""
        text = f'"""{self.docstring}"""\n\n{FUTURE}\n' + "".join(dict.fromkeys(self.imports))
        typing = [one for one in dict.fromkeys(self.typing) if one.strip() + "\n" not in text]
        if typing:
            text += "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n" + "".join(typing)
        return f"{text}\n{self.body}"


class Renaming:
    """One table at work.

    Attributes:
        moved: Where files are that the table knows by another path.
    """

    def __init__(self) -> None:
        self.moved: dict[str, str] = {}

    def merge(self, row: dict[str, Any]) -> None:
        """Move all of a module into another."""
        old, new = self.now(row["from"]), self.now(row["into"])
        if row.get("part"):
            print(f"{old} -> {new}: a part, by hand")
            return
        if not (PACKAGE / new).exists():
            self.move(old, new)
            return
        source, target = Parts.of(PACKAGE / old), Parts.of(PACKAGE / new)
        for parts in (source, target):
            parts.drop_imports_of(dotted(old), dotted(new))
        target.imports += source.imports
        target.typing += source.typing
        bodies = [target.body, source.body]
        target.body = "\n\n".join(reversed(bodies) if row.get("first") else bodies)
        (PACKAGE / new).write_text(target.text())
        subprocess.run(["git", "rm", "-qf", str(PACKAGE / old)], cwd=PROJECT, check=True)
        self.follow(old, new)

    def module(self, row: dict[str, Any]) -> None:
        """Rename a module."""
        self.move(self.now(row["from"]), row["to"])

    def note(self, row: dict[str, Any]) -> None:
        """A row was applied before: only remember where its file is."""
        if not row.get("part"):
            old, new = row["from"], row.get("into") or row["to"]
            self.moved[old] = new
            for one, other in ((old, new), (test_of(old), test_of(new))):
                if not (PACKAGE / one).exists() and (PROJECT / "tests/unit" / other).exists():
                    self.moved[one] = other

    def move(self, old: str, new: str) -> None:
        """Rename one module, its declarations for Cython and its unit test."""
        before, after = Path(old), Path(new)
        tests = PROJECT / "tests" / "unit"
        for root, one, other in (
            (PACKAGE, before, after),
            (PACKAGE, before.with_suffix(".pxd"), after.with_suffix(".pxd")),
            (PACKAGE, before.with_name(f"_{before.stem}_c.pxd"), Path(f"_{after.stem}_c.pxd")),
            (tests, before.with_name(f"test_{before.stem}.py"), Path(f"test_{after.stem}.py")),
        ):
            target = root / after.with_name(other.name)
            if (root / one).exists() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["git", "mv", str(root / one), str(target)], cwd=PROJECT, check=True)
                self.moved[one.as_posix()] = after.with_name(other.name).as_posix()
        self.follow(old, new)

    def follow(self, old: str, new: str) -> None:
        """Have whatever names a module name it as it is now."""
        self.moved[old] = new
        count = replace(re.escape(dotted(old)), dotted(new), texts())
        parent, _, stem = dotted(old).rpartition(".")
        twin = f"{parent}._{stem}_c"
        if "/" in old:
            target = dotted(new).rpartition(".")
            count += replace(re.escape(twin), f"{target[0]}._{target[2]}_c", texts())
        print(f"{old} -> {new}: {count} places")
        looks = re.compile(rf"from {re.escape(parent)} import .*\b{stem}\b|\b{stem}\.py\b")
        for path in texts():
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if looks.search(line):
                    print(f"  look at {path.relative_to(PROJECT)}:{number}: {line.strip():.100}")

    def name(self, row: dict[str, Any]) -> None:
        """Rename one identifier."""
        old, new, scope = row["from"], row["to"], row["scope"]
        if scope == "manual":
            print(f"{old} -> {new}: by hand, {row.get('where', '')}")
            return
        paths = texts() if scope == "global" else map(self.present, row["files"])
        print(f"{old} -> {new}: {replace(re.escape(old), new, paths)} places")

    def now(self, path: str) -> str:
        """The present path of one below the package, or below the unit tests."""
        while path in self.moved:
            path = self.moved[path]
        return path

    def present(self, name: str) -> Path:
        """Where a file of the table is now."""
        for root in ("kclient/", "tests/unit/"):
            if name.startswith(root):
                below = name.removeprefix(root)
                return PROJECT / root / self.now(below)
        return PROJECT / name


def texts() -> Iterator[Path]:
    """All files of the project that may name something."""
    listed = subprocess.run(
        ["git", "ls-files", *SEARCHED, *PAGES], cwd=PROJECT, capture_output=True, text=True
    )
    for name in listed.stdout.splitlines():
        path = PROJECT / name
        if path.suffix in SUFFIXES and path.is_file() and not name.startswith(KEPT):
            yield path


def replace(word: str, new: str, paths: Iterable[Path]) -> int:
    """Replace all whole words that match ``word``; return how many there were."""
    count, pattern = 0, re.compile(rf"\b{word}\b")
    for path in paths:
        if not path.exists():
            print(f"  there is no {path.relative_to(PROJECT)}")
            continue
        changed, found = pattern.subn(lambda _: new, path.read_text())
        if found:
            path.write_text(changed)
            count += found
    return count


def test_of(path: str) -> str:
    """The unit test of a module, both below their folders."""
    return Path(path).with_name(f"test_{Path(path).name}").as_posix()


def dotted(path: str) -> str:
    """A module's name by its path below the package."""
    return "kclient." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def main() -> int:
    """Apply a table."""
    parser = argparse.ArgumentParser(prog="python -m tools.rename", description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument(
        "--only", choices=KINDS, help="rows of one kind, those of the kinds before it being applied"
    )
    given = parser.parse_args()
    table = tomllib.loads(given.table.read_text())
    renaming = Renaming()
    for kind in KINDS:
        for row in table.get(kind, []):
            if given.only in (None, kind):
                getattr(renaming, kind)(row)
            else:
                renaming.note(row)
        if kind == given.only:
            break
    for command in (["check", "--fix", "-q"], ["format", "-q"]):
        subprocess.run([sys.executable, "-m", "ruff", *command], cwd=PROJECT, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
