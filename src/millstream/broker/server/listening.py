"""Binds a node's addresses, and gives the endpoints that it advertises."""

import errno

import msgspec

from millstream.broker.api.table import ListenerKind, listener_for
from millstream.broker.server.listener import WILDCARDS, NewRelay
from millstream.broker.server.server import Server
from millstream.cluster.metadata.records import FOR_NODES, Endpoint
from millstream.config.settings import BrokerSettings

# The nodes' port is the clients' port plus this, unless that falls into the range of ephemeral ports.
_ABOVE_CLIENTS = 10_000
_FIRST_EPHEMERAL_PORT = 32_768


class Listening(msgspec.Struct, frozen=True):
    """The address for clients, and the endpoints that the node registers."""

    clients: tuple[str, int]
    for_clients: Endpoint
    for_nodes: Endpoint

    @property
    def endpoints(self) -> tuple[Endpoint, Endpoint]:
        return self.for_clients, self.for_nodes


async def bind_all(server: Server, broker: BrokerSettings, new_relay: NewRelay | None) -> Listening:
    # Nodes first: a node that asks the clients' port for the nodes' port finds that port open.
    nodes = await _bind_for_nodes(server, broker)
    clients = await server.bind(
        broker.host, broker.port, listener_for(ListenerKind.CLIENTS, "PLAINTEXT", "--listen", new_relay)
    )
    for_clients = Endpoint(
        "PLAINTEXT", broker.advertised_host or clients[0], broker.advertised_port or clients[1]
    )
    is_own_address = broker.node_listen is not None and nodes[0] not in WILDCARDS
    host = broker.node_advertised_host or (nodes[0] if is_own_address else for_clients.host)
    return Listening(clients, for_clients, Endpoint(FOR_NODES, host, nodes[1]))


async def _bind_for_nodes(server: Server, broker: BrokerSettings) -> tuple[str, int]:
    listener = listener_for(ListenerKind.NODES, FOR_NODES, "--node-listen")
    if broker.node_listen is not None:
        host, _, port = broker.node_listen.rpartition(":")
        return await server.bind(host.strip("[]"), int(port), listener)
    usual = broker.port + _ABOVE_CLIENTS
    if broker.port and usual < _FIRST_EPHEMERAL_PORT:
        try:
            return await server.bind(broker.host, usual, listener)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    # Any port will do: other nodes ask for it at the clients' port.
    return await server.bind(broker.host, 0, listener)
