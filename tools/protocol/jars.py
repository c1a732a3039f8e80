"""Apache Kafka's published jars, resolved by Maven.

The generator and the golden tests ask for a release's class path; the result is cached in the
user's cache directory and checked against the disk. Nothing here reads what is in a jar.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

RELEASES = ("4.3.0", "3.9.1")
"""Newest first: what the first release knows goes before the second, which adds old versions."""

MAVEN_TIMEOUT = 600.0
"""Seconds for the first resolution of a release, which downloads its jars."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kclient.tools</groupId><artifactId>protocol</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{release}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class ToolMissing(RuntimeError):
    """Java or Maven are needed and not on the PATH, or Maven failed."""


def java() -> str:
    """The path of ``java``; raises ToolMissing."""
    return _require("java", "install a JDK, 17 or newer")


def class_path(release: str) -> list[Path]:
    """The jars of Apache Kafka ``release`` and what they need, fetched by Maven where missing.

    Raises:
        ToolMissing: Maven is not installed, or it failed (its output is in the text).
    """
    directory = _cache_directory() / release
    listing, pom = directory / "classpath.txt", directory / "pom.xml"
    wanted = _POM.format(release=release)
    if listing.exists() and pom.exists() and pom.read_text() == wanted:
        jars = [Path(jar) for jar in listing.read_text().strip().split(os.pathsep)]
        if all(jar.exists() for jar in jars):
            return jars
    directory.mkdir(parents=True, exist_ok=True)
    pom.write_text(wanted)
    fresh = directory / f"classpath.{os.getpid()}"
    _run_maven(pom, fresh, release)
    fresh.replace(listing)
    return [Path(jar) for jar in listing.read_text().strip().split(os.pathsep)]


def run_java(source: Path, release: str, *arguments: str, timeout: float = 300.0) -> str:
    """Run a single-file Java program on the class path of ``release``; returns what it printed."""
    jars = os.pathsep.join(str(jar) for jar in class_path(release))
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", jars, str(source), *arguments]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise ToolMissing(f"{source.name} failed on Kafka {release}:\n{done.stderr[-4000:]}")
    return done.stdout


def _run_maven(pom: Path, output: Path, release: str) -> None:
    maven = _require("mvn", "install Maven, 3.6 or newer")
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath"]
    done = subprocess.run(
        [*command, f"-Dmdep.outputFile={output}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MAVEN_TIMEOUT,
        check=False,
    )
    if done.returncode != 0:
        raise ToolMissing(f"Maven can't resolve Apache Kafka {release}:\n{done.stdout[-4000:]}")


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kclient-tools"


def _require(program: str, remedy: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise ToolMissing(f"The protocol generator needs {program!r} on the PATH: {remedy}.")
    return found
