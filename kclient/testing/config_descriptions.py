"""Contents of DescribeConfigs responses: values, their sources and their synonyms.

A value of a broker comes from the first of: the setting for this broker, the one for all brokers,
its properties file, Kafka's default. Topics and groups fall back to the broker's configuration of
another name. Pure functions, called by the handler.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kclient.testing import broker_configs, topic_configs
from kclient.testing.config_defs import ConfigDef, as_text, read_table
from kclient.testing.config_tables import definitions
from kclient.testing.responses import ApiError
from kclient.testing.topic_configs import TopicConfig


class Resource(enum.IntEnum):
    """Kinds of resources with configurations, as on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(enum.IntEnum):
    """Sources of a value, as on the wire."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


_KINDS = "BOOLEAN STRING INT SHORT LONG DOUBLE LIST CLASS PASSWORD".split()
"""In the order of their numbers on the wire, from 1."""
UNKNOWN_KIND = 0

GROUP_DEFINITIONS = read_table(definitions.GROUP)
CLIENT_METRICS_DEFINITIONS = read_table(definitions.CLIENT_METRICS)

_DYNAMIC_ONLY = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
DYNAMIC_ONLY = {name: ConfigDef(name, "LONG", None, low=0, mode="c") for name in _DYNAMIC_ONLY}
"""Configurations of brokers that can't be set in a properties file."""


class Synonym(NamedTuple):
    """One possible source of a value."""

    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """One configuration of a resource."""

    name: str
    value: str | None
    """None if there is none, or if it is sensitive."""
    source: Source
    kind: int
    read_only: bool
    is_sensitive: bool
    synonyms: list[Synonym]


class BrokerLayers(NamedTuple):
    """The layers of one broker's configuration.

    Attributes:
        own: Set by clients for this broker.
        common: Set by clients for all brokers.
        static: Its properties file.
    """

    own: Mapping[str, str]
    common: Mapping[str, str]
    static: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """The effective text, None if it is not set and has no default."""
        for layer in self:
            if name in layer:
                return layer[name]
        definition = broker_configs.ALL_DEFINITIONS.get(name)
        return None if definition is None else definition.default

    def synonyms(self, name: str) -> list[Synonym]:
        """All possible sources of the value of ``name``, the effective one first."""
        names = topic_configs.SYNONYMS.get(name, (name,))
        layers = zip(self, (Source.BROKER, Source.ALL_BROKERS, Source.STATIC_BROKER), strict=True)
        found = [
            Synonym(one, layer[one], source)
            for layer, source in layers
            for one in names
            if one in layer
        ]
        for one in names:
            definition = broker_configs.ALL_DEFINITIONS.get(one)
            if definition is not None and definition.default is not None:
                found.append(Synonym(one, definition.default, Source.DEFAULT))
        while found and found[0].name != name:
            del found[0]
        return found


def describe_topic(config: TopicConfig, layers: BrokerLayers) -> list[Described]:
    """All configurations of a topic."""
    defaults = topic_configs.topic_defaults({**layers.static, **layers.common, **layers.own})
    found = []
    for name, one in topic_configs.ALL_DEFINITIONS.items():
        if one.internal and name not in config.given:
            continue
        value: str | None = config.text(name)
        synonyms = [] if one.broker_name is None else layers.synonyms(one.broker_name)
        if name in config.given:
            synonyms.insert(0, Synonym(name, value, Source.TOPIC))
        elif name in defaults:
            value = _shown(one, defaults[name])  # may differ between brokers
        found.append(_described(one, value, synonyms))
    return found


def describe_broker(layers: BrokerLayers) -> list[Described]:
    """All configurations of a broker, and those that clients set under unknown names."""
    rows = []
    for name, one in broker_configs.DEFINITIONS.items():
        text = layers.text(name)
        value = None if text is None else _shown(one, text)
        rows.append(_described(one, value, layers.synonyms(name), one.mode == "r"))
    others = {**layers.common, **layers.own}
    rows += [
        _other(name, layers.synonyms(name))
        for name in others
        if name not in broker_configs.DEFINITIONS
    ]
    return rows


def describe_all_brokers(common: Mapping[str, str]) -> list[Described]:
    """Configurations that clients set for all brokers."""
    rows = []
    for name, text in common.items():
        synonyms = [Synonym(name, text, Source.ALL_BROKERS)]
        one = broker_configs.DEFINITIONS.get(name)
        rows.append(
            _other(name, synonyms)
            if one is None
            else _described(one, _shown(one, text), synonyms, one.mode == "r")
        )
    return rows


def describe_group(given: Mapping[str, str], layers: BrokerLayers) -> list[Described]:
    """All configurations of a group."""
    rows = []
    for name, one in GROUP_DEFINITIONS.items():
        if one.broker_name is None:
            synonyms = [Synonym(name, one.default, Source.DEFAULT)]
            text = one.default
        else:
            synonyms = layers.synonyms(one.broker_name)
            text = layers.text(one.broker_name)
        if name in given:
            text = given[name]
            synonyms.insert(0, Synonym(name, text, Source.GROUP))
        rows.append(_described(one, _shown(one, text or ""), synonyms))
    return rows


def describe_client_metrics(given: Mapping[str, str]) -> list[Described]:
    """All configurations of a client metrics subscription."""
    rows = []
    for name, one in CLIENT_METRICS_DEFINITIONS.items():
        value = _shown(one, given.get(name, one.default or ""))
        synonyms = [Synonym(name, value, Source.CLIENT_METRICS)] if name in given else []
        rows.append(_described(one, value, synonyms))
    return rows


def describe_loggers(levels: Mapping[str, str]) -> list[Described]:
    """The loggers of a broker."""
    return [
        Described(name, level, Source.BROKER_LOGGER, UNKNOWN_KIND, False, False, [])
        for name, level in levels.items()
    ]


def _described(
    one: ConfigDef, value: str | None, synonyms: list[Synonym], read_only: bool = False
) -> Described:
    if one.is_sensitive:
        value, synonyms = None, _hidden(synonyms)
    return Described(
        one.name,
        value,
        synonyms[0].source if synonyms else Source.DEFAULT,
        _KINDS.index(one.kind) + 1,
        read_only,
        one.is_sensitive,
        synonyms,
    )


def _other(name: str, synonyms: list[Synonym]) -> Described:
    """A configuration with an unknown name: its value may be a secret."""
    one = DYNAMIC_ONLY.get(name)
    if one is not None:
        return _described(one, synonyms[0].value, synonyms)
    return Described(name, None, synonyms[0].source, UNKNOWN_KIND, True, True, _hidden(synonyms))


def _hidden(synonyms: Iterable[Synonym]) -> list[Synonym]:
    return [one._replace(value=None) for one in synonyms]


def _shown(one: ConfigDef, text: str) -> str | None:
    try:
        return as_text(one.parse(text))
    except ApiError:  # a value of the broker that is not valid for a group
        return text
