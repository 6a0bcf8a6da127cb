"""Forwards one client's requests: finds the responsible node in the metadata, and sends to it on a lane of the client.

Requests for this node go to its own handlers. So do requests that no other node can answer: the handlers refuse them in
the form of each API (not leader, not coordinator), and every client tries again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.api.call import Call, ReplySlot
from millstream.broker.routing.fetch import FetchRelay
from millstream.broker.routing.lane import Buffers, Done, Lane, LaneLost, Registered, RemoteLane
from millstream.broker.routing.local_lane import LocalLane
from millstream.broker.routing.plans import PLANS
from millstream.broker.routing.produce import PRODUCE_LANE, ProduceRelay
from millstream.broker.routing.split import SplitRequest
from millstream.broker.routing.targets import Routing, Targets, coordinator_of, topic_of
from millstream.broker.server.connection import Connection
from millstream.broker.server.listener import TAKEN, ShownNode
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.observability.logs import get_logger
from millstream.protocol.api import FETCH, PRODUCE, PRODUCE_SERVED_FROM
from millstream.protocol.wire import Reader

if TYPE_CHECKING:
    from millstream.broker.routing.relays import Relays

log = get_logger("millstream.proxy")

# Requests that begin with a group's id; its coordinator answers them.
_OF_A_GROUP = (
    "offset_commit", "join_group", "heartbeat", "leave_group", "sync_group", "offset_delete",
    "consumer_group_heartbeat", "share_group_heartbeat",
)  # fmt: skip
_CHANGING_A_GROUP = (*_OF_A_GROUP, "delete_groups")
# The lane on which this node answers as if it coordinated no groups.
REFUSING = "refusing"
# The first version of OffsetFetch that asks for several groups.
_OFFSET_FETCH_OF_MANY = 8
# These wait for other members, as long as the group's settings say.
_UNHURRIED = ("join_group", "sync_group")
_SECONDS = 30.0


class ClientRelay:
    def __init__(
        self, relays: "Relays", connection: Connection, routing: Routing, shown: Callable[[], ShownNode]
    ) -> None:
        self.connection = connection
        self.node_id = relays.node_id
        self.server = relays.server
        self.loop = relays.machine.loop
        self.metrics = relays.metrics
        self.relays = relays
        self.routing = routing
        self._shown = shown
        self._lanes: dict[tuple[int, str], Lane] = {}
        self._is_closed = False
        self.held = HeldRequests(self)
        self._produce = ProduceRelay(self)
        self._fetch = FetchRelay(self)

    @property
    def only_node(self) -> ShownNode | None:
        return self._shown() if self.routing.shows_one_node else None

    @property
    def shown_coordinator(self) -> ShownNode | None:
        return self._shown() if self.routing.forwards_by_default else None

    @property
    def is_only_node(self) -> bool:
        return self.routing.shows_one_node

    def shown_leader(self, topic: TopicImage) -> int | None:
        if not self.routing.is_proxied(topic):
            return None
        return self._shown().node_id if self.routing.shows_one_node else self.node_id

    @property
    def image(self) -> MetadataImage:
        return self.relays.image()

    @property
    def targets(self) -> Targets:
        return Targets(self.image, self.node_id, self.routing)

    def is_proxied(self, topic: str | bytes) -> bool:
        found = topic_of(self.image, topic)
        return found is not None and self.routing.is_proxied(found)

    def takes(self, context: Call, request: memoryview, position: int) -> object:
        if not self.routing.forwards and not self._produce.is_busy:
            return None
        api = context.api
        if api.key == PRODUCE:
            served = context.version >= PRODUCE_SERVED_FROM
            return self._produce.takes(context, request, position) if served else None
        if api.key == FETCH:
            return self._fetch.takes(context, request, position)
        return TAKEN if self._takes_other(context, request, position) else None

    def _takes_other(self, context: Call, request: memoryview, position: int) -> bool:
        name = context.api.name
        if name in _OF_A_GROUP or (name == "offset_fetch" and context.version < _OFFSET_FETCH_OF_MANY):
            return self.routing.forwards_by_default and self._takes_of_group(context, request, position)
        plan = PLANS.get(name)
        if plan is None or not (plan.is_by_topic or self.routing.forwards_by_default):
            return False
        return SplitRequest(self, context, plan).takes(request[position:])

    def close(self) -> None:
        """The client is gone: give up its requests, except those with acks=0."""
        self._is_closed = True
        self.relays.forget(self)
        awaits_nothing = self._produce.has_unacknowledged
        self._produce.close()
        self._fetch.close()
        lanes, self._lanes = self._lanes, {}
        # Requests with acks=0 are not given up: a leader would have handled them after the client left.
        kept = [lane for (_, kind), lane in lanes.items() if awaits_nothing and kind == PRODUCE_LANE]
        for lane in lanes.values():
            if lane not in kept:
                lane.close(tell=False)
        self.held.close_after(len(kept))
        for lane in kept:
            self.relays.let_finish(lane, self.held.lane_finished)

    @property
    def is_busy(self) -> bool:
        """Whether records are on their way to their leaders."""
        return self._produce.is_busy

    def brokers_changed(self) -> None:
        """Close lanes to nodes that left the cluster or registered again: they will not answer earlier requests."""
        for (node, _), lane in list(self._lanes.items()):
            if isinstance(lane, RemoteLane) and lane.to != self._registered(node):
                lane.close()

    # -- sending

    def send(
        self,
        node: int,
        kind: str,
        context: Call,
        body: Buffers,
        seconds: float | None,
        done: Done,
        version: int | None = None,
    ) -> None:
        """Send on the node's lane of that kind; requests of one lane are handled in order."""
        if self._is_closed:
            # A long request was read meanwhile. Nobody waits for it, and nobody would close the lane.
            return
        asked = context.version if version is None else version
        if node != self.node_id:
            self.metrics.count(context.api.name, sum(map(len, body)))

        def guarded(reply: memoryview | LaneLost) -> None:
            try:
                done(reply)
            except Exception:
                # There will be no answer; without this the client would wait forever.
                log.exception("answer not passed on", peer=self.connection.peer, api=context.api.name)
                self.connection.close()

        self._lane(node, kind).send(context.api, asked, context.caller.client_id, body, seconds, guarded)

    def drop_lane(self, node: int, kind: str) -> None:
        """Close a lane without calling its waiting requests back."""
        lane = self._lanes.pop((node, kind), None)
        if lane is not None:
            lane.close(tell=False)

    def body(self, context: Call, reply: memoryview) -> memoryview:
        """A reply without the tags of its header."""
        return reply[1:] if context.api.is_flexible(context.version) else reply

    def pass_on(self, node: int, context: Call, body: bytes, reply: ReplySlot, kind: str = "others") -> None:
        """Forward the whole request to one node, and return its answer unchanged."""

        def answered(answer: memoryview | LaneLost) -> None:
            self.held.give_back(len(body))
            if not isinstance(answer, LaneLost):
                reply.answer_body([self.body(context, answer)])
            elif node != self.node_id:
                # This node answers instead, and says that it is not the leader or coordinator.
                self.pass_on(self.node_id, context, body, reply, self.lane_after_loss(context))
            else:
                self.connection.close()

        seconds = None if context.api.name in _UNHURRIED else _SECONDS
        self.held.take(len(body))
        self.send(node, kind, context, (body,), seconds, answered)

    def lane_after_loss(self, context: Call) -> str:
        """The lane on which this node answers for a lost node. Reads are answered as usual. Changes of a group are
        refused: the lost node may have carried them out already.
        """
        return REFUSING if context.api.name in _CHANGING_A_GROUP else "others"

    def _takes_of_group(self, context: Call, request: memoryview, position: int) -> bool:
        group_id = Reader(request, position, flexible=context.api.is_flexible(context.version)).string()
        node = coordinator_of(self.image, group_id)
        if node is None or node == self.node_id:
            return False
        self.pass_on(node, context, bytes(request[position:]), context.reply_later())
        return True

    def _lane(self, node: int, kind: str) -> Lane:
        lane = self._lanes.get((node, kind))
        if lane is None or lane.closed:
            lane = self._lanes[node, kind] = self._new_lane(node, kind)
        return lane

    def _new_lane(self, node: int, kind: str) -> Lane:
        if node == self.node_id:
            dispatcher = self.relays.refusing if kind == REFUSING else self.relays.dispatcher
            return LocalLane(dispatcher, self.connection, self.loop)
        # A lost node gets an address at which nothing answers.
        to = self._registered(node) or Registered("", 0, -1)
        return RemoteLane(self.server, node, to, self.relays.greeting(self.connection))

    def _registered(self, node: int) -> Registered | None:
        """The node's address and epoch; None where it has left the cluster or is fenced."""
        broker = self.image.brokers.get(node)
        if broker is None or broker.is_fenced:
            return None
        endpoint = broker.for_nodes
        return Registered(endpoint.host, endpoint.port, broker.epoch)


