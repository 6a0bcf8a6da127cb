"""For every anomaly of a compacted topic there is a history that must be rejected, and one like it that is accepted."""

from millstream.testing.history import Outcome, Poll, Seen, Send
from millstream.testing.history.compacted import CompactedHistory, Found, Put, judge_compacted, told_as
from millstream.testing.history.operations import Kind

P = "t-0"


def put(value: str | None, offset: int | None, outcome: Outcome = Outcome.OK) -> Put:
    return Put(P, "k", value, outcome, offset)


def kinds(*puts: Put, found: Found | None = None) -> set[Kind]:
    history = CompactedHistory(puts=list(puts), found=[found] if found is not None else [], final={P})
    return {anomaly.kind for anomaly in judge_compacted(history)}


def found(value: str | None, offset: int) -> Found:
    return Found(P, "k", value, offset)


def test_the_latest_value_must_be_there() -> None:
    assert kinds(put("a", 0), put("b", 1), found=found("b", 1)) == set()
    assert kinds(put("a", 0), put("b", 1), found=found("a", 0)) == {Kind.OLD_VALUE}
    assert kinds(put("a", 0), put("b", 1), found=found("c", 1)) == {Kind.OLD_VALUE}
    assert kinds(put("a", 0)) == {Kind.OLD_VALUE}


def test_what_was_removed_may_be_gone() -> None:
    assert kinds(put("a", 0), put(None, 1)) == set()
    assert kinds(put("a", 0), put(None, 1), found=found(None, 1)) == set()
    assert kinds(put("a", 0), put(None, None, Outcome.UNKNOWN)) == set()
    assert kinds(put("a", 0), put(None, 1), found=found("a", 0)) == {Kind.OLD_VALUE}


def test_what_nobody_knows_may_have_come_late() -> None:
    late = put("a", None, Outcome.UNKNOWN)
    assert kinds(late, put("b", 1), found=found("a", 2)) == set()
    assert kinds(late, put("b", 1), found=found("a", 0)) == {Kind.OLD_VALUE}
    assert kinds(put("a", 0), put("b", 1), found=found("a", 2)) == {Kind.OLD_VALUE}


def test_what_was_not_read_to_the_end_is_not_judged() -> None:
    assert judge_compacted(CompactedHistory(puts=[put("a", 0)])) == []


def test_readers_pass_over_much_and_never_go_back() -> None:
    history = CompactedHistory()
    for offset in range(4):
        value = told_as("k", str(offset), offset)
        history.log.sends.append(Send("w", P, value, 0.0, 1.0, Outcome.OK, offset))
    seen = [Seen(P, offset, told_as("k", str(offset), offset)) for offset in range(4)]
    history.log.polls.append(Poll("r", (seen[0], seen[3]), 1.0, 2.0))
    assert judge_compacted(history) == []
    history.log.polls.append(Poll("r", (seen[2],), 2.0, 3.0))
    assert {each.kind for each in judge_compacted(history)} == {Kind.NONMONOTONIC_POLL}


def test_a_removal_is_told_from_another_by_its_place() -> None:
    assert told_as("k", None, 3) != told_as("k", None, 4)
