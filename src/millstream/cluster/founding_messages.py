"""What nodes and operators say to each other about founding a cluster (API 30004)."""

import msgspec

from millstream.cluster.raft.membership import MemberKey
from millstream.protocol.wire import MalformedRequest


class AskPromise(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The founder asks for permission to found a cluster with these members; answered with a PromiseAnswer."""

    founder: MemberKey
    voters: tuple[MemberKey, ...]


class AskState(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Asks whether the node serves, and if not, what it waits for; answered with a NodeState."""


class FoundWith(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """An operator asks to found the cluster with these nodes; answered with a PromiseAnswer."""

    node_ids: tuple[int, ...]


FoundingRequest = AskPromise | AskState | FoundWith


class PromiseAnswer(msgspec.Struct, frozen=True, array_like=True):
    refusal: str | None = None


class NodeState(msgspec.Struct, frozen=True, array_like=True):
    """`waiting_for` is empty once the node serves; `there` has (address, node id) of each reachable seed.

    `nodes_at` is the listener for other nodes; empty when the request came in on that listener.
    """

    node_id: int
    cluster_id: str
    waiting_for: str
    there: tuple[tuple[str, int], ...] = ()
    promised_to: int = -1
    nodes_at: str = ""


_request_decoder: msgspec.msgpack.Decoder[FoundingRequest] = msgspec.msgpack.Decoder(FoundingRequest)
_answer_decoder = msgspec.msgpack.Decoder(PromiseAnswer)
_state_decoder = msgspec.msgpack.Decoder(NodeState)
encode = msgspec.msgpack.Encoder().encode


def decode_request(data: bytes | memoryview) -> FoundingRequest:
    try:
        return _request_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedRequest(f"a request about founding a cluster cannot be read: {error}") from error


def decode_answer(data: bytes | memoryview) -> PromiseAnswer:
    return _answer_decoder.decode(data)


def decode_state(data: bytes | memoryview) -> NodeState:
    return _state_decoder.decode(data)
