"""An image of Apache Kafka made here, for where no registry has one: `kclient-test/kafka:4.3.0`.

    python -m tests.docker.image 4.3.0     builds it, unless it is there as it would be built now

From nothing but what this machine has: a Java runtime by jlink, the libraries that it and Kafka's
compression load, Debian's static busybox for a shell, Kafka's jars from Maven, and the files in
`root/` here. The entry reads KAFKA_* variables as the official image does. It must be no more than
what the tests and examples need: it is not for production.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docker import engine
from tests.support.class_path import cache_directory, class_path, parse_version, require
from tests.support.programs import output_of

if TYPE_CHECKING:
    import docker

REPOSITORY = "kclient-test/kafka"
OLDEST = (3, 9, 0)
"""The first release whose jars have kafka.docker.KafkaDockerWrapper as `root/` calls it."""

_HERE = Path(__file__).parent
_RECIPE_LABEL = "kclient-test.recipe"
_MODULES = (
    *("java.base", "java.desktop", "java.logging", "java.management", "java.naming"),
    *("java.net.http", "java.security.jgss", "java.security.sasl", "java.sql", "java.xml"),
    *("jdk.crypto.ec", "jdk.management", "jdk.naming.dns", "jdk.security.auth"),
    *("jdk.unsupported", "jdk.zipfs"),
)
"""java.desktop for java.beans only, which log4j and Jackson use."""
_DESKTOP = re.compile(r"lib(awt|fontmanager|freetype|javajpeg|jawt|jsound|lcms|mlib|splash).*\.so")
_MACHINES = {"x86_64": {"amd64", "x86_64"}, "aarch64": {"aarch64", "arm64"}}
_LOADED_BY_NAME = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""What the C library loads to look up names, where it isn't part of it; ldd doesn't show it."""
_JLINK_TIMEOUT = 300.0
_WRITABLE = ("opt/kafka/config", "var/lib/kafka/data", "tmp")


def ensure(version: str) -> str:
    """Return the name of the image, building it unless it is there as it would be built now.

    Raises:
        EngineMissing: No Docker engine responds.
        ToolMissing: jlink, busybox, ldd, Maven or Java are not installed.
        RuntimeError: A step of the build failed; its output is in the message.
    """
    import docker

    if parse_version(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise RuntimeError(f"an image can be built of Apache Kafka {oldest} and newer only")
    name = f"{REPOSITORY}:{version}"
    jars = [Path(jar) for jar in class_path(version).split(os.pathsep)]
    recipe = _recipe(jars)
    with engine.connected() as client:
        stale = None
        with contextlib.suppress(docker.errors.ImageNotFound):
            stale = client.images.get(name)
            if stale.labels.get(_RECIPE_LABEL) == recipe:
                return name
        parent = cache_directory() / "docker"
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="image-", dir=parent) as context:
            lay_out(Path(context), jars)
            _build(client, Path(context), name, recipe)
        if stale is not None:
            with contextlib.suppress(docker.errors.APIError):  # a container may still use it
                client.images.remove(stale.id)
    return name


def lay_out(context: Path, jars: Iterable[Path]) -> None:
    """Fill the folder that the Dockerfile is built in."""
    root = context / "root"
    shutil.copytree(_HERE / "root", root)
    shutil.copy(_HERE / "Dockerfile", context)
    _link_runtime(root / "opt" / "java")
    _install_busybox(root / "bin")
    libs = root / "opt" / "kafka" / "libs"
    libs.mkdir()
    for jar in jars:
        shutil.copy(jar, libs)
    with tempfile.TemporaryDirectory() as unpacked:
        _copy_libraries([*_programs(root), *_unpack_libraries(libs, Path(unpacked))], root)
    for folder in ("etc/kafka/secrets", "mnt/shared/config"):
        (root / folder).mkdir(parents=True)
    for folder in _WRITABLE:
        (context / "writable" / folder).mkdir(parents=True)
    (context / "writable" / "tmp").chmod(0o1777)


