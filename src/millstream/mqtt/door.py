"""The MQTT door of a node: assembles its parts, starts and stops."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from millstream.doors import Doors, MetadataImage
from millstream.doors.caller import ANONYMOUS, NODE, Caller
from millstream.doors.decoded_tail import DecodedTail
from millstream.mqtt.attending import Attending
from millstream.mqtt.authenticating import Anyone, Authenticator
from millstream.mqtt.client import Client
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.listeners import TcpWire, WebSocketWire
from millstream.mqtt.places import Configs, Places, identity_of, partitions_of
from millstream.mqtt.publishing import RETAINED_CONFIGS, Publishing
from millstream.mqtt.queue_clients import Redirects
from millstream.mqtt.retained import Retained
from millstream.mqtt.rules import Rules
from millstream.mqtt.share_groups import ShareGroups
from millstream.mqtt.shared import Shared
from millstream.mqtt.statistics import Statistics, SysTopics
from millstream.mqtt.subscribers import Subscribers
from millstream.mqtt.unwanted import Unwanted
from millstream.mqtt.wire import Refusals, Wire, WireUser
from millstream.observability.logs import get_logger
from millstream.observability.repeats import LogThrottle
from millstream.protocol.internal_topics import MQTT_RETAINED_TOPIC
from millstream.protocol.mqtt.decoder import NameCache
from millstream.protocol.mqtt.reasons import Reason
from millstream.runtime.clock import Clock, SteadyTime

log = get_logger("millstream.mqtt")

_BACKLOG: Final = 2_048
_CLOSING_SECONDS: Final = 5.0

Address = tuple[str, int]


class MqttDoor:
    """`new_id` returns globally unique texts."""

    def __init__(
        self,
        doors: Doors,
        rules: Rules,
        limits: MqttLimits,
        clock: Clock,
        new_id: Callable[[], str],
        *,
        authenticator: Authenticator | None = None,
        max_connections: int = 100_000,
    ) -> None:
        caller = Caller(ANONYMOUS, "mqtt", listener="mqtt")
        time = SteadyTime(clock)
        node = f"{doors.view.node_id}:{new_id()}"
        places = Places(doors.metadata, caller)
        retained = Retained(doors.partitions, caller, limits, places.identity)
        subscribers = Subscribers(
            doors.partitions, caller, rules, time.now_ms, places.identity, copies=limits.copies_overlapping
        )
        self.shared = Shared(
            doors,
            limits,
            Publishing(rules, places, retained.check),
            places,
            subscribers,
            retained,
            Attending(doors.coordinators, caller, node),
            ShareGroups(
                doors,
                caller,
                node,
                rules,
                lambda text: partitions_of(places, rules.topics_for(text)),
                time.now_ms,
                DecodedTail(limits.tail_messages),
                limits.delivery_batch,
            ),
            authenticator or Anyone(),
            NameCache(),
            time.now_ms,
            lambda: f"auto-{new_id()}",
            node,
            caller,
            Statistics(),
            Redirects(doors.view, limits.direct_queues, limits.servers),
            Unwanted(doors, caller, node, subscribers.index) if limits.tells_unwanted else None,
            LogThrottle(lambda: time.now_ms() / 1000),
        )
        self._sys = SysTopics(self.shared.subscribers, self.values)
        self._max_connections = max_connections
        self._refusals = Refusals()
        self._servers: list[asyncio.Server] = []
        self._clients: dict[Client, None] = {}
        self._is_stopping = False
        self._unwatch: Callable[[], None] | None = None

    def values(self) -> dict[str, int]:
        """Values published under `$SYS/broker/`, and as metrics."""
        shared = self.shared
        statistics = shared.statistics
        return {
            "clients/connected": len(self._clients),
            "clients/total": statistics.connections,
            "subscriptions/count": shared.subscribers.index.count,
            "retained messages/count": shared.retained.count,
            "retained messages/bytes": shared.retained.size_bytes,
            "messages/received": statistics.received_messages,
            "messages/sent": shared.subscribers.delivered,
            "bytes/received": statistics.received_bytes,
            "bytes/sent": statistics.sent_bytes,
        }

    async def start(self, tcp: Address | None, websocket: Address | None = None) -> dict[str, Address]:
        """Create the topics, listen, and return the bound addresses. OSError if one cannot be bound."""
        shared = self.shared
        wanted: dict[str, Configs] = dict.fromkeys(shared.publishing.rules.topics, ())
        await shared.places.ensure_patiently(wanted)
        own = Places(shared.doors.metadata, NODE)
        await own.ensure_patiently({MQTT_RETAINED_TOPIC: RETAINED_CONFIGS})
        shared.retained.follow(shared.places.of(MQTT_RETAINED_TOPIC))
        self._unwatch = shared.doors.metadata.watch(self.metadata_changed)
        self._sys.start()
        limits = shared.limits
        unsent, longest = limits.max_unsent_bytes, limits.max_packet_bytes
        bound: dict[str, Address] = {}
        if tcp is not None:
            bound["mqtt"] = await self._listen(tcp, lambda: TcpWire(self.accept, unsent))
            shared.redirects.port = bound["mqtt"][1]
        if websocket is not None:
            bound["mqtt-ws"] = await self._listen(
                websocket, lambda: WebSocketWire(self.accept, unsent, longest)
            )
        return bound

    async def _listen(self, address: Address, wire: Callable[[], TcpWire]) -> Address:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(wire, *address, backlog=_BACKLOG)
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return host, port

    def accept(self, wire: Wire) -> WireUser | None:
        if self._is_stopping:
            return None
        if len(self._clients) >= self._max_connections:
            return self._refusals.refuse(wire)
        client = Client(self.shared, wire)
        self._clients[client] = None
        client.ended.add_done_callback(lambda _: self._clients.pop(client, None))
        self.shared.statistics.connections += 1
        return client

    def metadata_changed(self, old: MetadataImage, new: MetadataImage) -> None:
        """Follow new partitions for existing subscribers, and topics that were recreated."""
        if old.topics is new.topics:
            return
        shared = self.shared
        shared.share_groups.look_for_partitions()
        for topic in (*shared.publishing.rules.topics, MQTT_RETAINED_TOPIC):
            if identity_of(old, topic) != identity_of(new, topic):
                self._made_again(topic)
        if any(_partitions(old, topic) < _partitions(new, topic) for topic in shared.publishing.rules.topics):
            for client in list(self._clients):
                if client.is_open:
                    client.look_for_partitions(client.subscriptions)

    def _made_again(self, topic: str) -> None:
        """The topic was deleted, and perhaps recreated."""
        shared = self.shared
        places = shared.places.of(topic)
        if not places:
            return
        if topic == MQTT_RETAINED_TOPIC:
            shared.retained.begin_again(places)
            return
        shared.subscribers.begin_again(topic, places)
        for client in list(self._clients):
            if client.is_open:
                client.reading.begin_again(topic, places)

    async def stop(self) -> None:
        """Disconnect the clients and save their sessions; cut off those that do not go in time."""
        self._is_stopping = True
        for server in self._servers:
            server.close()
        clients = list(self._clients)
        for client in clients:
            client.close(Reason.SERVER_SHUTTING_DOWN, "this node is stopping")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await asyncio.gather(*(client.ended for client in clients), return_exceptions=True)
        for client in clients:
            client.cut_off()
        self._sys.stop()
        if self._unwatch is not None:
            self._unwatch()
        self.shared.attending.stop()
        self.shared.share_groups.stop()
        await self.shared.subscribers.stop()
        await self.shared.retained.stop()


def _partitions(image: MetadataImage, topic: str) -> int:
    found = image.topic(topic)
    return 0 if found is None else len(found.partitions)
