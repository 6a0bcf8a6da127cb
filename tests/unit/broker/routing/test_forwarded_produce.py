"""Batches that are forwarded: each once and in order, whatever becomes of their leaders."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.broker.routing import produce as subject
from millstream.broker.routing.lane import Done, LaneLost
from millstream.broker.routing.produce import ProduceRelay
from millstream.broker.routing.targets import Targets
from millstream.broker.server.listener import TAKEN
from millstream.protocol.api import APIS, PRODUCE
from millstream.protocol.errors import ErrorCode
from millstream.protocol.produce import PartitionOutcome, decode_produce, encode_produce_reply
from millstream.protocol.produce_forward import Batch, encode_produce_request
from millstream.protocol.records import Record, encode_batch
from support.led_image import image

VERSION = 9
ME = 1
OK, MOVED = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER
GAP, LATE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.REQUEST_TIMED_OUT


class Sent:
    """A request on its way to a node, to be answered by the test."""

    def __init__(self, node: int, body: bytes, done: Done) -> None:
        self.node = node
        self.request = decode_produce(memoryview(body), 0, VERSION)
        self._done = done

    @property
    def values(self) -> list[tuple[int, int]]:
        """Partitions, and the first sequence of what they are to get."""
        return [
            (index, int.from_bytes(bytes(records or b"")[53:57]))
            for _, partitions in self.request.topics
            for index, records in partitions
        ]

    def answer(self, *errors: ErrorCode) -> None:
        outcomes = [
            PartitionOutcome("t", index, error, base_offset=100 + index)
            for (index, _), error in zip(self.values, errors, strict=True)
        ]
        self._done(memoryview(b"\0" + encode_produce_reply(VERSION, outcomes)))

    def lose(self, *, was_sent: bool = True) -> None:
        self._done(LaneLost("gone", was_sent=was_sent))


class Client:
    """The rest of a client's relay, as `ProduceRelay` sees it, and the client itself."""

    def __init__(self) -> None:
        self.node_id = ME
        self.loop = asyncio.get_running_loop()
        self.image = image(t=(2, 3, 2))
        self.metrics = self
        self.retries = self
        self.value = 0
        self.held = self
        self.held_bytes = 0
        self.sent: list[Sent] = []
        self.replies: list[list[tuple[int, ErrorCode]]] = []
        self.refused: list[str] = []
        self.proxied = self.is_only_node = True
        self.relay = ProduceRelay(cast(Any, self))

    def is_proxied(self, _topic: object) -> bool:
        return self.proxied

    @property
    def targets(self) -> Targets:
        return Targets(self.image, ME, cast(Any, self.routing))

    @property
    def routing(self) -> SimpleNamespace:
        return SimpleNamespace(is_proxied=self.is_proxied)

    def send(self, node: int, _kind: str, _context: Any, body: Any, _seconds: float, done: Done) -> None:
        self.sent.append(Sent(node, b"".join(body), done))

    def body(self, _context: Any, reply: memoryview) -> memoryview:
        return reply[1:]

    def take(self, size: int) -> None:
        self.held_bytes += size

    def give_back(self, size: int) -> None:
        self.held_bytes -= size

    # What a request's context is asked for

    api, version, client_id = APIS[PRODUCE], VERSION, "c"

    @property
    def connection(self) -> "Client":
        return self

    def reply_later(self) -> "Client":
        return self

    def answer(self, outcomes: list[PartitionOutcome]) -> None:
        self.replies.append([(each.index, each.error) for each in outcomes])

    def refuse(self, reason: str) -> None:
        self.refused.append(reason)

    # What the test does

    def produce(
        self, *partitions: int, sequence: int = 0, known: bool = True, acks: int = -1, timeout_ms: int = 9000
    ) -> bool:
        identity = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if known else {}
        batch = encode_batch([Record(0, 1, None, b"v")], **identity)
        body = b"".join(
            encode_produce_request(
                VERSION, None, acks, timeout_ms, [Batch("t", each, memoryview(batch)) for each in partitions]
            )
        )
        return self.relay.takes(cast(Any, self), memoryview(bytearray(body)), 0) is TAKEN

    def leads(self, *leaders: int) -> None:
        self.image = image(t=leaders)

    async def next_sent(self, count: int) -> list[Sent]:
        """Wait until so many requests are on their way, and take them."""
        async with asyncio.timeout(90):
            while len(self.sent) < count:  # noqa: ASYNC110 - a plain list
                await asyncio.sleep(0.005)
        taken, self.sent = self.sent[:count], self.sent[count:]
        return taken


