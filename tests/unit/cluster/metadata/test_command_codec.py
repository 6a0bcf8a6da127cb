"""Commands on their way to the controller, and its answers on their way back."""

from typing import Any
from uuid import UUID

import pytest

from millstream.cluster.metadata import command_codec as codec
from millstream.cluster.metadata.brokers import (
    AdvanceLeaderEpochs,
    BrokerHeartbeat,
    BrokerStanding,
    RegisterBroker,
    UnregisterBroker,
)
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.configs import (
    AlterationOutcome,
    AlterConfigs,
    ConfigAlteration,
    ConfigChange,
)
from millstream.cluster.metadata.defaults import Defaults, ViewVirtualNodes
from millstream.cluster.metadata.in_sync_sets import ChangeInSyncSets, InSyncChange, InSyncResult
from millstream.cluster.metadata.leader_elections import ElectionOutcome, ElectLeaders, MakeWay
from millstream.cluster.metadata.partitions import CreatePartitions, IncreaseOutcome, PartitionIncrease
from millstream.cluster.metadata.producer_ids import AllocateProducerIds
from millstream.cluster.metadata.quorum import AddVoter, QuorumView, RemoveVoter, ReplicaView, ViewQuorum
from millstream.cluster.metadata.reassignments import AlterReassignments, Reassignment, ReassignmentOutcome
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.recovered_replicas import RecoveredReplica, ReportRecovered
from millstream.cluster.metadata.topics import (
    CreatedTopic,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    NewTopic,
    TopicRef,
)
from millstream.protocol.errors import ErrorCode, KafkaError

DEFAULTS = Defaults(1, 3, 1, {"log.retention.ms": "5"})
EXAMPLES: list[tuple[Command[Any], Any]] = [
    (
        CreateTopics(
            (NewTopic("t", 2, configs=(("a", "b"),)), NewTopic("u", assignments=((0, (1, 2)),))),
            defaults=DEFAULTS,
        ),
        (CreatedTopic("t", UUID(int=4), 2, 1, {"a": "b"}),),
    ),
    (
        DeleteTopics((TopicRef("t"), TopicRef(topic_id=UUID(int=4)))),
        (DeletedTopic(None, UUID(int=4)), DeletedTopic("t", None)),
    ),
    (CreatePartitions((PartitionIncrease("t", 9, ((1,),)),), defaults=DEFAULTS), (IncreaseOutcome("t"),)),
    (
        AlterConfigs((ConfigAlteration(2, "t", (ConfigChange("k", None),)),), defaults=DEFAULTS),
        (AlterationOutcome(2, "t"),),
    ),
    (RegisterBroker(1, (Endpoint("PLAINTEXT", "h", 1),), "r", is_fenced=True), 7),
    (AdvanceLeaderEpochs(1), 3),
    (AllocateProducerIds(5), range(10, 15)),
    (BrokerHeartbeat(1, 2, wants_to_stop=True), BrokerStanding(is_fenced=True, may_stop=True)),
    (
        ChangeInSyncSets(1, 2, (InSyncChange(UUID(int=4), 0, 1, ((1, 2), (3, -1)), 5),)),
        (InSyncResult(0, 1, 1, (1, 3), 6), InSyncResult(74)),
    ),
    (UnregisterBroker(3), True),
    (ElectLeaders(0, (("t", 1),)), (ElectionOutcome("t", 1),)),
    (MakeWay(1, 2, UUID(int=4), 0, 3, 5), True),
    (AlterReassignments((Reassignment("t", 0, (1, 2)),)), (ReassignmentOutcome("t", 0),)),
    (AddVoter(4, UUID(int=4)), True),
    (RemoveVoter(4), True),
    (
        ViewQuorum(),
        QuorumView(1, 2, 9, (ReplicaView(1, UUID(int=1), 9), ReplicaView(2, UUID(int=2), 7)), ()),
    ),
    (ViewVirtualNodes(), 150),
    (ReportRecovered(1, 2, (RecoveredReplica(UUID(int=4), 0, 3, 2, 17, is_whole=False),)), 1),
]


@pytest.mark.parametrize(("command", "result"), EXAMPLES, ids=lambda each: type(each).__name__)
def test_commands_and_results_survive_the_wire(command: Command[Any], result: Any) -> None:
    assert codec.decode_command(codec.encode_command(command)) == command
    assert codec.decode_result(command, codec.encode_result(result)) == result


def test_every_command_that_can_be_sent_has_an_example() -> None:
    assert {type(command) for command, _ in EXAMPLES} == set(codec._NUMBERS)


def test_an_error_within_a_result_comes_back_as_one() -> None:
    refused = CreatedTopic("t", error=KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "it exists"))
    (outcome,) = codec.decode_result(CreateTopics(()), codec.encode_result((refused,)))
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")


def test_a_refusal_is_raised_where_the_command_came_from() -> None:
    refusal = codec.encode_refusal(KafkaError(ErrorCode.NOT_CONTROLLER, "ask another"))
    with pytest.raises(KafkaError, match="ask another") as caught:
        codec.decode_result(AdvanceLeaderEpochs(1), refusal)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x01", b"\x01\x80", b"\x05\x93\x01"])
def test_other_bytes_are_no_command(data: bytes) -> None:
    with pytest.raises(codec.BadCommand):
        codec.decode_command(data)
