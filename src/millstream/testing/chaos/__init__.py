"""Chaos on real processes: a local cluster, librdkafka's clients, and faults of the operating system.

`wires` are the network namespaces that let nodes be cut off, `processes` the nodes, `clients` who records the history,
`nemesis` what goes wrong, `run` one run from the start to the verdict of `testing.history`, `report` what is
shown of it. May come in: everything. Must not: the simulator, which is for what cannot be done to processes.
"""
