"""The relays of all clients for which this node answers instead of others."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import Dispatcher
from millstream.broker.api.table import ListenerKind, listener_for
from millstream.broker.handlers.fetch_sessions import FetchSessions
from millstream.broker.machine import Machine
from millstream.broker.routing.client_routing import AllProxied
from millstream.broker.routing.lane import Lane
from millstream.broker.routing.relay import ClientRelay
from millstream.broker.routing.targets import Routing
from millstream.broker.server.connection import Connection
from millstream.broker.server.listener import WILDCARDS, ShownNode
from millstream.broker.server.long_work import LongWork
from millstream.broker.server.server import Server
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import Endpoint
from millstream.config.settings import BrokerSettings
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Counter, Family, Registry
from millstream.protocol.peer_client import Greeting, encode_greeting

if TYPE_CHECKING:
    from millstream.broker.handlers.fetch import ClientFetches

log = get_logger("millstream.proxy")


class ProxyMetrics:
    def __init__(self, registry: Registry, clients: Callable[[], int]) -> None:
        registry.computed_gauge(
            "millstream_proxied_clients",
            "Connections for which this node may answer in the place of others.",
            clients,
        )
        self._requests: Family[Counter] = registry.counters(
            "millstream_forwarded_requests_total", "Requests, or parts of them, sent to other nodes for clients.",
            "api",
        )  # fmt: skip
        self._bytes = registry.counter(
            "millstream_forwarded_bytes_total", "Bytes of requests sent to other nodes for clients."
        )
        self.retries = registry.counter(
            "millstream_forwarded_retries_total",
            "Batches sent again because their leader changed or was lost.",
        )
        self._by_api: dict[str, Counter] = {}

    def count(self, api: str, size_bytes: int) -> None:
        counter = self._by_api.get(api)
        if counter is None:
            counter = self._by_api[api] = self._requests.labels(api)
        counter.value += 1
        self._bytes.value += size_bytes


class Relays:
    def __init__(
        self,
        settings: BrokerSettings,
        routing: Routing,
        image: Callable[[], MetadataImage],
        endpoint: Callable[[], Endpoint],
        machine: Machine,
        server: Server,
        dispatcher: Dispatcher,
        refusing: Dispatcher,
        fetch_sessions: FetchSessions,
        client_fetches: Callable[[], "ClientFetches"],
        long_work: LongWork,
        metrics: BrokerMetrics,
    ) -> None:
        """`endpoint` is the node's advertised endpoint; `refusing` answers as if the node coordinated no groups."""
        self.settings = settings
        self.routing = routing
        self.image = image
        self._endpoint = endpoint
        self.node_id = settings.id
        self.machine = machine
        self.server = server
        self.dispatcher = dispatcher
        self.refusing = refusing
        self.fetch_sessions = fetch_sessions
        self.client_fetches = client_fetches
        self.long_work = long_work
        self.fetch_requests = metrics.fetch_requests
        # Kept in order of arrival, so that a simulated run can be repeated.
        self._relays: dict[ClientRelay, None] = {}
        self._finishing: dict[Lane, None] = {}
        self.metrics = ProxyMetrics(metrics.registry, lambda: len(self._relays))

    async def bind(self, address: str) -> None:
        """Bind another address, at which this node answers for all nodes."""
        host, _, port = address.rpartition(":")
        bound: list[tuple[str, int]] = []
        bound.append(
            await self.server.bind(
                host.strip("[]"),
                int(port),
                listener_for(
                    ListenerKind.CLIENTS,
                    "PROXY",
                    "broker.proxy_listen",
                    lambda connection: self.open(connection, bound[0]),
                ),
            )
        )
        log.info("answers for all nodes", listen=f"{bound[0][0]}:{bound[0][1]}")

    def open(self, connection: Connection, listener: tuple[str, int] | None = None) -> ClientRelay:
        """Make a client's relay; `listener` is the address that it used, if not the usual one for clients."""
        routing = self.routing if listener is None else AllProxied()
        relay = ClientRelay(self, connection, routing, lambda: self._shown_to(connection, listener))
        self._relays[relay] = None
        return relay

    @property
    def is_busy(self) -> bool:
        return any(relay.is_busy for relay in self._relays)

    def close(self) -> None:
        for relay in list(self._relays):
            relay.close()
        for lane in list(self._finishing):
            lane.close()

    def let_finish(self, lane: Lane, then: Callable[[], None]) -> None:
        """The lane's client is gone; what it has sent without waiting for an answer is carried out."""

        def finished() -> None:
            self._finishing.pop(lane, None)
            then()

        self._finishing[lane] = None
        lane.finish(finished)

    def forget(self, relay: ClientRelay) -> None:
        self._relays.pop(relay, None)

    def greeting(self, connection: Connection) -> bytes:
        return encode_greeting(Greeting(self.image().cluster_id, self.node_id, connection.client))

    def _shown_to(self, connection: Connection, listener: tuple[str, int] | None) -> ShownNode:
        """The broker that a client is shown. For a wildcard address this is the address that the client used."""
        settings = self.settings
        if settings.client_address is not None:
            host, _, port = settings.client_address.rpartition(":")
            # Other nodes may answer at the same address: clients see all of them as one broker with one id.
            lowest = min(self.image().brokers, default=self.node_id)
            return ShownNode(lowest, host.strip("[]"), int(port))
        # Not from the metadata: this node may have been removed while the client's request waited.
        endpoint = self._endpoint()
        host, number = listener or (endpoint.host, endpoint.port)
        if listener is not None and settings.advertised_host is not None:
            host = settings.advertised_host
        host = connection.local_host if host in WILDCARDS else host
        return ShownNode(self.node_id, host, number)

    def cut_off(self) -> None:
        """A client that knows only this node looks for another when its connection closes."""
        for relay in list(self._relays):
            if relay.is_only_node:
                relay.connection.close()

    def brokers_changed(self) -> None:
        for relay in list(self._relays):
            relay.brokers_changed()
