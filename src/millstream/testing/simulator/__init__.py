"""Whole nodes on virtual time: the seed alone decides a run.

`loop` is the event loop, whose clock jumps to the next event; `network` and `transport` are the wires; `machine` is
what a node uses of its machine (disk, clock, threads, randomness); `cluster` holds the nodes, which are unmodified
`broker.node.Node`s. `workload` has the clients, `nemesis` the faults, `partition_watch` and the other watches the
rules that must hold at every step, and `run` takes one seed from start to verdict. May be imported here: everything.
Must not be used: the real clock, threads, sockets, `random` without a seed, and iteration over sets.
"""
