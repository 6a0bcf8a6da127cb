"""Which port a node takes for other nodes, and what it says of it."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from millstream.broker.server.listening import Listening, bind_all
from millstream.broker.server.server import Server
from millstream.config.settings import BrokerSettings, PerformanceSettings
from millstream.observability.broker_metrics import BrokerMetrics

_BELOW_WHAT_THE_SYSTEM_GIVES = range(12_000, 22_000)


def listening(**settings: object) -> Listening:
    broker = replace(BrokerSettings(), **{"port": 0, **settings})  # type: ignore[arg-type]

    async def bind() -> Listening:
        server = Server(asyncio.get_running_loop(), PerformanceSettings(), BrokerMetrics.create())
        try:
            return await bind_all(server, broker, None)
        finally:
            server.stop_reading()

    return asyncio.run(bind())


@contextmanager
def two_ports() -> Iterator[int]:
    """A port, and the one 10000 above it, that no other test takes meanwhile."""
    for port in _BELOW_WHAT_THE_SYSTEM_GIVES:
        with socket.socket() as clients, socket.socket() as nodes:
            try:
                clients.bind(("127.0.0.1", port))
                nodes.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            for each in (clients, nodes):
                # From now on a server may bind it too.
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            yield port
            return
    raise AssertionError("no two free ports")


def test_nodes_connect_ten_thousand_above_the_clients_port() -> None:
    with two_ports() as port:
        assert listening(port=port).for_nodes.port == port + 10_000


def test_where_that_port_is_taken_any_other_will_do() -> None:
    with two_ports() as port, socket.create_server(("127.0.0.1", port + 10_000)):
        assert listening(port=port).for_nodes.port not in (0, port, port + 10_000)


def test_clients_and_nodes_never_share_a_port() -> None:
    found = listening()
    assert found.for_nodes.port not in (0, found.for_clients.port)


def test_nodes_are_told_the_name_of_their_listener_or_else_the_advertised_one() -> None:
    assert listening(advertised_host="public").for_nodes.host == "public"
    assert listening(advertised_host="public", node_listen="127.0.0.1:0").for_nodes.host == "127.0.0.1"
    assert listening(advertised_host="public", node_listen="0.0.0.0:0").for_nodes.host == "public"
    assert listening(advertised_host="public", node_advertised_host="inner").for_nodes.host == "inner"
