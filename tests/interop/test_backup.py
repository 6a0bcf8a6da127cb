"""`millstream backup` on a running node: all messages come back at their offsets with the same bytes."""

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from millstream.cli.main import main
from support.backups import Backups, log_bytes
from support.clients.kinds import Clients
from support.clients.message import Message
from support.node import NodeProcess
from support.topics import admin_for, create_topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TOPIC = ConfigResource.Type.TOPIC


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    return start_node(settings={"storage.retention_check_interval": "30d"})


@pytest.fixture
def clients(node: NodeProcess) -> Iterator[Clients]:
    with Clients(node.bootstrap) as made:
        yield made


@pytest.fixture
def backups(node: NodeProcess, tmp_path: Path) -> Backups:
    return Backups(node, tmp_path / "backups")


def messages_of(codec: str, count: int = 8) -> list[Message]:
    return [
        Message(
            f"{codec} {number} ".encode() * 30,
            b"key %d" % number,
            (("codec", codec.encode()), ("empty", b"")),
        )
        for number in range(count)
    ]


def write_all_codecs(clients: Clients, topic: str, partition: int = 0) -> None:
    for codec in CODECS:
        for writer in (clients.confluent, clients.kafka_python, clients.aiokafka):
            writer.write(topic, messages_of(codec), codec=codec, partition=partition)


def commit(admin: AdminClient, group: str, topic: str, offset: int) -> None:
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
    admin.alter_consumer_group_offsets([request])[group].result(90)


def committed(admin: AdminClient, group: str, topic: str) -> int:
    request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    (found,) = admin.list_consumer_group_offsets([request])[group].result(90).topic_partitions
    return int(found.offset)


def set_of(admin: AdminClient, topic: str) -> dict[str, str]:
    found = admin.describe_configs([ConfigResource(TOPIC, topic)])
    (described,) = [future.result(90) for future in found.values()]
    return {name: entry.value for name, entry in described.items() if not entry.is_default}


def id_of(admin: AdminClient, topic: str) -> str:
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(90).topic_id)


def test_everything_comes_back_as_it_was(
    node: NodeProcess, clients: Clients, backups: Backups, tmp_path: Path
) -> None:
    admin = admin_for(node.bootstrap)
    create_topic(admin, "plain", 3, {"segment.bytes": 100_000})
    create_topic(admin, "appended", 1, {"message.timestamp.type": "LogAppendTime", "retention.ms": -1})
    create_topic(admin, "compacted", 1, {"cleanup.policy": "compact"})
    create_topic(admin, "cut", 1)
    for partition in range(3):
        write_all_codecs(clients, "plain", partition)
    for topic in ("appended", "compacted", "cut"):
        write_all_codecs(clients, topic)
    admin.delete_records([TopicPartition("cut", 0, 21)])[TopicPartition("cut", 0)].result(90)
    commit(admin, "group", "plain", 17)

    first = backups.create()
    assert first["copied_bytes"] == first["bytes"] > 0
    files = backups.files()
    write_all_codecs(clients, "plain")
    commit(admin, "group", "plain", 33)
    second = backups.create()
    assert {path: backups.files()[path] for path in files} == files, "what was copied is never touched again"
    new = sum(map(len, backups.files().values())) - sum(map(len, files.values()))
    assert second["copied_bytes"] == new < second["bytes"] - new
    third = backups.create()
    assert third["copied_bytes"] == 0, "nothing was written since"
    assert all(each["verified"] for each in backups.list("--verify"))

    places = [("plain", 0), ("plain", 1), ("plain", 2), ("appended", 0), ("compacted", 0), ("cut", 0)]
    before = {place: log_bytes(node, *place) for place in places}
    messages = {place: clients.confluent.read(place[0], partition=place[1]) for place in places}
    settings = {topic: set_of(admin, topic) for topic, _ in places}
    ids = {topic: id_of(admin, topic) for topic, _ in places}
    node.kill()
    shutil.rmtree(node.data_dir)

    restored, summary = backups.restore(tmp_path / "restored")
    assert summary["backups"] == [third["backup"]]
    try:
        restored.start()
        admin = admin_for(restored.bootstrap)
        with Clients(restored.bootstrap) as after:
            for place in places:
                # Of what lies below a log's start only the batch that reaches into it is left.
                whole, found = before[place], log_bytes(restored, *place)
                assert whole.endswith(found) if place[0] == "cut" else whole == found
            for reader in (after.confluent, after.kafka_python, after.aiokafka):
                for topic, partition in places:
                    found = reader.read(topic, partition=partition)
                    expected = messages[topic, partition]
                    assert [(each.offset, each.content) for each in found] == [
                        (each.offset, each.content) for each in expected
                    ]
            assert next(each.offset for each in after.confluent.read("cut")) == 21
            assert {topic: set_of(admin, topic) for topic, _ in places} == settings
            assert {topic: id_of(admin, topic) for topic, _ in places} == ids
            assert committed(admin, "group", "plain") == 33
            # It goes on from here, by every kind of producer, at the next offset.
            end = messages["plain", 0][-1].offset + 1
            assert after.kafka_python.write("plain", [Message(b"idempotent")]) == [end]
            assert after.confluent.write("plain", [Message(b"next")]) == [end + 1]
        again = Backups(restored, backups.folder).create()
        assert 0 < again["copied_bytes"] < 1000, "a restored cluster goes on with the backups it came from"
        restored.stop()
    finally:
        restored.close()
    node.data_dir.mkdir()
    node.start()


