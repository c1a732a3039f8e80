"""Builds the compiled twins of kclient's hot modules; everything else is in pyproject.toml.

``COMPILED`` is the whole list: to compile another module write the ``.pxd`` beside it and add its
name. Each source is compiled under a second name (``record`` -> ``_record_c``) and stays importable
as plain Python; which of the two runs is decided at import. Without Cython or without a C compiler
the installation succeeds, is pure and says so; with both, a module that can't be compiled is an
error. ``KCLIENT_PURE=1`` in the environment makes a pure wheel on purpose.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError, CompileError

COMPILED = [
    "kclient.consumer.record_iterator",
    "kclient.producer.batch",
    "kclient.producer.delivery",
    "kclient.producer.record_source",
    "kclient.producer.partition_queue",
    "kclient.producer.sticky_partitioner",
    "kclient.producer.append",
    "kclient.producer.arrow_append",
    "kclient.record.arrow_rows",
    "kclient.record.record",
    "kclient.record.builder",
    "kclient.record.columns",
    "kclient.record.murmur",
]

DIRECTIVES = {
    "language_level": 3,
    # Types come from the .pxd only: an annotation is a statement for people and mypy.
    "annotation_typing": False,
    # Bounds are checked by the shared source itself, so that both builds find the same errors.
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    # Functions have signatures of their own; embedded ones show the class that is inherited from.
    "embedsignature": False,
}
ROOT = Path(__file__).resolve().parent
GENERATED = Path("build") / "compiled"
REFCOUNTS = Path("kclient") / "_refcounts.h"


def pure_wanted() -> bool:
    return os.environ.get("KCLIENT_PURE", "") not in ("", "0")


def twin_of(module: str) -> str:
    """The name that ``module`` is compiled under."""
    package, _, name = module.rpartition(".")
    return f"{package}._{name}_c"


def source_of(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


def extensions() -> list[Extension]:
    """One extension per module of ``COMPILED``; none without Cython, or where it shall not be.

    Only named here, and turned into C when they are built: an installation runs this file several
    times, and asks only once for a build.
    """
    if pure_wanted():
        return []
    try:
        import Cython.Build  # noqa: F401 - only whether it is there
    except ImportError:
        sys.stderr.write("kclient: no Cython here, so this will be the pure-Python build\n")
        return []
    return [Extension(twin_of(module), [source_of(module).as_posix()]) for module in COMPILED]


def in_c() -> dict[str, list[str]]:
    """The sources in C of each compiled twin, made anew, by its name.

    Always from scratch: a .c that is left over from an older source would be shipped silently.
    """
    from Cython.Build import cythonize

    copies = []
    for module in COMPILED:
        # Cython wants the source under the name of the module that it makes. The copies lie in
        # build/, so that no import can ever take one for the compiled module.
        copy = GENERATED / source_of(twin_of(module))
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source_of(module), copy)
        copies.append(Extension(twin_of(module), [copy.as_posix()]))
    built = cythonize(
        copies, include_path=["."], compiler_directives=DIRECTIVES, force=True, quiet=True
    )
    return {extension.name: extension.sources for extension in built}


class BuildCompiled(build_ext):
    """Compiles all of them or, where no C compiler works, none; a module that fails is an error.

    What an earlier build left behind goes first: without a compiler it would be shipped.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if self.parallel is None:
            self.parallel = os.cpu_count()

    def run(self) -> None:
        self.force = True
        for extension in self.extensions:
            name = self.get_ext_fullname(extension.name)
            built = Path(self.build_lib, self.get_ext_filename(name))
            for left_over in (built, Path(self.get_ext_fullpath(extension.name))):
                left_over.unlink(missing_ok=True)
        super().run()

    def build_extensions(self) -> None:
        if not self.compiler_works():
            sys.stderr.write(
                "kclient: no C compiler works here, so this will be the pure-Python build\n"
            )
            self.extensions = []
            return
        sources = in_c()
        for extension in self.extensions:
            extension.sources = sources[extension.name]
            if self.compiler.compiler_type == "unix":
                # The interpreter's own flags ask for debug information: half of the time.
                extension.extra_compile_args = ["-g0", "-include", REFCOUNTS.as_posix()]
        super().build_extensions()

    def compiler_works(self) -> bool:
        """Whether the configured compiler makes something of Python's own header."""
        with TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text("#include <Python.h>\n")
            try:
                self.compiler.compile([str(source)], output_dir=folder)
            except (CCompilerError, BaseError):
                return False
        return True

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except (CCompilerError, BaseError) as error:
            raise CompileError(f"{ext.name} can't be compiled: {error}") from error


os.chdir(ROOT)
setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCompiled})