Story = Callable[[Client], Awaitable[None]]


@pytest.fixture
def tell() -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def with_client() -> None:
            client = Client()
            await story(client)
            assert not client.sent
            assert client.held_bytes == 0
            assert not client.relay.is_busy

        asyncio.run(with_client())

    return run


def test_a_request_is_cut_by_leader_and_answered_as_one(tell: Callable[[Story], None]) -> None:
    async def story(client: Client) -> None:
        assert client.produce(0, 1, 2)
        assert {each.node: [index for index, _ in each.values] for each in client.sent} == {2: [0, 2], 3: [1]}
        to_two, to_three = await client.next_sent(2)
        to_three.answer(OK)
        assert not client.replies
        to_two.answer(OK, ErrorCode.INVALID_RECORD)
        assert client.replies == [[(0, OK), (1, OK), (2, ErrorCode.INVALID_RECORD)]]

    tell(story)


def test_what_this_node_leads_is_left_to_it(tell: Callable[[Story], None]) -> None:
    async def story(client: Client) -> None:
        client.leads(ME, ME, -1)
        assert not client.produce(0, 1, 2)

    tell(story)


def test_a_batch_that_its_leader_knows_again_is_sent_to_the_next_leader(
    tell: Callable[[Story], None],
) -> None:
    async def story(client: Client) -> None:
        client.produce(0)
        (sent,) = await client.next_sent(1)
        sent.lose()
        client.leads(3, 3, 3)
        (again,) = await client.next_sent(1)
        assert (again.node, again.values) == (3, sent.values)
        again.answer(OK)
        assert client.replies == [[(0, OK)]]
        assert client.value == 1

    tell(story)


@pytest.mark.parametrize("error", [MOVED, None])
def test_one_that_might_be_written_twice_is_not(
    tell: Callable[[Story], None], error: ErrorCode | None
) -> None:
    async def story(client: Client) -> None:
        client.produce(0, known=False)
        (sent,) = await client.next_sent(1)
        if error is None:
            sent.lose()
        else:
            sent.answer(error)
        assert client.replies == [[(0, LATE if error is None else error)]]

    tell(story)


def test_one_that_was_not_sent_at_all_is_sent_again(tell: Callable[[Story], None]) -> None:
    async def story(client: Client) -> None:
        client.produce(0, known=False)
        (sent,) = await client.next_sent(1)
        sent.lose(was_sent=False)
        (again,) = await client.next_sent(1)
        again.answer(OK)
        assert client.replies == [[(0, OK)]]

    tell(story)


def test_those_behind_a_lost_batch_wait_for_it_and_keep_their_order(tell: Callable[[Story], None]) -> None:
    async def story(client: Client) -> None:
        for sequence in range(3):
            client.produce(0, sequence=sequence)
        first, second, third = await client.next_sent(3)
        first.answer(MOVED)
        client.leads(3, 3, 3)
        # Still under way to the old leader: nothing may overtake it.
        client.produce(0, sequence=3)
        await asyncio.sleep(0.15)
        assert not client.sent
        second.answer(GAP)
        third.lose()
        again = await client.next_sent(4)
        assert [each.values for each in again] == [[(0, 0)], [(0, 1)], [(0, 2)], [(0, 3)]]
        assert {each.node for each in again} == {3}
        for each in again:
            each.answer(OK)
        assert client.replies == [[(0, OK)]] * 4

    tell(story)


