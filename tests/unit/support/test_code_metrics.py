"""What ``tools.code_metrics`` counts as code, as an import, and as an import cycle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.code_metrics import (
    Source,
    by_package,
    circles,
    code_lines,
    doc_lines,
    imported,
    inside_share,
    read,
)

TEXT = '''"""About it.

More.
"""

# a comment
from a import (
    b,
    c,
)

SIZE = 1  # with a comment
"""What it is."""


def public(x):
    """Do it."""
    return """a text
of two lines"""


class _Private:
    """Not for others."""

    def method(self):
        """Nor this."""
'''


def source(
    module: str, *imports: str, lines: int = 90, code: int = 10, sans_io: bool = False
) -> Source:
    path = module.replace(".", "/") + ".py"
    return Source(path, module, lines, code, 0, frozenset(imports), sans_io)


def test_docstrings_comments_and_blank_lines_are_no_code() -> None:
    assert code_lines(TEXT, ast.parse(TEXT)) == 4 + 1 + 1 + 2 + 1 + 1


def test_public_docstrings_are_counted_by_their_lines() -> None:
    assert doc_lines(ast.parse(TEXT)) == 3 + 1


def test_imports_in_functions_count_and_those_for_types_do_not() -> None:
    text = (
        "import a.b\n"
        "if TYPE_CHECKING:\n    from c import d\n"
        "else:\n    import e\n"
        "def f():\n    from g import h\n"
    )
    assert imported(ast.parse(text)) == {"a.b", "e", "g", "g.h"}
    assert imported(ast.parse(text), in_functions=False) == {"a.b", "e"}


def test_what_type_checkers_and_one_build_see_is_an_import() -> None:
    text = "if TYPE_CHECKING or PURE:\n    import a\nelse:\n    import b\n"
    assert imported(ast.parse(text)) == {"a", "b"}


def test_modules_that_reach_each_other_are_one_circle() -> None:
    members = [
        source("k.a", "k.b"),
        source("k.b", "k.c"),
        source("k.c", "k.a", "k.d"),
        source("k.d", "elsewhere"),
        source("k.e", "k.f"),
        source("k.f", "k.e"),
    ]
    assert circles(members) == [["k.a", "k.b", "k.c"], ["k.e", "k.f"]]


def test_packages_are_counted_without_what_is_generated() -> None:
    members = [
        source("kclient.errors", lines=79, code=7),
        source("kclient.admin.admin", lines=80, code=8),
        source("kclient.protocol.messages.fetch"),
    ]
    found = by_package(members)
    assert {name: (one.files, one.code, one.small) for name, one in found.items()} == {
        "kclient": (1, 7, 1),
        "kclient.admin": (1, 8, 0),
    }


def test_tests_are_classified_by_what_they_import() -> None:
    package = [
        source("kclient.errors"),
        source("kclient.testing"),
        source("kclient.consumer.poller"),
        source("kclient.record.layout", sans_io=True),
    ]
    tests = [
        source("tests.public", "kclient.errors", "kclient.testing", code=1),
        source("tests.inner", "kclient.consumer.poller", "kclient.record.layout", code=2),
        source("tests.pure", "kclient.record.layout", code=4),
    ]
    assert inside_share(tests, package) == {"all": 7, "inner": 2, "sans_io": 4}


@pytest.mark.parametrize(
    ("path", "is_so"),
    [("record/layout.py", True), ("consumer/offset_reset.py", True), ("consumer/poller.py", False)],
)
def test_a_file_is_sans_io_if_it_or_its_folder_is_listed(
    tmp_path: Path, path: str, is_so: bool
) -> None:
    file = tmp_path / "kclient" / path
    file.parent.mkdir(parents=True)
    file.write_text('"""About it."""\n\nimport os\n')
    [found] = read(tmp_path / "kclient", tmp_path)
    assert (found.path, found.code, found.docs) == (f"kclient/{path}", 1, 1)
    assert found.sans_io is is_so
