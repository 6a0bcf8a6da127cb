"""Commands and their answers as bytes, for forwarding to the controller.

Numbers are the wire format and are never reused; fields are only added at the end, with a default.
"""

from typing import Any

import msgspec

from millstream.cluster.metadata.brokers import (
    AdvanceLeaderEpochs,
    BrokerHeartbeat,
    BrokerStanding,
    RegisterBroker,
    UnregisterBroker,
)
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.configs import AlterationOutcome, AlterConfigs
from millstream.cluster.metadata.defaults import ViewVirtualNodes
from millstream.cluster.metadata.in_sync_sets import ChangeInSyncSets, InSyncResult
from millstream.cluster.metadata.leader_elections import ElectionOutcome, ElectLeaders, MakeWay
from millstream.cluster.metadata.partitions import CreatePartitions, IncreaseOutcome
from millstream.cluster.metadata.producer_ids import AllocateProducerIds
from millstream.cluster.metadata.quorum import AddVoter, QuorumView, RemoveVoter, ViewQuorum
from millstream.cluster.metadata.reassignments import AlterReassignments, ReassignmentOutcome
from millstream.cluster.metadata.recovered_replicas import ReportRecovered
from millstream.cluster.metadata.topics import CreatedTopic, CreateTopics, DeletedTopic, DeleteTopics
from millstream.protocol.errors import ErrorCode, KafkaError

_COMMANDS: dict[int, tuple[type[Any], Any]] = {
    1: (CreateTopics, tuple[CreatedTopic, ...]),
    2: (DeleteTopics, tuple[DeletedTopic, ...]),
    3: (CreatePartitions, tuple[IncreaseOutcome, ...]),
    4: (AlterConfigs, tuple[AlterationOutcome, ...]),
    5: (RegisterBroker, int),
    6: (AdvanceLeaderEpochs, int),
    7: (AllocateProducerIds, range),
    8: (BrokerHeartbeat, BrokerStanding),
    9: (ChangeInSyncSets, tuple[InSyncResult, ...]),
    10: (UnregisterBroker, bool),
    11: (ElectLeaders, tuple[ElectionOutcome, ...]),
    12: (AlterReassignments, tuple[ReassignmentOutcome, ...]),
    13: (AddVoter, bool),
    14: (RemoveVoter, bool),
    15: (ReportRecovered, int),
    16: (ViewQuorum, QuorumView),
    17: (ViewVirtualNodes, int),
    18: (MakeWay, bool),
}
_NUMBERS = {kind: number for number, (kind, _) in _COMMANDS.items()}


class BadCommand(ValueError):
    """Bytes that are no command this version knows."""


def _to_plain(value: Any) -> Any:
    if isinstance(value, KafkaError):
        return [int(value.code), value.message]
    if isinstance(value, range):
        return [value.start, value.stop]
    raise TypeError(f"{type(value).__name__} cannot be sent to the controller")


def _from_plain(kind: type, value: Any) -> Any:
    if kind is KafkaError:
        return KafkaError(ErrorCode(value[0]), value[1])
    if kind is range:
        return range(value[0], value[1])
    raise TypeError(f"{kind.__name__} is not sent by the controller")


_encoder = msgspec.msgpack.Encoder(enc_hook=_to_plain)
_command_decoders = {
    number: msgspec.msgpack.Decoder(kind, dec_hook=_from_plain) for number, (kind, _) in _COMMANDS.items()
}
_result_decoders = {
    kind: msgspec.msgpack.Decoder(result, dec_hook=_from_plain) for kind, result in _COMMANDS.values()
}
_error_decoder = msgspec.msgpack.Decoder(KafkaError, dec_hook=_from_plain)


def encode_command(command: Command[Any]) -> bytes:
    return bytes([_NUMBERS[type(command)]]) + _encoder.encode(command)


def decode_command(data: bytes | memoryview) -> Command[Any]:
    decoder = _command_decoders.get(data[0]) if data else None
    if decoder is None:
        raise BadCommand(f"unknown command in {len(data)} bytes")
    try:
        command: Command[Any] = decoder.decode(data[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadCommand(f"command {data[0]} cannot be read: {error}") from error
    return command


def encode_result(result: Any) -> bytes:
    return b"\x00" + _encoder.encode(result)


def encode_refusal(error: KafkaError) -> bytes:
    return b"\x01" + _encoder.encode(error)


def decode_result(command: Command[Any], data: bytes) -> Any:
    """The command's result; the KafkaError with which the controller refused it is raised."""
    if data[0] == 1:
        raise _error_decoder.decode(data[1:])
    return _result_decoders[type(command)].decode(data[1:])
