"""For every anomaly there is a history that the checker must reject, and one like it that it must accept."""

from collections.abc import Iterable

from millstream.testing.history import History, Outcome, Poll, Seen, Send, Transaction, judge
from millstream.testing.history.operations import Kind

K = "t-0"


def send(
    value: str,
    offset: int | None,
    outcome: Outcome = Outcome.OK,
    *,
    process: str = "p",
    transaction: str | None = None,
) -> Send:
    return Send(process, K, value, 0.0, 1.0, outcome, offset, transaction)


def poll(
    *records: tuple[int, str],
    process: str = "c",
    fresh: bool = False,
    final: bool = False,
    committed_only: bool = True,
    transaction: str | None = None,
) -> Poll:
    seen = tuple(Seen(K, offset, value) for offset, value in records)
    return Poll(process, seen, 0.0, 1.0, fresh, final, committed_only, transaction)


def kinds(
    sends: Iterable[Send] = (),
    polls: Iterable[Poll] = (),
    transactions: Iterable[Transaction] = (),
    *,
    final: bool = False,
    idempotent: bool = True,
) -> set[Kind]:
    history = History(list(sends), list(polls), list(transactions), {K} if final else set(), idempotent)
    return {anomaly.kind for anomaly in judge(history)}


A, B, C = (0, "a"), (1, "b"), (2, "c")


def test_a_run_without_trouble_passes() -> None:
    sends = [send("a", 0), send("b", 1), send("c", 2)]
    polls = [poll(A), poll(B, C), poll(A, B, C, process="last", final=True)]
    assert kinds(sends, polls, final=True) == set()


def test_gaps_between_offsets_are_legal() -> None:
    sends = [send("a", 0), send("b", 7)]
    assert kinds(sends, [poll((0, "a"), (7, "b"), final=True)], final=True) == set()


def test_a_send_of_unknown_outcome_may_be_there_or_not() -> None:
    sends = [send("a", 0), send("x", None, Outcome.UNKNOWN), send("y", None, Outcome.UNKNOWN)]
    assert kinds(sends, [poll(A, (1, "y"), final=True)], final=True) == set()


def test_two_values_at_one_offset() -> None:
    assert Kind.INCONSISTENT_OFFSETS in kinds(polls=[poll(A), poll((0, "x"), process="d")])
    assert Kind.INCONSISTENT_OFFSETS in kinds([send("a", 0)], [poll((0, "x"))])


def test_one_value_at_two_offsets() -> None:
    twice = [poll(A, (1, "a"))]
    assert kinds(polls=twice) == {Kind.DUPLICATE}
    assert kinds(polls=twice, idempotent=False) == set()


def test_a_read_of_what_definitely_failed() -> None:
    failed = [send("a", None, Outcome.FAILED)]
    assert kinds(failed, [poll(A)]) == {Kind.ABORTED_READ}
    assert kinds([send("a", None, Outcome.UNKNOWN)], [poll(A)]) == set()


def test_a_read_of_an_aborted_transaction() -> None:
    sends = [send("a", 0, transaction="t")]
    aborted = [Transaction("t", Outcome.FAILED)]
    assert kinds(sends, [poll(A)], aborted) == {Kind.ABORTED_READ}
    assert kinds(sends, [poll(A, committed_only=False)], aborted) == set()


def test_an_acknowledged_value_below_what_was_read_that_nobody_read() -> None:
    sends = [send("a", 0), send("b", 1), send("c", 2)]
    assert Kind.LOST_WRITE in kinds(sends, [poll(A), poll(C, fresh=True)])
    assert kinds(sends, [poll(A)]) == set()


def test_an_acknowledged_value_that_the_last_phase_does_not_find() -> None:
    sends = [send("a", 0), send("b", 1)]
    assert kinds(sends, [poll(A, final=True)], final=True) == {Kind.UNSEEN}
    assert kinds(sends, [poll(A, B, final=True)], final=True) == set()
    assert kinds(sends, [], final=True) == {Kind.UNSEEN}


def test_an_acknowledgement_without_an_offset_counts_too() -> None:
    assert kinds([send("a", None)], [poll((0, "b"), final=True)], final=True) == {Kind.UNSEEN}


def test_a_transaction_that_reads_its_own_uncommitted_send() -> None:
    sends = [send("a", 0, transaction="t")]
    done = [Transaction("t", Outcome.OK)]
    assert kinds(sends, [poll(A, transaction="t")], done) == {Kind.PRECOMMITTED_READ}
    assert kinds(sends, [poll(A, transaction="u")], done) == set()


def test_a_skip_inside_a_poll() -> None:
    others = poll(A, B, C, process="d")
    assert kinds(polls=[others, poll(A, C)]) == {Kind.SKIP_IN_POLL}


def test_a_skip_between_polls_except_across_a_rebalance() -> None:
    others = poll(A, B, C, process="d")
    assert kinds(polls=[others, poll(A), poll(C)]) == {Kind.SKIP_BETWEEN_POLLS}
    assert kinds(polls=[others, poll(A), poll(C, fresh=True)]) == set()


def test_a_poll_that_goes_back() -> None:
    assert kinds(polls=[poll(A, B), poll(A)]) == {Kind.NONMONOTONIC_POLL}
    assert kinds(polls=[poll(B, A)]) == {Kind.NONMONOTONIC_POLL}
    assert kinds(polls=[poll(A, B), poll(A, fresh=True)]) == set()


def test_sends_of_one_process_that_change_their_order() -> None:
    sends = [send("b", 1), send("a", 0)]
    assert kinds(sends) == {Kind.NONMONOTONIC_SEND}
    assert kinds([send("b", 1), send("a", 0, process="q")]) == set()


def test_half_of_a_transaction() -> None:
    sends = [send("a", 0, transaction="t"), send("b", 1, transaction="t"), send("c", 2)]
    done = [Transaction("t", Outcome.OK)]
    assert Kind.TORN_TRANSACTION in kinds(sends, [poll(A), poll(C, fresh=True)], done)
    assert kinds(sends, [poll(A, B, C)], done) == set()
    unknown = [Transaction("t", Outcome.UNKNOWN)]
    assert Kind.TORN_TRANSACTION in kinds(sends, [poll(A, C, final=True)], unknown, final=True)
    assert kinds(sends, [poll(A, B, C, final=True)], unknown, final=True) == set()
