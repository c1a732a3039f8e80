"""Copies of the project in a temporary folder, in one of which a guard is missing.

``Workshop`` copies the project once; each ``Sandbox`` is made of links to that copy, so it costs
little, and the one file that is changed is written anew. The working tree is only read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.guards.guard import BadGuard, Guard

COPIED = ("tests", "tools", "examples", "pyproject.toml")
"""Beside the package: what tests may use. What isn't there is left out."""
IMPORT_SECONDS = 120.0


class Workshop:
    """The copy that sandboxes are made of.

    Args:
        project: Root of the working tree.
        package: The package whose guards are tried.
        into: An empty folder to work in.
    """

    def __init__(self, project: Path, package: str, into: Path) -> None:
        self.package = package
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

    def sandbox(self, guard: Guard | None = None) -> Sandbox:
        """A copy of the project, without ``guard`` if one is given.

        Raises:
            BadGuard: Its text isn't in the file exactly once, or the file doesn't exist.
        """
        changed = None if guard is None else self._without(guard)
        self._made += 1
        root = self._into / f"sandbox-{self._made}"
        shutil.copytree(self._original, root, copy_function=os.link)
        sandbox = Sandbox(root, self.package)
        if guard is not None and changed is not None:
            sandbox.rewrite(guard.file, changed)
        return sandbox

    def _without(self, guard: Guard) -> str:
        path = self._original / guard.file
        if not path.is_file() or not guard.file.startswith(f"{self.package}/"):
            raise BadGuard(f"there is no file {guard.file} in {self.package}")
        return guard.removed_from(path.read_text())


class Sandbox:
    """One copy of the project.

    Attributes:
        root: Its folder, from which tests are run.
    """

    def __init__(self, root: Path, package: str) -> None:
        self.root = root
        self._package = package

    def rewrite(self, file: str, text: str) -> None:
        """Give one file another content, here only."""
        path = self.root / file
        path.unlink()  # it is a link to the original
        path.write_text(text)
        for cached in path.parent.glob(f"__pycache__/{path.stem}.*"):
            cached.unlink()

    def environment(self, *, pure: bool) -> dict[str, str]:
        """For processes that are to use this copy."""
        dropped = ("PYTEST_ADDOPTS", "PYTHONPATH", "KCLIENT_PURE", "PYTHONASYNCIODEBUG")
        kept = {key: value for key, value in os.environ.items() if key not in dropped}
        return {**kept, "PYTHONPATH": str(self.root), **({"KCLIENT_PURE": "1"} if pure else {})}

    def import_error(self, file: str, *, pure: bool) -> str | None:
        """Why the module in ``file`` can't be imported from here; None if it can.

        A package that doesn't import fails every test, which shows nothing about a guard.
        """
        module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        code = (
            "import importlib, pathlib, sys\n"
            f"package = importlib.import_module({self._package!r})\n"
            f"home = pathlib.Path({str(self.root)!r}).resolve()\n"
            "if home not in pathlib.Path(package.__file__).resolve().parents:\n"
            "    sys.exit(f'it is imported from {package.__file__}')\n"
            "for name in getattr(package, '__all__', ()):\n"
            "    getattr(package, name)\n"
            f"importlib.import_module({module!r})\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.root,
            env=self.environment(pure=pure),
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
        if done.returncode == 0:
            return None
        return (done.stderr.strip() or "no reason given").splitlines()[-1]

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.root, ignore_errors=True)
