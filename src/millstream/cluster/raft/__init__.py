"""Agreement of a few nodes on one log: a Raft core without I/O, its write-ahead log, and the glue between them.

Rules live in files by subject (`election`, `replication`, `following`, `reading`, `changes`) as functions over one
`RaftState`; `core.Raft` is their door: events go in, a `Ready` of effects comes out. `wal` makes a Ready durable,
`member` carries it out, `driver` gives it time and futures. May come in: runtime. Must not: metadata, sockets, clocks
and randomness; what an entry's bytes mean is the state machine's business.
"""
