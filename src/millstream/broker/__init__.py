"""The server: connections, dispatch, purgatory, and one handler per API.

Comes in: bytes of Kafka clients. Goes out: calls to storage and cluster, and replies in order. Handlers live in
`broker.handlers`, named as their API. Nothing below imports from here.
"""
