"""Anomalies of writes: position, number of copies, order, and loss."""

from collections.abc import Iterator

from millstream.testing.history.observed import Observed
from millstream.testing.history.operations import Anomaly, Kind, Send


def inconsistent_offsets(observed: Observed) -> Iterator[Anomaly]:
    for key, log in observed.logs.items():
        for offset, values in log.values.items():
            if len(values) > 1:
                yield Anomaly(
                    Kind.INCONSISTENT_OFFSETS, key, f"at offset {offset}: {', '.join(sorted(values))}"
                )


def duplicates(observed: Observed) -> Iterator[Anomaly]:
    if not observed.history.is_idempotent:
        return
    for key, log in observed.logs.items():
        for value, offsets in log.offsets.items():
            if len(offsets) > 1:
                yield Anomaly(
                    Kind.DUPLICATE, key, f"{value} at offsets {', '.join(map(str, sorted(offsets)))}"
                )


def lost_writes(observed: Observed) -> Iterator[Anomaly]:
    """Acknowledged, below an offset that was read, and never read."""
    for send in observed.history.sends:
        log = observed.logs[send.key]
        if (
            observed.is_acknowledged(send)
            and send.offset is not None
            and send.offset <= log.highest_read
            and send.value not in log.read
            and not _may_be_gone(observed, send)
        ):
            yield Anomaly(
                Kind.LOST_WRITE,
                send.key,
                f"{send.value}, acknowledged at offset {send.offset}; read up to {log.highest_read}",
            )


def unseen(observed: Observed) -> Iterator[Anomaly]:
    """Acknowledged, but missing when everything was read from the beginning to the end."""
    found = {(seen.key, seen.value) for poll, seen in observed.reads() if poll.is_final}
    for send in observed.history.sends:
        if (
            send.key in observed.history.final_keys
            and observed.is_acknowledged(send)
            and (send.key, send.value) not in found
            and not _may_be_gone(observed, send)
        ):
            yield Anomaly(Kind.UNSEEN, send.key, f"{send.value}, acknowledged at offset {send.offset}")


def _may_be_gone(observed: Observed, send: Send) -> bool:
    """Whether the value was deleted on purpose, or may have been: an answer without an offset does not say where it
    was.
    """
    below = observed.history.removable.get(send.key, 0)
    return below > 0 and (send.offset is None or send.offset < below)


def nonmonotonic_sends(observed: Observed) -> Iterator[Anomaly]:
    """A process that sends one value after the other finds them in that order."""
    last: dict[tuple[str, str], tuple[str, int]] = {}
    for send in observed.history.sends:
        if send.offset is None or not observed.is_acknowledged(send):
            continue
        before = last.get((send.process, send.key))
        if before is not None and send.offset <= before[1]:
            yield Anomaly(
                Kind.NONMONOTONIC_SEND,
                send.key,
                f"{send.process} sent {before[0]} (offset {before[1]}), then {send.value} (offset {send.offset})",
            )
        last[send.process, send.key] = send.value, send.offset
