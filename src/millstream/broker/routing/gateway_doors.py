"""The doors of a process outside the cluster: all work is done by calls to nodes.

The process follows the metadata of one node, and changes to another when that node stops or is cut off.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec

from millstream.broker.peers.link import node_address
from millstream.broker.routing.batcher import Batcher
from millstream.broker.routing.call_link import CallLink
from millstream.broker.routing.calls import CreateTopicsFor, FollowMetadata, SubmitCommand
from millstream.broker.routing.coordinators import RoutedCoordinators
from millstream.broker.routing.metadata import Changed, ImageView, Watchers
from millstream.broker.routing.partitions import RoutedPartitions
from millstream.broker.routing.queues import RoutedQueues
from millstream.broker.routing.routes import Routes
from millstream.cluster.metadata.command_codec import decode_result, encode_command
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.producer_ids import ProducerIdPool
from millstream.cluster.metadata.records import decode_records
from millstream.cluster.metadata.topics import CreatedTopic, CreateTopics, NewTopic
from millstream.doors.access import Authoriser, Quotas
from millstream.doors.caller import NODE, Caller
from millstream.doors.doors import Doors
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.peer_client import Greeting
from millstream.runtime.clock import Clock

log = get_logger("millstream.gateway")

Result = TypeVar("Result")

OUTSIDE = -1
"""Stands for the missing node id."""
_FIND_SECONDS = 2.0
_FOLLOW_SECONDS = 5.0
_COMMAND_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
# Topic changes arrive here a moment after the node that made them answers.
_APPLIED_SECONDS = 10.0

_NO_ANSWER = "no broker answers"

_followed = msgspec.msgpack.Decoder(tuple[str, bytes])


class FollowedMetadata:
    """A node's metadata, followed from outside. `routes` is set when the parts are connected."""

    routes: Routes

    def __init__(self, bootstrap: Sequence[str]) -> None:
        self.image = MetadataImage()
        self.has_image = asyncio.Event()
        """Set when the first image has arrived."""
        self.followed: str | None = None
        """The address of the node that is followed; None while no node is."""
        self.trouble = _NO_ANSWER
        """Why no node is followed."""
        self._refusal = ""
        self._index = -1
        """The index in the quorum's log that the image has reached."""
        self._bootstrap = tuple(bootstrap)
        self._watchers = Watchers()

    def watch(self, changed: Changed) -> Callable[[], None]:
        return self._watchers.add(changed)

    async def create_topics(self, caller: Caller, topics: Sequence[NewTopic]) -> tuple[CreatedTopic, ...]:
        command = CreateTopics(tuple(topics))
        call = CreateTopicsFor(encode_command(command))
        answer = await self.routes.at_any(caller, call, patience_s=_COMMAND_SECONDS)
        created: tuple[CreatedTopic, ...] = decode_result(command, answer)
        names = [each.name for each in created if each.error is None]
        await self._until(lambda: all(name in self.image.topics for name in names))
        return created

    async def submit(self, command: Command[Result]) -> Result:
        call = SubmitCommand(encode_command(command))
        answer = await self.routes.at_any(NODE, call, patience_s=_COMMAND_SECONDS)
        result: Result = decode_result(command, answer)
        return result

    async def follow(self) -> None:
        """Follow nodes until the task is cancelled."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self._refusal = ""
            for address in self._addresses():
                if await self._follow_at(address):
                    pause = _FIRST_PAUSE_SECONDS
                    break
            else:
                self.trouble = self._refusal or _NO_ANSWER
                if self.followed is not None or pause == _FIRST_PAUSE_SECONDS:
                    log.warning(
                        "no broker is followed", reason=self.trouble, addresses=list(self._addresses())
                    )
                self.followed = None
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _addresses(self) -> Iterator[str]:
        """Addresses of the live nodes, and those of the settings, since all nodes may have moved."""
        live = (each.for_nodes.address for each in self.image.live_brokers)
        yield from dict.fromkeys((*live, *self._bootstrap))

    async def _follow_at(self, address: str) -> bool:
        """Follow the node there for as long as possible; False when it could not be followed at all."""
        sent, was_heard = "", False
        try:
            link = CallLink(await node_address(address, _FIND_SECONDS), Greeting)
        except (OSError, EOFError, UnicodeError, msgspec.MsgspecError) as error:
            log.info("broker not followed", address=address, error=str(error))
            return False
        try:
            while True:
                answer = await link.call(NODE, FollowMetadata(sent, _FOLLOW_SECONDS), _FOLLOW_SECONDS)
                sent = self.heard(answer, address)
                was_heard = True
        except (KafkaError, msgspec.MsgspecError) as error:
            log.info("broker not followed", address=address, error=str(error))
            return was_heard
        finally:
            link.close()

    def heard(self, answer: bytes, address: str) -> str:
        """Apply a node's answer, and return the name of its image. KafkaError where the answer must be rejected."""
        name, data = _followed.decode(answer)
        base = MetadataImage() if name.startswith("!") else self.image
        image = base.apply(decode_records(data))
        # Images without an index are accepted.
        index = int(name.partition("@")[2] or self._index)
        if self.image.cluster_id not in ("", image.cluster_id):
            self._refusal = (
                f"the node at {address} belongs to cluster {image.cluster_id}, not to {self.image.cluster_id}:"
                " if the cluster was made again, restart this gateway"
            )
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, self._refusal)
        if index < self._index:
            self._refusal = (
                f"the node at {address} is behind in the metadata: {index} of {self._index} entries"
            )
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, self._refusal)
        self._index = index
        self._apply(image, address)
        return name.removeprefix("!")

    def _apply(self, image: MetadataImage, address: str) -> None:
        if self.followed != address:
            log.info("broker followed", address=address, cluster_id=image.cluster_id)
            self.followed = address
        old, self.image = self.image, image
        self.has_image.set()
        self._watchers.tell(old, image)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        changed = asyncio.Event()
        stop = self.watch(lambda _old, _new: changed.set())
        try:
            async with asyncio.timeout(_APPLIED_SECONDS):
                while not is_so():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            return
        finally:
            stop()


class GatewayDoors:
    def __init__(
        self, bootstrap: Sequence[str], authoriser: Authoriser, quotas: Quotas, clock: Clock
    ) -> None:
        self.metadata = FollowedMetadata(bootstrap)
        view = ImageView(OUTSIDE, self.metadata)
        self._routes = self.metadata.routes = Routes(view, self.metadata, Greeting)
        self._partitions = RoutedPartitions(self._routes, authoriser)
        self._batcher = Batcher(
            self._partitions, self.metadata, authoriser, clock, ProducerIdPool(self.metadata.submit).take
        )
        self._following: asyncio.Task[None] | None = None
        self.doors = Doors(
            self._partitions,
            self._batcher,
            RoutedQueues(self._routes, authoriser),
            RoutedCoordinators(None, self._routes),
            view,
            self.metadata,
            authoriser,
            quotas,
        )

    def start(self) -> None:
        """Look for the cluster; `metadata.has_image` is set when it is found."""
        self._following = asyncio.get_running_loop().create_task(
            keep_going(self.metadata.follow), name="follow metadata"
        )

    async def stop(self) -> None:
        self._batcher.close()
        self._partitions.close()
        self._routes.close()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
