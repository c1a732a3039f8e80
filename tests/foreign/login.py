"""What a client needs to log in at a secured cluster, in the words of each client."""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple

USERNAME, PASSWORD = "anna", "groß, =und; lang"
MECHANISMS = {"kafka_python": "SCRAM-SHA-256", "java": "PLAIN", "aiokafka": "PLAIN"}
"""Of clients that don't use SCRAM-SHA-512, so that each mechanism is used by some."""


class Login(NamedTuple):
    """User and mechanism, over TLS.

    Attributes:
        ca_file: PEM of the authority to trust.
        mechanism: SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN.
    """

    ca_file: str
    mechanism: str

    def librdkafka(self) -> dict[str, Any]:
        """Settings of librdkafka, and of what is built on it."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca_file,
            "sasl.mechanism": self.mechanism,
            "sasl.username": USERNAME,
            "sasl.password": PASSWORD,
        }

    def python(self) -> dict[str, Any]:
        """Arguments of kafka-python, and of aiokafka."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=self.ca_file),
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": USERNAME,
            "sasl_plain_password": PASSWORD,
        }

    def java(self) -> str:
        """A properties file of the Java client."""
        module = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
        password = "".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in PASSWORD)
        return (
            "security.protocol=SASL_SSL\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.ca_file}\n"
            f"sasl.mechanism={self.mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required "
            f'username="{USERNAME}" password="{password}";\n'
        )
