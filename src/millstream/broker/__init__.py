"""The server, as rooms along a message's way: `server`, `api`, `handlers`, `partitions`, `replicas`, `peers`,
`coordinators`, `routing`; `node` puts them together.

Comes in: bytes of Kafka clients. Goes out: calls to storage and cluster, and replies in order. Handlers are named as
their API. Nothing below imports from here.
"""