def test_a_backup_is_restored_to_a_point_in_time(
    node: NodeProcess, clients: Clients, backups: Backups, tmp_path: Path
) -> None:
    admin = admin_for(node.bootstrap)
    create_topic(admin, "appended", 1, {"message.timestamp.type": "LogAppendTime"})
    create_topic(admin, "created", 1, {"message.timestamp.after.max.ms": 2**62})
    for number in range(10):
        for topic in ("appended", "created"):
            clients.aiokafka.write(topic, [Message(b"%d" % number)])
        time.sleep(0.01)
    # From a clock that is far ahead: it was stored before the first backup, so it was stored before any later moment.
    clients.aiokafka.write(
        "created", [Message(b"from tomorrow", timestamp_ms=int(time.time() * 1000) + 80_000_000)]
    )
    commit(admin, "group", "appended", 4)
    backups.create()
    for number in range(10, 20):
        for topic in ("appended", "created"):
            clients.aiokafka.write(topic, [Message(b"%d" % number)])
        if number == 14:
            time.sleep(0.05)
            moment = int(time.time() * 1000)
            time.sleep(0.05)
    commit(admin, "group", "appended", 19)
    newest = backups.create()
    stored = clients.confluent.read("appended")
    created = clients.confluent.read("created")
    early = stored[6].timestamp_ms

    def restored_to(name: str, until_ms: int) -> tuple[dict[str, list[bytes | None]], int]:
        restored, _ = backups.restore(tmp_path / name, "--until", f"@{until_ms}")
        try:
            restored.start()
            with Clients(restored.bootstrap) as after:
                topics = {topic: after.confluent.read(topic) for topic in ("appended", "created")}
                assert [each.offset for each in topics["created"]] == list(range(len(topics["created"])))
                values = {topic: [each.value for each in found] for topic, found in topics.items()}
                position = committed(admin_for(restored.bootstrap), "group", "appended")
            restored.stop()
        finally:
            restored.close()
        return values, position

    values, position = restored_to("between", moment)
    assert values["appended"] == [b"%d" % number for number in range(15)]
    assert values["created"] == [each.value for each in created[:16]]
    assert position == 4, "the later position was committed after that moment"

    values, position = restored_to("early", early)
    assert values["appended"] == [each.value for each in stored if each.timestamp_ms <= early]
    assert b"from tomorrow" not in values["created"]

    values, position = restored_to("late", newest["made_ms"])
    assert values["appended"] == [each.value for each in stored]
    assert values["created"] == [each.value for each in created]
    assert position == 19


