"""Installs a source distribution in several ways; each must work and name its build, or fail.

Each install goes into a directory of its own and is used by a fresh interpreter, which sees neither
this working tree nor its compiled files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import kclient

PROJECT = Path(__file__).parents[2]
BUILD_TIMEOUT = 300.0
PIP = [sys.executable, "-m", "pip", "--no-input"]
# The source distribution, the wheel and its installation, each at its own limit.
pytestmark = pytest.mark.timeout(3 * BUILD_TIMEOUT)

EXERCISE = """
import kclient, kclient.record as record
from kclient.record import BatchBuilder, Compression, read_batches
assert kclient.__file__.startswith({target!r}), kclient.__file__
builder = BatchBuilder()
builder.append(1, b"key", b"value", (("h", None),))
builder.compress(Compression.GZIP)
(batch,) = read_batches(builder.encode())
batch.check_crc()
(read,) = batch.records("topic", 0)
assert (read.key, read.value, read.headers) == (b"key", b"value", (("h", None),))
print(record.IMPLEMENTATION)
"""


def run(
    command: list[str], environment: dict[str, str], where: Path, *, succeeds: bool = True
) -> str:
    """Run a command to its end and return its output; fails with all of it."""
    done = subprocess.run(
        command,
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT,
        check=False,
    )
    assert (done.returncode == 0) == succeeds, done.stdout
    return done.stdout


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without what would steer a build, and with `changes`.

    Builds are made quickly, not optimized: other tests measure their speed.
    """
    steering = {"CC", "CFLAGS", "KCLIENT_PURE", "PYTHONPATH"}
    kept = {key: value for key, value in os.environ.items() if key not in steering}
    return {**kept, "CFLAGS": "-O0", **changes}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution of this tree."""
    where = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(where)]
    run([*command, str(PROJECT)], clean_environment(), where)
    (archive,) = where.glob("kclient-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(where, filter="data")
    return where / archive.name.removesuffix(".tar.gz")


def building(source: Path, wheels: Path) -> list[str]:
    """The command that builds a wheel."""
    build = [*PIP, "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir"]
    return [*build, "--wheel-dir", str(wheels), str(source)]


def install(source: Path, where: Path, **environment: str) -> tuple[Path, Path]:
    """Build a wheel of `source` and install it; returns the wheel and the directory.

    Of a copy, since building leaves files beside the source that the next build would find.
    """
    copy, wheels, target = where / "source", where / "wheels", where / "installed"
    shutil.copytree(source, copy)
    run(building(copy, wheels), clean_environment(**environment), where)
    (wheel,) = wheels.glob("kclient-*.whl")
    run(
        [*PIP, "install", "--no-deps", "--target", str(target), str(wheel)],
        clean_environment(),
        where,
    )
    return wheel, target


def implementation(target: Path) -> str:
    """Use the installed package in a fresh interpreter; returns the build that it names."""
    environment = clean_environment(PYTHONPATH=str(target))
    code = EXERCISE.format(target=str(target))
    return run([sys.executable, "-c", code], environment, target).strip()


def test_with_a_compiler_the_record_path_is_compiled(source: Path, tmp_path: Path) -> None:
    _, target = install(source, tmp_path)
    assert implementation(target) == "cython"


def test_without_a_compiler_the_pure_build_works_and_is_named(source: Path, tmp_path: Path) -> None:
    _, target = install(source, tmp_path, CC="/no/such/compiler")
    assert implementation(target) == "pure"
    assert not list(target.rglob("kclient/**/*.so"))
    build = [sys.executable, "setup.py", "--quiet", "build_ext"]
    said = run(build, clean_environment(CC="/no/such/compiler"), tmp_path / "source")
    assert said == "kclient: no C compiler works here, so this will be the pure-Python build\n"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("murmur.py", "def (", id="Cython refuses it"),
        pytest.param("_murmur_c.pxd", "cdef extern from 'nowhere.h': pass", id="C refuses it"),
    ],
)
def test_a_module_that_cannot_be_compiled_is_an_error_that_names_it(
    source: Path, tmp_path: Path, file: str, text: str
) -> None:
    copy, wheels = tmp_path / "source", tmp_path / "wheels"
    shutil.copytree(source, copy)
    with (copy / "kclient" / "record" / file).open("a") as broken:
        broken.write(f"\n{text}\n")
    setup = copy / "setup.py"  # the others, which take most of the time, are left as they are
    head, _, rest = setup.read_text().partition("COMPILED = [")
    setup.write_text(f'{head}COMPILED = ["kclient.record.murmur"]\n{rest.partition("]")[2]}')
    said = run(building(copy, wheels), clean_environment(), tmp_path, succeeds=False)
    assert re.search(r"can't be compiled|CompileError", said)
    assert re.search(r"kclient[./]record[./]_murmur_c", said)
    assert not list(wheels.glob("*.whl"))


def test_a_pure_wheel_can_be_asked_for(source: Path, tmp_path: Path) -> None:
    wheel, target = install(source, tmp_path, KCLIENT_PURE="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert implementation(target) == "pure"


def test_a_wheel_holds_the_package_and_nothing_else(source: Path, tmp_path: Path) -> None:
    wheel, _ = install(source, tmp_path, KCLIENT_PURE="1")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "kclient",
        "pyspark_kclient",
    }
    assert "kclient/py.typed" in names
    assert not [name for name in names if name.endswith((".c", ".so", ".html"))]


def test_an_installation_brings_a_pytest_plugin_and_a_command(source: Path, tmp_path: Path) -> None:
    _, target = install(source, tmp_path, KCLIENT_PURE="1")
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_it.py").write_text(
        "def test_it(kafka_bootstrap):\n"
        "    import kclient\n"
        f"    assert kclient.__file__.startswith({str(target)!r})\n"
        "    assert kafka_bootstrap.count(':') == 2\n"
    )
    environment = clean_environment(PYTHONPATH=str(target))
    pytest_here = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--kclient-brokers=2"]
    assert "1 passed" in run(pytest_here, environment, project)
    without = [*pytest_here[:-1], "-p", "no:kclient", "--fixtures"]
    assert "kafka_bootstrap" not in run(without, environment, project)
    assert run([str(target / "bin" / "kclient"), "--version"], environment, project) == (
        f"kclient {kclient.__version__}\n"
    )


USER_PROGRAM = """
import kclient

