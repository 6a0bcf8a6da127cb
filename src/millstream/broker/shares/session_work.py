"""One request of a share session: the work that ShareFetch and ShareAcknowledge have in common."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

import msgspec

from millstream.broker.api.call import Call
from millstream.broker.server.memory import MemoryBudget
from millstream.broker.shares.acknowledgements import AcknowledgementBatch, outcomes_in, settlements
from millstream.broker.shares.consumers import QUEUES_AT_ONCE, Delivery, all_stored, await_and_acquire
from millstream.broker.shares.led_queue import SLICE, LedQueue
from millstream.broker.shares.sessions import OPEN, Place, ShareSession, ShareSessions, Source
from millstream.broker.shares.shares import Shares
from millstream.broker.shares.taken import NOTHING, Taken, Wanted
from millstream.cluster.metadata.image import MetadataImage
from millstream.doors.queues import Queues
from millstream.protocol.errors import ErrorCode, KafkaError

NOWHERE = (-1, -1)
_SWEEP_SECONDS = 0.5
# Each looks at all queues of the node for its locks.
_MOST_ENDED = 5
_MOST_BYTES = 16 << 20


class Answered(msgspec.Struct):
    """A reply's data for one partition."""

    error: KafkaError | None = None
    acknowledge_error: KafkaError | None = None
    leader: tuple[int, int] = NOWHERE
    taken: Taken = NOTHING


