"""All anomalies of a history; a run passes only without any."""

from collections.abc import Iterator

from millstream.testing.history.observed import Observed
from millstream.testing.history.operations import Anomaly, History, Kind, Outcome, Send
from millstream.testing.history.reading import aborted_reads, precommitted_reads, removed_reads, wrong_steps
from millstream.testing.history.sending import (
    duplicates,
    inconsistent_offsets,
    lost_writes,
    nonmonotonic_sends,
    unseen,
)


def torn_transactions(observed: Observed) -> Iterator[Anomaly]:
    """A transaction is visible in part: readers of committed data have passed some of its writes without seeing
    them.
    """
    visible = {(seen.key, seen.value) for poll, seen in observed.reads() if poll.is_committed_only}
    passed: dict[str, int] = {}
    for poll, seen in observed.reads():
        if poll.is_committed_only:
            passed[seen.key] = max(passed.get(seen.key, -1), seen.offset)
    writes: dict[str, list[Send]] = {}
    for send in observed.history.sends:
        if send.transaction is not None and send.outcome is not Outcome.FAILED:
            writes.setdefault(send.transaction, []).append(send)
    for name, sends in writes.items():
        there = [send.value for send in sends if (send.key, send.value) in visible]
        missing = [
            send.value
            for send in sends
            if (send.key, send.value) not in visible
            and (
                send.key in observed.history.final_keys
                or (send.offset is not None and send.offset <= passed.get(send.key, -1))
            )
        ]
        if there and missing:
            yield Anomaly(
                Kind.TORN_TRANSACTION,
                sends[0].key,
                f"of transaction {name}, {', '.join(there)} can be read and {', '.join(missing)} cannot",
            )


_CHECKS = (
    inconsistent_offsets,
    duplicates,
    aborted_reads,
    lost_writes,
    unseen,
    precommitted_reads,
    removed_reads,
    wrong_steps,
    nonmonotonic_sends,
    torn_transactions,
)


def judge(history: History) -> list[Anomaly]:
    observed = Observed(history)
    return [anomaly for check in _CHECKS for anomaly in check(observed)]
