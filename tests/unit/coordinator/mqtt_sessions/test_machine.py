"""Who owns a session, when its will goes out, when it ends: and all of it again after a crash."""

import pytest

from millstream.coordinator.mqtt_sessions.records import (
    FlightStage,
    Position,
    StoredFlight,
    StoredSubscription,
)
from millstream.coordinator.mqtt_sessions.requests import (
    Attend,
    CloseSession,
    Confirm,
    Done,
    FindSubscribers,
    KeepReceived,
    Receive,
    Release,
    Reserve,
    SaveProgress,
    Subscribe,
    Unsubscribe,
)
from millstream.protocol.errors import ErrorCode
from support.mqtt_coordinator import Coordinator, kept, will

OPTIONS = StoredSubscription(1, 12, 7)


def flight(offset=0, qos=2, number=0, stage=FlightStage.SENT):
    return StoredFlight("mqtt", 0, offset, qos, 0, stage, number, (4,))


# -- sessions


def test_a_session_is_there_again_until_it_expires():
    coordinator = Coordinator()
    first = coordinator.open()
    assert (first.present, first.shard) == (False, 3)
    coordinator.close(first)
    coordinator.wait(99)
    again = coordinator.open()
    assert again.present
    assert again.epoch > first.epoch
    coordinator.close(again)
    coordinator.wait(101)
    assert not coordinator.open().present


@pytest.mark.parametrize("how", ["clean", "no expiry", "expiry taken away"])
def test_a_session_ends_early(how):
    coordinator = Coordinator()
    opened = coordinator.open(expiry_s=0 if how == "no expiry" else 100)
    coordinator.close(opened, expiry_s=100 if how == "clean" else 0)
    assert not coordinator.open(clean=how == "clean").present


@pytest.mark.parametrize("compacted", [False, True])
def test_all_of_a_session_survives_a_crash(compacted):
    coordinator = Coordinator()
    opened = coordinator.open("ü" * 30_000)
    client, epoch = "ü" * 30_000, opened.epoch
    coordinator.ask(Subscribe(client, epoch, (("a/+", OPTIONS), ("b", OPTIONS)), (Position("mqtt", 0, 5),)))
    coordinator.ask(Unsubscribe(client, epoch, ("b", "never")))
    coordinator.ask(Receive(client, epoch, ((8, (kept("x"),)), (9, (kept("y"),)))))
    coordinator.ask(Release(client, epoch, (8,)))
    coordinator.ask(Reserve(client, epoch, ((2, flight(11, number=2)), (1, flight(10, number=1)))))
    coordinator.ask(KeepReceived(client, epoch, (2,)))
    coordinator.ask(SaveProgress(client, epoch, (Position("mqtt", 0, 9), Position("other", 3, 1))))
    coordinator.crash(compacted=compacted)
    again = coordinator.open(client)
    assert again.present
    assert again.subscriptions == (("a/+", OPTIONS),)
    assert again.received == (9,)
    assert again.in_flight == (
        (1, flight(10, number=1)),
        (2, flight(11, number=2, stage=FlightStage.RELEASED)),
    )
    assert again.positions == (Position("mqtt", 0, 9, 12), Position("other", 3, 1))
    assert coordinator.sent() == ["x", "y"]


def test_positions_do_not_go_back():
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(SaveProgress("c", opened.epoch, (Position("mqtt", 0, 9, 4),)))
    coordinator.ask(SaveProgress("c", opened.epoch, (Position("mqtt", 0, 3, 7),)))
    assert coordinator.open().positions == (Position("mqtt", 0, 9, 7),)


def test_closing_keeps_all_that_is_unacknowledged_and_frees_the_rest():
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Reserve("c", opened.epoch, ((1, flight(1)), (2, flight(2)))))
    coordinator.ask(SaveProgress("c", opened.epoch, (), acknowledged=(1,)))
    coordinator.close(opened, in_flight=((2, flight(2)), (5, flight(3, qos=1, number=1))))
    assert coordinator.open().in_flight == ((2, flight(2)), (5, flight(3, qos=1, number=1)))


