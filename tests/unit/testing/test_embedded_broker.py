"""The embedded broker as a context manager, used by clients that are not ours."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka import KafkaProducer

from millstream.testing import BrokerFailed, EmbeddedBroker
from support.reading import read_topic
from support.waiting import wait_for


def test_any_client_can_use_it() -> None:
    with EmbeddedBroker(topics=["events"]) as broker:
        librdkafka = Producer({"bootstrap.servers": broker.bootstrap_servers})
        librdkafka.produce("events", b"one")
        librdkafka.flush()
        pure_python = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        pure_python.send("events", b"two").get(90)
        pure_python.close()

        values = [message.value for message in read_topic(broker.bootstrap_servers, "events", 2)]

    assert values == [b"one", b"two"]


def test_topics_and_settings_are_there_from_the_start() -> None:
    topics = {"events": 3, "short": {"partitions": 2, "retention.ms": 60_000}}
    settings = {"storage.segment_size": "1MB", "log.retention.bytes": 4096}
    with EmbeddedBroker(topics=topics, settings=settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        found = admin.list_topics(timeout=90).topics
        resource = ConfigResource(ConfigResource.Type.TOPIC, "short")
        configs = admin.describe_configs([resource])[resource].result(90)

    assert {name: len(found[name].partitions) for name in topics} == {"events": 3, "short": 2}
    assert {name: configs[name].value for name in ("retention.ms", "segment.bytes", "retention.bytes")} == {
        "retention.ms": "60000",
        "segment.bytes": "1048576",
        "retention.bytes": "4096",
    }


def test_topics_can_be_created_later_and_twice() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topics({"late": 2})
        broker.create_topics({"late": 2, "later": {"partitions": 1, "retention.ms": 5}})

        found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=90).topics
        assert {name: len(found[name].partitions) for name in ("late", "later")} == {"late": 2, "later": 1}


def test_health_is_served_over_http() -> None:
    with EmbeddedBroker() as broker, urllib.request.urlopen(f"{broker.http_url}/health") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("crash", [False, True])
def test_restart_keeps_address_and_messages(crash: bool) -> None:
    with EmbeddedBroker(topics=["events"]) as broker:
        servers = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("events", b"kept")
        producer.flush()
        if crash:
            broker.kill()
            assert not broker.is_running
            broker.start()
        else:
            broker.restart()

        assert broker.bootstrap_servers == servers
        assert [message.value for message in read_topic(servers, "events", 1)] == [b"kept"]


def test_data_are_removed_unless_the_directory_was_given(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        own = broker.data_dir
        assert own.exists()
    with EmbeddedBroker(directory=tmp_path / "given") as broker:
        given = broker.data_dir

    assert not own.parent.exists()
    assert given.exists()


def test_settings_that_cannot_be_used_are_told_with_the_brokers_own_words() -> None:
    with pytest.raises(BrokerFailed, match=r"storage\.segment_sise.*did you mean 'segment_size'"):
        EmbeddedBroker(settings={"storage.segment_sise": "1MB"}).__enter__()


def test_broker_that_ended_by_itself_is_told_at_the_end() -> None:
    broker = EmbeddedBroker().start()
    os.kill(broker.pid, signal.SIGKILL)

    with pytest.raises(BrokerFailed, match="exit code -9"):
        broker.close()


def test_log_is_shown_with_an_error_in_the_block() -> None:
    def fail() -> None:
        with EmbeddedBroker():
            raise KeyError("something else")

    with pytest.raises(KeyError) as failure:
        fail()

    (note,) = failure.value.__notes__
    assert '"event":"ready"' in note.replace(": ", ":")


def test_using_it_before_the_start_is_told() -> None:
    with pytest.raises(BrokerFailed, match="is not running"):
        _ = EmbeddedBroker().bootstrap_servers


async def _started_and_stopped() -> str:
    async with EmbeddedBroker() as broker:
        return broker.bootstrap_servers


def test_it_is_an_async_context_manager_too() -> None:
    import asyncio

    assert asyncio.run(_started_and_stopped()).startswith("127.0.0.1:")


def test_settings_in_the_environment_are_for_other_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_BROKER_DATA_DIR", "/nonexistent")
    monkeypatch.setenv("MILLSTREAM_BOOTSTRAP", "localhost:9092")

    with EmbeddedBroker() as broker:
        assert broker.is_running


def test_modules_of_the_users_directory_do_not_get_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)

    with EmbeddedBroker() as broker:
        assert broker.is_running


PROGRAM = """
import sys, threading
from millstream.testing import EmbeddedBroker

def start():
    global broker
    broker = EmbeddedBroker().start()

# The thread that starts the broker may be gone long before the program.
thread = threading.Thread(target=start)
thread.start()
thread.join()
print(broker.pid, broker.data_dir, flush=True)
sys.stdin.read()
"""


def test_broker_ends_with_the_program_that_was_killed() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdin is not None
    pid, data_dir = program.stdout.readline().rstrip("\n").split(maxsplit=1)
    try:
        assert _exists(int(pid))
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
        program.stdin.close()

    wait_for(lambda: _exists(int(pid)), lambda exists: not exists, "the broker ends")
    assert not Path(data_dir).parent.exists()


def _exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