def _link_runtime(target: Path) -> None:
    """Make a Java runtime of the modules that Kafka uses, without what only windows need."""
    command = [require("jlink", "install a JDK (17 or newer)"), "--output", str(target)]
    command += ["--add-modules", ",".join(_MODULES), "--no-header-files", "--no-man-pages"]
    _run([*command, "--generate-cds-archive"], "jlink")
    for library in (target / "lib").glob("*.so"):
        if _DESKTOP.fullmatch(library.name):
            library.unlink()


def _install_busybox(target: Path) -> None:
    """The shell and its tools, each name a link to the one program."""
    busybox = require("busybox", "install it (in Debian the package busybox-static)")
    target.mkdir()
    shutil.copy(busybox, target / "busybox")
    for applet in _run([busybox, "--list"], "busybox").split():
        if applet != "busybox":
            (target / applet).symlink_to("busybox")


def _programs(root: Path) -> Iterator[Path]:
    """What is laid out so far and may load libraries."""
    yield root / "bin/busybox"
    yield root / "opt/java/bin/java"
    yield from (root / "opt/java/lib").rglob("*.so")


def _unpack_libraries(jars: Path, target: Path) -> Iterator[Path]:
    """Unpack the libraries for this machine that jars carry, as Java does when it loads them."""
    machines = _MACHINES.get(platform.machine(), {platform.machine()})
    for jar in sorted(jars.glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for member in archive.namelist():
                folders = set(member.lower().split("/")[:-1])
                if member.endswith(".so") and "linux" in folders and machines & folders:
                    yield Path(archive.extract(member, target / jar.stem))


def _copy_libraries(binaries: Iterable[Path], root: Path) -> None:
    """Copy what these need from this machine, to where they look for it."""
    found: set[Path] = set()
    for binary in binaries:
        found.update(map(Path, re.findall(r"^\t(?:\S+ => )?(/\S+) \(", _ldd(binary), re.M)))
    found = {path for path in found if not path.is_relative_to(root)}
    (beside,) = {path.parent for path in found if path.name == "libc.so.6"}
    found.update(beside / name for name in _LOADED_BY_NAME if (beside / name).exists())
    for path in found:
        target = root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _ldd(binary: Path) -> str:
    """What ldd lists; it fails for a program that is static."""
    command = [require("ldd", "it comes with the C library"), str(binary)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=False)
    if done.returncode != 0 and "not a dynamic executable" not in done.stdout + done.stderr:
        raise RuntimeError(f"ldd {binary} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _recipe(jars: Iterable[Path]) -> str:
    """A digest of what goes into the image, to know a stale one by."""
    digest = hashlib.sha256()
    sources = [Path(__file__), _HERE / "Dockerfile"]
    sources += sorted(path for path in (_HERE / "root").rglob("*") if path.is_file())
    for source in sources:
        digest.update(source.read_bytes())
    digest.update("\n".join(jar.name for jar in jars).encode())
    java = require("jlink", "install a JDK (17 or newer)")
    digest.update(_run([java, "--version"], "jlink").encode())
    return digest.hexdigest()


def _build(client: docker.DockerClient, context: Path, name: str, recipe: str) -> None:
    import docker

    labels = {_RECIPE_LABEL: recipe}
    try:
        client.images.build(path=str(context), tag=name, labels=labels, rm=True, forcerm=True)
    except docker.errors.BuildError as error:
        said = "".join(str(line.get("stream", "")) for line in error.build_log)
        raise RuntimeError(f"the build of {name} failed: {error.msg}\n{said[-4000:]}") from error


def _run(command: list[str], what: str) -> str:
    return output_of(command, f"{what} failed ({' '.join(command)})", _JLINK_TIMEOUT)


def main(arguments: list[str]) -> int:
    """The command line; returns the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m tests.docker.image VERSION\n")
        return 2
    try:
        sys.stdout.write(f"{ensure(arguments[0])}\n")
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
