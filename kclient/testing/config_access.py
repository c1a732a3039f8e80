"""Where configurations are kept: what the handlers of the configuration APIs read and replace.

The only one of them that knows the cluster's state; the rules (``config_rules.py``) and the
descriptions (``config_descriptions.py``) don't. What is replaced counts on a broker as soon as it
hears of it, as all that the controller decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kclient.testing.addresses import address_of
from kclient.testing.config_descriptions import BrokerLayers, Resource
from kclient.testing.config_rules import ROOT_LOGGER
from kclient.testing.topic_configs import TopicConfig

if TYPE_CHECKING:
    from kclient.testing.call import Call
    from kclient.testing.image import MetadataImage

_LOGGERS = {
    ROOT_LOGGER: "INFO",
    "org.apache.kafka.server.logger.LoggingController": "INFO",
}


class ConfigAccess:
    """The configurations that one broker knows of.

    Args:
        call: The request that is carried out.
    """

    def __init__(self, call: Call) -> None:
        self._broker = call.broker
        self.node_id = call.node_id

    @property
    def _image(self) -> MetadataImage:
        return self._broker.image

    def topic(self, name: str) -> TopicConfig | None:
        """A topic's configuration; None where there is no such topic."""
        topic = self._image.topics.get(name)
        return None if topic is None else topic.config

    def checked_topic(self, given: Mapping[str, str]) -> TopicConfig:
        """A topic's configuration where ``given`` is set on it. Raises Refused: INVALID_CONFIG."""
        return self._image.topic_config(given)

    def layers(self) -> BrokerLayers:
        """What the configuration of the broker that was asked is made of."""
        config, broker = self._image.config, self._image.brokers[self.node_id]
        address = f"PLAINTEXT://{address_of(broker.host, broker.port)}"
        static = {
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "node.id": str(self.node_id),
            "broker.id": str(self.node_id),
            "listeners": address,
            "advertised.listeners": address,
            **({} if broker.rack is None else {"broker.rack": broker.rack}),
            **config.static,
        }
        own = config.stored.get((Resource.BROKER, str(self.node_id)), {})
        return BrokerLayers(own, config.dynamic, static)

    def given(self, resource: Resource, name: str) -> Mapping[str, str]:
        """What clients set on a resource."""
        if resource == Resource.TOPIC:
            topic = self.topic(name)
            return {} if topic is None else topic.given
        if resource == Resource.BROKER and not name:
            return self._image.config.dynamic
        stored = self._image.config.stored.get((resource, name))
        if stored is None:
            return _LOGGERS if resource == Resource.BROKER_LOGGER else {}
        return stored

    def replace(self, resource: Resource, name: str, configs: Mapping[str, str]) -> None:
        """Let exactly these be set on a resource, all of them checked.

        Raises:
            Refused: NOT_CONTROLLER.
        """
        controller = self._broker.controller()
        if resource == Resource.TOPIC:
            controller.set_topic_configs({name: self.checked_topic(configs)})
        elif resource == Resource.BROKER and not name:
            controller.set_broker_config(controller.image.config.with_dynamic(configs))
        else:
            controller.set_broker_config(
                controller.image.config.with_stored(resource, name, configs)
            )

    def names(self, resource: Resource) -> list[str]:
        """All resources of a kind that have configurations."""
        if resource == Resource.TOPIC:
            return list(self._image.topics)
        if resource in (Resource.BROKER, Resource.BROKER_LOGGER):
            return [str(node_id) for node_id in self._image.brokers]
        return [name for kind, name in self._image.config.stored if kind == resource]
