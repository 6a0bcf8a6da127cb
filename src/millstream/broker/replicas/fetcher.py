"""Fetches from one leader: one connection, and one long poll for all partitions that it leads."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import islice

from millstream.broker.partitions.partition import Partition
from millstream.broker.replicas.conversation import Conversation
from millstream.broker.replicas.following import Copying, Following, Superseded
from millstream.broker.replicas.link import ReplicaLink, WakeUp
from millstream.broker.replicas.sessions import is_urgent
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchedPartition
from millstream.protocol.record_batch import CorruptBatch
from millstream.protocol.replica_fetch import (
    Key,
    ReplicaFetchReply,
    ReplicaFetchRequest,
    decode_reply,
    encode_body,
)

log = get_logger("millstream.replicas")

# Small enough to stay in the processor's cache: four times as much costs a fifth more CPU.
_REPLY_BYTES = 4 << 20
# A reply may come this much later than the request allows the leader to wait.
_SILENCE_SECONDS = 2.5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_MOST_IN_FLIGHT = 2
# Partitions in one request: a leader handles them all in one turn, and a request has a limit.
_MOST_AT_ONCE = 5_000


class ReplicaFetcher:
    """While one request waits at the leader, a second one may report new positions."""

    def __init__(self, copying: Copying, leader_id: int) -> None:
        self._copying = copying
        self._loop = copying.machine.loop
        self._leader_id = leader_id
        self._max_wait_ms = copying.max_wait_ms
        self._followed: dict[Key, Following] = {}
        self._unreported: dict[Key, None] = {}
        """Partitions whose position the next request reports."""
        self._forgotten: dict[Key, None] = {}
        self._urgent = False
        self._wake_up = WakeUp(self._loop)
        self._requests = 0
        self._is_interrupted = False
        self._is_waking = False
        self._conversation: Conversation | None = None
        self._patience = self._max_wait_ms / 1000 + _SILENCE_SECONDS
        self._session = (0, 0)
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._task: asyncio.Task[None] | None = None
        self._beginnings: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, partition: Partition, leader_epoch: int) -> None:
        key = partition.topic_id, partition.index
        self.unfollow(partition)
        following = self._followed[key] = Following(self._copying, partition, leader_epoch)
        self._forgotten.pop(key, None)
        if following.has_to_sync:
            self._begin(key, following)
        else:
            # The usual case, and thousands of partitions may come at once.
            partition.log.end_epochs()
            self._say(key)
        if self._task is None:
            self._task = self._loop.create_task(keep_going(self._run), name=f"fetcher of {self._leader_id}")

    def unfollow(self, partition: Partition) -> None:
        key = partition.topic_id, partition.index
        following = self._followed.pop(key, None)
        if following is None:
            return
        following.is_over = True
        self._unreported.pop(key, None)
        self._cancel_timer(key)
        if following.asked_from >= 0:
            self._forgotten[key] = None
            self._wake()

    def say(self, partition: Partition) -> None:
        """Report a change in this partition to the leader."""
        key = partition.topic_id, partition.index
        following = self._followed.get(key)
        if following is not None and following.asked_from >= 0:
            self._say(key)

    def stop(self) -> list["asyncio.Task[None]"]:
        """Returns the tasks that are ending."""
        for following in self._followed.values():
            following.is_over = True
        for key in list(self._timers):
            self._cancel_timer(key)
        tasks = [*self._beginnings, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        return tasks

    def leader_changed(self) -> None:
        """The leader's broker was registered, let in or fenced: try again now."""
        self._wake_up.wake()

    def _start(self, work: "Coroutine[None, None, None]", name: str) -> "asyncio.Task[None]":
        task = self._loop.create_task(work, name=name)
        self._beginnings[task] = None
        task.add_done_callback(lambda ended: self._beginnings.pop(ended, None))
        return task

    def _begin(self, key: Key, following: Following) -> None:
        self._start(keep_going(partial(self._until_begun, key, following)), "beginning to follow")

    async def _until_begun(self, key: Key, following: Following) -> None:
        while not following.is_over:
            try:
                await following.begin()
            except Superseded:
                return
            except KafkaError as error:
                if following.partition.log.health.is_gone:
                    return
                if following.partition.log.offline is not None:
                    self._give_up(key, following, error)
                    return
                await asyncio.sleep(following.next_pause())
            else:
                self._say(key)
                return

    def _say(self, key: Key) -> None:
        """Ask for this partition in the next request, which does not wait for the reply to the last one."""
        if key in self._followed:
            self._unreported[key] = None
            self._forgotten.pop(key, None)
            self._wake()

    def _wake(self) -> None:
        self._urgent = True
        self._wake_up.wake()
        if not self._is_waking and self._conversation is not None:
            # In the next turn, to include all that changes in this one.
            self._is_waking = True
            self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._is_waking = False
        self._go_on()

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    # The conversation

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            if not self._followed:
                self._wake_up.clear()
                await self._wake_up.wait()
                continue
            link = None
            try:
                link = await self._connect()
                await self._converse(link)
            except (OSError, EOFError, TimeoutError, KafkaError) as error:
                # Longer after each failure in a row.
                pause = min(2 * pause, _LONGEST_PAUSE) if self._is_interrupted else _FIRST_PAUSE
                if not self._is_interrupted:
                    self._is_interrupted = True
                    log.info("fetching interrupted", leader=self._leader_id, error=str(error) or repr(error))
            else:
                pause = _FIRST_PAUSE
            finally:
                if link is not None:
                    link.close()
            self._wake_up.clear()
            await self._wake_up.wait(pause)

    async def _connect(self) -> ReplicaLink:
        leader = self._copying.metadata.image.brokers.get(self._leader_id)
        if leader is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._leader_id} is not registered")
        endpoint = leader.for_nodes
        return await ReplicaLink.connect(endpoint.host, endpoint.port)

    async def _converse(self, link: ReplicaLink) -> None:
        """Fetch until nothing is left to follow, or the connection or the session breaks."""
        self._session = (0, 0)
        self._forgotten.clear()
        self._unreported = {
            key: None
            for key, each in self._followed.items()
            if each.asked_from >= 0 or key in self._unreported
        }
        conversation = self._conversation = Conversation(self._loop, link, self._patience)
        try:
            self._go_on()
            await asyncio.wait([conversation.ended])
        finally:
            self._conversation = None
            conversation.close()
        if conversation.work is not None:
            # A log that is being truncated is asked for again only afterwards.
            await asyncio.wait([conversation.work])
        conversation.ended.result()

    def _go_on(self) -> None:
        """Send a request when none is under way, or when there is news that cannot wait for its reply."""
        conversation = self._conversation
        if conversation is None or conversation.is_busy or conversation.ended.done():
            return
        if not self._followed and not conversation.waiting:
            conversation.end()
            return
        under_way = len(conversation.waiting)
        if under_way == 0 or (self._urgent and under_way < _MOST_IN_FLIGHT and self._session[0]):
            number, request = self._next_request()
            conversation.send(number, request, self._replied)
            if self._urgent:
                self._wake()

    def _next_request(self) -> tuple[int, bytes]:
        session_id, epoch = self._session
        self._requests += 1
        reported = list(islice(self._unreported, _MOST_AT_ONCE))
        forgotten = tuple(islice(self._forgotten, _MOST_AT_ONCE))
        partitions = {}
        for key in reported:
            del self._unreported[key]
            following = self._followed[key]
            if not following.is_fully_durable:
                self._begin(key, following)
                continue
            if following.asked_from < 0:
                following.asked_from = self._requests
            partitions[key] = following.request()
        request = ReplicaFetchRequest(
            self._copying.node_id,
            self._copying.metadata.broker_epoch,
            session_id,
            epoch,
            # The first reply, which names the session, does not wait.
            self._max_wait_ms if session_id else 0,
            _REPLY_BYTES,
            partitions,
            forgotten,
        )
        for key in forgotten:
            del self._forgotten[key]
        # What did not fit follows at once.
        self._urgent = bool(self._unreported or self._forgotten)
        self._session = session_id, epoch + 1 if epoch < 2**31 - 1 else 1
        return self._requests, encode_body(request)

    def _replied(self, conversation: Conversation, number: int, body: memoryview) -> None:
        """Handle a whole reply: mostly at once, and the next request is sent."""
        rest = self._handle(number, decode_reply(body))
        if not rest:
            conversation.link.give_back(body)
            self._go_on()
            return
        conversation.work = self._start(self._finish(conversation, body, rest), "fetched")

    async def _finish(
        self,
        conversation: Conversation,
        body: memoryview,
        rest: list[tuple[Key, Following, FetchedPartition]],
    ) -> None:
        """Handle what has to wait for a disk; meanwhile nothing is sent, and no other reply is handled."""
        try:
            if len(rest) == 1:
                await self._apply(*rest[0])
            else:
                await asyncio.gather(*(self._apply(*each) for each in rest))
        except Exception as error:  # noqa: BLE001 - raised where the conversation is waited for
            conversation.end(error)
        else:
            conversation.link.give_back(body)
            conversation.resume()
            self._go_on()

    def _handle(self, number: int, reply: ReplicaFetchReply) -> list[tuple[Key, Following, FetchedPartition]]:
        """Handle a reply; returns those of its partitions that may have to wait for a disk."""
        if reply.error:
            raise KafkaError(reply.error, f"broker {self._leader_id} answered {reply.error.name}")
        if self._is_interrupted:
            self._is_interrupted = False
            log.info("fetching", leader=self._leader_id, partitions=len(self._followed))
        if self._session[0] == 0:
            self._session = reply.session_id, self._session[1]
        left = []
        for found in reply.partitions:
            key = _key(found)
            following = self._followed.get(key)
            if following is None or not 0 <= following.asked_from <= number:
                continue
            try:
                if following.may_wait_for(found) or not following.take(found):
                    left.append((key, following, found))
                    continue
            except KafkaError as error:
                self._failed(key, following, error)
            else:
                self._applied(key, following, found)
        return left

    async def _apply(self, key: Key, following: Following, found: FetchedPartition) -> None:
        try:
            await following.handle(found)
        except Superseded:
            return
        except KafkaError as error:
            self._failed(key, following, error)
        else:
            self._applied(key, following, found)

    def _applied(self, key: Key, following: Following, found: FetchedPartition) -> None:
        if is_urgent(found) or following.has_moved:
            self._unreported[key] = None
        self._hold_back(key, following.partition, len(found.records))

    def _hold_back(self, key: Key, partition: Partition, size_bytes: int) -> None:
        """Ask later for a partition that is copied faster than the throttle allows."""
        throttle, me = self._copying.throttle, self._copying.node_id
        throttle.spend(partition, me, size_bytes)
        seconds = throttle.wait_seconds(partition, me)
        if seconds > 0 and key in self._followed:
            self._unreported.pop(key, None)
            self._forgotten[key] = None
            self._cancel_timer(key)
            self._timers[key] = self._loop.call_later(seconds, partial(self._say, key))

    def _failed(self, key: Key, following: Following, error: KafkaError) -> None:
        if self._followed.get(key) is not following:
            return
        if following.partition.log.offline is not None:
            self._give_up(key, following, error)
            return
        if isinstance(error, CorruptBatch):
            self._copying.faults.damaged(None, -1, error)
        elif error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._copying.faults.failed("replicate", error)
        self._cancel_timer(key)
        again: Callable[[], None] = partial(self._ask_again, key, following)
        self._timers[key] = self._loop.call_later(following.next_pause(), again)

    def _ask_again(self, key: Key, following: Following) -> None:
        if self._followed.get(key) is following:
            self._begin(key, following)

    def _give_up(self, key: Key, following: Following, error: KafkaError) -> None:
        """The log is offline: stop following it. The node ends, and follows again after its next start."""
        log.error(
            "replica offline",
            topic=following.partition.topic,
            partition=following.partition.index,
            error=error.message,
        )
        if self._followed.get(key) is following:
            self.unfollow(following.partition)
        self._copying.faults.failed("replicate", error)


def _key(found: FetchedPartition) -> Key:
    return (found.topic if isinstance(found.topic, bytes) else found.topic.encode()), found.index
