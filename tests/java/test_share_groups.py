"""Share groups with Apache Kafka's own Java consumer and tools."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.client import QueueAdmin
from support.node import NodeProcess
from support.one_group import PrintingConsumer, build_franz, share_a_queue

JARS = os.environ.get("MILLSTREAM_TEST_KAFKA_JARS")

pytestmark = pytest.mark.skipif(
    JARS is None, reason="needs Apache Kafka's jars in MILLSTREAM_TEST_KAFKA_JARS; `make java` fetches them"
)

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
VERIFIABLE = "org.apache.kafka.tools.VerifiableShareConsumer"
PERFORMANCE = "org.apache.kafka.tools.ShareConsumerPerformance"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CONFIGS = "kafka.admin.ConfigCommand"
MESSAGES = 500


def java(tool: str, *arguments: str, text: str = "") -> str:
    command = ["java", "-Xmx256m", "-cp", f"{JARS}/*", tool, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def filled(broker: NodeProcess, new_topic: Callable[[], str]) -> tuple[str, str]:
    """A topic with messages, and a group that begins with the first of them."""
    topic = new_topic()
    group = f"{topic}-group"
    server = ("--bootstrap-server", broker.bootstrap)
    java(TOPICS, *server, "--create", "--topic", topic, "--partitions", "3")
    java(
        CONFIGS, *server, "--alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    java(PRODUCER, *server, "--topic", topic, text="".join(f"line {number}\n" for number in range(MESSAGES)))
    return topic, group


def test_javas_share_consumer_reads_and_accepts_everything(
    broker: NodeProcess, filled: tuple[str, str]
) -> None:
    topic, group = filled
    read = java(
        CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group,
        "--max-messages", str(MESSAGES), "--timeout-ms", "60000",
    )  # fmt: skip
    assert sorted(read.split("\n")[:-1]) == sorted(f"line {number}" for number in range(MESSAGES))
    with QueueAdmin(broker.bootstrap) as admin:
        assert [row.in_flight for row in admin.queues(group)] == [0, 0, 0]


def test_the_tool_for_share_groups(broker: NodeProcess, filled: tuple[str, str]) -> None:
    topic, group = filled
    server = ("--bootstrap-server", broker.bootstrap)
    java(
        CONSUMER, *server, "--topic", topic, "--group", group, "--max-messages", "10", "--timeout-ms", "60000"
    )
    assert group in java(GROUPS, *server, "--list")
    described = java(GROUPS, *server, "--describe", "--group", group)
    assert topic in described
    assert "Empty" in java(GROUPS, *server, "--describe", "--group", group, "--state")
    java(GROUPS, *server, "--reset-offsets", "--group", group, "--topic", topic, "--to-latest", "--execute")
    java(GROUPS, *server, "--delete-offsets", "--group", group, "--topic", topic)
    java(GROUPS, *server, "--delete", "--group", group)
    assert group not in java(GROUPS, *server, "--list")


def test_the_verifiable_share_consumer(broker: NodeProcess, filled: tuple[str, str]) -> None:
    topic, group = filled
    said = java(
        VERIFIABLE, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", group,
        "--max-messages", str(MESSAGES), "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= MESSAGES
    assert all(event["success"] for event in events if event["name"] == "offsets_acknowledged")


def test_the_performance_tool(broker: NodeProcess, filled: tuple[str, str]) -> None:
    topic, group = filled
    said = java(
        PERFORMANCE, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group,
        "--messages", str(MESSAGES), "--timeout", "60000",
    )  # fmt: skip
    assert "nMsg.sec" in said


def test_kafkas_dump_tool_reads_members_and_state(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node()
    topic = new_topic()
    server = ("--bootstrap-server", node.bootstrap)
    java(TOPICS, *server, "--create", "--topic", topic, "--partitions", "1")
    java(
        CONFIGS, *server, "--alter", "--entity-type", "groups", "--entity-name", "g",
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    java(PRODUCER, *server, "--topic", topic, text="a\nb\n")
    java(CONSUMER, *server, "--topic", topic, "--group", "g", "--max-messages", "2", "--timeout-ms", "60000")
    node.stop()
    for log, decoder, kinds in (
        ("__consumer_offsets", "--offsets-decoder", ("10", "11", "12", "13", "14", "15")),
        ("__share_group_state", "--share-group-state-decoder", ("0", "1")),
    ):
        files = [
            str(path) for path in (node.data_dir / "topics" / log).glob("*/*.log") if path.stat().st_size
        ]
        dumped = java(DUMP, decoder, "--files", ",".join(files))
        assert "Error" not in dumped
        assert all(f'"type":"{kind}"' in dumped for kind in kinds)


def test_the_libraries_share_a_queue(
    broker: NodeProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Java's consumer, librdkafka's and, where Go is, franz-go's: every message to one of them."""
    topic = new_topic()
    group = f"{topic}-group"
    with QueueAdmin(broker.bootstrap) as admin:
        admin.alter_group_configs(group, {"share.auto.offset.reset": "earliest"})
    tool = ["java", "-Xmx256m", "-cp", f"{JARS}/*", CONSUMER, "--bootstrap-server", broker.bootstrap]
    others = [PrintingConsumer(*tool, "--topic", topic, "--group", group, by_signal=True)]
    if (franz := build_franz(tmp_path)) is not None:
        others.append(PrintingConsumer(str(franz), broker.bootstrap, topic, group))
    try:
        share_a_queue(broker.bootstrap, topic, group, others)
    finally:
        for each in others:
            each.stop()
