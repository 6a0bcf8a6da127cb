"""The server, as rooms along a message's way: `server`, `api`, `handlers`, `partitions`, `replicas`, `peers`,
`coordinators`, `shares`, `routing`; `node`, `services` and `wiring` put them together. A part takes what it uses, never
the node, which only `process` and `testing` import.

Comes in: bytes of Kafka clients. Goes out: calls to storage and cluster, and replies in order. Handlers are named as
their API. Nothing below imports from here.
"""
