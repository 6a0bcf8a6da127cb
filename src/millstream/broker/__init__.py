"""The server, as rooms along a message's way: `server`, `api`, `handlers`, `partitions`, `replicas`, `peers`,
`coordinators`, `shares`, `routing`; `node`, `services` and `wiring` put them together. A part takes what it uses, never
the node, which only `process` and `testing` import.

In: bytes of Kafka clients. Out: calls to storage and cluster, and replies in order. Nothing below imports from here.
"""
