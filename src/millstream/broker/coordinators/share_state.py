"""The share coordinator on this node: its topic, and the removal of state that is no longer needed."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from millstream.broker.coordinators.host import CoordinatorHost
from millstream.cluster.metadata.image import MetadataImage
from millstream.coordinator.definition import Definition, InternalTopic
from millstream.coordinator.shares.coordinator import ShareCoordinator
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.requests import DeleteState, ShareRequest
from millstream.doors.cluster import CoordinatorKind
from millstream.protocol.errors import KafkaError
from millstream.protocol.internal_topics import SHARE_STATE_TOPIC

_SWEEP_SECONDS = 60.0
_AT_ONCE = 200
_PARTITIONS = "share.coordinator.state.topic.num.partitions"


def share_state(configs: Mapping[str, str]) -> Definition[ShareCoordinator]:
    # A snapshot replaces all records before it, and the coordinator trims them: nothing else may delete records here.
    kept = (("cleanup.policy", "delete"), ("retention.ms", "-1"), ("retention.bytes", "-1"))
    return Definition(
        InternalTopic(SHARE_STATE_TOPIC, int(configs.get(_PARTITIONS, "50")), kept),
        lambda _: ShareCoordinator(),
        ShareRequest,
    )


class DeletedTopics:
    """Removes the stored state of queues whose topics are gone, a few at a time.

    A topic must be unknown at two looks: the leader of a new one may know it before this node does.
    """

    def __init__(
        self, host: CoordinatorHost, image: Callable[[], MetadataImage], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._host = host
        self._image = image
        self._loop = loop
        self._unknown: set[ShareKey] = set()
        self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def close(self) -> None:
        self._timer.cancel()

    def _sweep(self) -> None:
        hosted, topics = self._host.of(CoordinatorKind.SHARE), self._image().topics_by_id
        unknown = {
            key for machine in hosted.machines() for key in machine.queues if key.topic_id not in topics
        }
        for key in islice(sorted(unknown & self._unknown), _AT_ONCE):
            with suppress(KafkaError):
                # Done now or in a later sweep; no request waits for it.
                hosted.decide(str(key), DeleteState(key)).add_done_callback(_ignore)
        self._unknown = unknown
        self._timer = self._loop.call_later(_SWEEP_SECONDS, self._sweep)


def _ignore(done: "asyncio.Future[Any]") -> None:
    if not done.cancelled():
        done.exception()
