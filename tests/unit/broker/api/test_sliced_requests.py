from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from millstream.broker.api.sliced_requests import SlicePlan, is_long, joined, parts_of, without_repeats
from millstream.broker.api.table import TABLE
from millstream.broker.server.long_work import SLICE_ELEMENTS
from millstream.protocol.codec import message_class
from millstream.protocol.message_shape import shape_of


@dataclass(frozen=True)
class Topic:
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Message:
    topics: tuple[Topic, ...]
    other: str = "kept"


TOPICS = SlicePlan(("topics", "partitions"), ("topics", "partitions"), (("name",),))
messages = st.lists(st.integers(0, 900), max_size=6).map(
    lambda sizes: Message(tuple(Topic(f"t{n}", tuple(range(size))) for n, size in enumerate(sizes)))
)


@given(messages)
def test_the_parts_of_a_request_are_small_and_together_the_same(request_: Message) -> None:
    parts = list(parts_of(TOPICS, request_))
    for part in parts:
        assert part.other == "kept"
        assert sum(1 + len(topic.partitions) for topic in part.topics) <= SLICE_ELEMENTS + 1
    if parts:
        assert joined(TOPICS, parts) == request_
    assert is_long(TOPICS, request_) == (
        sum(1 + len(topic.partitions) for topic in request_.topics) > SLICE_ELEMENTS
    )


def test_every_plan_names_arrays_that_there_are() -> None:
    sliced = [(row.api, row.slices) for row in TABLE.values() if row.slices is not None]
    assert len(sliced) >= 9
    for api, plan in sliced:
        name = api.name
        for kind, path in (("request", plan.asked), ("response", plan.answered)):
            entity: Any = message_class(name, api.max_version, kind)
            for place, array in enumerate(path):
                field = next(each for each in shape_of(entity) if each.name == array)
                assert field.is_array
                entity = field.entity
                if kind == "response" and place < len(path) - 1:
                    names = {each.name for each in shape_of(entity)}
                    assert names.issuperset(plan.keys[place]) or name == "offset_fetch"


def test_settings_are_described_once_however_often_they_are_asked_for() -> None:
    plan = next(row.slices for row in TABLE.values() if row.api.name == "describe_configs")
    assert plan is not None
    asked = [
        DescribeConfigsResource(resource_type=kind, resource_name="1", configuration_keys=keys)
        for kind, keys in ((2, None), (4, None), (4, ("node.id",)))
    ]
    request = DescribeConfigsRequest(
        resources=tuple(asked * 100), include_synonyms=True, include_documentation=True
    )
    assert without_repeats(plan, request).resources == tuple(asked)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 3), max_size=4)), max_size=5))
def test_an_offset_of_a_partition_is_looked_up_once_however_often_it_is_asked_for(
    asked: list[tuple[str, list[int]]],
) -> None:
    plan = next(row.slices for row in TABLE.values() if row.api.name == "list_offsets")
    assert plan is not None
    numbers = count()
    topics = tuple(
        ListOffsetsTopic(
            name=name,
            partitions=tuple(
                ListOffsetsPartition(partition_index=each, current_leader_epoch=-1, timestamp=next(numbers))
                for each in indexes
            ),
        )
        for name, indexes in asked
    )
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics, timeout=timedelta(0))
    answered = without_repeats(plan, request)
    first: dict[tuple[str, int], int] = {}
    for topic in topics:
        for each in topic.partitions:
            first.setdefault((topic.name, each.partition_index), each.timestamp)
    found = [
        ((topic.name, each.partition_index), each.timestamp)
        for topic in answered.topics
        for each in topic.partitions
    ]
    assert found == list(first.items())
    if len(first) == sum(len(indexes) for _, indexes in asked):
        assert answered is request
