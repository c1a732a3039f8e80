"""Package boundaries: allowed imports, what is imported lazily, and how big files may get.

Reads the source as syntax trees; a fresh interpreter shows what an import really loads.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kclient
from tools.code_metrics import GENERATED, SANS_IO, by_package, imported, read

ROOT = Path(kclient.__file__).parent
BASE = {
    *("types", "errors", "error_codes", "broker_errors", "clock", "backoff", "hooks", "config"),
    *(
        "credentials",
        "durations",
        "events",
        "foreign_methods",
        "foreign_settings",
        "frozen",
        "http",
        "jaas",
        "keywords",
        "msk_iam",
        "oauth_properties",
        "oidc",
        "properties",
        "partitioners",
        "settings",
        "secret",
        "security",
        "serializers",
        "tls",
        "security_properties",
        "transitions",
    ),
}
"""Base modules: they import each other and nothing else of kclient."""
ALLOWED = {
    "protocol": set[str](),
    "record": set[str](),
    "network": {"protocol", "record"},
    "cluster": {"protocol", "record", "network"},
    "producer": {"protocol", "record", "network", "cluster"},
    "group": {"protocol", "network", "cluster"},
    "consumer": {"protocol", "record", "network", "cluster", "group"},
    "admin": {"protocol", "record", "network", "cluster"},
    "process": {"producer", "consumer"},
    "doctor": {"protocol", "network"},
    "testing": {"protocol", "record"},
    "pytest_plugin": {"testing"},
    "cli": {"testing", "doctor"},
    "spark": {"admin", "consumer"},
    "__main__": {"cli"},
}
"""Package -> packages that it may import, besides the base modules and itself."""
HEAVY = (
    *("aiohttp", "aiokafka", "botocore", "confluent_kafka", "joserfc", "lz4", "numpy", "pyarrow"),
    *("snappy", "uvloop", "zstandard"),
)
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
"""Modules that a client doesn't need: together they cost a quarter of importing it."""
FILE_WALL, FUNCTION_WALL = 800, 60
FACADES = {"admin/admin.py", "consumer/consumer.py"}
"""One public class, most of it docstrings of its methods; these files may be longer."""
WAITING = {"asyncio", "socket", "select", "selectors", "time", "random", "secrets"}
"""Modules that a sans-IO file must not use: time comes in as `now`, randomness as an `rng`."""


def sources() -> list[Path]:
    """Return all modules of the package."""
    return sorted(ROOT.rglob("*.py"))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(path.read_text())


def package_of(module: str) -> str:
    """Map `kclient.cluster.view` to `cluster`, and the package itself to the empty string."""
    return module.removeprefix("kclient").strip(".").partition(".")[0]


def name_of(path: Path) -> str:
    """Return the dotted name of a module of the package."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Yield every module that a file imports anywhere, type checking and functions included."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join(parents) if node.level else ""
            module = ".".join(part for part in (origin, node.module) if part)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names if module == "kclient")


def imported_at_run_time(path: Path, *, in_functions: bool = True) -> frozenset[str]:
    """Return the modules that a file imports at run time, without those for type checkers."""
    return imported(tree_of(path), in_functions=in_functions)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the length of a function without its docstring, whose length isn't limited."""
    first = function.body[0]
    described = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if described else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def test_imports_go_one_way() -> None:
    wrong = []
    for path in sources():
        package = package_of(name_of(path))
        if not package:
            continue  # kclient/__init__.py re-exports names of every package
        allowed = BASE if package in BASE else BASE | ALLOWED[package] | {package}
        for module in imports(path):
            if module == "kclient" or not module.startswith("kclient."):
                continue
            target = package_of(module)
            if target not in allowed and not target.startswith("__"):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_no_modules_of_a_package_import_each_other() -> None:
    packages = by_package(read(ROOT, ROOT.parent, generated=False))
    assert {name: found.circles for name, found in packages.items() if found.circles} == {}


def test_every_package_is_on_the_map() -> None:
    packages = {package_of(name_of(path)) for path in sources()} - {""}
    assert packages <= BASE | set(ALLOWED)


@pytest.mark.parametrize("place", SANS_IO)
def test_bytes_and_decisions_never_wait(place: str) -> None:
    paths = [path for path in (ROOT / place, *(ROOT / place).rglob("*.py")) if path.is_file()]
    assert paths or (ROOT / place).is_dir(), f"{place} has moved: mend SANS_IO"
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
        if package_of(name_of(path)) != "spark"  # importing it is the first use
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
        if len(text.splitlines()) > FILE_WALL and inner not in FACADES:
            wrong.append(f"{inner} has {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if (lines := code_lines(node)) > FUNCTION_WALL:
                    wrong.append(f"{inner}: {node.name} has {lines} lines")
    assert not wrong


def test_every_file_has_a_docstring() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if not ast.get_docstring(tree_of(path))
    ]
    assert not silent