def test_a_gap_that_is_not_ours_is_the_clients(tell: Callable[[Story], None]) -> None:
    async def story(client: Client) -> None:
        client.produce(0, sequence=5)
        (sent,) = await client.next_sent(1)
        sent.answer(GAP)
        assert client.replies == [[(0, GAP)]]

    tell(story)


def test_where_the_one_before_may_come_by_another_node_it_is_waited_for(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(client: Client) -> None:
        client.is_only_node = False
        client.produce(0, sequence=5)
        client.produce(0, sequence=6)
        for sent in await client.next_sent(2):
            sent.answer(GAP)
        for again in await client.next_sent(2):
            again.answer(OK)
        assert client.replies == [[(0, OK)], [(0, OK)]]
        monkeypatch.setattr(subject, "_EARLY_SECONDS", 0.0)
        client.produce(0, sequence=8)
        (sent,) = await client.next_sent(1)
        sent.answer(GAP)
        assert client.replies[2:] == [[(0, GAP)]], "not for ever"

    tell(story)


def test_when_clients_are_to_go_to_leaders_themselves_they_are_told_in_order(
    tell: Callable[[Story], None],
) -> None:
    """What is under way is still answered; what comes behind it is refused after it, and what comes later at once."""

    async def story(client: Client) -> None:
        client.produce(0, sequence=0)
        client.proxied = client.is_only_node = False
        assert client.produce(0, sequence=1)
        (first,) = await client.next_sent(1)
        await asyncio.sleep(0.1)
        assert not client.replies
        first.answer(OK)
        async with asyncio.timeout(90):
            while len(client.replies) < 2:  # noqa: ASYNC110 - a plain list
                await asyncio.sleep(0.01)
        assert client.replies == [[(0, OK)], [(0, MOVED)]]
        assert not client.sent
        assert not client.produce(0, sequence=1), "this node's own handlers refuse it"

    tell(story)


def test_a_leader_that_does_not_come_back_is_given_up_with_all_that_wait_for_it(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "PATIENCE_SECONDS", 0.2)

    async def story(client: Client) -> None:
        client.produce(0, sequence=0)
        client.produce(0, sequence=1)
        first, second = await client.next_sent(2)
        first.lose()
        second.lose(was_sent=False)
        async with asyncio.timeout(90):
            while len(client.replies) < 2:
                for sent in client.sent:
                    sent.lose(was_sent=False)
                client.sent.clear()
                await asyncio.sleep(0.01)
        # The first may be in the old leader's log; the second was never sent.
        assert client.replies == [[(0, LATE)], [(0, MOVED)]]

    tell(story)


def test_a_partition_that_nobody_leads_is_refused_at_once(tell: Callable[[Story], None]) -> None:
    async def story(client: Client) -> None:
        client.produce(0)
        (sent,) = await client.next_sent(1)
        sent.lose()
        client.leads(-1, 3, 2)
        async with asyncio.timeout(90):
            while not client.replies:  # noqa: ASYNC110 - a plain list
                await asyncio.sleep(0.01)
        assert client.replies == [[(0, LATE)]]

    tell(story)


def test_without_acknowledgement_there_is_no_reply_and_an_error_ends_the_connection(
    tell: Callable[[Story], None],
) -> None:
    async def story(client: Client) -> None:
        client.produce(0, acks=0)
        client.produce(1, acks=0)
        first, second = await client.next_sent(2)
        assert first.request.acks == 1
        first.answer(OK)
        assert (client.replies, client.refused) == ([], [])
        second.answer(ErrorCode.INVALID_RECORD)
        assert (client.replies, client.refused) == ([], ["INVALID_RECORD"])

    tell(story)


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_refusal_says_nothing_of_the_attempt_before_it(
    tell: Callable[[Story], None], error: ErrorCode
) -> None:
    async def story(client: Client) -> None:
        client.produce(0)
        (first,) = await client.next_sent(1)
        first.answer(error)
        assert client.replies == [[(0, error)]], "the first and only attempt wrote nothing"
        client.produce(0)
        (sent,) = await client.next_sent(1)
        sent.lose()
        (again,) = await client.next_sent(1)
        again.answer(error)
        assert client.replies[1:] == [[(0, LATE)]]

    tell(story)


def test_each_batch_of_a_partition_that_is_named_twice_has_its_own_outcome(
    tell: Callable[[Story], None],
) -> None:
    async def story(client: Client) -> None:
        client.produce(0, 0, known=False)
        (sent,) = await client.next_sent(1)
        sent.answer(ErrorCode.INVALID_RECORD, OK)
        assert client.replies == [[(0, ErrorCode.INVALID_RECORD), (0, OK)]]

    tell(story)


async def _told(client: Client, count: int) -> None:
    async with asyncio.timeout(90):
        while len(client.replies) < count:  # noqa: ASYNC110 - a plain list
            await asyncio.sleep(0.005)


def test_what_was_sent_behind_a_batch_that_is_to_come_again_comes_after_it(
    tell: Callable[[Story], None],
) -> None:
    """A leader would tell of a gap; librdkafka begins a new epoch then, and sends again what is in the log."""

    async def story(client: Client) -> None:
        client.produce(0, sequence=0)
        client.produce(0, sequence=1)
        for sent in await client.next_sent(2):
            sent.lose()
        client.leads(-1, 3, 2)
        await _told(client, 2)
        client.leads(2, 3, 2)
        # The client had not heard of it when it sent these.
        client.produce(0, sequence=2)
        client.produce(0, 1, sequence=3)
        (other,) = await client.next_sent(1)
        assert (other.node, other.values) == (3, [(1, 3)])
        other.answer(OK)
        assert client.replies == [[(0, LATE)], [(0, LATE)], [(0, MOVED)], [(0, MOVED), (1, OK)]]
        for sequence in range(3):
            client.produce(0, sequence=sequence)
        again = await client.next_sent(3)
        assert [each.values for each in again] == [[(0, 0)], [(0, 1)], [(0, 2)]]
        for each in again:
            each.answer(OK)
        assert client.replies[4:] == [[(0, OK)]] * 3

    tell(story)


def test_so_does_what_was_sent_behind_one_to_a_partition_without_a_leader(
    tell: Callable[[Story], None],
) -> None:
    async def story(client: Client) -> None:
        client.leads(-1, 3, 2)
        assert not client.produce(0, sequence=0), "this node's own handlers refuse it"
        client.leads(2, 3, 2)
        client.produce(0, sequence=1)
        assert client.replies == [[(0, MOVED)]]
        client.leads(ME, 3, 2)
        client.produce(0, sequence=1)
        assert client.replies == [[(0, MOVED)]] * 2
        assert client.produce(0, sequence=0)
        (again,) = await client.next_sent(1)
        again.answer(OK)
        assert not client.produce(0, sequence=1), "nothing is waited for any more"

    tell(story)


def test_a_gap_behind_a_refused_batch_is_not_told(tell: Callable[[Story], None]) -> None:
    async def story(client: Client) -> None:
        client.produce(0, sequence=0)
        client.produce(0, sequence=1)
        first, second = await client.next_sent(2)
        first.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        second.lose()
        (again,) = await client.next_sent(1)
        again.answer(GAP)
        assert client.replies == [[(0, ErrorCode.NOT_ENOUGH_REPLICAS)], [(0, LATE)]]

    tell(story)


def test_where_a_client_knows_other_nodes_a_refused_batch_is_not_waited_for_for_long(
    tell: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "PATIENCE_SECONDS", 0.0)

    async def story(client: Client) -> None:
        client.is_only_node = False
        client.produce(0, sequence=0)
        (first,) = await client.next_sent(1)
        first.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        client.produce(0, sequence=1)
        (second,) = await client.next_sent(1)
        second.answer(OK)
        assert client.replies == [[(0, ErrorCode.NOT_ENOUGH_REPLICAS)], [(0, OK)]]

    tell(story)
