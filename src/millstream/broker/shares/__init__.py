"""Queues, which acknowledge each message, on the nodes that lead their partitions.

`LedQueue` is one group's queue on one partition: the engine of `coordinator/shares`, access to the log, and the writes
to the share coordinator that every answer waits for. `Shares` holds all queues of a node. Sessions, which only Kafka's
clients have, are in `sessions`.
"""