def test_what_compaction_removed_does_not_come_back(
    start_node: Callable[..., NodeProcess], tmp_path: Path
) -> None:
    settings = {"storage.checkpoint_interval": "200ms", "kafka.log.cleaner.backoff.ms": "100"}
    node = start_node(settings=settings)
    backups = Backups(node, tmp_path / "backups")
    admin = admin_for(node.bootstrap)
    topic = create_topic(
        admin,
        "compacted",
        1,
        {
            "cleanup.policy": "compact",
            "segment.bytes": 2000,
            "delete.retention.ms": 0,
            "min.cleanable.dirty.ratio": 0.01,
        },
    )
    with Clients(node.bootstrap) as clients:
        for number in range(10):
            clients.aiokafka.write(topic, [Message(b"v" * 300, b"key %d" % number)])
        backups.create()
        clients.aiokafka.write(topic, [Message(None, b"key 3")])
        deadline = time.monotonic() + 120
        while {b"key 3"} & {each.key for each in clients.confluent.read(topic)}:
            assert time.monotonic() < deadline, "the cleaner did not come"
            clients.aiokafka.write(topic, [Message(b"v" * 700, b"filler")])
            time.sleep(0.3)
        backups.create()
        latest = {each.key: (each.offset, each.value) for each in clients.confluent.read(topic)}
    # The cleaner goes on, so that the bytes of the two may differ by now; the latest value of a key may not.
    restored, _ = backups.restore(tmp_path / "restored")
    try:
        restored.start()
        with Clients(restored.bootstrap) as clients:
            found = {each.key: (each.offset, each.value) for each in clients.confluent.read(topic)}
        restored.stop()
    finally:
        restored.close()
    assert found == latest
    assert len(latest) == 10, "nine keys and the filler"


def test_a_backup_of_some_topics_and_of_some_partitions(
    node: NodeProcess, clients: Clients, backups: Backups, tmp_path: Path
) -> None:
    admin = admin_for(node.bootstrap)
    for topic in ("one", "two"):
        create_topic(admin, topic, 2)
        for partition in range(2):
            clients.confluent.write(topic, [Message(b"m")] * 3, partition=partition)
    made = backups.create("--topic", "one", "--topic", "two:1")
    assert [(each["topic"], [p["partition"] for p in each["partitions"]]) for each in made["topics"]] == [
        ("one", [0, 1]),
        ("two", [1]),
    ]
    restored, summary = backups.restore(tmp_path / "restored", "--topic", "two", "--node-id", "7")
    assert (summary["topics"], summary["partitions"], summary["messages"]) == (1, 2, 3)
    restored.arguments = ["--node-id", "7"]
    try:
        restored.start()
        with Clients(restored.bootstrap) as after:
            assert [len(after.confluent.read("two", partition=partition)) for partition in (0, 1)] == [0, 3]
        restored.stop()
    finally:
        restored.close()


def test_what_is_wrong_is_said(
    node: NodeProcess, clients: Clients, backups: Backups, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = backups.folder
    numbers = itertools.count(1)

    def error(exit_code: int, *arguments: str) -> str:
        """In this process, because there are many of them."""
        capfd.readouterr()
        assert main(["backup", *arguments]) == exit_code
        said = capfd.readouterr().err
        assert said.startswith("error: ")
        return said

    def restoring(*arguments: str, data: Path | None = None, exit_code: int = 1) -> str:
        target = data or tmp_path / f"new-{next(numbers)}"
        said = error(exit_code, "restore", str(folder), "--data", str(target), *arguments)
        assert data or not list(target.glob("[!.]*")), "a restore that fails leaves nothing behind"
        return said

    def creating(*arguments: str, exit_code: int = 1) -> str:
        return error(exit_code, "create", "--bootstrap", node.bootstrap, *arguments)

    clients.confluent.write("topic", messages_of("none"))
    assert "holds no backups" in error(1, "list", str(tmp_path))
    assert "not empty and holds no backups" in creating(str(tmp_path))
    assert "no topic 'other'" in creating(str(folder), "--topic", "other")
    backups.create()
    used = tmp_path / "used"
    used.mkdir()
    (used / "file").touch()
    assert "is not empty" in restoring(data=used)
    assert "is not empty" in restoring(data=node.data_dir)
    assert "no backup '1999'" in restoring("--backup", "1999")
    assert "is not a time" in restoring("--until", "yesterday", exit_code=2)
    assert "no message of the backup is as old as that" in restoring("--until", "@1")
    assert "leave out --backup" in restoring("--until", "@1", "--backup", "x", exit_code=2)
    assert "cannot reach" in error(3, "create", str(folder), "--bootstrap", "127.0.0.1:1")

    (path,) = backups.files()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert str(path) in error(1, "list", str(folder), "--verify")
    (listed,) = backups.list()
    assert listed["verified"] is None
    assert str(path) in restoring()
    path.unlink()
    assert "is missing" in restoring()
    (manifest,) = folder.glob("backups/*.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"topic"', b'"tonic"'))
    assert str(manifest) in restoring()
    assert str(manifest) in error(1, "list", str(folder))
