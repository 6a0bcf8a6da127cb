"""All anomalies of a history; a run passes only with none of them."""

from millstream.testing.history.observed import Observed
from millstream.testing.history.operations import Anomaly, History
from millstream.testing.history.reading import aborted_reads, precommitted_reads, removed_reads, wrong_steps
from millstream.testing.history.sending import (
    duplicates,
    inconsistent_offsets,
    lost_writes,
    nonmonotonic_sends,
    unseen,
)
from millstream.testing.history.transactions import torn_transactions

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
