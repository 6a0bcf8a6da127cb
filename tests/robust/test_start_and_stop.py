"""Starts that cannot succeed end with one line that says what to do; a stop ends whatever is under way."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from millstream.cli.main import ALLOCATOR_SETTINGS
from support.environment import ignoring
from support.node import NodeProcess
from support.raw_client import (
    ConnectionEnded,
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    milliseconds,
    produce,
    produce_fields,
)

COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 15, 16


def failing_start(data: Path, *arguments: str) -> str:
    """Start a node that cannot start; its one line on standard error."""
    command = [
        sys.executable,
        "-m",
        "millstream",
        "serve",
        "--data",
        str(data),
        "--log-format",
        "json",
        *arguments,
    ]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False
    )
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr + ended.stdout
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1, ended.stderr
    assert "--debug" not in errors[0], "this is the user's to solve, not ours"
    return errors[0]


def test_an_address_in_use_is_named_with_the_option_to_change_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = failing_start(tmp_path / "data", "--listen", f"127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}" in error
    assert "--listen" in error


def test_an_http_address_in_use_is_named_with_the_option_to_change_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = failing_start(tmp_path / "data", "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in error
    assert "--http" in error


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_refused(tmp_path: Path, host: str) -> None:
    assert f"cannot listen on {host}:" in failing_start(tmp_path / "data", "--listen", f"{host}:9092")


def test_a_data_directory_in_use_is_refused(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    error = failing_start(node.data_dir, "--listen", "127.0.0.1:0")
    assert f"{node.data_dir} is in use by another node" in error
    assert "--data" in error


def test_a_data_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with read_only(data):
        error = failing_start(data, "--listen", "127.0.0.1:0")
    assert f"cannot write to {data}" in error
    assert "--data" in error


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Root may write anywhere but on a file system that is mounted read-only."""
    if os.geteuid() != 0:
        directory.chmod(0o500)
        yield
        directory.chmod(0o700)
        return
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "millstream-test", str(directory)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_data_directory_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    error = failing_start(tmp_path / "data", "--listen", "127.0.0.1:0")
    assert str(tmp_path / "data") in error
    assert "--data" in error


def test_a_damaged_metadata_log_stops_the_start_with_file_and_position(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node()
    with RawClient(node.listen) as client:
        for _ in range(3):
            create_topic(client, new_topic())
    node.stop()
    (damaged, *_) = sorted(
        (node.data_dir / "__cluster_metadata").glob("*"), key=lambda path: -path.stat().st_size
    )
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 0xFF
    damaged.write_bytes(content)
    error = failing_start(node.data_dir, "--listen", "127.0.0.1:0")
    assert f"{damaged}: corrupt at byte" in error


def test_another_nodes_data_directory_is_refused(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    node.stop()
    error = failing_start(node.data_dir, "--listen", "127.0.0.1:0", "--node-id", "77")
    assert "77" in error


# -- the end


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_fetches_that_wait_and_idle_clients(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str], with_signal: signal.Signals
) -> None:
    node = start_node()
    client, idle, half = (RawClient(node.listen) for _ in range(3))
    name = create_topic(client, new_topic())
    client.send("fetch", 12, **fetch_fields(name, 0, max_wait_ms=3_600_000))
    client.send("metadata", 12, topics=[])
    half.send_bytes(b"\0\1\0\0half of a request")
    os.kill(node.pid, with_signal)
    for each in (client, idle, half):
        assert each.is_closed_by_broker()
        each.close()
    node.stop()
    assert node.log_entries("stopped")
    assert not node.log_entries("task failed")


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_background_job_of_a_shell_stops_by_both_signals_too(
    tmp_path: Path, with_signal: signal.Signals
) -> None:
    node = NodeProcess(tmp_path)
    # As a user starts it, without what the allocator wants, so that it starts itself again.
    node.prefix = [*ignoring(signal.SIGINT), "env", *(f"--unset={name}" for name in ALLOCATOR_SETTINGS)]
    try:
        node.start()
        os.kill(node.pid, with_signal)
        assert node.wait_for_end() == 0
    finally:
        node.close()


def test_who_asks_a_node_to_stop_more_than_once_gets_a_clean_end(
    start_node: Callable[..., NodeProcess],
) -> None:
    node = start_node()
    assert node.process is not None
    while node.process.poll() is None:
        node.process.send_signal(signal.SIGTERM)
    assert node.wait_for_end() == 0


def test_a_stop_ends_a_member_that_waits_for_its_group(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node()
    with RawClient(node.listen) as member:
        minute = milliseconds(60_000)
        protocols = [{"name": "range", "metadata": b""}]
        member.send(
            "join_group",
            3,
            group_id=new_topic(),
            session_timeout=minute,
            rebalance_timeout=minute,
            protocol_type="consumer",
            protocols=protocols,
        )
        with RawClient(node.listen) as other:
            assert other.call("api_versions", 0).error_code == 0
        os.kill(node.pid, signal.SIGTERM)
        with suppress(ConnectionEnded):
            assert member.receive().error_code in (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
        assert member.is_closed_by_broker()
    node.stop()
    assert not node.log_entries("task failed")
    assert not node.log_entries("request failed")
    assert "Traceback" not in node.log_tail(100)


def test_a_stop_under_load_acknowledges_or_closes_and_loses_nothing_acknowledged(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node()
    with RawClient(node.listen) as client:
        name = create_topic(client, new_topic())
        for _ in range(300):
            client.send("produce", 9, **produce_fields(name, batch_of(b"x" * 100)))
        os.kill(node.pid, signal.SIGTERM)
        acknowledged: list[int] = []
        with suppress(ConnectionEnded):
            while len(acknowledged) < 300:
                acknowledged.append(client.receive().responses[0].partition_responses[0].base_offset)
    node.stop()
    assert acknowledged == list(range(len(acknowledged)))
    node.start()
    with RawClient(node.listen) as client:
        assert produce(client, name, batch_of(b"y")).base_offset >= len(acknowledged)


def test_a_reader_that_never_reads_does_not_hold_up_the_stop(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node()
    with RawClient(node.listen) as client, RawClient(node.listen, receive_buffer=4096) as stuck:
        name = create_topic(client, new_topic(), flush_ms=1000)
        for _ in range(10):
            produce(client, name, batch_of(b"x" * 1_000_000))
        stuck.send("fetch", 12, **fetch_fields(name, 0))
        assert client.call("metadata", 12, topics=[]).brokers
        node.stop()
