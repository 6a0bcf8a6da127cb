"""Requests of several nodes are cut into what each has, and the answers come in the order of the request."""

import datetime
from typing import Any

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v7.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from millstream.broker.routing.client_routing import AllProxied
from millstream.broker.routing.plans import PLANS
from millstream.broker.routing.targets import Targets
from millstream.coordinator.definition import partition_for
from millstream.protocol.errors import ErrorCode
from support.kio_messages import build
from support.led_image import image

ME = 1


def targets(**leaders: tuple[int, ...]) -> Targets:
    return Targets(image(**leaders), ME, AllProxied())


def list_offsets(**wanted: tuple[int, ...]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=tuple(
            ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
                    for index in indexes
                ),
            )
            for name, indexes in wanted.items()
        ),
    )


def places(request: Any) -> list[tuple[str, int]]:
    return [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]


def answer(request: Any, offset: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        throttle_time=datetime.timedelta(),
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.NONE,
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=0,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def test_partitions_go_to_their_leaders_and_what_nobody_leads_stays_here() -> None:
    plan = PLANS["list_offsets"]
    request = list_offsets(t=(2, 0, 1), u=(0, 5), nowhere=(0,))
    parts = plan.cut(targets(t=(1, 2, 3), u=(-1,)), request)
    assert {node: places(part) for node, part in parts.items()} == {
        3: [("t", 2)],
        1: [("t", 0), ("u", 0), ("u", 5), ("nowhere", 0)],
        2: [("t", 1)],
    }
    joined = plan.join(request, [answer(part, node) for node, part in parts.items()])
    assert places(joined) == places(request)
    assert [each.offset for topic in joined.topics for each in topic.partitions] == [3, 1, 2, 1, 1, 1]


def test_partitions_that_are_plain_numbers_go_to_their_leaders_too() -> None:
    plan = PLANS["describe_producers"]
    request = build("describe_producers", 0, topics=[{"name": "t", "partition_indexes": [2, 0, 1]}])
    parts = plan.cut(targets(t=(1, 2, 3)), request)
    asked = {node: part.topics[0].partition_indexes for node, part in parts.items()}
    assert asked == {3: (2,), 1: (0,), 2: (1,)}
    answers = [
        DescribeProducersResponse(
            throttle_time=datetime.timedelta(),
            topics=(
                TopicResponse(
                    name="t",
                    partitions=tuple(
                        PartitionResponse(
                            partition_index=each, error_code=ErrorCode.NONE, active_producers=()
                        )
                        for each in indexes
                    ),
                ),
            ),
        )
        for indexes in asked.values()
    ]
    assert places(plan.join(request, answers)) == [("t", 2), ("t", 0), ("t", 1)]


def test_groups_go_to_their_coordinators() -> None:
    plan = PLANS["delete_groups"]
    names = ("a", "b", "c")
    leaders = [-1] * 50
    for node, name in enumerate(names, 1):
        leaders[partition_for(name, 50)] = node
    request = DeleteGroupsRequest(groups_names=names)
    parts = plan.cut(targets(__consumer_offsets=tuple(leaders)), request)
    assert {node: part.groups_names for node, part in parts.items()} == {1: ("a",), 2: ("b",), 3: ("c",)}
    answers = [
        DeleteGroupsResponse(
            throttle_time=datetime.timedelta(),
            results=(DeletableGroupResult(group_id=part.groups_names[0], error_code=ErrorCode(node)),),
        )
        for node, part in reversed(parts.items())
    ]
    joined = plan.join(request, answers)
    assert [(each.group_id, each.error_code) for each in joined.results] == [("a", 1), ("b", 2), ("c", 3)]


def test_a_brokers_settings_are_asked_of_itself() -> None:
    topic, other, unknown, nobody = (
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "2"), (4, "2"), (4, "9"), (4, ""))
    )
    request = DescribeConfigsRequest(resources=(topic, other, unknown, nobody))
    parts = PLANS["describe_configs"].cut(targets(), request)
    assert {node: part.resources for node, part in parts.items()} == {
        1: (topic, unknown, nobody),
        2: (other,),
    }


def test_a_list_of_groups_is_everybodys_and_says_what_it_lacks() -> None:
    plan = PLANS["list_groups"]
    assert list(plan.cut(targets(), None)) == [1, 2, 3]

    def listed(code: ErrorCode, *names: str) -> ListGroupsResponse:
        groups = tuple(
            ListedGroup(group_id=name, protocol_type="consumer", group_state="Stable", group_type="classic")
            for name in names
        )
        return ListGroupsResponse(throttle_time=datetime.timedelta(), error_code=code, groups=groups)

    joined = plan.join(None, [listed(ErrorCode.NONE, "a", "b"), listed(ErrorCode.NONE, "b", "c")])
    assert ([each.group_id for each in joined.groups], joined.error_code) == (["a", "b", "c"], 0)
    lost = listed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    joined = plan.join(None, [listed(ErrorCode.NONE, "a"), lost])
    assert ([each.group_id for each in joined.groups], joined.error_code) == (["a"], 15)
