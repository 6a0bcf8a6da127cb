"""The APIs between nodes (30000 to 30004); our own tools use some of them too. Each has one version.

A node without others answers only two of them: what its state is, and that a connection is for itself alone.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from millstream.broker.api.call import NO_REPLY, Call
from millstream.broker.peers.hello import Hello, Welcome
from millstream.broker.peers.membership import ClusterMembership
from millstream.broker.peers.network import PeerNetwork
from millstream.broker.server.listener import host_for
from millstream.cluster.founding_messages import (
    AskPromise,
    AskState,
    FoundingRequest,
    NodeState,
    PromiseAnswer,
)
from millstream.cluster.metadata.command_codec import encode_refusal, encode_result
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.records import Endpoint
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.peer_client import Greeting
from millstream.protocol.wire import MalformedRequest

log = get_logger("millstream.peers")


def hello(membership: ClusterMembership | None, hello: Hello, call: Call) -> Welcome:
    """Another node says who it is."""
    call.speak_for(None)
    return _network(membership).greet(hello)


def quorum(membership: ClusterMembership | None, part: memoryview, call: Call) -> Any:
    """A part of a message between quorum members; there is no reply."""
    _network(membership).receive(call.source, part)
    return NO_REPLY


async def command(membership: ClusterMembership | None, command: Command[Any], _call: Call) -> bytes:
    """A command that another node wants decided, because it takes this one for the controller."""
    metadata = _network(membership).metadata
    if metadata is None:
        return encode_refusal(KafkaError(ErrorCode.NOT_CONTROLLER, "the node is starting"))
    try:
        return encode_result(await metadata.decide(command))
    except KafkaError as error:
        return encode_refusal(error)
    except Exception:
        log.exception("command failed", command=type(command).__name__)
        failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller failed; see its log")
        return encode_refusal(failure)


def client(membership: ClusterMembership | None, greeting: Greeting, call: Call) -> None:
    """The caller wants only what this node has itself: no request of this connection is forwarded.

    A node that forwards a client's requests begins with it, and says whose they are; so do our own tools.
    """
    if greeting.cluster_id:
        call.require_node()
        network = _network(membership)
        if greeting.cluster_id != network.cluster_id:
            raise MalformedRequest(
                f"node {greeting.node_id} of cluster {greeting.cluster_id} forwards to cluster {network.cluster_id}"
            )
    # One hop and no more: this node refuses what it cannot answer, and the sender looks for the right node again.
    call.speak_for(greeting.client if greeting.cluster_id else None)


async def founding(
    membership: ClusterMembership | None,
    alone: Callable[[], NodeState],
    for_nodes: Endpoint,
    asked: FoundingRequest,
    call: Call,
) -> PromiseAnswer | NodeState:
    """Another node asks for this one's promise to let it found a cluster, or anybody for its state.

    `alone` is the state of a node that is not one of several, `for_nodes` where other nodes connect.
    """
    if isinstance(asked, AskState):
        state = alone() if membership is None else membership.state()
        return state if call.is_from_node else replace(state, nodes_at=_address(for_nodes, call))
    if isinstance(asked, AskPromise):
        call.require_node()
    return await _required(membership).founding_asked(asked)


def _address(endpoint: Endpoint, call: Call) -> str:
    return replace(endpoint, host=host_for(endpoint, call)).address


def _required(membership: ClusterMembership | None) -> ClusterMembership:
    if membership is None:
        raise MalformedRequest("this node is alone; it was started without --seeds")
    return membership


def _network(membership: ClusterMembership | None) -> PeerNetwork:
    return _required(membership).network
