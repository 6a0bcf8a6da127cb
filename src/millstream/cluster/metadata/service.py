"""The interface to the cluster's metadata: read the image, submit commands, subscribe to changes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar, cast

from msgspec.structs import replace

from millstream.cluster.metadata.brokers import (
    BrokerHeartbeat,
    BrokerStanding,
    FenceBroker,
    RegisterBroker,
    UnregisterBroker,
)
from millstream.cluster.metadata.command_codec import decode_result, encode_command
from millstream.cluster.metadata.commands import Command, Decision
from millstream.cluster.metadata.defaults import Defaults, ViewVirtualNodes
from millstream.cluster.metadata.directory import (
    StoredReplica,
    WrongDataDirectory,
    create_replica,
    open_replica,
)
from millstream.cluster.metadata.fencing import Fencing, RebalanceSettings, Rebalancing
from millstream.cluster.metadata.image import BrokerImage, MetadataImage
from millstream.cluster.metadata.machine import MetadataMachine, Records, Subscriber
from millstream.cluster.metadata.names import readable_ids
from millstream.cluster.metadata.partitions import CreatePartitions
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.quorum import (
    QuorumChange,
    QuorumView,
    ViewQuorum,
    require_majority_without,
    view_of,
)
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.refusals import as_kafka_error
from millstream.cluster.metadata.topics import CreateTopics
from millstream.cluster.raft.driver import Driver
from millstream.cluster.raft.entries import first_snapshot
from millstream.cluster.raft.errors import RaftError
from millstream.cluster.raft.member import SNAPSHOT_AFTER_BYTES
from millstream.cluster.raft.membership import MemberKey, Membership, majority
from millstream.cluster.raft.messages import Message
from millstream.cluster.raft.ports import Transport
from millstream.cluster.raft.state import TICK_MS, RaftSettings
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk
from millstream.runtime.host import Host, SystemHost

Result = TypeVar("Result")
# Sends an encoded command to the node with that id and returns the encoded answer.
Forward = Callable[[int, bytes], Awaitable[bytes]]

_CLOSE_SECONDS = 5.0
_START_SECONDS = 10.0
# How long a submitter waits for a new controller before it gets an error, and how often to check.
_PATIENCE_SECONDS = 10.0
_RETRY_SECONDS = 0.05
# If the controller does not answer within this time, a reader gets this node's own view.
_VIEW_SECONDS = 2.0
# Commands whose submitters do not read the effect from this node's image. FenceBroker is decided at once or not at
# all: a moment later the broker may have a lease.
_NOT_LOOKED_FOR: tuple[type[object], ...] = (BrokerHeartbeat, FenceBroker)
# With these answers nothing was done, so that the next controller may be asked.
_TRY_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE)


class MetadataService:
    """The controller decides commands one by one, on the committed image plus its own pending proposals.

    Proposals made while the disk is busy share one write and one fsync. Without `transport` and `forward` the node is
    a quorum of its own; without `session_seconds` no broker is ever fenced; without `rebalance` leaders stay where
    elections put them.
    """

    def __init__(
        self,
        stored: StoredReplica,
        *,
        transport: Transport | None = None,
        forward: Forward | None = None,
        session_seconds: float | None = None,
        write_refused: Callable[[], None] | None = None,
        rebalance: RebalanceSettings | None = None,
        failed: Callable[[BaseException], None] | None = None,
        host: Host | None = None,
        raft: RaftSettings | None = None,
        tick_ms: int = TICK_MS,
        snapshot_after: int = SNAPSHOT_AFTER_BYTES,
        defaults: Defaults | None = None,
    ) -> None:
        """`defaults` apply to new topics while this node is the controller; without them, those in the command do."""
        host = host or SystemHost()
        self._defaults = defaults
        self._new_id = readable_ids(host.new_id)
        self._forward = forward
        self._session_seconds = session_seconds
        self._write_refused = write_refused
        self._rebalance = rebalance
        self._failed = failed
        self._machine = MetadataMachine()
        self._threads = host.workers(asyncio.get_running_loop(), 1, "metadata")
        self.quorum = Driver(
            stored.key,
            stored.restored,
            stored.wal,
            self._machine,
            transport or _NoOthers(),
            self._threads,
            self,
            jitter=host.random_below,
            new_id=host.new_id,
            settings=raft,
            tick_ms=tick_ms,
            snapshot_after_bytes=snapshot_after,
        )
        self._leader: MemberKey | None = None
        self.controller_found = asyncio.Event()
        """Set whenever the controller changes; the waiting task clears it."""
        self._beats: dict[int, tuple[int, int]] = {}
        """By broker: the epoch and sequence of the newest heartbeat accepted here."""
        self._is_settled = asyncio.Event()
        self._is_leading = False
        self._fencing: Fencing | None = None
        self._ended_brokers: dict[int, int] = {}
        """Brokers whose process has ended as far as this node knows, with their epochs."""
        self._rebalancing: Rebalancing | None = None
        self._failure: BaseException | None = None
        self._last_change: asyncio.Future[None] | None = None
        self._closed = False
        self.broker_epoch = -1
        self.producer_ids = ProducerIdPool(self.submit)

    @classmethod
    async def open(
        cls,
        disk: Disk,
        data_dir: str,
        *,
        node_id: int,
        endpoints: tuple[Endpoint, ...],
        rack: str | None = None,
        host: Host | None = None,
        snapshot_after: int = SNAPSHOT_AFTER_BYTES,
        defaults: Defaults | None = None,
    ) -> "MetadataService":
        """Load the metadata in `data_dir`, or begin a cluster of this node alone, and register this broker.

        Raises WalCorrupt, WrongDataDirectory, UnknownRecords or KafkaError when the node cannot start from it.
        """
        host = host or SystemHost()
        stored = open_replica(disk, data_dir, node_id)
        if stored is None:
            key = MemberKey(node_id, host.new_id())
            stored = create_replica(disk, data_dir, key, first_snapshot(Membership((key,))))
        if stored.members != (stored.key,):
            stored.wal.close()
            raise WrongDataDirectory(
                f"{data_dir} belongs to a node of a cluster; give the addresses of its nodes with --seeds"
            )
        service = cls(stored, host=host, snapshot_after=snapshot_after, defaults=defaults)
        try:
            await service.lead()
            service.broker_epoch = await service.submit(RegisterBroker(node_id, endpoints, rack))
        except BaseException:
            await service.close()
            raise
        return service

    async def lead(self) -> None:
        """Start as a quorum of one, which leads at once or fails."""
        self.quorum.start()
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._is_settled.wait()
        except TimeoutError:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "the metadata log cannot be written; see the log above for the reason, and start again",
            ) from None
        if self._failure is not None:
            raise self._failure

    async def follow(self) -> None:
        """Start as one of several; return when the image has caught up with the cluster's, however long that takes."""
        self.quorum.start()
        await self.quorum.read_barrier()

    @property
    def image(self) -> MetadataImage:
        return self._machine.image

    @property
    def controller_id(self) -> int:
        """The controller's id, as far as this node knows; -1 for none."""
        return -1 if self._leader is None else self._leader.node_id

    @property
    def is_controller(self) -> bool:
        return self._is_leading

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new, records)` after each durable change and before the answer."""
        self._machine.subscribe(subscriber)

    async def submit(self, command: Command[Result]) -> Result:
        """The command's result once its change is committed and applied here; KafkaError when it is refused."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        while True:
            try:
                if self._is_leading or self._forward is None or self._leader is None:
                    return await self.decide(command)
                return await self._ask(self._forward, self._leader.node_id, command)
            except KafkaError as error:
                if (
                    error.code not in _TRY_AGAIN
                    or self._forward is None
                    or self._closed
                    or loop.time() > deadline
                ):
                    raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def view_quorum(self) -> QuorumView:
        """The controller's view, or this node's own if the controller does not answer."""
        if not self._is_leading and self._forward is not None and self._leader is not None:
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_VIEW_SECONDS):
                    reply = await self._forward(self._leader.node_id, encode_command(ViewQuorum()))
                    view: QuorumView = decode_result(ViewQuorum(), reply)
                    return view
        return view_of(self.quorum.status())

    async def decide(self, command: Command[Result]) -> Result:
        """As `submit`, but without forwarding: NOT_CONTROLLER unless this node leads."""
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the node is shutting down")
        if self._failure is not None:
            raise as_kafka_error(self._failure)
        if not self._is_leading:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the controller; try again")
        asked: object = command
        if isinstance(asked, ViewQuorum):
            return cast("Result", view_of(self.quorum.status()))
        if isinstance(asked, QuorumChange):
            await self._change_quorum(asked)
            # Not through the image: this node may have removed itself.
            return cast("Result", True)
        if isinstance(asked, UnregisterBroker):
            # The broker ends then, and loses its vote.
            require_majority_without(asked.broker_id, self.quorum.membership, self.image)
        if isinstance(asked, BrokerHeartbeat):
            self._require_newest(asked)
        if (
            isinstance(asked, CreateTopics | CreatePartitions | ViewVirtualNodes)
            and self._defaults is not None
        ):
            # The controller's settings apply to all topics, whichever node received the request.
            command = cast("Command[Result]", replace(asked, defaults=self._defaults))
        decision = await self._decision(command)
        if self._fencing is not None:
            self._fencing.note(command)
        if decision.records:
            self._last_change = self._propose(decision.records)
        # A decision without records may still depend on a change that is under way.
        if self._last_change is not None and not self._last_change.done():
            # Others wait for the same change: it must not be cancelled with this caller.
            await asyncio.shield(self._last_change)
        if isinstance(asked, BrokerHeartbeat) and not asked.wants_to_stop:
            return cast("Result", await self._vouched_for(cast("BrokerStanding", decision.result)))
        return decision.result

    def _require_newest(self, beat: BrokerHeartbeat) -> None:
        epoch, sequence = self._beats.get(beat.broker_id, (-1, 0))
        if beat.epoch == epoch and beat.sequence < sequence:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a newer heartbeat of this broker came first")
        if beat.epoch >= epoch:
            self._beats[beat.broker_id] = beat.epoch, beat.sequence

    async def _vouched_for(self, standing: BrokerStanding) -> BrokerStanding:
        """Confirm leadership: the broker's lease relies on the answer, so a deposed controller must not give it."""
        return replace(standing, index=await self._make_sure_to_lead())

    async def _decision(self, command: Command[Result]) -> Decision[Result]:
        must_be_new = self._forward is not None and type(command) not in _NOT_LOOKED_FOR
        try:
            decision = command.decide(self._machine.latest, self._new_id)
            if decision.records or not must_be_new:
                return decision
        except KafkaError:
            if not must_be_new:
                raise
        # A command that changes nothing does not go through the quorum.
        await self._make_sure_to_lead()
        return command.decide(self._machine.latest, self._new_id)

    async def _change_quorum(self, change: QuorumChange) -> None:
        try:
            try:
                await change.carry_out(self.quorum, self.image)
            except KafkaError:
                # This node's knowledge of the members does not allow it.
                if self._forward is None:
                    raise
                await self._make_sure_to_lead()
                await change.carry_out(self.quorum, self.image)
        except RaftError as error:
            raise as_kafka_error(error) from error

    async def _make_sure_to_lead(self) -> int:
        """Confirm that this node still is the controller: a deposed one would answer from old metadata.

        Returns an index that covers everything committed so far; this node knows the log up to there.
        """
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                index = await self.quorum.read_barrier()
        except TimeoutError:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, "a majority of the nodes does not answer; try again"
            ) from None
        if self._closed or not self._is_leading:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the controller any more; try again")
        return index

    def peer_gone(self, peer: MemberKey) -> None:
        """The node's process has ended: do not wait for its leadership and its session to expire."""
        broker = self.image.brokers.get(peer.node_id)
        if broker is not None and broker.directory == peer.directory_id:
            self._ended_brokers[peer.node_id] = broker.epoch
            if self._fencing is not None:
                self._fencing.gone(peer.node_id, broker.epoch)
        self.quorum.report_gone(peer)

    def is_gone(self, broker: BrokerImage) -> bool:
        """Whether the broker's process has ended as far as this node knows, even if it is not fenced yet."""
        return self._ended_brokers.get(broker.broker_id) == broker.epoch

    def peer_came(self, peer: MemberKey) -> None:
        self._ended_brokers.pop(peer.node_id, None)

    async def close(self) -> None:
        """Finish the submitted commands, then close the log."""
        self._closed = True
        if self._last_change is not None and self._can_commit():
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await asyncio.shield(self._last_change)
        self._stop_watching()
        self.quorum.close()
        self._threads.close()

    def _can_commit(self) -> bool:
        """Whether a majority is live: otherwise the last node to stop would wait for those stopped before it."""
        status = self.quorum.status()
        voters = status.membership.voters
        there = {status.key} | {each.member for each in status.followers if each.is_active}
        return len(there.intersection(voters)) >= majority(len(voters))

    # The quorum's listener

    def on_leadership(self, _term: int, leader: MemberKey | None, *, is_mine: bool) -> None:
        self._machine.forget_foreseen()
        self._stop_watching()
        self._leader = leader
        self._is_leading = is_mine
        if leader is not None:
            self.controller_found.set()
        if is_mine:
            self._is_settled.set()
            if self._session_seconds is not None:
                self._fencing = Fencing(self._session_seconds, lambda: self.image, self.decide)
                for broker_id, epoch in self._ended_brokers.items():
                    self._fencing.gone(broker_id, epoch)
            if self._rebalance is not None:
                self._rebalancing = Rebalancing(self._rebalance, self.decide)

    def on_write_refused(self) -> None:
        if self._write_refused is not None:
            self._write_refused()

    def on_failure(self, error: BaseException) -> None:
        self._failure = error
        self._is_settled.set()
        if self._failed is not None:
            self._failed(error)

    async def _ask(self, forward: Forward, controller_id: int, command: Command[Result]) -> Result:
        reply = await forward(controller_id, encode_command(command))
        result: Result = decode_result(command, reply)
        if type(command) not in _NOT_LOOKED_FOR:
            # The caller expects to find the change on this node.
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self.quorum.read_barrier()
        return result

    def _stop_watching(self) -> None:
        for duty in (self._fencing, self._rebalancing):
            if duty is not None:
                duty.stop()
        self._fencing = self._rebalancing = None

    def _propose(self, records: Records) -> "asyncio.Future[None]":
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The waiting task may have ended: then nobody needs the error.
        committed.add_done_callback(lambda future: future.exception())

        def done(_result: None, error: BaseException | None) -> None:
            if error is None:
                committed.set_result(None)
                return
            # At once, before anything else is decided: later decisions would build on this one.
            self._machine.forget_foreseen()
            committed.set_exception(as_kafka_error(error))

        data = self._machine.foresee(records)
        try:
            self.quorum.begin(data, done)
        except Exception as error:
            self._machine.take_back()
            raise as_kafka_error(error) from error
        return committed


class _NoOthers:
    """The transport of a quorum of one."""

    def send(self, message: Message) -> None:
        raise AssertionError(f"there is nobody to send {type(message).__name__} to")
