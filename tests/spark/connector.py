"""The jars of Spark's own Kafka connector, resolved by Maven, for comparisons.

Connector 4.0.0 resolves whole. Of later releases Maven Central lacks a part: 4.2.0 is taken with
the token provider of 4.0.0, and runs on pyspark 4.2 and newer.
"""

from __future__ import annotations

import shutil

import pyspark

from tests.support.class_path import MAVEN_TIMEOUT, cache_directory, require
from tests.support.programs import output_of

_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kclient.tests</groupId><artifactId>connector</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{connector}</version>
      <exclusions>{exclusions}</exclusions></dependency>
    <dependency><groupId>org.apache.spark</groupId>
      <artifactId>spark-token-provider-kafka-0-10_2.13</artifactId><version>4.0.0</version>
      <exclusions>{hadoop}</exclusions></dependency>
  </dependencies>
</project>
"""
_NEEDED = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
"""The others are in pyspark."""


def connector_version() -> str:
    """The connector that the installed pyspark can run."""
    return "4.0.0" if pyspark.__version__.startswith(("4.0", "4.1")) else "4.2.0"


def connector_jars() -> str:
    """The jars, as ``spark.jars`` has them."""
    connector = connector_version()
    folder = cache_directory() / "spark-connector" / connector
    jars = folder / "jars"
    if not (folder / "done").exists():
        shutil.rmtree(jars, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        hadoop = _EXCLUSION.format("org.apache.hadoop", "*")
        token = _EXCLUSION.format("org.apache.spark", "spark-token-provider-kafka-0-10_2.13")
        pom = folder / "pom.xml"
        pom.write_text(_POM.format(connector=connector, exclusions=hadoop + token, hadoop=hadoop))
        output_of(
            [
                *(require("mvn", "install Maven (3.6 or newer)"), "-q", "-B", "-f", str(pom)),
                *("dependency:copy-dependencies", "-DincludeScope=runtime"),
                f"-DoutputDirectory={jars}",
            ],
            f"Maven could not resolve Spark's connector {connector}",
            MAVEN_TIMEOUT,
        )
        (folder / "done").touch()
    found = sorted(str(jar) for jar in jars.glob("*.jar") if jar.name.startswith(_NEEDED))
    if len(found) < len(_NEEDED):
        raise RuntimeError(f"the connector has only {found}")
    return ",".join(found)