def test_an_identifier_that_is_in_use_again_is_not_freed_by_an_older_word():
    """The word may be heard late: the message would never be sent again."""
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Reserve("c", opened.epoch, ((1, flight(7, number=3)), (2, flight(8, number=4)))))
    coordinator.ask(SaveProgress("c", opened.epoch, (), acknowledged=(1, 2), last_number=3))
    assert coordinator.open().in_flight == ((2, flight(8, number=4)),)


# -- owners


def test_only_the_newest_connection_is_the_owner():
    coordinator = Coordinator()
    old = coordinator.open()
    new = coordinator.open(node="n2")
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    assert coordinator.refused(Subscribe("c", old.epoch, (("a", OPTIONS),))) == fenced
    assert coordinator.refused(Receive("c", old.epoch, ((1, (kept("x"),)),))) == fenced
    assert coordinator.refused(CloseSession("c", old.epoch, True, 0)) == fenced
    assert coordinator.refused(Subscribe("nobody", 1, ())) == fenced
    assert coordinator.ask(Subscribe("c", new.epoch, (("a", OPTIONS),))) == Done()
    coordinator.close(new)
    assert coordinator.refused(Subscribe("c", new.epoch, ())) == fenced
    assert coordinator.sent() == []


def test_a_node_hears_at_once_which_of_its_sessions_were_taken_over():
    coordinator = Coordinator()
    old = coordinator.open()
    assert coordinator.ask(Attend("n1", 0)) is None
    waiting = coordinator._token
    coordinator.open(node="n2")
    attended = coordinator.answers.pop(waiting)
    assert attended.displaced == (("c", old.epoch),)
    assert coordinator.ask(Attend("n1", 0)).displaced == attended.displaced, "its answer may have been lost"
    assert coordinator.ask(Attend("n1", attended.last_event)) is None


def test_a_node_that_attends_is_answered_after_a_while_and_one_that_asks_again_at_once():
    coordinator = Coordinator()
    coordinator.open()
    coordinator.ask(Attend("n1", 0))
    first = coordinator._token
    coordinator.ask(Attend("n1", 0))
    second = coordinator._token
    assert coordinator.answers.pop(first).displaced == ()
    coordinator.wait(3)
    assert coordinator.answers.pop(second).displaced == ()


def test_after_a_crash_a_node_asks_which_of_its_sessions_it_still_owns():
    coordinator = Coordinator()
    old, kept_one = coordinator.open("taken"), coordinator.open("kept")
    coordinator.open("taken", node="n2")
    coordinator.crash()
    asked = (("taken", old.epoch), ("kept", kept_one.epoch), ("gone", 5))
    assert coordinator.ask(Confirm("n1", asked)).displaced == (("taken", old.epoch), ("gone", 5))
    coordinator.ask(Attend("n1", 0))
    coordinator.wait(3)
    assert coordinator.answers.pop(coordinator._token).incarnation == 2


def test_a_node_that_falls_silent_has_lost_its_connections():
    coordinator = Coordinator()
    lost = coordinator.open("lost", will=will("w"))
    coordinator.open("short", expiry_s=0)
    coordinator.open("other", node="n2")
    for _ in range(4):
        coordinator.wait(4)
        coordinator.ask(Attend("n2", 0))
    assert coordinator.sent() == ["w"]
    assert coordinator.refused(Subscribe("lost", lost.epoch, ())) == ErrorCode.FENCED_MEMBER_EPOCH
    assert set(coordinator.machine.state.sessions) == {"lost", "other"}
    assert {each for each, _ in coordinator.ask(Attend("n1", 0)).displaced} == {"lost", "short"}


def test_after_a_crash_nodes_have_a_whole_lease_to_be_heard_of():
    coordinator = Coordinator()
    coordinator.open(will=will("w"))
    coordinator.wait(9)
    coordinator.crash()
    coordinator.wait(9)
    assert coordinator.sent() == []
    coordinator.wait(2)
    assert coordinator.sent() == ["w"]