class SessionWork:
    """Share sessions, and the queues that their requests use."""

    def __init__(
        self,
        shares: Shares,
        sessions: ShareSessions,
        image: Callable[[], MetadataImage],
        reply_memory: MemoryBudget,
        queues: Callable[[], Queues],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        """`shares` holds the queues of this node, `queues` covers all nodes."""
        self.shares = shares
        self.sessions = sessions
        self.image = image
        self._reply_memory = reply_memory
        self._queues = queues
        self._spawn = spawn
        self._sweeper: asyncio.TimerHandle | None = None

    def use(
        self, group_id: str, member: str, epoch: int, source: Source, topics: Sequence[Any]
    ) -> ShareSession:
        """The session of a request that names these topics; advances the session's epoch."""
        former = self.sessions.find(group_id, member) if epoch == OPEN else None
        session = self.sessions.use(group_id, member, epoch, source, topics)
        if former is not None and former.source.closed and former.proxied_for is None:
            # The member has reconnected before the sweep ended its old session.
            self.shares.release_member(group_id, member)
        if epoch == OPEN and self._sweeper is None:
            self._sweep()
        return session

    def begin(self, session: ShareSession, call: Call, topics: Iterable[Any]) -> "Work":
        """`topics` are those that the request names."""
        if session.proxied_for is None and not self._is_proxied(session, call, topics):
            return Work(self, session)
        from millstream.broker.shares.proxied_work import ProxiedWork

        session.proxied_for = call.caller
        return ProxiedWork(self, session, self._queues(), call.caller)

    def _is_proxied(self, session: ShareSession, call: Call, topics: Iterable[Any]) -> bool:
        """Whether this node answers for the leaders of any topic of the session: then it does so for all topics."""
        if not call.is_answered_for_others:
            return False
        image = self.image()
        named = {*(topic.topic_id for topic in topics), *(topic_id for topic_id, _ in session.places)}
        known = [topic for each in named if (topic := image.topic_by_id(each)) is not None]
        return call.only_node is not None or any(call.shown_leader(each) is not None for each in known)

    def leader(self, place: Place) -> tuple[int, int]:
        """The leader's id and epoch, for clients that ask the wrong node."""
        topic = self.image().topic_by_id(place[0])
        if topic is None or not 0 <= place[1] < len(topic.partitions):
            return NOWHERE
        partition = topic.partitions[place[1]]
        return partition.leader, partition.leader_epoch

    def most_bytes(self, wanted: int) -> int:
        """The most bytes of a reply, which is in memory until the client has read it; one batch is always sent."""
        return max(min(wanted, _MOST_BYTES, self._reply_memory.free_bytes), 1)

    async def pause(self, seconds: float) -> None:
        """Delay the answer, so that a refused client does not ask again at once."""
        await asyncio.sleep(max(seconds, 0))

    def endpoints(self, answered: Mapping[Place, Answered]) -> Iterator[tuple[int, str, int, str | None]]:
        """Endpoints of the leaders that the reply names."""
        brokers = self.image().brokers
        for node_id in sorted({told.leader[0] for told in answered.values() if told.leader != NOWHERE}):
            broker = brokers.get(node_id)
            if broker is not None:
                endpoint = broker.endpoints[0]
                yield node_id, endpoint.host, endpoint.port, broker.rack

    def _sweep(self) -> None:
        """End sessions whose connections are closed, a few in a turn of the loop, and release their locks."""
        ended = list(islice(self.sessions.ended(), _MOST_ENDED))
        for session in ended:
            if session.proxied_for is None:
                self.shares.release_member(session.group_id, session.member)
            else:
                everywhere = self._queues().release_all(session.proxied_for, session.group_id, session.member)
                self._spawn(everywhere, "releasing locks")
        self._sweeper = None
        if len(self.sessions):
            pause_s = 0 if len(ended) == _MOST_ENDED else _SWEEP_SECONDS
            self._sweeper = asyncio.get_running_loop().call_later(pause_s, self._sweep)

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()


class Work:
    decides_here = True
    """Whether acknowledgements are decided before they are stored, so that later requests need not wait for long."""

    def __init__(self, all_work: SessionWork, session: ShareSession) -> None:
        self.session = session
        self.taken: dict[Place, Taken] = {}
        self.errors: dict[Place, KafkaError] = {}
        self.acknowledged: dict[Place, KafkaError | None] = {}
        self._all = all_work
        self._shares = all_work.shares
        self._opened: dict[Place, LedQueue] = {}
        self._touched: dict[LedQueue, None] = {}

    async def acknowledge(self, topics: Iterable[Any], *, renewing: bool) -> None:
        """Settle the request's acknowledgements."""
        settled = 0
        for place, batches in _given(topics).items():
            count = outcomes_in(batches)
            if settled + count > SLICE:
                await self._shares.pause()
                settled = 0
            settled += count
            self.acknowledged[place] = await self._settle(place, batches, renewing)

    async def _settle(
        self, place: Place, batches: Sequence[AcknowledgementBatch], renewing: bool
    ) -> KafkaError | None:
        try:
            queue = await self._open(place)
            given = settlements(batches, renewing=renewing)
            await queue.settle_in_slices(self.session.member, given, self._shares.pause)
        except KafkaError as error:
            return error
        self._touched[queue] = None
        return None

    def _settle_in(
        self, queue: LedQueue, batches: Sequence[AcknowledgementBatch], renewing: bool
    ) -> KafkaError | None:
        try:
            queue.settle(self.session.member, settlements(batches, renewing=renewing))
        except KafkaError as error:
            return error
        self._touched[queue] = None
        return None

    def settle_here(self, topics: Iterable[Any], *, renewing: bool) -> bool:
        """Like `acknowledge`, without waiting; False, with nothing settled, if that is much to do or a queue is not
        loaded here.
        """
        session = self.session
        given = _given(topics)
        if sum(map(outcomes_in, given.values())) > SLICE or len(session.places) > QUEUES_AT_ONCE:
            return False
        for topic_id, index in {**session.places, **given}:
            queue = self._shares.opened(session.group_id, topic_id, index)
            if queue is None or not queue.is_ready:
                return False
            self._opened[topic_id, index] = queue
        for place, batches in given.items():
            self.acknowledged[place] = self._settle_in(self._opened[place], batches, renewing)
        return True

    def led_here(self) -> list[LedQueue]:
        """The session's queues, which `settle_here` has found, in turn."""
        return [self._opened[place] for place in self.session.in_turn()]

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        for each in deliveries:
            self.taken[each.queue.key.topic_id, each.queue.key.partition] = each.taken

    def touched(self, deliveries: Iterable[Delivery]) -> list[LedQueue]:
        """Queues in which something was settled or delivered."""
        return list(self._touched | {each.queue: None for each in deliveries})

    def not_stored(self, queue: LedQueue, error: KafkaError) -> None:
        """Report that settlements in this queue may be lost."""
        place = (queue.key.topic_id, queue.key.partition)
        if self.acknowledged.get(place, error) is None:
            self.acknowledged[place] = error

    def note_moved(self, queues: Iterable[LedQueue]) -> None:
        """Report queues that another node leads by now."""
        for queue in queues:
            if not queue.partition.is_leader:
                place = (queue.key.topic_id, queue.key.partition)
                self.errors[place] = queue.partition.not_leader()

    async def fetch(self, wanted: Wanted, max_wait_s: float) -> None:
        """Lock messages that are available, or arrive in this time."""
        queues = await self._led()
        self.deliver(await await_and_acquire(queues, self.session.member, wanted, max_wait_s))
        if not self.taken and max_wait_s > 0:
            # Report queues that moved to another node during the wait.
            await self._led()

    async def release(self) -> None:
        """The session is closed: release the member's locks."""
        for queue in self._shares.release_member(self.session.group_id, self.session.member):
            self._touched[queue] = None

    async def _led(self) -> list[LedQueue]:
        """Queues of the session's partitions that this node leads; errors of the others are noted."""
        self.errors.clear()
        found = []
        for number, place in enumerate(self.session.in_turn(), 1):
            if number % QUEUES_AT_ONCE == 0:
                await self._shares.pause()
            try:
                found.append(await self._open(place))
            except KafkaError as error:
                self.errors[place] = error.as_value()
        return found

    async def stored(self) -> None:
        """Wait until acknowledgements are durable; those that fail are reported in their partitions."""
        for queue, error in (await all_stored(self._touched)).items():
            self.not_stored(queue, error)

    def answered(self, *, full: bool) -> dict[Place, Answered]:
        """The reply's data by partition; `full` includes partitions without news."""
        told: dict[Place, Answered] = {place: Answered() for place in self.session.places} if full else {}
        for place, error in self.errors.items():
            told.setdefault(place, Answered()).error = error
        for place, refused in self.acknowledged.items():
            told.setdefault(place, Answered()).acknowledge_error = refused
        for place, taken in self.taken.items():
            told.setdefault(place, Answered()).taken = taken
        for place, each in told.items():
            why = each.error or each.acknowledge_error
            if why is not None and why.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                each.leader = self._leader(place)
        return told

    def lock_ms(self) -> int:
        queue = next(iter(self._opened.values()), None)
        return 0 if queue is None else queue.engine.policy.lock_ms

    def _leader(self, place: Place) -> tuple[int, int]:
        return self._all.leader(place)

    async def _open(self, place: Place) -> LedQueue:
        topic_id, index = place
        queue = self._shares.opened(self.session.group_id, topic_id, index)
        if queue is None or not queue.is_ready:
            check_known(self._all.image(), topic_id, index)
            queue = await self._shares.open(self.session.group_id, topic_id.bytes, index)
        self._opened[place] = queue
        return queue


def _given(topics: Iterable[Any]) -> dict[Place, list[AcknowledgementBatch]]:
    """Acknowledgements by partition. A partition named twice gets one answer, so it is settled as a whole too."""
    given: dict[Place, list[AcknowledgementBatch]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                place = (topic.topic_id, partition.partition_index)
                given.setdefault(place, []).extend(partition.acknowledgement_batches)
    return given


def check_known(image: MetadataImage, topic_id: UUID | None, index: int) -> str:
    """The topic's name; KafkaError where there is no such partition."""
    topic = None if topic_id is None else image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {index}")
    return topic.name
