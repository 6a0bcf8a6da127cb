"""Chaos on real processes: a local cluster, librdkafka's clients, and faults of the operating system.

`wires` are the network namespaces that can cut nodes off, `processes` the nodes, `clients` records the history,
`nemesis` makes the faults, `run` takes one run from the start to the verdict of `testing.history`, and `report`
presents it. May be imported here: everything except the simulator, which covers what cannot be done to processes.
"""
