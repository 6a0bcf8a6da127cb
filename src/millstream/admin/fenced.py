"""Why the controller keeps a node out, and what to do."""

import msgspec

from millstream.protocol.log_faults import Faults


class FencedNode(msgspec.Struct, frozen=True):
    node_id: int
    is_up: bool
    reason: str
    advice: str


def why_fenced(node_id: int, told: Faults | None) -> FencedNode:
    """By what the node says itself; None where it does not answer."""
    if told is None:
        return FencedNode(
            node_id, False, "it does not answer", f"start node {node_id}, or look at its network"
        )
    if told.node is not None:
        return FencedNode(node_id, True, told.node.reason, told.node.advice)
    return FencedNode(
        node_id,
        True,
        "it answers: it is starting, or cut off from the other nodes",
        f"/health and the log of node {node_id} say which; it comes back by itself",
    )
