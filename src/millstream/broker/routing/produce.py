"""One client's forwarded produce requests: split by leader, sent in order, repeated where that cannot write twice.

Each partition has a line of batches. While one of them is under way to a node, later ones go to the same node or wait,
so batches arrive in the client's order even when leaders change. A failed batch is repeated only if none of it was
sent, or if it carries a producer's id and sequence, by which the leader recognises it; otherwise the client gets the
error and decides itself. Batches are passed on unchanged, and only their leader acknowledges them.

A batch that the client was asked to send again goes before later batches that it had already sent: a leader that got
the later ones first would find a gap, and some clients then begin a new epoch and send records again that are in the
log.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from millstream.broker.api.call import Call, ReplySlot
from millstream.broker.routing.lane import Buffers, LaneLost
from millstream.broker.server.listener import TAKEN
from millstream.protocol.errors import ErrorCode
from millstream.protocol.produce import PartitionOutcome, ProduceRequest, decode_produce
from millstream.protocol.produce_forward import Batch, decode_produce_reply, encode_produce_request
from millstream.protocol.record_batch import HEADER_SIZE, MAGIC, NO_PRODUCER, BatchHeader, read_header
from millstream.protocol.wire import MalformedRequest
from millstream.storage.producer_state import RefusedBatch

if TYPE_CHECKING:
    from millstream.broker.routing.relay import ClientRelay

Key = tuple[str | bytes, int]

PRODUCE_LANE = "produce"
_NOWHERE = -1
# A lost leader has a successor within about a second; the client's other partitions wait meanwhile.
PATIENCE_SECONDS = 5.0
_RETRY_SECONDS = 0.05
# A client that knows other nodes may have sent the previous batch through another node: it is awaited for this long.
_EARLY_SECONDS = 1.0
# Added to the request's own timeout, after which the leader answers by itself.
_GRACE_SECONDS = 2.0
# Errors of a node that is no longer the leader; the batch may be in its log or not.
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)
# Errors of a leader that did not write this batch now; an earlier attempt may have been written.
_REFUSED_FOR_NOW = (
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)  # fmt: skip
# How long librdkafka repeats a message; other clients give up earlier.
_SENT_AGAIN_SECONDS = 300.0
_MOST_REFUSED = 1_000
_BEFORE_IT = "a batch before it was not written, and is to be sent first"
_MAGIC_AT = 16


class _Waiting(msgspec.Struct, eq=False):
    """One partition's batch, until it is answered."""

    request: "_Request"
    key: Key
    records: memoryview | None
    outcome: PartitionOutcome
    header: BatchHeader | None
    """None for a batch that the leader would not recognise if it arrived twice."""
    node: int = _NOWHERE
    may_be_written: bool = False


class _Request(msgspec.Struct, eq=False):
    context: Call
    reply: ReplySlot | None
    produce: ProduceRequest
    deadline: float
    early_until: float
    size_bytes: int
    batches: list[_Waiting]
    left: int


