"""The one door to the cluster's metadata: read the image, submit a command, be told of changes."""

import asyncio
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

from millstream.cluster.metadata.brokers import RegisterBroker
from millstream.cluster.metadata.controller import Command, NewId
from millstream.cluster.metadata.directory import StoredReplica, create_replica, open_replica
from millstream.cluster.metadata.ids import readable_ids
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.machine import MetadataMachine, Subscriber
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.records import Endpoint
from millstream.cluster.metadata.refusals import as_kafka_error
from millstream.cluster.raft.driver import Driver
from millstream.cluster.raft.entries import first_snapshot
from millstream.cluster.raft.membership import Membership, ReplicaKey
from millstream.cluster.raft.messages import Message
from millstream.cluster.raft.replica import SNAPSHOT_AFTER_BYTES
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk
from millstream.runtime.workers import Workers

Result = TypeVar("Result")

_CLOSE_SECONDS = 5.0
_START_SECONDS = 10.0


class MetadataService:
    """Commands are decided one after the other, on the newest image that they will find if all goes well.

    What is proposed while the disk is busy goes to it in one write, so that those who wait share one fsync.
    """

    def __init__(
        self, stored: StoredReplica, *, new_id: NewId = uuid4, snapshot_after: int = SNAPSHOT_AFTER_BYTES
    ) -> None:
        self._new_id = readable_ids(new_id)
        self._machine = MetadataMachine()
        self._threads = Workers(asyncio.get_running_loop(), 1, "metadata")
        self._driver = Driver(
            stored.key,
            stored.restored,
            stored.wal,
            self._machine,
            _NobodyElse(),
            self._threads,
            self,
            # Any source that differs from node to node will do, and the ids' does.
            jitter=lambda below: new_id().int % below,
            new_id=new_id,
            snapshot_after_bytes=snapshot_after,
        )
        self._leads = asyncio.Event()
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
        new_id: NewId = uuid4,
        snapshot_after: int = SNAPSHOT_AFTER_BYTES,
    ) -> "MetadataService":
        """Load the metadata in `data_dir`, or begin a cluster of this node alone, and register this broker.

        Raises WalCorrupt, WrongDataDirectory, UnknownRecords or KafkaError when the node cannot start from there.
        """
        stored = open_replica(disk, data_dir, node_id)
        if stored is None:
            key = ReplicaKey(node_id, new_id())
            stored = create_replica(disk, data_dir, key, first_snapshot(Membership((key,))))
        service = cls(stored, new_id=new_id, snapshot_after=snapshot_after)
        try:
            await service._start()
            service.broker_epoch = await service.submit(RegisterBroker(node_id, endpoints, rack))
        except BaseException:
            await service.close()
            raise
        return service

    @property
    def image(self) -> MetadataImage:
        return self._machine.image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new, records)` after each durable change and before the answer."""
        self._machine.subscribe(subscriber)

    async def submit(self, command: Command[Result]) -> Result:
        """The command's result once its change is committed and applied here; KafkaError when it is refused."""
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the node is shutting down")
        if self._failure is not None:
            raise as_kafka_error(self._failure)
        if not self._leads.is_set():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the controller; try again")
        decision = command.decide(self._machine.latest, self._new_id)
        if decision.records:
            self._last_change = self._propose(decision.records)
        # Without records of its own, a decision may still rest on one that is under way.
        if self._last_change is not None and not self._last_change.done():
            # Others wait for the same change, and it goes on when this caller does not.
            await asyncio.shield(self._last_change)
        return decision.result

    async def close(self) -> None:
        """Finish what was submitted, then close the log."""
        self._closed = True
        if self._last_change is not None:
            with suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._last_change), _CLOSE_SECONDS)
        self._driver.close()
        self._threads.close()

    # The quorum's listener

    def on_leadership(self, _term: int, _leader: ReplicaKey | None, *, is_mine: bool) -> None:
        self._machine.forget_foreseen()
        if is_mine:
            self._leads.set()
        else:
            self._leads.clear()

    def on_failure(self, error: BaseException) -> None:
        self._failure = error
        self._leads.set()

    async def _start(self) -> None:
        self._driver.start()
        try:
            await asyncio.wait_for(self._leads.wait(), _START_SECONDS)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "the metadata log cannot be written; see the log above for the reason, and start again",
            ) from None
        if self._failure is not None:
            raise self._failure

    def _propose(self, records: tuple[Any, ...]) -> "asyncio.Future[None]":
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Who waited may have gone: then nobody need hear of an error.
        committed.add_done_callback(lambda future: future.exception())

        def done(_result: None, error: BaseException | None) -> None:
            if error is None:
                committed.set_result(None)
                return
            # At once, before anything else is decided: later decisions would rest on this one.
            self._machine.forget_foreseen()
            committed.set_exception(as_kafka_error(error))

        try:
            self._driver.begin(self._machine.foresee(records), done)
        except Exception as error:
            self._machine.forget_foreseen()
            raise as_kafka_error(error) from error
        return committed


class _NobodyElse:
    """The transport of a quorum of one."""

    def send(self, message: Message) -> None:
        raise AssertionError(f"there is nobody to send {type(message).__name__} to")
