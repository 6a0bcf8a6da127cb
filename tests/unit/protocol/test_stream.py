"""Requests and replies of one connection, without a connection."""

import pytest

from millstream.protocol.stream import BrokenStream, RequestStream, TooManyInFlight
from millstream.protocol.wire import I16, I32


def reply(correlation: int, body: bytes = b"") -> memoryview:
    return memoryview(I32.pack(correlation) + body)


def test_the_head_of_a_request() -> None:
    stream: RequestStream[str] = RequestStream()
    head = stream.head(3, 12, 100, "a", client_id=b"me", flexible=True)
    assert I32.unpack_from(head)[0] == len(head) - 4 + 100
    assert [I16.unpack_from(head, at)[0] for at in (4, 6)] == [3, 12]
    assert head[8:] == b"\0\0\0\1" + b"\0\2me" + b"\0"
    assert RequestStream[str]().head(3, 0, 0, "a").endswith(b"\xff\xff"), "no client id"


def test_replies_come_in_order_and_find_who_waits() -> None:
    stream: RequestStream[str] = RequestStream()
    for waiter in "ab":
        stream.head(1, 0, 0, waiter)
    assert stream.received(reply(1, b"x")) == ("a", b"x")
    assert stream.received(reply(2)) == ("b", b"")
    assert stream.in_flight == 0


@pytest.mark.parametrize("correlation", [2, 3, 0])
def test_a_reply_out_of_order_breaks_the_stream(correlation: int) -> None:
    stream: RequestStream[str] = RequestStream()
    for waiter in "ab":
        stream.head(1, 0, 0, waiter)
    with pytest.raises(BrokenStream):
        stream.received(reply(correlation))


def test_without_order_a_late_reply_is_passed_over() -> None:
    stream: RequestStream[str] = RequestStream(in_order=False)
    for waiter in "abc":
        stream.head(1, 0, 0, waiter)
    stream.forget(1)
    assert stream.received(reply(3))[0] == "c"
    assert stream.received(reply(1))[0] is None
    assert stream.give_up() == ["b"]


def test_what_is_in_flight_is_bounded() -> None:
    stream: RequestStream[int] = RequestStream(most_in_flight=2)
    for number in range(2):
        stream.head(1, 0, 0, number)
    with pytest.raises(TooManyInFlight):
        stream.head(1, 0, 0, 2)
    stream.received(reply(1))
    stream.head(1, 0, 0, 2)
    assert stream.give_up() == [1, 2]


def test_the_oldest_request_decides_when_time_is_up() -> None:
    stream: RequestStream[str] = RequestStream()
    assert stream.deadline() is None
    stream.head(1, 0, 0, "a", deadline=5.0)
    stream.head(1, 0, 0, "b", deadline=3.0)
    assert stream.deadline() == 5.0
    stream.received(reply(1))
    assert stream.deadline() == 3.0


@pytest.mark.parametrize("size", [-1, 3, 1001])
def test_a_size_that_no_reply_has_breaks_the_stream(size: int) -> None:
    with pytest.raises(BrokenStream):
        RequestStream[str](most_reply_bytes=1000).reply_size(I32.pack(size))


def test_a_request_that_nobody_answers_takes_a_number_too() -> None:
    stream: RequestStream[str] = RequestStream(in_order=False)
    stream.head_without_reply(30001, 0, 0)
    stream.head(1, 0, 0, "a")
    assert stream.received(reply(2))[0] == "a"
