"""Copies of the project in a temporary folder, to be made slower.

``Workshop`` copies the project once; each ``Sandbox`` is made of links to that copy, so it costs
little, and the files that are changed are written afresh. The working tree is only read.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

COPIED = ("tests", "tools", "examples", "pyproject.toml")
"""Beside the package: what tests may use. What isn't there is left out."""


class Workshop:
    """The copy that sandboxes are made of.

    Args:
        project: Root of the working tree.
        package: The package to copy.
        into: An empty folder to work in.
    """

    def __init__(self, project: Path, package: str, into: Path) -> None:
        self._into = into
        self._original = into / "original"
        self._made = 0
        self._original.mkdir(parents=True)
        for name in (package, *COPIED):
            source = project / name
            if source.is_dir():
                # With the compiled caches, which stay valid as times are copied too.
                shutil.copytree(source, self._original / name)
            elif source.exists():
                shutil.copy2(source, self._original / name)

    def sandbox(self) -> Sandbox:
        """Another copy of the project."""
        self._made += 1
        root = self._into / f"sandbox-{self._made}"
        shutil.copytree(self._original, root, copy_function=os.link)
        return Sandbox(root)


class Sandbox:
    """One copy of the project.

    Attributes:
        root: Its folder, from which tests are run.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def rewrite(self, file: str, text: str) -> None:
        """Give one file another content, here only."""
        path = self.root / file
        path.unlink()  # it is a link to the original
        path.write_text(text)
        for cached in path.parent.glob(f"__pycache__/{path.stem}.*"):
            cached.unlink()

    def environment(self) -> dict[str, str]:
        """For processes that are to use this copy."""
        dropped = ("PYTEST_ADDOPTS", "PYTHONPATH", "KCLIENT_PURE", "PYTHONASYNCIODEBUG")
        kept = {key: value for key, value in os.environ.items() if key not in dropped}
        return {**kept, "PYTHONPATH": str(self.root)}

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.root, ignore_errors=True)
