"""Admin requests of the command line find a node that answers, whatever listens at the other addresses."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.cli.cluster_calls import ClusterCalls
from millstream.cli.errors import ExitCode, Unreachable
from millstream.client import node_connection
from millstream.testing import EmbeddedBroker


@contextmanager
def listener(*, hangs_up: bool) -> Iterator[str]:
    """Accepts connections, and closes them, as a node that waits for others, or never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        if hangs_up:
            threading.Thread(target=hang_up, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_addresses_that_do_not_answer_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connection, "_FIRST_REPLY_SECONDS", 0.1)
    with (
        EmbeddedBroker() as broker,
        listener(hangs_up=True) as waiting,
        listener(hangs_up=False) as stopped,
        ClusterCalls(f"{waiting},{stopped},127.0.0.1:1,{broker.bootstrap_servers}") as calls,
    ):
        cluster_id = calls.call("describe_cluster").cluster_id
        broker.kill()
        broker.start()
        assert calls.call("describe_cluster").cluster_id == cluster_id, "over a new connection"


def test_a_node_that_waits_for_others_is_told_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connection, "_FIRST_REPLY_SECONDS", 0.1)
    with listener(hangs_up=True) as waiting, ClusterCalls(waiting) as calls:
        with pytest.raises(Unreachable, match="is starting or waits for other nodes") as caught:
            calls.call("describe_cluster")
        assert caught.value.exit_code == ExitCode.UNREACHABLE
    with (
        listener(hangs_up=False) as stopped,
        ClusterCalls(stopped) as calls,
        pytest.raises(Unreachable, match="does not answer"),
    ):
        calls.call("describe_cluster")
