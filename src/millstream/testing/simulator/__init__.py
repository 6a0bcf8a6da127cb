"""Whole nodes on virtual time: a run is decided by its seed and by nothing else.

`loop` is the event loop whose clock goes to whatever comes next, `network` and `transport` the wires, `machine` what a
node takes from the machine under it (disk, clock, threads, chance), `cluster` the nodes, which are `broker.node.Broker`
and know nothing of all this. `workload` are the clients, `nemesis` what goes wrong, `partition_watch` and its kind the
rules that must hold at every step, `run` one seed from the start to the verdict. May come in: everything. Must not: the
real clock, threads, sockets, `random` without a seed, and sets that are walked through.
"""
