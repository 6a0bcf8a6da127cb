"""`millstream cluster add` and `remove`: nodes come into a running cluster, and go out of it."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli import output
from millstream.cli.cluster_work import (
    Patience,
    PlacementName,
    Throttle,
    VirtualNodes,
    Yes,
    check_placement,
    chosen_placement,
    move_replicas,
)
from millstream.cli.errors import CommandError
from millstream.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from millstream.cluster.placement import VIRTUAL_NODES

if TYPE_CHECKING:
    from millstream.cli.cluster_calls import ClusterCalls

NodeId = Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node's id.", show_default=False)]

_LOOK_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0


def add(
    node: NodeId,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    voter: Annotated[
        bool, typer.Option("--voter/--no-voter", help="Whether the node gets a vote in the metadata quorum.")
    ] = True,
    timeout: Patience = 60.0,
    as_json: AsJson = False,
) -> None:
    """Take a node that was started with the cluster's --seeds fully in: wait for it, and give it a vote.

    `millstream cluster rebalance` then moves partitions to it. Votes are best of an odd number.

    \b
    Examples:
      millstream serve --data ./4 --node-id 4 --listen n4:9092 --seeds n1:9092,n2:9092,n3:9092 &
      millstream cluster add 4 && millstream cluster rebalance
    """
    from millstream.cli.cluster_calls import ClusterCalls, reason_of
    from millstream.cli.cluster_view import view_cluster
    from millstream.protocol.errors import ErrorCode

    deadline = time.monotonic() + timeout
    with ClusterCalls(bootstrap) as calls:
        while True:
            problem = f"node {node} is not there; start it with the cluster's --seeds"
            found = next(
                (each for each in view_cluster(calls).live_brokers() if each.broker_id == node), None
            )
            if found is not None and found.quorum:
                if not voter or found.quorum != "follower":
                    break
                reply = calls.call("add_raft_voter", voter_id=node, listeners=())
                if reply.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
                    continue
                problem = reason_of(reply)
            if time.monotonic() > deadline:
                raise CommandError(f"cannot add node {node}: {problem}")
            time.sleep(_LOOK_SECONDS)
    if as_json:
        output.json_document({"node": node, "quorum": found.quorum})
    else:
        output.line(f"node {node} at {found.address} is in, as a {found.quorum} of the quorum")


def remove(
    node: NodeId,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    throttle: Throttle = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Do not move its replicas first: for a node that is lost for good."),
    ] = False,
    placement: PlacementName = None,
    virtual_nodes: VirtualNodes = VIRTUAL_NODES,
    yes: Yes = False,
    timeout: Patience = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Take a node out: its replicas move to others, then it loses its vote and its registration, and ends.

    Asks first when run on a terminal. Its data directory cannot come back; a new one under its id can.

    \b
    Examples:
      millstream cluster remove 4
      millstream cluster remove 2 --force --yes
    """
    from millstream.cli.cluster_calls import ClusterCalls
    from millstream.cli.cluster_moves import evacuate
    from millstream.cli.cluster_view import view_cluster

    check_placement(placement)
    with ClusterCalls(bootstrap) as calls:
        view = view_cluster(calls)
        found = next((each for each in view.brokers if each.broker_id == node), None)
        if found is None and node not in view.missing_voters:
            raise CommandError(f"there is no node {node}; see `millstream cluster status`")
        if len(view.brokers) == 1:
            raise CommandError(f"node {node} is the only one; stop it instead")
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Take node {node} out of the cluster at {bootstrap}?", abort=True, err=True)
        moves = []
        if not force and found is not None:
            chosen = chosen_placement(calls, placement, view.controller)
            moves = evacuate(view, node, chosen, virtual_nodes)
        move_replicas(calls, moves, throttle, timeout, is_waiting=True)
    is_member = node in view.missing_voters or (found is not None and bool(found.quorum))
    others = [each.address for each in view.live_brokers() if each.broker_id != node]
    if not others:
        raise CommandError(f"no other live node is there to take node {node} out; start one of them first")
    # Not through the node itself, which ends on the way. Its registration goes first: it is not let in again then.
    with ClusterCalls(",".join(others)) as calls:
        until = time.monotonic() + min(timeout, _PATIENCE_SECONDS)
        if found is not None:
            _take_out(calls, until, f"cannot unregister broker {node}", "unregister_broker", broker_id=node)
        if is_member:
            _take_out(
                calls, until, f"cannot take node {node} out of the quorum", "remove_raft_voter", voter_id=node
            )
    if as_json:
        output.json_document({"node": node, "moved": len(moves)})
    else:
        output.line(f"removed node {node}, after {len(moves)} replicas moved to others")


def _take_out(calls: "ClusterCalls", until: float, action: str, name: str, **fields: int) -> None:
    """Asked again while the cluster has no controller: the node that goes may have been it, and ends on the way.

    What is not there any more has been taken out, by a request whose answer was lost or by somebody else.
    """
    from millstream.cli.cluster_calls import reason_of
    from millstream.protocol.errors import ErrorCode

    done = (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND, ErrorCode.BROKER_ID_NOT_REGISTERED)
    while (reply := calls.call(name, **fields)).error_code not in done:
        unsure = reply.error_code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
        if not unsure or time.monotonic() > until:
            raise CommandError(f"{action}: {reason_of(reply)}")
        time.sleep(_LOOK_SECONDS)
