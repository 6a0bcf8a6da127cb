"""Apache Kafka's own Java clients and tools against a node. `make java` fetches the jars and runs this."""

import os
import subprocess

import pytest

from support.node import NodeProcess

JARS = os.environ.get("MILLSTREAM_TEST_KAFKA_JARS")

pytestmark = pytest.mark.skipif(
    JARS is None, reason="needs Apache Kafka's jars in MILLSTREAM_TEST_KAFKA_JARS; `make java` fetches them"
)

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def java(tool: str, *arguments: str, text: str = "") -> str:
    command = ["java", "-Xmx256m", "-cp", f"{JARS}/*", tool, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def create(broker: NodeProcess, topic: str, partitions: int, *configs: str) -> None:
    arguments = [word for config in configs for word in ("--config", config)]
    java(
        TOPICS, "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic,
        "--partitions", str(partitions), *arguments,
    )  # fmt: skip


def produce(broker: NodeProcess, topic: str, lines: list[str], codec: str) -> None:
    java(
        PRODUCER, "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--command-property", f"compression.type={codec}", text="\n".join(lines) + "\n",
    )  # fmt: skip


def test_topics_are_created_and_described(broker, new_topic):
    topic = new_topic()
    create(broker, topic, 3, "retention.ms=60000")
    described = java(TOPICS, "--bootstrap-server", broker.bootstrap, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=60000" in described


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_java_writes_java_reads(broker, new_topic, codec):
    topic = new_topic()
    create(broker, topic, 1)
    lines = [f"line {number}" for number in range(500)]
    produce(broker, topic, lines, codec)
    read = java(
        CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0",
        "--offset", "earliest", "--max-messages", "500",
    )  # fmt: skip
    assert read.splitlines() == lines


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_commits_and_is_described(broker, new_topic, protocol):
    topic = new_topic()
    create(broker, topic, 2)
    lines = [str(number) for number in range(200)]
    produce(broker, topic, lines, "lz4")
    read = java(
        CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic,
        "--command-property", f"group.protocol={protocol}", "--from-beginning", "--max-messages", "200",
    )  # fmt: skip
    assert sorted(read.splitlines()) == sorted(lines)
    described = java(GROUPS, "--bootstrap-server", broker.bootstrap, "--describe", "--group", topic)
    rows = [row.split() for row in described.splitlines() if row.startswith(topic)]
    assert sum(int(row[3]) for row in rows if row[3] != "-") == 200
    assert all(row[5] in ("0", "-") for row in rows)


def test_kafkas_dump_tool_accepts_our_files(start_node):
    node = start_node(settings={"storage.segment_size": "64KB"})
    create(node, "dumped", 1)
    for codec in ("none", "lz4"):
        produce(node, "dumped", [f"{number:0200d}" for number in range(1000)], codec)
    node.stop()
    directory = node.partition_dir("dumped")
    files = sorted(
        str(path) for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex")
    )
    assert len(files) >= 6
    dumped = java(DUMP, "--deep-iteration", "--files", ",".join(files))
    assert "Mismatches" not in dumped
    assert "Found timestamp mismatch" not in dumped
    assert "isvalid: false" not in dumped
