"""The index of ARCHITECTURE.md is sorted, and each of its rows names something that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
PAGE = PROJECT / "ARCHITECTURE.md"


def rows() -> list[tuple[str, str]]:
    text = PAGE.read_text().partition("\n## Index\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return [(concept, where) for concept, where in cells]


@cache
def defined(path: Path) -> frozenset[str]:
    """Return a module's names, with ``Class.method`` and attributes set on ``self``."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        names.update(_of(node))
        if isinstance(node, ast.ClassDef):
            names.update(
                f"{node.name}.{inner}"
                for each in ast.walk(node)
                if isinstance(each, ast.stmt) and each is not node
                for inner in _of(each)
            )
    return frozenset(names)


def _of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [ast.unparse(target).removeprefix("self.") for target in targets]


def test_the_index_is_sorted_and_has_each_concept_once() -> None:
    concepts = [concept.lower() for concept, _ in rows()]
    assert len(concepts) > 100
    assert concepts == sorted(set(concepts))


@pytest.mark.parametrize(("concept", "where"), rows())
def test_what_a_row_names_is_there(concept: str, where: str) -> None:
    for place in where.split("; "):
        file, _, names = place.partition(": ")
        path = PROJECT / "kclient" / file.strip("`")
        assert path.is_file(), f"{concept}: there is no {file}"
        for name in re.findall(r"`([^`]+)`", names):
            assert name in defined(path), f"{concept}: {file} has no {name}"
