"""How a node's clients reach other leaders: by the node's setting client.routing, and by those of topics.

Where nothing is forwarded a connection has no relay, and none of `routing/relay` is loaded.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.server.connection import Connection
from millstream.broker.server.listener import Relay
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.cluster.metadata.machine import Records
from millstream.cluster.metadata.records import ConfigChanged, ConfigResource, TopicDeleted
from millstream.cluster.metadata.service import MetadataService
from millstream.config.settings import BrokerSettings

if TYPE_CHECKING:
    from millstream.broker.routing.relays import Relays

CLIENT_ROUTING = "client.routing"
DIRECT, PROXY = "direct", "proxy"


class AllProxied:
    """For clients that can reach only one node; topics' settings do not count."""

    forwards = True
    forwards_by_default = True
    shows_one_node = True

    def is_proxied(self, _topic: TopicImage) -> bool:
        return True


class ClientRouting:
    """The routing at a node's usual port for clients."""

    def __init__(
        self,
        settings: BrokerSettings,
        new_relays: Callable[["ClientRouting"], "Relays"],
        on_forwarding: Callable[[], None],
    ) -> None:
        """`on_forwarding` is called when there is a first topic whose requests are forwarded."""
        self._default = settings.client_routing
        # All nodes are behind one address: no client could be told where a leader is.
        self._hides_leaders = settings.client_routing == PROXY and settings.client_address is not None
        self._new_relays = new_relays
        self._on_forwarding = on_forwarding
        self.relays: Relays | None = None
        """Made when there is something to forward."""
        self._set: dict[str, set[str]] = {DIRECT: set(), PROXY: set()}
        """Topics with a setting of their own, by its value."""
        self.forwards_by_default = self.forwards = self.shows_one_node = self._default == PROXY
        if self.forwards or settings.proxy_listen is not None:
            self.need_relays()

    def is_proxied(self, topic: TopicImage) -> bool:
        """Whether this node names itself as the leader, and forwards."""
        return self._hides_leaders or topic.configs.get(CLIENT_ROUTING, self._default) == PROXY

    def need_relays(self) -> "Relays":
        relays = self.relays
        if relays is None:
            relays = self.relays = self._new_relays(self)
        return relays

    def relay_for(self, connection: Connection) -> Relay | None:
        return self.need_relays().open(connection) if self.forwards else None

    @property
    def is_busy(self) -> bool:
        """Whether records are on their way to other nodes."""
        return self.relays is not None and self.relays.is_busy

    def close(self) -> None:
        if self.relays is not None:
            self.relays.close()

    def follow(self, metadata: MetadataService) -> None:
        self._look_at(metadata.image, list(metadata.image.topics))
        metadata.subscribe(self._changed)

    def _changed(self, old: MetadataImage, new: MetadataImage, records: Records) -> None:
        if self.relays is not None and old.brokers is not new.brokers:
            self.relays.brokers_changed()
        touched: list[str] = []
        for record in records:
            if isinstance(record, ConfigChanged):
                if record.key == CLIENT_ROUTING and record.resource is ConfigResource.TOPIC:
                    touched.append(record.name)
            elif isinstance(record, TopicDeleted) and record.topic_id in old.topics_by_id:
                touched.append(old.topics_by_id[record.topic_id].name)
        self._look_at(new, touched)

    def _look_at(self, image: MetadataImage, topics: list[str]) -> None:
        for name in topics:
            topic = image.topic(name)
            value = None if topic is None else topic.configs.get(CLIENT_ROUTING)
            for each, names in self._set.items():
                if each == value:
                    names.add(name)
                else:
                    names.discard(name)
        # Clients of direct topics need the addresses of all nodes.
        self.shows_one_node = self._default == PROXY and (self._hides_leaders or not self._set[DIRECT])
        forwarded, self.forwards = self.forwards, self._default == PROXY or bool(self._set[PROXY])
        if self.forwards and not forwarded:
            self._on_forwarding()
