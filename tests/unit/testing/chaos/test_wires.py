"""Network namespaces, where we may make them."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random

import pytest

from millstream.testing.chaos.wires import NoNamespaces, Wires

ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 7))
while True:
    taken, _ = server.accept()
    while data := taken.recv(65536):
        taken.sendall(data)
"""


@pytest.fixture
def wires() -> Iterator[Wires]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    wires = Wires([1])
    try:
        wires.open()
    except NoNamespaces as error:
        pytest.skip(str(error))
    server = subprocess.Popen([*wires.prefix(1), sys.executable, "-c", ECHO])
    try:
        yield wires
    finally:
        server.kill()
        server.wait()
        wires.close()


def connect(wires: Wires) -> socket.socket:
    deadline = time.monotonic() + 90
    while True:
        try:
            return socket.create_connection((wires.address(1), 7), timeout=90)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def echo(client: socket.socket, data: bytes) -> float:
    """How long it took to come back."""
    started = time.monotonic()
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        got += client.recv(65536)
    assert got == data
    return time.monotonic() - started


def test_frames_come_late_and_not_all_of_them(wires: Wires) -> None:
    data = os.urandom(200_000)
    with connect(wires) as client:
        echo(client, data)
        wires.disturb(1, 0.1, 0.0, Random(1))
        assert echo(client, b"late") >= 0.2
        wires.restore(1)
        wires.disturb(1, 0.0, 0.05, Random(1))
        echo(client, data)
        wires.restore(1)
        echo(client, data)
    with connect(wires) as client:
        echo(client, data)
