"""Queues with an acknowledgement for each message, where their partitions are led.

`LedQueue` is one group on one partition: the engine of `coordinator/shares`, what it needs of the log, and the writes
to the share coordinator that every answer waits for. `Shares` keeps all of a node. What comes in are values; sessions,
which only Kafka's clients have, are in `sessions`.
"""