def test_a_coordinator_that_stood_still_does_not_take_its_nodes_for_lost():
    coordinator = Coordinator()
    coordinator.open(will=will("w"))
    coordinator.now_ms += 60_000
    coordinator.wait(0)
    assert coordinator.sent() == []
    coordinator.ask(Attend("n1", 0))
    coordinator.wait(9)
    assert coordinator.sent() == []
    coordinator.wait(2)
    assert coordinator.sent() == ["w"]


def test_many_lost_connections_are_handled_a_part_at_a_time():
    coordinator = Coordinator()
    for number in range(1_200):
        coordinator.open(f"c{number}", will=will(f"{number}"))
    coordinator.wait(11)
    assert sorted(coordinator.sent(), key=int) == [str(number) for number in range(1_200)]


# -- who wants what


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("crashed", [False, True])
def test_it_is_known_what_sessions_are_subscribed_to_connected_or_away(asked_before, crashed):
    coordinator = Coordinator()

    def wanted(*topics):
        return coordinator.ask(FindSubscribers("n1", topics)).topics

    if asked_before:
        assert wanted("a/b") == (False,)
    away, here = coordinator.open("away"), coordinator.open("here")
    coordinator.ask(Subscribe("away", away.epoch, (("a/+", OPTIONS), ("$share/g/s/#", OPTIONS)), ()))
    coordinator.ask(Subscribe("here", here.epoch, (("a/b", OPTIONS), ("b", OPTIONS)), ()))
    coordinator.close(away, "away")
    coordinator.ask(Unsubscribe("here", here.epoch, ("b",)))
    if crashed:
        coordinator.crash(compacted=True)
    assert wanted("a/b", "a", "s/1", "b") == (True, False, True, False)
    coordinator.wait(101)
    assert wanted("a/b", "s/1") == (True, False), "one has expired"
    coordinator.open("here", clean=True)
    assert wanted("a/b") == (False,)


def test_what_a_session_at_another_door_wants_is_not_known_if_it_does_not_last():
    coordinator = Coordinator()
    assert coordinator.ask(FindSubscribers("n1", ("a",))).topics == (False,)
    coordinator.open("own", "n1", expiry_s=0)
    assert coordinator.ask(FindSubscribers("n1", ("a",))).topics == (False,)
    other = coordinator.open("other", "n2", expiry_s=0)
    assert coordinator.ask(FindSubscribers("n1", ("a",))).topics == (True,)
    coordinator.close(other, "other", expiry_s=0)
    assert coordinator.ask(FindSubscribers("n1", ("a",))).topics == (False,)


# -- PUBCOMP


@pytest.mark.parametrize("crashed", [False, True])
def test_a_message_is_in_the_log_before_its_publisher_is_released(crashed):
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Receive("c", opened.epoch, ((1, (kept("first"),)),)))
    coordinator.holds_effects = True
    coordinator.ask(Receive("c", opened.epoch, ((2, (kept("second"),)),)))
    if crashed:
        coordinator.crash()
    assert coordinator.ask(Release("c", opened.epoch, (2,))) is None
    waiting = coordinator._token
    coordinator.perform()
    assert coordinator.answers.pop(waiting) == Done()
    assert coordinator.sent() == ["first", "second"]
    assert coordinator.ask(Release("c", opened.epoch, (1,))) == Done()


def test_a_publisher_waits_for_no_note_that_its_message_was_appended():
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Receive("c", opened.epoch, ((1, (kept("first"),)),)))
    coordinator.holds_effects = True
    coordinator.ask(Receive("c", opened.epoch, ((2, (kept("second"),)),)))
    assert coordinator.ask(Release("c", opened.epoch, (2,))) is None
    waiting, written = coordinator._token, len(coordinator.log)
    coordinator.perform()
    assert coordinator.answers.pop(waiting) == Done()
    assert len(coordinator.log) == written
    coordinator.wait(1)
    assert coordinator.machine.state.pending == {}


