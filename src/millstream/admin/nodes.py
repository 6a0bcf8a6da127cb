"""Nodes come into a running cluster, and go out of it."""

import time
from collections.abc import Collection
from dataclasses import replace

from millstream.admin.cluster_view import BrokerView, ClusterView, view_cluster
from millstream.client.errors import ClientError, NotAvailableError, from_code
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.properties import addresses
from millstream.protocol.errors import ErrorCode

_LOOK_SECONDS = 0.2
_DONE = (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND, ErrorCode.BROKER_ID_NOT_REGISTERED)
_UNSURE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)


def add_node(cluster: Cluster, node: int, *, is_voter: bool, timeout_s: float) -> BrokerView:
    """Wait for a node that was started with the cluster's seeds, and give it a vote if it is to have one."""
    deadline = time.monotonic() + timeout_s
    while True:
        problem = f"node {node} is not there; start it with the cluster's --seeds"
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
    """ClientError when it is not there, or the only one, or the quorum could not decide anything without it."""
    if view.broker(node) is None and node not in view.voters_away:
        raise ClientError(f"there is no node {node}; see `millstream cluster status`")
    if len(view.brokers) == 1:
        raise ClientError(f"node {node} is the only one; stop it instead")
    voters = {each.broker_id for each in view.brokers if each.quorum in ("leader", "voter")}
    left = (voters | set(view.voters_away)) - {node}
    live = {each.broker_id for each in view.live_brokers()}
    away = left - live
    # A voter that does not serve gives no votes now: its removal takes none away.
    if node in voters & live and 2 * len(away) >= len(left) > 0:
        raise ClientError(
            f"without node {node} no majority of the voters is left, because these do not serve:"
            f" {', '.join(map(str, sorted(away)))}; start them, or remove them first"
        )


def remove_node(
    cluster: Cluster, view: ClusterView, node: int, timeout_s: float, *, is_lost: bool = False
) -> None:
    """Take away its registration and its vote; what it keeps is lost with it. The node ends on the way.

    Refused while it is alive and alone has everything of a partition; one that `is_lost` is soon known not to be.
    """
    found = view.broker(node)
    others = [each.address for each in view.live_brokers() if each.broker_id != node]
    if not others:
        raise NotAvailableError(
            f"no other live node is there to take node {node} out; start one of them first"
        )
    until = time.monotonic() + timeout_s
    # Not through the node itself. Its registration goes first: it is not let in again then.
    with Cluster(replace(cluster.settings, bootstrap=addresses(",".join(others)))) as rest:
        if found is not None:
            unsure = (*_UNSURE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE) if is_lost else _UNSURE
            action = f"cannot unregister broker {node}"
            _take_out(rest, until, unsure, action, "unregister_broker", broker_id=node)
        if node in view.voters_away or (found is not None and found.quorum):
            action = f"cannot take node {node} out of the quorum"
            _take_out(rest, until, _UNSURE, action, "remove_raft_voter", voter_id=node)


def _take_out(
    cluster: Cluster, until: float, unsure: Collection[int], action: str, name: str, **fields: int
) -> None:
    """Asked again after answers that are `unsure`: the node that goes may be the controller, and ends on the way.

    What is not there any more has been taken out, by a request whose answer was lost or by somebody else.
    """
    while (reply := cluster.call(name, **fields)).error_code not in _DONE:
        if reply.error_code not in unsure or time.monotonic() > until:
            raise from_code(action, reply.error_code, reply.error_message)
        time.sleep(_LOOK_SECONDS)
