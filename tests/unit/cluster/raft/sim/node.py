"""One simulated node: the real member and write-ahead log on a disk that loses what was not synced."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from millstream.cluster.raft.core import Raft
from millstream.cluster.raft.entries import Entry, HardState, Restored, Snapshot
from millstream.cluster.raft.member import Member
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import Message
from millstream.cluster.raft.state import RaftSettings
from millstream.cluster.raft.wal import Wal, WalBroken
from millstream.testing.disk import Crashed, SimulatedDisk
from unit.cluster.raft.sim.checker import Broken, Checker, DurableLog, Seen
from unit.cluster.raft.sim.machine import HistoryMachine
from unit.cluster.raft.sim.world import World

SETTINGS = RaftSettings(
    heartbeat_ticks=2,
    election_ticks=10,
    snapshot_retry_ticks=30,
    max_append_bytes=1,
    max_inflight_bytes=600,
    max_inflight_messages=4,
    max_uncommitted_bytes=4000,
    trailing_entries=5,
)
DIRECTORY = "/data/quorum"
SNAPSHOT_AFTER_BYTES = 3000
TICK_MS = 10


class RecordingWal(Wal):
    """Tells the checker what is certainly on disk."""

    __slots__ = ("durable",)
    durable: "DurableLog"

    def write(self, hard_state: HardState, entries: tuple[Entry, ...]) -> None:
        super().write(hard_state, entries)
        self.durable.add(entries)

    def start_from(self, state: Restored) -> None:
        super().start_from(state)
        self.durable.begin(state)


class Node:
    """`member` is None while the node is down."""

    def __init__(
        self,
        world: World,
        checker: Checker,
        send: Callable[[Message], None],
        key: MemberKey,
        first: Snapshot,
    ) -> None:
        self.key = key
        self.disk = SimulatedDisk(world.random.getrandbits(32))
        self.member: Member | None = None
        self.machine = HistoryMachine(lambda entry, digest: None)
        self.is_paused = False
        self.slow_disk = 0.0
        self._world = world
        self._checker = checker
        self._send = send
        self._life = 0
        self._job: Callable[[], Any] | None = None
        self._seen = Seen()
        self.disk.make_dirs("/data")
        self.disk.sync_dir("/")
        Wal.create(self.disk, DIRECTORY, key, first).close()
        checker.durable[key] = DurableLog()

    @property
    def name(self) -> str:
        return f"n{self.key.node_id}"

    # Life and death

    def start(self) -> None:
        self._life += 1
        self._job = None
        self._seen = Seen()
        opened = RecordingWal.open(self.disk, DIRECTORY)
        assert opened is not None, "the write-ahead log is gone"
        wal, key, restored = opened
        assert isinstance(wal, RecordingWal)
        wal.durable = self._checker.durable[key]
        wal.durable.begin(restored)
        assert key == self.key
        self.machine = HistoryMachine(lambda entry, digest: self._checker.applied(key, entry, digest))
        raft = Raft(key, SETTINGS, self._world.random.randrange, restored)
        self.member = Member(raft, wal, self.machine, self, self, self, SNAPSHOT_AFTER_BYTES)
        self._checker.restarted(raft.state)
        self._raft = raft
        self._world.note(f"{self.name} starts term={raft.state.term} last={raft.state.log.last_index}")
        self.member.start()
        self.observe()
        self._tick_later(self._life)

    def crash(self, *, power_loss: bool) -> None:
        if self.member is None:
            return
        self._world.note(f"{self.name} crashes power_loss={power_loss}")
        self._life += 1
        self.member = None
        self.is_paused = False
        if self._job is not None:
            # The process dies in the middle of what it was writing.
            self.disk.crash_after(self._world.random.randrange(6))
            with suppress(Crashed, Exception):
                self._job()
        self.disk.faults.clear()
        self.disk.capacity_bytes = None
        self.disk.restart(power_loss=power_loss)

    def on_leadership(self, term: int, leader: MemberKey | None, *, is_mine: bool) -> None:
        self._world.note(f"{self.name} term={term} leader={leader and leader.node_id} mine={is_mine}")

    def on_write_refused(self) -> None:
        self._world.note(f"{self.name} cannot write")

    def on_failure(self, error: BaseException) -> None:
        self._world.note(f"{self.name} fails: {error}")
        if not isinstance(error, WalBroken):
            raise Broken(f"{self.name}: {error}") from error
        power_loss = self._world.random.random() < 0.5
        self._world.after(0, lambda: self.crash(power_loss=power_loss))

    # Events

    def _tick_later(self, life: int) -> None:
        self._world.after(TICK_MS * self._world.random.uniform(0.9, 1.1), lambda: self._tick(life))

    def _tick(self, life: int) -> None:
        if life != self._life:
            return
        self._tick_later(life)
        if self.member is not None and not self.is_paused:
            self.member.tick()
            self.observe()

    def receive(self, message: Message) -> None:
        if self.member is not None and not self.is_paused and self.member.failure is None:
            self.member.receive(message)
            self.observe()

    def send(self, message: Message) -> None:
        if not self.is_paused:
            self._checker.sent(message)
            self._world.note(f"{self.name} -> n{message.to.node_id} {type(message).__name__} {message.term}")
            self._send(message)

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """The disk's thread: the job runs a little later, and its end is heard of later still."""
        life, random = self._life, self._world.random
        self._job = job
        delay = random.uniform(0.2, 3) + (random.uniform(20, 300) if random.random() < self.slow_disk else 0)

        def run() -> None:
            if life != self._life:
                return
            result, error = None, None
            try:
                result = job()
            except Exception as failure:
                error = failure
            self._job = None
            self._world.after(random.uniform(0, 2), lambda: finish(result, error))

        def finish(result: Any, error: BaseException | None) -> None:
            if life == self._life:
                done(result, error)
                self.observe()

        self._world.after(delay, run)

    def observe(self) -> None:
        if self.member is not None and self.member.failure is None:
            self._checker.observe(self._raft.state, self._seen)

    # Clients

    @property
    def leads(self) -> bool:
        return self.member is not None and self._raft.state.leadership is not None

    @property
    def raft(self) -> Raft:
        return self._raft

    def read(self, token: UUID, done: Callable[[Any, BaseException | None], None]) -> None:
        assert self.member is not None
        self.member.read(token, done)
