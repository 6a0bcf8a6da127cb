"""Reserved ports: whoever they are for can listen on them, again and again, and no one else is given them."""

import socket
from pathlib import Path

import pytest

from millstream.runtime.ports import LOOPBACK, ReservedPorts


def listening(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((LOOPBACK, port))
    server.listen()
    return server


def test_a_server_takes_a_reserved_port_again_after_each_end() -> None:
    with ReservedPorts() as reserved:
        for _ in range(3):
            with listening(reserved.ports[0]):
                socket.create_connection((LOOPBACK, reserved.ports[0]), 10).close()


def test_a_port_without_a_server_refuses_connections() -> None:
    with ReservedPorts() as reserved, pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, reserved.ports[0]), 10)


def test_ports_are_in_order_and_all_different() -> None:
    with ReservedPorts(20) as reserved:
        assert reserved.ports == sorted(set(reserved.ports))
        assert reserved.addresses[0] == f"{LOOPBACK}:{reserved.ports[0]}"


@pytest.mark.parametrize("reuse", [False, True])
def test_no_one_who_asks_for_any_port_is_given_a_reserved_one(reuse: bool) -> None:
    """As many as would find one of them with near certainty, if any could."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    taken = max(200, (high - low) // 40)
    with ReservedPorts(20) as reserved:
        for _ in range(taken):
            with socket.socket() as other:
                if reuse:
                    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind((LOOPBACK, 0))
                assert other.getsockname()[1] not in reserved.ports


def test_after_the_end_the_port_is_everybody_s() -> None:
    reserved = ReservedPorts()
    reserved.close()
    with socket.socket() as other:
        other.bind((LOOPBACK, reserved.ports[0]))
