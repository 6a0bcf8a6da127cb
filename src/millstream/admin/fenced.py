"""Why the controller keeps a node out, and what to do: asked of the node itself."""

import msgspec

from millstream.client.errors import ClientError
from millstream.client.wire.connection import Connection
from millstream.client.wire.settings import Address, ClusterSettings
from millstream.config.units import format_size

# A node that found its disk full waits until it can write a file of 1 MB.
_FULL_BYTES = 2 << 20


class FencedNode(msgspec.Struct, frozen=True):
    node_id: int
    is_up: bool
    reason: str
    advice: str


def ask_fenced(node_id: int, address: Address, settings: ClusterSettings) -> FencedNode:
    try:
        connection = Connection(address, settings)
        try:
            found = connection.call("describe_log_dirs", topics=[])
        finally:
            connection.close()
    except (OSError, ClientError):
        return FencedNode(
            node_id, False, "it does not answer", f"start node {node_id}, or look at its network"
        )
    for each in found.results:
        if 0 <= each.usable_bytes < _FULL_BYTES:
            return FencedNode(
                node_id,
                True,
                f"its disk is full: {format_size(each.usable_bytes)} of {format_size(each.total_bytes)} are left",
                f"make room at {each.log_dir}: shorten retention.ms of a large topic, or delete one; it comes back by"
                " itself",
            )
    return FencedNode(
        node_id,
        True,
        "it answers: it is starting, cut off from the other nodes, or its disk does not answer",
        f"/health and the log of node {node_id} say which; it comes back by itself",
    )
