"""Before the cluster exists: what nodes wait for, and founding a cluster without all seeds."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from millstream.client.errors import ClientError, ConnectionFailedError, TimedOutError
from millstream.client.wire.connection import Connection
from millstream.client.wire.properties import addresses
from millstream.client.wire.settings import Address, ClusterSettings
from millstream.cluster.founding_messages import (
    AskState,
    FoundingRequest,
    FoundWith,
    NodeState,
    decode_answer,
    decode_state,
    encode,
)
from millstream.protocol.api import PEER_FOUNDING

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 30.0


def waiting_nodes(settings: ClusterSettings) -> dict[str, NodeState]:
    """The nodes that run but do not serve yet, by address."""
    found = _states(settings, settings.bootstrap)
    return {f"{host}:{port}": state for (host, port), state in found.items() if state.waiting_for}


def founder_of(settings: ClusterSettings, wanted: Sequence[int]) -> Address:
    """Address of the node that founds: the one to which a node has promised this, else the one with the lowest id."""
    states = _states(settings, settings.bootstrap)
    if not states:
        raise ConnectionFailedError(f"cannot reach the cluster at {settings.addresses}: no node answers")
    further = {each for state in states.values() for name, _ in state.there for each in addresses(name)}
    states |= _states(settings, sorted(further - states.keys()))
    named = {state.node_id: address for address, state in states.items() if state.node_id in wanted}
    if not named:
        raise ClientError(f"none of the nodes {', '.join(map(str, wanted))} answers; start them first")
    promised = {state.promised_to for state in states.values()} & named.keys()
    return named[min(promised or named)]


def found_cluster(settings: ClusterSettings, founder: Address, wanted: Sequence[int]) -> NodeState:
    """Found a new, empty cluster with these nodes; returns the founder's state once it exists."""
    answer = decode_answer(_ask(settings, founder, FoundWith(tuple(wanted))))
    if answer.refusal is not None:
        raise ClientError(f"not founded: {answer.refusal}")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        state = decode_state(_ask(settings, founder, AskState()))
        if state.cluster_id:
            return state
        if time.monotonic() > deadline:
            raise TimedOutError(f"not founded within {_PATIENCE_SECONDS:g} s: {state.waiting_for}")
        time.sleep(_LOOK_SECONDS)


def _states(settings: ClusterSettings, nodes: Iterable[Address]) -> dict[Address, NodeState]:
    found: dict[Address, NodeState] = {}
    for address in nodes:
        try:
            found[address] = decode_state(_ask(settings, address, AskState()))
        except (OSError, ClientError, msgspec.MsgspecError):
            continue
    return found


def _ask(settings: ClusterSettings, address: Address, request: FoundingRequest) -> bytes:
    """A node that waits for others closes the connection on every other request."""
    try:
        node = Connection(address, settings, is_for_client=False)
        try:
            return node.ask(PEER_FOUNDING, encode(request))
        finally:
            node.close()
    except OSError as error:
        raise ConnectionFailedError(
            f"cannot reach the node at {address[0]}:{address[1]}: {error.strerror or error}"
        ) from error
