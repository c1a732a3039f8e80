"""A stored error is never raised itself: its traceback would grow with each raise.

``errors.fresh`` makes a copy of a stored error to raise.
"""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kclient
from kclient.cluster.calls import Calls
from kclient.cluster.supervision import Supervisor
from kclient.cluster.updater import MetadataUpdater
from kclient.errors import ConnectionLost, KafkaError, fresh
from kclient.hooks import Counters, Hooks
from kclient.network.requests import RequestFuture

ROOT = Path(kclient.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if "messages" not in path.parts)
ALLOWED = {
    "consumer/consumer.py: outcome",  # of this call alone
    "producer/record_source.py: error",  # its reference is dropped before the raise
    "producer/send_many.py: raised",  # ends the program
    "testing/clock.py: error.__cause__",  # of the error that was just caught
}


def kept(tree: ast.Module) -> Iterator[str]:
    """Yield what is raised, or set on a future, out of attributes, items and constants."""
    constants = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            constants |= {one.name for one in node.names if one.name.isupper()}
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for function in [tree, *functions]:
        aliases = constants | {name for name, value in assigned(function) if is_kept(value)}
        for node in own(function):
            for raised in raised_by(node):
                if is_kept(raised) or (isinstance(raised, ast.Name) and raised.id in aliases):
                    yield ast.unparse(raised)


def own(function: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a function but those of nested functions."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from own(child)


def assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield names and what is assigned to them."""
    for node in own(function):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.NamedExpr | ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                let_go = {ast.unparse(one) for one in target.elts}
                for one, of in zip(target.elts, value.elts, strict=False):
                    if isinstance(one, ast.Name) and ast.unparse(of) not in let_go:
                        yield one.id, of


def raised_by(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement raises, here or at the waiters of a future."""
    found: ast.expr | None = None
    if isinstance(node, ast.Raise):
        found = node.exc
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("set_exception", "throw") and node.args:
            found = node.args[0]
    while isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute):
        if found.func.attr != "with_traceback":
            return
        found = found.func.value
    if found is not None:
        yield found


def is_kept(value: ast.expr) -> bool:
    """Return whether it is an attribute or an item, and no class."""
    if isinstance(value, ast.IfExp):
        return is_kept(value.body) or is_kept(value.orelse)
    if isinstance(value, ast.Attribute):
        return not value.attr[:1].isupper() or value.attr.isupper()
    return isinstance(value, ast.Subscript)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_error_that_is_kept_is_raised(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    found = {f"{name}: {raised}" for raised in kept(ast.parse(path.read_text()))}
    assert not found - ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        "raise self._ended",
        "raise self.failure.with_traceback(None)",
        "raise errors[0] from None",
        "waiter.set_exception(self._ended)",
        "error = self._ended\nraise error",
        "if (error := self._ended):\n    raise error",
        "TWICE = Refused(1)\ndef check():\n    raise TWICE",
        "from rules import TWICE\ndef check():\n    raise TWICE",
    ],
)
def test_the_search_finds_them(text: str) -> None:
    assert list(kept(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "raise errors.InvalidConfig('x')",
        "raise typer.Exit",
        "raise fresh(self._ended)",
        "late, self._late = self._late, None\nraise late",
        "try:\n    pass\nexcept ValueError as error:\n    raise error",
    ],
)
def test_the_search_leaves_others_alone(text: str) -> None:
    assert not list(kept(ast.parse(text)))


def wait_for_news(error: KafkaError) -> None:
    clock, view = SimpleNamespace(now=lambda: 0.0), SimpleNamespace(version=1)
    updater: Any = SimpleNamespace(_ended=error, _clock=clock, view=view)
    MetadataUpdater.wait_newer(updater, 1, 1.0).send(None)


def failed_request(error: KafkaError) -> Callable[[], object]:
    future: RequestFuture[None] = RequestFuture()
    future.fail(error)
    return future.result


def failed_client(error: KafkaError) -> Callable[[], object]:
    supervisor = Supervisor(Hooks(), Counters(), lambda _: None)
    supervisor.failure = error
    supervisor._home = None
    return supervisor.check


RAISERS: dict[str, Callable[[KafkaError], Callable[[], object]]] = {
    "calls": lambda error: lambda: Calls.check_ended(SimpleNamespace(_ended=error)),  # type: ignore[arg-type]
    "updater": lambda error: lambda: wait_for_news(error),
    "supervisor": failed_client,
    "request": failed_request,
}


@pytest.mark.parametrize("name", RAISERS)
def test_the_traceback_of_an_error_that_is_raised_again_and_again_does_not_grow(name: str) -> None:
    kept_error = ConnectionLost("it broke", node_id=3, hint="look at the network")
    kept_error.__cause__ = OSError(104, "reset")
    kept_error.add_note("a note")
    again = RAISERS[name](kept_error)
    lengths = set()
    for _ in range(100):
        with pytest.raises(ConnectionLost) as caught:
            again()
        error = caught.value
        assert error is not kept_error
        assert (str(error), error.__dict__) == (str(kept_error), kept_error.__dict__)
        assert error.__cause__ is kept_error.__cause__
        lengths.add(len(list(traceback.walk_tb(error.__traceback__))))
    assert len(lengths) == 1
    assert kept_error.__traceback__ is None


class Odd(Exception):
    """An error that can't be copied."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)


def test_an_error_that_can_not_be_copied_is_raised_itself() -> None:
    odd = Odd(1, 2)
    assert fresh(odd) is odd


def test_a_copy_has_its_own_notes() -> None:
    error = KafkaError("a")
    error.add_note("first")
    fresh(error).add_note("second")
    assert error.__notes__ == ["first"]
