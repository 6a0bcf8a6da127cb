"""The one door to the cluster's metadata: read the image, submit a command, be told of changes."""

import asyncio
import os.path
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from millstream.cluster.metadata.brokers import RegisterBroker
from millstream.cluster.metadata.controller import Command, NewId
from millstream.cluster.metadata.ids import readable_ids
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.journal import SNAPSHOT_AFTER_BYTES, Journal
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.records import Endpoint, MetadataRecord
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import Disk

Result = TypeVar("Result")
Subscriber = Callable[[MetadataImage, MetadataImage, tuple[MetadataRecord, ...]], None]

_log = get_logger("millstream.cluster.metadata")

DIRECTORY = "__cluster_metadata"
# Commands decided together share one fsync; more would keep the event loop from its connections.
_MAX_GROUP = 64
_MAX_WAITING = 10_000


class WrongDataDirectory(Exception):
    """The directory holds another node's data, or data whose metadata is gone."""


@dataclass(slots=True, eq=False)
class _Waiting:
    command: Command[Any]
    answer: "asyncio.Future[Any]"


class MetadataService:
    """Commands are decided one after the other on the newest image; those that wait share one fsync."""

    def __init__(self, journal: Journal, image: MetadataImage, new_id: NewId) -> None:
        self._journal = journal
        self._image = image
        self._new_id = readable_ids(new_id)
        self._subscribers: list[Subscriber] = []
        self._waiting: deque[_Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
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
        """Load the metadata in `data_dir`, or begin a cluster where there is none, and register this broker.

        Raises JournalCorrupt or WrongDataDirectory when the node must not start from what is there.
        """
        journal, records = Journal.open(disk, os.path.join(data_dir, DIRECTORY), snapshot_after)
        try:
            image = MetadataImage().apply(records)
            _check_ownership(disk, data_dir, image, node_id)
            service = cls(journal, image, new_id)
            service.broker_epoch = await service.submit(RegisterBroker(node_id, endpoints, rack))
        except BaseException:
            journal.close()
            raise
        return service

    @property
    def image(self) -> MetadataImage:
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new, records)` after each durable change and before the answer."""
        self._subscribers.append(subscriber)

    async def submit(self, command: Command[Result]) -> Result:
        """The command's result once its change is durable and applied; KafkaError when it is refused."""
        if self._closed:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the node is shutting down")
        if len(self._waiting) >= _MAX_WAITING:
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{_MAX_WAITING} metadata changes are waiting; try again later",
            )
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(command, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="metadata")
        return await answer

    async def close(self) -> None:
        """Finish what was submitted, then close the journal."""
        self._closed = True
        if self._worker is not None:
            await self._worker
        self._journal.close()

    async def _work(self) -> None:
        while self._waiting:
            group = [self._waiting.popleft() for _ in range(min(_MAX_GROUP, len(self._waiting)))]
            await self._process(group)
            if self._journal.snapshot_due:
                await self._snapshot()

    async def _process(self, group: list[_Waiting]) -> None:
        image = self._image
        records: list[MetadataRecord] = []
        answers: list[tuple[asyncio.Future[Any], Any]] = []
        for waiting in group:
            try:
                decision = waiting.command.decide(image, self._new_id)
                image = image.apply(decision.records) if decision.records else image
            except Exception as error:  # noqa: BLE001 - goes to the submitter, whatever it is
                _refuse(waiting.answer, error)
                continue
            records += decision.records
            answers.append((waiting.answer, decision.result))
        if records:
            try:
                await self._journal.append(records)
            except Exception as error:  # noqa: BLE001 - goes to the submitters, whatever it is
                # A later decision of the group may rest on an earlier one, so all of them fall.
                for answer, _ in answers:
                    _refuse(answer, error)
                return
            self._publish(image, tuple(records))
        for answer, result in answers:
            if not answer.done():
                answer.set_result(result)

    def _publish(self, image: MetadataImage, records: tuple[MetadataRecord, ...]) -> None:
        old, self._image = self._image, image
        for subscriber in self._subscribers:
            try:
                subscriber(old, image, records)
            except Exception:  # noqa: BLE001
                # The change is durable: other subscribers and the submitters must hear of it all the same.
                _log.exception("metadata subscriber failed", records=len(records))

    async def _snapshot(self) -> None:
        try:
            await self._journal.snapshot(self._image.to_records())
        except OSError as error:
            _log.warning("metadata snapshot failed; the journal goes on", error=str(error))


def _refuse(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _check_ownership(disk: Disk, data_dir: str, image: MetadataImage, node_id: int) -> None:
    if image.brokers and node_id not in image.brokers:
        owners = ", ".join(map(str, sorted(image.brokers)))
        raise WrongDataDirectory(
            f"{data_dir} belongs to broker {owners}; set broker.id to {owners} instead of {node_id},"
            " or use another directory"
        )
    topics = os.path.join(data_dir, "topics")
    if not image.cluster_id and disk.list_dir(topics):
        raise WrongDataDirectory(
            f"{topics} holds topics but {DIRECTORY} beside it is empty; restore it or use another directory"
        )
