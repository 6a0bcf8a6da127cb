"""Handles and results, given delivery reports as librdkafka gives them."""

import asyncio
import gc
import threading
import weakref
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Message as RawMessage

from millstream.client import (
    BatchFailedError,
    ClientError,
    MessageTooLargeError,
    SendHandle,
    SendResult,
    TimedOutError,
    UnknownTopicError,
    sending,
)
from millstream.client.aio_producer import _Reports
from millstream.client.delivery import PENDING, Deliveries, fail, outcome, settled

STORED = RawMessage(topic="events", partition=1, offset=7)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
LATE = KafkaError(KafkaError._MSG_TIMED_OUT)


def test_result_tells_where_the_message_is() -> None:
    handle = SendHandle(Deliveries(), "events")
    assert not handle.done()

    handle(None, STORED)

    assert handle.done()
    assert handle.result() == SendResult("events", 1, 7)


def test_result_waits_for_the_report_of_another_thread() -> None:
    handle = SendHandle(Deliveries(), "events")
    timer = threading.Timer(0.05, handle, (None, STORED))
    timer.start()

    assert handle.result(90).offset == 7
    timer.join()


def test_waiting_ends_after_the_timeout() -> None:
    handle = SendHandle(Deliveries(), "events")

    with pytest.raises(TimedOutError, match=r"no answer within 0\.01 s"):
        handle.result(0.01)


def test_failure_is_raised_by_the_result_and_then_seen() -> None:
    deliveries = Deliveries()
    handle = SendHandle(deliveries, "events")

    handle(TOO_LARGE, STORED)

    assert len(deliveries.unreported) == 1
    with pytest.raises(MessageTooLargeError, match=r"sending to events: .* too large"):
        handle.result()
    assert not deliveries.unreported


def test_callback_gets_either_a_result_or_an_error() -> None:
    calls: list[tuple[SendResult | None, ClientError | None]] = []
    deliveries = Deliveries()

    SendHandle(deliveries, "events", lambda result, error: calls.append((result, error)))(None, STORED)
    SendHandle(deliveries, "events", lambda result, error: calls.append((result, error)))(TOO_LARGE, STORED)

    (stored, no_error), (nothing, error) = calls
    assert (stored, no_error, nothing) == (SendResult("events", 1, 7), None, None)
    assert isinstance(error, MessageTooLargeError)
    assert not deliveries.unreported


def test_a_callback_that_raises_keeps_no_report_from_others(caplog: pytest.LogCaptureFixture) -> None:
    """It ended the thread that brings all reports: no handle was ever done again."""

    def raises(_result: SendResult | None, _error: ClientError | None) -> None:
        raise ValueError("the caller's own")

    handle = SendHandle(Deliveries(), "events", raises)
    handle(None, STORED)

    assert handle.result().offset == 7
    assert "on_delivery failed for a message to events" in caplog.text
    assert "the caller's own" in caplog.text


def test_a_callback_of_librdkafka_that_raises_does_not_end_the_polling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop, polls = threading.Event(), iter((ValueError("error_cb"), None))

    class Raw:
        def poll(self, _timeout: float) -> None:
            failure = next(polls)
            if failure is not None:
                raise failure
            stop.set()

    sending._poll(cast(Any, Raw()), stop)

    assert "a callback of the producer failed" in caplog.text


def test_a_message_that_waited_for_a_deleted_partition_is_told_that_the_topic_is_gone() -> None:
    """The stream of telemetry makes such a topic again; it ended with an error of the broker's handle."""
    result = outcome("events", KafkaError(KafkaError._DESTROY), RawMessage(topic="events", partition=1))

    assert isinstance(result.error, UnknownTopicError)
    assert "sending to events: the topic was deleted" in str(result.error)


def test_unknown_offset_is_minus_one() -> None:
    result = outcome("events", None, RawMessage(topic="events", partition=1))

    assert result == SendResult("events", 1, -1)


@pytest.mark.parametrize(("errors", "retriable"), [((LATE, LATE), True), ((LATE, TOO_LARGE), False)])
def test_failed_batch_names_the_first_error_and_can_be_retried_when_all_can(
    errors: tuple[KafkaError, ...], retriable: bool
) -> None:
    results = [outcome("events", error, STORED) for error in (None, *errors)]

    failure = BatchFailedError(results)

    assert "2 of 3 messages were not stored" in str(failure)
    assert failure.retriable is retriable
    assert [result.error is None for result in failure.results] == [True, False, False]


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SendResult("events", 1, 7).offset = 8  # type: ignore[misc]


def test_a_failure_that_a_waiting_caller_was_told_is_not_told_again() -> None:
    deliveries = Deliveries()
    handle = SendHandle(deliveries, "events")
    timer = threading.Timer(0.05, handle, (TOO_LARGE, STORED))
    timer.start()

    with pytest.raises(MessageTooLargeError):
        handle.result(90)

    timer.join()
    assert not deliveries.unreported


def test_reports_for_a_loop_that_is_closed_keep_none_from_the_next() -> None:
    """The first one is to wake the loop: one that was left over kept all later ones from doing it."""
    reports = _Reports()
    closed = asyncio.new_event_loop()
    left_over = closed.create_future()
    closed.close()
    reports.callback(left_over)(SendResult("events", 0, 1), None)

    async def send() -> SendResult:
        future: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        reports.callback(future)(SendResult("events", 0, 2), None)
        return await asyncio.wait_for(future, 60)

    assert asyncio.run(send()).offset == 2


def test_the_garbage_collector_does_not_look_at_results_of_stored_messages() -> None:
    """They come by the ten thousand: its passes over them were a quarter of the cost of a batch."""
    result = SendResult("events", offset=PENDING)

    result(None, STORED)

    assert result == SendResult("events", 1, 7)
    assert not gc.is_tracked(result)


def test_the_garbage_collector_finds_results_that_their_errors_lead_back_to() -> None:
    def failed() -> "weakref.ref[ClientError]":
        result = SendResult("events", offset=PENDING)
        try:
            raise ClientError("refused")
        except ClientError as error:
            fail(result, error)
        (copy,) = settled([result])
        assert (copy.offset, str(copy.error)) == (-1, "refused")
        assert copy.error is not None
        return weakref.ref(copy.error)

    error = failed()
    gc.collect()

    assert error() is None
