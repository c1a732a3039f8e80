"""Places where code can be made wrong, and the source that has some of them behind switches.

Only what runs within functions of the pure build is changed: a switch can't reach what ran at
import. Left alone are texts, logging, assertions, the arguments of what is raised, and what
``__repr__`` and ``__str__`` do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

SWITCH = "_is_on_"
_TURNED: Mapping[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NO_CODE = (ast.JoinedStr, ast.Assert, ast.pattern, ast.Import, ast.ImportFrom)
_NOT_TESTED = frozenset(("__repr__", "__str__"))
_Function = ast.FunctionDef | ast.AsyncFunctionDef
Wrong = Callable[[], ast.AST]
"""Makes the wrong code that stands in for a piece."""


@dataclass(frozen=True, slots=True)
class Site:
    """One mistake that can be made.

    Attributes:
        file: From the project's folder.
        ordinal: Its place among the file's.
        line: In the file as it is.
        function: Where it is in, with the class.
        right: The piece of code as it is, ``wrong`` as it would be.
    """

    file: str
    ordinal: int
    line: int
    function: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.right} -> {self.wrong}"


def sites_in(file: str, text: str) -> list[Site]:
    """All of one file, in the order of the text."""
    return [
        Site(file, ordinal, node.lineno, function, _shown(node), _shown(wrong()))
        for ordinal, (node, function, wrong) in enumerate(_mistakes(ast.parse(text)))
    ]


def with_switches(text: str, numbers: Mapping[int, int]) -> str:
    """Return the source with some sites behind switches.

    Args:
        numbers: The number of the mutant, by the ordinal of its site.
    """
    tree = ast.parse(text)
    chosen = {
        id(node): (numbers[ordinal], wrong())
        for ordinal, (node, _, wrong) in enumerate(_mistakes(tree))
        if ordinal in numbers
    }
    tree = _Switching(chosen).visit(tree)
    after = next(
        index
        for index, node in enumerate(tree.body)
        if not isinstance(node, ast.Expr)
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    )
    tree.body[after:after] = ast.parse(f"from kclient._mutant import is_on as {SWITCH}").body
    return ast.unparse(ast.fix_missing_locations(tree))


class _Switching(ast.NodeTransformer):
    def __init__(self, chosen: Mapping[int, tuple[int, ast.AST]]) -> None:
        self._chosen = chosen

    def visit(self, node: ast.AST) -> ast.AST:
        right = self.generic_visit(node)
        if id(node) not in self._chosen:
            return right
        number, wrong = self._chosen[id(node)]
        switch = ast.parse(f"{SWITCH}({number})", mode="eval").body
        if isinstance(right, ast.stmt):
            assert isinstance(wrong, ast.stmt)
            return ast.If(switch, [wrong], [right])
        assert isinstance(right, ast.expr) and isinstance(wrong, ast.expr)
        return ast.IfExp(switch, wrong, right)


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()
    return text[0] + (" ..." if len(text) > 1 else "")


def _mistakes(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str, Wrong]]:
    for function, name in _functions(tree.body, ""):
        for statement in function.body:
            yield from _of_statement(statement, name)


def _functions(body: Iterable[ast.stmt], within: str) -> Iterator[tuple[_Function, str]]:
    """Those of a module and of its classes; what is defined in a function belongs to it."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{within}{node.name}.")
        elif isinstance(node, _Function) and node.name not in _NOT_TESTED:
            yield node, within + node.name


def _of_statement(
    node: ast.stmt, function: str
) -> Iterator[tuple[ast.expr | ast.stmt, str, Wrong]]:
    if isinstance(node, _NO_CODE) or _logs(node):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "cython.compiled":
        for other in node.orelse:
            yield from _of_statement(other, function)
        return
    if (wrong := _left_out(node)) is not None:
        yield node, function, wrong
    if isinstance(node, ast.Raise):
        return
    yield from _of_children(node, function)


def _of_children(node: ast.AST, function: str) -> Iterator[tuple[ast.expr | ast.stmt, str, Wrong]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(
            node, ast.Call
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, _NO_CODE):
                continue
            if isinstance(child, ast.stmt):
                yield from _of_statement(child, function)
            elif isinstance(child, ast.expr):
                if (wrong := _turned(child)) is not None:
                    yield child, function, wrong
                yield from _of_children(child, function)
            elif isinstance(child, ast.AST):
                yield from _of_children(child, function)


def _logs(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    return ast.unparse(node.value.func).split(".")[-2:-1] in (["_log"], ["log"], ["logger"])


def _left_out(node: ast.stmt) -> Wrong | None:
    """The statement without its effect; None where it has none, or can't be left out."""
    if isinstance(node, ast.Return) and node.value is not None:
        empty = isinstance(node.value, ast.Constant) and node.value.value is None
        return None if empty else lambda: ast.Return(ast.Constant(None))
    if isinstance(node, ast.Assign):
        kept = all(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets)
        return ast.Pass if kept else None
    if isinstance(node, ast.Expr):
        return ast.Pass if isinstance(node.value, ast.Call | ast.Await) else None
    left_out = (ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)
    return ast.Pass if isinstance(node, left_out) else None


def _turned(node: ast.expr) -> Wrong | None:
    """The expression, a little wrong; None where nothing is known that it could be."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in _TURNED:
            return lambda: ast.Compare(left, [_TURNED[type(op)]()], [right])
        case ast.BoolOp(op, values):
            return lambda: ast.BoolOp(_TURNED[type(op)](), values)
        case ast.UnaryOp(ast.Not(), operand):
            return lambda: ast.Call(ast.Name("bool", ast.Load()), [operand], [])
        case ast.BinOp(left, op, right) if type(op) in _TURNED:
            texts = (ast.JoinedStr, ast.Constant)
            if isinstance(op, ast.Add | ast.Mod) and any(
                isinstance(one, texts) and not isinstance(getattr(one, "value", ""), int | float)
                for one in (left, right)
            ):
                return None
            return lambda: ast.BinOp(left, _TURNED[type(op)](), right)
        case ast.Constant(bool() as value):
            return lambda: ast.Constant(not value)
        case ast.Constant(int() | float() as number):
            return lambda: ast.Constant(number + 1)
    return None