# With more under way than this, the client is not read until half of it is answered.
MOST_HELD_BYTES = 32 << 20


class HeldRequests:
    """Counts forwarded requests in the node's memory for requests; blocks the client when that is used up."""

    def __init__(self, relay: "ClientRelay") -> None:
        self._relay = relay
        self._bytes = 0
        self._is_blocking = False
        self._lanes_left = 0

    def take(self, size_bytes: int) -> None:
        memory = self._relay.server.memory
        self._bytes += size_bytes
        memory.take(size_bytes)
        if not self._is_blocking and (self._bytes > MOST_HELD_BYTES or memory.free_bytes <= 0):
            self._is_blocking = True
            self._relay.connection.block()

    def give_back(self, size_bytes: int) -> None:
        size_bytes = min(size_bytes, self._bytes)
        memory = self._relay.server.memory
        self._bytes -= size_bytes
        memory.give_back(size_bytes)
        has_room = self._bytes <= MOST_HELD_BYTES // 2 and memory.free_bytes > 0
        if self._is_blocking and (has_room or not self._bytes):
            self._is_blocking = False
            # Not at once: the client's next request may be in the middle of its handling.
            self._relay.loop.call_soon(self._relay.connection.unblock)

    def close_after(self, lanes: int) -> None:
        """The client is gone; give the memory back when so many lanes have finished."""
        self._lanes_left = lanes
        self._close_if_finished()

    def lane_finished(self) -> None:
        self._lanes_left -= 1
        self._close_if_finished()

    def _close_if_finished(self) -> None:
        if not self._lanes_left:
            held, self._bytes = self._bytes, 0
            self._relay.server.memory.give_back(held)