async def main(producer: "kclient.Producer[bytes, bytes]") -> None:
    delivered: str = await producer.send("t", b"0")
"""


@pytest.fixture(scope="module")
def editable(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source of an editable installation, and the interpreter that has it and nothing else."""
    where = tmp_path_factory.mktemp("editable")
    copy, wheels, home = where / "source", where / "wheels", where / "venv"
    shutil.copytree(source, copy)
    wheels.mkdir()
    build = f"from setuptools.build_meta import build_editable; build_editable({str(wheels)!r})"
    run([sys.executable, "-c", build], clean_environment(KCLIENT_PURE="1"), copy)
    (wheel,) = wheels.glob("kclient-*.whl")
    run([sys.executable, "-m", "venv", "--without-pip", str(home)], clean_environment(), where)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--no-input", "--python", str(python)]
    run([*pip, "install", "--no-deps", "--no-index", str(wheel)], clean_environment(), where)
    return copy, python


def test_an_editable_installation_shows_its_types_to_mypy_from_any_directory(
    editable: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("mypy")
    copy, python = editable
    find = "import importlib.util as u; print(u.find_spec('kclient').origin)"
    found = run([str(python), "-c", find], clean_environment(), tmp_path).strip()
    assert found == str(copy / "kclient" / "__init__.py")
    program = tmp_path / "program.py"
    program.write_text(USER_PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), program],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT,
        check=False,
    )
    (wrong,) = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert 'has type "RecordMetadata", variable has type "str"' in wrong


def test_another_project_keeps_its_own_tests_beside_an_editable_installation(
    editable: tuple[Path, Path], tmp_path: Path
) -> None:
    _, python = editable
    for name in ("tests", "tools", "examples", "benchmarks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "ours.py").write_text("")
        assert run([str(python), "-c", f"import {name}.ours"], clean_environment(), tmp_path) == ""


def test_only_a_build_turns_modules_into_c(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "source"
    shutil.copytree(source, copy)
    run([sys.executable, "setup.py", "--quiet", "egg_info"], clean_environment(), copy)
    assert not list(copy.rglob("*.c"))
    run([sys.executable, "setup.py", "--quiet", "build_ext"], clean_environment(), copy)
    assert list(copy.rglob("*.c"))