class ProduceRelay:
    def __init__(self, relay: "ClientRelay") -> None:
        self._relay = relay
        self._lines: dict[Key, deque[_Waiting]] = {}
        self._stuck: dict[Key, None] = {}
        """Partitions with a batch that waits to be sent or repeated."""
        self._refused: dict[Key, tuple[int, RefusedBatch, float]] = {}
        """By partition: the first batch that a producer has to send again, and until when it is awaited."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def takes(self, context: Call, request: memoryview, position: int) -> object:
        produce = decode_produce(request, position, context.version)
        if not self._lines and not any(self._relay.is_proxied(topic) for topic, _ in produce.topics):
            return produce
        targets, me = self._relay.targets, self._relay.node_id
        nodes: list[int] = []
        leaderless: list[tuple[Key, memoryview | None]] = []
        is_here = True
        for topic, partitions in produce.topics:
            for index, records in partitions:
                # A partition without a known leader goes to this node, which refuses it.
                leader = targets.leader(topic, index)
                nodes.append(me if leader is None else leader)
                key = (topic, index)
                if leader is None and self._relay.is_proxied(topic):
                    leaderless.append((key, records))
                is_here = is_here and nodes[-1] == me and key not in self._lines and key not in self._refused
        if is_here:
            for key, records in leaderless:
                self._refuses(key, _known_header(records))
            return produce
        # Copied: the read buffer is reused at once, and a repeated batch is needed for longer.
        body = memoryview(bytes(request[position:]))
        produce = decode_produce(body, 0, context.version)
        places = [(topic, *each) for topic, partitions in produce.topics for each in partitions]
        self._begin(context, produce, body, [*zip(places, nodes, strict=True)])
        return TAKEN

    @property
    def is_busy(self) -> bool:
        return bool(self._lines)

    @property
    def has_unacknowledged(self) -> bool:
        """Whether a batch is under way for which the client awaits no answer (acks=0)."""
        return any(batch.request.reply is None for line in self._lines.values() for batch in line)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._lines.clear()
        self._stuck.clear()
        self._refused.clear()

    def _begin(
        self,
        context: Call,
        produce: ProduceRequest,
        body: memoryview,
        places: list[tuple[tuple[str | bytes, int, memoryview | None], int]],
    ) -> None:
        relay = self._relay
        patience = min(max(produce.timeout_ms, 0) / 1000, PATIENCE_SECONDS)
        # A request with acks=0 has no place in the order of replies.
        reply = context.reply_later() if produce.acks else None
        now = relay.loop.time()
        early_until = now if relay.is_only_node else now + min(patience, _EARLY_SECONDS)
        request = _Request(context, reply, produce, now + patience, early_until, len(body), [], 0)
        by_node: dict[int, list[_Waiting]] = {}
        early: list[_Waiting] = []
        for (topic, index, records), node in places:
            batch = _Waiting(
                request, (topic, index), records, PartitionOutcome(topic, index), _known_header(records)
            )
            request.batches.append(batch)
            if self._is_refused_before(batch.key, batch.header):
                early.append(batch)
                continue
            line = self._lines.setdefault(batch.key, deque())
            if not line or line[-1].node == node:
                batch.node = node
                by_node.setdefault(node, []).append(batch)
            else:
                self._stick(batch.key)
            line.append(batch)
        request.left = len(request.batches)
        relay.held.take(len(body))
        for node, batches in by_node.items():
            is_whole = len(batches) == request.left and produce.acks != 0
            self._send(node, request, batches, (body,) if is_whole else None)
        for batch in early:
            self._fail(batch, _BEFORE_IT)

    def _send(
        self, node: int, request: _Request, batches: list[_Waiting], body: Buffers | None = None
    ) -> None:
        """`body` is the unchanged request, where one node gets all of it."""
        context, produce = request.context, request.produce
        self._relay.send(
            node,
            PRODUCE_LANE,
            context,
            body or _body_of(request, batches),
            max(produce.timeout_ms, 0) / 1000 + _GRACE_SECONDS,
            lambda reply: self._answered(node, request, batches, reply),
        )

    # -- answers

    def _answered(
        self, node: int, request: _Request, batches: list[_Waiting], reply: memoryview | LaneLost
    ) -> None:
        if self._is_closed:
            return
        if not isinstance(reply, LaneLost):
            try:
                outcomes = decode_produce_reply(
                    self._relay.body(request.context, reply), request.context.version
                )
            except MalformedRequest as error:
                reply = LaneLost(f"node {node} answered something else: {error}", was_sent=True)
            else:
                # A partition that is named twice has two outcomes, in the order of its batches.
                found: dict[Key, deque[PartitionOutcome]] = {}
                for each in outcomes:
                    found.setdefault((each.topic, each.index), deque()).append(each)
                for batch in batches:
                    of_partition = found.get(batch.key)
                    self._heard(batch, of_partition.popleft() if of_partition else None)
        if isinstance(reply, LaneLost):
            for batch in batches:
                self._lost(batch, reply)

    def _heard(self, batch: _Waiting, outcome: PartitionOutcome | None) -> None:
        if outcome is None:
            self._lost(batch, LaneLost("the leader's answer lacks a partition", was_sent=True))
            return
        is_moved = outcome.error in _MOVED
        # An earlier batch will be repeated, or arrives through the node that the client took for the leader before.
        is_gap = outcome.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        is_early = is_gap and (
            batch.key in self._stuck or self._relay.loop.time() < batch.request.early_until
        )
        if (is_moved or is_early) and batch.header is not None:
            batch.may_be_written |= is_moved
            self._set_aside(batch)
        elif batch.may_be_written and outcome.error in _REFUSED_FOR_NOW:
            # A client that got this error would conclude that the batch was not written.
            self._fail(batch, f"an attempt before was not answered, and now: {outcome.error.name}")
        elif is_gap and self._is_refused_before(batch.key, batch.header):
            self._fail(batch, _BEFORE_IT)
        else:
            if is_moved or outcome.error in _REFUSED_FOR_NOW:
                self._refuses(batch.key, batch.header)
            self._finish(batch, outcome)

    def _lost(self, batch: _Waiting, lost: LaneLost) -> None:
        batch.may_be_written |= lost.was_sent
        if batch.header is not None or not lost.was_sent:
            self._set_aside(batch)
        else:
            self._fail(batch, str(lost))

    def _set_aside(self, batch: _Waiting) -> None:
        batch.node = _NOWHERE
        self._relay.metrics.retries.value += 1
        self._stick(batch.key)

    def _stick(self, key: Key) -> None:
        self._stuck[key] = None
        if self._timer is None:
            self._timer = self._relay.loop.call_later(_RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        for key in list(self._stuck):
            line = self._lines.get(key)
            if line is None:
                self._stuck.pop(key, None)
            elif all(each.node == _NOWHERE for each in line):
                del self._stuck[key]
                self._send_line(key, list(line))
        if self._stuck and self._timer is None:
            self._timer = self._relay.loop.call_later(_RETRY_SECONDS, self._try_again)

    def _send_line(self, key: Key, line: list[_Waiting]) -> None:
        leader = self._relay.targets.leader(*key)
        is_late = line[0].request.deadline <= self._relay.loop.time()
        if leader is None or is_late:
            # Later ones too: they must not arrive before it.
            for batch in line:
                self._fail(batch, "the partition's leader cannot be reached")
            return
        for batch in line:
            batch.node = leader
            self._send(leader, batch.request, [batch])

    def _fail(self, batch: _Waiting, reason: str) -> None:
        outcome = batch.outcome
        outcome.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if batch.may_be_written:
            outcome.error = ErrorCode.REQUEST_TIMED_OUT
        outcome.message = reason
        self._refuses(batch.key, batch.header)
        self._finish(batch, outcome)

    def _finish(self, batch: _Waiting, outcome: PartitionOutcome) -> None:
        batch.outcome = outcome
        line = self._lines.get(batch.key)
        if line is not None and batch in line:
            line.remove(batch)
            if not line:
                del self._lines[batch.key]
                self._stuck.pop(batch.key, None)
        request = batch.request
        request.left -= 1
        if request.left == 0:
            self._complete(request)

    def _refuses(self, key: Key, header: BatchHeader | None) -> None:
        """Note that the client will send the batch again; later batches have to wait for it."""
        if header is None or self._is_refused_before(key, header):
            return
        if key not in self._refused and len(self._refused) >= _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        # A client that knows other nodes may send the batch to one of them.
        seconds = _SENT_AGAIN_SECONDS if self._relay.is_only_node else PATIENCE_SECONDS
        refused = RefusedBatch(header.producer_epoch, header.base_sequence)
        self._refused[key] = header.producer_id, refused, self._relay.loop.time() + seconds

    def _is_refused_before(self, key: Key, header: BatchHeader | None) -> bool:
        """Whether an earlier batch has to come first. The awaited batch itself is forgotten when it arrives."""
        known = self._refused.get(key)
        if known is None or header is None:
            return False
        producer_id, refused, until = known
        if (
            header.producer_id == producer_id
            and refused.comes_before(header)
            and until > self._relay.loop.time()
        ):
            return True
        del self._refused[key]
        return False

    def _complete(self, request: _Request) -> None:
        outcomes = [batch.outcome for batch in request.batches]
        if request.reply is not None:
            request.reply.answer(outcomes)
        elif any(outcome.error for outcome in outcomes):
            # A leader closes the connection too: acks=0 has no reply.
            reason = next(outcome.message or outcome.error.name for outcome in outcomes if outcome.error)
            self._relay.connection.refuse(reason)
        # Breaks a reference cycle that only the garbage collector would free.
        request.batches.clear()
        self._relay.held.give_back(request.size_bytes)


def _body_of(request: _Request, batches: list[_Waiting]) -> Buffers:
    produce = request.produce
    return encode_produce_request(
        request.context.version,
        produce.transactional_id,
        # Leaders always answer, so that the bytes under way are known; the client gets no answer to acks=0.
        produce.acks or 1,
        produce.timeout_ms,
        [Batch(*each.key, each.records) for each in batches],
    )


def _known_header(records: memoryview | None) -> BatchHeader | None:
    """The header, if the leader recognises the batch when it arrives twice."""
    if records is None or len(records) < HEADER_SIZE or records[_MAGIC_AT] != MAGIC:
        return None
    header = read_header(records)
    return header if header.producer_id != NO_PRODUCER and header.base_sequence >= 0 else None
