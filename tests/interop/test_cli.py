"""The `millstream` command against a running node, as a user runs it: a process of its own each time."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream.protocol.key_hash import partition_of
from support.cli import Cli
from support.node import NodeProcess

NewTopic = Callable[[], str]


@pytest.fixture
def cli(broker: NodeProcess) -> Cli:
    return Cli(broker.bootstrap)


@pytest.fixture
def topic(cli: Cli, new_topic: NewTopic) -> str:
    """A topic with one partition, so that its messages have one order."""
    name = new_topic()
    cli.ok("topic", "create", name, "--partitions", "1")
    return name


def test_a_created_topic_is_listed_and_described(cli: Cli, new_topic: NewTopic) -> None:
    name = new_topic()
    assert cli.json("topic", "create", name, "--partitions", "3", "--config", "retention.ms=123456789") == {
        "topic": name,
        "created": True,
    }
    listed = {row["topic"]: row for row in cli.json("topic", "list")}
    assert listed[name] == {"topic": name, "partitions": 3, "replication_factor": 1}
    described = cli.json("topic", "describe", name)
    assert described["configs"] == {"retention.ms": "123456789"}
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    for partition in described["partitions"]:
        assert partition["replicas"] == partition["isr"] == [partition["leader"]]
        assert (partition["start_offset"], partition["end_offset"], partition["messages"]) == (0, 0, 0)


def test_describe_counts_messages(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-m", "a", "-m", "b")
    described = cli.json("topic", "describe", topic)
    assert described["messages"] == 2
    assert described["partitions"][0]["end_offset"] == 2


def test_describe_in_a_pipe_is_plain_text(cli: Cli, topic: str) -> None:
    lines = cli.ok("topic", "describe", topic).decode().splitlines()
    assert lines[0] == f"topic\t{topic}"
    assert "partition\tleader\treplicas\tisr\tstart\tend\tmessages" in lines
    assert lines[-1].endswith("\t0\t0\t0")


def test_creating_a_topic_twice_fails_unless_that_is_accepted(cli: Cli, topic: str) -> None:
    assert "exists already" in cli.fails("topic", "create", topic)
    assert cli.json("topic", "create", topic, "--if-not-exists") == {"topic": topic, "created": False}


def test_a_topic_with_a_wrong_setting_is_not_created(cli: Cli, new_topic: NewTopic) -> None:
    name = new_topic()
    assert "INVALID_CONFIG" in cli.fails("topic", "create", name, "--config", "retention.ms=soon")
    assert name not in {row["topic"] for row in cli.json("topic", "list")}


def test_altering_sets_and_deletes_settings_and_adds_partitions(cli: Cli, topic: str) -> None:
    cli.ok("topic", "alter", topic, "--config", "retention.ms=1000", "--config", "cleanup.policy=compact")
    assert cli.json("topic", "describe", topic)["configs"] == {
        "retention.ms": "1000",
        "cleanup.policy": "compact",
    }
    cli.ok("topic", "alter", topic, "--delete-config", "retention.ms", "--partitions", "4")
    described = cli.json("topic", "describe", topic)
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert len(described["partitions"]) == 4


def test_fewer_partitions_are_refused(cli: Cli, new_topic: NewTopic) -> None:
    name = new_topic()
    cli.ok("topic", "create", name, "--partitions", "3")
    assert "INVALID_PARTITIONS" in cli.fails("topic", "alter", name, "--partitions", "2")


def test_a_deleted_topic_is_gone(cli: Cli, topic: str) -> None:
    assert cli.json("topic", "delete", topic, "--yes") == {"deleted": [topic], "failed": []}
    assert topic not in {row["topic"] for row in cli.json("topic", "list")}


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "describe"],
        ["topic", "delete", "--yes"],
        ["topic", "alter", "--config", "retention.ms=1"],
        ["topic", "alter", "--partitions", "9"],
        ["consume"],
    ],
    ids=" ".join,
)
def test_a_topic_that_does_not_exist_is_named(cli: Cli, new_topic: NewTopic, arguments: list[str]) -> None:
    name = new_topic()
    assert name in cli.fails(*arguments, name)
    assert name not in {row["topic"] for row in cli.json("topic", "list")}


def test_lines_of_standard_input_come_out_as_they_went_in(cli: Cli, topic: str) -> None:
    text = b"one\n\ntwo with \xff bytes\nlast without newline"
    assert cli.json("produce", topic, stdin=text)["produced"] == 4
    assert cli.ok("consume", topic) == text + b"\n"


@pytest.mark.parametrize(
    ("codec", "acks"),
    [("none", "all"), ("gzip", "all"), ("snappy", "all"), ("lz4", "1"), ("zstd", "0")],
)
def test_every_codec_and_acks_level_delivers(cli: Cli, topic: str, codec: str, acks: str) -> None:
    lines = b"".join(b"message number %d\n" % number for number in range(200))
    cli.ok("produce", topic, "--compression", codec, "--acks", acks, stdin=lines)
    received = b""
    deadline = time.monotonic() + 90  # acks=0 may return before the node has the data
    while received.count(b"\n") < 200 and time.monotonic() < deadline:
        received = cli.ok("consume", topic)
    assert received == lines


def test_keys_headers_and_format(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-K", ":", "-m", "k1:v1", "-m", "no key", "-H", "a=1", "-H", "b=x=y")
    text = cli.ok("consume", topic, "--format", "%t/%p/%o %k=%s [%K,%S] %h\\n").decode()
    assert text == f"{topic}/0/0 k1=v1 [2,2] a=1,b=x=y\n{topic}/0/1 =no key [-1,6] a=1,b=x=y\n"


def test_keys_go_where_other_clients_put_them(cli: Cli, new_topic: NewTopic) -> None:
    name = new_topic()
    cli.ok("topic", "create", name, "--partitions", "5")
    keys = [f"key-{number}" for number in range(20)]
    cli.ok("produce", name, "-K", ":", stdin="".join(f"{key}:v\n" for key in keys).encode())
    rows = cli.json_lines("consume", name)
    assert {row["key"]: row["partition"] for row in rows} == {
        key: partition_of(key.encode(), 5) for key in keys
    }


def test_a_dump_in_json_can_be_produced_again(
    cli: Cli, topic: str, new_topic: NewTopic, broker: NodeProcess
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, key=b"\xfe", value=None, headers=[("h", b"\xff"), ("h", None)], timestamp=1234)
    producer.produce(topic, key=None, value=b"text")
    assert producer.flush(90) == 0
    dump = cli.ok("consume", topic, "--json")
    copy = new_topic()
    cli.ok("topic", "create", copy, "--partitions", "1")
    cli.ok("produce", copy, "--json-lines", stdin=dump)
    assert cli.ok("consume", copy, "--json") == dump.replace(topic.encode(), copy.encode())


def test_consume_starts_where_told(cli: Cli, topic: str) -> None:
    lines = [json.dumps({"value": str(number), "timestamp": 1000 * (number + 1)}) for number in range(5)]
    cli.ok("produce", topic, "--json-lines", stdin="\n".join(lines).encode())
    assert cli.ok("consume", topic, "--from", "beginning").split() == [b"0", b"1", b"2", b"3", b"4"]
    assert cli.ok("consume", topic, "--from", "3").split() == [b"3", b"4"]
    assert cli.ok("consume", topic, "--from", "-2").split() == [b"3", b"4"]
    assert cli.ok("consume", topic, "--from", "@2500").split() == [b"2", b"3", b"4"]
    assert cli.ok("consume", topic, "--from", "1970-01-01T00:00:04Z").split() == [b"3", b"4"]
    assert cli.ok("consume", topic, "--from", "@99999").split() == []
    assert cli.ok("consume", topic, "--count", "2").split() == [b"0", b"1"]


def test_only_the_wanted_partition_is_read(cli: Cli, new_topic: NewTopic) -> None:
    name = new_topic()
    cli.ok("topic", "create", name, "--partitions", "3")
    for partition in range(3):
        cli.ok("produce", name, "--partition", str(partition), "-m", f"in {partition}")
    assert cli.ok("consume", name, "--partition", "1") == b"in 1\n"
    assert len(cli.json_lines("consume", name)) == 3
    assert "no partition 7" in cli.fails("consume", name, "--partition", "7")


def test_produce_tells_partition_and_offset(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "--partition", "0", stdin=b"a\nb\n")
    told = cli.json("produce", topic, "--partition", "0", stdin=b"c\nd\ne\n")
    assert told["stored"] == [{"partition": 0, "first_offset": 2, "last_offset": 4}]
    unknown = cli.json("produce", topic, "--partition", "0", "--acks", "0", "-m", "f")
    assert unknown["stored"] == [{"partition": 0, "first_offset": -1, "last_offset": -1}]


def test_consume_reads_several_topics_and_patterns(cli: Cli, topic: str) -> None:
    names = [f"{topic}-{each}" for each in ("one", "two", "three")]
    for name in names:
        cli.ok("produce", name, "-m", name)
    assert sorted(cli.ok("consume", *names[:2]).split()) == sorted(each.encode() for each in names[:2])
    found = cli.ok("consume", f"^{topic}-t.*").split()
    assert sorted(found) == sorted(each.encode() for each in names[1:])
    assert "no topic" in cli.fails("consume", "^nothing-of-this-name$")
    assert cli.run("consume", "^(").returncode == 2
    assert cli.run("consume", *names, "--partition", "0").returncode == 2


def test_a_group_goes_on_where_it_is_and_commits_what_is_printed(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "--partition", "0", stdin=b"0\n1\n2\n3\n4\n")
    assert cli.ok("consume", topic, "--group", topic, "--count", "2").split() == [b"0", b"1"]
    (position,) = cli.json("group", "describe", topic)["partitions"]
    assert (position["committed_offset"], position["lag"]) == (2, 3)
    assert cli.ok("consume", f"^{topic}$", "--group", topic).split() == [b"2", b"3", b"4"]
    assert cli.ok("consume", topic, "--group", topic) == b""
    assert cli.run("consume", topic, "--group", topic, "--from", "3").returncode == 2
    assert "UNKNOWN_TOPIC" in cli.fails("consume", "no-such-topic", "--group", topic)


def test_the_oldest_messages_are_trimmed(cli: Cli, topic: str) -> None:
    lines = b"".join(b'{"value": "%d", "partition": 0, "timestamp": %d}\n' % (n, n * 1000) for n in range(6))
    cli.ok("produce", topic, "--json-lines", stdin=lines)
    place = f"{topic}:0"
    shown = cli.json("topic", "trim", place, "--before-offset", "2", "--dry-run")
    assert [each["messages"] for each in shown["partitions"]] == [2]
    assert len(cli.ok("consume", topic).split()) == 6, "nothing was deleted"
    cli.ok("topic", "trim", place, "--before-offset", "2")
    assert cli.ok("consume", topic).split() == [b"2", b"3", b"4", b"5"]
    cli.ok("topic", "trim", place, "--before-time", "@4000")
    assert cli.ok("consume", topic).split() == [b"4", b"5"]
    cli.ok("topic", "trim", place, "--before-offset", "1")
    cli.ok("topic", "trim", topic, "--everything")
    assert cli.ok("consume", topic) == b""
    assert cli.run("topic", "trim", topic).returncode == 2
    assert "has no partition 9" in cli.fails("topic", "trim", f"{topic}:9", "--everything")


def test_settings_and_directories_of_brokers(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-m", "x")
    (directory,) = cli.json("broker", "log-dirs")
    node = str(directory["broker"])
    assert directory["topics"][topic] > 0
    assert directory["bytes"] >= directory["topics"][topic]
    assert topic in cli.ok("broker", "log-dirs", node, "--topics").decode()
    every = cli.json("broker", "config", node, "--every")
    assert every["log.retention.ms"]["source"] in ("default", "static")
    cli.ok("broker", "config", "all", "--set", "log.retention.ms=86400001")
    assert cli.json("broker", "config", "all")["log.retention.ms"] == {
        "value": "86400001",
        "source": "cluster",
    }
    cli.ok("broker", "config", "all", "--delete", "log.retention.ms")
    assert "log.retention.ms" not in cli.json("broker", "config", "all")
    assert "INVALID" in cli.fails("broker", "config", node, "--set", "log.retention.ms=soon")
    assert cli.run("broker", "config", "one").returncode == 2


def test_all_replicas_of_a_single_node_are_in_sync(cli: Cli, topic: str) -> None:
    assert cli.json("topic", "list", "--under-replicated") == []


def test_the_offsets_of_a_topic_are_forgotten(cli: Cli, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        cli.ok("produce", name, "-m", "x")
    cli.ok("consume", topic, other, "--group", topic)
    cli.ok("group", "delete-offsets", topic, "--topic", other)
    assert {each["topic"] for each in cli.json("group", "describe", topic)["partitions"]} == {topic}
    assert "has committed nothing there" in cli.fails("group", "delete-offsets", topic, "--topic", other)
    assert "there is no group" in cli.fails("group", "delete-offsets", "nosuch", "--topic", topic)


def test_a_cluster_is_exported(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli.ok("topic", "alter", topic, "--config", "retention.ms=1234567")
    cli.ok("produce", topic, "--partition", "0", "-m", "x")
    cli.ok("cluster", "export", str(tmp_path / "out"))
    brokers = json.loads((tmp_path / "out" / "brokers.json").read_text())
    assert [each["id"] for each in brokers["brokers"]] == [brokers["controller"]]
    topics = {
        each["name"]: each for each in json.loads((tmp_path / "out" / "topics.json").read_text())["topics"]
    }
    assert topics[topic]["configs"] == {"retention.ms": "1234567"}
    assert topics[topic]["partitions"][0]["high_watermark"] == 1


def test_the_metadata_log_is_shown(cli: Cli, broker: NodeProcess, topic: str) -> None:
    log = broker.data_dir / "__cluster_metadata"
    rows = cli.json_lines("log", "dump", str(log))
    assert any(row["record"] == "TopicCreated" and row["fields"]["name"] == topic for row in rows)
    (newest,) = sorted(log.glob("*.wal"))[-1:]
    assert f"name={topic}" in cli.ok("log", "dump", str(newest)).decode()
    assert "no such file" in cli.fails("log", "dump", str(log / "nothing.wal"))


def test_properties_reach_the_client(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-X", "linger.ms=1", "-m", "x")
    wrong = cli.run("produce", topic, "-X", "no.such.property=1", "-m", "x")
    assert (wrong.returncode, b"no.such.property" in wrong.stderr) == (2, True)
    secured = cli.run("topic", "list", "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
    assert (secured.returncode, b"sasl.username" in secured.stderr) == (2, True)


def test_consume_of_an_empty_topic_ends_at_once(cli: Cli, topic: str) -> None:
    assert cli.ok("consume", topic) == b""


def test_following_prints_what_arrives_and_ends_when_idle(cli: Cli, topic: str, broker: NodeProcess) -> None:
    # Connected before there is a limit: what is idle for five seconds ends.
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"first")
    assert producer.flush(90) == 0
    reader = cli.start("consume", topic, "--follow", "--timeout", "5")
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"first\n"
    producer.produce(topic, b"later")
    assert producer.flush(90) == 0
    out, error = reader.communicate(timeout=180)
    assert (reader.returncode, out, error) == (0, b"later\n", b"")


def test_an_interrupted_reader_exits_with_130_and_no_traceback(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-m", "first")
    reader = cli.start("consume", topic, "--follow")
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"first\n"
    reader.send_signal(signal.SIGINT)
    _, error = reader.communicate(timeout=180)
    assert (reader.returncode, error) == (130, b"")


def test_a_closed_pipe_ends_the_reader_without_an_error(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, stdin=b"some text\n" * 20_000)
    reader = cli.start("consume", topic)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"some text\n"
    reader.stdout.close()
    assert reader.stderr is not None
    assert reader.stderr.read() == b""
    reader.stderr.close()
    assert reader.wait(90) == 0


def test_a_message_over_the_limit_fails_with_a_count(cli: Cli, topic: str) -> None:
    cli.ok("topic", "alter", topic, "--config", "max.message.bytes=1000")
    result = cli.run("produce", topic, "--json", stdin=b"small\n" + b"x" * 2000 + b"\n")
    assert result.returncode == 1
    assert b"1 of 2 messages" in result.stderr or b"2 of 2 messages" in result.stderr
    assert json.loads(result.stdout)["failed"] >= 1


def test_a_line_that_is_no_json_stops_with_its_number(cli: Cli, topic: str) -> None:
    error = cli.fails("produce", topic, "--json-lines", stdin=b'{"value": "good"}\nbad\n')
    assert "line 2" in error
    assert cli.ok("consume", topic) == b"good\n"


def test_a_rate_limit_spreads_messages(cli: Cli, topic: str) -> None:
    result = cli.json("produce", topic, "--rate", "20", stdin=b"x\n" * 10)
    assert result["produced"] == 10
    assert result["seconds"] >= 0.45


def test_log_dump_shows_batches_and_records(cli: Cli, topic: str, broker: NodeProcess) -> None:
    cli.ok("produce", topic, "-K", ":", "-m", "key:value", "-H", "h=1")
    directory = broker.data_dir / "topics" / topic / "partition-0"
    log_file = str(directory / "00000000000000000000.log")
    batch, record = cli.json_lines("log", "dump", log_file, "--records")
    assert (batch["kind"], batch["base_offset"], batch["record_count"]) == ("batch", 0, 1)
    assert (record["key"], record["value"], record["headers"]) == ("key", "value", [["h", "1"]])
    assert b"base_offset" in cli.ok("log", "dump", log_file)
    assert cli.run("log", "dump", str(directory)).returncode == 2
    assert "no such file" in cli.fails("log", "dump", str(directory / "missing.log"))


def test_log_dump_of_a_damaged_file_shows_what_is_before_the_damage(
    cli: Cli, topic: str, broker: NodeProcess, tmp_path: Any
) -> None:
    cli.ok("produce", topic, "-m", "good")
    cli.ok("produce", topic, "-m", "bad")
    data = bytearray((broker.data_dir / "topics" / topic / "partition-0" / f"{0:020}.log").read_bytes())
    data[data.index(b"bad")] ^= 1
    damaged = tmp_path / f"{0:020}.log"
    damaged.write_bytes(data)
    result = cli.run("log", "dump", str(damaged), "--json")
    assert result.returncode == 1
    assert [json.loads(line)["kind"] for line in result.stdout.splitlines()] == ["batch", "corruption"]
    assert b"is damaged at byte" in result.stderr


def test_pipeline_run_does_not_create_the_topic_that_it_reads(cli: Cli, topic: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the `pipeline` extra is not installed")

    said = cli.fails("pipeline", "run", "--once", "--topic", f"{topic}-nosuch", "--data", str(tmp_path))

    assert f"there is no topic {topic}-nosuch" in said
    assert f"{topic}-nosuch" not in {row["topic"] for row in cli.json("topic", "list")}


def test_the_first_start_on_an_empty_directory_is_no_crash(start_node: Callable[..., NodeProcess]) -> None:
    log = start_node().log_file.read_text()
    assert '"ready"' in log
    assert '"clean":false' not in log.replace(" ", "")
