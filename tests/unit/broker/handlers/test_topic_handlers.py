"""Topics made, deleted, grown and described by clients: answers are as Kafka's."""

import io
import uuid
from dataclasses import replace
from pathlib import Path

from kio.schema.create_partitions.v3 import request as create_partitions_v3
from kio.schema.delete_topics.v4 import request as delete_topics_v4
from kio.schema.delete_topics.v6 import request as delete_topics_v6
from kio.schema.describe_topic_partitions.v0 import request as describe_partitions_v0
from kio.serial import entity_writer

from millstream.config.settings import ClusterSettings, Settings
from millstream.protocol.codec import decode_request
from millstream.protocol.errors import ErrorCode
from support.admin_handlers import API_BY_NAME, PATIENCE, create_request, in_loop, new_topic, running


@in_loop
async def test_create_topics_answers_with_partitions_and_configs(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.call("create_topics", create_request(new_topic("a", 3, retention_ms="5")))
        (topic,) = response.topics
        assert (topic.error_code, topic.error_message) == (ErrorCode.NONE, None)
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert topic.topic_id == broker.metadata.image.topics["a"].topic_id
        configs = {config.name: config for config in topic.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)


@in_loop
async def test_a_refused_topic_still_has_an_array_of_configs(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.call("create_topics", create_request(new_topic("..")))
        (topic,) = response.topics
        assert topic.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert topic.error_message
        assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, ())


@in_loop
async def test_create_topics_takes_the_nodes_defaults(tmp_path: Path) -> None:
    settings = Settings()
    settings = replace(settings, broker=replace(settings.broker, default_partitions=4))
    async with running(tmp_path, new_topic("a", -1), settings=settings) as broker:
        assert len(broker.metadata.image.topics["a"].partitions) == 4


@in_loop
async def test_the_partition_limits_are_settings(tmp_path: Path) -> None:
    settings = replace(Settings(), cluster=ClusterSettings(max_partitions=5, max_partitions_per_request=4))
    async with running(tmp_path, settings=settings) as broker:
        for partitions, code in ((5, 44), (4, 0), (2, 44), (1, 0)):
            response = await broker.call(
                "create_topics", create_request(new_topic(f"t{partitions}", partitions))
            )
            assert response.topics[0].error_code == code


@in_loop
async def test_validating_creates_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        response = await broker.call("create_topics", create_request(new_topic("a"), validate_only=True))
        assert response.topics[0].error_code is ErrorCode.NONE
        assert broker.metadata.image.topics == {}


@in_loop
async def test_after_shutdown_every_topic_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.metadata.close()
        response = await broker.call("create_topics", create_request(new_topic("a"), new_topic("b")))
        assert [topic.error_code for topic in response.topics] == [ErrorCode.BROKER_NOT_AVAILABLE] * 2


@in_loop
async def test_delete_topics_by_name_and_by_id(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a"), new_topic("b")) as broker:
        topic_id = broker.metadata.image.topics["b"].topic_id
        state = delete_topics_v6.DeleteTopicState
        request = delete_topics_v6.DeleteTopicsRequest(
            topics=(
                state(name="a", topic_id=None),
                state(name=None, topic_id=topic_id),
                state(name="nope", topic_id=uuid.UUID(int=0)),
            ),
            timeout=PATIENCE,
        )
        response = await broker.call("delete_topics", request)
        assert [(each.name, each.error_code) for each in response.responses] == [
            ("a", ErrorCode.NONE),
            ("b", ErrorCode.NONE),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert broker.metadata.image.topics == {}


@in_loop
async def test_delete_topics_of_an_old_client_keeps_its_names(tmp_path: Path) -> None:
    old = delete_topics_v4.DeleteTopicsRequest(topic_names=("a",), timeout=PATIENCE)
    body = io.BytesIO()
    entity_writer(type(old))(body, old)
    request = decode_request(API_BY_NAME["delete_topics"], 4, memoryview(body.getvalue()))
    async with running(tmp_path, new_topic("a")) as broker:
        response = await broker.call("delete_topics", request, version=4)
        assert [(each.name, each.error_code) for each in response.responses] == [("a", ErrorCode.NONE)]


@in_loop
async def test_create_partitions_with_and_without_assignments(tmp_path: Path) -> None:
    topic, assignment = (
        create_partitions_v3.CreatePartitionsTopic,
        create_partitions_v3.CreatePartitionsAssignment,
    )
    async with running(tmp_path, new_topic("a"), new_topic("b"), new_topic("c")) as broker:
        request = create_partitions_v3.CreatePartitionsRequest(
            topics=(
                topic(name="a", count=2, assignments=None),
                topic(name="b", count=2, assignments=(assignment(broker_ids=(1,)),)),
                topic(name="c", count=1, assignments=()),
            ),
            timeout=PATIENCE,
            validate_only=False,
        )
        response = await broker.call("create_partitions", request)
        assert [each.error_code for each in response.results] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.INVALID_PARTITIONS,
        ]
        assert broker.metadata.image.partition_count == 5


@in_loop
async def test_topics_that_grow_by_much_grow_one_after_the_other(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(4)]
    topics = (
        create_partitions_v3.CreatePartitionsTopic(name=name, count=201, assignments=None)
        for name in (*names, "none")
    )
    request = create_partitions_v3.CreatePartitionsRequest(
        topics=tuple(topics), timeout=PATIENCE, validate_only=False
    )
    async with running(tmp_path, *map(new_topic, names)) as broker:
        changes: list[int] = []
        broker.metadata.subscribe(lambda _old, _new, records: changes.append(len(records)))
        response = await broker.call("create_partitions", request)
        assert [each.error_code for each in response.results] == [0] * 4 + [3]
        assert changes == [200] * 4


@in_loop
async def test_topics_of_many_partitions_are_deleted_one_after_the_other(tmp_path: Path) -> None:
    async with running(tmp_path, *(new_topic(f"t{number}", 200) for number in range(4))) as broker:
        changes: list[int] = []
        broker.metadata.subscribe(lambda _old, _new, records: changes.append(len(records)))
        third = broker.metadata.image.topics["t3"].topic_id
        topics = [(name, uuid.UUID(int=0)) for name in ("t0", "none", "t1", "t2")]
        request = delete_topics_v6.DeleteTopicsRequest(
            topics=tuple(
                delete_topics_v6.DeleteTopicState(name=name, topic_id=topic_id)
                for name, topic_id in (*topics, (None, third))
            ),
            timeout=PATIENCE,
        )
        response = await broker.call("delete_topics", request)
        assert [each.error_code for each in response.responses] == [0, 3, 0, 0, 0]
        assert changes == [1] * 4
        assert not broker.metadata.image.topics


@in_loop
async def test_a_topic_gets_only_so_many_partitions_at_once(tmp_path: Path) -> None:
    settings = replace(Settings(), cluster=ClusterSettings(max_partitions_at_once=4))
    async with running(tmp_path, settings=settings) as broker:
        response = await broker.call(
            "create_topics", create_request(new_topic("a", 4), new_topic("b", 5), new_topic("c", 4))
        )
        assert [each.error_code for each in response.topics] == [0, ErrorCode.POLICY_VIOLATION, 0]
        assert "cluster.max_partitions_at_once" in response.topics[1].error_message
        for count, code in ((9, ErrorCode.POLICY_VIOLATION), (8, 0), (12, 0)):
            topic = create_partitions_v3.CreatePartitionsTopic(name="a", count=count, assignments=None)
            request = create_partitions_v3.CreatePartitionsRequest(
                topics=(topic,), timeout=PATIENCE, validate_only=False
            )
            response = await broker.call("create_partitions", request)
            assert response.results[0].error_code == code
        assert len(broker.metadata.image.topics["a"].partitions) == 12


@in_loop
async def test_pages_of_partitions_cover_everything_once(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("b", 5), new_topic("a", 2), new_topic("c", 1)) as broker:
        for limit in range(1, 9):
            seen: list[tuple[str, int]] = []
            cursor = None
            for _ in range(10):
                request = describe_partitions_v0.DescribeTopicPartitionsRequest(
                    topics=(), response_partition_limit=limit, cursor=cursor
                )
                response = await broker.call("describe_topic_partitions", request)
                page = [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
                assert len(page) <= limit
                seen += page
                if response.next_cursor is None:
                    break
                cursor = describe_partitions_v0.Cursor(
                    topic_name=response.next_cursor.topic_name,
                    partition_index=response.next_cursor.partition_index,
                )
            assert seen == [("a", 0), ("a", 1), *(("b", index) for index in range(5)), ("c", 0)]


@in_loop
async def test_describe_topic_partitions_never_sends_null_where_java_throws(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a")) as broker:
        topics = tuple(describe_partitions_v0.TopicRequest(name=name) for name in ("a", "nope", "b d"))
        request = describe_partitions_v0.DescribeTopicPartitionsRequest(topics=topics)
        response = await broker.call("describe_topic_partitions", request)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", ErrorCode.NONE),
            ("b d", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        (partition,) = response.topics[0].partitions
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, (1,), (1,))
        bad_cursor = describe_partitions_v0.Cursor(topic_name="a", partition_index=-1)
        response = await broker.call("describe_topic_partitions", replace(request, cursor=bad_cursor))
        assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_REQUEST}


@in_loop
async def test_many_topics_of_one_request_are_created_in_slices(tmp_path: Path) -> None:
    topics = [new_topic(f"t{number}", 40) for number in range(40)]
    async with running(tmp_path) as broker:
        changes: list[int] = []
        broker.metadata.subscribe(lambda _old, _new, records: changes.append(len(records)))
        response = await broker.call("create_topics", create_request(*topics, new_topic("..")))
        assert [topic.error_code for topic in response.topics] == [0] * 40 + [17]
        assert [topic.name for topic in response.topics[:3]] == ["t0", "t1", "t2"]
        assert len(changes) > 2
        assert broker.metadata.image.partition_count == 1600


@in_loop
async def test_the_limit_of_a_request_holds_over_all_its_slices(tmp_path: Path) -> None:
    settings = replace(Settings(), cluster=ClusterSettings(max_partitions_per_request=1000))
    topics = [new_topic(f"t{number}", 400) for number in range(3)]
    async with running(tmp_path, settings=settings) as broker:
        response = await broker.call("create_topics", create_request(*topics))
        assert [topic.error_code for topic in response.topics] == [0, 0, ErrorCode.POLICY_VIOLATION]
