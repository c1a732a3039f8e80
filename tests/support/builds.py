"""Whether what runs is the build that a run of the tests asks for, module by module."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

SETUP = Path(__file__).parents[2] / "setup.py"


def compiled_modules() -> list[str]:
    """The modules that have a compiled twin: COMPILED of setup.py."""
    for node in ast.parse(SETUP.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            found: list[str] = ast.literal_eval(node.value)
            return found
    raise LookupError(f"{SETUP} has no COMPILED")


def in_another_build(wanted: str) -> list[str]:
    """The modules that run in another build than ``wanted`` ("cython" or "pure").

    A twin that this package doesn't import by itself is not in use, even if it is there.
    """
    for client in ("kclient.producer.producer", "kclient.consumer.consumer"):
        import_module(client)
    found = []
    for module in compiled_modules():
        package, _, name = module.rpartition(".")
        is_pure = f"{package}._{name}_c" not in sys.modules
        if is_pure != (wanted == "pure"):
            found.append(module)
    return found
