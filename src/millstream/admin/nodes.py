"""Adds nodes to a running cluster and removes them."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from millstream.admin.cluster_view import BrokerView, ClusterView, view_cluster
from millstream.admin.moves import move, placement_of
from millstream.admin.plans import evacuated
from millstream.client.errors import ClientError, NotAvailableError, from_code
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.properties import addresses
from millstream.protocol.errors import ErrorCode

_LOOK_SECONDS = 0.2
# The cluster answers within seconds; replicas take as long as their bytes.
_REMOVAL_SECONDS = 60.0
# A partition was created on the node after the view was taken.
_HAS_MORE = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE.name
_DONE = (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND, ErrorCode.BROKER_ID_NOT_REGISTERED)
_UNSURE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)


def add_node(cluster: Cluster, node: int, *, is_voter: bool, timeout_s: float) -> BrokerView:
    """Wait until a node that was started with the cluster's seeds has joined; a voter also gets its vote."""
    deadline = time.monotonic() + timeout_s
    while True:
        problem = f"node {node} has not joined; start it with the cluster's --seeds"
        found = view_cluster(cluster).broker(node)
        if found is not None and found.is_live and found.quorum:
            if not is_voter or found.quorum != "follower":
                return found
            reply = cluster.call("add_raft_voter", voter_id=node, listeners=())
            if reply.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
                continue
            problem = str(from_code("no vote", reply.error_code, reply.error_message))
        if time.monotonic() > deadline:
            raise ClientError(f"cannot add node {node}: {problem}")
        time.sleep(_LOOK_SECONDS)


def check_removable(view: ClusterView, node: int) -> None:
    """ClientError when the node is unknown, is the only one, or its removal would leave no majority of voters."""
    if view.broker(node) is None and node not in view.voters_away:
        raise ClientError(f"there is no node {node}; see `millstream cluster status`")
    if len(view.brokers) == 1:
        raise ClientError(f"node {node} is the only node; stop it instead")
    voters = {each.broker_id for each in view.brokers if each.quorum in ("leader", "voter")}
    left = (voters | set(view.voters_away)) - {node}
    live = {each.broker_id for each in view.live_brokers()}
    away = left - live
    # Removing a voter that does not serve costs no vote.
    if node in voters & live and 2 * len(away) >= len(left) > 0:
        raise ClientError(
            f"without node {node} no majority of the voters is left, because these do not serve:"
            f" {', '.join(map(str, sorted(away)))}; start them, or remove them first"
        )


def empty_and_remove(
    cluster: Cluster,
    view: ClusterView,
    node: int,
    placement: str | None,
    virtual_nodes: int,
    *,
    bytes_per_second: int | None,
    timeout_s: float,
    moved: Callable[[int], None] = lambda _count: None,
) -> int:
    """Move the node's replicas to other nodes, then remove it. Returns how many replicas moved.

    Without a `placement` the cluster's own. `timeout_s` limits each move and the removal.
    """
    chosen = placement or placement_of(cluster, view.controller)
    until = time.monotonic() + timeout_s
    count = 0
    while True:
        # Partitions may be created on the node during a move.
        while moves := evacuated(view, node, chosen, virtual_nodes):
            move(cluster, moves, bytes_per_second=bytes_per_second, timeout_s=timeout_s, moved=moved)
            count += len(moves)
            view = view_cluster(cluster)
        try:
            remove_node(cluster, view, node, timeout_s)
        except ClientError as error:
            if error.code != _HAS_MORE or time.monotonic() > until:
                raise
            view = view_cluster(cluster)
        else:
            return count


def remove_node(
    cluster: Cluster, view: ClusterView, node: int, timeout_s: float, *, is_lost: bool = False
) -> None:
    """Remove the node's registration and its vote; its data is lost and its process ends.

    The controller refuses while the node is alive and alone has all messages of a partition. With `is_lost` that
    refusal is retried until the controller has noticed that the node is gone.
    """
    found = view.broker(node)
    others = [each.address for each in view.live_brokers() if each.broker_id != node]
    if not others:
        raise NotAvailableError(f"no other node is alive to remove node {node}; start one of them first")
    until = time.monotonic() + min(timeout_s, _REMOVAL_SECONDS)
    # Not through the node itself. The registration goes first, so that the node cannot register again.
    with Cluster(replace(cluster.settings, bootstrap=addresses(",".join(others)))) as rest:
        if found is not None:
            unsure = (*_UNSURE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE) if is_lost else _UNSURE
            action = f"cannot unregister broker {node}"
            _take_out(rest, until, unsure, action, "unregister_broker", broker_id=node)
        if node in view.voters_away or (found is not None and found.quorum):
            action = f"cannot remove node {node} from the quorum"
            _take_out(rest, until, _UNSURE, action, "remove_raft_voter", voter_id=node)


def _take_out(
    cluster: Cluster, until: float, unsure: Collection[int], action: str, name: str, **fields: int
) -> None:
    """Send the request, again after an answer in `unsure`: the removed node may be the controller and end meanwhile.

    An answer that the node or voter does not exist counts as success: an earlier answer may have been lost.
    """
    while (reply := cluster.call(name, **fields)).error_code not in _DONE:
        if reply.error_code not in unsure or time.monotonic() > until:
            raise from_code(action, reply.error_code, reply.error_message)
        time.sleep(_LOOK_SECONDS)
