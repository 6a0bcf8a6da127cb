"""Finds the node for a call, waits while leaders change, and repeats the call where that is safe."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from millstream.broker.routing.call_link import CallLink
from millstream.broker.routing.calls import NodeCall
from millstream.cluster.metadata.image import MetadataImage
from millstream.doors.caller import Caller
from millstream.doors.cluster import ClusterView, Metadata
from millstream.doors.partitions import Place, unknown_place
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.peer_client import Greeting

A = TypeVar("A")

_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25
# Errors after which another node, or the same one a moment later, may succeed.
_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


CarryOut = Callable[[Caller, NodeCall[Any]], Awaitable[Any]]


class Routes:
    def __init__(
        self,
        view: ClusterView,
        metadata: Metadata,
        greeting: Callable[[], Greeting],
        carry_out: CarryOut | None = None,
    ) -> None:
        """`carry_out` carries out calls for this node; None in a process that is no node."""
        self.view = view
        self.metadata = metadata
        self._greeting = greeting
        self._carry_out = carry_out or _outside
        self._links: dict[str, CallLink] = {}
        self._changed = asyncio.Event()
        self._stop_watching = metadata.watch(self._metadata_changed)

    def close(self) -> None:
        self._stop_watching()
        for link in self._links.values():
            link.close()

    async def at_leader(
        self,
        caller: Caller,
        place: Place,
        call: NodeCall[A],
        *,
        patience_s: float,
        wait_s: float = 0.0,
        refused_s: float | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
        may_repeat: bool,
        late: Callable[[A], None] | None = None,
        topic_id: bytes = b"",
    ) -> A:
        """The answer of the partition's leader, this node or another; for the other parameters see `at_node`.

        With `topic_id` the call is refused when another topic has the name.
        """

        def leader() -> int | None:
            image = self.metadata.image
            if image.partition(place.topic, place.partition) is None or (
                topic_id and topic_id != image.topics[place.topic].topic_id.bytes
            ):
                raise NotDone.of(unknown_place(place))
            return self.view.leader(place)

        return await self.at_node(
            caller,
            leader,
            lambda: self._carry_out(caller, call),
            lambda: call,
            patience_s=patience_s,
            wait_s=wait_s,
            refused_s=refused_s,
            is_wanted=is_wanted,
            may_repeat=may_repeat,
            late=late,
        )

    async def at_node(
        self,
        caller: Caller,
        find: Callable[[], int | None],
        here: Callable[[], Awaitable[A]],
        call: Callable[[], NodeCall[A]],
        *,
        patience_s: float,
        wait_s: float = 0.0,
        refused_s: float | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
        may_repeat: bool,
        late: Callable[[A], None] | None = None,
    ) -> A:
        """Call the node that `find` returns. Try again for `patience_s` where another node may answer by then, but only
        for `refused_s` while it is certain that nothing was done. An answer itself may take `wait_s`.

        A call that may have been carried out is repeated only if `may_repeat` is true; otherwise, and after the time
        limit, the result is REQUEST_TIMED_OUT. `call` makes the call for another node. It is not repeated once
        `is_wanted` returns false.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience_s
        refused_until = deadline if refused_s is None else loop.time() + min(refused_s, patience_s)
        pause = _FIRST_PAUSE_SECONDS
        is_uncertain = False
        while True:
            node = find()
            try:
                if node is None:
                    raise NotDone(ErrorCode.LEADER_NOT_AVAILABLE, "there is no leader at the moment")
                if node == self.view.node_id:
                    return await here()
                return await self.link(node).call(caller, call(), wait_s, late)
            except KafkaError as error:
                if error.code not in _PASSING:
                    if is_uncertain:
                        # An earlier attempt decides what this answer means.
                        raise _uncertain(error) from error
                    raise
                is_uncertain |= not isinstance(error, NotDone)
                is_over = loop.time() + pause >= (deadline if is_uncertain else refused_until)
                if is_uncertain and (is_over or not may_repeat):
                    raise _uncertain(error) from error
                if is_over:
                    raise
                await self._pause(pause)
                if not is_wanted():
                    raise (_uncertain(error) if is_uncertain else error) from None
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def at_any(self, caller: Caller, call: NodeCall[A], *, patience_s: float) -> A:
        """Call any live node, and the next one where nothing was done; for a process that is no node."""
        asked: set[int] = set()

        def another() -> int | None:
            live = [broker.broker_id for broker in self.view.brokers()]
            node = next((each for each in live if each not in asked), None)
            if node is None:
                asked.clear()
            else:
                asked.add(node)
            return node

        return await self.at_node(
            caller,
            another,
            lambda: self._carry_out(caller, call),
            lambda: call,
            patience_s=patience_s,
            wait_s=patience_s,
            may_repeat=False,
        )

    async def at_all(self, caller: Caller, call: NodeCall[A], wait_s: float) -> dict[int, A | KafkaError]:
        """The answer or the error of each live node, this one included."""

        async def of_node(node_id: int) -> A | KafkaError:
            try:
                if node_id == self.view.node_id:
                    answer: A = await self._carry_out(caller, call)
                    return answer
                return await self.link(node_id).call(caller, call, wait_s)
            except KafkaError as error:
                return error

        nodes = [broker.broker_id for broker in self.view.brokers()]
        return dict(zip(nodes, await asyncio.gather(*map(of_node, nodes)), strict=True))

    def link(self, node_id: int) -> CallLink:
        broker = self.metadata.image.brokers.get(node_id)
        if broker is None:
            raise NotDone(ErrorCode.BROKER_NOT_AVAILABLE, f"node {node_id} is not known")
        address = broker.for_nodes.address
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = CallLink(address, self._greeting)
        return link

    async def _pause(self, seconds: float) -> None:
        """Wait until the metadata changes, or for so long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _metadata_changed(self, old: MetadataImage, new: MetadataImage) -> None:
        self._changed.set()
        if old.brokers is not new.brokers:
            known = {each.for_nodes.address for each in new.brokers.values() if each.endpoints}
            for address in [each for each in self._links if each not in known]:
                self._links.pop(address).close()


async def _outside(_caller: Caller, _call: NodeCall[Any]) -> NoReturn:
    raise AssertionError("a process outside of the cluster is no node of it")


def _uncertain(error: KafkaError) -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT, f"it may have been done or not: {error.message.rstrip('.')}"
    )
