"""Requests find a node that answers, whatever listens at the other addresses."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.client.errors import ConnectionFailedError
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.properties import addresses
from millstream.client.wire.settings import ClusterSettings
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


def cluster(bootstrap: str) -> Cluster:
    """Who never answers is not waited for long; who does has time on a loaded machine too."""
    is_silent = "silent" in bootstrap
    settings = ClusterSettings(
        addresses(bootstrap.replace("silent", "")),
        asks_node_itself=True,
        first_reply_timeout_s=0.1 if is_silent else 60.0,
    )
    return Cluster(settings)


def test_addresses_that_do_not_answer_are_passed_over() -> None:
    with (
        EmbeddedBroker() as broker,
        listener(hangs_up=True) as waiting,
        cluster(f"{waiting},127.0.0.1:1,{broker.bootstrap_servers}") as seen,
    ):
        cluster_id = seen.call("describe_cluster").cluster_id
        broker.kill()
        broker.start()
        assert seen.call("describe_cluster").cluster_id == cluster_id, "over a new connection"


def test_a_node_that_waits_for_others_is_told_from_none() -> None:
    with (
        listener(hangs_up=True) as waiting,
        cluster(waiting) as seen,
        pytest.raises(ConnectionFailedError, match="is starting or waits for other nodes"),
    ):
        seen.call("describe_cluster")
    with (
        listener(hangs_up=False) as stopped,
        cluster(f"silent{stopped}") as seen,
        pytest.raises(ConnectionFailedError, match="does not answer"),
    ):
        seen.call("describe_cluster")


def test_what_does_not_speak_the_protocol_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with (
            cluster(f"127.0.0.1:{server.getsockname()[1]}") as seen,
            pytest.raises(ConnectionFailedError, match="does not speak Kafka's protocol"),
        ):
            seen.call("describe_cluster")
        thread.join()


def test_one_node_is_asked_over_a_new_connection_and_named_when_it_is_away() -> None:
    with EmbeddedBroker() as broker, cluster(broker.bootstrap_servers) as seen:
        seen.metadata([])
        (node,) = seen.addresses
        assert seen.call_node(node, "describe_log_dirs", topics=None).results
        broker.kill()
        broker.start()
        assert seen.call_node(node, "describe_log_dirs", topics=None).results
        broker.kill()
        with pytest.raises(ConnectionFailedError, match=f"node {node} does not answer"):
            seen.call_node(node, "describe_log_dirs", topics=None)
        with pytest.raises(ConnectionFailedError, match="node 99 is away"):
            seen.call_node(99, "describe_log_dirs", topics=None)


def test_a_change_is_made_once_and_not_again_over_a_new_connection() -> None:
    with EmbeddedBroker() as broker, cluster(broker.bootstrap_servers) as seen:
        topic = {"name": "once", "num_partitions": 1, "replication_factor": 1}
        for _ in range(2):
            (result,) = seen.call_once("create_topics", topics=[topic]).topics
            broker.kill()
            broker.start()
        assert result.error_message, "the second was refused: the first was made"


def test_a_request_that_was_interrupted_leaves_no_answer_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> memoryview:
        raise KeyboardInterrupt

    with EmbeddedBroker() as broker, cluster(broker.bootstrap_servers) as seen:
        node = seen.any_node()
        with monkeypatch.context() as patch:
            patch.setattr(node, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                node.call("list_groups", 4)
        with pytest.raises(OSError, match=r"closed|Bad file"):
            node.call("api_versions", 0)
        assert seen.call("find_coordinator", 4, key_type=0, coordinator_keys=["g"]).coordinators