def test_a_publisher_that_is_released_after_the_append_waits_for_nothing():
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Receive("c", opened.epoch, ((1, (kept("first"),)), (2, (kept("second"),)))))
    assert coordinator.ask(Release("c", opened.epoch, (1, 2))) == Done()


def test_a_publisher_does_not_wait_for_ever_for_a_partition_that_is_away():
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Receive("c", opened.epoch, ((1, (kept("first"),)),)))
    coordinator.holds_effects = True
    coordinator.ask(Receive("c", opened.epoch, ((2, (kept("second"),)),)))
    assert coordinator.ask(Release("c", opened.epoch, (2,))) is None
    coordinator.wait(3)
    assert coordinator.answers.pop(coordinator._token) == Done()
    coordinator.perform()
    assert coordinator.sent() == ["first", "second"]


# -- wills


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "sent_after"), [(0, 100, 0), (5, 100, 5), (5, 0, 0), (50, 20, 20)]
)
def test_a_will_goes_out_after_its_delay_or_with_its_session(delay_s, expiry_s, sent_after):
    coordinator = Coordinator()
    opened = coordinator.open(expiry_s=expiry_s, will=will("w", delay_s))
    coordinator.close(opened, expiry_s=expiry_s)
    if sent_after:
        coordinator.wait(sent_after - 0.001)
        assert coordinator.sent() == []
        coordinator.crash()
        coordinator.wait(0.001)
    assert coordinator.sent() == ["w"]
    coordinator.wait(200)
    coordinator.open()
    assert coordinator.sent() == ["w"]


def test_a_client_that_says_goodbye_has_no_will():
    coordinator = Coordinator()
    coordinator.close(coordinator.open(will=will("w")), send_will=False)
    coordinator.wait(200)
    assert coordinator.sent() == []


def test_a_client_that_comes_back_in_time_has_no_will():
    coordinator = Coordinator()
    coordinator.close(coordinator.open(will=will("w", 5)))
    coordinator.wait(4)
    coordinator.open()
    coordinator.wait(9)
    assert coordinator.sent() == []


def test_a_client_that_starts_clean_ends_the_session_and_its_will_goes_out():
    coordinator = Coordinator()
    coordinator.close(coordinator.open(will=will("w", 5)))
    coordinator.open(clean=True)
    assert coordinator.sent() == ["w"]


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "clean", "sent"),
    [(0, 100, False, True), (5, 100, False, False), (5, 0, False, True), (5, 100, True, True)],
)
def test_the_will_of_a_connection_that_is_taken_over(delay_s, expiry_s, clean, sent):
    coordinator = Coordinator()
    coordinator.open(expiry_s=expiry_s, will=will("w", delay_s))
    coordinator.open(node="n2", clean=clean)
    assert coordinator.sent() == (["w"] if sent else [])


# -- the outbox


def test_each_message_is_appended_once_whatever_crashes():
    coordinator = Coordinator(pending_at_once=2)
    coordinator.holds_effects = True
    opened = coordinator.open()
    wanted = []
    for number in range(1, 8):
        coordinator.ask(Receive("c", opened.epoch, ((number, (kept(f"{number}"),)),)))
        wanted.append(f"{number}")
        if number % 3 == 0:
            while coordinator.effects:
                coordinator.perform(reports=number != 6 or len(coordinator.sent()) < 4)
            coordinator.crash(compacted=number == 6)
    coordinator.holds_effects = False
    coordinator.crash()
    assert coordinator.sent() == wanted
    coordinator.wait(1)
    assert coordinator.machine.state.pending == {}


def test_a_message_that_is_refused_for_good_holds_up_no_other():
    coordinator = Coordinator()
    coordinator.holds_effects = True
    opened = coordinator.open()
    texts = ["a", "refused", "b", "c"]
    for number, text in enumerate(texts, 1):
        coordinator.ask(Receive("c", opened.epoch, ((number, (kept(text),)),)))
    coordinator.holds_effects = False
    coordinator.crash()
    coordinator.ask(Receive("c", opened.epoch, ((9, (kept("d"),)),)))
    assert coordinator.sent() == ["a", "b", "c", "d"]
    coordinator.wait(1)
    assert coordinator.machine.state.pending == {}


