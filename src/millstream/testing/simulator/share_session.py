"""A simulated share consumer's session at one node: its epoch, its partitions, and the messages it holds."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from millstream.testing.simulator.client import Address, NoAnswer, SimulatedClient
from millstream.testing.simulator.queue_worker import GROUP, REQUEST_SECONDS, Message

_OPEN, _CLOSE = 0, -1

Acknowledgement = tuple[Message, int]


class SessionOver(NoAnswer):
    """`code` is the reason; None without an answer."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the session is over: {code}")
        self.code = code


class ShareSession:
    def __init__(
        self, client: SimulatedClient, address: Address, member: str, topic_id: UUID | None, version: int
    ) -> None:
        self.address = address
        self.partitions: frozenset[int] = frozenset()
        self.answered = client.loop.time()
        """When the last answered request began: the session existed then."""
        self.held: dict[Message, None] = {}
        self.pending: list[Acknowledgement] = []
        """Acknowledgements to send with the next fetch."""
        self._client = client
        self._member = member
        self._topic_id = topic_id
        self._version = version
        self._epoch = _OPEN

    @property
    def is_connected(self) -> bool:
        """A session ends with the connection on which it was opened."""
        return self._epoch == _OPEN or self._client.is_connected(self.address)

    async def fetch(
        self,
        acks: Sequence[Acknowledgement],
        partitions: frozenset[int],
        seconds: float,
        wanted: dict[str, Any],
    ) -> Any:
        """Fetch from exactly these partitions."""
        gone = sorted(self.partitions - partitions)
        forgotten = [{"topic_id": self._topic_id, "partitions": gone}] if gone else []
        named = partitions - self.partitions
        self.partitions = partitions
        return await self.ask("share_fetch", acks, named, seconds, forgotten_topics_data=forgotten, **wanted)

    async def ask(
        self,
        name: str,
        acks: Sequence[Acknowledgement],
        partitions: Iterable[int] = (),
        seconds: float = REQUEST_SECONDS,
        *,
        closes: bool = False,
        **fields: Any,
    ) -> Any:
        """The reply; SessionOver if the session has ended, or its state is unknown."""
        start = self._client.loop.time()
        by_partition: dict[int, list[Acknowledgement]] = {each: [] for each in partitions}
        for each in sorted(acks):
            by_partition.setdefault(each[0][0], []).append(each)
        named = [
            {"partition_index": index, "acknowledgement_batches": list(_batches(told))}
            for index, told in sorted(by_partition.items())
        ]
        try:
            reply = await self._client.call(
                self.address, name, self._version, seconds,
                group_id=GROUP, member_id=self._member,
                share_session_epoch=_CLOSE if closes else self._epoch,
                topics=[{"topic_id": self._topic_id, "partitions": named}] if named else [], **fields,
            )  # fmt: skip
        except NoAnswer as error:
            raise SessionOver(None) from error
        if reply.error_code:
            raise SessionOver(reply.error_code)
        self._epoch += 1
        self.answered = start
        return reply


def acknowledgement_codes(reply: Any) -> dict[int, int]:
    """By partition."""
    return {
        each.partition_index: getattr(each, "acknowledge_error_code", each.error_code)
        for topic in reply.responses
        for each in topic.partitions
    }


def _batches(acks: Sequence[Acknowledgement]) -> Iterator[dict[str, Any]]:
    """Merges neighbours into batches, with a type for each."""
    for _, group in groupby(enumerate(acks), key=lambda each: each[1][0][1] - each[0]):
        run = [each for _, each in group]
        yield {
            "first_offset": run[0][0][1],
            "last_offset": run[-1][0][1],
            "acknowledge_types": tuple(outcome for _, outcome in run),
        }
