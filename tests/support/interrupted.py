"""Handlers whose world changes while they wait: at their first await a topic goes, their node is removed, a coordinator
moves.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest
from msgspec.structs import replace

from millstream.broker.api import dispatch
from millstream.broker.cluster_view import ClusterView
from millstream.broker.machine import Tasks
from millstream.broker.node import Node
from millstream.broker.routing import local_lane
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService

Change = Callable[[Node], Coroutine[Any, Any, None]]


class Failures:
    """In the place of a module's log: what ended with an exception that no handler meant to raise."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def exception(self, event: str, **fields: Any) -> None:
        self.seen.append(f"{event} {fields}")

    def error(self, event: str, **fields: Any) -> None:
        self.seen.append(f"{event} {fields}")

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@types.coroutine
def interrupted(
    work: Coroutine[Any, Any, Any], change: Coroutine[Any, Any, None]
) -> Generator[Any, Any, Any]:
    """`work`, but for a change that happens as soon as it waits for something."""
    is_changed, sent, thrown = False, None, None
    while True:
        try:
            waited_for = work.send(sent) if thrown is None else work.throw(thrown)
        except StopIteration as end:
            change.close()
            return end.value
        sent = thrown = None
        try:
            if not is_changed:
                is_changed = True
                yield from change.__await__()
            sent = yield waited_for
        except BaseException as error:
            # Thrown into it where it waits, as whoever cancels a task does.
            thrown = error


class Interruption:
    """Of one broker's handlers; those of other nodes, and the node's other work, go on undisturbed."""

    def __init__(self, broker: Node, patch: pytest.MonkeyPatch) -> None:
        self.change: Change | None = None
        self.failures = Failures()
        self._broker = broker
        self._shown: Callable[[MetadataImage], MetadataImage] | None = None
        spawn, when_decided = Tasks.spawn, ClusterView.when_decided
        image: Any = MetadataService.image

        def spawn_changed(it: Tasks, work: Any, name: str) -> None:
            spawn(it, self._disturbed(work) if it is broker.tasks else work, name)

        def answer_changed(it: ClusterView, led_by: Any, then: Callable[[], None]) -> None:
            if it is not broker.view or self.change is None:
                when_decided(it, led_by, then)
                return
            task = broker.loop.create_task(self.change(broker))
            task.add_done_callback(lambda _: self._answer(then))

        def shown(it: MetadataService) -> MetadataImage:
            found = image.fget(it)
            return self._shown(found) if self._shown is not None and it is broker.metadata else found

        patch.setattr(Tasks, "spawn", spawn_changed)
        patch.setattr(ClusterView, "when_decided", answer_changed)
        patch.setattr(MetadataService, "image", property(shown))
        for module in (dispatch, local_lane):
            patch.setattr(module, "log", self.failures)

    def _answer(self, then: Callable[[], None]) -> None:
        try:
            then()
        except BaseException as error:
            self.failures.error("answer failed", error=repr(error))

    def _disturbed(self, work: Any) -> Any:
        return work if self.change is None else interrupted(work, self.change(self._broker))

    # What may happen

    async def remove_node(self, broker: Node) -> None:
        """The metadata knows this node no more; it has not ended yet."""
        self._shown = lambda image: replace(
            image, brokers={key: each for key, each in image.brokers.items() if key != broker.node_id}
        )

    async def forget_topics(self, _broker: Node) -> None:
        """All topics, the internal ones too."""
        self._shown = lambda image: replace(image, topics={}, topics_by_id={})

    async def resign(self, broker: Node) -> None:
        """The groups of this node are coordinated by another."""
        runtime = broker.services.groups._hosted._runtime
        for index in runtime.partitions:
            runtime.resign(index)

    def over(self) -> None:
        self.change = self._shown = None
