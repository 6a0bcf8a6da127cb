"""What AdminClients are told by three nodes, one of which is killed: Kafka's error codes."""

from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    InvalidReplicationAssignmentError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

from support.cluster import ClusterProcesses, cluster_of, eventually

SETTINGS = {"cluster.session_timeout": "10s", "replication.placement": "balanced"}
BROKER, SET = 4, 0
NONE, INVALID_REQUEST, BROKER_ID_NOT_REGISTERED, VOTER_NOT_FOUND = 0, 42, 102, 127


def test_what_cannot_be_done_is_said_by_kafkas_codes(tmp_path: Path) -> None:
    with cluster_of(tmp_path, settings=SETTINGS) as cluster:
        cluster.start()
        confluent = AdminClient({"bootstrap.servers": cluster.seeds})
        confluent.create_topics([NewTopic("t", 3, 3)])["t"].result(90)
        python = KafkaAdminClient(bootstrap_servers=cluster.seeds.split(","))
        try:
            refuse_moves(python)
            assert elections(confluent, ("t", 0), ("t", 99), ("nosuch", 0)) == {
                ("t", 0): "ELECTION_NOT_NEEDED",
                ("t", 99): "UNKNOWN_TOPIC_OR_PART",
                ("nosuch", 0): "UNKNOWN_TOPIC_OR_PART",
            }
            cluster.nodes[3].kill()
            cluster.wait_for_brokers(1, 2)
            # A client may try the node that is gone first, or look for the controller.
            eventually(
                lambda: {
                    each["broker_id"]: each["is_fenced"] for each in python.describe_cluster()["brokers"]
                },
                lambda fenced: fenced == {1: False, 2: False, 3: True},
                "a fenced broker",
            )
            eventually(
                lambda: sorted(map(str, elections(confluent, ("t", 0), ("t", 1), ("t", 2)).values())),
                lambda seen: (
                    seen == ["ELECTION_NOT_NEEDED", "ELECTION_NOT_NEEDED", "PREFERRED_LEADER_NOT_AVAILABLE"]
                ),
                "no election",
            )
        finally:
            python.close()
        # Clients send these to the broker itself; sent to another they are the controller's to decide.
        assert alter_broker(cluster, "3") == NONE, "one that is away finds it when it is back"
        assert alter_broker(cluster, "9") == BROKER_ID_NOT_REGISTERED
        assert alter_broker(cluster, "three") == INVALID_REQUEST
        (described,) = cluster.ask(
            1, "describe_configs", 4, resources=[{"resource_type": BROKER, "resource_name": "3"}]
        ).results
        assert described.error_code == INVALID_REQUEST, "a broker tells of its own settings only"
        assert cluster.ask(1, "unregister_broker", 0, broker_id=9).error_code == BROKER_ID_NOT_REGISTERED
        assert cluster.ask(2, "remove_raft_voter", 0, voter_id=9).error_code == VOTER_NOT_FOUND


def refuse_moves(admin: KafkaAdminClient) -> None:
    for place, replicas, error in (
        (Place("nosuch", 0), [1, 2], UnknownTopicOrPartitionError),
        (Place("t", 99), [1, 2], UnknownTopicOrPartitionError),
        (Place("t", 0), [1, 9], InvalidReplicationAssignmentError),
        (Place("t", 0), [1, 1], InvalidReplicationAssignmentError),
        (Place("t", 0), None, NoReassignmentInProgressError),
    ):
        assert admin.alter_partition_reassignments({place: replicas}) == {place: error}
    assert admin.list_partition_reassignments() == {}


def elections(admin: AdminClient, *places: tuple[str, int]) -> dict[tuple[str, int], str | None]:
    wanted = [TopicPartition(*place) for place in places]
    outcome = admin.elect_leaders(ElectionType.PREFERRED, wanted).result(90)
    return {
        (each.topic, each.partition): None if error is None else error.name()
        for each, error in outcome.items()
    }


def alter_broker(cluster: ClusterProcesses, name: str) -> Any:
    setting = {"name": "leader.replication.throttled.rate", "config_operation": SET, "value": "1000000"}
    resource = {"resource_type": BROKER, "resource_name": name, "configs": [setting]}
    return cluster.ask(1, "incremental_alter_configs", 1, resources=[resource]).responses[0].error_code
