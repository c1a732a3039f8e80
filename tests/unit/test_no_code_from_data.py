"""What comes from outside is never run: no pickle, no eval, no import of a name in data.

Read from the source as syntax trees. CVE-2023-25194, CVE-2023-34040, CVE-2024-31141 and
CVE-2025-27818 are what happens otherwise.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kclient
from kclient import ConsumerConfig, KafkaError, Secret

ROOT = Path(kclient.__file__).parent
MODULES = {
    *(
        "pickle",
        "_pickle",
        "cPickle",
        "dill",
        "cloudpickle",
        "shelve",
        "marshal",
        "yaml",
        "jsonpickle",
    ),
    *("subprocess", "runpy", "code", "codeop", "imp", "pkgutil", "xml", "ctypes"),
}
CALLS = {
    *("eval", "exec", "compile", "__import__", "import_module", "entry_points", "system", "popen"),
    *("spec_from_file_location", "load_source", "exec_module"),
}
ALLOWED = {
    ("__init__.py", "import_module"): "its own table of public names",
    ("protocol/api_versions.py", "import_module"): "a generated table of APIs, by number",
    ("protocol/messages/__init__.py", "import_module"): "a generated table of messages",
    ("record/compression.py", "import_module"): "its own table of codecs, by number",
    ("record/implementation.py", "import_module"): "its own table of builds",
    ("record/layout.py", "exec_module"): "the C module of crc32c, without the package around it",
}


def uses(path: Path) -> Iterator[str]:
    """The names of what a file imports or calls of these."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (one.name.split(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                yield function.id
            elif isinstance(function, ast.Attribute) and ast.unparse(function) != "re.compile":
                yield function.attr


def found_in(folder: Path) -> set[tuple[str, str]]:
    """File and name of every use."""
    return {
        (path.relative_to(folder).as_posix(), name)
        for path in folder.rglob("*.py")
        for name in uses(path)
        if name in MODULES | CALLS
    }


def test_nothing_is_run_that_is_not_of_our_own() -> None:
    assert found_in(ROOT) == set(ALLOWED)


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from yaml import load",
        "eval(text)",
        "importlib.import_module(name)",
        "os.system(text)",
        "def f():\n    from marshal import loads",
    ],
)
def test_a_use_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(line + "\n")
    assert found_in(tmp_path)


NAMING = {
    "key.deserializer": "antigravity.Deserializer",
    "value.deserializer": "antigravity",
    "interceptor.classes": "antigravity.Interceptor",
    "metric.reporters": "antigravity.Reporter",
    "partition.assignment.strategy": "antigravity.Assignor",
    "sasl.client.callback.handler.class": "antigravity.Handler",
    "sasl.login.class": "antigravity.Login",
    "sasl.login.callback.handler.class": "antigravity.Handler",
    "ssl.engine.factory.class": "antigravity.Factory",
    "security.providers": "antigravity.Provider",
    "sasl.jaas.config": 'antigravity.Module required username="a" password="b";',
    "plugin.library.paths": "antigravity",
}


@pytest.mark.parametrize("name", NAMING)
def test_no_setting_names_a_module_to_import(name: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", name: NAMING[name]}
    if name != "sasl.jaas.config":
        given |= {"sasl.username": "a", "sasl.password": "b"}
    with contextlib.suppress(KafkaError):
        ConsumerConfig.from_properties(given)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("value", ["${file:/etc/passwd:root}", "${env:HOME}", "$HOME", "%(HOME)s"])
def test_no_value_is_expanded(value: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    found = ConsumerConfig.from_properties({**given, "sasl.password": value}).security
    assert found.sasl is not None
    assert found.sasl.passwords() == ("a", Secret(value))
