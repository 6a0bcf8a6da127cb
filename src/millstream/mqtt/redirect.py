"""Where a client should go instead: to the node that leads the queue which it consumes, or that its node moved to."""

from collections.abc import Mapping

from millstream.doors import Place
from millstream.doors.cluster import ClusterView


class Redirects:
    """`queues` are those whose consumers are sent to the leader; those of others are served through any node.

    `servers` are the addresses of nodes' MQTT listeners; a node without one has `port` at its own host.
    """

    def __init__(self, view: ClusterView, queues: frozenset[str], servers: Mapping[int, str]) -> None:
        self._view = view
        self._queues = queues
        self._servers = servers
        self.port = 0

    def consumer(self, places: list[Place]) -> str | None:
        """The server for a consumer of the queue with these partitions; None where this node is as good as any."""
        if not places or places[0].topic not in self._queues:
            return None
        leaders = [leader for place in places if (leader := self._view.leader(place)) is not None]
        if not leaders or self._view.node_id in leaders:
            return None
        leader = leaders[0]
        if leader in self._servers:
            return self._servers[leader]
        host = next(
            (each.endpoints[0].host for each in self._view.brokers() if each.broker_id == leader), None
        )
        return None if host is None or not self.port else f"{host}:{self.port}"
