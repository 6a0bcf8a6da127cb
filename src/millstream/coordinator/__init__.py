"""State machines over internal topics, and the runtime that hosts them.

A state machine decides: a request and the time come in, records and replies go out; it never touches a
socket, a file, a clock or randomness (ids come from a source handed to it). `runtime` and `shard` are the
thin shell that loads a partition's log, appends decided records, and sends replies once they are durable.
May import storage, protocol and runtime; must not know the broker, its handlers or the cluster's metadata.
"""
