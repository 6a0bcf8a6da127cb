"""`millstream cluster found`, and what nodes say that wait for others: both before there is a cluster to ask."""

import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.cluster_work import Yes
from millstream.cli.errors import CommandError, Unreachable, UsageError
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from millstream.broker.peers.founding_messages import FoundingRequest, NodeState

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 30.0


def found(
    nodes: Annotated[
        str,
        typer.Option("--with", metavar="NODE,...", help="Ids of the seeds that found it, most of all seeds."),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Found a new cluster though not all seeds are there.

    With all seeds there a cluster is founded by itself. Without some of them the nodes wait, because those
    that are away may belong to a cluster with data: then this command would make a second, empty one. Give it
    only for a cluster that is started for the first time. The seeds that are away join when they are started
    with empty directories.

    \b
    Example:
      millstream cluster found --with 1,3 --bootstrap n1:9092
    """
    from millstream.broker.peers.founding_messages import FoundWith, decode_answer

    wanted = _node_ids(nodes)
    states = _known_nodes(bootstrap)
    address = _founder(states, wanted)
    if not yes and sys.stdin.isatty():
        typer.confirm(
            f"Found a new, empty cluster with the nodes {', '.join(map(str, wanted))}? Seeds that are away may belong"
            " to one already.",
            abort=True,
            err=True,
        )
    answer = decode_answer(_ask(address, FoundWith(tuple(wanted))))
    if answer.refusal is not None:
        raise CommandError(f"not founded: {answer.refusal}")
    state = _wait_for_cluster(address)
    if as_json:
        output.json_document({"cluster_id": state.cluster_id, "nodes": wanted})
    else:
        output.line(f"cluster {state.cluster_id} is founded with the nodes {', '.join(map(str, wanted))}")


def waiting_nodes(bootstrap: str) -> "dict[str, NodeState]":
    """By address, those that are up and do not serve."""
    return {address: state for address, state in _states(_addresses(bootstrap)).items() if state.waiting_for}


def _node_ids(nodes: str) -> list[int]:
    words = [each.strip() for each in nodes.split(",") if each.strip()]
    if not words or not all(each.isdecimal() for each in words):
        raise UsageError(f"--with {nodes!r}: give node ids such as 1,3")
    return sorted(set(map(int, words)))


def _known_nodes(bootstrap: str) -> "dict[str, NodeState]":
    """Those at the addresses given, and the seeds that they reach."""
    states = _states(_addresses(bootstrap))
    if not states:
        raise Unreachable(bootstrap, "no node answers")
    further = {address for state in states.values() for address, _ in state.there} - states.keys()
    return states | _states(sorted(further))


def _founder(states: "Mapping[str, NodeState]", wanted: list[int]) -> str:
    """Where the one is reached that founds: whom one of them has promised it already, or else the lowest."""
    named = {state.node_id: address for address, state in states.items() if state.node_id in wanted}
    if not named:
        raise CommandError(f"none of the nodes {', '.join(map(str, wanted))} answers; start them first")
    promised = {state.promised_to for state in states.values()} & named.keys()
    return named[min(promised or named)]


def _wait_for_cluster(address: str) -> "NodeState":
    from millstream.broker.peers.founding_messages import AskState, decode_state

    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        state = decode_state(_ask(address, AskState()))
        if state.cluster_id:
            return state
        if time.monotonic() > deadline:
            raise CommandError(f"not founded within {_PATIENCE_SECONDS:g} s: {state.waiting_for}")
        time.sleep(_LOOK_SECONDS)


def _states(addresses: Iterable[str]) -> "dict[str, NodeState]":
    import msgspec

    from millstream.broker.peers.founding_messages import AskState, decode_state

    found: dict[str, NodeState] = {}
    for address in addresses:
        try:
            found[address] = decode_state(_ask(address, AskState()))
        except (CommandError, msgspec.MsgspecError):
            continue
    return found


def _ask(address: str, request: "FoundingRequest") -> bytes:
    from millstream.broker.peers.founding_messages import encode
    from millstream.cli.options import parse_address
    from millstream.client.node_connection import NodeConnection
    from millstream.protocol.api import PEER_FOUNDING

    try:
        node = NodeConnection(parse_address(address, "--bootstrap"))
        try:
            return node.ask(PEER_FOUNDING, encode(request))
        finally:
            node.close()
    except OSError as error:
        raise Unreachable(address, error.strerror or str(error)) from error


def _addresses(bootstrap: str) -> list[str]:
    from millstream.cli.kafka import DEFAULT_PORT

    parts = [part.strip() for part in bootstrap.split(",") if part.strip()]
    return [each if ":" in each else f"{each}:{DEFAULT_PORT}" for each in parts]
