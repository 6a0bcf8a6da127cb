"""Judges what clients saw: takes a history of operations and returns its anomalies.

`operations` is what is recorded, `observed` the logs as all clients together saw them, `sending` and `reading` the
anomalies that can be found there, `queues` those of share groups, `linearizable` the search for an order that explains
single-key operations, `judge` all of it. Pure: no clock, no cluster. The simulator and `millstream chaos` use the same
judge.
"""

from millstream.testing.history.judge import judge
from millstream.testing.history.operations import Anomaly, History, Outcome, Poll, Seen, Send, Transaction

__all__ = ["Anomaly", "History", "Outcome", "Poll", "Seen", "Send", "Transaction", "judge"]
