"""The APIs between nodes (30000 to 30004); our own tools use some of them too. Each has one version.

A single node answers only two of them: the request for its state, and a tool's greeting (`client`).
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
    """The greeting of another node."""
    call.speak_for(None)
    return _network(membership).greet(hello)


def quorum(membership: ClusterMembership | None, part: memoryview, call: Call) -> Any:
    """A part of a message between quorum members; there is no reply."""
    _network(membership).receive(call.source, part)
    return NO_REPLY


async def command(membership: ClusterMembership | None, command: Command[Any], _call: Call) -> bytes:
    """Decide a command of another node, which takes this one for the controller."""
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
    """Answer this connection's requests from this node alone, and forward none.

    A node that forwards a client's requests sends this first and names the client; our own tools send it too.
    """
    if greeting.cluster_id:
        call.require_node()
        network = _network(membership)
        if greeting.cluster_id != network.cluster_id:
            raise MalformedRequest(
                f"node {greeting.node_id} of cluster {greeting.cluster_id} forwards to cluster {network.cluster_id}"
            )
    # At most one hop: this node refuses what it cannot answer, and the sender looks up the right node again.
    call.speak_for(greeting.client if greeting.cluster_id else None)


async def founding(
    membership: ClusterMembership | None,
    alone: Callable[[], NodeState],
    for_nodes: Endpoint,
    asked: FoundingRequest,
    call: Call,
) -> PromiseAnswer | NodeState:
    """A founder's request for a promise, an operator's request to found, or anyone's request for this node's state.

    `alone` gives the state of a single node; `for_nodes` is the listener for other nodes.
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
