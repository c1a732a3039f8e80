"""The settings files of a test broker: small, quick to start, everything on 127.0.0.1.

`tests.support.kafka` writes them into the directory of a broker before it starts it. Pure text: it
starts nothing and chooses no ports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.support.tls import KEYSTORE_PASSWORD, client_authority

USERS = {"alice": "alice-password", "zoe": "größe; =,", "carol": "carol-password"}
"""Users of a secured broker, and their passwords."""
PLAIN_USERS = {**USERS, "zoë": "пароль"}
"""Those of the mechanism PLAIN: SCRAM has names of ASCII only."""
ORDINARY_USER = "carol"
"""May do what ACLs allow; all others, and who doesn't log in, are super users."""
SESSION_LIFETIME = 5.0
"""Seconds after which a secured broker wants clients of SASL_PLAINTEXT to authenticate again; they
do so 0.25 s before, or earlier, which is enough on a busy machine."""
NONE: Mapping[str, object] = MappingProxyType({})
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"

COMMON = {
    "num.network.threads": 2,
    "num.io.threads": 4,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
    "delete.topic.enable": "true",
    # Kafka's own default, so that a client that must not create topics is really tested.
    "auto.create.topics.enable": "true",
    # Tests write records with old timestamps, which time-based retention would take away at once.
    "log.retention.ms": -1,
    "log.cleaner.threads": 1,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    "log.index.size.max.bytes": 1024 * 1024,
}
_KRAFT = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,"
    "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,OIDC:SASL_PLAINTEXT",
}
_KRAFT_4 = {
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 5,
}
_LOG4J = """log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports of one test broker."""

    plain: int
    tls: int
    control: int
    """KRaft's controller listener, or ZooKeeper's client port."""
    sasl: int = 0
    """SASL_PLAINTEXT, of a secured broker."""
    sasl_tls: int = 0
    """SASL_SSL, of a secured broker."""
    oidc: int = 0
    """SASL_PLAINTEXT with signed tokens alone, of a secured broker of 4.0 and later."""


def uses_zookeeper(version: tuple[int, int, int]) -> bool:
    """Whether this release is started on ZooKeeper (KRaft is ready for use since 3.3)."""
    return version < (3, 3, 0)


def write_settings(
    directory: Path,
    version: tuple[int, int, int],
    ports: Ports,
    keystore: Path,
    more: Mapping[str, object] = NONE,
) -> None:
    """Write server.properties, zookeeper.properties (old releases) and the log settings."""
    listeners = f"PLAINTEXT://127.0.0.1:{ports.plain},SSL://127.0.0.1:{ports.tls}"
    if ports.sasl:
        listeners += (
            f",SASL_PLAINTEXT://127.0.0.1:{ports.sasl},SASL_SSL://127.0.0.1:{ports.sasl_tls}"
        )
    if ports.oidc:
        listeners += f",OIDC://127.0.0.1:{ports.oidc}"
    settings: dict[str, object] = {
        **COMMON,
        "log.dirs": directory / "data",
        "listeners": listeners,
        "advertised.listeners": listeners,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": keystore,
        "ssl.keystore.password": KEYSTORE_PASSWORD,
        "ssl.key.password": KEYSTORE_PASSWORD,
    }
    if ports.sasl:
        settings |= sasl_settings(("sasl_plaintext", "sasl_ssl"), SESSION_LIFETIME)
        settings |= _authorizer(version)
    if ports.oidc:
        settings |= _oidc()
    if uses_zookeeper(version):
        settings |= {"broker.id": 1, "zookeeper.connect": f"127.0.0.1:{ports.control}"}
        _write_zookeeper(directory, ports)
    else:
        controller = f"127.0.0.1:{ports.control}"
        settings |= _KRAFT
        settings["listeners"] = f"{listeners},CONTROLLER://{controller}"
        settings["controller.quorum.voters"] = f"1@{controller}"
    if version >= (4, 0, 0):
        settings |= _KRAFT_4
    write_properties(directory / "server.properties", {**settings, **more})
    write_log_settings(directory)


def sasl_settings(listeners: Sequence[str], session_lifetime: float) -> dict[str, object]:
    """Mechanisms and users of a secured broker; those of SCRAM are made once it is up.

    Sessions of SASL_PLAINTEXT last ``session_lifetime`` seconds.
    """
    modules = "org.apache.kafka.common.security"
    users = " ".join(f'user_{name}="{password}"' for name, password in PLAIN_USERS.items())
    scram = f"{modules}.scram.ScramLoginModule required;"
    mechanisms = {
        "plain": f"{modules}.plain.PlainLoginModule required {users};",
        "scram-sha-256": scram,
        "scram-sha-512": scram,
        "oauthbearer": f"{modules}.oauthbearer.OAuthBearerLoginModule required;",
    }
    settings: dict[str, object] = {"sasl.enabled.mechanisms": ",".join(mechanisms).upper()}
    for listener in listeners:
        for mechanism, config in mechanisms.items():
            name = f"listener.name.{listener}.{mechanism}"
            settings[f"{name}.sasl.jaas.config"] = config
            if listener == "sasl_plaintext":
                settings[f"{name}.connections.max.reauth.ms"] = int(session_lifetime * 1000)
    return settings


def _oidc() -> dict[str, object]:
    """A listener that takes tokens of `token_server`'s key."""
    from tests.support.token_server import AUDIENCE, jwks_file  # which needs packages of tests

    name = "listener.name.oidc"
    classes = "org.apache.kafka.common.security.oauthbearer"
    return {
        f"{name}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{name}.oauthbearer.sasl.jaas.config": f"{classes}.OAuthBearerLoginModule required;",
        f"{name}.oauthbearer.sasl.server.callback.handler.class": (
            f"{classes}.OAuthBearerValidatorCallbackHandler"
        ),
        f"{name}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": jwks_file().as_uri(),
        f"{name}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
    }


def jwks_option() -> str:
    """The JVM option without which a broker with such a listener doesn't start."""
    from tests.support.token_server import jwks_file

    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks_file().as_uri()}"


def _authorizer(version: tuple[int, int, int]) -> dict[str, object]:
    """ACLs, delegation tokens, and certificates that clients may show on the SSL listener."""
    supers = {*PLAIN_USERS, "ANONYMOUS", "admin"} - {ORDINARY_USER}
    zookeeper = uses_zookeeper(version)
    return {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"
        if zookeeper
        else "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in sorted(supers)),
        f"delegation.token.{'master' if zookeeper else 'secret'}.key": "of a throw-away broker",
        "listener.name.ssl.ssl.client.auth": "requested",
        "listener.name.ssl.ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.location": client_authority(),
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
    }


def write_log_settings(directory: Path) -> None:
    """Write the log settings of releases before 4.0."""
    (directory / "log4j.properties").write_text(_LOG4J)


def log_option(directory: Path, version: tuple[int, int, int]) -> str:
    """The JVM option that makes a release log warnings to its standard output."""
    if version >= (4, 0, 0):
        return "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return f"-Dlog4j.configuration=file:{directory / 'log4j.properties'}"


def _write_zookeeper(directory: Path, ports: Ports) -> None:
    write_properties(
        directory / "zookeeper.properties",
        {
            "dataDir": directory / "zookeeper",
            "clientPort": ports.control,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
        },
    )


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    """Write a settings file."""
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    path.write_text("".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in text))
