"""The class path of an Apache Kafka release, resolved by Maven from its published jars.

`tests.support.kafka` asks for it before it starts a broker. The result is cached in the user's
cache directory and checked against the disk: a cleaned Maven repository leaves a stale list behind.
It must not start brokers and must not guess: a missing Java or Maven is an error that names it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.support.programs import output_of

MAVEN_TIMEOUT = 600.0
"""Seconds for the first resolution of one release, which downloads about 100 jars."""

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kclient.tests</groupId><artifactId>broker</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


class ToolMissing(RuntimeError):
    """A program that the real-broker tests need is not on this machine."""


def cache_directory() -> Path:
    """Where brokers and class paths live: `KCLIENT_TEST_CACHE`, or the user's cache."""
    chosen = os.environ.get("KCLIENT_TEST_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kclient-tests"


def require(program: str, remedy: str) -> str:
    """Return the path of `program`, or raise ToolMissing with what to do about it."""
    found = shutil.which(program)
    if found is None:
        raise ToolMissing(
            f"Tests on real Apache Kafka need {program!r}, which is not on the PATH: {remedy}, or"
            "  set KCLIENT_TEST_BOOTSTRAP to the address of a running broker."
        )
    return found


def require_java() -> str:
    """Return the path of `java`."""
    return require("java", "install a JDK (17 or newer)")


def parse_version(text: str) -> tuple[int, int, int]:
    """Parse "3.9.1" into (3, 9, 1); anything else is a ValueError."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is not a version of Apache Kafka such as 4.3.0")
    major, minor, patch = (int(part) for part in parts)
    return major, minor, patch


def class_path(version: str) -> str:
    """Return the class path of Apache Kafka `version`, asking Maven unless it is cached.

    Raises:
        ToolMissing: Maven or Java are not installed.
        RuntimeError: Maven failed; its output is in the message.
    """
    directory = cache_directory() / "classpath" / version
    listing = directory / "classpath.txt"
    pom = directory / "pom.xml"
    wanted = _POM.format(dependencies="\n".join(_dependencies(version)))
    if listing.exists() and pom.exists() and pom.read_text() == wanted:
        cached = listing.read_text().strip()
        if cached and all(Path(jar).exists() for jar in cached.split(os.pathsep)):
            return cached
    require_java()
    maven = require("mvn", "install Maven (3.6 or newer)")
    directory.mkdir(parents=True, exist_ok=True)
    pom.write_text(wanted)
    fresh = directory / "classpath.new"
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath"]
    output_of(
        [*command, f"-Dmdep.outputFile={fresh}"],
        f"Maven could not resolve Apache Kafka {version}",
        MAVEN_TIMEOUT,
    )
    fresh.replace(listing)
    return listing.read_text().strip()


def _dependencies(version: str) -> list[str]:
    number = parse_version(version)
    scala = "2.13" if number >= (2, 6, 0) else "2.12"
    wanted = [
        ("org.apache.kafka", f"kafka_{scala}", version),
        ("org.apache.kafka", "kafka-tools", version),
    ]
    if (1, 1, 0) <= number < (2, 4, 0):
        # ZooKeeper 3.4.11 to 3.4.14 parse InetSocketAddress.toString(), which changed in JDK 14.
        wanted.append(("org.apache.zookeeper", "zookeeper", "3.4.10"))
    if number >= (4, 0, 0):
        # The jars of 4.x bring no logger; this one needs no settings file.
        wanted.append(("org.slf4j", "slf4j-simple", "1.7.36"))
    return [
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{release}</version></dependency>"
        for group, artifact, release in wanted
    ]
