"""Writes docs/settings.md from the settings classes: ``python -m tools.settings_table``.

``--check`` writes nothing and fails where the page differs from the classes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

from kclient.config import AdminConfig, ConsumerConfig, GroupMemberConfig, ProducerConfig
from kclient.settings import Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
PROPERTIES = """\
## Properties files

`from_properties` of each settings class reads ordinary files of Java's and librdkafka's clients,
or a mapping with their names: `bootstrap.servers`, `group.id`, `retries`, ...

```python
config = kclient.ConsumerConfig.from_properties("consumer.properties")
async with kclient.Consumer(None, "orders", config=config) as consumer:
    ...
```

- The format is that of `java.util.Properties`. Values are taken literally: nothing in them is
  expanded.
- The result has everything: the group, `security`, and serializers where the file names classes
  of `org.apache.kafka.common.serialization`. Arguments of the client take precedence. Topics
  aren't in files. Where it names another class, the client raises `InvalidConfig` unless it gets
  its own as an argument, as `value_serializer=`.
- `_` and `-` are as good as `.` in a name, so that `session_timeout_ms`, as aiokafka has it, is
  `session.timeout.ms`; a name of our own whose unit may differ, such as `linger`, is an error.
- A mapping's values are `str`, `int`, `float` or `bool`. Callbacks, serializers and other objects
  are errors, which say what there is in their place.
- `security.protocol` is any of Kafka's four. For TLS, `ssl.truststore.*` and `ssl.keystore.*` name
  PEM or PKCS#12 (which needs `kclient[tls]`), or librdkafka's `ssl.ca.location`,
  `ssl.certificate.location` and `ssl.key.location` PEM. For SASL, `sasl.mechanism` is `PLAIN`,
  `SCRAM-SHA-256` or `SCRAM-SHA-512`, with the line of Java's login module in `sasl.jaas.config`, or
  librdkafka's `sasl.username` and `sasl.password`; or `OAUTHBEARER` with
  `sasl.oauthbearer.token.endpoint.url` and what Java's and librdkafka's clients have for OIDC; or
  `GSSAPI`, also where it is missing, with `Krb5LoginModule` in that line (for a keytab or the
  ticket cache), or `sasl.kerberos.principal`, `sasl.kerberos.keytab`, `sasl.kerberos.service.name`;
  or `AWS_MSK_IAM`, with `IAMLoginModule` (`awsProfileName`, `awsRoleArn`) in that line. `PLAIN` and
  tokens without TLS could be read by anyone on the way: that takes
  `kclient.allow.unencrypted.passwords=true`. An empty `ssl.endpoint.identification.algorithm` would
  take any host of the authorities for a broker: that takes
  `kclient.allow.unverified.hostnames=true`. JKS stores, other mechanisms,
  `enable.ssl.certificate.verification=false`, and other `ssl.*` and `sasl.*` that can't be honoured
  raise `InvalidConfig`.
- A file may serve several clients: each takes its own settings. `buffer.memory` and
  `queue.buffering.max.kbytes` are the producer's `buffer_memory`, `queued.max.messages.kbytes` is
  the consumer's. Two names of one setting with different values are an error; where librdkafka has
  two settings (`socket.timeout.ms` beside `request.timeout.ms`), Kafka's is taken.
- The logger `kclient.config` has one line at INFO of what is of another client or has no meaning
  here, and one WARNING of unknown names. One that is nearly a name of this client is an error: a
  letter is missing, too many or wrong, or two neighbours are swapped, or in a long name about a
  tenth of it differs.
- As in Java, `acks=1` or more than 5 requests in flight switch idempotence off, unless
  `enable.idempotence` is given. The largest int, 2147483647, stands for no limit where `math.inf`
  is allowed, and for a size or a count for the largest that is allowed here.
- `enable.auto.offset.store=false` is an error unless `enable.auto.commit=false` is there, too:
  commit what is finished by `await consumer.commit(record)`."""
CLIENTS: dict[str, type[Settings]] = {
    "Producer": ProducerConfig,
    "Consumer": ConsumerConfig,
    "GroupMember": GroupMemberConfig,
    "Admin": AdminConfig,
}


def page() -> str:
    """The whole page as text."""
    common = {field.name for field in dataclasses.fields(AdminConfig)}
    parts = [
        "# Settings",
        "",
        "Durations are seconds, sizes are bytes. Made from the code by",
        "`python -m tools.settings_table`; not edited by hand.",
        "",
        *PROPERTIES.splitlines(),
        "",
        "## All clients",
        *_table(AdminConfig, lambda name: True),
    ]
    for client, config in CLIENTS.items():
        if client != "Admin":
            parts += ["", f"## {client}", *_table(config, lambda name: name not in common)]
    return "\n".join(parts) + "\n"


def _table(config: type[Settings], wanted: Callable[[str], bool]) -> list[str]:
    lines = [
        "",
        "| setting | default | allowed | what it is | Java's name |",
        "|---|---|---|---|---|",
    ]
    for field in dataclasses.fields(config):
        if wanted(field.name):
            doc, kafka = field.metadata["doc"], field.metadata["kafka"]
            allowed = field.metadata["check"].__doc__
            java = f"`{kafka}`" if kafka else ""
            shown = _shown(field.default)
            lines.append(f"| `{field.name}` | `{shown}` | {allowed} | {doc} | {java} |")
    return lines


def _shown(default: object) -> str:
    plain = (str, int, float, bool, tuple, type(None))
    return repr(default) if isinstance(default, plain) else "plaintext"


def main() -> int:
    """Write the page, or compare it."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") != page():
        print("docs/settings.md is not what the classes say: run python -m tools.settings_table")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
