"""Anomalies of reads: values that must not be there, skipped offsets, positions that go back."""

from collections.abc import Iterator

from millstream.testing.history.observed import Observed
from millstream.testing.history.operations import Anomaly, Kind, Seen


def aborted_reads(observed: Observed) -> Iterator[Anomaly]:
    refused = {(send.key, send.value) for send in observed.history.sends if observed.is_refused(send)}
    sent_in = {(send.key, send.value): send.transaction for send in observed.history.sends}
    for poll, seen in observed.reads():
        value = seen.key, seen.value
        if value in refused and (poll.is_committed_only or sent_in[value] is None):
            yield Anomaly(
                Kind.ABORTED_READ, seen.key, f"{poll.process} read {seen.value}, whose send definitely failed"
            )


def precommitted_reads(observed: Observed) -> Iterator[Anomaly]:
    sent_in = {(send.key, send.value): send.transaction for send in observed.history.sends}
    for poll, seen in observed.reads():
        if (
            poll.transaction is not None
            and poll.is_committed_only
            and sent_in.get((seen.key, seen.value)) == poll.transaction
        ):
            yield Anomaly(
                Kind.PRECOMMITTED_READ,
                seen.key,
                f"transaction {poll.transaction} read its own {seen.value} before it was committed",
            )


def wrong_steps(observed: Observed) -> Iterator[Anomaly]:
    """Neighbouring values of a key in one consumer's reads are neighbours in the log."""
    position: dict[tuple[str, str], int] = {}
    for poll in observed.history.polls:
        if poll.is_fresh:
            for known in [each for each in position if each[0] == poll.process]:
                del position[known]
        in_this_poll: set[str] = set()
        for seen in poll.records:
            log = observed.logs[seen.key]
            place = log.index[seen.offset]
            before = position.get((poll.process, seen.key))
            if (
                before is not None
                and place != before + 1
                and not _were_removed(observed, seen, before, place)
            ):
                detail = (
                    f"{poll.process} went from place {before} to {place} (offset {seen.offset}, {seen.value})"
                )
                if place <= before:
                    kind = Kind.NONMONOTONIC_POLL
                else:
                    kind = Kind.SKIP_IN_POLL if seen.key in in_this_poll else Kind.SKIP_BETWEEN_POLLS
                yield Anomaly(kind, seen.key, detail)
            position[poll.process, seen.key] = place
            in_this_poll.add(seen.key)


def _were_removed(observed: Observed, seen: Seen, before: int, place: int) -> bool:
    """Whether all skipped records may have been deleted on purpose."""
    below = observed.history.removable.get(seen.key, 0)
    return place > before and observed.logs[seen.key].places[place - 1] < below


def removed_reads(observed: Observed) -> Iterator[Anomaly]:
    """Records reported as deleted are missing when everything is read at the end."""
    for poll, seen in observed.reads():
        if poll.is_final and seen.offset < observed.history.removed.get(seen.key, 0):
            yield Anomaly(
                Kind.REMOVED_READ,
                seen.key,
                f"{seen.value} at offset {seen.offset}; below {observed.history.removed[seen.key]} all was removed",
            )
