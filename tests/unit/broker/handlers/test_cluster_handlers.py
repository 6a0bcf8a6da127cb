"""What clients ask of the cluster: its nodes, disks, producer ids, elections, moves and votes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kio.schema.add_raft_voter.v1.request import AddRaftVoterRequest
from kio.schema.alter_partition_reassignments.v1 import request as reassign_v1
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.elect_leaders.v2 import request as elect_leaders_v2
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.remove_raft_voter.v0.request import RemoveRaftVoterRequest
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from millstream.cluster.metadata.commands import CHANGED_AT_ONCE
from millstream.cluster.metadata.leader_elections import ElectionOutcome, ElectLeaders
from millstream.protocol.errors import ErrorCode, KafkaError
from support.admin_handlers import PATIENCE, in_loop, new_topic, running
from support.kio_messages import build


@in_loop
async def test_describe_cluster(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=True, include_fenced_brokers=False
        )
        response = await broker.call("describe_cluster", request)
        assert response.cluster_id == broker.metadata.image.cluster_id
        assert response.controller_id == 1
        (only,) = response.brokers
        assert (only.broker_id, only.host, only.port, only.rack) == (1, "localhost", 9092, "r1")
        assert response.cluster_authorized_operations > 0
        response = await broker.call("describe_cluster", replace(request, endpoint_type=2))
        assert response.error_code is ErrorCode.MISMATCHED_ENDPOINT_TYPE
        response = await broker.call("describe_cluster", replace(request, endpoint_type=3))
        assert response.error_code is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


@in_loop
async def test_describe_log_dirs(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a", 2), new_topic("b")) as broker:
        response = await broker.call("describe_log_dirs", DescribeLogDirsRequest(topics=None))
        (directory,) = response.results
        assert directory.log_dir == str(tmp_path)
        assert directory.total_bytes >= directory.usable_bytes > 0
        assert {topic.name: len(topic.partitions) for topic in directory.topics} == {"a": 2, "b": 1}
        assert directory.topics[0].partitions[0].partition_size == 123
        chosen = DescribeLogDirsRequest(topics=(DescribableLogDirTopic(topic="a", partitions=(1, 7)),))
        response = await broker.call("describe_log_dirs", chosen)
        assert [[p.partition_index for p in topic.partitions] for topic in response.results[0].topics] == [
            [1]
        ]


@in_loop
async def test_replicas_stay_in_the_one_directory(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a", 1)) as broker:
        topics = [{"name": "a", "partitions": [0, 7]}]
        dirs = [{"path": str(tmp_path), "topics": topics}, {"path": "/elsewhere", "topics": topics}]
        name = "alter_replica_log_dirs"
        response = await broker.call(name, build(name, 2, dirs=dirs))
        assert [[each.error_code for each in topic.partitions] for topic in response.results] == [
            [ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE],
            [ErrorCode.LOG_DIR_NOT_FOUND] * 2,
        ]


@in_loop
async def test_features_stay_at_their_levels(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:

        async def update(**levels: int) -> Any:
            updates = [
                {"feature": name.replace("_", "."), "max_version_level": level}
                for name, level in levels.items()
            ]
            return await broker.call("update_features", build("update_features", 2, feature_updates=updates))

        same = await update(metadata_version=30, group_version=1)
        assert (same.error_code, same.error_message) == (ErrorCode.NONE, None)
        for levels in ({"metadata_version": 29}, {"transaction_version": 2}):
            refused = await update(share_version=1, **levels)
            assert refused.error_code is ErrorCode.INVALID_UPDATE_VERSION
            assert [each.error_code for each in refused.results] == [
                ErrorCode.NONE,
                ErrorCode.INVALID_UPDATE_VERSION,
            ]


@in_loop
async def test_producer_ids_are_fresh_and_transactions_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout=PATIENCE)
        first = await broker.call("init_producer_id", request)
        second = await broker.call("init_producer_id", replace(request, producer_id=first.producer_id))
        assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
        assert second.producer_id == first.producer_id + 1
        refused = await broker.call("init_producer_id", replace(request, transactional_id="t"))
        assert (refused.error_code, refused.producer_id) == (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            -1,
        )
        refused = await broker.call("init_producer_id", replace(request, transactional_id=""))
        assert refused.error_code is ErrorCode.INVALID_REQUEST


@in_loop
async def test_elections_and_reassignments_on_a_node_alone(tmp_path: Path) -> None:
    async with running(tmp_path, new_topic("a", 2)) as broker:
        elect = elect_leaders_v2
        wanted = elect.TopicPartitions(topic="a", partitions=(0, 7))
        for topics, codes in (((wanted,), [84, 3]), (None, [])):
            request = elect.ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout=PATIENCE)
            response = await broker.call("elect_leaders", request)
            found = [p.error_code for t in response.replica_election_results for p in t.partition_result]
            assert (response.error_code, found) == (0, codes)
        reassign = reassign_v1
        moves = tuple(
            reassign.ReassignablePartition(partition_index=index, replicas=replicas)
            for index, replicas in ((0, (1,)), (1, (1, 2)), (2, (1,)))
        )
        request = reassign.AlterPartitionReassignmentsRequest(
            timeout=PATIENCE, topics=(reassign.ReassignableTopic(name="a", partitions=moves),)
        )
        response = await broker.call("alter_partition_reassignments", request)
        assert [each.error_code for each in response.responses[0].partitions] == [0, 39, 3]
        listed = await broker.call(
            "list_partition_reassignments", ListPartitionReassignmentsRequest(timeout=PATIENCE, topics=None)
        )
        assert listed.topics == ()


@in_loop
async def test_all_leaders_are_elected_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, new_topic("a", 200), new_topic("b", 200)) as broker:
        commands: list[ElectLeaders] = []

        async def noted(command: ElectLeaders) -> list[ElectionOutcome]:
            commands.append(command)
            codes = {0: None, 1: ErrorCode.ELECTION_NOT_NEEDED, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            return [
                ElectionOutcome(topic, index, code and KafkaError(code))
                for topic, index in command.partitions
                for code in (codes.get(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),)
            ]

        monkeypatch.setattr(broker.metadata, "submit", noted)
        request = elect_leaders_v2.ElectLeadersRequest(
            election_type=0, topic_partitions=None, timeout=PATIENCE
        )
        response = await broker.call("elect_leaders", request)
    assert [len(command.partitions) for command in commands] == [CHANGED_AT_ONCE, 400 - CHANGED_AT_ONCE]
    named = [[p.partition_id for p in topic.partition_result] for topic in response.replica_election_results]
    assert named == [[0, *range(3, 200)]] * 2


@in_loop
async def test_brokers_and_votes_that_are_not_there_cannot_go(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        with pytest.raises(KafkaError) as caught:
            await broker.call("unregister_broker", UnregisterBrokerRequest(broker_id=9))
        assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
        for cluster_id, code in ((None, 127), ("another", 104)):
            request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=9, voter_directory_id=None)
            with pytest.raises(KafkaError) as caught:
                await broker.call("remove_raft_voter", request)
            assert caught.value.code == code
        request = AddRaftVoterRequest(
            cluster_id=None, timeout=PATIENCE, voter_id=1, voter_directory_id=None, listeners=()
        )
        with pytest.raises(KafkaError) as caught:
            await broker.call("add_raft_voter", request)
        assert caught.value.code is ErrorCode.DUPLICATE_VOTER
