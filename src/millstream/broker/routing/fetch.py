"""One client's fetches from several leaders, as if one node had all partitions.

Each leader gets a long poll of its own. The first records that arrive answer the client; the other polls go on, and
their records are kept for the client's next fetch, which asks at the same offsets. So no leader waits for another,
nothing is fetched twice, and a client that follows the log gets new records at once. This node keeps the client's
session (KIP-227); leaders are asked without one.
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from millstream.broker.api.call import Call, ReplySlot
from millstream.broker.handlers.fetch import MAX_REPLY_BYTES, Wanted
from millstream.broker.handlers.fetch_sessions import FetchSession
from millstream.broker.routing.fetch_source import FetchSource, Key
from millstream.broker.routing.targets import topic_of
from millstream.broker.server.listener import TAKEN
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import (
    TOPIC_ID_FROM,
    FetchAnswer,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_fetch,
)

if TYPE_CHECKING:
    from millstream.broker.routing.relay import ClientRelay

# A poll that was repeated for more bytes ends with the client's wait time; the answer may take this much longer.
_GRACE_SECONDS = 0.1
# While a leader that was asked for an immediate answer is silent, other leaders' records are held back for this long,
# or for the client's wait time if that is longer.
_SILENCE_SECONDS = 1.0
# Records kept for a client's next fetch are dropped after this time, to free memory.
_KEEP_SECONDS = 2.0


class _Wanted(NamedTuple):
    topic: str | bytes
    """As the client names it."""
    key: Key
    request: FetchPartition
    node: int | None
    error: ErrorCode = ErrorCode.NONE


class _Fetch(msgspec.Struct):
    context: Call
    reply: ReplySlot
    request: FetchRequest
    session: FetchSession | None
    wanted: list[_Wanted]
    deadline: float
    by_node: dict[int, dict[Key, FetchPartition]] = msgspec.field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None
    unanswered_timer: asyncio.TimerHandle | None = None
    is_patient: bool = True
    """Whether records found elsewhere wait for leaders that were asked to answer at once."""

    def cancel_timers(self) -> None:
        for timer in (self.timer, self.unanswered_timer):
            if timer is not None:
                timer.cancel()


class FetchRelay:
    def __init__(self, relay: "ClientRelay") -> None:
        self._relay = relay
        self._sources: dict[int, FetchSource] = {}
        self._current: _Fetch | None = None
        self._line: deque[tuple[Call, ReplySlot, FetchRequest]] = deque()
        self._forgetting: asyncio.TimerHandle | None = None
        self._is_closed = False

    def takes(self, context: Call, request: memoryview, position: int) -> object:
        fetch = decode_fetch(request, position, context.version)
        if fetch.replica_id >= 0:
            # The connection belongs to a follower, which only asks for this node's own partitions.
            context.speak_for(None)
            return fetch
        is_idle = self._current is None and not self._line and not self._sources
        if is_idle and not (
            fetch.session_id or any(self._relay.is_proxied(topic) for topic, _ in fetch.topics)
        ):
            return fetch
        self._relay.relays.fetch_requests.value += 1
        if self._current is not None or self._line:
            # Clients usually wait for an answer before they fetch again; otherwise fetches are answered in order.
            self._line.append((context, context.reply_later(), fetch))
        else:
            self._begin(context, None, fetch)
        return TAKEN

    def close(self) -> None:
        self._is_closed = True
        self._line.clear()
        if self._current is not None:
            self._current.cancel_timers()
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._current = None
        self._close_sources()

    def _close_sources(self) -> None:
        sources, self._sources = self._sources, {}
        for source in sources.values():
            source.close()

    # -- a fetch begins

    def _begin(self, context: Call, reply: ReplySlot | None, fetch: FetchRequest) -> None:
        relays = self._relay.relays
        by_topic_id = context.version >= TOPIC_ID_FROM
        try:
            session = relays.fetch_sessions.open(
                fetch, by_topic_id=by_topic_id, now=relays.machine.clock.monotonic()
            )
        except KafkaError as error:
            context.count_error(error.code)
            context.reply(FetchAnswer(error=error.code))
            return
        asked = (
            [(topic, partition) for topic, partitions in fetch.topics for partition in partitions]
            if session is None
            else session.wanted()
        )
        if self._relay.is_only_node:
            # No client is sent to another node to read.
            fetch = fetch._replace(rack_id="")
        is_here = reply is None and not self._is_any_proxied(asked)
        wanted = [] if is_here else [self._find(topic, partition) for topic, partition in asked]
        nodes = {each.node for each in wanted if each.node is not None}
        if reply is None and nodes <= {self._relay.node_id}:
            self._close_sources()
            found = relays.client_fetches().answer(context, fetch, session, asked)
            relays.dispatcher.conclude(context, found)
            return
        current = _Fetch(
            context,
            reply or context.reply_later(),
            fetch,
            session,
            wanted,
            self._relay.loop.time() + max(fetch.max_wait_ms, 0) / 1000,
        )
        for each in wanted:
            if each.node is not None:
                current.by_node.setdefault(each.node, {})[each.key] = each.request
        self._current = current
        context.reply_later(on_hurried=self._hurry)
        self._ask_all(current)
        self._arm(current, current.deadline)
        if any(source.is_asking_at_once for source in self._sources.values()):
            until = max(current.deadline, self._relay.loop.time() + _SILENCE_SECONDS)
            current.unanswered_timer = self._relay.loop.call_at(until, self._end_silence)
        self._consider()

    def _is_any_proxied(self, asked: Wanted) -> bool:
        """By topic: much quicker than looking up each partition."""
        return any(self._relay.is_proxied(topic) for topic in dict.fromkeys(topic for topic, _ in asked))

    def _find(self, topic: str | bytes, request: FetchPartition) -> _Wanted:
        image = self._relay.image
        found = topic_of(image, topic)
        if found is None or not 0 <= request.partition < len(found.partitions):
            unknown = found is None and isinstance(topic, bytes)
            error = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _Wanted(topic, (b"", request.partition), request, None, error)
        node = self._relay.targets.leader(topic, request.partition)
        if node is None and not self._relay.routing.is_proxied(found):
            # This node refuses the partition, or has a replica that the client may read from.
            node = self._relay.node_id
        error = ErrorCode.NONE if node is not None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _Wanted(topic, (found.topic_id.bytes, request.partition), request, node, error)

    def _ask_all(self, current: _Fetch) -> None:
        for node in [each for each in self._sources if each not in current.by_node]:
            self._sources.pop(node).close()
        request = current.request
        for node, partitions in current.by_node.items():
            if node not in self._sources:
                self._sources[node] = FetchSource(self._relay, node, self._consider)
            source = self._sources[node]
            source.want(partitions)
            if not source.is_asking and not source.found:
                self._ask(current, source, max(request.min_bytes // len(current.by_node), 1))

    def _ask(self, current: _Fetch, source: FetchSource, min_bytes: int) -> None:
        request = current.request
        wait = current.deadline - self._relay.loop.time()
        # The reply needs the state of every partition, so unknown states are asked for without waiting.
        is_instant = wait <= 0 or request.min_bytes <= 0 or not source.is_known
        wait_ms = 0 if is_instant else max(round(wait * 1000), 1)
        max_bytes = max(request.max_bytes // len(current.by_node), min_bytes)
        # Only this node may point the client to a closer replica; other leaders are asked without a rack.
        rack_id = request.rack_id if source.node == self._relay.node_id else ""
        source.ask(current.context, request.isolation_level, max_bytes, wait_ms, min_bytes, rack_id)

    def _arm(self, current: _Fetch, at: float) -> None:
        if current.timer is not None:
            current.timer.cancel()
        current.timer = self._relay.loop.call_at(at, self._consider)

    def _hurry(self) -> None:
        if self._current is not None:
            self._current.deadline = self._relay.loop.time()
            self._consider()

    def _end_silence(self) -> None:
        if self._current is not None:
            self._current.is_patient = False
            self._consider()

    # -- and ends

    def _consider(self) -> None:
        """Answer, ask again or go on waiting, after an answer arrived or the deadline passed."""
        current = self._current
        if self._is_closed:
            return
        if current is None:
            self._keep_for_a_while()
            return
        sources = list(self._sources.values())
        if any(source.is_asking_at_once for source in sources) and (
            current.is_patient or not any(source.found for source in sources)
        ):
            return
        now = self._relay.loop.time()
        found = sum(source.found_bytes for source in sources)
        is_late = now >= current.deadline
        if (
            is_late
            or found >= current.request.min_bytes
            or any(each.error for each in current.wanted)
            or any(source.has_news for source in sources)
        ):
            if is_late and self._waits_for_more(current, sources, now):
                return
            self._finish(current, sources)
            return
        missing = current.request.min_bytes - found
        for source in sources:
            # However the missing bytes are spread over leaders, one has at least its share once all exist.
            share = source.found_bytes + max(missing // len(sources), 1)
            if source.is_asking and source.min_bytes > share:
                source.stop()
            if not source.is_asking:
                self._ask(current, source, share)

    def _waits_for_more(self, current: _Fetch, sources: list[FetchSource], now: float) -> bool:
        end = current.deadline + _GRACE_SECONDS
        if now >= end or not any(source.is_asking and source.found_bytes for source in sources):
            return False
        self._arm(current, end)
        return True

    def _finish(self, current: _Fetch, sources: list[FetchSource]) -> None:
        current.cancel_timers()
        left = min(current.request.max_bytes, MAX_REPLY_BYTES)
        taken: dict[Key, FetchedPartition] = {}
        for source in sources:
            left = source.take(left, taken)
        if taken and len(sources) > 1:
            # Sources that were served move to the end, so that a small limit starves none.
            for source in sources:
                if any(key in taken for key in current.by_node[source.node]):
                    self._sources[source.node] = self._sources.pop(source.node)
        fetched = [self._fetched(each, taken) for each in current.wanted]
        session = current.session
        session_id = 0
        if session is not None:
            fetched = session.changed(fetched, full=current.request.session_epoch == 0)
            session_id = session.session_id
        self._current = None
        current.reply.answer(FetchAnswer(fetched, session_id))
        while self._line and self._current is None:
            self._begin(*self._line.popleft())
        self._keep_for_a_while()

    def _keep_for_a_while(self) -> None:
        if not any(source.found for source in self._sources.values()):
            return
        if self._relay.server.reply_memory.free_bytes <= 0:
            self._forget_found()
        elif self._forgetting is None:
            self._forgetting = self._relay.loop.call_later(_KEEP_SECONDS, self._forget_found)

    def _forget_found(self) -> None:
        """Drop kept records, unless a fetch is waiting that they may answer. The next fetch asks for them again."""
        self._forgetting = None
        if self._current is None:
            for source in self._sources.values():
                source.forget()

    def _fetched(self, wanted: _Wanted, taken: dict[Key, FetchedPartition]) -> FetchedPartition:
        index = wanted.request.partition
        if wanted.error or wanted.node is None:
            return FetchedPartition(wanted.topic, index, wanted.error)
        # The records are sent once, however often the request names the partition.
        found = taken.pop(wanted.key, None)
        if found is not None:
            found.topic = wanted.topic
            return found
        return self._sources[wanted.node].without_news(wanted.topic, wanted.key)
