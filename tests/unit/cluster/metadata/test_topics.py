"""Creating and deleting topics and adding partitions, as decisions on an image."""

import itertools
import uuid

import pytest

from millstream.cluster.metadata.brokers import RegisterBroker
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.partitions import CreatePartitions, PartitionIncrease
from millstream.cluster.metadata.topics import CreatedTopic, CreateTopics, DeleteTopics, NewTopic, TopicRef
from millstream.protocol.errors import ErrorCode

_numbers = itertools.count(1)


def new_id() -> uuid.UUID:
    return uuid.UUID(int=next(_numbers))


def cluster(brokers: int = 1) -> MetadataImage:
    image = MetadataImage()
    for broker_id in range(1, brokers + 1):
        image = image.apply(RegisterBroker(broker_id, ()).decide(image, new_id).records)
    return image


def applied(image: MetadataImage, command: Command[object]) -> MetadataImage:
    return image.apply(command.decide(image, new_id).records)


def create(image: MetadataImage, *topics: NewTopic, **options: object) -> tuple[CreatedTopic, ...]:
    return CreateTopics(topics, **options).decide(image, new_id).result  # type: ignore[arg-type]


def refusal(image: MetadataImage, topic: NewTopic, **options: object) -> tuple[ErrorCode, str]:
    command = CreateTopics((topic,), **options)  # type: ignore[arg-type]
    decision = command.decide(image, new_id)
    assert decision.records == ()
    error = decision.result[0].error
    assert error is not None
    return error.code, error.message


def test_a_topic_gets_the_default_partitions_and_replication_factor() -> None:
    image = cluster()
    command = CreateTopics((NewTopic("orders"),), defaults=Defaults(partitions=3))
    (created,) = command.decide(image, new_id).result
    assert (created.error, created.partitions, created.replication_factor) == (None, 3, 1)
    topic = applied(image, command).topics["orders"]
    assert [(p.replicas, p.isr, p.leader, p.leader_epoch) for p in topic.partitions] == [
        ((1,), (1,), 1, 0)
    ] * 3


def test_partitions_are_spread_over_the_brokers() -> None:
    image = applied(cluster(3), CreateTopics((NewTopic("orders", 6, 2),)))
    partitions = image.topics["orders"].partitions
    assert sorted(p.leader for p in partitions) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(p.replicas)) == 2 for p in partitions)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a\n"])
def test_a_name_that_cannot_be_a_topics_is_refused(name: str) -> None:
    assert refusal(cluster(), NewTopic(name, 1, 1))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_longest_name_is_allowed() -> None:
    assert create(cluster(), NewTopic("a" * 249, 1, 1))[0].error is None


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    image = applied(cluster(), CreateTopics((NewTopic("a.b_c"),)))
    code, message = refusal(image, NewTopic("a_b.c"))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a.b_c" in message
    first, second = create(cluster(), NewTopic("x.y"), NewTopic("x_y"))
    assert first.error is None
    assert second.error is not None
    assert second.error.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_collision_is_gone_with_the_topic() -> None:
    image = applied(cluster(), CreateTopics((NewTopic("a.b"),)))
    image = applied(image, DeleteTopics((TopicRef("a.b"),)))
    assert create(image, NewTopic("a_b"))[0].error is None


def test_an_existing_topic_is_named_in_the_refusal() -> None:
    image = applied(cluster(), CreateTopics((NewTopic("my_orders"),)))
    assert refusal(image, NewTopic("my_orders")) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'my_orders' already exists.",
    )


def test_a_name_given_twice_is_refused_once_and_the_others_are_created() -> None:
    decision = CreateTopics((NewTopic("a"), NewTopic("b"), NewTopic("a"))).decide(cluster(), new_id)
    assert [(t.name, t.error.code if t.error else None) for t in decision.result] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", None),
    ]
    assert list(cluster().apply(decision.records).topics) == ["b"]


@pytest.mark.parametrize("partitions", [0, -2])
def test_no_partitions_are_refused(partitions: int) -> None:
    assert refusal(cluster(), NewTopic("a", partitions, 1))[0] is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 2])
