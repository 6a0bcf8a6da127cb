"""The addresses that a node takes, and what it tells others of them."""

from millstream.broker.api.table import ListenerKind, listener_for
from millstream.broker.server.listener import NewRelay
from millstream.broker.server.server import Server
from millstream.cluster.metadata.records import FOR_NODES, Endpoint
from millstream.config.settings import BrokerSettings


async def bind_all(
    server: Server, broker: BrokerSettings, new_relay: NewRelay | None
) -> tuple[tuple[str, int], tuple[Endpoint, ...]]:
    """The address for clients; and the endpoints that the node registers, the last of which is for other nodes.

    Without a listener of their own, nodes come to that of clients, which then believes what only nodes may say.
    """
    kind = ListenerKind.NODES if broker.node_listen is None else ListenerKind.CLIENTS
    for_clients = listener_for(kind, "PLAINTEXT", "--listen", new_relay)
    listen = await server.bind(broker.host, broker.port, for_clients)
    endpoint = Endpoint("PLAINTEXT", broker.advertised_host or listen[0], broker.advertised_port or listen[1])
    if broker.node_listen is None:
        return listen, (endpoint,)
    host, _, port = broker.node_listen.rpartition(":")
    for_nodes = listener_for(ListenerKind.NODES, FOR_NODES, "--node-listen")
    bound = await server.bind(host.strip("[]"), int(port), for_nodes)
    return listen, (endpoint, Endpoint(FOR_NODES, broker.node_advertised_host or bound[0], bound[1]))