def test_what_is_refused_gives_no_new_numbers_to_what_was_appended_before():
    coordinator = Coordinator(pending_at_once=1)
    coordinator.holds_effects = True
    opened = coordinator.open()
    messages = tuple((number, (kept(text),)) for number, text in enumerate(("a", "refused", "b"), 1))
    coordinator.ask(Receive("c", opened.epoch, messages))
    for _ in range(3):
        coordinator.perform()
    coordinator.holds_effects = False
    coordinator.crash()
    assert coordinator.sent() == ["a", "b"]


def test_a_repeated_message_is_kept_once():
    coordinator = Coordinator()
    opened = coordinator.open()
    request = Receive("c", opened.epoch, ((4, (kept("x"), kept("x", "retained"))),))
    coordinator.ask(request)
    coordinator.ask(request)
    assert (coordinator.sent(), coordinator.sent("retained")) == (["x"], ["x"])
    coordinator.ask(Release("c", opened.epoch, (4,)))
    coordinator.ask(request)
    assert coordinator.sent() == ["x", "x"]


def test_messages_of_a_partition_that_takes_none_wait_within_a_bound():
    coordinator = Coordinator(max_pending_bytes=1_000)
    coordinator.holds_effects = True
    opened = coordinator.open()
    refused = [
        coordinator.refused(Receive("c", opened.epoch, ((number, (kept("x" * 100),)),)))
        for number in range(1, 10)
    ]
    assert refused[0] is None
    assert refused[-1] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    coordinator.holds_effects = False
    while coordinator.effects:
        coordinator.perform()
    assert coordinator.refused(Receive("c", opened.epoch, ((99, (kept("x"),)),))) is None


# -- bounds


def test_subscriptions_and_sessions_have_a_bound():
    coordinator = Coordinator(max_subscriptions=2, max_sessions=1)
    opened = coordinator.open()
    coordinator.ask(Subscribe("c", opened.epoch, (("a", OPTIONS), ("b", OPTIONS))))
    full = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert coordinator.refused(Subscribe("c", opened.epoch, (("c", OPTIONS),))) == full
    assert coordinator.ask(Subscribe("c", opened.epoch, (("b", OPTIONS),))) == Done()
    with pytest.raises(Exception, match="too many MQTT sessions"):
        coordinator.open("d")


def test_nothing_is_left_of_a_session_that_has_ended():
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Subscribe("c", opened.epoch, (("a", OPTIONS),), (Position("mqtt", 0, 1),)))
    coordinator.ask(Reserve("c", opened.epoch, ((1, flight()),)))
    coordinator.ask(Receive("c", opened.epoch, ((1, (kept("x"),)),)))
    coordinator.close(opened, expiry_s=0)
    coordinator.crash(compacted=True)
    assert coordinator.machine.state.sessions == {}
    assert len(coordinator.log) == 2, "the producer and its next sequence number"


def test_messages_that_are_received_together_store_the_last_sequence_number_of_a_partition_only():
    coordinator = Coordinator()
    opened = coordinator.open()
    coordinator.ask(Receive("c", opened.epoch, ((1, (kept("a"),)),)))
    coordinator.wait(1)
    before = len(coordinator.log)
    coordinator.holds_effects = True
    coordinator.ask(
        Receive("c", opened.epoch, ((2, (kept("b"),)), (3, (kept("c"),)), (4, (kept("d", partition=1),))))
    )
    assert len(coordinator.log) - before == 3 * 2 + 2, (
        "identifier and message of each, a number for each partition"
    )
    coordinator.holds_effects = False
    coordinator.crash()
    coordinator.ask(Receive("c", opened.epoch, ((5, (kept("e"),)),)))
    assert coordinator.sent() == ["a", "b", "c", "e"]
    assert coordinator.sent(partition=1) == ["d"]