def test_a_replication_factor_that_cannot_be_met_is_refused(factor: int) -> None:
    assert refusal(cluster(), NewTopic("a", 1, factor))[0] is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    "assignments",
    [
        ((0, ()),),
        ((0, (1, 1)),),
        ((0, (7,)),),
        ((1, (1,)),),
        ((0, (1,)), (0, (1,))),
        ((0, (1,)), (2, (1,))),
        ((0, (1,)), (1, (1, 2))),
    ],
)
def test_a_manual_assignment_that_makes_no_sense_is_refused(
    assignments: tuple[tuple[int, tuple[int, ...]], ...],
) -> None:
    code, _ = refusal(cluster(2), NewTopic("a", assignments=assignments))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_manual_assignment_excludes_a_replication_factor() -> None:
    code, _ = refusal(cluster(), NewTopic("a", -1, 1, assignments=((0, (1,)),)))
    assert code is ErrorCode.INVALID_REQUEST


def test_a_manual_assignment_is_taken_as_given() -> None:
    image = applied(cluster(2), CreateTopics((NewTopic("a", assignments=((1, (1, 2)), (0, (2, 1)))),)))
    assert [p.replicas for p in image.topics["a"].partitions] == [(2, 1), (1, 2)]


def test_an_unknown_config_is_refused_with_the_nearest_valid_one() -> None:
    code, message = refusal(cluster(), NewTopic("a", configs=(("retention.msec", "1"),)))
    assert code is ErrorCode.INVALID_CONFIG
    assert "retention.msec" in message
    assert "'retention.ms'" in message


@pytest.mark.parametrize("configs", [(("retention.ms", "x"),), (("retention.ms", None),)])
def test_a_bad_config_value_is_refused(configs: tuple[tuple[str, str | None], ...]) -> None:
    code, message = refusal(cluster(), NewTopic("a", configs=configs))
    assert code is ErrorCode.INVALID_CONFIG
    assert "retention.ms" in message


def test_a_config_that_contradicts_the_brokers_is_refused() -> None:
    defaults = Defaults(static_configs={"log.cleaner.max.compaction.lag.ms": "10"})
    code, _ = refusal(cluster(), NewTopic("a", configs=(("min.compaction.lag.ms", "20"),)), defaults=defaults)
    assert code is ErrorCode.INVALID_CONFIG


def test_configs_are_kept_with_the_topic() -> None:
    image = applied(cluster(), CreateTopics((NewTopic("a", configs=(("retention.ms", "5"),)),)))
    assert image.topics["a"].configs == {"retention.ms": "5"}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_internal_topics_are_the_clusters_own(name: str) -> None:
    assert refusal(cluster(), NewTopic(name))[0] is ErrorCode.INVALID_TOPIC_EXCEPTION
    image = applied(cluster(), CreateTopics((NewTopic(name),), allow_internal=True))
    (deleted,) = DeleteTopics((TopicRef(name),)).decide(image, new_id).result
    assert deleted.error is not None
    (grown,) = CreatePartitions((PartitionIncrease(name, 9),)).decide(image, new_id).result
    assert grown.error is not None


def test_validate_only_decides_the_same_and_changes_nothing() -> None:
    decision = CreateTopics((NewTopic("a", 2), NewTopic("..")), validate_only=True).decide(cluster(), new_id)
    assert decision.records == ()
    good, bad = decision.result
    assert (good.error, good.topic_id, good.partitions) == (None, None, 2)
    assert bad.error is not None


def test_too_many_partitions_are_refused_for_the_topic_that_exceeds_the_limit() -> None:
    defaults = Defaults(max_partitions_per_request=5, max_partitions=8)
    first, second = create(cluster(), NewTopic("a", 3), NewTopic("b", 3), defaults=defaults)
    assert first.error is None
    assert second.error is not None
    assert second.error.code is ErrorCode.POLICY_VIOLATION
    image = applied(cluster(), CreateTopics((NewTopic("a", 5),)))
    assert refusal(image, NewTopic("b", 4), defaults=defaults)[0] is ErrorCode.POLICY_VIOLATION


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = applied(cluster(), CreateTopics((NewTopic("a"), NewTopic("b"), NewTopic("c"))))
    command = DeleteTopics((TopicRef("a"), TopicRef(topic_id=image.topics["b"].topic_id)))
    assert [(t.name, t.topic_id, t.error) for t in command.decide(image, new_id).result] == [
        ("a", image.topics["a"].topic_id, None),
        ("b", image.topics["b"].topic_id, None),
    ]
    assert list(applied(image, command).topics) == ["c"]


def test_deletions_that_cannot_be_understood_are_refused_one_by_one() -> None:
    image = applied(cluster(), CreateTopics((NewTopic("a"), NewTopic("b"), NewTopic("c"))))
    topic_id = image.topics["a"].topic_id
    refs = (
        TopicRef("missing"),
        TopicRef(topic_id=uuid.UUID(int=2**100)),
        TopicRef("a", topic_id),
        TopicRef(),
        TopicRef("b"),
        TopicRef("b"),
        TopicRef("c"),
        TopicRef(topic_id=image.topics["c"].topic_id),
    )
    decision = DeleteTopics(refs).decide(image, new_id)
    assert [t.error.code if t.error else None for t in decision.result] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        None,
        ErrorCode.INVALID_REQUEST,
    ]
    assert sorted(image.apply(decision.records).topics) == ["a", "b"]


def test_partitions_are_added_behind_the_existing_ones() -> None:
    image = applied(cluster(2), CreateTopics((NewTopic("a", 2, 2),)))
    image = applied(image, CreatePartitions((PartitionIncrease("a", 4, ((2, 1), (1, 2))),)))
    assert [p.index for p in image.topics["a"].partitions] == [0, 1, 2, 3]
    assert image.topics["a"].partitions[2].leader == 2


@pytest.mark.parametrize(
    ("increase", "code"),
    [
        (PartitionIncrease("missing", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (PartitionIncrease("a", 2), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease("a", 1), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease("a", 0), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease("a", 4, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease("a", 3, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease("a", 3, ((1, 2),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease("a", 10**9), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_an_increase_that_is_none_is_refused(increase: PartitionIncrease, code: ErrorCode) -> None:
    image = applied(cluster(2), CreateTopics((NewTopic("a", 2, 1),)))
    decision = CreatePartitions((increase,)).decide(image, new_id)
    assert decision.records == ()
    assert decision.result[0].error is not None
    assert decision.result[0].error.code is code


def test_one_command_of_a_thousand_topics_builds_each_map_once() -> None:
    image = applied(cluster(), CreateTopics(tuple(NewTopic(f"t-{n}", 2) for n in range(1000))))
    assert len(image.topics) == 1000
    assert image.partition_count == 2000


def test_a_topic_is_placed_as_its_own_setting_says() -> None:
    by_ring = NewTopic("t", 12, 1, configs=(("placement", "ring"),))
    image = applied(cluster(3), CreateTopics((by_ring,)))
    ring = [partition.replicas for partition in image.topics["t"].partitions]
    in_turn = applied(cluster(3), CreateTopics((NewTopic("t", 12, 1, configs=(("placement", "modulo"),)),)))
    assert ring != [partition.replicas for partition in in_turn.topics["t"].partitions]
    grown = applied(image, CreatePartitions((PartitionIncrease("t", 24),)))
    assert [partition.replicas for partition in grown.topics["t"].partitions][:12] == ring


def test_the_image_knows_what_each_broker_has() -> None:
    image = applied(cluster(3), CreateTopics((NewTopic("a", 6, 2), NewTopic("b", 3, 3))))
    assert image.loads == {1: (3, 7), 2: (3, 7), 3: (3, 7)}
    image = applied(image, DeleteTopics((TopicRef("a"),)))
    assert image.loads == {1: (1, 3), 2: (1, 3), 3: (1, 3)}
    image = applied(image, DeleteTopics((TopicRef("b"),)))
    assert image.loads == {}
